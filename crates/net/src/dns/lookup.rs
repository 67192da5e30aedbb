//! Resolves a name to addresses with the hosts file, the search list, the record types in their order, aliases, and the
//! targets of SRV records. Source: kong/resty/dns/client.lua resolve(), toip().

use super::answer::{Record, ResolveError};
use super::name::{candidates, normal};
use super::records::{Kept, Records};
use super::settings::{DnsSettings, LookupKind};
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

/// Maximum length of a chain of aliases, as in BIND.
const MAX_ALIASES: usize = 16;
/// Maximum number of addresses of a host that are used. A UDP response holds far fewer.
const MAX_RECORDS: usize = 4096;
/// Maximum number of SRV targets that are resolved; each may need a query.
const MAX_TARGETS: usize = 512;

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) records: Vec<Record>,
    pub(super) kind: LookupKind,
    /// Remaining TTL of the result. `None` for results from the hosts file, which have no TTL.
    pub(super) ttl: Option<Duration>,
}

/// Everything that a lookup needs. It is replaced as a whole when files or settings change.
pub(super) struct Lookup {
    pub(super) records: Records,
    system: System,
    order: Vec<LookupKind>,
}

/// Addresses with their remaining TTL. It is `None` for addresses from the hosts file.
struct Addresses {
    ips: Vec<IpAddr>,
    left: Option<Duration>,
}

impl Lookup {
    pub(super) fn new(
        settings: &DnsSettings,
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

    /// Looks up a normalised name. `last` is the record type of the previous answer.
    pub(super) async fn find(
        &self,
        name: &str,
        port: u16,
        last: Option<LookupKind>,
    ) -> Result<Found, ResolveError> {
        if let Some(ips) = self.in_hosts_file(name) {
            return Ok(Found {
                records: plain(ips, port),
                kind: last.unwrap_or(LookupKind::A),
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
                    // If the type of the previous answer fails, stop. The name may still have such records, and those
                    // of another type may lead elsewhere.
                    Err(error) if Some(kind) == last || !said_by_server(error) => {
                        return Err(error);
                    }
                    // glibc continues too, and does not report a name as missing after such a response.
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    /// Removes the cached negative responses for a name, so that its next lookup queries the name servers again.
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

    fn kinds(&self, last: Option<LookupKind>) -> Vec<LookupKind> {
        let mut kinds = Vec::with_capacity(self.order.len());
        for kind in &self.order {
            let kind = match kind {
                LookupKind::Last => last,
                other => Some(*other),
            };
            kinds.extend(kind.filter(|kind| !kinds.contains(kind)));
        }
        kinds
    }

    /// Returns the addresses that the hosts file lists for a name. If it lists several address families, returns only
    /// the first family in `order`. If it lists none of the families in `order`, returns all addresses.
    fn in_hosts_file(&self, name: &str) -> Option<Vec<IpAddr>> {
        let all = self.system.hosts.find(name);
        let family = |kind: &LookupKind| {
            let of_kind = |ip: &&IpAddr| match kind {
                LookupKind::A => ip.is_ipv4(),
                LookupKind::Aaaa => ip.is_ipv6(),
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

    async fn ask(
        &self,
        name: &Name,
        port: u16,
        kind: LookupKind,
    ) -> Result<Option<Found>, ResolveError> {
        let addresses = match kind {
            LookupKind::Srv => return self.services(name, port).await,
            LookupKind::A => self.addresses(name, RecordType::A, Stale::Refuse).await?,
            LookupKind::Aaaa => {
                self.addresses(name, RecordType::AAAA, Stale::Refuse)
                    .await?
            }
            LookupKind::Cname => self.behind_alias(name).await?,
            LookupKind::Last => None,
        };
        Ok(addresses.map(|addresses| Found {
            records: plain(addresses.ips, port),
            kind,
            ttl: addresses.left,
        }))
    }

    /// Returns the addresses of a name. If the name is an alias, follows the chain of aliases.
    async fn addresses(
        &self,
        name: &Name,
        kind: RecordType,
        stale: Stale,
    ) -> Result<Option<Addresses>, ResolveError> {
        let mut left = None;
        let mut current = name.clone();
        for _ in 0..MAX_ALIASES {
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

    /// Queries for the CNAME record of a name and resolves its target. Some name servers return a CNAME record only to
    /// such a query.
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

    /// Returns the addresses of a name that is the target of a CNAME or SRV record. Uses the first address family that
    /// has any.
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

    /// Returns the address families in `order`; only IPv4 if none is listed.
    fn families(&self) -> Vec<RecordType> {
        let listed = self.order.iter().filter_map(|kind| match kind {
            LookupKind::A => Some(RecordType::A),
            LookupKind::Aaaa => Some(RecordType::AAAA),
            _ => None,
        });
        let families: Vec<_> = listed.collect();
        if families.is_empty() {
            vec![RecordType::A]
        } else {
            families
        }
    }

    /// Returns the SRV records of the lowest priority, each with the addresses of its target.
    async fn services(&self, name: &Name, port: u16) -> Result<Option<Found>, ResolveError> {
        let mut left = None;
        let mut current = name.clone();
        for _ in 0..MAX_ALIASES {
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

    /// Resolves the targets of SRV records. Targets without an address are left out if others have one.
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
        records.truncate(MAX_RECORDS);
        if records.is_empty() {
            return Err(failed);
        }
        Ok(Some(Found {
            records,
            kind: LookupKind::Srv,
            ttl: left,
        }))
    }

    /// Returns the addresses of an SRV target. If the response with the SRV record also has them, no query is sent.
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

/// Whether an expired response may be used if the name servers fail. It is `Refuse` for the name of the lookup itself,
/// because the background keeps the previous answer of that name. It is `Serve` for the targets of CNAME and SRV
/// records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stale {
    Serve,
    Refuse,
}

/// Whether the error is a response of a name server. After such an error the lookup goes on with other names and types.
/// If no name server responds, it would not respond to other queries either, so the lookup stops.
fn said_by_server(error: ResolveError) -> bool {
    matches!(error, ResolveError::Server(..) | ResolveError::Malformed)
}

fn plain(ips: Vec<IpAddr>, port: u16) -> Vec<Record> {
    let ips = ips.into_iter().take(MAX_RECORDS);
    ips.map(|ip| Record {
        address: SocketAddr::new(ip, port),
        priority: 0,
        weight: 1,
        srv: None,
    })
    .collect()
}

/// Follows the CNAME records of a response from a name, and returns the last name of this chain. Returns the name
/// itself if the response has no CNAME record for it. Records of other names are ignored, so that a response cannot
/// answer a query that was not sent.
fn follow(reply: &Reply, name: &Name) -> Result<Name, ResolveError> {
    let mut current = name;
    for _ in 0..=MAX_ALIASES {
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
            // RFC 2782: the root as target means that the service is not available here.
            RData::SRV(service) if !service.target.is_root() => Some(service.clone()),
            _ => None,
        });
    let mut services: Vec<SRV> = owned.collect();
    let lowest = services.iter().map(|service| service.priority).min();
    services.retain(|service| Some(service.priority) == lowest);
    services.truncate(MAX_TARGETS);
    services
}

fn shorten(left: &mut Option<Duration>, kept: &Kept) {
    *left = shorter(*left, Some(kept.left(Instant::now())));
}

/// Returns the shorter of two times, where `None` means no limit.
fn shorter(one: Option<Duration>, two: Option<Duration>) -> Option<Duration> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, None) => one,
        (None, two) => two,
    }
}

/// Formats a name as in a configuration: lower case, without the final dot.
fn text(name: &Name) -> String {
    let mut text = name.to_ascii();
    if text.ends_with('.') {
        text.pop();
    }
    normal(&text).into()
}
