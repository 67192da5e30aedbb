//! Load balancing among the peers (addresses) of an upstream entity. An [`Upstream`] holds the configuration of the
//! entity and the peers that its targets currently resolve to. Several services may share an upstream, each with its
//! own connection settings ([`Way`]). The state of a peer ([`Peer`]) survives every change that keeps the peer. A pick
//! takes no lock.
//!
//! Not here: health checks ([`crate::health`]), and connections to peers (`session`).

mod hashing;
mod latency;
mod least;
mod mix;
pub mod names;
mod peer;
mod peers;
mod ring;
mod status;
mod wheel;

#[cfg(test)]
mod tests;

pub use hashing::{Group, HashSource, Hashing, Key};
pub use peer::{Peer, PeerAddress, Stay};
pub use status::{AddressStatus, NoChecker, TargetStatus, UpstreamStatus, Weight};

use crate::health::{Checks, Health, Outcome, Probing};
use crate::upstream::{Target, Way};
use arc_swap::ArcSwap;
use model::address::{self, Address};
use model::entities::{self, Algorithm, TargetId, UpstreamId};
use net::dns::{Host, Resolver};
use peers::Peers;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// An upstream entity with its targets.
pub struct Upstream {
    pub settings: BalancerSettings,
    pub hashing: Option<Hashing>,
    /// The health checks, if any are enabled.
    pub checks: Option<Checks>,
    shared: Arc<Shared>,
    /// The DNS state of each target that is a name; `None` for IP addresses.
    hosts: Box<[Option<Arc<Host>>]>,
    peers: ArcSwap<Peers>,
}

/// The settings of an upstream. If a change leaves them equal, the existing upstream is reused.
#[derive(Debug, Clone, PartialEq)]
pub struct BalancerSettings {
    pub entity: entities::Upstream,
    pub targets: Vec<TargetSettings>,
    /// The different connection settings of the services that use the upstream.
    pub ways: Vec<Way>,
    /// Settings of active health checks, if they are enabled.
    pub probing: Option<Probing>,
}

/// A parsed target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSettings {
    pub id: TargetId,
    /// `host:port` in its stored form.
    pub text: Box<str>,
    /// The host part of `text`; IPv6 in brackets.
    pub host: Box<str>,
    pub port: u16,
    pub weight: u32,
    pub is_name: bool,
}

/// The state of an upstream that survives all its changes.
#[derive(Debug, Default)]
struct Shared {
    /// The peers in use.
    peers: Mutex<HashMap<PeerAddress, Weak<Peer>>>,
    /// Counter for round robin, and for taking turns among equally good peers in other algorithms.
    turns: AtomicU64,
    /// Incremented whenever a peer becomes usable or unusable.
    changes: AtomicU64,
}

/// The properties of a request that a pick depends on.
#[derive(Debug, Clone, Copy, Default)]
pub struct PickInput {
    /// The hash from [`Hashing::key`]. Only used by consistent hashing.
    pub key: u64,
}

/// The peers at which a request has failed.
#[derive(Debug, Default)]
pub struct Tried(Vec<Arc<Peer>>);

/// The peer picked for a try. The peer counts the request as in progress until the visit is dropped.
#[derive(Debug)]
pub struct Visit<'u> {
    upstream: &'u Upstream,
    stay: Stay,
    /// Index in [`BalancerSettings::ways`]. It is small because every waiting request holds a `Visit`.
    way: u32,
    /// Time of the pick: [`now`] in microseconds.
    began: u64,
}

/// An address to probe.
#[derive(Debug, Clone)]
pub struct ProbePlace {
    pub address: SocketAddr,
    /// Host of the target, for the probe's Host header and TLS.
    pub name: Box<str>,
    pub peer: Arc<Peer>,
}

/// The reason why no peer could be picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failure to get a peer from the ring-balancer")]
pub enum NoPeer {
    Unusable,
    /// The names of some targets are not resolved yet. Call [`Upstream::resolve`], then pick again.
    Unresolved,
}

impl Upstream {
    /// Builds an upstream with the state of `previous`. Returns `previous` itself if the settings are equal.
    pub fn new(
        settings: BalancerSettings,
        resolver: &Resolver,
        previous: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        if let Some(same) = previous.filter(|previous| previous.settings == settings) {
            return same.clone();
        }
        let shared = previous.map_or_else(Arc::default, |previous| previous.shared.clone());
        let checks = Checks::new(&settings.entity.healthchecks);
        let hashes = settings.entity.algorithm == Algorithm::ConsistentHashing;
        let hashing = hashes.then(|| Hashing::new(&settings.entity)).flatten();
        let hosts = settings.targets.iter().map(|target| {
            let name = target.is_name.then_some(&*target.host);
            name.map(|name| resolver.host(name, target.port))
        });
        let hosts: Box<[_]> = hosts.collect();
        let peers = Peers::new(&settings, &hosts, checks.as_ref(), &shared);
        Arc::new(Self {
            settings,
            hashing,
            checks,
            shared,
            hosts,
            peers: ArcSwap::from_pointee(peers),
        })
    }

    pub fn id(&self) -> UpstreamId {
        self.settings.entity.id
    }

    pub fn name(&self) -> &str {
        &self.settings.entity.name
    }

    /// Picks the peer for the next try of a request.
    pub fn pick(&self, way: u32, input: PickInput, tried: &Tried) -> Result<Visit<'_>, NoPeer> {
        let now = now();
        let peers = self.peers.load();
        let member = peers.pick(input, tried, now, &self.shared);
        let member = member.ok_or(if peers.pending {
            NoPeer::Unresolved
        } else {
            NoPeer::Unusable
        })?;
        Ok(Visit {
            upstream: self,
            stay: Stay::new(member),
            way,
            began: now.as_micros() as u64,
        })
    }

    /// Waits for the first DNS answer of a target's name, for at most `limit`. Names that already have an answer do not
    /// count.
    pub async fn resolve(&self, limit: Duration) {
        /// Maximum number of names that one request waits for.
        const MOST: usize = 16;
        let unknown = self
            .hosts
            .iter()
            .flatten()
            .filter(|host| host.number() == 0);
        let mut waiting = JoinSet::new();
        for host in unknown.take(MOST) {
            let host = host.clone();
            waiting.spawn(async move { host.resolved(limit).await.is_ok() });
        }
        while let Some(resolved) = waiting.join_next().await {
            if matches!(resolved, Ok(true)) {
                break;
            }
        }
        self.refresh();
    }

    /// Rebuilds the peers if the DNS answers for the names of targets have changed.
    pub fn refresh(&self) {
        loop {
            let current = self.peers.load_full();
            if current.is_current(&self.hosts) {
                return;
            }
            let (settings, checks) = (&self.settings, self.checks.as_ref());
            let next = Arc::new(Peers::new(settings, &self.hosts, checks, &self.shared));
            // Another thread was faster, but it may have used older answers, so they are checked again.
            let before = self.peers.compare_and_swap(&current, next);
            if Arc::ptr_eq(&before, &current) {
                return;
            }
        }
    }

    /// Triggers the renewal of DNS answers with TTL 0.
    fn renew(&self) {
        self.hosts
            .iter()
            .flatten()
            .for_each(|host| drop(host.answer()));
    }

    /// Reports the outcome of a request to the passive health checks. Source: kong/runloop/handler.lua log.after.
    fn report_passive(&self, peer: &Peer, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Status(504) => Outcome::Timeout,
            other => other,
        };
        if let Some(checks) = &self.checks
            && let Some((event, limit)) = checks.passive.judge(outcome)
        {
            self.note(peer, peer.report(event, limit));
        }
    }

    /// Reports the outcome of a probe to the active health checks.
    pub fn report_active(&self, peer: &Peer, outcome: Outcome) {
        if let Some(checks) = &self.checks
            && let Some((event, limit)) = checks.active.judge(outcome)
        {
            self.note(peer, peer.report(event, limit));
        }
    }

    /// Returns the addresses to probe: either the available or the unavailable ones. An address that several targets
    /// share is returned once.
    pub fn probe_places(&self, available: bool) -> Vec<ProbePlace> {
        let peers = self.peers.load();
        let mut seen = HashSet::new();
        let taking = peers.taking().iter();
        let places = taking.filter_map(|member| {
            let peer = &member.peer;
            let wanted = peer.health().is_available() == available;
            if !wanted || !seen.insert(&peer.place) {
                return None;
            }
            Some(ProbePlace {
                address: peer.place.address()?,
                name: self.settings.targets[member.target].host.clone(),
                peer: peer.clone(),
            })
        });
        places.collect()
    }

    fn note(&self, peer: &Peer, change: Option<Health>) {
        let Some(health) = change else { return };
        self.shared.changes.fetch_add(1, Ordering::AcqRel);
        let (upstream, place) = (self.name(), &peer.place);
        if health.is_available() {
            tracing::info!(upstream, %place, "a target's address is healthy");
        } else {
            tracing::warn!(upstream, %place, "a target's address is unhealthy");
        }
    }
}

impl Shared {
    /// Returns the peer for an address. If none is in use yet, one is created with the given latency.
    fn peer(&self, place: PeerAddress, latency: f32) -> Arc<Peer> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get(&place).and_then(Weak::upgrade) {
            return peer;
        }
        let peer = Arc::new(Peer::new(place.clone(), latency, now()));
        peers.insert(place, Arc::downgrade(&peer));
        peer
    }

    /// Returns the peers in use, and removes the entries of the others.
    fn known(&self) -> Vec<Arc<Peer>> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|_, peer| peer.strong_count() > 0);
        peers.values().filter_map(Weak::upgrade).collect()
    }
}

impl TargetSettings {
    /// Parses a target, and returns `None` if it is not a valid address. In declarative configurations, the port may be
    /// missing, and the address may differ from the form in which the Admin API stores it.
    pub fn new(target: &entities::Target) -> Option<Self> {
        let address = Address::parse(&target.target).ok()?;
        let text = address.as_target();
        let (host, port) = text.rsplit_once(':')?;
        Some(Self {
            id: target.id,
            host: host.into(),
            port: port.parse().ok()?,
            weight: target.weight,
            is_name: matches!(address.host, address::Host::Name(_)),
            text: text.into(),
        })
    }
}

impl Tried {
    pub fn add(&mut self, visit: &Visit<'_>) {
        self.0.push(visit.stay.member().peer.clone());
    }

    fn contains(&self, peer: &Arc<Peer>) -> bool {
        self.0.iter().any(|tried| Arc::ptr_eq(tried, peer))
    }
}

impl Visit<'_> {
    /// The host and port of the peer.
    pub fn place(&self) -> (&str, u16) {
        let place = &self.stay.member().peer.place;
        (&place.host, place.port)
    }

    /// The name for the `Host` header.
    pub fn name(&self) -> &str {
        let member = self.stay.member();
        let settings = &self.upstream.settings;
        peers::name(
            settings,
            &settings.targets[member.target],
            member.srv.as_deref(),
        )
    }

    /// Reports the outcome of the try to the balancer and the passive health checks.
    pub fn report(&self, outcome: Outcome) {
        let peer = &self.stay.member().peer;
        if self.upstream.settings.entity.algorithm == Algorithm::Latency {
            let now = now();
            let took = now.saturating_sub(Duration::from_micros(self.began));
            peer.latency.add(took, now);
        }
        self.upstream.report_passive(peer, outcome);
    }

    /// Keeps the request counted at its peer after the try is over, for instance for a tunnel.
    pub fn into_stay(self) -> Stay {
        self.stay
    }
}

impl Deref for Visit<'_> {
    type Target = Target;

    fn deref(&self) -> &Target {
        &self.stay.member().ways[self.way as usize]
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Upstream")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// Returns the time since the first call of this function.
fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
