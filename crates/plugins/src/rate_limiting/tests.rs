//! Tests of the plugin: the identifiers, the headers and the refusal.

use super::RateLimiting;
use crate::fixture::{self, Exchange, head};
use net::http1::RequestHead;
use plugin::{BuildError, Consumer, Credential, EntityRef, Node, Response, ScopeSet};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// 15 seconds after a full hour.
const NOW: u64 = 1_800_000_015;

fn plugin(config: Value) -> RateLimiting {
    fixture::build("rate-limiting", &config).unwrap()
}

fn get(lines: &[&str]) -> RequestHead {
    head(&[&["GET /a?b HTTP/1.1"], lines].concat())
}

/// Whether a request passes, which `with` may change before.
fn passes(
    plugin: &RateLimiting,
    node: &Arc<Node>,
    lines: &[&str],
    with: impl FnOnce(&mut Exchange<'_, RateLimiting>),
) -> bool {
    let head = get(lines);
    let mut exchange = Exchange::new(&head, node);
    with(&mut exchange);
    exchange.access(plugin).is_none()
}

/// The response to a request, and the values of these headers, joined by commas.
fn shown(plugin: &RateLimiting, node: &Arc<Node>, names: &[&str]) -> (Option<Response>, String) {
    let head = get(&[]);
    let mut exchange = Exchange::new(&head, node);
    let response = exchange.access(plugin);
    let value = |name: &&str| {
        let value = exchange.state.headers.value(name).unwrap_or(b"-");
        String::from_utf8_lossy(value).into_owned()
    };
    let values: Vec<String> = names.iter().map(value).collect();
    (response, values.join(","))
}

fn consumer(id: u128) -> Arc<Consumer> {
    let consumer = json!({"id": Uuid::from_u128(id), "username": "a"});
    Arc::new(serde_json::from_value(consumer).unwrap())
}

#[test]
fn every_field_of_the_schema_is_read() {
    let config = json!({
        "second": 1, "minute": 2, "hour": 3, "day": 4, "month": 5, "year": 6.5, "limit_by": "header",
        "header_name": "x-a", "path": "/a", "policy": "redis", "fault_tolerant": false, "hide_client_headers": true,
        "error_code": 503, "error_message": "no", "sync_rate": 1,
        "redis": {
            "host": "a", "port": 1, "timeout": 1, "username": "u", "password": "p", "database": 1, "ssl": true,
            "ssl_verify": true, "server_name": "a.test",
        },
    });
    assert_eq!(plugin(config).limits.len(), 6);
    assert_eq!(plugin(json!({"second": 1})).limits.len(), 1);
}

#[test]
fn headers_show_limits_remaining_requests_and_the_reset() {
    let (plugin, node) = (
        plugin(json!({"minute": 2, "hour": 2, "limit_by": "ip"})),
        fixture::node(NOW),
    );
    let names = [
        "X-RateLimit-Limit-Minute",
        "X-RateLimit-Remaining-Minute",
        "X-RateLimit-Remaining-Hour",
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
        "Retry-After",
    ];
    assert_eq!(shown(&plugin, &node, &names).1, "2,1,1,2,1,3585,-");
    assert_eq!(shown(&plugin, &node, &names).1, "2,0,0,2,0,3585,-");
    let (response, headers) = shown(&plugin, &node, &names);
    assert_eq!(response.map(|response| response.status), Some(429));
    assert_eq!(headers, "2,0,0,2,0,3585,3585");
}

#[test]
fn a_refused_request_shows_what_remains_of_other_windows() {
    let (plugin, node) = (
        plugin(json!({"minute": 1, "day": 5, "error_code": 503})),
        fixture::node(NOW),
    );
    let names = [
        "X-RateLimit-Remaining-Minute",
        "X-RateLimit-Remaining-Day",
        "Retry-After",
    ];
    assert_eq!(shown(&plugin, &node, &names).1, "0,4,-");
    let (response, headers) = shown(&plugin, &node, &names);
    assert_eq!(response.map(|response| response.status), Some(503));
    assert_eq!(headers, "0,4,45");
    node.clock.advance(Duration::from_secs(45));
    assert_eq!(shown(&plugin, &node, &names).1, "0,3,-");
}

#[test]
fn a_limit_with_a_fraction_lets_one_more_pass() {
    let (plugin, node) = (plugin(json!({"minute": 1.5})), fixture::node(NOW));
    let names = ["X-RateLimit-Limit-Minute", "X-RateLimit-Remaining-Minute"];
    assert_eq!(shown(&plugin, &node, &names).1, "1.5,0.5");
    assert_eq!(shown(&plugin, &node, &names).1, "1.5,0");
    assert!(shown(&plugin, &node, &names).0.is_some());
}

#[test]
fn headers_can_be_hidden() {
    let (plugin, node) = (
        plugin(json!({"minute": 1, "hide_client_headers": true})),
        fixture::node(NOW),
    );
    for _ in 0..2 {
        let (_, headers) = shown(&plugin, &node, &["RateLimit-Limit", "Retry-After"]);
        assert_eq!(headers, "-,-");
    }
}

#[test]
fn consumers_come_before_credentials_and_those_before_addresses() {
    let (plugin, node) = (plugin(json!({"minute": 1})), fixture::node(NOW));
    let credential = |id| {
        Some(Credential {
            id: Uuid::from_u128(id),
        })
    };
    let as_consumer = |id, with| {
        passes(&plugin, &node, &[], |exchange| {
            exchange.state.consumer = Some(consumer(id));
            exchange.state.credential = credential(with);
        })
    };
    assert!(as_consumer(1, 7));
    assert!(
        !as_consumer(1, 8),
        "another credential of the same consumer"
    );
    assert!(as_consumer(2, 7));
    let as_credential = |id| {
        passes(&plugin, &node, &[], |exchange| {
            exchange.state.credential = credential(id);
        })
    };
    assert!(as_credential(7));
    assert!(!as_credential(7));
    assert!(passes(&plugin, &node, &[], |_| {}));
    assert!(!passes(&plugin, &node, &[], |_| {}));
}

#[test]
fn services_headers_and_paths_identify_too() {
    let node = fixture::node(NOW);
    let config = json!({"minute": 1, "limit_by": "service"});
    let of_service = |id| {
        passes(&plugin(config.clone()), &node, &[], |exchange| {
            let id = Uuid::from_u128(id);
            exchange.request.service = Some(EntityRef { id, name: None });
        })
    };
    assert!(of_service(1) && of_service(2) && !of_service(1));

    let config = json!({"hour": 1, "limit_by": "header", "header_name": "X-Plan"});
    let with = |lines: &[&str]| passes(&plugin(config.clone()), &node, lines, |_| {});
    assert!(with(&["x-plan: a", "x-plan: b"]), "the first line counts");
    assert!(!with(&["X-Plan: a"]) && with(&["X-Plan: b"]));
    assert!(with(&[]) && !with(&[]));
    assert!(with(&["X-Plan: 127.0.0.1"]), "a text is no address");

    let config = json!({"day": 1, "limit_by": "path", "path": "/a"});
    assert!(passes(&plugin(config.clone()), &node, &[], |_| {}));
    assert!(!passes(&plugin(config), &node, &[], |_| {}));
    let config = json!({"day": 1, "limit_by": "path", "path": "/"});
    assert!(
        passes(&plugin(config), &node, &[], |_| {}),
        "/a is identified by its address"
    );
}

#[test]
fn a_changed_limit_keeps_the_counts_and_another_route_has_its_own() {
    let node = fixture::node(NOW);
    let on_route = |limit: u32, id| {
        passes(&plugin(json!({"hour": limit})), &node, &[], |exchange| {
            let id = Uuid::from_u128(id);
            exchange.request.route = Some(EntityRef { id, name: None });
            exchange.scopes = ScopeSet::ROUTE;
        })
    };
    assert!(on_route(2, 1) && on_route(2, 1) && !on_route(2, 1));
    assert!(on_route(3, 1) && !on_route(3, 1));
    assert!(on_route(2, 2));
}

#[test]
fn the_policy_redis_lets_no_request_pass() {
    let plugin = plugin(json!({"hour": 1, "policy": "redis", "redis": {"host": "a"}}));
    let (head, node) = (get(&[]), fixture::node(NOW));
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Exchange::new(&head, &node).access(&plugin)
    }));
    assert!(refused.is_err());
}

#[test]
fn a_header_name_must_be_configured() {
    let config = model::value::from_value(fixture::completed("rate-limiting", &json!({"hour": 1})));
    let mut config: super::config::Config = config.unwrap();
    config.limit_by = Some(super::config::LimitBy::Header);
    let error = super::Identify::by(&config).err();
    assert!(matches!(error, Some(BuildError::Field { .. })));
}
