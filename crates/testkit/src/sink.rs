//! A log server: an HTTP/1.1 server that hands each request to the test. It can be killed and started again on its
//! address.

use crate::message;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time limit for a request to arrive. Even on a busy machine, it takes less.
const LIMIT: Duration = Duration::from_secs(60);

/// A running log server. It is killed when this is dropped.
#[derive(Debug)]
pub struct Sink {
    pub address: SocketAddr,
    delivered: Receiver<Delivery>,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The statuses of the first responses. All later ones have status 200.
    statuses: Vec<u16>,
    requests: AtomicU64,
    is_killed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

/// A request that the server has received.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The request line.
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Delivery {
    /// Returns the value of the first header with this name, compared without case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Parses the body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// Returns the records in the body: its elements if it is a list, and otherwise the body alone.
    pub fn records(&self) -> Vec<serde_json::Value> {
        match self.json() {
            serde_json::Value::Array(records) => records,
            record => vec![record],
        }
    }
}

impl Sink {
    /// Starts on a free port of the loopback address. The first responses have these statuses, the others 200.
    pub fn start(statuses: &[u16]) -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), statuses).expect("a free port")
    }

    pub fn start_on(address: SocketAddr, statuses: &[u16]) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            statuses: statuses.to_vec(),
            requests: AtomicU64::new(0),
            is_killed: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let (send, delivered) = channel();
        let accepting = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accepting.accept(&listener, &send));
        Ok(Self {
            address,
            delivered,
            shared,
            acceptor: Some(acceptor),
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for the next request. Panics if none arrives in time.
    pub fn next(&self) -> Delivery {
        let delivered = self.delivered.recv_timeout(LIMIT);
        delivered.expect("the log server receives a request")
    }

    /// Returns the requests that have arrived and that no test has taken.
    pub fn arrived(&self) -> Vec<Delivery> {
        self.delivered.try_iter().collect()
    }

    /// Closes the listener and all connections, as when a process is killed.
    pub fn kill(&mut self) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        self.shared.is_killed.store(true, Ordering::SeqCst);
        for connection in self.shared.connections().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        // This ends the wait for a connection.
        let _ = TcpStream::connect(self.address);
        let _ = acceptor.join();
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Shared {
    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener, send: &Sender<Delivery>) {
        for stream in listener.incoming().map_while(Result::ok) {
            if let Ok(clone) = stream.try_clone() {
                self.connections().push(clone);
            }
            if self.is_killed.load(Ordering::SeqCst) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            let (shared, send) = (Arc::clone(self), send.clone());
            // Errors are ignored, because the gateway may close the connection at any time.
            thread::spawn(move || shared.serve(&stream, &send));
        }
    }

    fn serve(&self, mut stream: &TcpStream, send: &Sender<Delivery>) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(head) = message::read_head(&mut reader)? {
            let length = head.content_length().unwrap_or_default();
            let body = message::read_sized(&mut reader, length)?;
            let number = self.requests.fetch_add(1, Ordering::SeqCst);
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            let status = self.statuses.get(at).copied().unwrap_or(200);
            let _ = send.send(Delivery {
                line: head.first,
                headers: head.headers,
                body,
            });
            let answer = format!("HTTP/1.1 {status} Scripted\r\nContent-Length: 2\r\n\r\nok");
            stream.write_all(answer.as_bytes())?;
        }
        Ok(())
    }
}
