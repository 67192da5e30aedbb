//! Exchanges one request and its response with an upstream connection. Both directions run at once, each only as fast
//! as its receiver accepts. The whole exchange takes one poll if nothing has to wait. `waiting` has the time limits for
//! exchanges that wait.

mod head;
mod passing;
mod span;
mod waiting;

use super::collected::Collected;
use super::failure::{Failed, Limit, ReportedStatus, UpstreamFailure};
use super::filtering::{CHUNK_END, Filtering, write_chunk_size};
use super::pace::Pace;
use super::receive::is_worth_parsing;
use super::request_body::most_payload;
use super::worker::{self, Worker};
use super::{Connection, RequestBodyAt};
use crate::forward_response::{ClientFraming, write_interim};
use crate::plugins::Chain;
use bytes::Bytes;
use net::http1::{Body, Framing, RequestHead, ResponseHead};
use net::http2::{self, StreamFailure};
use net::outgoing::Outgoing;
use net::pool;
use net::stream::Stream;
use passing::Held;
use plugin::{Chunk, HeaderEdits, Request};
use span::Span;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use waiting::Blocked;

/// Up to this size, copying a body behind its head is cheaper than a vectored write (`writev`) of both.
const COPIED_BYTES: usize = 4 * 1024;

/// Maximum interim (1xx) responses per request. More count as a malformed response, because each one restarts the read
/// timeout.
const MAX_INTERIMS: u8 = 100;

/// Length of a status line before its reason phrase. Until this many bytes have arrived, every read is parsed, so that
/// a response that is not HTTP is detected early, even if it arrives byte by byte.
const STATUS_BYTES: usize = b"HTTP/1.1 200 ".len();

#[cfg(test)]
thread_local! {
    /// Number of bytes that this thread has passed to the parser of response heads.
    pub(super) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The result of a successful exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchanged {
    pub(super) status: u16,
    /// Status of the upstream's response, before filters.
    pub(super) upstream_status: u16,
    /// When the upstream's time started.
    pub(super) sent: Instant,
    /// When the response head arrived.
    pub(super) headed: Instant,
    /// Whether the upstream connection can serve another request.
    pub(super) reusable: bool,
    /// Whether the client connection can carry another request.
    pub(super) keep_alive: bool,
    /// Whether the client's body has been completely read and accepted by the upstream.
    pub(super) whole: bool,
    /// Whether the client has received a 101 response, so that both connections form a tunnel.
    pub(super) switched: bool,
}

/// Source of the request's body.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// The client sends it during the exchange.
    Client,
    /// It is at the start of `carry`, has this many bytes, and stays there until the exchange is over.
    Carried(usize),
    /// It is in memory, because it was read completely or replaced by a plugin.
    Memory(&'a Bytes),
}

/// The parameters of an exchange.
pub(super) struct Terms<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) source: Source<'a>,
    pub(super) read_timeout: Duration,
    pub(super) write_timeout: Duration,
    /// Maximum response bytes that are read ahead of a slow client. It is 0 if the route does not buffer responses.
    pub(super) read_ahead: usize,
    /// Whether response bytes are sent to the client as they arrive, instead of in larger pieces.
    pub(super) streams: bool,
    /// Whether the time that the client needs to upload counts as the upstream's, because the route does not buffer
    /// requests.
    pub(super) counts_upload: bool,
    pub(super) request: &'a Request<'a>,
    /// Whether plugins filter the request's body as it arrives.
    pub(super) filters_request: bool,
    /// Whether the whole response is read into memory instead of being forwarded.
    pub(super) collects: bool,
    pub(super) debug_headers: Option<&'a HeaderEdits>,
    /// Whether the request that the upstream gets is HEAD. When its response arrives, the head of the request is no longer
    /// in the processor's caches.
    pub(super) is_head: bool,
    pub(super) started: Instant,
    /// When the upstream's address was known.
    pub(super) contacted: Instant,
}

pub(super) struct Exchange<'a, 'r> {
    client: &'a mut Connection,
    upstream: &'a mut pool::Connection,
    terms: &'a Terms<'a>,
    chain: &'a mut Chain<'r>,
    /// Bytes that the upstream has not accepted yet.
    up_out: Outgoing,
    /// The part of the request's body that the client still has to send.
    request_body: Body,
    /// Whether the upstream accepts no more of the request. It may still respond.
    refused: bool,
    /// Start of the upstream's time: when it was contacted or, while the client still sends, the last progress. A slow
    /// client must not count as a slow upstream.
    sent_at: Instant,
    /// The start of an incomplete response head.
    partial: Vec<u8>,
    /// Whether any byte of a response has arrived.
    answered: bool,
    /// Number of interim (1xx) responses so far.
    interims: u8,
    /// Whether an interim response has gone to the client.
    interim_told: bool,
    answer: Option<ResponseInProgress>,
    /// When the exchange last made progress.
    progress: Instant,
    /// Payload bytes of the request's body so far.
    received: u64,
    /// Whether any byte of the request's body was taken, framing included.
    has_taken: bool,
    /// Whether plugins have filtered the end of the request's body.
    filter_ended: bool,
    /// Whether the client's body was not read because a plugin has replaced it.
    unread: bool,
    /// Rate at which the client sends its body, measured while the upstream accepts it.
    pace: Pace,
    /// Set while the client has bytes left to receive. It is boxed so that it does not enlarge the task of every
    /// connection.
    blocked: Option<Box<Blocked>>,
    /// Whether the client counts as slow, so that the response may be read ahead of it.
    slow: bool,
    /// Whether to check that the client is still connected, because the upstream has been silent for long.
    watching: bool,
    /// The time limit of the upstream that has passed.
    pub(super) passed: Option<Limit>,
}

/// A response whose head has been written for the client.
struct ResponseInProgress {
    status: u16,
    upstream_status: u16,
    headed: Instant,
    body: Body,
    framing: ClientFraming,
    /// Whether the upstream connection stays open after the response.
    upstream_keeps: bool,
    /// Whether the client connection stays open after the response.
    keep_alive: bool,
    /// Whether bytes are sent to the client as they arrive. The route or the upstream can request this.
    streams: bool,
    /// Bytes that wait until there are enough for a piece.
    held: Option<Box<Held>>,
    /// Whether this is a 101 response.
    switched: bool,
    /// Whether the rest of the upstream's body is not for the client.
    discards: bool,
    /// Set when plugins filter the body.
    filtering: Option<Box<Filtering>>,
    /// Set when the response is read into memory.
    collected: Option<Box<Collected>>,
}

/// Converts a failure that was detected before the response head was sent. The client can then still get an error
/// response, so the response counts as malformed and not as broken off.
fn before_head(failed: Failed) -> Failed {
    match failed {
        Failed::Broken | Failed::BrokenUnnoticed => Failed::Upstream(UpstreamFailure::Nonsense),
        other => other,
    }
}

impl<'a, 'r> Exchange<'a, 'r> {
    pub(super) fn new(
        client: &'a mut Connection,
        upstream: &'a mut pool::Connection,
        terms: &'a Terms<'a>,
        chain: &'a mut Chain<'r>,
    ) -> Self {
        let now = client.now;
        let request_body = match terms.source {
            Source::Client => {
                client.request_body = RequestBodyAt::Streaming;
                Body::new(terms.head.framing())
            }
            Source::Memory(_) | Source::Carried(_) => Body::Length(0),
        };
        let unread = matches!(terms.source, Source::Memory(_))
            && client.request_body == RequestBodyAt::Carry
            && terms.head.framing() != Framing::None;
        Self {
            client,
            upstream,
            terms,
            chain,
            up_out: Outgoing::default(),
            request_body,
            refused: false,
            sent_at: terms.contacted,
            partial: Vec::new(),
            answered: false,
            interims: 0,
            interim_told: false,
            answer: None,
            progress: now,
            received: 0,
            has_taken: false,
            filter_ended: false,
            unread,
            pace: Pace::new(now, 0),
            blocked: None,
            slow: false,
            watching: false,
            passed: None,
        }
    }

    /// Sends the head that `write_head` puts into `worker.out`, and runs the exchange to its end.
    pub(super) async fn run(
        &mut self,
        write_head: impl Fn(&mut Worker),
    ) -> Result<Exchanged, Failed> {
        let mut begun = false;
        poll_fn(|cx| {
            worker::with(|worker| {
                if !begun {
                    begun = true;
                    write_head(worker);
                    self.begin(cx, worker)?;
                }
                let polled = self.poll(cx, worker);
                if let Poll::Ready(Err(Failed::Broken | Failed::BrokenUnnoticed)) = polled {
                    self.release(cx);
                }
                polled
            })
        })
        .await
    }

    /// Removes and returns the client's bytes that the upstream has not accepted.
    pub(super) fn unsent(&mut self) -> Outgoing {
        std::mem::take(&mut self.up_out)
    }

    /// Removes and returns the response that was read into memory.
    pub(super) fn take_collected(&mut self) -> Option<Box<Collected>> {
        self.answer.as_mut()?.collected.take()
    }

    /// Whether the request can be sent again: no byte of its body was consumed, and the client has received no interim
    /// response.
    pub(super) fn repeatable(&self) -> bool {
        !self.has_taken && !self.interim_told
    }

    /// Returns the status of the response, if its head was written for the client.
    pub(super) fn told(&self) -> Option<ReportedStatus> {
        self.answer.as_ref().map(|answer| ReportedStatus {
            status: answer.status,
            upstream: answer.upstream_status,
        })
    }

    /// Sends, in one write, the head and the part of the body that has arrived.
    fn begin(&mut self, cx: &mut Context<'_>, worker: &mut Worker) -> Result<(), Failed> {
        let mut head = std::mem::take(&mut worker.out);
        let sent = match self.terms.source {
            Source::Memory(body) => {
                let body = copy_if_small(body, &mut head);
                self.send_upstream(cx, &head, body)
            }
            Source::Carried(length) => {
                let carry = std::mem::take(&mut self.client.carry);
                let body = copy_if_small(&carry[..length], &mut head);
                let sent = self.send_upstream(cx, &head, body);
                self.client.carry = carry;
                sent
            }
            Source::Client if self.client.carry.is_empty() => self.send_upstream(cx, &head, b""),
            Source::Client => self.send_carried(cx, worker, &head),
        };
        worker.out = head;
        sent
    }

    /// Sends `head` and then the part of the request's body that has arrived.
    fn send_carried(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        head: &[u8],
    ) -> Result<(), Failed> {
        let carry = std::mem::take(&mut self.client.carry);
        let (taken, sent) = if self.terms.filters_request {
            let mut filtered = Vec::new();
            let taken = self.filter_body(&carry, &mut filtered)?;
            (taken, self.send_upstream(cx, head, &filtered))
        } else {
            let taken = self.take_body(&carry)?;
            (taken, self.send_upstream(cx, head, &carry[..taken]))
        };
        self.client.carry = carry;
        self.client.take_carried(worker, taken);
        sent
    }

    /// Counts the bytes of `data` that belong to the request's body, and returns their number.
    fn take_body(&mut self, data: &[u8]) -> Result<usize, Failed> {
        let taken = self.request_body.measure(data);
        let (taken, payload) = taken.map_err(|_| Failed::ClientBody)?;
        self.count_body(taken, payload)?;
        Ok(taken)
    }

    fn count_body(&mut self, taken: usize, payload: usize) -> Result<(), Failed> {
        self.has_taken |= taken > 0;
        self.received += payload as u64;
        self.client.received += taken as u64;
        if self.received > most_payload(&self.client.plane, self.chain) {
            return Err(Failed::TooLarge);
        }
        Ok(())
    }

    /// Takes the bytes of `data` that belong to the request's body, and appends what the plugins make of them to `out`,
    /// in chunks, followed by the client's trailers. Returns the number of bytes taken.
    fn filter_body(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<usize, Failed> {
        let mut payload = Vec::new();
        let chunks = self.request_body.decode_chunks(data, &mut payload);
        let chunks = chunks.map_err(|_| Failed::ClientBody)?;
        let trailers = self.request_body.consume(&data[chunks..]);
        let taken = chunks + trailers.map_err(|_| Failed::ClientBody)?;
        self.count_body(taken, payload.len())?;
        let has_ended = taken > chunks || self.request_body.is_done();
        let ends = has_ended && !std::mem::replace(&mut self.filter_ended, has_ended);
        let mut write = |data: Bytes, last: bool| {
            let mut chunk = Chunk { data, last };
            let filtered = self.chain.request_body(self.terms.request, &mut chunk);
            filtered.map_err(|_| Failed::RequestFilter)?;
            if !chunk.data.is_empty() {
                write_chunk_size(out, chunk.data.len());
                out.extend_from_slice(&chunk.data);
                out.extend_from_slice(CHUNK_END);
            }
            Ok(())
        };
        if !payload.is_empty() {
            write(payload.into(), false)?;
        }
        if ends {
            write(Bytes::new(), true)?;
            write_chunk_size(out, 0);
        }
        match self.terms.head.framing() {
            // These bytes include the end of the body.
            Framing::Chunked => out.extend_from_slice(&data[chunks..taken]),
            _ if ends => out.extend_from_slice(b"\r\n"),
            _ => {}
        }
        Ok(taken)
    }

    /// Sends bytes to the upstream. A failed write does not end the exchange, because the upstream may already have
    /// sent a response that explains it.
    fn send_upstream(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Result<(), Failed> {
        if self.refused {
            return Ok(());
        }
        let stream = &mut self.upstream.stream;
        match self.up_out.send(stream, cx, first, second) {
            Err(error) if http2::is_unsayable(&error) => Err(Failed::ClientRequest),
            Err(_) => {
                self.refuse();
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Stops sending the request, because the upstream accepts no more of it.
    fn refuse(&mut self) {
        self.refused = true;
        self.up_out.clear();
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
    ) -> Poll<Result<Exchanged, Failed>> {
        if self.client.stream.poll_given_up(cx).is_ready() {
            return Poll::Ready(Err(Failed::ClientGone));
        }
        loop {
            self.flush_upstream(cx);
            if self.pump_answer(cx, worker)? {
                return Poll::Ready(Ok(self.end()));
            }
            self.pump_request(cx, worker)?;
            if self.watching {
                self.watch_client(cx, worker)?;
            }
            if let Some(failure) = ready!(self.poll_deadline(cx)) {
                return Poll::Ready(Err(failure));
            }
        }
    }

    fn flush_upstream(&mut self, cx: &mut Context<'_>) {
        if self.up_out.is_empty() {
            return;
        }
        let before = self.up_out.taken(&self.upstream.stream);
        if let Poll::Ready(Err(_)) = self.up_out.poll_flush(&mut self.upstream.stream, cx) {
            self.refuse();
        } else if self.up_out.is_empty() {
            self.note_progress();
            // The upstream delayed the client, so the measurement of the client's rate starts again.
            self.pace = Pace::new(self.progress, self.received);
        } else if self.up_out.taken(&self.upstream.stream) != before {
            self.note_progress();
        }
    }

    /// Forwards from the upstream to the client until one of them has to wait. Returns true at the end of the response.
    fn pump_answer(&mut self, cx: &mut Context<'_>, worker: &mut Worker) -> Result<bool, Failed> {
        loop {
            if self.client_takes(cx)? {
                self.blocked = None;
            } else {
                self.note_blocked();
                if !self.may_read_ahead(worker.read.len()) {
                    return Ok(false);
                }
            }
            let read = match self.upstream.stream.poll_read(cx, &mut worker.read) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(read)) if read > 0 => read,
                Poll::Ready(end) => return self.upstream_ended(cx, end).map(|()| true),
            };
            self.answered = true;
            self.note_progress();
            let done = if self.answer.is_none() {
                self.take_head(cx, worker, read)?
            } else {
                worker.out.clear();
                self.pass_body(cx, worker, Span::Read(0, read))?
            };
            if done {
                return Ok(true);
            }
        }
    }

    /// Sends queued bytes to the client, and returns whether none are left.
    fn client_takes(&mut self, cx: &mut Context<'_>) -> Result<bool, Failed> {
        let client = &mut *self.client;
        if client.out.is_empty() {
            return Ok(true);
        }
        let before = client.out.taken(&client.stream);
        match client.out.poll_flush(&mut client.stream, cx) {
            Poll::Ready(Ok(())) => {
                self.note_progress();
                Ok(true)
            }
            Poll::Ready(Err(_)) => Err(Failed::ClientGone),
            Poll::Pending => {
                if client.out.taken(&client.stream) != before {
                    self.note_taken();
                }
                Ok(false)
            }
        }
    }

    /// Looks for the response head in the bytes read, and forwards what is complete.
    fn take_head(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        read: usize,
    ) -> Result<bool, Failed> {
        if self.partial.is_empty() {
            return self.parse_heads(cx, worker, Span::Read(0, read));
        }
        let before = self.partial.len();
        self.partial.extend_from_slice(&worker.read[..read]);
        let limits = &self.client.plane.settings.limits;
        if before >= STATUS_BYTES && !is_worth_parsing(&self.partial, before, limits) {
            return Ok(false);
        }
        self.parse_heads(cx, worker, Span::Partial(0, self.partial.len()))
    }

    /// Parses interim responses and then the final one.
    fn parse_heads(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        mut span: Span,
    ) -> Result<bool, Failed> {
        loop {
            let data = span.of(worker, &self.partial);
            #[cfg(test)]
            PARSED.set(PARSED.get() + data.len());
            let limits = &self.client.plane.settings.limits;
            let parsed = ResponseHead::parse(data, self.terms.is_head, limits)
                .map_err(|_| Failed::Upstream(UpstreamFailure::Nonsense))?;
            let Some((head, length)) = parsed else {
                match span {
                    Span::Read(..) => self.partial = data.to_vec(),
                    Span::Partial(start, _) => drop(self.partial.drain(..start)),
                }
                return Ok(false);
            };
            span = span.after(length);
            if head.switches() {
                return self.pass_switch(cx, worker, head, span);
            }
            if !head.is_interim() {
                if self.terms.collects {
                    self.collect(worker, head);
                } else {
                    self.pass_head(worker, head)?;
                }
                // A body that is malformed from the start is detected before the head has been sent.
                let passed = self.pass_body(cx, worker, span).map_err(before_head);
                self.partial = Vec::new();
                if let Err(Failed::Upstream(_)) = passed {
                    self.answer = None;
                }
                let done = passed?;
                return Ok(done);
            }
            self.pass_interim(cx, worker, &head)?;
            if span.is_empty() {
                self.partial.clear();
                return Ok(false);
            }
        }
    }

    /// Forwards a protocol switch that the client asked for, with the first bytes of the new protocol.
    #[cold]
    fn pass_switch(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        head: ResponseHead,
        span: Span,
    ) -> Result<bool, Failed> {
        let asked = self.terms.head.asks_for_websocket() && head.offers_websocket();
        // An upstream that switches in the middle of a request body would read the rest of the body in the new
        // protocol.
        if !asked || !self.request_body.is_done() || self.refused {
            return Err(Failed::Upstream(UpstreamFailure::Nonsense));
        }
        self.pass_head(worker, head)?;
        let partial = std::mem::take(&mut self.partial);
        let mut first = span.of(worker, &partial);
        if let Some(answer) = &mut self.answer {
            answer.upstream_keeps = false;
            answer.keep_alive = false;
            // A header filter may have put another response in place of the switch.
            answer.switched = answer.status == 101;
            if !answer.switched {
                first = b"";
            }
        }
        self.send_client(cx, &worker.out, first)?;
        Ok(true)
    }

    /// Forwards an interim response. A `100` is dropped, because the gateway itself has sent it to a client that waits
    /// for it. HTTP/1.0 clients do not know interim responses and get none.
    fn pass_interim(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        head: &ResponseHead,
    ) -> Result<(), Failed> {
        self.interims += 1;
        if self.interims > MAX_INTERIMS {
            return Err(Failed::Upstream(UpstreamFailure::Nonsense));
        }
        if head.status() == 100 || self.terms.head.version() == net::http1::Version::Http10 {
            return Ok(());
        }
        self.interim_told = true;
        worker.out.clear();
        write_interim(head, &mut worker.out);
        self.client.head_size += worker.out.len() as u64;
        self.send_client(cx, &worker.out, b"")
    }

    fn send_client(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Result<(), Failed> {
        let client = &mut *self.client;
        let sent = client.out.send(&mut client.stream, cx, first, second);
        sent.map_err(|_| Failed::ClientGone)
    }

    /// Handles the close of the upstream connection, which ends the response if its framing says so.
    fn upstream_ended(
        &mut self,
        cx: &mut Context<'_>,
        end: io::Result<usize>,
    ) -> Result<(), Failed> {
        match &end {
            Ok(_) => self.note_progress(),
            Err(error) => self.pass_reset(error),
        }
        match &mut self.answer {
            None => Err(Failed::Upstream(self.without_answer(&end))),
            Some(answer) if end.is_ok() && matches!(answer.body, Body::Close) => {
                answer.upstream_keeps = false;
                let end = answer.finish(self.terms, self.chain)?;
                if !end.is_empty() {
                    self.send_client(cx, &end, b"")?;
                }
                Ok(())
            }
            Some(answer) => Err(answer.broken()),
        }
    }

    /// Returns the failure of an upstream that closed the connection before its response head was complete.
    #[cold]
    fn without_answer(&self, end: &io::Result<usize>) -> UpstreamFailure {
        let error = end.as_ref().err();
        match error.and_then(http2::stream_failure) {
            Some(StreamFailure::Nonsense) => UpstreamFailure::Nonsense,
            _ if self.answered => UpstreamFailure::CutOff,
            Some(StreamFailure::Unprocessed) => UpstreamFailure::Unprocessed,
            Some(StreamFailure::Reset) => UpstreamFailure::Rejected,
            Some(StreamFailure::Goaway) => UpstreamFailure::Interrupted,
            None if self.is_on_its_way() => UpstreamFailure::Interrupted,
            None => UpstreamFailure::Silent,
        }
    }

    /// Whether the upstream has received only a part of the request. If it closes the connection then, the cause is
    /// unclear: the client may be too slow, or the upstream may not want the rest.
    fn is_on_its_way(&self) -> bool {
        let whole = self.request_body.is_done() && self.up_out.is_empty() && !self.refused;
        self.up_out.sent() > 0 && !whole
    }

    /// Resets the stream of an HTTP/2 client if an HTTP/2 upstream has reset its own during the response, with the same
    /// reason.
    #[cold]
    fn pass_reset(&mut self, error: &io::Error) {
        if let (Some(reason), Stream::Served(client)) =
            (http2::reset_reason(error), &mut self.client.stream)
            && self.answer.is_some()
        {
            client.reset(reason);
        }
    }

    /// Forwards from the client to the upstream until one of them has to wait.
    fn pump_request(&mut self, cx: &mut Context<'_>, worker: &mut Worker) -> Result<(), Failed> {
        while !self.request_body.is_done() && !self.refused && self.up_out.is_empty() {
            if !self.client.carry.is_empty() {
                self.send_carried(cx, worker, b"")?;
                continue;
            }
            let read = match self.client.stream.poll_read(cx, &mut worker.read) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(read)) if read > 0 => read,
                Poll::Ready(_) => return Err(Failed::ClientGone),
            };
            self.note_progress();
            let mut filtered = Vec::new();
            let (taken, body) = if self.terms.filters_request {
                let taken = self.filter_body(&worker.read[..read], &mut filtered)?;
                (taken, &filtered[..])
            } else {
                let taken = self.take_body(&worker.read[..read])?;
                (taken, &worker.read[..taken])
            };
            let stream = &mut self.upstream.stream;
            let sent = self.up_out.send(stream, cx, body, b"");
            if sent.is_err() {
                self.refuse();
            }
            if taken < read {
                self.client.carry = worker.buffer();
                self.client
                    .carry
                    .extend_from_slice(&worker.read[taken..read]);
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Exchanged {
        let sent = self.request_body.is_done() && self.up_out.is_empty() && !self.refused;
        let answer = self.answer.as_ref();
        Exchanged {
            status: answer.map_or(0, |answer| answer.status),
            upstream_status: answer.map_or(0, |answer| answer.upstream_status),
            sent: self.sent_at,
            headed: answer.map_or(self.sent_at, |answer| answer.headed),
            reusable: sent && answer.is_some_and(|answer| answer.upstream_keeps),
            keep_alive: answer.is_some_and(|answer| answer.keep_alive),
            whole: sent && !self.unread,
            switched: answer.is_some_and(|answer| answer.switched),
        }
    }
}

/// Appends `body` to `head` if it is small. Returns the bytes that must be sent separately.
#[inline]
fn copy_if_small<'b>(body: &'b [u8], head: &mut Vec<u8>) -> &'b [u8] {
    if body.len() > COPIED_BYTES {
        return body;
    }
    head.extend_from_slice(body);
    b""
}
