//! Entities, keys and paths for all areas: the same in every run, and distributed like real ones.

use model::entities::{Config, ConsumerId, Plugin, Protocol, Route, RouteId, Service, ServiceId};
use proxy::snapshot::{BuildSettings, Snapshot};
use serde_json::{Value, json};
use std::net::SocketAddr;
use uuid::Uuid;

/// Returns an id; the ids are spread over the key space like random ones.
pub(crate) fn id(number: usize) -> Uuid {
    Uuid::from_u128((number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Returns the path of route `number`.
pub(crate) fn path(number: usize) -> String {
    format!("/service-{}/route-{number}", number % 100)
}

/// Returns the key of consumer `number`.
pub(crate) fn key(number: usize) -> String {
    id(number).simple().to_string()
}

/// Returns `count` of the numbers below `of`, spread over the whole range and not in order.
pub(crate) fn spread(count: usize, of: usize) -> impl Iterator<Item = usize> {
    // 7919 is a prime that divides no `of` in use, so all numbers occur before one repeats.
    (0..count).map(move |number| number * 7919 % of)
}

pub(crate) fn service_id() -> ServiceId {
    ServiceId(id(1 << 40))
}

pub(crate) fn route_id(number: usize) -> RouteId {
    RouteId(id(number))
}

pub(crate) fn consumer_id(number: usize) -> ConsumerId {
    ConsumerId(id((1 << 41) + number))
}

/// Returns a route without conditions; callers add some.
pub(crate) fn route(number: usize) -> Route {
    Route {
        name: Some(format!("route-{number}").into()),
        created_at: 1_700_000_000 + number as i64,
        regex_priority: Some(0),
        strip_path: false,
        service: Some(service_id()),
        ..Route::blank(route_id(number))
    }
}

/// Returns `count` routes with one path prefix each.
pub(crate) fn prefix_routes(count: usize) -> Vec<Route> {
    let with_path = |number| Route {
        paths: vec![path(number).into()],
        ..route(number)
    };
    (0..count).map(with_path).collect()
}

pub(crate) fn service(upstream: SocketAddr) -> Service {
    Service {
        id: service_id(),
        name: Some("bench".into()),
        enabled: true,
        protocol: Protocol::Http,
        host: upstream.ip().to_string().into(),
        port: upstream.port(),
        path: None,
        retries: 5,
        connect_timeout: 60_000,
        write_timeout: 60_000,
        read_timeout: 60_000,
        client_certificate: None,
        tls_verify: None,
        tls_verify_depth: None,
        ca_certificates: None,
    }
}

/// Returns an address to which nothing is sent.
pub(crate) fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9))
}

/// Returns a key-auth plugin as completed by its schema.
pub(crate) fn key_auth(number: usize) -> Plugin {
    plugin(
        "key-auth",
        number,
        json!({
            "key_names": ["apikey"], "key_in_header": true, "key_in_query": true, "key_in_body": false,
            "hide_credentials": false, "run_on_preflight": true,
        }),
    )
}

/// Returns a request-termination plugin with a trigger that no request has.
pub(crate) fn request_termination(number: usize) -> Plugin {
    plugin(
        "request-termination",
        number,
        json!({"status_code": 403, "message": "terminated", "echo": false, "trigger": "x-terminate"}),
    )
}

/// Returns a global plugin.
pub(crate) fn plugin(name: &str, number: usize, config: Value) -> Plugin {
    // The length of the name makes the ids of different plugins with the same number differ.
    let id = id((name.len() << 42) + number);
    serde_json::from_value(json!({
        "id": id, "name": name, "enabled": true, "config": config,
        "protocols": ["grpc", "grpcs", "http", "https"],
    }))
    .expect("the plugin is complete")
}

/// Returns a configuration with key-auth and request-termination on each route.
pub(crate) fn config(routes: usize, upstream: SocketAddr) -> Config {
    let plugins = (0..routes).flat_map(|number| {
        [key_auth(number), request_termination(number)].map(|plugin| Plugin {
            route: Some(route_id(number)),
            ..plugin
        })
    });
    Config {
        services: vec![service(upstream)],
        routes: prefix_routes(routes),
        plugins: plugins.collect(),
        ..Config::default()
    }
}

pub(crate) fn build_settings() -> BuildSettings {
    BuildSettings {
        plugins: plugins::bundled().to_vec(),
        ..BuildSettings::default()
    }
}

pub(crate) fn snapshot(config: Config) -> Snapshot {
    Snapshot::build(config, 1, None, &build_settings()).expect("the configuration can be served")
}

/// Runs a future that never waits, and returns its result.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => unreachable!("nothing is waited for"),
    }
}
