//! One connection, with at most one outstanding response.

use super::Request;
use super::answer::{Failure, ResponseReader};
use super::transport::Transport;
use crate::upstream::Pattern;
use mio::event::Event;
use std::sync::Arc;
use std::time::Instant;

pub struct Connection {
    /// The transport; `None` after either side closed the connection.
    transport: Option<Transport>,
    answer: ResponseReader,
    /// Time from which the latency of the outstanding response is measured; `None` if no response is outstanding.
    since: Option<Instant>,
    /// Indexes of the last request and of the next one.
    current: usize,
    next: usize,
}

/// The result of reading after an event.
pub enum Received {
    Partial,
    Whole {
        since: Instant,
    },
    Failed(Failure),
    /// The connection was closed while no response was outstanding.
    Closed(Failure),
}

impl Connection {
    /// Creates a connection that starts at index `next` of the list of requests.
    pub fn new(transport: Transport, next: usize, pattern: Arc<Pattern>) -> Self {
        Self {
            transport: Some(transport),
            answer: ResponseReader::new(pattern),
            since: None,
            current: next,
            next,
        }
    }

    pub fn reopen(&mut self, transport: Transport) {
        self.transport = Some(transport);
        self.answer.forget();
    }

    pub fn is_ready(&self) -> bool {
        self.transport.as_ref().is_some_and(Transport::is_ready)
    }

    pub fn is_closed(&self) -> bool {
        self.transport.is_none()
    }

    pub fn close_if_waiting(&mut self) {
        if self.since.take().is_some() {
            self.transport = None;
        }
    }

    /// Sends the next request. Returns false if the connection turns out to be closed.
    pub fn send(&mut self, since: Instant, requests: &[Request]) -> bool {
        let Some(transport) = &mut self.transport else {
            return false;
        };
        if transport.send(requests[self.next].bytes()).is_err() {
            self.transport = None;
            return false;
        }
        self.current = self.next;
        self.next = (self.next + 1) % requests.len();
        self.answer.begin(requests[self.current].body);
        self.since = Some(since);
        true
    }

    pub fn on_event(&mut self, event: &Event, requests: &[Request], buffer: &mut [u8]) -> Received {
        let Some(transport) = &mut self.transport else {
            return Received::Partial;
        };
        if event.is_writable()
            && let Err(error) = transport.on_writable(event, requests[self.current].bytes())
        {
            return self.end(error.into());
        }
        if event.is_readable() || event.is_error() {
            return self.receive(event.is_read_closed(), buffer);
        }
        Received::Partial
    }

    /// Reads the received bytes. `last` means that the other side has closed its sending direction, and that no further
    /// event will report it.
    fn receive(&mut self, last: bool, buffer: &mut [u8]) -> Received {
        loop {
            let Some(transport) = &mut self.transport else {
                return Received::Partial;
            };
            let answer = &mut self.answer;
            let read = match transport.read(buffer, |bytes| answer.take(bytes)) {
                Ok(Some(read)) => read,
                Ok(None) => return Received::Partial,
                Err(error) => return self.end(error.into()),
            };
            if let Some(result) = self.result() {
                if last || read.ended || self.answer.closes() {
                    self.transport = None;
                }
                return result;
            }
            if read.ended {
                return self.end(Failure::BrokenOff);
            }
            if read.emptied && !last {
                return Received::Partial;
            }
        }
    }

    /// Returns the result of the response, if it is known.
    fn result(&mut self) -> Option<Received> {
        let result = self.answer.result()?;
        Some(match (self.since, result) {
            // No response is outstanding. The bytes belong to TLS alone, for example to the handshake.
            (None, _) if !self.answer.closes() => return None,
            (None, result) => Received::Closed(result.err()?),
            (Some(since), result) => {
                self.since = None;
                match result {
                    Ok(()) => Received::Whole { since },
                    Err(failure) => Received::Failed(failure),
                }
            }
        })
    }

    fn end(&mut self, failure: Failure) -> Received {
        self.transport = None;
        match self.since.take() {
            Some(_) => Received::Failed(failure),
            None => Received::Closed(failure),
        }
    }
}
