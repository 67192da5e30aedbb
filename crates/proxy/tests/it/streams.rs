//! Tests of stream routes in a snapshot, which are separate from HTTP routes.

use crate::fixture::{entity, plugin, settings};
use model::entities::Config;
use plugin::{Implementation, Lack, Phases, PluginDef, Scopes};
use proxy::snapshot::{BuildSettings, Snapshot};
use router::StreamRequest;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

fn service(number: u128, enabled: bool) -> Value {
    json!({
        "id": Uuid::from_u128(number), "enabled": enabled, "protocol": "tcp", "host": "127.0.0.1", "port": 80,
        "retries": 5, "connect_timeout": 60000, "write_timeout": 60000, "read_timeout": 60000,
    })
}

/// Returns a stream route for TCP connections to a port.
fn stream(number: u128, service: Option<u128>, port: u16) -> Value {
    json!({
        "id": Uuid::from_u128(number), "created_at": 0, "protocols": ["tcp"], "destinations": [{"port": port}],
        "strip_path": true, "preserve_host": false, "https_redirect_status_code": 426,
        "request_buffering": true, "response_buffering": true,
        "service": service.map(|id| json!({"id": Uuid::from_u128(id)})),
    })
}

/// Changes a stream route to an HTTP route.
fn http(mut route: Value) -> Value {
    route["protocols"] = json!(["http"]);
    route["destinations"] = json!([]);
    route["paths"] = json!(["/"]);
    route
}

fn config(services: &[Value], routes: &[Value], plugins: &[Value]) -> Config {
    fn entities<T: serde::de::DeserializeOwned>(values: &[Value]) -> Vec<T> {
        values.iter().cloned().map(entity).collect()
    }
    Config {
        services: entities(services),
        routes: entities(routes),
        plugins: entities(plugins),
        ..Config::default()
    }
}

fn build(services: &[Value], routes: &[Value], plugins: &[Value]) -> Snapshot {
    let config = config(services, routes, plugins);
    Snapshot::build(config, 1, None, &settings()).expect("the configuration has no errors")
}

/// Returns the number of the route for a connection to a port, and whether a plugin looks at the connection.
fn found(snapshot: &Snapshot, port: u16) -> Option<(u128, bool)> {
    let request = StreamRequest {
        source: "192.0.2.1:4000".parse().expect("an address"),
        destination: ([10, 0, 0, 1], port).into(),
        sni: None,
        datagrams: false,
    };
    let route = snapshot.stream_route(&request)?;
    Some((route.id.0.as_u128(), route.plan.has(Phases::PREREAD)))
}

#[test]
fn routes_of_streams_are_apart_and_need_an_enabled_service() {
    let services = [service(1, true), service(2, false)];
    let list = [
        stream(10, Some(1), 1000),
        stream(11, Some(2), 1001),
        stream(12, None, 1002),
        http(stream(13, Some(1), 1003)),
    ];
    let snapshot = build(&services, &list, &[]);
    let ports = [1000, 1001, 1002, 1003].map(|port| found(&snapshot, port));
    assert_eq!(ports, [Some((10, false)), None, Some((12, false)), None]);
    assert_eq!(snapshot.routes().count(), 1);
    let [first, second] = snapshot.stream_routes() else {
        panic!("the snapshot does not have two stream routes")
    };
    assert!(snapshot.stream_service(first).is_some());
    assert!(snapshot.stream_service(second).is_none());
}

/// Returns a plugin for the given protocols and route.
fn guard(name: &str, protocols: Value, scope: Value) -> Value {
    applied(
        plugin(name, json!({"allow": ["10.0.0.1"]})),
        protocols,
        scope,
    )
}

fn applied(mut plugin: Value, protocols: Value, scope: Value) -> Value {
    plugin["protocols"] = protocols;
    plugin["route"] = scope;
    plugin
}

#[test]
fn streams_in_the_scope_of_a_guard_are_refused() {
    let services = [service(1, true)];
    let list = [stream(10, Some(1), 1000), stream(20, Some(1), 2000)];
    let of = |plugin: Value| {
        let snapshot = build(&services, &list, &[plugin]);
        [1000, 2000].map(|port| found(&snapshot, port).is_some_and(|(_, guarded)| guarded))
    };
    let both = || json!(["http", "tcp"]);
    let on_route = json!({"id": Uuid::from_u128(10)});
    assert_eq!(
        of(guard("ip-restriction", both(), Value::Null)),
        [true, true]
    );
    assert_eq!(of(guard("ip-restriction", both(), on_route)), [true, false]);
    let of_http = guard("ip-restriction", json!(["http"]), Value::Null);
    assert_eq!(of(of_http), [false, false]);
    let log = plugin("file-log", json!({"path": "/dev/null", "reopen": false}));
    assert_eq!(of(applied(log, both(), Value::Null)), [false, false]);
    let mut disabled = guard("ip-restriction", both(), Value::Null);
    disabled["enabled"] = json!(false);
    assert_eq!(of(disabled), [false, false]);
}

#[test]
fn a_guard_in_a_scope_that_its_plugin_refuses_is_as_if_absent() {
    let global = PluginDef {
        name: "ip-restriction".into(),
        version: "1".into(),
        priority: 1,
        phases: Phases::ACCESS,
        scopes: Scopes::GLOBAL,
        implementation: Implementation::Later {
            lack: Lack::Protection,
            without: "",
        },
        shortcoming: None,
        risk: None,
    };
    let settings = BuildSettings {
        plugins: vec![Arc::new(global)],
        ..BuildSettings::default()
    };
    let on_route = json!({"id": Uuid::from_u128(10)});
    for (scope, guarded) in [(Value::Null, true), (on_route, false)] {
        let plugin = guard("ip-restriction", json!(["tcp"]), scope);
        let config = config(&[service(1, true)], &[stream(10, Some(1), 1000)], &[plugin]);
        let snapshot = Snapshot::build(config, 1, None, &settings).expect("it has no errors");
        assert_eq!(found(&snapshot, 1000), Some((10, guarded)));
    }
}

/// Returns the names of the plugins that run for streams of a port.
fn chain(snapshot: &Snapshot, port: u16) -> Vec<(String, usize)> {
    let route = snapshot.stream_routes().iter();
    let mut route = route.filter(|route| route.id.0.as_u128() == u128::from(port));
    let planned = route
        .next()
        .expect("a route")
        .plan
        .plugins(snapshot.instances());
    let named = planned.iter().map(|one| {
        let instance = one.instance.expect("an instance for everyone");
        (one.def.name.to_string(), instance.0 as usize)
    });
    named.collect()
}

#[test]
fn a_stream_gets_the_plugin_of_the_most_specific_scope_and_none_of_a_consumer() {
    let def = |name: &'static str, priority| {
        Arc::new(PluginDef {
            name: name.into(),
            version: "1".into(),
            priority,
            phases: Phases::PREREAD,
            scopes: Scopes::ALL,
            implementation: Implementation::Later {
                lack: Lack::Protection,
                without: "",
            },
            shortcoming: None,
            risk: None,
        })
    };
    let settings = BuildSettings {
        plugins: vec![def("first", 2), def("second", 1)],
        ..BuildSettings::default()
    };
    let mut number = 100;
    let mut on = |name: &str, config: u32, scope: Value| {
        number += 1;
        let mut plugin = plugin(name, json!({ "a": config }));
        plugin["id"] = json!(Uuid::from_u128(number));
        plugin["protocols"] = json!(["tcp", "http"]);
        for (field, id) in scope.as_object().expect("an object") {
            let id = id.as_u64().expect("a number");
            plugin[field] = json!({"id": Uuid::from_u128(id.into())});
        }
        plugin
    };
    let plugins = [
        on("second", 1, json!({})),
        on("first", 2, json!({"service": 1})),
        on("first", 3, json!({"route": 1000})),
        on("first", 4, json!({"consumer": 7})),
        on("first", 5, json!({})),
    ];
    let list = [
        stream(1000, Some(1), 1000),
        stream(2000, Some(1), 2000),
        stream(3000, None, 3000),
        http(stream(4000, Some(1), 4000)),
    ];
    let config = config(&[service(1, true)], &list, &plugins);
    let snapshot = Snapshot::build(config, 1, None, &settings).expect("it has no errors");
    let chains = [1000, 2000, 3000].map(|port| chain(&snapshot, port));
    for chain in &chains {
        let names: Vec<&str> = chain.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["first", "second"]);
    }
    let instances = chains.map(|chain| chain[0].1);
    assert_ne!(instances[0], instances[1]);
    assert_ne!(instances[1], instances[2]);
    // Requests and streams share the instances, those of consumers included.
    assert_eq!(snapshot.instances().len(), 5);
}
