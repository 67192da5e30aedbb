//! Limits on connections (in total and per client) and on requests per target. Unset limits cost nothing, and no limit
//! takes a lock.

use super::Connection;
use super::connect::ConnectError;
use super::worker;
use crate::upstream::Target;
pub(super) use net::gate::GatePlace;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Limits on concurrent client connections of a node. Zero means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionLimits {
    /// Maximum client connections in total (`max_connections`).
    pub all: usize,
    /// Maximum client connections per IPv4 address or IPv6 /64 network (`max_connections_per_client`). Peers in
    /// `trusted_ips` represent many clients and are not counted.
    pub per_client: u32,
}

/// Limits on concurrent requests of a worker to one target.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamLimits {
    /// Maximum concurrent requests (`upstream_max_requests`). Zero means no limit.
    pub requests: usize,
    /// Maximum requests that wait for a free slot (`upstream_max_queue`).
    pub queue: usize,
    /// Maximum time that a request waits for a free slot (`upstream_queue_timeout`).
    pub wait: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            requests: 0,
            queue: 100,
            wait: Duration::from_secs(5),
        }
    }
}

/// Rows of the table that counts connections per client. A client is counted in one slot of each row, and is refused
/// only if all its slots are full. Two clients rarely share every slot. No address is stored.
const ROWS: usize = 3;
/// Slots per row.
const PLACES: usize = 1 << 14;

/// Counts of open connections.
pub(super) struct Admission {
    limits: ConnectionLimits,
    open: AtomicUsize,
    /// Keyed randomly per process, so that nobody can choose addresses that share slots.
    hasher: RandomState,
    /// Empty when connections per client are not limited.
    clients: Box<[AtomicU32]>,
}

/// An admitted connection; it must be returned to [`Admission::leave`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admitted {
    counted: bool,
    client: Option<[u16; ROWS]>,
}

impl Admission {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        let places = if limits.per_client > 0 {
            PLACES * ROWS
        } else {
            0
        };
        Self {
            limits,
            open: AtomicUsize::new(0),
            hasher: RandomState::new(),
            clients: (0..places).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Counts a new connection. Returns `None` if a limit is reached.
    pub(super) fn enter(&self, peer: IpAddr, trusted: bool) -> Option<Admitted> {
        let counted = self.limits.all > 0;
        if counted && self.open.fetch_add(1, Ordering::Relaxed) >= self.limits.all {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let client = (self.limits.per_client > 0 && !trusted).then(|| self.places(peer));
        let admitted = Admitted { counted, client };
        if let Some(places) = client {
            let counts = places.map(|place| self.client(place).fetch_add(1, Ordering::Relaxed));
            if counts.iter().all(|count| *count >= self.limits.per_client) {
                self.leave(admitted);
                return None;
            }
        }
        Some(admitted)
    }

    pub(super) fn leave(&self, admitted: Admitted) {
        if admitted.counted {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        for place in admitted.client.into_iter().flatten() {
            self.client(place).fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn client(&self, place: u16) -> &AtomicU32 {
        &self.clients[usize::from(place)]
    }

    fn places(&self, peer: IpAddr) -> [u16; ROWS] {
        let client = match peer {
            IpAddr::V4(_) => peer,
            // One client may use every address of its /64 network.
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        };
        let hash = self.hasher.hash_one(client) as usize;
        std::array::from_fn(|row| (row * PLACES + (hash >> (row * 16)) % PLACES) as u16)
    }
}

impl Connection {
    /// Waits for a free request slot at the target. Returns `None` if requests per target are not limited.
    #[inline]
    pub(super) async fn enter_gate(
        &mut self,
        target: &Target,
    ) -> Result<Option<GatePlace>, ConnectError> {
        if self.plane.settings.upstream.requests == 0 {
            return Ok(None);
        }
        // Boxed because waiting is rare and would enlarge the task of every connection.
        Box::pin(self.wait_at_gate(target)).await.map(Some)
    }

    async fn wait_at_gate(&mut self, target: &Target) -> Result<GatePlace, ConnectError> {
        let UpstreamLimits {
            requests,
            queue,
            wait,
        } = self.plane.settings.upstream;
        let gate = worker::with(|worker| worker.pool.gate(&target.slot, requests));
        if let Some(place) = gate.try_enter() {
            return Ok(place);
        }
        let entered = gate.enter(queue, wait).await;
        self.now = tokio::time::Instant::now();
        entered.map_err(|_| ConnectError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_are_limited_in_all() {
        let admission = Admission::new(ConnectionLimits {
            all: 2,
            per_client: 0,
        });
        let one = admission.enter(address("1.1.1.1"), false).unwrap();
        assert!(admission.enter(address("2.2.2.2"), false).is_some());
        assert!(admission.enter(address("3.3.3.3"), true).is_none());
        admission.leave(one);
        assert!(admission.enter(address("3.3.3.3"), false).is_some());
        let unlimited = Admission::new(ConnectionLimits::default());
        assert!((0..1000).all(|_| unlimited.enter(address("1.1.1.1"), false).is_some()));
    }

    #[test]
    fn connections_are_limited_per_client() {
        let admission = Admission::new(ConnectionLimits {
            all: 0,
            per_client: 2,
        });
        let one = admission.enter(address("1.1.1.1"), false).unwrap();
        assert!(admission.enter(address("1.1.1.1"), false).is_some());
        assert!(admission.enter(address("1.1.1.1"), false).is_none());
        assert!(
            admission.enter(address("1.1.1.1"), true).is_some(),
            "trusted"
        );
        assert!(admission.enter(address("1.1.1.2"), false).is_some());
        admission.leave(one);
        assert!(admission.enter(address("1.1.1.1"), false).is_some());
        // All addresses of an IPv6 /64 network count as one client.
        for (text, expected) in [
            ("2001:db8::1", true),
            ("2001:db8::2", true),
            ("2001:db8::3", false),
            ("2001:db8:0:1::1", true),
        ] {
            let entered = admission.enter(address(text), false);
            assert_eq!(entered.is_some(), expected, "{text}");
        }
    }

    #[test]
    fn many_clients_do_not_use_up_each_others_limits() {
        let admission = Admission::new(ConnectionLimits {
            all: 0,
            per_client: 3,
        });
        let refused = (0..3000u32).filter(|number| {
            admission
                .enter(IpAddr::from(number.to_be_bytes()), false)
                .is_none()
        });
        assert_eq!(refused.count(), 0);
    }
}
