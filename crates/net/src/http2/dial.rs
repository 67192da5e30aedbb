//! A connection attempt to an upstream that may speak HTTP/2. One request connects. Other requests for the same
//! upstream wait, and all of them get the result. The result is stored, so that a request that starts to wait after the
//! attempt has ended gets it too.

use std::io;
use std::sync::Arc;
use tokio::sync::watch;

/// Why a connection attempt failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialFailure {
    #[error("connecting took too long")]
    Timeout,
    #[error("cannot connect: {0}")]
    Connect(Arc<io::Error>),
    /// TCP connected, but the TLS handshake or the choice of protocol failed.
    #[error("handshake failed: {0}")]
    Handshake(Arc<io::Error>),
}

/// Result of a connection attempt.
#[derive(Debug, Clone)]
pub enum Dialed {
    /// The connection is now one of the worker's [`Links`](super::Links).
    Http2,
    /// The upstream speaks only HTTP/1.1, so there is no connection to share.
    Http1,
    Failed(DialFailure),
    /// The request that was connecting has been dropped; the result is unknown.
    Abandoned,
}

/// Handle of a connection attempt for the requests that wait for it.
#[derive(Debug, Clone)]
pub struct Dial(watch::Receiver<Option<Dialed>>);

impl Dial {
    /// Waits for the result.
    pub async fn ended(mut self) -> Dialed {
        match self.0.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Dialed::Abandoned),
            Err(_) => Dialed::Abandoned,
        }
    }

    /// Whether the attempt is still running.
    pub(super) fn is_open(&self) -> bool {
        self.0.borrow().is_none() && self.0.has_changed().is_ok()
    }
}

/// Handle of a connection attempt for the request that connects. This request must report the result with
/// [`Dialer::end`]. If the handle is dropped instead, the waiting requests get [`Dialed::Abandoned`].
#[derive(Debug)]
pub struct Dialer(watch::Sender<Option<Dialed>>);

impl Dialer {
    /// Creates a dialer, and the handle for the requests that wait for it.
    pub(super) fn new() -> (Self, Dial) {
        let (sender, receiver) = watch::channel(None);
        (Self(sender), Dial(receiver))
    }

    /// Reports the result to all requests that wait now or later.
    pub fn end(self, end: Dialed) {
        self.0.send_replace(Some(end));
    }
}
