//! Who is at the other end of a connection and what it may cost, as an extension of each of its requests.

use crate::budget::Budget;
use crate::server::Limits;
use axum::http::Extensions;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A connection, shared by its requests.
#[derive(Debug)]
pub struct Connection {
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

/// What connections and their requests may take at a time, all together.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    /// Heavy requests that change nothing, and those that do: the latter wait for each other on the way, the former for nobody.
    heavy_reads: Arc<Semaphore>,
    heavy_writes: Arc<Semaphore>,
    large_answers: Arc<Semaphore>,
    pub(crate) bodies: Budget,
}

/// Heavy requests that are worked on at a time.
const HEAVY_READS: usize = 4;
const HEAVY_WRITES: usize = 16;

/// Answers of the size of the store that are sent at a time.
const LARGE_ANSWERS: usize = 8;

/// One of them is taken until this is dropped.
pub(crate) type Place = OwnedSemaphorePermit;

impl Connection {
    /// The operator's: as if over the local socket. [`crate::serve`] gives each request the connection it comes over; who
    /// calls the router without it adds this one to a request's extensions.
    pub fn of_operator(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            peer: Peer::Local,
            limits,
            places: Places::new(&limits),
        })
    }

    /// The connection of a request. Without one, nothing is known of the client, who may do nothing then.
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
            heavy_reads: places(HEAVY_READS),
            heavy_writes: places(HEAVY_WRITES),
            large_answers: places(LARGE_ANSWERS),
            bodies: Budget::new(limits.body_memory),
        }
    }

    pub(crate) fn connection(&self) -> Option<Place> {
        Arc::clone(&self.connections).try_acquire_owned().ok()
    }

    pub(crate) fn request(&self) -> Option<Place> {
        Arc::clone(&self.requests).try_acquire_owned().ok()
    }

    pub(crate) fn large_answer(&self) -> Option<Place> {
        Arc::clone(&self.large_answers).try_acquire_owned().ok()
    }

    /// Waits for a place among the heavy requests.
    pub(crate) async fn heavy(&self, writes: bool) -> Option<Place> {
        let places = if writes {
            &self.heavy_writes
        } else {
            &self.heavy_reads
        };
        Arc::clone(places).acquire_owned().await.ok()
    }
}
