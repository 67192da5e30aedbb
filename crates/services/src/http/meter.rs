//! Bounds what a server may send beside payload: interim responses, sizes of chunks, frames of HTTP/2 without data. Time
//! limits are no bound for it, because they can be long, and because a connection of HTTP/2 outlives its requests.
//!
//! A connection has an allowance, which all bytes from the server use up and payload fills again. Responses fill it too,
//! and over HTTP/1.1 the interim responses before them. hyper does not show those of HTTP/2, so a server whose interim
//! responses are many times longer than its responses loses a connection now and then.

use super::connect::Transport;
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that a server sends without any payload. It is more than what a server of HTTP/2 may send
/// before any payload is taken: hyper's window of a connection has 5 MB.
pub(super) const ALLOWANCE: usize = 8 * 1024 * 1024;

/// What a byte of payload is worth. A chunk of one byte has six bytes, and a frame of HTTP/2 ten.
const PER_BYTE: usize = 16;

/// The number of bytes that the server of a connection may send. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    fn full() -> Self {
        Self(Arc::new(AtomicUsize::new(ALLOWANCE)))
    }

    /// Fills the allowance for this number of bytes of payload.
    pub(super) fn refill(&self, payload: usize) {
        let more = payload.saturating_mul(PER_BYTE);
        let refilled = |left: usize| Some(left.saturating_add(more).min(ALLOWANCE));
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, refilled);
    }

    fn spend(&self, bytes: usize) -> io::Result<()> {
        let spent = |left: usize| left.checked_sub(bytes);
        let spent = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent);
        let excess = || io::Error::new(io::ErrorKind::InvalidData, "too much without payload");
        spent.map(drop).map_err(|_| excess())
    }
}

/// A connection that fails when its server has used up its allowance.
#[derive(Debug)]
pub(super) struct Metered {
    transport: Transport,
    allowance: Allowance,
}

impl Metered {
    pub(super) fn new(transport: Transport) -> Self {
        let allowance = Allowance::full();
        Self {
            transport,
            allowance,
        }
    }
}

impl Connection for Metered {
    /// Each response has the allowance of its connection among its extensions.
    fn connected(&self) -> Connected {
        Connected::new().extra(self.allowance.clone())
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buffer.filled().len();
        ready!(Pin::new(&mut this.transport).poll_read(cx, buffer))?;
        Poll::Ready(this.allowance.spend(buffer.filled().len() - filled))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().transport).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().transport).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(cx)
    }
}
