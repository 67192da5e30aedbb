//! A connection in the making to an upstream that may speak HTTP/2. One request makes it, others wait for it, and all of
//! them are told how it ended. The end is a state and not an event: who looks late sees it too.

use std::io;
use std::sync::Arc;
use tokio::sync::watch;

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialFailure {
    #[error("connecting took too long")]
    Timeout,
    #[error("cannot connect: {0}")]
    Connect(Arc<io::Error>),
    /// TCP was connected, but TLS or the protocol could not be agreed on.
    #[error("handshake failed: {0}")]
    Handshake(Arc<io::Error>),
}

/// How making a connection ended.
#[derive(Debug, Clone)]
pub enum Dialed {
    /// The connection is one of the worker's [`Links`](super::Links).
    Http2,
    /// The upstream speaks only HTTP/1.1, so there is nothing to share.
    Http1,
    Failed(DialFailure),
    /// The request that was connecting is gone; nothing is known of the upstream.
    Abandoned,
}

/// A connection in the making, as seen by a request that waits for it.
#[derive(Debug, Clone)]
pub struct Dial(watch::Receiver<Option<Dialed>>);

impl Dial {
    /// Waits for the end.
    pub async fn ended(mut self) -> Dialed {
        match self.0.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Dialed::Abandoned),
            Err(_) => Dialed::Abandoned,
        }
    }

    /// Whether it has not ended yet.
    pub(super) fn is_open(&self) -> bool {
        self.0.borrow().is_none() && self.0.has_changed().is_ok()
    }
}

/// The duty to make a connection and to say how that ended. Dropping it says [`Dialed::Abandoned`].
#[derive(Debug)]
pub struct Dialer(watch::Sender<Option<Dialed>>);

impl Dialer {
    /// A dialer, and what those that wait for it hold.
    pub(super) fn new() -> (Self, Dial) {
        let (sender, receiver) = watch::channel(None);
        (Self(sender), Dial(receiver))
    }

    /// Tells everyone who waits, or will.
    pub fn end(self, end: Dialed) {
        self.0.send_replace(Some(end));
    }
}
