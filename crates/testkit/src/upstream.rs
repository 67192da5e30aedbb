//! An upstream that does with each connection what the test says: resets it, stalls, answers nonsense.

use socket2::{Domain, Socket, Type};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// An address that refuses connections for as long as the process lives: the port is taken, and nobody listens.
pub fn refusing() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).expect("a free port");
    let bound = socket.local_addr().expect("a bound address");
    std::mem::forget(socket);
    bound.as_socket().expect("an IP address")
}

/// A listener on a free port whose connections are given to a function, each in a thread.
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

    /// An upstream that reads a request head and then writes these bytes and closes.
    pub fn answering(bytes: &'static [u8]) -> Self {
        Self::start(move |mut stream| {
            read_until_blank_line(&mut stream);
            let _ = std::io::Write::write_all(&mut stream, bytes);
        })
    }

    /// An upstream that reads whatever comes and never answers.
    pub fn silent() -> Self {
        Self::start(|mut stream| {
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        })
    }

    /// An upstream that resets each connection after reading the head of a request.
    pub fn resetting() -> Self {
        Self::start(|mut stream| {
            read_until_blank_line(&mut stream);
            // Closed without lingering, the kernel sends a reset. A failure leaves an ordinary close.
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        })
    }

    /// How many connections came in.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads the head of a request, byte by byte so that nothing after it is taken.
pub fn read_until_blank_line(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        seen.push(byte[0]);
    }
}
