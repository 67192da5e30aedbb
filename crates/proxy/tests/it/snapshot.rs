//! Tests of building snapshots from configurations.

use crate::fixture::{context, entity, head, plugin, run_access, settings};
use crate::world::{route, service};
use model::entities::{Config, Protocol};
use plugin::{BuildCx, BuildError, Phases, Plugin, PluginDef, Scopes};
use proxy::balance::{PickInput, Tried};
use proxy::snapshot::{BuildSettings, RouteInfo, ServiceRef, Snapshot};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

fn routes(snapshot: &Snapshot) -> Vec<&RouteInfo> {
    snapshot.routes().collect()
}

/// Returns the authority to which the next request of a service goes: the host, and the port if it is not the default.
fn authority(service: ServiceRef<'_>) -> Option<String> {
    let picked = service.pick(PickInput::default(), &Tried::default());
    picked.ok().map(|target| target.authority.to_string())
}

#[derive(Default)]
struct Draft {
    services: Vec<Value>,
    routes: Vec<Value>,
    plugins: Vec<Value>,
    upstreams: Vec<Value>,
    targets: Vec<Value>,
    certificates: Vec<Value>,
}

impl Draft {
    fn config(&self) -> Config {
        fn entities<T: serde::de::DeserializeOwned>(values: &[Value]) -> Vec<T> {
            values.iter().cloned().map(entity).collect()
        }
        Config {
            services: entities(&self.services),
            routes: entities(&self.routes),
            plugins: entities(&self.plugins),
            upstreams: entities(&self.upstreams),
            targets: entities(&self.targets),
            certificates: entities(&self.certificates),
            ..Config::default()
        }
    }

    fn build(&self, previous: Option<&Snapshot>, settings: &BuildSettings) -> Snapshot {
        Snapshot::build(self.config(), 1, previous, settings)
            .expect("the configuration has no errors")
    }
}

fn termination() -> Value {
    plugin(
        "request-termination",
        json!({"status_code": 503, "echo": false}),
    )
}

/// Binds a plugin to a route.
fn on_route(mut plugin: Value, id: u128, route: u128) -> Value {
    plugin["id"] = json!(Uuid::from_u128(id));
    plugin["route"] = json!({"id": Uuid::from_u128(route)});
    plugin
}

#[test]
fn routes_of_disabled_services_and_of_streams_are_left_out() {
    let draft = Draft {
        services: vec![service(1, json!({})), service(2, json!({"enabled": false}))],
        routes: vec![
            route(10, Some(1), json!({"name": "kept"})),
            route(11, Some(2), json!({})),
            route(
                12,
                None,
                json!({"protocols": ["tcp"], "sources": [{"port": 1}]}),
            ),
            route(13, None, json!({"protocols": ["https"]})),
        ],
        ..Draft::default()
    };
    let snapshot = draft.build(None, &settings());
    let ids: Vec<u128> = snapshot.routes().map(|one| one.id.0.as_u128()).collect();
    assert_eq!(ids, [10, 13]);
    let [kept, without_service] = routes(&snapshot)[..] else {
        panic!("the snapshot does not have two routes")
    };
    assert_eq!(kept.as_ref().name, Some("kept"));
    let service = snapshot.service(kept).expect("the route has a service");
    assert_eq!(authority(service), Some("a.test".to_owned()));
    assert!(snapshot.service(without_service).is_none());
    assert!(without_service.protocols.contains(Protocol::Https));
    assert!(!without_service.protocols.contains(Protocol::Http));
}

#[test]
fn equal_stateless_plugins_are_one_object_and_equal_plans_too() {
    let numbers = 10..110;
    let draft = Draft {
        routes: numbers
            .clone()
            .map(|number| route(number, None, json!({})))
            .collect(),
        plugins: numbers
            .map(|number| on_route(termination(), number + 1000, number))
            .collect(),
        ..Draft::default()
    };
    let snapshot = draft.build(None, &settings());
    assert_eq!(snapshot.instances().len(), 1);
    let first = &routes(&snapshot)[0].plan;
    assert!(
        snapshot
            .routes()
            .all(|route| Arc::ptr_eq(&route.plan, first))
    );
}

struct Limited;

#[derive(serde::Deserialize)]
struct Limit {
    #[expect(dead_code, reason = "only its presence matters")]
    limit: u32,
}

impl Plugin for Limited {
    type Config = Limit;
    type Own = ();

    fn build(_: Limit, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self)
    }
}

fn with_state() -> BuildSettings {
    BuildSettings {
        plugins: vec![Arc::new(PluginDef::bundled::<Limited>(
            "stateful",
            1,
            Phases::ACCESS,
            Scopes::ALL,
        ))],
        ..BuildSettings::default()
    }
}

#[test]
fn unchanged_instances_live_on_in_the_next_snapshot() {
    let stateful = |limit| plugin("stateful", json!({"limit": limit}));
    let draft = |second: i32| Draft {
        routes: [10, 11].map(|number| route(number, None, json!({}))).into(),
        plugins: vec![
            on_route(stateful(1), 20, 10),
            on_route(stateful(second), 21, 11),
        ],
        ..Draft::default()
    };
    let settings = with_state();
    let one = draft(2).build(None, &settings);
    let two = draft(3).build(Some(&one), &settings);
    let same = one.instances().iter().zip(two.instances().iter());
    let same: Vec<bool> = same
        .map(|(one, two)| Arc::ptr_eq(&one.plugin, &two.plugin))
        .collect();
    assert_eq!(same, [true, false]);
}

#[test]
fn plugins_that_do_not_work_yet_load() {
    let draft = Draft {
        plugins: vec![
            plugin("acme", json!({})),
            plugin("ai-prompt-guard", json!({})),
            {
                let mut second = plugin("ai-prompt-guard", json!({"deny_patterns": ["x"]}));
                second["enabled"] = json!(true);
                second
            },
        ],
        ..Draft::default()
    };
    let snapshot = draft.build(None, &settings());
    // ai-prompt-guard controls access, so a stand-in refuses all requests. acme is ignored.
    let built: Vec<_> = snapshot
        .instances()
        .iter()
        .map(|instance| &*instance.def.name)
        .collect();
    assert_eq!(built, ["ai-prompt-guard", "ai-prompt-guard"]);
}

#[test]
fn plugins_that_do_not_work_yet_and_change_or_limit_anything_refuse_every_request() {
    for name in ["ai-prompt-guard", "grpc-gateway"] {
        let draft = Draft {
            plugins: vec![plugin(name, json!({}))],
            ..Draft::default()
        };
        let snapshot = draft.build(None, &settings());
        let request = head(&["GET / HTTP/1.1"]);
        let mut cx = context(&request, "");
        let answer = run_access(&snapshot.globals, snapshot.instances(), &mut cx);
        assert_eq!(answer.map(|answer| answer.status), Some(500), "{name}");
    }
}

#[test]
fn disabled_plugins_and_those_for_streams_are_as_if_absent() {
    let mut disabled = termination();
    disabled["enabled"] = json!(false);
    let mut stream = termination();
    stream["protocols"] = json!(["tcp", "tls"]);
    let draft = Draft {
        plugins: vec![disabled, stream],
        ..Draft::default()
    };
    assert!(draft.build(None, &settings()).globals.is_empty());
}

#[test]
fn everything_that_cannot_be_served_is_reported_at_once() {
    let certificate = json!({"id": Uuid::from_u128(30), "cert": "no", "key": "no"});
    let draft = Draft {
        plugins: vec![
            plugin("stateful", json!({})),
            plugin("unheard-of", json!({})),
        ],
        certificates: vec![certificate],
        ..Draft::default()
    };
    let errors = Snapshot::build(draft.config(), 1, None, &with_state())
        .expect_err("the configuration has errors");
    let text = errors.to_string();
    assert_eq!(errors.0.len(), 3, "{text}");
    for part in [
        "certificate 00000000-0000-0000-0000-00000000001e: not a PEM",
        "plugin stateful (",
        "unheard-of plugin is in use but not enabled",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_plugin_that_is_not_enabled_is_reported_once_even_if_it_is_switched_off() {
    let mut off = plugin("unheard-of", json!({"a": 1}));
    off["enabled"] = json!(false);
    let draft = Draft {
        plugins: vec![plugin("unheard-of", json!({})), off.clone()],
        ..Draft::default()
    };
    let errors = Snapshot::build(draft.config(), 1, None, &settings()).expect_err("not enabled");
    assert_eq!(errors.0.len(), 1, "{errors}");
    let draft = Draft {
        plugins: vec![off],
        ..Draft::default()
    };
    assert!(Snapshot::build(draft.config(), 1, None, &settings()).is_err());
}

#[test]
fn a_certificate_with_a_vault_reference_is_refused_with_that_reason() {
    let reference = "{vault://env/hidden}";
    let certificate = json!({"id": Uuid::from_u128(30), "cert": reference, "key": reference});
    let draft = Draft {
        certificates: vec![certificate],
        ..Draft::default()
    };
    let errors = Snapshot::build(draft.config(), 1, None, &settings()).expect_err("a reference");
    let text = errors.to_string();
    assert!(
        text.contains("cert is a vault reference, which is not resolved yet"),
        "{text}"
    );
    assert!(!text.contains("hidden"), "{text}");
}

#[test]
fn a_host_that_names_an_upstream_goes_to_its_targets_by_weight() {
    let target = |number: u128, target: &str, weight: u32| {
        json!({
            "id": Uuid::from_u128(number), "upstream": {"id": Uuid::from_u128(40)},
            "target": target, "weight": weight,
        })
    };
    let upstream = |number: u128, name: &str| json!({"id": Uuid::from_u128(number), "name": name});
    let draft = Draft {
        services: vec![
            service(1, json!({"host": "pool"})),
            service(2, json!({"host": "empty"})),
        ],
        routes: vec![route(10, Some(1), json!({})), route(11, Some(2), json!({}))],
        upstreams: vec![upstream(40, "pool"), upstream(41, "empty")],
        targets: vec![
            target(50, "10.0.0.1:8000", 300),
            target(51, "10.0.0.2:80", 100),
            target(52, "10.0.0.3:80", 0),
        ],
        ..Draft::default()
    };
    let snapshot = draft.build(None, &settings());
    let [pool, empty] = [0, 1].map(|at| {
        let route = routes(&snapshot)[at];
        snapshot.service(route).expect("the route has a service")
    });
    assert_eq!(authority(empty), None);
    let picks: Vec<String> = (0..400).filter_map(|_| authority(pool)).collect();
    let ones = picks.iter().filter(|name| *name == "10.0.0.1:8000").count();
    assert_eq!((picks.len(), ones), (400, 300));
    let longest = picks.chunk_by(|one, two| one == two).map(<[_]>::len).max();
    assert!(longest.is_some_and(|run| run <= 4), "{longest:?}");
}

#[test]
fn the_host_header_has_ipv6_addresses_in_brackets() {
    for (fields, expected) in [
        (json!({"host": "::1", "port": 18081}), "[::1]:18081"),
        (json!({"host": "::1", "port": 80}), "[::1]"),
        (
            json!({"host": "::1", "port": 443, "protocol": "https"}),
            "[::1]",
        ),
        (json!({"host": "[::1]", "port": 90}), "[::1]:90"),
        (json!({"host": "10.0.0.1", "port": 90}), "10.0.0.1:90"),
    ] {
        let draft = Draft {
            services: vec![service(1, fields.clone())],
            routes: vec![route(10, Some(1), json!({}))],
            ..Draft::default()
        };
        let snapshot = draft.build(None, &settings());
        let service = snapshot.service(routes(&snapshot)[0]).expect("a service");
        assert_eq!(authority(service).as_deref(), Some(expected), "{fields}");
    }
}

#[test]
fn targets_may_leave_out_their_port_and_be_ipv6() {
    for (target, authority) in [
        ("10.0.0.01", "10.0.0.1:8000"),
        ("::1", "[0000:0000:0000:0000:0000:0000:0000:0001]:8000"),
        ("[::1]:90", "[0000:0000:0000:0000:0000:0000:0000:0001]:90"),
    ] {
        let draft = Draft {
            services: vec![service(1, json!({"host": "pool"}))],
            routes: vec![route(10, Some(1), json!({}))],
            upstreams: vec![json!({"id": Uuid::from_u128(40), "name": "pool"})],
            targets: vec![json!({
                "id": Uuid::from_u128(50), "upstream": {"id": Uuid::from_u128(40)},
                "target": target, "weight": 1,
            })],
            ..Draft::default()
        };
        let snapshot = draft.build(None, &settings());
        let pool = snapshot.service(routes(&snapshot)[0]).expect("a service");
        assert_eq!(
            self::authority(pool).as_deref(),
            Some(authority),
            "{target}"
        );
    }
}
