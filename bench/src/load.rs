//! A closed-loop load generator: each connection sends its next request when the answer to the last is whole. Every answer
//! is checked: one that is not 200 counts as failed, so that a wrong gateway cannot look fast.

use anyhow::{Context, Result, bail};
use memchr::memmem;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// A request, ready to send.
#[derive(Clone)]
pub struct Request(Vec<u8>);

impl Request {
    pub fn get(path: &str) -> Self {
        Self(format!("GET {path} HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n").into_bytes())
    }

    pub fn with_key(path: &str, key: &str) -> Self {
        Self(
            format!("GET {path} HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\napikey: {key}\r\n\r\n")
                .into_bytes(),
        )
    }
}

/// Reads one request a line: path, then optionally a tab and an API key.
pub fn read_requests(path: &Path) -> Result<Vec<Request>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let requests: Vec<_> = text
        .lines()
        .map(|line| {
            line.split_once('\t').map_or_else(
                || Request::get(line),
                |(path, key)| Request::with_key(path, key),
            )
        })
        .collect();
    if requests.is_empty() {
        bail!("{} holds no request", path.display());
    }
    Ok(requests)
}

/// What a run did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Outcome {
    pub requests: u64,
    pub failed: u64,
    pub elapsed: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.requests as f64 / self.elapsed.as_secs_f64();
        write!(
            formatter,
            "{} requests, {} failed, {rate:.0} a second",
            self.requests, self.failed
        )
    }
}

struct Connection {
    stream: TcpStream,
    answer: Answer,
    /// Where in the list of requests this connection is.
    next: usize,
}

/// How much of an answer has arrived.
enum Answer {
    Head(Vec<u8>),
    Body { ok: bool, left: usize },
}

pub fn run(
    address: SocketAddr,
    connections: usize,
    duration: Duration,
    requests: &[Request],
) -> Result<Outcome> {
    let mut poll = Poll::new()?;
    let mut pool = Vec::with_capacity(connections);
    // Each connection walks the list from its own place, so that all of it is in use at any time.
    let stride = (requests.len() / connections).max(1);
    for slot in 0..connections {
        let stream = std::net::TcpStream::connect(address)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry()
            .register(&mut stream, Token(slot), Interest::READABLE)?;
        let next = slot * stride % requests.len();
        pool.push(Connection {
            stream,
            answer: Answer::Head(Vec::new()),
            next,
        });
    }
    let started = Instant::now();
    let mut outcome = Outcome::default();
    for connection in &mut pool {
        connection.send(requests)?;
    }
    let mut events = Events::with_capacity(connections);
    let mut buffer = vec![0; 128 * 1024];
    while started.elapsed() < duration {
        poll.poll(&mut events, Some(Duration::from_millis(100)))?;
        for event in &events {
            pool[event.token().0].receive(&mut buffer, requests, &mut outcome)?;
        }
    }
    outcome.elapsed = started.elapsed();
    Ok(outcome)
}

impl Connection {
    fn send(&mut self, requests: &[Request]) -> Result<()> {
        let Request(bytes) = &requests[self.next];
        self.next = (self.next + 1) % requests.len();
        // A request is far smaller than an empty socket's buffer.
        self.stream
            .write_all(bytes)
            .context("cannot send a request")
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        requests: &[Request],
        outcome: &mut Outcome,
    ) -> Result<()> {
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => bail!(
                    "a connection was closed after {} requests",
                    outcome.requests
                ),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("cannot receive an answer"),
            };
            if let Some(ok) = self.answer.take(&buffer[..read])? {
                outcome.requests += 1;
                outcome.failed += u64::from(!ok);
                self.send(requests)?;
            }
            if read < buffer.len() {
                return Ok(());
            }
        }
    }
}

impl Answer {
    /// Takes in bytes; when the answer is whole, says whether it was a 200, and starts anew.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<bool>> {
        let mut bytes = bytes;
        let mut joined = Vec::new();
        if let Answer::Head(partial) = self {
            if !partial.is_empty() {
                joined.append(partial);
                joined.extend_from_slice(bytes);
                bytes = &joined;
            }
            let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
                *self = Answer::Head(bytes.to_vec());
                return Ok(None);
            };
            let head = &bytes[..end + 4];
            let left = content_length(head).context("an answer has no Content-Length")?;
            *self = Answer::Body {
                ok: head.starts_with(b"HTTP/1.1 200 "),
                left,
            };
            bytes = &bytes[end + 4..];
        }
        let Answer::Body { ok, left } = self else {
            return Ok(None);
        };
        if bytes.len() > *left {
            bail!("an answer is longer than its Content-Length");
        }
        *left -= bytes.len();
        if *left > 0 {
            return Ok(None);
        }
        let ok = *ok;
        *self = Answer::Head(Vec::new());
        Ok(Some(ok))
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    head.split(|&byte| byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        if !line[..colon].eq_ignore_ascii_case(b"content-length") {
            return None;
        }
        std::str::from_utf8(line[colon + 1..].trim_ascii())
            .ok()?
            .parse()
            .ok()
    })
}
