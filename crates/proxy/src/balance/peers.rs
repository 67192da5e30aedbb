//! The current peers of an upstream, and the algorithm that picks one.

use super::peer::{Member, Peer, PeerAddress};
use super::ring::Ring;
use super::wheel::Wheel;
use super::{BalancerSettings, PickInput, Shared, TargetSettings, Tried, latency, least, ring};
use crate::health::Checks;
use model::entities::Algorithm;
use net::dns::Host;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Peers {
    /// All members. Those that receive requests come first.
    pub(super) members: Box<[Arc<Member>]>,
    /// Number of members that receive requests. Members of weight 0 receive none.
    taking: usize,
    chooser: Chooser,
    checked: Option<Checked>,
    /// Whether some names of targets are not resolved yet.
    pub(super) pending: bool,
    /// For each name, the number of the DNS answer that its members come from.
    answers: Box<[u64]>,
}

#[derive(Debug)]
enum Chooser {
    Wheel(Wheel),
    Ring(Ring),
    LeastConnections,
    Latency,
}

/// The check that enough of the weight is available, with its cached result.
#[derive(Debug)]
struct Checked {
    /// Percentage of the weight that must be exceeded.
    threshold: f64,
    /// The cached result: the value of [`Shared::changes`] that it was computed for, times two, plus one if the
    /// upstream was usable.
    counted: AtomicU64,
}

/// Total and available weight of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    pub total: u64,
    pub available: u64,
}

impl Peers {
    pub(super) fn new(
        settings: &BalancerSettings,
        hosts: &[Option<Arc<Host>>],
        checks: Option<&Checks>,
        shared: &Shared,
    ) -> Self {
        // The numbers of the DNS answers are read before the records, so that the next refresh notices a change in
        // between.
        let answers: Vec<u64> = numbers(hosts).collect();
        let mut drafts = Vec::with_capacity(settings.targets.len());
        for (number, (target, host)) in settings.targets.iter().zip(hosts).enumerate() {
            match host {
                None => drafts.push(Draft::of_target(number, target)),
                Some(host) => drafts.extend(Draft::of_name(number, target, host)),
            }
        }
        let mean = mean_latency(&shared.known());
        let members = drafts.into_iter().map(|draft| {
            let peer = shared.peer(draft.place, mean);
            if checks.is_none() {
                // Without health checks, nothing else would make an unusable peer usable again.
                peer.force(true);
            }
            let target = &settings.targets[draft.target];
            Arc::new(Member {
                ways: ways(settings, target, draft.srv.as_deref(), &peer),
                weight: draft.weight,
                target: draft.target,
                srv: draft.srv,
                peer,
            })
        });
        let mut members: Vec<Arc<Member>> = members.collect();
        members.sort_by_key(|member| member.weight == 0);
        let taking = members.partition_point(|member| member.weight > 0);
        let chooser = Chooser::new(settings, &members[..taking]);
        Self {
            members: members.into(),
            taking,
            chooser,
            checked: checks.map(|checks| Checked {
                threshold: checks.threshold,
                counted: AtomicU64::new(u64::MAX),
            }),
            pending: answers.contains(&0),
            answers: answers.into(),
        }
    }

    /// Whether the members were built from the current DNS answers.
    pub(super) fn is_current(&self, hosts: &[Option<Arc<Host>>]) -> bool {
        self.answers.iter().copied().eq(numbers(hosts))
    }

    /// The members that receive requests.
    pub(super) fn taking(&self) -> &[Arc<Member>] {
        &self.members[..self.taking]
    }

    /// Whether the upstream as a whole can be used. Source: kong/runloop/balancer/balancers.lua updateStatus().
    pub(super) fn is_usable(&self, shared: &Shared) -> bool {
        let Some(checked) = &self.checked else {
            return self.taking > 0;
        };
        let changes = shared.changes.load(Ordering::Acquire);
        let counted = checked.counted.load(Ordering::Relaxed);
        if counted >> 1 == changes {
            return counted & 1 == 1;
        }
        let Weight { total, available } = self.weight();
        let percent = available as f64 / total.max(1) as f64 * 100.0;
        let usable = percent > checked.threshold;
        let counted = changes << 1 | u64::from(usable);
        checked.counted.store(counted, Ordering::Relaxed);
        usable
    }

    pub(super) fn weight(&self) -> Weight {
        self.members.iter().fold(Weight::default(), |sum, member| {
            let weight = u64::from(member.weight);
            let usable = self.is_available(member);
            Weight {
                total: sum.total + weight,
                available: sum.available + if usable { weight } else { 0 },
            }
        })
    }

    pub(super) fn is_available(&self, member: &Member) -> bool {
        self.checked.is_none() || member.peer.health().is_available()
    }

    /// Picks a usable member that was not tried for the request. If all were tried, picks one of them.
    pub(super) fn pick(
        &self,
        input: PickInput,
        tried: &Tried,
        now: Duration,
        shared: &Shared,
    ) -> Option<Arc<Member>> {
        if !self.is_usable(shared) {
            return None;
        }
        let members = self.taking();
        let usable = |number: usize| self.is_available(&members[number]);
        let fresh = |number: usize| usable(number) && !tried.contains(&members[number].peer);
        let picked = if tried.0.is_empty() {
            self.choose(input, now, shared, &usable)
        } else {
            (self.choose(input, now, shared, &fresh))
                .or_else(|| self.choose(input, now, shared, &usable))
        };
        picked.map(|number| members[number].clone())
    }

    fn choose(
        &self,
        input: PickInput,
        now: Duration,
        shared: &Shared,
        usable: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let turn = || shared.turns.fetch_add(1, Ordering::Relaxed);
        let member = |number: usize| usable(number).then(|| &*self.members[number]);
        match &self.chooser {
            Chooser::Wheel(wheel) => wheel.pick(&shared.turns, usable),
            Chooser::Ring(ring) => ring.pick(input.key, usable),
            Chooser::LeastConnections => least::pick(self.taking, turn(), |number| {
                member(number).map(|member| (member.peer.connections(), member.weight))
            }),
            Chooser::Latency => latency::pick(self.taking, turn(), |number| {
                member(number).map(|member| member.peer.latency.now(now) / member.weight as f32)
            }),
        }
    }
}

impl Chooser {
    fn new(settings: &BalancerSettings, members: &[Arc<Member>]) -> Self {
        match settings.entity.algorithm {
            Algorithm::RoundRobin => Self::Wheel(Wheel::new(members.iter().map(|one| one.weight))),
            Algorithm::ConsistentHashing => {
                let hashed = members.iter().map(|member| {
                    let place = member.peer.place.to_string();
                    (ring::hash(place.as_bytes()), member.weight)
                });
                let hashed: Vec<_> = hashed.collect();
                Self::Ring(Ring::new(settings.entity.slots, &hashed))
            }
            Algorithm::LeastConnections => Self::LeastConnections,
            Algorithm::Latency => Self::Latency,
        }
    }
}

/// A member before its shared state ([`Peer`]) is found or created.
struct Draft {
    target: usize,
    place: PeerAddress,
    weight: u32,
    /// The host name in an SRV record.
    srv: Option<Arc<str>>,
}

impl Draft {
    fn of_target(number: usize, target: &TargetSettings) -> Self {
        Self {
            target: number,
            place: PeerAddress {
                host: target.host.clone(),
                port: target.port,
            },
            weight: target.weight,
            srv: None,
        }
    }

    /// Returns a draft for each DNS record. SRV records have their own weights, except that a target of weight 0 stays
    /// disabled.
    /// Source: kong/runloop/balancer/balancers.lua addAddress().
    fn of_name(number: usize, target: &TargetSettings, host: &Host) -> Vec<Self> {
        let Some(Ok(answer)) = host.answer() else {
            return Vec::new();
        };
        let records = answer.records.iter().map(|record| Self {
            target: number,
            place: PeerAddress::from(record.address),
            weight: match record.srv {
                Some(_) if target.weight > 0 => record.weight.into(),
                _ => target.weight,
            },
            srv: record.srv.clone(),
        });
        records.collect()
    }
}

fn numbers(hosts: &[Option<Arc<Host>>]) -> impl Iterator<Item = u64> {
    hosts.iter().flatten().map(|host| host.number())
}

/// Returns the connection settings of a peer, one for each of [`BalancerSettings::ways`].
/// Source: kong/runloop/balancer/init.lua execute(), set_host_header(); balancers.lua setHostHeader().
fn ways(
    settings: &BalancerSettings,
    target: &TargetSettings,
    srv: Option<&str>,
    peer: &Peer,
) -> Box<[crate::upstream::Target]> {
    let name = name(settings, target, srv);
    let PeerAddress { host, port } = &peer.place;
    let ways = settings.ways.iter();
    ways.map(|way| way.to(host, *port, name)).collect()
}

/// Returns the name of a target for the `Host` header.
pub(super) fn name<'s>(
    settings: &'s BalancerSettings,
    target: &'s TargetSettings,
    srv: Option<&'s str>,
) -> &'s str {
    let entity = &settings.entity;
    let srv = srv.filter(|_| entity.use_srv_name);
    entity
        .host_header
        .as_deref()
        .or(srv)
        .unwrap_or(&target.host)
}

/// Returns the initial latency of a new peer: the mean of the others, so that it is neither preferred nor avoided.
fn mean_latency(peers: &[Arc<Peer>]) -> f32 {
    let sum: f32 = peers.iter().map(|peer| peer.latency.last()).sum();
    sum / peers.len().max(1) as f32
}
