//! Who is at the other end of a connection and what it may cost, as an extension of each of its requests.

use crate::server::Limits;
use axum::http::Extensions;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    pub(crate) limits: Limits,
    pub(crate) places: Places,
}

#[derive(Debug)]
pub(crate) enum Peer {
    /// A program of this machine that may open the local socket.
    Local,
    Remote(Remote),
}

#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) address: SocketAddr,
    /// The listener has an address that other machines cannot reach.
    pub(crate) on_loopback: bool,
    /// The subject of the certificate that it has shown.
    pub(crate) certificate: Option<String>,
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => formatter.write_str("local"),
            Self::Remote(remote) => remote.address.fmt(formatter),
        }
    }
}

/// How many connections, and requests of all of them, there may be at once.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
}

/// One of them is taken until this is dropped.
pub(crate) type Place = OwnedSemaphorePermit;

impl Connection {
    /// None where a request has come without one, which only tests do.
    pub(crate) fn of(request: &Extensions) -> Option<&Arc<Self>> {
        request.get()
    }
}

impl Places {
    pub(crate) fn new(limits: &Limits) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            connections: places(limits.connections),
            requests: places(limits.requests),
        }
    }

    pub(crate) fn connection(&self) -> Option<Place> {
        Arc::clone(&self.connections).try_acquire_owned().ok()
    }

    pub(crate) fn request(&self) -> Option<Place> {
        Arc::clone(&self.requests).try_acquire_owned().ok()
    }
}
