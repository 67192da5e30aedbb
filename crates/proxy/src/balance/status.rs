//! The health of an upstream as the Admin API shows it, and its changes from there.
//! Source: kong/runloop/balancer/balancers.lua getStatus(), getTargetStatus(); init.lua post_health().

use super::peer::Member;
use super::peers::Peers;
pub use super::peers::Weight;
use super::{TargetSettings, Upstream};
use net::dns::Host;

#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamStatus {
    /// Health checks are on.
    pub checked: bool,
    /// More of its weight is available than the threshold.
    pub healthy: bool,
    pub weight: Weight,
    pub targets: Vec<TargetStatus>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TargetStatus {
    pub host: String,
    pub port: u16,
    /// As it is configured; addresses from SRV records have weights of their own.
    pub node_weight: u32,
    pub weight: Weight,
    /// The kind of the DNS records, or why there are none.
    pub dns: String,
    pub addresses: Vec<AddressStatus>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AddressStatus {
    /// The IP address, or the name that an SRV record gives.
    pub ip: String,
    pub port: u16,
    pub weight: u32,
    pub available: bool,
}

/// Nothing is checked, so nothing can be set.
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

    /// Makes the addresses of a target (`host:port`) healthy or not, or only those of one IP address, or of one name that SRV
    /// records give, and port.
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

/// The kind of the records, as Kong names it, or why there are none.
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

/// Leaves one entry for each name and port, as Kong has one for each SRV record. The entry has the weight of all addresses of
/// the name, and is available while one of them is.
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
