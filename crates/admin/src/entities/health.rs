//! The health of upstreams and their targets. Source: kong/api/routes/upstreams.lua, kong/db/dao/targets.lua
//! (page_for_upstream_with_health, post_health).

use super::{TARGETS, find, list, parent_id, target, view};
use crate::control::{AddressHealth, TargetHealth, UpstreamHealth, Weight};
use crate::paging::escape;
use crate::render;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, empty, json};
use crate::shown::{Entity, Page};
use axum::http::StatusCode;
use model::EntityKind;
use model::address::{Address, DEFAULT_TARGET_PORT};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use store::View;
use uuid::Uuid;

/// A page of targets with their health on this node.
#[derive(Debug, Serialize)]
struct Targets {
    #[serde(flatten)]
    page: Page<Entity>,
    node_id: Uuid,
}

/// Health fields that a response adds to the target's own fields.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OfTarget {
    health: Word,
    /// Absent if this node does not serve the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Host>,
}

/// Health of the upstream as a whole.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Whole {
    data: Balancer,
    /// Always null.
    next: Option<String>,
    node_id: Uuid,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Balancer {
    /// Id of the upstream.
    id: Uuid,
    health: Word,
    /// The value that `health` would have with health checks enabled; absent if this node does not serve the upstream.
    #[serde(skip_serializing_if = "Option::is_none")]
    balancer_health: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Details {
    healthy: bool,
    hosts: Vec<Host>,
    weight: Weights,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Host {
    host: String,
    port: u16,
    /// The type of the DNS records, or why there are none.
    dns: String,
    /// The configured weight of the target.
    #[serde(rename = "nodeWeight")]
    node_weight: u32,
    weight: Weights,
    addresses: Vec<ShownAddress>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ShownAddress {
    ip: String,
    port: u16,
    weight: u32,
    /// Present in the health of the upstream as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
    /// Present in the health of targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<Word>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Weights {
    total: u64,
    available: u64,
    unavailable: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Word {
    Healthy,
    Unhealthy,
    HealthchecksOff,
    DnsError,
}

/// `GET /upstreams/{upstreams}/health`: the health of each target, or with `balancer_health=1` of the upstream as a
/// whole.
pub(crate) fn upstream(call: &Call<'_>) -> ApiResult {
    let upstream = parent_id(call, TARGETS)?;
    let view = view(call)?;
    let health = call.control.upstream_health(upstream);
    let node_id = call.control.node().id;
    let is_whole = matches!(call.query("balancer_health"), Some("1" | "true"));
    if is_whole {
        let whole = Whole {
            data: balancer(upstream, health),
            next: None,
            node_id,
        };
        return Ok(json(StatusCode::OK, &whole));
    }
    let page = targets(call, &view, upstream, health)?;
    Ok(json(StatusCode::OK, &Targets { page, node_id }))
}

fn balancer(id: Uuid, health: Option<UpstreamHealth>) -> Balancer {
    let Some(health) = health else {
        return Balancer {
            id,
            health: Word::HealthchecksOff,
            balancer_health: None,
            details: None,
        };
    };
    let balancer_health = word(health.healthy);
    let hosts = health.targets.iter().map(|target| {
        host(target, |address| ShownAddress {
            healthy: Some(address.available),
            ..shown_address(address)
        })
    });
    Balancer {
        id,
        health: if health.checked {
            balancer_health
        } else {
            Word::HealthchecksOff
        },
        balancer_health: Some(balancer_health),
        details: Some(Details {
            healthy: health.healthy,
            hosts: hosts.collect(),
            weight: weights(health.weight),
        }),
    }
}

fn targets(
    call: &Call<'_>,
    view: &View<'_>,
    upstream: Uuid,
    health: Option<UpstreamHealth>,
) -> Result<Page<Entity>, Failure> {
    let listed = list::page_of_targets(call, view, upstream)?;
    let by_name = health.as_ref().map(by_name).unwrap_or_default();
    let mut data = Vec::with_capacity(listed.entities.len());
    for found in &listed.entities {
        let name = found.entity.str("target").unwrap_or_default();
        let target = by_name.get(&target::normal_form(name)).copied();
        let of_target = of_target(health.as_ref(), target);
        let entity = Entity::written(|out| {
            render::entity(out, call.control, view, EntityKind::Targets, found)
        });
        data.push(entity?.with(&of_target)?);
    }
    let segment = escape(call.parameter("upstreams"));
    let path = format!("/upstreams/{segment}/health");
    Ok(Page::new(data, &path, listed.offset, []))
}

/// `target` is the target's entry in the upstream's health, if it has one.
fn of_target(health: Option<&UpstreamHealth>, target: Option<&TargetHealth>) -> OfTarget {
    match (health, target) {
        (None, _) => OfTarget {
            health: Word::HealthchecksOff,
            data: None,
        },
        (Some(_), None) => OfTarget {
            health: Word::DnsError,
            data: None,
        },
        (Some(health), Some(target)) => OfTarget {
            health: target_word(health.checked, target),
            data: Some(host(target, |address| ShownAddress {
                health: Some(address_word(health.checked, target, address)),
                ..shown_address(address)
            })),
        },
    }
}

/// Indexes targets by `host:port`, in normal form. If several targets have the same `host:port`, the first stands for all of them.
fn by_name(health: &UpstreamHealth) -> HashMap<String, &TargetHealth> {
    let mut targets = HashMap::with_capacity(health.targets.len());
    for target in &health.targets {
        let name = format!("{}:{}", target.host, target.port);
        targets.entry(name).or_insert(target);
    }
    targets
}

/// A target is healthy if at least one of its addresses is.
fn target_word(checked: bool, target: &TargetHealth) -> Word {
    let mut words = (target.addresses.iter()).map(|one| address_word(checked, target, one));
    match words.next() {
        None => Word::DnsError,
        Some(Word::Unhealthy) if words.any(|word| word == Word::Healthy) => Word::Healthy,
        Some(word) => word,
    }
}

/// Targets with weight 0 get no requests, so they are not checked.
fn address_word(checked: bool, target: &TargetHealth, address: &AddressHealth) -> Word {
    if checked && target.node_weight > 0 {
        word(address.available)
    } else {
        Word::HealthchecksOff
    }
}

fn word(healthy: bool) -> Word {
    if healthy {
        Word::Healthy
    } else {
        Word::Unhealthy
    }
}

fn host(target: &TargetHealth, shown: impl Fn(&AddressHealth) -> ShownAddress) -> Host {
    Host {
        host: target.host.clone(),
        port: target.port,
        dns: target.dns.clone(),
        node_weight: target.node_weight,
        weight: weights(target.weight),
        addresses: target.addresses.iter().map(shown).collect(),
    }
}

fn shown_address(address: &AddressHealth) -> ShownAddress {
    ShownAddress {
        ip: address.ip.clone(),
        port: address.port,
        weight: address.weight,
        healthy: None,
        health: None,
    }
}

fn weights(weight: Weight) -> Weights {
    Weights {
        total: weight.total,
        available: weight.available,
        unavailable: weight.total - weight.available,
    }
}

/// `PUT …/targets/{targets}/healthy`, `…/{address}/unhealthy`.
pub(crate) fn set_target(call: &Call<'_>, healthy: bool) -> ApiResult {
    let upstream = parent_id(call, TARGETS)?;
    let view = view(call)?;
    let segment = call.parameter("targets");
    let found = find::find_child(call.control, &view, TARGETS, upstream, segment)?;
    let found = found.ok_or_else(Failure::not_found)?;
    let target = target::normal_form(found.entity.str("target").unwrap_or_default());
    let address = match call.parameter("address") {
        "" => None,
        text => Some(ip_and_port(text)?),
    };
    let address = address.as_ref().map(|(ip, port)| (&**ip, *port));
    let set = (call.control).set_target_health(upstream, &target, address, healthy);
    match set {
        Ok(()) => Ok(empty(StatusCode::NO_CONTENT)),
        Err(message) => Err(Failure::bad_request(message)),
    }
}

/// Parses the address in a path, with or without a port. The default port is the same as for targets.
fn ip_and_port(text: &str) -> Result<(String, u16), Failure> {
    let address = Address::parse(text).map_err(|error| Failure::bad_request(error.to_string()))?;
    let port = address.port.unwrap_or(DEFAULT_TARGET_PORT);
    let text = address.as_target();
    let ip = text.rsplit_once(':').map_or(&*text, |(ip, _)| ip);
    Ok((ip.to_owned(), port))
}
