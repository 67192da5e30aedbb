//! The health of upstreams for the Admin API, read and set in the load balancers of the live snapshot.

use admin::control::{AddressHealth, TargetHealth, UpstreamHealth, Weight};
use model::entities::UpstreamId;
use proxy::balance::{self, TargetStatus, Upstream, UpstreamStatus};
use proxy::snapshot::Snapshot;
use uuid::Uuid;

pub(super) fn of(snapshot: &Snapshot, id: Uuid) -> Option<UpstreamHealth> {
    Some(shown(snapshot.upstream(UpstreamId(id))?.status()))
}

pub(super) fn shown(status: UpstreamStatus) -> UpstreamHealth {
    UpstreamHealth {
        checked: status.checked,
        healthy: status.healthy,
        weight: weight(status.weight),
        targets: status.targets.into_iter().map(target).collect(),
    }
}

pub(super) fn set(
    snapshot: &Snapshot,
    id: Uuid,
    target: &str,
    address: Option<(&str, u16)>,
    healthy: bool,
) -> Result<(), String> {
    let upstream = snapshot
        .upstream(UpstreamId(id))
        .map(|upstream| &**upstream);
    let upstream: &Upstream = upstream.ok_or_else(|| format!("Upstream {id} has no balancer"))?;
    let set = upstream.set_health(target, address, healthy);
    set.map_err(|error| error.to_string())
}

fn target(status: TargetStatus) -> TargetHealth {
    let addresses = status.addresses.into_iter().map(|address| AddressHealth {
        ip: address.ip,
        port: address.port,
        weight: address.weight,
        available: address.available,
    });
    TargetHealth {
        host: status.host,
        port: status.port,
        dns: status.dns,
        node_weight: status.node_weight,
        weight: weight(status.weight),
        addresses: addresses.collect(),
    }
}

fn weight(weight: balance::Weight) -> Weight {
    Weight {
        total: weight.total,
        available: weight.available,
    }
}
