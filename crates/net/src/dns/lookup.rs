//! From a name to its addresses: hosts file, search list, the kinds of records in their order, aliases, and the targets of
//! SRV records. Source: kong/resty/dns/client.lua resolve(), toip().

use super::answer::{Record, ResolveError};
use super::name::{candidates, normal};
use super::records::{Kept, Records};
use super::settings::{Kind, Settings};
use super::statistics::Statistics;
use super::system::System;
use super::transport::{Reply, Transport};
use futures_util::future::{BoxFuture, join_all};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Aliases of aliases that are followed, as BIND does.
const MOST_ALIASES: usize = 16;
/// Addresses of one host that are used; more than fit into a UDP answer a hundred times over.
const MOST_RECORDS: usize = 4096;
/// Targets of an SRV record that are looked up; each may be a question.
const MOST_TARGETS: usize = 512;

/// What a lookup gave, and for how long it is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) records: Vec<Record>,
    pub(super) kind: Kind,
    /// None: for ever, it is from the hosts file.
    pub(super) ttl: Option<Duration>,
}

/// Everything that a lookup needs; replaced whole when files or settings change.
pub(super) struct Lookup {
    pub(super) records: Records,
    system: System,
    order: Vec<Kind>,
}

/// Addresses, and for how long they are good.
struct Addresses {
    ips: Vec<IpAddr>,
    left: Option<Duration>,
}

impl Lookup {
    pub(super) fn new(
        settings: &Settings,
        system: System,
        transport: Arc<dyn Transport>,
        statistics: Arc<Statistics>,
    ) -> Self {
        Self {
            records: Records::new(transport, settings, statistics),
            system,
            order: settings.order.clone(),
        }
    }

    /// `name` is normal. `last` is what answered the last time.
    pub(super) async fn find(
        &self,
        name: &str,
        port: u16,
        last: Option<Kind>,
    ) -> Result<Found, ResolveError> {
        if let Some(ips) = self.in_hosts_file(name) {
            return Ok(Found {
                records: plain(ips, port),
                kind: last.unwrap_or(Kind::A),
                ttl: None,
            });
        }
        let conf = &self.system.conf;
        let names = candidates(name, &conf.search, conf.ndots)?;
        let mut failed = ResolveError::NotFound;
        for kind in self.kinds(last) {
            for name in &names {
                match self.ask(name, port, kind).await {
                    Ok(Some(found)) => return Ok(found),
                    Ok(None) => {}
                    // A kind that is not there may be one that cannot be asked for now: what it was must not be replaced by
                    // records of another kind, which lead elsewhere.
                    Err(error) if Some(kind) == last || !said_by_server(error) => {
                        return Err(error);
                    }
                    // glibc goes on, too, and does not call a name missing after such an answer.
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    /// The next lookup of a name asks again for what was missing.
    pub(super) fn forget_missing(&self, name: &str) {
        let conf = &self.system.conf;
        for name in candidates(name, &conf.search, conf.ndots).unwrap_or_default() {
            for kind in [
                RecordType::SRV,
                RecordType::A,
                RecordType::AAAA,
                RecordType::CNAME,
            ] {
                self.records.forget_missing(&name, kind);
            }
        }
    }

    fn kinds(&self, last: Option<Kind>) -> Vec<Kind> {
        let mut kinds = Vec::with_capacity(self.order.len());
        for kind in &self.order {
            let kind = match kind {
                Kind::Last => last,
                other => Some(*other),
            };
            kinds.extend(kind.filter(|kind| !kinds.contains(kind)));
        }
        kinds
    }

    /// Of the families that are asked for, or any if the file has no other.
    fn in_hosts_file(&self, name: &str) -> Option<Vec<IpAddr>> {
        let all = self.system.hosts.find(name);
        let family = |kind: &Kind| {
            let of_kind = |ip: &&IpAddr| match kind {
                Kind::A => ip.is_ipv4(),
                Kind::Aaaa => ip.is_ipv6(),
                _ => false,
            };
            let ips: Vec<IpAddr> = all.iter().filter(of_kind).copied().collect();
            (!ips.is_empty()).then_some(ips)
        };
        if all.is_empty() {
            return None;
        }
        let asked_for = self.order.iter().find_map(family);
        asked_for.or_else(|| Some(all.to_vec()))
    }

    async fn ask(&self, name: &Name, port: u16, kind: Kind) -> Result<Option<Found>, ResolveError> {
        let addresses = match kind {
            Kind::Srv => return self.services(name, port).await,
            Kind::A => self.addresses(name, RecordType::A, Stale::Refuse).await?,
            Kind::Aaaa => {
                self.addresses(name, RecordType::AAAA, Stale::Refuse)
                    .await?
            }
            Kind::Cname => self.behind_alias(name).await?,
            Kind::Last => None,
        };
        Ok(addresses.map(|addresses| Found {
            records: plain(addresses.ips, port),
            kind,
            ttl: addresses.left,
        }))
    }

    /// The addresses of a name, and of the names that it is an alias of.
    async fn addresses(
        &self,
        name: &Name,
        kind: RecordType,
        stale: Stale,
    ) -> Result<Option<Addresses>, ResolveError> {
        let mut left = None;
        let mut current = name.clone();
        for _ in 0..MOST_ALIASES {
            let kept = self.records(&current, kind, stale).await?;
            let end = follow(&kept.reply, &current)?;
            let ips = ips_of(&kept.reply, &end, kind);
            shorten(&mut left, &kept);
            if !ips.is_empty() {
                return Ok(Some(Addresses { ips, left }));
            }
            if end == current {
                return Ok(None);
            }
            current = end;
        }
        Err(ResolveError::TooManyAliases)
    }

    /// For name servers that tell of an alias only when asked for it.
    async fn behind_alias(&self, name: &Name) -> Result<Option<Addresses>, ResolveError> {
        let kept = self.records.get(name, RecordType::CNAME).await?;
        let end = follow(&kept.reply, name)?;
        if end == *name {
            return Ok(None);
        }
        let mut found = self.host_addresses(&end, Stale::Serve).await?;
        if let Some(found) = &mut found {
            shorten(&mut found.left, &kept);
        }
        Ok(found)
    }

    /// The addresses of a name that another record gives, of the first family that has any.
    async fn host_addresses(
        &self,
        name: &Name,
        stale: Stale,
    ) -> Result<Option<Addresses>, ResolveError> {
        if let Some(ips) = self.in_hosts_file(&text(name)) {
            return Ok(Some(Addresses { ips, left: None }));
        }
        let mut failed = None;
        for kind in self.families() {
            match self.addresses(name, kind, stale).await {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Without any listed, the one that every network has.
    fn families(&self) -> Vec<RecordType> {
        let listed = self.order.iter().filter_map(|kind| match kind {
            Kind::A => Some(RecordType::A),
            Kind::Aaaa => Some(RecordType::AAAA),
            _ => None,
        });
        let families: Vec<_> = listed.collect();
        match families.is_empty() {
            true => vec![RecordType::A],
            false => families,
        }
    }

    /// The SRV records of lowest priority, each with the addresses of its target.
    async fn services(&self, name: &Name, port: u16) -> Result<Option<Found>, ResolveError> {
        let mut left = None;
        let mut current = name.clone();
        for _ in 0..MOST_ALIASES {
            let kept = self.records.get(&current, RecordType::SRV).await?;
            let end = follow(&kept.reply, &current)?;
            let services = services_of(&kept.reply, &end);
            shorten(&mut left, &kept);
            if !services.is_empty() {
                return self
                    .resolve_targets(services, port, &kept.reply, left)
                    .await;
            }
            if end == current {
                return Ok(None);
            }
            current = end;
        }
        Err(ResolveError::TooManyAliases)
    }

    /// A target without an address is left out while others have one.
    async fn resolve_targets(
        &self,
        services: Vec<SRV>,
        port: u16,
        reply: &Reply,
        mut left: Option<Duration>,
    ) -> Result<Option<Found>, ResolveError> {
        let resolved = join_all(services.iter().map(|service| self.target(service, reply))).await;
        let mut records = Vec::new();
        let mut failed = ResolveError::NotFound;
        for (service, target) in services.iter().zip(resolved) {
            let target = match target {
                Ok(Some(target)) => target,
                Ok(None) => continue,
                Err(error) => {
                    failed = error;
                    continue;
                }
            };
            left = shorter(left, target.left);
            let srv: Arc<str> = text(&service.target).into();
            records.extend(target.ips.into_iter().map(|ip| Record {
                address: SocketAddr::new(
                    ip,
                    if service.port == 0 {
                        port
                    } else {
                        service.port
                    },
                ),
                priority: service.priority,
                weight: service.weight.max(1),
                srv: Some(srv.clone()),
            }));
        }
        records.truncate(MOST_RECORDS);
        if records.is_empty() {
            return Err(failed);
        }
        Ok(Some(Found {
            records,
            kind: Kind::Srv,
            ttl: left,
        }))
    }

    /// From the same message where it is there, which spares a question.
    async fn target(
        &self,
        service: &SRV,
        reply: &Reply,
    ) -> Result<Option<Addresses>, ResolveError> {
        if self.in_hosts_file(&text(&service.target)).is_none() {
            for kind in self.families() {
                let ips: Vec<IpAddr> = ips_in(&reply.additionals, &service.target, kind);
                if !ips.is_empty() {
                    return Ok(Some(Addresses {
                        left: ttl_in(&reply.additionals, &service.target, kind)
                            .map(|seconds| self.records.ttl(seconds)),
                        ips,
                    }));
                }
            }
        }
        self.host_addresses(&service.target, Stale::Serve).await
    }

    fn records<'a>(
        &'a self,
        name: &'a Name,
        kind: RecordType,
        stale: Stale,
    ) -> BoxFuture<'a, Result<Arc<Kept>, ResolveError>> {
        match stale {
            Stale::Serve => Box::pin(self.records.get_or_stale(name, kind)),
            Stale::Refuse => Box::pin(self.records.get(name, kind)),
        }
    }
}

/// Whether a former answer will do when the name servers fail. Not for the name itself: who asked has its former answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stale {
    Serve,
    Refuse,
}

/// A name server that answers with an error may still know other names and kinds; silence holds for all.
fn said_by_server(error: ResolveError) -> bool {
    matches!(error, ResolveError::Server(..) | ResolveError::Malformed)
}

fn plain(ips: Vec<IpAddr>, port: u16) -> Vec<Record> {
    let ips = ips.into_iter().take(MOST_RECORDS);
    ips.map(|ip| Record {
        address: SocketAddr::new(ip, port),
        priority: 0,
        weight: 1,
        srv: None,
    })
    .collect()
}

/// The end of the chain of aliases that a message has for a name; the name itself where it has none. Records of other names
/// do not count: a message must not answer what was not asked.
fn follow(reply: &Reply, name: &Name) -> Result<Name, ResolveError> {
    let mut current = name;
    for _ in 0..=MOST_ALIASES {
        let alias = reply.answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *current => Some(&target.0),
            _ => None,
        });
        match alias {
            Some(target) => current = target,
            None => return Ok(current.clone()),
        }
    }
    Err(ResolveError::TooManyAliases)
}

fn ips_of(reply: &Reply, owner: &Name, kind: RecordType) -> Vec<IpAddr> {
    ips_in(&reply.answers, owner, kind)
}

fn ips_in(
    records: &[hickory_resolver::proto::rr::Record],
    owner: &Name,
    kind: RecordType,
) -> Vec<IpAddr> {
    let owned = records
        .iter()
        .filter(|record| record.name == *owner && record.record_type() == kind);
    owned
        .filter_map(|record| match &record.data {
            RData::A(ip) => Some(IpAddr::V4(ip.0)),
            RData::AAAA(ip) => Some(IpAddr::V6(ip.0)),
            _ => None,
        })
        .collect()
}

fn ttl_in(
    records: &[hickory_resolver::proto::rr::Record],
    owner: &Name,
    kind: RecordType,
) -> Option<u32> {
    let owned = records
        .iter()
        .filter(|record| record.name == *owner && record.record_type() == kind);
    owned.map(|record| record.ttl).min()
}

fn services_of(reply: &Reply, owner: &Name) -> Vec<SRV> {
    let owned = reply
        .answers
        .iter()
        .filter(|record| record.name == *owner)
        .filter_map(|record| match &record.data {
            // RFC 2782: the root as target says that there is no such service here.
            RData::SRV(service) if !service.target.is_root() => Some(service.clone()),
            _ => None,
        });
    let mut services: Vec<SRV> = owned.collect();
    let lowest = services.iter().map(|service| service.priority).min();
    services.retain(|service| Some(service.priority) == lowest);
    services.truncate(MOST_TARGETS);
    services
}

fn shorten(left: &mut Option<Duration>, kept: &Kept) {
    *left = shorter(*left, Some(kept.left(Instant::now())));
}

/// None is for ever.
fn shorter(one: Option<Duration>, two: Option<Duration>) -> Option<Duration> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, None) => one,
        (None, two) => two,
    }
}

/// As configurations write it: lower case, without the final dot.
fn text(name: &Name) -> String {
    let mut text = name.to_ascii();
    if text.ends_with('.') {
        text.pop();
    }
    normal(&text).into()
}
