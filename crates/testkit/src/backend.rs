//! An upstream whose status a test can change while it runs. Each response has the current status, and the backend's
//! name as its body.

use crate::message;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// A running upstream. It stops with the process.
#[derive(Debug, Clone)]
pub struct Backend {
    pub address: SocketAddr,
    state: Arc<BackendState>,
}

#[derive(Debug)]
struct BackendState {
    name: String,
    status: AtomicU16,
    requests: AtomicU64,
    /// Heads of the requests whose path begins with `/probe`. These are not counted in `requests`.
    probes: Mutex<Vec<String>>,
    /// Requests wait while this is true.
    held: Mutex<bool>,
    released: Condvar,
}

impl Backend {
    /// Starts on a free port of the loopback address, with status 200.
    pub fn start(name: &str) -> Self {
        Self::start_on("127.0.0.1:0", name).expect("a free port")
    }

    pub fn start_on(address: &str, name: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let backend = Self {
            address: listener.local_addr()?,
            state: Arc::new(BackendState {
                name: name.to_owned(),
                status: AtomicU16::new(200),
                requests: AtomicU64::new(0),
                probes: Mutex::default(),
                held: Mutex::new(false),
                released: Condvar::new(),
            }),
        };
        let state = Arc::clone(&backend.state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                // Errors are ignored, because the client may disconnect at any time.
                thread::spawn(move || state.serve(stream));
            }
        });
        Ok(backend)
    }

    /// Sets the status of all later responses, including those to probes.
    pub fn set_status(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    /// Returns the number of requests so far, without probes.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Returns the heads of the probes so far.
    pub fn probes(&self) -> Vec<String> {
        lock(&self.state.probes).clone()
    }

    /// Makes later requests wait, after they have been counted, until [`Backend::release`].
    pub fn hold(&self) {
        *lock(&self.state.held) = true;
    }

    /// Lets the waiting requests continue.
    pub fn release(&self) {
        *lock(&self.state.held) = false;
        self.state.released.notify_all();
    }
}

impl BackendState {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(head) = message::read_head(&mut reader)? {
            if head.first.starts_with("GET /probe") {
                let lines = head
                    .headers
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}"));
                let lines: Vec<_> = [head.first.clone()].into_iter().chain(lines).collect();
                lock(&self.probes).push(lines.join("\n"));
            } else {
                self.requests.fetch_add(1, Ordering::SeqCst);
                let held = lock(&self.held);
                let waited = self.released.wait_while(held, |held| *held);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            let (status, body) = (self.status.load(Ordering::SeqCst), &self.name);
            let length = body.len();
            write!(
                &stream,
                "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
