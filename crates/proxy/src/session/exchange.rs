//! One request with one upstream connection: the request's body on its way out and the answer on its way back, both at
//! once, each only as fast as its receiver takes it. Everything happens in one poll as long as nothing has to wait. What
//! happens when something has to is in `waiting`.

mod passing;
mod span;
mod waiting;

use super::answer::milliseconds;
use super::failure::{Failed, Told, UpstreamFailure};
use super::filtering::Filtering;
use super::pace::Pace;
use super::receive::is_worth_parsing;
use super::worker::{self, Worker};
use super::{Connection, RequestBodyAt};
use crate::forward::write_line;
use crate::forward_response::{ClientFraming, Inbound, write_interim, write_response};
use crate::plan::{Instances, Picked};
use crate::respond::inject;
use bytes::Bytes;
use net::http1::{Body, Framing, RequestHead, ResponseHead};
use net::http2::{self, StreamFailure};
use net::outgoing::Outgoing;
use net::pool;
use net::stream::Stream;
use passing::Held;
use plugin::{HeaderEdits, Origin, RequestCx, ResponseCx};
use span::Span;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use waiting::Blocked;

/// Up to here it is cheaper to copy a body behind its head than to have the system gather the two.
const COPIED_BYTES: usize = 4 * 1024;

/// More 1xx answers to one request are taken for nonsense: each starts the wait for the real one anew.
const MOST_INTERIMS: u8 = 100;

/// What stands before the reason in a status line, and the blank behind it. What is no answer is noticed within it, however
/// slowly it comes.
const STATUS_BYTES: usize = b"HTTP/1.1 200 ".len();

#[cfg(test)]
thread_local! {
    /// Bytes of answers that were looked at for a head on this thread.
    pub(super) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How an exchange ended well.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchanged {
    pub(super) status: u16,
    /// As it came, before filters.
    pub(super) upstream_status: u16,
    /// When the time at the upstream began, and when the head of its answer was there.
    pub(super) sent: Instant,
    pub(super) headed: Instant,
    /// The upstream connection can serve another request.
    pub(super) reusable: bool,
    /// The client's connection can.
    pub(super) keep_alive: bool,
    /// The client's body has been taken in whole.
    pub(super) whole: bool,
    /// The client has been told that both connections are a tunnel from here on.
    pub(super) switched: bool,
}

/// Where the request's body comes from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Streams from the client.
    Client,
    /// That much of `carry`, where it stays until the exchange is over.
    Carried(usize),
    Memory(&'a Bytes),
}

/// What an exchange is about.
pub(super) struct Terms<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) source: Source<'a>,
    pub(super) read_timeout: Duration,
    pub(super) write_timeout: Duration,
    /// How much of the answer is read ahead of a slow client; 0 where answers are not buffered.
    pub(super) read_ahead: usize,
    /// The answer goes to the client as it comes, and not in pieces of a useful size.
    pub(super) streams: bool,
    /// The client's time counts as the upstream's, since the route does not buffer requests.
    pub(super) counts_upload: bool,
    pub(super) cx: &'a RequestCx<'a>,
    pub(super) instances: &'a Instances,
    pub(super) picked: &'a Picked,
    pub(super) debug_headers: Option<&'a HeaderEdits>,
    pub(super) started: Instant,
    /// When the upstream's address was known.
    pub(super) contacted: Instant,
}

pub(super) struct Exchange<'a> {
    client: &'a mut Connection,
    upstream: &'a mut pool::Connection,
    terms: &'a Terms<'a>,
    /// What the upstream would not take yet.
    up_out: Outgoing,
    /// Of the request's body, what the client still has to send.
    request_body: Body,
    /// The upstream takes no more of the request, but may still answer.
    refused: bool,
    /// When the upstream was contacted or, while the client is still sending, had the last of the request: a slow
    /// client is none of its doing.
    sent_at: Instant,
    /// The beginning of an answer's head.
    partial: Vec<u8>,
    answered: bool,
    /// How many 1xx answers came.
    interims: u8,
    /// The client has been told of an interim answer.
    interim_told: bool,
    answer: Option<Answer>,
    progress: Instant,
    /// Payload of the request's body so far.
    received: u64,
    /// A plugin sends a body of its own instead of the client's, which nobody has read.
    unread: bool,
    /// How fast the body comes, while the upstream takes it.
    pace: Pace,
    /// Set while the client has something left to take. Boxed: every connection's task would be larger by it.
    blocked: Option<Box<Blocked>>,
    /// It has had enough time for it: the answer is read ahead.
    slow: bool,
    /// The answer takes long: look whether the client is still there.
    watching: bool,
}

/// An answer whose head has gone to the client.
struct Answer {
    status: u16,
    upstream_status: u16,
    headed: Instant,
    body: Body,
    framing: ClientFraming,
    upstream_keeps: bool,
    keep_alive: bool,
    /// Chunks begun, when it is us who cut the body into chunks.
    chunks: bool,
    /// Whether the answer goes on as it comes; the route or the upstream decides.
    streams: bool,
    held: Option<Box<Held>>,
    switched: bool,
    /// Set when plugins look at the body.
    filtering: Option<Box<Filtering>>,
}

/// A failure that was noticed before the head has gone.
fn before_head(failed: Failed) -> Failed {
    match failed {
        Failed::Broken | Failed::BrokenUnnoticed => Failed::Upstream(UpstreamFailure::Nonsense),
        other => other,
    }
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        client: &'a mut Connection,
        upstream: &'a mut pool::Connection,
        terms: &'a Terms<'a>,
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
            unread,
            pace: Pace::new(now, 0),
            blocked: None,
            slow: false,
            watching: false,
        }
    }

    /// Sends `worker.out` as the head, and runs to the end.
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

    /// What the upstream has not taken yet of what the client sent.
    pub(super) fn unsent(&mut self) -> Outgoing {
        std::mem::take(&mut self.up_out)
    }

    /// Whether nothing was taken from the client that could not be sent again, and nothing said to it.
    pub(super) fn repeatable(&self) -> bool {
        self.received == 0 && !self.interim_told
    }

    pub(super) fn told(&self) -> Option<Told> {
        self.answer.as_ref().map(|answer| Told {
            status: answer.status,
            upstream: answer.upstream_status,
        })
    }

    /// Head and what there is of the body leave in one write.
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

    /// Sends what has come of the request's body already, after `head`.
    fn send_carried(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        head: &[u8],
    ) -> Result<(), Failed> {
        let carry = std::mem::take(&mut self.client.carry);
        let taken = self.take_body(&carry)?;
        let sent = self.send_upstream(cx, head, &carry[..taken]);
        self.client.carry = carry;
        self.client.take_carried(worker, taken);
        sent
    }

    fn take_body(&mut self, data: &[u8]) -> Result<usize, Failed> {
        let taken = self.request_body.measure(data);
        let (taken, payload) = taken.map_err(|_| Failed::ClientBody)?;
        self.received += payload as u64;
        self.client.received += taken as u64;
        let most = self.client.plane.settings.max_body;
        if most != 0 && self.received > most {
            return Err(Failed::TooLarge);
        }
        Ok(taken)
    }

    /// A failing write is not the end: the answer may be there already, and say why.
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
            // The client was held up.
            self.pace = Pace::new(self.progress, self.received);
        } else if self.up_out.taken(&self.upstream.stream) != before {
            self.note_progress();
        }
    }

    /// From the upstream to the client, until one of them has to wait; true at the end of the answer.
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

    /// Whether the client has taken all that we have for it.
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

    /// Looks for the answer's head in what was read, and passes on as much as there is.
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

    /// Interim answers, then the real one.
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
            let parsed = ResponseHead::parse(data, self.is_head(), limits)
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
                self.pass_head(worker, head);
                // A body that is wrong from the start is found before the head has gone.
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

    fn is_head(&self) -> bool {
        self.terms.head.method_bytes() == b"HEAD"
    }

    /// Tells the client of a switch that it asked for, with the first bytes of what comes after it.
    #[cold]
    fn pass_switch(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        head: ResponseHead,
        span: Span,
    ) -> Result<bool, Failed> {
        let asked = self.terms.head.asks_for_websocket() && head.offers_websocket();
        // An upstream that leaves off reading HTTP in the middle of a body takes the rest of it for something else.
        if !asked || !self.request_body.is_done() || self.refused {
            return Err(Failed::Upstream(UpstreamFailure::Nonsense));
        }
        self.pass_head(worker, head);
        if let Some(answer) = &mut self.answer {
            answer.upstream_keeps = false;
            answer.keep_alive = false;
            answer.switched = true;
        }
        let partial = std::mem::take(&mut self.partial);
        self.send_client(cx, &worker.out, span.of(worker, &partial))?;
        Ok(true)
    }

    /// `100` has been said by us, if anybody waited for it; an HTTP/1.0 client knows neither.
    fn pass_interim(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        head: &ResponseHead,
    ) -> Result<(), Failed> {
        self.interims += 1;
        if self.interims > MOST_INTERIMS {
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

    /// Runs the filters over the head and writes it to `worker.out`.
    fn pass_head(&mut self, worker: &mut Worker, head: ResponseHead) {
        let terms = self.terms;
        let plane = &self.client.plane;
        // An empty body is one too: a filter may have something to say.
        let filters_body = !terms.picked.is_empty()
            && terms.picked.filters_body(terms.instances)
            && !self.is_head()
            && !matches!(head.status(), 101 | 204 | 304)
            // What ends a call is in its trailers, which would not survive.
            && !terms.cx.is_grpc();
        let streams = terms.streams || passing::wants_to_stream(&head);
        let framing = match filters_body {
            true => ClientFraming::choose_filtered(terms.head.version()),
            false => ClientFraming::choose(head.framing(), terms.head.version(), streams),
        };
        let keep_alive = terms.head.keep_alive()
            && !framing.ends_by_closing(head.framing())
            && !worker.draining
            // What is left of the request's body would be taken for the next request.
            && self.request_body.is_done()
            && !self.unread
            && self.client.may_go_on();
        let mut filter = ResponseCx {
            request: terms.cx,
            origin: Origin::Upstream,
            status: head.status(),
            upstream: Some(&head),
            headers: HeaderEdits::new(),
        };
        if !terms.picked.is_empty() {
            terms.picked.header_filter(terms.instances, &mut filter);
        }
        let inbound = Inbound {
            head: &head,
            request: terms.head,
            http2: self.upstream.stream.is_http2(),
            edits: &filter.headers,
            debug: terms.debug_headers,
            status: filter.status,
            framing,
            keep_alive,
            upstream_latency: milliseconds(self.client.now - self.sent_at),
            proxy_latency: match self.sent_at == terms.started {
                true => 0,
                false => milliseconds(self.sent_at - terms.started),
            },
            request_id: terms.cx.request_id.as_bytes(),
            headers: plane.settings.respond.headers,
        };
        worker.out.clear();
        let (date, now) = (&mut worker.date, self.client.now);
        write_response(&inbound, &mut worker.out, |out| {
            write_line(out, b"Date: ", date.at(now).as_bytes());
        });
        let injections = &plane.settings.respond.injections;
        inject(injections, filter.status, &mut worker.out);
        self.client.head_size += worker.out.len() as u64;
        let ResponseCx {
            status, headers, ..
        } = filter;
        self.answer = Some(Answer {
            status,
            upstream_status: head.status(),
            headed: self.client.now,
            body: Body::new(head.framing()),
            framing,
            upstream_keeps: head.keep_alive(),
            keep_alive,
            chunks: false,
            streams,
            held: None,
            switched: false,
            filtering: filters_body.then(|| {
                Box::new(Filtering {
                    head,
                    headers,
                    status,
                })
            }),
        });
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

    /// The upstream has closed: the end of the answer if that is how it ends.
    fn upstream_ended(
        &mut self,
        cx: &mut Context<'_>,
        end: io::Result<usize>,
    ) -> Result<(), Failed> {
        if let Err(error) = &end {
            self.pass_reset(error);
        }
        match &mut self.answer {
            None => Err(Failed::Upstream(self.without_answer(&end))),
            Some(answer) if end.is_ok() && matches!(answer.body, Body::Close) => {
                answer.upstream_keeps = false;
                let end = answer.finish(self.terms);
                if !end.is_empty() {
                    self.send_client(cx, &end, b"")?;
                }
                Ok(())
            }
            Some(answer) => Err(answer.broken()),
        }
    }

    /// The upstream has closed before the head of an answer was whole.
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

    /// Whether the upstream had a part of the request and not the rest: the client may be slow with it, or the upstream not
    /// want as much.
    fn is_on_its_way(&self) -> bool {
        let whole = self.request_body.is_done() && self.up_out.is_empty() && !self.refused;
        self.up_out.sent() > 0 && !whole
    }

    /// A client on HTTP/2 is told what an upstream on HTTP/2 said when it gave up in the middle of an answer.
    #[cold]
    fn pass_reset(&mut self, error: &io::Error) {
        if let (Some(reason), Stream::Served(client)) =
            (http2::reset_reason(error), &mut self.client.stream)
            && self.answer.is_some()
        {
            client.reset(reason);
        }
    }

    /// From the client to the upstream, until one of them has to wait.
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
            // A client that sent anything needs no telling to go on.
            let taken = self.take_body(&worker.read[..read])?;
            let stream = &mut self.upstream.stream;
            let sent = self.up_out.send(stream, cx, &worker.read[..taken], b"");
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

/// Appends what is small to `head`; otherwise it is left to be sent as a piece of its own.
#[inline]
fn copy_if_small<'b>(body: &'b [u8], head: &mut Vec<u8>) -> &'b [u8] {
    if body.len() > COPIED_BYTES {
        return body;
    }
    head.extend_from_slice(body);
    b""
}
