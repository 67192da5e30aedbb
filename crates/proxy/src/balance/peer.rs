//! One address of an upstream: its state, shared by all workers, and the requests in progress there.

use super::latency::Average;
use crate::health::{Health, HealthEvent};
use crate::upstream::Target;
use model::address::Host;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The state of one address of an upstream. It is kept as long as the upstream has the address or requests are in
/// progress there, whatever else in the configuration changes.
pub struct Peer {
    pub(super) place: PeerAddress,
    connections: AtomicU32,
    pub(super) latency: Average,
    health: AtomicU64,
}

/// The address and port that identify a peer of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerAddress {
    pub host: Box<str>,
    pub port: u16,
}

impl Peer {
    pub(super) fn new(place: PeerAddress, latency: f32, now: Duration) -> Self {
        Self {
            place,
            connections: AtomicU32::new(0),
            latency: Average::starting_at(latency, now),
            health: AtomicU64::new(Health::NEW.pack()),
        }
    }

    /// Number of requests in progress at this address.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn health(&self) -> Health {
        Health::unpack(self.health.load(Ordering::Acquire))
    }

    /// Counts an event, and returns the new health if the peer became usable or unusable.
    pub(super) fn report(&self, event: HealthEvent, limit: u8) -> Option<Health> {
        self.change(|health| health.after(event, limit))
    }

    pub(super) fn force(&self, healthy: bool) -> Option<Health> {
        self.change(|_| Health::forced(healthy))
    }

    fn change(&self, next: impl Fn(Health) -> Health) -> Option<Health> {
        let mut packed = self.health.load(Ordering::Acquire);
        loop {
            let before = Health::unpack(packed);
            let after = next(before);
            // This is by far the most frequent case. Returning here avoids a write to memory that all workers share.
            if after == before {
                return None;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match (self.health).compare_exchange_weak(packed, after.pack(), success, failure) {
                Ok(_) => return (after.is_available() != before.is_available()).then_some(after),
                Err(newer) => packed = newer,
            }
        }
    }
}

/// Writes the address as targets are stored: IPv6 addresses in full and in brackets.
impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{}]", Host::Ipv6(ip)),
        };
        Self {
            host: host.into(),
            port: address.port(),
        }
    }
}

impl PeerAddress {
    pub fn address(&self) -> Option<SocketAddr> {
        let bare = self.host.trim_start_matches('[').trim_end_matches(']');
        bare.parse().ok().map(|ip| SocketAddr::new(ip, self.port))
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Peer")
            .field("place", &self.place)
            .field("connections", &self.connections())
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

/// A peer with its weight and settings, for one state of the configuration and of DNS.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) peer: Arc<Peer>,
    pub(super) weight: u32,
    /// Index of the upstream's target that the address belongs to.
    pub(super) target: usize,
    /// The host name in the SRV record, if the address comes from one.
    pub(super) srv: Option<Arc<str>>,
    /// The connection settings for this address, one for each of [`super::BalancerSettings::ways`].
    pub(super) ways: Box<[Target]>,
}

impl Member {
    /// Returns the host that the Admin API shows for the address.
    pub(super) fn shown_host(&self) -> &str {
        self.srv.as_deref().unwrap_or(&self.peer.place.host)
    }

    /// Whether this address has the given port and the given IP address or SRV host name.
    pub(super) fn is_at(&self, host: &str, port: u16) -> bool {
        let PeerAddress {
            host: ip,
            port: own,
        } = &self.peer.place;
        let is_host = **ip == *host || self.shown_host().eq_ignore_ascii_case(host);
        is_host && *own == port
    }
}

/// Counts a request as in progress at a peer, until this guard is dropped.
#[derive(Debug)]
pub struct Stay(Arc<Member>);

impl Stay {
    pub(super) fn new(member: Arc<Member>) -> Self {
        member.peer.connections.fetch_add(1, Ordering::Relaxed);
        Self(member)
    }

    pub(super) fn member(&self) -> &Member {
        &self.0
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.peer.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
