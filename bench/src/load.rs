//! The load generator. It uses one thread, one epoll loop, and connections that stay open from sample to sample. It
//! sends GET requests only.
//!
//! The generator reads every response to its end and checks it. Only a complete 200 with the upstream's body counts as
//! a success, so that a gateway with wrong responses cannot look fast.
//!
//! The generator costs little compared with the program under test: for a small response one write, one read, one
//! reading of the clock, and no allocation per request. It reports its own processor time.

mod answer;
mod connection;
mod outcome;
mod run;
mod timer;
mod transport;

pub use outcome::Outcome;

use crate::upstream::Pattern;
use crate::{descriptors, upstream};
use answer::Failure;
use anyhow::{Context, Result, bail};
use connection::{Connection, Received};
use mio::event::Event;
use mio::{Events, Poll, Token};
use run::Run;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timer::Timer;
use transport::Dialer;

const TIMER: Token = Token(usize::MAX);
/// Maximum time to wait for responses after the end of a run.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Number of connections that are opened at the same time. The accept queues of all listeners are at least this long.
const CONNECT_BATCH: usize = 64;
/// Buffer size. A response of 64 KiB fits, so that one read is enough for it.
const BUFFER: usize = 128 * 1024;

/// A request, ready to send, with the expected response.
#[derive(Debug, Clone)]
pub struct Request {
    bytes: Vec<u8>,
    /// Expected length of the body, which must be the upstream's; `None` if any body is accepted.
    body: Option<usize>,
}

impl Request {
    pub fn get(path: &str) -> Self {
        Self::new(path, "")
    }

    pub fn with_key(path: &str, key: &str) -> Self {
        Self::new(path, &format!("apikey: {key}\r\n"))
    }

    /// Creates a POST request with these header lines.
    pub fn post(path: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        Self::of(path, text)
    }

    /// Creates a request that closes its connection.
    pub fn closing(path: &str) -> Self {
        Self::new(path, "Connection: close\r\n")
    }

    /// Creates a request with exactly these headers, which must include `Host`.
    pub fn with_headers(path: &str, headers: &[(String, String)]) -> Self {
        let mut text = format!("GET {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        text.push_str("\r\n");
        Self::of(path, text)
    }

    /// Accepts any body in the response, for upstreams other than the harness's.
    pub fn with_any_body(self) -> Self {
        Self { body: None, ..self }
    }

    fn new(path: &str, headers: &str) -> Self {
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\n{headers}\r\n"
        );
        Self::of(path, text)
    }

    fn of(path: &str, text: String) -> Self {
        Self {
            bytes: text.into_bytes(),
            body: Some(upstream::body_length(path)),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads one request per line: a path, then optionally a tab and an API key. The upstream is unknown, so any body is
/// accepted in the response.
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
        .map(Request::with_any_body)
        .collect();
    if requests.is_empty() {
        bail!("{} holds no request", path.display());
    }
    Ok(requests)
}

/// The address that receives the requests. With TLS any certificate is accepted, because the target is on loopback.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub address: SocketAddr,
    pub tls: bool,
}

/// Timing of the requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Each connection sends its next request when its previous response is complete. Measures capacity.
    Closed,
    /// Request `k` is due at `k / rate` seconds, independent of earlier requests. Measures latency. A request uses any
    /// idle connection, or waits for one. Its latency counts from the time when it was due, and not from the time of
    /// sending. Otherwise the time that a request waits during a stall would be missing in the figures (coordinated
    /// omission).
    Open { rate: f64 },
}

/// Connections to one subject, which stay open over many samples.
pub struct Client {
    poll: Poll,
    timer: Timer,
    dialer: Dialer,
    connections: Vec<Connection>,
    /// Connections without an outstanding response. The one that has been idle longest comes first, so that an open loop
    /// uses all connections in turn.
    idle: VecDeque<usize>,
    requests: Arc<[Request]>,
    buffer: Vec<u8>,
    patience: Duration,
}

impl Client {
    /// Opens all connections, including TLS handshakes. The connections start at indexes spread over the list of
    /// requests, so that all parts of the list are in use at any time.
    pub fn connect(target: &Target, connections: usize, requests: &Arc<[Request]>) -> Result<Self> {
        if connections == 0 || requests.is_empty() {
            bail!("a load needs at least one connection and one request");
        }
        descriptors::raise_limit()?;
        let poll = Poll::new()?;
        let mut client = Self {
            timer: Timer::register(poll.registry(), TIMER)?,
            dialer: Dialer::new(target, poll.registry().try_clone()?)?,
            poll,
            connections: Vec::with_capacity(connections),
            idle: VecDeque::with_capacity(connections),
            requests: Arc::clone(requests),
            buffer: vec![0; BUFFER],
            patience: DRAIN_LIMIT,
        };
        let stride = (requests.len() / connections).max(1);
        let pattern = Arc::new(Pattern::new(BUFFER));
        while client.connections.len() < connections {
            let start = client.connections.len();
            for slot in start..connections.min(start + CONNECT_BATCH) {
                let transport = client.dialer.dial(Token(slot))?;
                let first = slot * stride % requests.len();
                client
                    .connections
                    .push(Connection::new(transport, first, Arc::clone(&pattern)));
            }
            client.wait_until_ready(start)?;
        }
        Ok(client)
    }

    fn wait_until_ready(&mut self, start: usize) -> Result<()> {
        let address = self.dialer.address();
        let deadline = Instant::now() + CONNECT_LIMIT;
        let mut events = Events::with_capacity(CONNECT_BATCH);
        while self.connections[start..]
            .iter()
            .any(|connection| !connection.is_ready())
        {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("cannot connect to {address}: no answer");
            }
            self.poll(&mut events, left)?;
            for event in &events {
                let Some(connection) = self.connections.get_mut(event.token().0) else {
                    continue;
                };
                if let Received::Closed(failure) =
                    connection.on_event(event, &self.requests, &mut self.buffer)
                {
                    bail!("cannot connect to {address}: {failure}");
                }
            }
        }
        Ok(())
    }

    /// Sends requests for `duration`. Returns one `Outcome` for each `window` of that time, or a single one if `window`
    /// is not shorter than `duration`. Waits for responses that are outstanding at the end; they count in the last
    /// window.
    pub fn run(
        &mut self,
        mode: Mode,
        duration: Duration,
        window: Duration,
    ) -> Result<Vec<Outcome>> {
        let mut events = Events::with_capacity(self.connections.len() + 1);
        self.notice_closed(&mut events)?;
        let mut run = Run::start(mode, duration, window);
        self.timer.start();
        self.idle.clear();
        self.idle.extend(0..self.connections.len());
        self.send_due(&mut run, Instant::now())?;
        while !run.is_over() {
            let deadline = run.end() + self.patience;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.give_up(&mut run);
                break;
            }
            self.poll(&mut events, left)?;
            for event in &events {
                if event.token() == TIMER {
                    self.timer.went_off();
                } else {
                    self.advance(event, &mut run)?;
                }
            }
            if !self.idle.is_empty() && run.is_open() {
                self.send_due(&mut run, Instant::now())?;
            }
        }
        Ok(run.finish())
    }

    /// Handles the events since the last run, in which a server may have closed connections.
    fn notice_closed(&mut self, events: &mut Events) -> Result<()> {
        self.poll(events, Duration::ZERO)?;
        for event in &*events {
            if let Some(connection) = self.connections.get_mut(event.token().0) {
                connection.on_event(event, &self.requests, &mut self.buffer);
            }
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Events, limit: Duration) -> Result<()> {
        match self.poll.poll(events, Some(limit)) {
            // A signal, for example from a debugger, interrupted the call.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            result => result.context("cannot wait for answers"),
        }
    }

    /// Sends due requests as long as a connection is idle. If idle connections are left, sets the timer for the next
    /// request.
    fn send_due(&mut self, run: &mut Run, now: Instant) -> Result<()> {
        while let Some(&slot) = self.idle.front() {
            let Some(since) = run.next(now) else {
                if let Some(due) = run.next_due() {
                    self.timer.set(due)?;
                }
                return Ok(());
            };
            self.idle.pop_front();
            self.send(slot, since, run)?;
        }
        Ok(())
    }

    fn send(&mut self, slot: usize, since: Instant, run: &mut Run) -> Result<()> {
        let connection = &mut self.connections[slot];
        run.sent();
        if !connection.is_closed() && connection.send(since, &self.requests) {
            return Ok(());
        }
        run.outcome().reconnects += 1;
        connection.reopen(self.dialer.dial(Token(slot))?);
        if !connection.send(since, &self.requests) {
            bail!("cannot send to {}", self.dialer.address());
        }
        Ok(())
    }

    fn advance(&mut self, event: &Event, run: &mut Run) -> Result<()> {
        let slot = event.token().0;
        let received = self.connections[slot].on_event(event, &self.requests, &mut self.buffer);
        let now = match received {
            Received::Partial | Received::Closed(Failure::BrokenOff) => return Ok(()),
            Received::Closed(failure) => {
                run.unasked(&failure);
                return Ok(());
            }
            Received::Whole { since } => run.answered(since),
            Received::Failed(failure) => {
                if failure.subject_is_gone() {
                    bail!("{}: {failure}", self.dialer.address());
                }
                run.failed(&failure)
            }
        };
        match run.next(now) {
            Some(since) => self.send(slot, since, run),
            None => {
                self.idle.push_back(slot);
                Ok(())
            }
        }
    }

    /// Gives up on outstanding responses: closes their connections. The next run opens them again.
    fn give_up(&mut self, run: &mut Run) {
        for connection in &mut self.connections {
            connection.close_if_waiting();
        }
        run.give_up();
    }
}

#[cfg(test)]
mod tests;
