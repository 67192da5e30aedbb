//! Reads and sets the health of an upstream, for the Admin API.
//! Source: kong/runloop/balancer/balancers.lua getStatus(), getTargetStatus(); init.lua post_health().

use super::peer::Member;
use super::peers::Peers;
pub use super::peers::Weight;
use super::{TargetSettings, Upstream};
use net::dns::Host;

#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamStatus {
    /// Whether health checks are enabled.
    pub checked: bool,
    /// Whether the available share of the weight exceeds the threshold.
    pub healthy: bool,
    pub weight: Weight,
    pub targets: Vec<TargetStatus>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TargetStatus {
    pub host: String,
    pub port: u16,
    /// The configured weight. Addresses from SRV records have their own weights.
    pub node_weight: u32,
    pub weight: Weight,
    /// Type of the DNS records, or the reason why there are none.
    pub dns: String,
    pub addresses: Vec<AddressStatus>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AddressStatus {
    /// The IP address, or the host name in the SRV record.
    pub ip: String,
    pub port: u16,
    pub weight: u32,
    pub available: bool,
}

/// The upstream has no health checks, so health cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no healthchecker found for {0}")]
pub struct NoChecker(pub String);

impl Upstream {
    pub fn status(&self) -> UpstreamStatus {
        let peers = self.peers.load();
        let mut members = vec![Vec::new(); self.settings.targets.len()];
        for member in &peers.members {
            members[member.target].push(&**member);
        }
        let targets = self.settings.targets.iter().zip(&self.hosts).zip(members);
        UpstreamStatus {
            checked: self.checks.is_some(),
            healthy: peers.is_usable(&self.shared),
            weight: peers.weight(),
            targets: targets
                .map(|((target, host), members)| {
                    target_status(target, dns(target, host.as_deref()), &peers, &members)
                })
                .collect(),
        }
    }

    /// Sets the health of all addresses of a target (`host:port`). With `address`, only those with this port and this
    /// IP address or SRV host name are set.
    pub fn set_health(
        &self,
        target: &str,
        address: Option<(&str, u16)>,
        healthy: bool,
    ) -> Result<(), NoChecker> {
        if self.checks.is_none() {
            return Err(NoChecker(self.name().to_owned()));
        }
        for member in &self.peers.load().members {
            let is_target = &*self.settings.targets[member.target].text == target;
            if is_target && address.is_none_or(|(host, port)| member.is_at(host, port)) {
                self.note(&member.peer, member.peer.force(healthy));
            }
        }
        Ok(())
    }
}

/// Returns the type of the DNS records, named as in Kong, or the reason why there are none.
fn dns(target: &TargetSettings, host: Option<&Host>) -> String {
    let of_address = |is_ipv6| if is_ipv6 { "AAAA" } else { "A" }.to_owned();
    let Some(host) = host else {
        return of_address(target.host.starts_with('['));
    };
    match host.answer() {
        None => "unknown".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(answer)) => match answer.records.first() {
            Some(record) if record.srv.is_some() => "SRV".to_owned(),
            record => of_address(record.is_some_and(|record| record.address.is_ipv6())),
        },
    }
}

fn target_status(
    target: &TargetSettings,
    dns: String,
    peers: &Peers,
    members: &[&Member],
) -> TargetStatus {
    let mut addresses: Vec<AddressStatus> = (members.iter())
        .map(|member| AddressStatus {
            ip: member.shown_host().to_owned(),
            port: member.peer.place.port,
            weight: member.weight,
            available: peers.is_available(member),
        })
        .collect();
    let mut weight = Weight::default();
    for address in &addresses {
        weight.total += u64::from(address.weight);
        if address.available {
            weight.available += u64::from(address.weight);
        }
    }
    if members.iter().any(|member| member.srv.is_some()) {
        merge_by_name(&mut addresses);
    }
    TargetStatus {
        host: target.host.to_string(),
        port: target.port,
        node_weight: target.weight,
        weight,
        dns,
        addresses,
    }
}

/// Merges the entries of each name and port, since Kong has one entry for each SRV record. The merged entry has the sum
/// of the weights, and is available if one of the addresses is.
fn merge_by_name(addresses: &mut Vec<AddressStatus>) {
    addresses.sort_by(|one, other| (&one.ip, one.port).cmp(&(&other.ip, other.port)));
    addresses.dedup_by(|next, kept| {
        let is_same = (&next.ip, next.port) == (&kept.ip, kept.port);
        if is_same {
            kept.weight += next.weight;
            kept.available |= next.available;
        }
        is_same
    });
}
