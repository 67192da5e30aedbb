//! Reads the head of the next request. Its bytes may have arrived together with the previous request, or are read from
//! the socket into the thread's buffer. A connection owns memory only for an incomplete head, and only as much as has
//! arrived.

use super::Connection;
use super::log_entries::MAX_LINE_BYTES;
use super::worker::{self, ConnectionState, Phase, Worker};
use net::http1::{BadRequest, Limits, RequestHead};
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// The reason why no request was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRequest {
    /// The client has disconnected, or was silent until its time limit.
    Gone,
    /// The head was not complete in time.
    Timeout,
    Refused(BadRequest),
    /// A plaintext request on a TLS listener.
    PlainHttp {
        /// Whether the request is a HEAD, so that the response has no body.
        head_only: bool,
    },
}

impl Connection {
    /// Receives the head of the next request. Bytes after it are kept in `carry`. If the request is refused, `carry`
    /// begins with its request line, and all bytes read of it are counted.
    pub(super) async fn receive_head(&mut self) -> Result<RequestHead, NoRequest> {
        let mut untried = !self.carry.is_empty();
        let head = poll_fn(|cx| {
            worker::with(|worker| {
                if std::mem::take(&mut untried) {
                    self.now = Instant::now();
                    match self.parse_carried(worker) {
                        Ok(None) => self.start_reading(),
                        parsed => {
                            return Poll::Ready(parsed.transpose().unwrap_or(Err(NoRequest::Gone)));
                        }
                    }
                }
                let head = self.poll_head(cx, worker);
                let next = match &head {
                    Poll::Ready(_) => Phase::Starting,
                    Poll::Pending if self.carry.is_empty() => Phase::Waiting,
                    Poll::Pending => Phase::Reading,
                };
                self.count_phase(worker, next);
                head
            })
        });
        head.await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
    ) -> Poll<Result<RequestHead, NoRequest>> {
        loop {
            let limits = self.plane.settings.limits;
            // One byte more than the limit, so that a head that exceeds it is noticed.
            let room = (limits.head + 1).saturating_sub(self.carry.len()).max(1);
            let room = if self.carry.is_empty() {
                worker.read.len()
            } else {
                room
            };
            let room = room.min(worker.read.len());
            let read = match self.stream.poll_read(cx, &mut worker.read[..room]) {
                Poll::Ready(Ok(read)) if read > 0 => read,
                Poll::Ready(_) => return Poll::Ready(Err(NoRequest::Gone)),
                Poll::Pending if worker.ends_waiting && self.carry.is_empty() => {
                    return Poll::Ready(Err(NoRequest::Gone));
                }
                Poll::Pending => {
                    ready!(self.deadline.poll_passed(cx));
                    if self.carry.is_empty() {
                        return Poll::Ready(Err(NoRequest::Gone));
                    }
                    self.begin_counting(self.carry.len());
                    return Poll::Ready(Err(NoRequest::Timeout));
                }
            };
            let parsed = if self.carry.is_empty() {
                self.now = Instant::now();
                self.parse_fresh(worker, read)
            } else {
                self.parse_more(worker, read)
            };
            if let Some(result) = parsed.transpose() {
                return Poll::Ready(result);
            }
        }
    }

    /// Parses the first read of a request, which usually holds the whole head.
    #[inline]
    fn parse_fresh(
        &mut self,
        worker: &mut Worker,
        read: usize,
    ) -> Result<Option<RequestHead>, NoRequest> {
        let data = &worker.read[..read];
        let parsed = RequestHead::parse(data, &self.plane.settings.limits).map_err(|bad| {
            self.begin_counting(read);
            if self.plane.settings.access_log.is_some() {
                self.carry = data[..read.min(MAX_LINE_BYTES)].to_vec();
            }
            NoRequest::Refused(bad)
        });
        match parsed? {
            Some((head, length)) => {
                if length < read {
                    let mut carry = worker.buffer();
                    carry.extend_from_slice(&worker.read[length..read]);
                    self.carry = carry;
                }
                self.begin_counting(length);
                Ok(Some(head))
            }
            None => {
                // The copy is as large as the received bytes, so that a slow client costs no more memory than it sends.
                self.carry = data.to_vec();
                self.start_reading();
                Ok(None)
            }
        }
    }

    fn parse_more(
        &mut self,
        worker: &mut Worker,
        read: usize,
    ) -> Result<Option<RequestHead>, NoRequest> {
        let before = self.carry.len();
        self.carry.extend_from_slice(&worker.read[..read]);
        let limits = &self.plane.settings.limits;
        if is_worth_parsing(&self.carry, before, limits) {
            self.parse_carried(worker)
        } else {
            Ok(None)
        }
    }

    fn parse_carried(&mut self, worker: &mut Worker) -> Result<Option<RequestHead>, NoRequest> {
        let limits = &self.plane.settings.limits;
        let parsed = RequestHead::parse(&self.carry, limits).map_err(|bad| {
            self.begin_counting(self.carry.len());
            NoRequest::Refused(bad)
        })?;
        Ok(parsed.map(|(head, length)| {
            self.take_carried(worker, length);
            self.begin_counting(length);
            head
        }))
    }

    /// Starts counting the bytes of a request and its response. `head` bytes have been received already.
    pub(super) fn begin_counting(&mut self, head: usize) {
        self.received = head as u64;
        self.head_size = 0;
        self.out.start_counting();
    }

    /// Removes used bytes from the front of `carry`, and returns its buffer to the worker when nothing is left.
    pub(super) fn take_carried(&mut self, worker: &mut Worker, used: usize) {
        if used < self.carry.len() {
            self.carry.drain(..used);
        } else {
            worker.give_buffer(std::mem::take(&mut self.carry));
        }
    }

    /// Sets the time limit for a head that the client has begun to send.
    fn start_reading(&mut self) {
        self.deadline
            .set(self.now + self.plane.settings.header_timeout);
    }

    #[inline]
    fn count_phase(&mut self, worker: &mut Worker, next: Phase) {
        let Some(ticket) = &mut self.ticket else {
            return;
        };
        if ticket.phase == next {
            return;
        }
        worker.count_phase(&self.plane, &mut ticket.phase, next);
        let state = match next {
            Phase::Starting | Phase::Reading => ConnectionState::Busy,
            Phase::Waiting if ticket.served => ConnectionState::Idle,
            Phase::Waiting => ConnectionState::New,
        };
        worker.connections.set_state(ticket.number, state);
    }
}

/// Whether the new bytes may have completed a head or made it too large. If a slow client sends single bytes, parsing
/// the head after each byte would cost the square of its length.
pub(super) fn is_worth_parsing(carry: &[u8], before: usize, limits: &Limits) -> bool {
    let new = &carry[before.saturating_sub(2)..];
    let ended = |at: usize| matches!(new.get(at + 1..), Some([b'\n', ..] | [b'\r', b'\n', ..]));
    let crossed = |limit: usize| before <= limit && carry.len() > limit;
    memchr::memchr_iter(b'\n', new).any(ended) || crossed(limits.line) || crossed(limits.head)
}
