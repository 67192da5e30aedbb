//! The client of a connection, and the limits of its requests. Each request carries both as an extension.

use crate::budget::Budget;
use crate::server::Limits;
use axum::http::Extensions;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A client connection to the Admin API or the Status API, shared by its requests.
#[derive(Debug)]
pub struct Connection {
    pub(crate) peer: Peer,
    pub(crate) limits: Limits,
    pub(crate) permits: Permits,
}

#[derive(Debug)]
pub(crate) enum Peer {
    /// A program on this machine that has connected to the local socket.
    Local,
    Remote(Remote),
}

#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) address: SocketAddr,
    /// Whether the listener has an address that other machines cannot reach.
    pub(crate) on_loopback: bool,
    /// Subject of the client certificate.
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

/// Limits on concurrent connections and requests, shared by all connections.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    /// Expensive reads and writes have separate limits, because writes wait for each other and must not delay reads.
    heavy_reads: Arc<Semaphore>,
    heavy_writes: Arc<Semaphore>,
    /// Validations have a limit of their own, because they take much CPU time and must not delay reads and writes.
    validations: Arc<Semaphore>,
    large_answers: Arc<Semaphore>,
    /// Imports of tokens last as long as their clients send, so they have a limit of their own.
    imports: Arc<Semaphore>,
    pub(crate) bodies: Budget,
}

/// Maximum number of concurrent expensive reads.
const HEAVY_READS: usize = 4;
/// Maximum number of concurrent expensive writes.
const HEAVY_WRITES: usize = 16;

/// Maximum number of concurrent validations.
const VALIDATIONS: usize = 2;

/// Types of expensive requests. Each type has its own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heavy {
    Read,
    Write,
    Validation,
}

/// Maximum number of concurrent large responses. Each may be as large as the store.
const LARGE_ANSWERS: usize = 8;

/// Maximum number of concurrent imports of tokens. Each has a thread.
const IMPORTS: usize = 4;

/// One slot of a limit, released when this is dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

impl Connection {
    /// Whether the client uses the local socket.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.peer, Peer::Local)
    }

    /// A connection with the operator's rights, like one over the local socket. [`crate::serve`] adds the real
    /// connection to each request; callers that use the router directly add this one to a request's extensions.
    pub fn of_operator(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            peer: Peer::Local,
            limits,
            permits: Permits::new(&limits),
        })
    }

    /// Returns the connection of a request. If it is `None`, the client is unknown and the request is refused.
    pub(crate) fn of(request: &Extensions) -> Option<&Arc<Self>> {
        request.get()
    }
}

impl Permits {
    pub(crate) fn new(limits: &Limits) -> Self {
        let permits = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            connections: permits(limits.connections),
            requests: permits(limits.requests),
            heavy_reads: permits(HEAVY_READS),
            heavy_writes: permits(HEAVY_WRITES),
            validations: permits(VALIDATIONS),
            large_answers: permits(LARGE_ANSWERS),
            imports: permits(IMPORTS),
            bodies: Budget::new(limits.body_memory),
        }
    }

    pub(crate) fn connection(&self) -> Option<Permit> {
        Arc::clone(&self.connections).try_acquire_owned().ok()
    }

    pub(crate) fn request(&self) -> Option<Permit> {
        Arc::clone(&self.requests).try_acquire_owned().ok()
    }

    pub(crate) fn large_answer(&self) -> Option<Permit> {
        Arc::clone(&self.large_answers).try_acquire_owned().ok()
    }

    pub(crate) fn import(&self) -> Option<Permit> {
        Arc::clone(&self.imports).try_acquire_owned().ok()
    }

    /// Waits for a slot among the expensive requests of this type.
    pub(crate) async fn heavy(&self, heavy: Heavy) -> Option<Permit> {
        let permits = match heavy {
            Heavy::Read => &self.heavy_reads,
            Heavy::Write => &self.heavy_writes,
            Heavy::Validation => &self.validations,
        };
        Arc::clone(permits).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn reads_and_writes_do_not_wait_for_validations() {
        let permits = Permits::new(&Limits::default());
        let mut held = Vec::new();
        while let Some(permit) = permits.heavy(Heavy::Validation).now_or_never() {
            held.push(permit);
        }
        assert_eq!(held.len(), VALIDATIONS);
        for heavy in [Heavy::Read, Heavy::Write] {
            assert!(permits.heavy(heavy).now_or_never().is_some(), "{heavy:?}");
        }
    }
}
