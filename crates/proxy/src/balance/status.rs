//! The health of an upstream as the Admin API shows it, and its changes from there.
//! Source: kong/runloop/balancer/balancers.lua getStatus(), getTargetStatus(); init.lua post_health().

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
        let mut addresses = vec![Vec::new(); self.settings.targets.len()];
        for member in &peers.members {
            addresses[member.target].push(AddressStatus {
                ip: member.peer.place.host.to_string(),
                port: member.peer.place.port,
                weight: member.weight,
                available: peers.is_available(member),
            });
        }
        let targets = self.settings.targets.iter().zip(&self.hosts).zip(addresses);
        UpstreamStatus {
            checked: self.checks.is_some(),
            healthy: peers.is_usable(&self.shared),
            weight: peers.weight(),
            targets: targets
                .map(|((target, host), addresses)| {
                    target_status(target, dns(target, host.as_deref()), addresses)
                })
                .collect(),
        }
    }

    /// Makes the addresses of a target (`host:port`) healthy or not, or one of them: of that IP and port.
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
            let place = &member.peer.place;
            let is_target = &*self.settings.targets[member.target].text == target;
            let is_address =
                address.is_none_or(|(ip, port)| *place.host == *ip && place.port == port);
            if is_target && is_address {
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
    addresses: Vec<AddressStatus>,
) -> TargetStatus {
    let mut weight = Weight::default();
    for address in &addresses {
        weight.total += u64::from(address.weight);
        if address.available {
            weight.available += u64::from(address.weight);
        }
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
