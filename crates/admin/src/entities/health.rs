//! The health of upstreams and their targets. Source: kong/api/routes/upstreams.lua, kong/db/dao/targets.lua
//! (page_for_upstream_with_health, post_health).

use super::find::{self, Found};
use super::{TARGETS, list, parent_id, view};
use crate::control::{AddressHealth, TargetHealth, UpstreamHealth, Weight};
use crate::paging::escape;
use crate::render;
use crate::request::Call;
use crate::respond::{Answer, Failure, empty, json};
use axum::http::StatusCode;
use model::EntityKind;
use model::address::{Address, DEFAULT_TARGET_PORT};
use serde_json::{Value, json};
use std::collections::HashMap;
use store::View;
use uuid::Uuid;

/// `GET /upstreams/{upstreams}/health`: of each target, or with `balancer_health=1` of the upstream as a whole.
pub(crate) fn upstream(call: &Call<'_>) -> Answer {
    let upstream = parent_id(call, TARGETS)?;
    let view = view(call)?;
    let health = call.control.upstream_health(upstream);
    let whole = matches!(call.query("balancer_health"), Some("1" | "true"));
    let mut body = match whole {
        true => json!({ "data": balancer(upstream, health.as_ref()), "next": null }),
        false => targets(call, &view, upstream, health.as_ref())?,
    };
    body["node_id"] = json!(call.control.node().id);
    Ok(json(StatusCode::OK, &body))
}

fn balancer(id: Uuid, health: Option<&UpstreamHealth>) -> Value {
    let Some(health) = health else {
        return json!({ "id": id, "health": "HEALTHCHECKS_OFF" });
    };
    let balancer_health = word(health.healthy);
    let hosts = health.targets.iter().map(|target| {
        let addresses = target.addresses.iter().map(|address| {
            let mut shown = shown_address(address);
            shown["healthy"] = address.available.into();
            shown
        });
        shown_target(target, addresses.collect())
    });
    json!({
        "id": id,
        "health": if health.checked { balancer_health } else { "HEALTHCHECKS_OFF" },
        "balancer_health": balancer_health,
        "details": {
            "healthy": health.healthy,
            "hosts": hosts.collect::<Vec<_>>(),
            "weight": shown_weight(health.weight),
        },
    })
}

fn targets(
    call: &Call<'_>,
    view: &View<'_>,
    upstream: Uuid,
    health: Option<&UpstreamHealth>,
) -> Result<Value, Failure> {
    let listed = list::page_of_targets(call, view, upstream)?;
    let by_name = health.map(by_name).unwrap_or_default();
    let mut data = Vec::with_capacity(listed.entities.len());
    for found in &listed.entities {
        let mut shown = entity(call, view, found)?;
        let name = shown["target"].as_str().unwrap_or_default();
        let target = health.map(|health| (health.checked, by_name.get(name).copied()));
        match target {
            None => shown["health"] = "HEALTHCHECKS_OFF".into(),
            Some((_, None)) => shown["health"] = "DNS_ERROR".into(),
            Some((checked, Some(target))) => {
                shown["health"] = target_word(checked, target).into();
                let addresses = target.addresses.iter().map(|address| {
                    let mut shown = shown_address(address);
                    shown["health"] = address_word(checked, target, address).into();
                    shown
                });
                shown["data"] = shown_target(target, addresses.collect());
            }
        }
        data.push(shown);
    }
    let mut body = json!({ "data": data, "next": null });
    if let Some(offset) = listed.offset {
        let segment = escape(call.parameter("upstreams"));
        body["next"] = format!("/upstreams/{segment}/health?offset={offset}").into();
        body["offset"] = offset.into();
    }
    Ok(body)
}

/// The targets by `host:port`. Two of one name are one peer twice, of which the first stands for both.
fn by_name(health: &UpstreamHealth) -> HashMap<String, &TargetHealth> {
    let mut targets = HashMap::with_capacity(health.targets.len());
    for target in &health.targets {
        let name = format!("{}:{}", target.host, target.port);
        targets.entry(name).or_insert(target);
    }
    targets
}

fn entity(call: &Call<'_>, view: &View<'_>, found: &Found) -> Result<Value, Failure> {
    let mut bytes = Vec::new();
    render::entity(&mut bytes, call.control, view, EntityKind::Targets, found)?;
    serde_json::from_slice(&bytes).map_err(Failure::internal)
}

/// Healthy if any address is.
fn target_word(checked: bool, target: &TargetHealth) -> &'static str {
    let mut words = (target.addresses.iter()).map(|one| address_word(checked, target, one));
    match words.next() {
        None => "DNS_ERROR",
        Some("UNHEALTHY") => words.find(|word| *word == "HEALTHY").unwrap_or("UNHEALTHY"),
        Some(word) => word,
    }
}

/// What takes no requests is not checked either.
fn address_word(checked: bool, target: &TargetHealth, address: &AddressHealth) -> &'static str {
    match checked && target.node_weight > 0 {
        true => word(address.available),
        false => "HEALTHCHECKS_OFF",
    }
}

fn word(healthy: bool) -> &'static str {
    match healthy {
        true => "HEALTHY",
        false => "UNHEALTHY",
    }
}

fn shown_target(target: &TargetHealth, addresses: Vec<Value>) -> Value {
    json!({
        "host": target.host,
        "port": target.port,
        "dns": target.dns,
        "nodeWeight": target.node_weight,
        "weight": shown_weight(target.weight),
        "addresses": addresses,
    })
}

fn shown_address(address: &AddressHealth) -> Value {
    json!({ "ip": address.ip, "port": address.port, "weight": address.weight })
}

fn shown_weight(weight: Weight) -> Value {
    json!({
        "total": weight.total,
        "available": weight.available,
        "unavailable": weight.total - weight.available,
    })
}

/// `PUT …/targets/{targets}/healthy`, `…/{address}/unhealthy`.
pub(crate) fn set_target(call: &Call<'_>, healthy: bool) -> Answer {
    let upstream = parent_id(call, TARGETS)?;
    let view = view(call)?;
    let segment = call.parameter("targets");
    let found = find::find_child(call.control, &view, TARGETS, upstream, segment)?;
    let found = found.ok_or_else(Failure::not_found)?;
    let target = super::target::normal_form(found.entity.str("target").unwrap_or_default());
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

/// The address as health checks know it, with the port of targets when it has none.
fn ip_and_port(text: &str) -> Result<(String, u16), Failure> {
    let address = Address::parse(text).map_err(|error| Failure::bad_request(error.to_string()))?;
    let port = address.port.unwrap_or(DEFAULT_TARGET_PORT);
    let text = address.as_target();
    let ip = text.rsplit_once(':').map_or(&*text, |(ip, _)| ip);
    Ok((ip.to_owned(), port))
}
