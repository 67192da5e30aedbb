//! Presents the streams of an HTTP/2 client to the HTTP/1.1 engine as keep-alive connections, each read by a session of
//! the engine. After each response, the session reads its next request from the next waiting stream. So a connection
//! needs only as many sessions as it has concurrent streams, and not one task per request.

use super::receiving::Receiving;
use super::sending::Sending;
use super::text::{self, Length};
use super::to_io;
use super::wire::Watch;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, Request};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::time::Instant;

pub(super) type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// State shared by a connection and its sessions. All of them run on one thread, so the lock is never contended.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<ConnectionState>,
    watch: Watch,
}

#[derive(Debug)]
pub(super) struct ConnectionState {
    queue: VecDeque<Accepted>,
    /// Number and waker of each session that waits for a stream.
    idle: Vec<(usize, Waker)>,
    sessions: usize,
    closed: bool,
    /// Number of queued and served streams.
    pub(super) active: usize,
    /// Time when `active` last became 0, or when the connection began.
    pub(super) quiet_since: Instant,
    /// Number of streams that the client reset before their response was complete.
    pub(super) given_up: usize,
    /// Number of bytes of requests and responses, with their bodies.
    pub(super) payload: u64,
}

impl Default for ConnectionState {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            idle: Vec::new(),
            sessions: 0,
            closed: false,
            active: 0,
            quiet_since: Instant::now(),
            given_up: 0,
            payload: 0,
        }
    }
}

impl Shared {
    pub(super) fn new(watch: Watch) -> Self {
        Self {
            state: Mutex::default(),
            watch,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a stream to an idle session. If there is none, returns a new session, which the caller must start.
    pub(super) fn offer(self: &Arc<Self>, accepted: Accepted) -> Option<ClientStream> {
        let mut state = self.state();
        state.active += 1;
        state.queue.push_back(accepted);
        if let Some((_, waker)) = state.idle.pop() {
            waker.wake();
            return None;
        }
        state.sessions += 1;
        Some(ClientStream {
            shared: Arc::clone(self),
            number: state.sessions,
            current: None,
            text: Vec::new(),
            at: 0,
            closed: false,
        })
    }

    pub(super) fn has_served(&self) -> bool {
        self.state().sessions > 0
    }

    /// Drops the streams that still wait, and ends each session after its current stream. No stream may be offered
    /// after this call.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let refused = std::mem::take(&mut state.queue);
        state.active -= refused.len();
        for (_, waker) in state.idle.drain(..) {
            waker.wake();
        }
    }
}

/// A session's view of its connection's streams.
#[derive(Debug)]
pub struct ClientStream {
    shared: Arc<Shared>,
    number: usize,
    current: Option<Current>,
    /// The request head as HTTP/1.1 text.
    text: Vec<u8>,
    /// Number of bytes of `text` that have been read.
    at: usize,
    closed: bool,
}

#[derive(Debug)]
struct Current {
    receiving: Receiving,
    answering: Answering,
    to_head: bool,
    /// Whether the request asks for WebSocket and no response has refused it.
    tunnels: bool,
    given_up: bool,
}

#[derive(Debug)]
enum Answering {
    /// The response head is incomplete. The bytes are the part that has been written so far.
    Head(SendResponse<Bytes>, Vec<u8>),
    Body(Sending),
}

impl ClientStream {
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.closed {
                return Poll::Ready(Ok(0));
            }
            if self.current.as_ref().is_some_and(Current::is_over) {
                self.end_current();
            }
            let Some(current) = &mut self.current else {
                if !ready!(self.poll_next(cx)) {
                    return Poll::Ready(Ok(0));
                }
                continue;
            };
            let head = &self.text[self.at..];
            if !head.is_empty() {
                let taken = head.len().min(buffer.len());
                buffer[..taken].copy_from_slice(&head[..taken]);
                self.at += taken;
                return Poll::Ready(Ok(taken));
            }
            let shared = &self.shared;
            let read = ready!(current.receiving.poll_read(cx, buffer, |payload| {
                shared.state().payload += payload as u64;
            }));
            if read.is_err() {
                current.given_up = true;
            }
            return Poll::Ready(read);
        }
    }

    /// Makes the next waiting stream the current one. Returns `false` if no more streams will come.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.shared.state();
        let Some((request, respond)) = state.queue.pop_front() else {
            if state.closed {
                return Poll::Ready(false);
            }
            match state.idle.iter_mut().find(|idle| idle.0 == self.number) {
                Some((_, waker)) => waker.clone_from(cx.waker()),
                None => state.idle.push((self.number, cx.waker().clone())),
            }
            return Poll::Pending;
        };
        let (parts, body) = request.into_parts();
        self.text.clear();
        self.at = 0;
        let length = text::write_request(&parts, body.is_end_stream(), &mut self.text);
        state.payload += self.text.len() as u64;
        self.current = Some(Current {
            receiving: Receiving::new(body, length, self.shared.watch.clone()),
            answering: Answering::Head(respond, Vec::new()),
            to_head: parts.method == Method::HEAD,
            tunnels: text::is_websocket(&parts),
            given_up: false,
        });
        Poll::Ready(true)
    }

    /// Waits until earlier bytes have been sent, then accepts all bytes of both slices.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let Some(current) = &mut self.current else {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        };
        current.push(first, second)?;
        let accepted = first.len() + second.len();
        self.shared.state().payload += accepted as u64;
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(accepted))
    }

    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.current {
            Some(Current {
                answering: Answering::Body(sending),
                ..
            }) if sending.is_waiting() => sending.poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Number of response bytes that wait for the client's flow-control window.
    pub fn held_back(&self) -> usize {
        match &self.current {
            Some(Current {
                answering: Answering::Body(sending),
                ..
            }) => sending.held_back(),
            _ => 0,
        }
    }

    /// If a frame of the request is incomplete, the time when its last piece arrived.
    pub fn partial(&self) -> Option<Instant> {
        self.current.as_ref()?.receiving.partial()
    }

    /// Ends a response whose length was not announced. The session reads nothing more, unless the stream is a tunnel.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(Current {
            answering: Answering::Body(sending),
            ..
        }) = &mut self.current
        {
            sending.finish();
        }
        ready!(self.poll_flush(cx))?;
        // The two directions of a tunnel end separately, so the client's direction stays open.
        self.closed = self.current.as_ref().is_none_or(|current| !current.tunnels);
        Poll::Ready(Ok(()))
    }

    /// Ready when the client has reset the stream of the current request.
    pub fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(current) = &mut self.current else {
            return Poll::Pending;
        };
        ready!(match &mut current.answering {
            Answering::Head(respond, _) => respond.poll_reset(cx).map(|_| ()),
            Answering::Body(sending) if sending.is_done() => return Poll::Pending,
            Answering::Body(sending) => sending.poll_reset(cx),
        });
        current.given_up = true;
        Poll::Ready(())
    }

    /// Resets the stream of the current request.
    pub fn reset(&mut self, reason: Reason) {
        if let Some(current) = &mut self.current {
            current.reset(reason);
        }
    }

    fn end_current(&mut self) {
        let Some(mut current) = self.current.take() else {
            return;
        };
        if !current.is_answered() {
            current.reset(Reason::INTERNAL_ERROR);
        }
        let mut state = self.shared.state();
        state.active -= 1;
        state.given_up += usize::from(current.given_up);
        if state.active == 0 {
            state.quiet_since = Instant::now();
        }
    }
}

impl Current {
    fn is_answered(&self) -> bool {
        matches!(&self.answering, Answering::Body(sending) if sending.is_done())
    }

    /// Whether the session can take the next stream.
    fn is_over(&self) -> bool {
        self.is_answered() && !self.tunnels
    }

    fn push(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        let Answering::Head(_, kept) = &mut self.answering else {
            let Answering::Body(sending) = &mut self.answering else {
                return Ok(());
            };
            return sending.push(first, second);
        };
        // In `HTTP/1.1 200`, byte 9 is the first digit of the status. Interim responses have a `1` there.
        if kept.is_empty()
            && let Some(end) = text::head_end(first)
            && first.get(9) != Some(&b'1')
        {
            return self.push_head(&first[..end], &first[end..], second);
        }
        // There are interim responses, or the head arrives in several pieces.
        let mut data = std::mem::take(kept);
        data.extend_from_slice(first);
        data.extend_from_slice(second);
        let mut rest = &data[..];
        while matches!(self.answering, Answering::Head(..))
            && let Some(end) = text::head_end(rest)
        {
            let (head, after) = rest.split_at(end);
            self.push_head(head, b"", b"")?;
            rest = after;
        }
        match &mut self.answering {
            Answering::Head(_, kept) => kept.extend_from_slice(rest),
            Answering::Body(sending) => sending.push(rest, b"")?,
        }
        Ok(())
    }

    /// Sends a head and the available part of the body.
    fn push_head(&mut self, head: &[u8], first: &[u8], second: &[u8]) -> io::Result<()> {
        let Answering::Head(respond, _) = &mut self.answering else {
            return Ok(());
        };
        let answer = text::read_answer(head, self.to_head)
            .map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
        self.tunnels &= answer.switches;
        if answer.response.status().is_informational() {
            return respond.send_informational(answer.response).map_err(to_io);
        }
        let ended = answer.length == Length::Known(0);
        let stream = respond
            .send_response(answer.response, ended)
            .map_err(to_io)?;
        let mut sending = Sending::new(stream, answer.length, ended);
        sending.push(first, second)?;
        self.answering = Answering::Body(sending);
        Ok(())
    }

    fn reset(&mut self, reason: Reason) {
        match &mut self.answering {
            Answering::Head(respond, _) => respond.send_reset(reason),
            Answering::Body(sending) => sending.reset(reason),
        }
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        self.end_current();
        let mut state = self.shared.state();
        state.idle.retain(|idle| idle.0 != self.number);
        // If this session was woken for a queued stream, wake another one instead.
        if !state.queue.is_empty()
            && let Some((_, waker)) = state.idle.pop()
        {
            waker.wake();
        }
    }
}
