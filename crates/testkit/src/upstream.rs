//! An upstream that passes each connection to a function of the test, its script. The script can reset the connection,
//! stall or send an invalid response.

use socket2::{Domain, Socket, Type};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Returns an address that refuses connections until the process ends: the port is bound, but nothing listens on it.
pub fn refusing() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("a free port");
    let bound = socket.local_addr().expect("a bound address");
    std::mem::forget(socket);
    bound.as_socket().expect("an IP address")
}

/// A listener on a free port that passes each connection to a function in a thread of its own.
#[derive(Debug)]
pub struct Scripted {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Scripted {
    pub fn start(script: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let connections = Arc::new(AtomicUsize::new(0));
        let (counter, script) = (Arc::clone(&connections), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counter.fetch_add(1, Ordering::SeqCst);
                let script = Arc::clone(&script);
                thread::spawn(move || script(stream));
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// Starts an upstream that reads a request head, writes these bytes and closes the connection.
    pub fn answering(bytes: &'static [u8]) -> Self {
        Self::start(move |mut stream| {
            read_until_blank_line(&mut stream);
            let _ = std::io::Write::write_all(&mut stream, bytes);
        })
    }

    /// Starts an upstream that reads everything and never responds.
    pub fn silent() -> Self {
        Self::start(|mut stream| {
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        })
    }

    /// Starts an upstream that resets each connection after it has read a request head.
    pub fn resetting() -> Self {
        Self::start(|mut stream| {
            read_until_blank_line(&mut stream);
            // With a linger time of zero, closing sends a reset. If the option fails, the connection is closed
            // normally.
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        })
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads the head of a request byte by byte, so that the bytes after it stay unread.
pub fn read_until_blank_line(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        seen.push(byte[0]);
    }
}
