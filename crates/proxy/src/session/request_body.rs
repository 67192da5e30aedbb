//! Reading a request's body into memory, for plugins that look into it. Bounded per body and, over all requests, per node;
//! a body that is too large streams past and plugins are told so.

use super::plane::DataPlane;
use super::worker::{self, Worker};
use super::{Connection, RequestBodyAt};
use net::http1::{Body, Framing, RequestHead};
use plugin::RequestBody;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    Malformed,
    TooLarge,
    Timeout,
    Gone,
}

/// A share of the memory for bodies; given back when the request is over.
pub(super) struct BodyShare {
    plane: Arc<DataPlane>,
    bytes: usize,
}

impl BodyShare {
    fn none(plane: &Arc<DataPlane>) -> Self {
        Self {
            plane: plane.clone(),
            bytes: 0,
        }
    }

    /// Whether the share may grow to this size.
    fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let used = self.plane.body_memory.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        used + more <= self.plane.settings.body_memory
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.plane
            .body_memory
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Connection {
    /// The whole body, if it fits; otherwise what was read of it stays in `carry`, to be streamed.
    pub(super) async fn buffer_body(
        &mut self,
        head: &RequestHead,
    ) -> Result<(RequestBody, BodyShare), BodyError> {
        let mut share = BodyShare::none(&self.plane);
        let largest = self.plane.settings.plugin_body;
        match head.framing() {
            Framing::None => return Ok((RequestBody::Whole(Default::default()), share)),
            Framing::Length(length) if length > largest as u64 => {
                return Ok((RequestBody::TooLarge, share));
            }
            _ => {}
        }
        self.send_continue(head)
            .await
            .map_err(|_| BodyError::Gone)?;
        let mut body = Body::new(head.framing());
        let mut seen = 0;
        let whole = poll_fn(|cx| {
            worker::with(|worker| self.poll_whole(cx, worker, &mut body, &mut seen, &mut share))
        });
        if whole.await? {
            let mut payload = Vec::with_capacity(seen);
            let mut body = Body::new(head.framing());
            let taken = body.decode(&self.carry[..seen], &mut payload);
            debug_assert_eq!(taken, Ok(seen));
            worker::with(|worker| self.take_carried(worker, seen));
            self.request_body = RequestBodyAt::Memory;
            Ok((RequestBody::Whole(payload.into()), share))
        } else {
            Ok((RequestBody::TooLarge, share))
        }
    }

    /// True when the body is complete in `carry`, false when it is too large for that. `seen` is how much of `carry` has
    /// been followed.
    fn poll_whole(
        &mut self,
        cx: &mut Context<'_>,
        worker: &mut Worker,
        body: &mut Body,
        seen: &mut usize,
        share: &mut BodyShare,
    ) -> Poll<Result<bool, BodyError>> {
        loop {
            *seen += body
                .consume(&self.carry[*seen..])
                .map_err(|_| BodyError::Malformed)?;
            if body.is_done() {
                return Poll::Ready(Ok(true));
            }
            if self.carry.len() > self.plane.settings.plugin_body || !share.grow(self.carry.len()) {
                return Poll::Ready(Ok(false));
            }
            match self.stream.poll_read(cx, &mut worker.read) {
                Poll::Ready(Ok(read)) if read > 0 => {
                    self.carry.extend_from_slice(&worker.read[..read]);
                    self.now = Instant::now();
                    self.deadline
                        .set(self.now + self.plane.settings.body_timeout);
                }
                Poll::Ready(_) => return Poll::Ready(Err(BodyError::Gone)),
                Poll::Pending => {
                    ready!(self.deadline.poll_passed(cx));
                    return Poll::Ready(Err(BodyError::Timeout));
                }
            }
        }
    }

    /// Tells a client that waits for it to go on with the body, unless the body is on its way already.
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
