//! The upstream of these tests: an origin server that follows RFC 9110, parses strictly, and records what it receives.

use super::wire::{End, Message, Wire};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// An event on a connection to the origin.
#[derive(Debug, Clone)]
pub(super) enum Seen {
    Request(Message),
    /// An incomplete request.
    Cut,
    /// Invalid bytes, which no client may send.
    Wrong {
        #[allow(dead_code, reason = "for messages of failures")]
        what: String,
    },
}

pub(super) struct Origin {
    pub(super) address: SocketAddr,
    seen: Arc<(Mutex<Vec<Seen>>, Condvar)>,
    connections: Arc<Mutex<Vec<Connection>>>,
}

/// A closed connection: its bytes, and the requests in them.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) bytes: Vec<u8>,
    pub(super) requests: Vec<Message>,
    /// Whether the bytes are complete requests and nothing else.
    pub(super) whole: bool,
}

impl Origin {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let seen = Arc::<(Mutex<Vec<Seen>>, Condvar)>::default();
        let connections = Arc::<Mutex<Vec<Connection>>>::default();
        let (all, ended) = (seen.clone(), connections.clone());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, ended) = (all.clone(), ended.clone());
                thread::spawn(move || {
                    let connection = serve(stream, &|what| note(&seen, what));
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.push(connection);
                });
            }
        });
        Self {
            address,
            seen,
            connections,
        }
    }

    /// Takes the connections that have ended since the last call.
    pub(super) fn take_connections(&self) -> Vec<Connection> {
        let mut ended = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut ended)
    }

    /// Takes everything received since the last call.
    pub(super) fn take(&self) -> Vec<Seen> {
        let mut seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut seen)
    }

    /// Waits up to 20 seconds for at least `count` events. Takes everything received since the last call.
    pub(super) fn take_at_least(&self, count: usize) -> Vec<Seen> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.len() < count && Instant::now() < deadline {
            let waited = self.seen.1.wait_timeout(seen, Duration::from_secs(1));
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut seen)
    }
}

fn note(seen: &(Mutex<Vec<Seen>>, Condvar), what: Seen) {
    seen.0
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(what);
    seen.1.notify_all();
}

fn serve(stream: TcpStream, note: &dyn Fn(Seen)) -> Connection {
    let mut wire = Wire::new(stream);
    wire.stream
        .set_read_timeout(None)
        .expect("no limit is accepted");
    let mut requests = Vec::new();
    let whole = loop {
        match wire.request() {
            Ok(request) => {
                let answer = answer(&request);
                requests.push(request.clone());
                note(Seen::Request(request));
                if wire.stream.write_all(&answer).is_err() {
                    break true;
                }
            }
            Err(End::Closed | End::Reset) => break true,
            Err(End::Cut) => {
                note(Seen::Cut);
                break false;
            }
            Err(End::Wrong(what)) => {
                note(Seen::Wrong { what });
                break false;
            }
        }
    };
    Connection {
        bytes: wire.came,
        requests,
        whole,
    }
}

/// The response to a request. It echoes the body, and treats methods like a resource that allows GET and POST.
fn answer(request: &Message) -> Vec<u8> {
    let (status, allow) = match request.method() {
        // This origin supports no other protocol and no other version of HTTP.
        "GET" if request.header("upgrade").is_some() => ("426 Upgrade Required", false),
        "OPTIONS" => ("204 No Content", true),
        "GET" | "HEAD" | "POST" | "PUT" => ("200 OK", false),
        "DELETE" | "PATCH" => ("405 Method Not Allowed", true),
        _ => ("501 Not Implemented", false),
    };
    let mut out = format!("HTTP/1.1 {status}\r\nX-Target: {}\r\n", request.target());
    if allow {
        out.push_str("Allow: GET, HEAD, POST, PUT, OPTIONS\r\n");
    }
    let body: &[u8] = match request.body.as_slice() {
        b"" => b"OK",
        body => body,
    };
    if status.starts_with("204") {
        out.push_str("\r\n");
        return out.into_bytes();
    }
    out.push_str(&format!(
        "Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    let mut bytes = out.into_bytes();
    if request.method() != "HEAD" {
        bytes.extend_from_slice(body);
    }
    bytes
}
