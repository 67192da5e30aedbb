//! A directory for tests. It answers binds and records them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A running directory. It accepts the password `<username>-pw` for each username, and it stops with the process.
pub(super) struct Directory {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    binds: Vec<(String, String)>,
    connections: usize,
    /// What every bind gets, if it is set.
    code: Option<u8>,
    delay: Duration,
}

impl Directory {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let of_server = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = of_server.clone();
                state.lock().unwrap().connections += 1;
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    /// Makes every bind end with this result code.
    pub(super) fn answer_with(&self, code: u8) {
        self.state.lock().unwrap().code = Some(code);
    }

    pub(super) fn delay(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    /// Returns the names and passwords of all binds since the last call.
    pub(super) fn binds(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state.lock().unwrap().binds)
    }

    pub(super) fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }
}

/// Answers binds of less than 128 bytes until the client leaves.
fn serve(mut stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    loop {
        let mut head = [0; 2];
        stream.read_exact(&mut head)?;
        let mut message = vec![0; usize::from(head[1])];
        stream.read_exact(&mut message)?;
        // 2 1 ID 0x60 LENGTH 2 1 3 4 LENGTH NAME 0x80 LENGTH PASSWORD
        let (id, operation) = (message[2], message[3]);
        if operation != 0x60 {
            return Ok(());
        }
        let end = 10 + usize::from(message[9]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (name, password) = (text(&message[10..end]), text(&message[end + 2..]));
        let is_right = name.starts_with(&format!("uid={},", password.trim_end_matches("-pw")));
        let (code, delay) = {
            let mut state = state.lock().unwrap();
            state.binds.push((name, password));
            let code = state.code.unwrap_or(if is_right { 0 } else { 49 });
            (code, state.delay)
        };
        thread::sleep(delay);
        stream.write_all(&[0x30, 12, 2, 1, id, 0x61, 7, 10, 1, code, 4, 0, 4, 0])?;
    }
}
