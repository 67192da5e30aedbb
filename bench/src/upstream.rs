//! The upstream of every measurement. It answers each GET immediately from memory. It uses one epoll loop, and one read
//! and one write for each small response.

use crate::descriptors;
use crate::pending::Pending;
use crate::slots::Slots;
use anyhow::{Context, Result};
use memchr::memmem;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;

const LISTENER: Token = Token(usize::MAX);
const SMALL: usize = 512;
/// Responses that may be stored have this length.
const PAGE: usize = 2 * 1024;
const BIG: usize = 64 * 1024;
const HUGE: usize = 10 * 1024 * 1024;
const BUFFER: usize = 64 * 1024;
/// Period of the bytes in a body. It is prime and thus divides no usual buffer size, so that a lost, repeated or moved
/// piece is detected.
const PERIOD: usize = 251;

/// Returns the length of the upstream's response body for this path.
pub fn body_length(path: &str) -> usize {
    if path.starts_with("/big") {
        BIG
    } else if path.starts_with("/huge") {
        HUGE
    } else if path.starts_with("/page") {
        PAGE
    } else {
        SMALL
    }
}

/// Compares pieces of a body with the upstream's body.
pub struct Pattern(Vec<u8>);

impl Pattern {
    /// Creates a pattern. `longest` is the length of the longest piece to compare.
    pub fn new(longest: usize) -> Self {
        Self(pattern(longest + PERIOD))
    }

    /// Whether the upstream's body contains this piece at `offset`.
    pub fn holds(&self, offset: usize, piece: &[u8]) -> bool {
        let start = offset % PERIOD;
        self.0.get(start..start + piece.len()) == Some(piece)
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..PERIOD as u8).cycle().take(length).collect()
}

/// The responses: 10 MiB for `/huge`, 64 KiB for `/big`, 2 KiB for `/page`, which may be stored, and 512 bytes for every
/// other path.
struct Answers {
    small: Vec<u8>,
    page: Vec<u8>,
    big: Vec<u8>,
    huge: Vec<u8>,
}

impl Answers {
    fn to(&self, head: &[u8]) -> &[u8] {
        let path = head.strip_prefix(b"GET ").unwrap_or_default();
        match path {
            [b'/', b'p', b'a', b'g', b'e', ..] => &self.page,
            [b'/', b'b', b'i', b'g', ..] => &self.big,
            [b'/', b'h', b'u', b'g', b'e', ..] => &self.huge,
            _ => &self.small,
        }
    }
}

struct Client {
    stream: TcpStream,
    /// The received part of a request head.
    partial: Vec<u8>,
    pending: Pending,
}

pub fn run(listen: SocketAddr) -> Result<()> {
    descriptors::raise_limit()?;
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    println!("listening {}", listener.local_addr()?);
    serve(listener)
}

fn serve(mut listener: TcpListener) -> Result<()> {
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut clients = Slots::default();
    let answers = Answers {
        small: answer(SMALL, ""),
        page: answer(PAGE, "Cache-Control: max-age=86400\r\n"),
        big: answer(BIG, ""),
        huge: answer(HUGE, ""),
    };
    let mut buffer = vec![0; BUFFER];
    loop {
        match poll.poll(&mut events, None) {
            // A signal, for example from a debugger, interrupted the call.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            let slot = event.token().0;
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut clients)?;
            } else if let Some(client) = clients.get_mut(slot)
                && !client.advance(event.is_read_closed(), &answers, &mut buffer)
            {
                clients.remove(slot);
            }
        }
        clients.end_of_batch();
    }
}

fn answer(length: usize, line: &str) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n{line}Content-Length: {length}\r\n\r\n")
            .into_bytes();
    answer.extend(pattern(length));
    answer
}

fn accept(listener: &TcpListener, poll: &Poll, clients: &mut Slots<Client>) -> Result<()> {
    while let Some(mut stream) = accept_one(listener)? {
        stream.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry()
            .register(&mut stream, Token(clients.next()), interest)?;
        clients.insert(Client {
            stream,
            partial: Vec::new(),
            pending: Pending::default(),
        });
    }
    Ok(())
}

/// Accepts a waiting connection. Returns `None` if there is none. Skips connections that were closed while waiting.
pub fn accept_one(listener: &TcpListener) -> Result<Option<TcpStream>> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(Some(stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error).context("cannot accept a connection"),
        }
    }
}

impl Client {
    /// Answers every complete request head that has arrived. Returns false if the client has disconnected. If `last` is
    /// set, the client has stopped sending. No further event reports this, so this call must read until the end.
    fn advance(&mut self, last: bool, answers: &Answers, buffer: &mut [u8]) -> bool {
        loop {
            if self.pending.flush(&mut self.stream).is_err() {
                return false;
            }
            if !self.pending.is_empty() {
                return true;
            }
            let read = match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            if self.take(&buffer[..read], answers).is_err() {
                return false;
            }
            if read < buffer.len() && self.pending.is_empty() && !last {
                return true;
            }
        }
    }

    /// Answers each complete request head. A head that arrives in one piece is not copied.
    fn take(&mut self, read: &[u8], answers: &Answers) -> io::Result<()> {
        let joined;
        let mut bytes = read;
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(read);
            joined = std::mem::take(&mut self.partial);
            bytes = &joined;
        }
        while let Some(end) = memmem::find(bytes, b"\r\n\r\n") {
            self.pending.send(&mut self.stream, answers.to(bytes))?;
            bytes = &bytes[end + 4..];
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

/// Starts an upstream in a thread and returns its address. The thread runs until the tests end.
#[cfg(test)]
pub fn in_a_thread() -> SocketAddr {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || serve(listener));
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read_answers(stream: &mut std::net::TcpStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_body_has_the_length_of_its_path_and_no_other_content() {
        let answers = Answers {
            small: answer(SMALL, ""),
            page: answer(PAGE, ""),
            big: answer(BIG, ""),
            huge: answer(HUGE, ""),
        };
        let pattern = Pattern::new(HUGE);
        for path in [
            "/", "/route-1", "/page/1", "/big", "/big/1", "/huge", "/hug",
        ] {
            let answer = answers.to(format!("GET {path} HTTP/1.1\r\n").as_bytes());
            let head = memmem::find(answer, b"\r\n\r\n").unwrap() + 4;
            let body = &answer[head..];
            assert_eq!(body.len(), body_length(path), "{path}");
            assert!(pattern.holds(0, body), "{path}");
            assert!(pattern.holds(300, &body[300..]), "{path}");
            assert!(!pattern.holds(1, body), "{path}");
            assert!(!pattern.holds(0, &body[1..]), "{path}");
        }
    }

    #[test]
    fn answers_are_chosen_by_path_and_come_in_order() {
        let mut stream = std::net::TcpStream::connect(in_a_thread()).unwrap();
        let (small, big) = (answer(SMALL, ""), answer(BIG, ""));
        stream
            .write_all(b"GET /big HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHo")
            .unwrap();
        let first = read_answers(&mut stream, big.len() + small.len() - small.len());
        assert_eq!(first, big);
        stream.write_all(b"st: x\r\n\r\n").unwrap();
        assert_eq!(read_answers(&mut stream, small.len()), small);
    }

    #[test]
    fn a_client_that_reads_late_gets_everything() {
        let mut stream = std::net::TcpStream::connect(in_a_thread()).unwrap();
        let count = 200;
        for _ in 0..count {
            stream.write_all(b"GET /big HTTP/1.1\r\n\r\n").unwrap();
        }
        let answers = read_answers(&mut stream, answer(BIG, "").len() * count);
        assert!(answers == answer(BIG, "").repeat(count));
    }
}
