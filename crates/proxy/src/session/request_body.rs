//! Reads request bodies into memory, for plugins that use them and for routes that buffer requests. If a route buffers
//! requests, its upstream never waits for a slow client. Memory is limited per body and, for all bodies, per node. A
//! body that is too large is streamed, and plugins learn that it is too large. Nothing is written to disk.

use super::pace::Pace;
use super::plane::DataPlane;
use super::worker::{self, Worker};
use super::{Connection, RequestBodyAt};
use crate::plugins::Chain;
use bytes::Bytes;
use net::http1::{Body, Framing, RequestHead};
use plugin::RequestBody;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// The reason why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    Malformed,
    TooLarge,
    Timeout,
    Gone,
}

/// A reserved part of the node's memory for bodies.
pub(super) struct BodyShare {
    plane: Arc<DataPlane>,
    bytes: usize,
}

impl BodyShare {
    pub(super) fn none(plane: &Arc<DataPlane>) -> Self {
        Self {
            plane: plane.clone(),
            bytes: 0,
        }
    }

    /// Enlarges the share for one response that is read into memory. Returns false if too little memory is left, or if
    /// the response alone would take too much of it.
    pub(super) fn fits(&mut self, bytes: usize) -> bool {
        bytes <= largest_share(&self.plane) && self.grow(bytes)
    }

    /// Enlarges the share to at least `bytes`. Returns false if too little memory is left.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let used = self.plane.body_memory.fetch_add(more, Ordering::Relaxed);
        let fits = used.saturating_add(more) <= self.plane.settings.body_memory;
        if fits {
            self.bytes += more;
        } else {
            self.plane.body_memory.fetch_sub(more, Ordering::Relaxed);
        }
        fits
    }

    #[inline]
    pub(super) fn release(&mut self) {
        if self.bytes > 0 {
            self.plane
                .body_memory
                .fetch_sub(self.bytes, Ordering::Relaxed);
            self.bytes = 0;
        }
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.release();
    }
}

/// Divisor for the memory of one body held for an upstream: it may use `body_memory / LARGEST_SHARE`, or `plugin_body`
/// if that is more.
const LARGEST_SHARE: usize = 16;

/// Returns the number of bytes that one body may use.
fn largest_share(plane: &DataPlane) -> usize {
    let settings = &plane.settings;
    (settings.body_memory / LARGEST_SHARE).max(settings.plugin_body)
}

/// Returns the maximum payload of a request's body: the limit of the node or that of a plugin, whichever is less.
pub(super) fn most_payload(plane: &DataPlane, chain: &Chain<'_>) -> u64 {
    let own = match plane.settings.max_body {
        0 => u64::MAX,
        most => most,
    };
    let set = chain.state().and_then(|state| state.body_limit.as_deref());
    set.map_or(own, |set| set.most.min(own))
}

/// The limits of a body that is read into memory. A larger body is streamed.
struct Most {
    /// Maximum payload of a body that is not refused.
    allowed: u64,
    /// Maximum payload.
    payload: usize,
    /// Maximum memory. The framing of a body in chunks uses memory too.
    memory: usize,
}

/// A body that is being read into `carry`.
struct Gathering {
    body: Body,
    most: Most,
    /// Number of bytes of `carry` that have been parsed.
    seen: usize,
    /// Payload bytes, without framing.
    payload: u64,
    pace: Pace,
    share: BodyShare,
}

impl Connection {
    /// Reads the whole body for plugins if it fits. A body with more payload than `allowed` is an error. Otherwise the bytes read stay in `carry`, to be streamed.
    pub(super) async fn buffer_body(
        &mut self,
        head: &RequestHead,
        allowed: u64,
    ) -> Result<(RequestBody, BodyShare), BodyError> {
        let share = BodyShare::none(&self.plane);
        if head.framing() == Framing::None {
            return Ok((RequestBody::Whole(Default::default()), share));
        }
        let most = Most {
            allowed,
            payload: self.plane.settings.plugin_body,
            memory: largest_share(&self.plane),
        };
        let (whole, share) = self.gather(head, share, most).await?;
        let body = match whole {
            Some(seen) => RequestBody::Whole(self.take_gathered(head, seen)),
            None => RequestBody::TooLarge,
        };
        Ok((body, share))
    }

    /// Reads the whole body for an upstream if it fits. A body with more payload than `allowed` is an error. Returns a chunked body, so that it gets a length as in Kong.
    /// Any other body stays in `carry`.
    pub(super) async fn hold_body(
        &mut self,
        head: &RequestHead,
        allowed: u64,
        share: Option<BodyShare>,
    ) -> Result<(Option<Bytes>, BodyShare), BodyError> {
        let memory = largest_share(&self.plane);
        let most = Most {
            allowed,
            payload: memory,
            memory,
        };
        let share = share.unwrap_or_else(|| BodyShare::none(&self.plane));
        let (whole, share) = self.gather(head, share, most).await?;
        let chunked = head.framing() == Framing::Chunked;
        let body = whole.filter(|_| chunked);
        Ok((body.map(|seen| self.take_gathered(head, seen)), share))
    }

    /// Reads until the body is complete in `carry`, and returns where it ends. Returns `None` if the body is too large.
    async fn gather(
        &mut self,
        head: &RequestHead,
        share: BodyShare,
        most: Most,
    ) -> Result<(Option<usize>, BodyShare), BodyError> {
        if let Framing::Length(length) = head.framing()
            && length > most.payload as u64
        {
            return Ok((None, share));
        }
        self.send_continue(head)
            .await
            .map_err(|_| BodyError::Gone)?;
        let mut gathering = Gathering {
            body: Body::new(head.framing()),
            most,
            seen: 0,
            payload: 0,
            pace: Pace::new(self.now, 0),
            share,
        };
        let whole =
            poll_fn(|cx| worker::with(|worker| self.poll_whole(cx, worker, &mut gathering)));
        let whole = whole.await?;
        Ok((whole.then_some(gathering.seen), gathering.share))
    }

    /// Removes a complete body from the front of `carry`, and returns its payload.
    pub(super) fn take_gathered(&mut self, head: &RequestHead, seen: usize) -> Bytes {
        let mut payload = Vec::with_capacity(seen);
        let mut body = Body::new(head.framing());
        let taken = body.decode(&self.carry[..seen], &mut payload);
        debug_assert_eq!(taken, Ok(seen));
        self.received += seen as u64;
        worker::with(|worker| self.take_carried(worker, seen));
        self.request_body = RequestBodyAt::Memory;
        payload.into()
    }

    /// Ready with true when the body is complete in `carry`, and with false when it is too large.
    fn poll_whole(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        to: &mut Gathering,
    ) -> Poll<Result<bool, BodyError>> {
        let settings = &self.plane.settings;
        loop {
            let (taken, payload) = to
                .body
                .measure(&self.carry[to.seen..])
                .map_err(|_| BodyError::Malformed)?;
            to.seen += taken;
            to.payload += payload as u64;
            if to.payload > to.most.allowed {
                return Poll::Ready(Err(BodyError::TooLarge));
            }
            if to.payload > to.most.payload as u64 {
                return Poll::Ready(Ok(false));
            }
            if to.body.is_done() {
                return Poll::Ready(Ok(true));
            }
            if self.carry.len() > to.most.memory || !to.share.grow(self.carry.len()) {
                return Poll::Ready(Ok(false));
            }
            match self.stream.poll_read(cx, &mut worker.read) {
                Poll::Ready(Ok(read)) if read > 0 => {
                    self.carry.extend_from_slice(&worker.read[..read]);
                    self.now = Instant::now();
                }
                Poll::Ready(_) => return Poll::Ready(Err(BodyError::Gone)),
                Poll::Pending => {
                    let pause = self.now + settings.body_timeout;
                    let too_slow = to.pace.due(self.carry.len() as u64, settings.min_rate);
                    let due = too_slow.map_or(pause, |too_slow| too_slow.min(pause));
                    self.deadline.set(due);
                    ready!(self.deadline.poll_passed(cx));
                    // A part of an HTTP/2 frame may have arrived in the meantime. The client is then slow, but not
                    // silent.
                    match self.stream.partial() {
                        Some(at) if at > self.now => self.now = at,
                        _ => return Poll::Ready(Err(BodyError::Timeout)),
                    }
                }
            }
        }
    }

    /// Sends `100 Continue` to a client that waits for it, unless its body is already arriving.
    pub(super) async fn send_continue(&mut self, head: &RequestHead) -> std::io::Result<()> {
        self.deadline
            .set(self.now + self.plane.settings.body_timeout);
        let waits = head.expects_continue() && !self.continued && head.framing() != Framing::None;
        self.continued = true;
        if !waits || !self.carry.is_empty() {
            return Ok(());
        }
        const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        poll_fn(|cx| Poll::Ready(self.out.send(&mut self.stream, cx, GO_ON, b""))).await?;
        self.flush().await
    }
}
