//! An HTTP/2 connection to an upstream, with many streams, driven by its own task. [`Links`](super::Links) chooses the
//! connection of a request.

use super::links::{LinkKey, LinkSettings};
use super::upstream_stream::UpstreamStream;
use super::wire::Wire;
use crate::deadline::Deadline;
use crate::pool::Slot;
use crate::stream::Stream;
use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of a response that an upstream may send before the client has accepted any.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Flow-control window of a connection: the maximum of the protocol, so that only the windows of the streams limit the
/// upstream. Responses that clients do not read could fill a smaller window, and all other streams of the connection
/// would have to wait.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Maximum streams on one connection before another connection is opened. The upstream may allow fewer.
const COMFORTABLE_STREAMS: usize = 100;
/// Maximum streams that are started before the upstream announces its own limit, which it does at once. Further streams
/// wait, because the upstream could refuse them.
const FIRST_STREAMS: usize = 10;
/// Time without received bytes after which the next request sends a ping. gRPC servers treat more frequent pings, and
/// pings without a request, as an attack.
const SILENCE: Duration = Duration::from_secs(10);
/// Time after which an upstream that does not answer a ping is considered dead.
const PONG_TIMEOUT: Duration = Duration::from_secs(15);

/// State shared by a connection's handle and its task.
#[derive(Debug, Default)]
struct LinkState {
    streams: AtomicUsize,
    wants_ping: AtomicBool,
    over: AtomicBool,
    /// Whether the upstream has ended the connection with an error.
    refused: AtomicBool,
}

/// Counts a stream as in use until it is dropped.
#[derive(Debug)]
pub(super) struct Use(Arc<LinkState>);

impl Use {
    /// Whether the upstream has ended the connection with an error. `h2` does not report this on the streams of the
    /// connection.
    pub(super) fn is_refused(&self) -> bool {
        self.0.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Handle of an HTTP/2 connection to an upstream.
#[derive(Debug)]
pub struct Link {
    request: SendRequest<Bytes>,
    state: Arc<LinkState>,
    wire: Wire,
    key: LinkKey,
    requests: u32,
    opened: Instant,
    quiet_since: Option<Instant>,
    /// Number of the last use. Numbers grow with every use of any connection of the worker, so they order the
    /// connections by last use.
    last_use: u64,
    /// Slot of the target that used the connection last.
    slot: Weak<Slot>,
}

impl Link {
    /// Starts HTTP/2 on a connection. The caller must poll the [`Driver`] in a separate task until it ends.
    pub async fn open(stream: Stream, key: LinkKey, head: u32) -> io::Result<(Self, Driver)> {
        let wire = Wire::new(stream, Vec::new(), 0);
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(head)
            .initial_max_send_streams(FIRST_STREAMS)
            .max_send_buffer_size(super::SEND_BUFFER);
        let opened = builder.handshake(wire.clone()).await;
        let (request, mut connection) = opened.map_err(super::to_io)?;
        let state = Arc::<LinkState>::default();
        let driver = Driver {
            pings: connection.ping_pong(),
            connection,
            state: Arc::clone(&state),
            wire: wire.clone(),
            pinged: None,
        };
        let link = Self {
            request,
            state,
            wire,
            key,
            requests: 0,
            opened: Instant::now(),
            quiet_since: None,
            last_use: 0,
            slot: Weak::new(),
        };
        Ok((link, driver))
    }

    /// Returns how many more streams the connection can take, or `None` if it is closed.
    pub(super) fn room(&mut self, cx: &mut Context<'_>) -> Option<usize> {
        if self.is_over() {
            return None;
        }
        match self.request.poll_ready(cx) {
            Poll::Ready(Err(_)) => None,
            _ => {
                // The first bytes from an upstream are its SETTINGS, which announce its limit.
                let is_told = self.wire.line().read > 0;
                let most = if is_told {
                    self.request.current_max_send_streams()
                } else {
                    COMFORTABLE_STREAMS
                };
                let used = self.state.streams.load(Ordering::Relaxed);
                Some(most.min(COMFORTABLE_STREAMS).saturating_sub(used))
            }
        }
    }

    /// Opens a stream on this connection. `number` grows with every use of any connection of the worker; `slot` belongs
    /// to the target.
    pub(super) fn call(&mut self, number: u64, slot: &Arc<Slot>) -> UpstreamStream {
        if self.wire.line().last_read.elapsed() > SILENCE {
            self.state.wants_ping.store(true, Ordering::Relaxed);
        }
        self.last_use = number;
        if !std::ptr::eq(self.slot.as_ptr(), Arc::as_ptr(slot)) {
            self.slot = Arc::downgrade(slot);
        }
        self.requests = self.requests.saturating_add(1);
        self.quiet_since = None;
        self.state.streams.fetch_add(1, Ordering::Relaxed);
        let counted = Use(Arc::clone(&self.state));
        let (request, watch) = (self.request.clone(), self.wire.watch());
        UpstreamStream::new(request, watch, self.key.tls.is_some(), counted)
    }

    pub(super) fn key(&self) -> &LinkKey {
        &self.key
    }

    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    pub(super) fn last_use(&self) -> u64 {
        self.last_use
    }

    /// Whether the connection has an open stream.
    pub(super) fn is_used(&self) -> bool {
        self.state.streams.load(Ordering::Relaxed) > 0
    }

    /// Whether the settings allow another request on the connection.
    pub(super) fn may_be_shared(&self, settings: &LinkSettings) -> bool {
        let is_worn = settings.max_requests != 0 && self.requests >= settings.max_requests;
        !is_worn && (settings.size > 0 || self.is_used())
    }

    /// Whether the connection has ended.
    pub(super) fn is_over(&self) -> bool {
        self.state.over.load(Ordering::Relaxed)
    }

    /// Whether to keep the connection. It must be open. If no stream is open, it must also have been used recently, and
    /// the target that used it last must still exist.
    pub(super) fn tidy(&mut self, now: Instant, idle: Duration) -> bool {
        if self.is_over() {
            return false;
        }
        if self.is_used() {
            self.quiet_since = None;
            return true;
        }
        let since = *self.quiet_since.get_or_insert(now);
        let is_fresh = idle.is_zero() || now < since + idle;
        is_fresh && self.slot.strong_count() > 0
    }
}

/// The task of a connection to an upstream. It ends when the connection closes. `h2` closes the connection when its
/// last handle and stream are dropped.
#[derive(Debug)]
pub struct Driver {
    connection: Connection<Wire, Bytes>,
    pings: Option<PingPong>,
    state: Arc<LinkState>,
    wire: Wire,
    pinged: Option<Box<Deadline>>,
}

impl Driver {
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.wants_ping.swap(false, Ordering::Relaxed)
            && self.pinged.is_none()
            && let Some(pings) = &mut self.pings
            && pings.send_ping(Ping::opaque()).is_ok()
        {
            self.pinged = Some(Box::new(Deadline::new(Instant::now() + PONG_TIMEOUT)));
        }
        if let Poll::Ready(ended) = Pin::new(&mut self.connection).poll(cx) {
            if let Err(error) = ended {
                let refused = error.is_go_away() && error.is_remote();
                self.state.refused.store(refused, Ordering::Relaxed);
                tracing::debug!(%error, "an HTTP/2 connection to an upstream ended");
            }
            return Poll::Ready(());
        }
        if let Poll::Ready(Err(_)) = self.wire.line().poll_flush(cx) {
            return Poll::Ready(());
        }
        self.poll_pong(cx)
    }

    fn poll_pong(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(deadline), Some(pings)) = (&mut self.pinged, &mut self.pings) else {
            return Poll::Pending;
        };
        match pings.poll_pong(cx) {
            Poll::Ready(Ok(_)) => {
                self.pinged = None;
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Pending => {
                ready!(deadline.poll_passed(cx));
                tracing::info!(
                    "an upstream does not answer HTTP/2 pings; its connection is closed"
                );
                Poll::Ready(())
            }
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let ended = self.poll_connection(cx);
        if ended.is_ready() {
            self.state.over.store(true, Ordering::Relaxed);
        }
        ended
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
    }
}
