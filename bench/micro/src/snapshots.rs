//! Operations that build the workers' snapshot from entities: from a whole configuration, and for changes of single
//! entities in a snapshot of 10,000 routes and 20,000 plugins.

use crate::fixtures::{
    self, build_settings, config, consumer_id, id, nowhere, path, route_id, service_id, snapshot,
};
use crate::operation::Operation;
use model::entities::{Config, Plugin};
use model::{EntityKind, Object, codec};
use plugin::Node;
use proxy::plugins::publish;
use proxy::snapshot::{Entities, ReadError, Snapshot, Touched};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::HashMap;
use uuid::Uuid;

const ROUTES: usize = 10_000;
const TARGETS: usize = 10;
const SNIS: usize = 1000;

/// First number for ids of entities other than routes and plugins.
const BASE: usize = 1 << 50;

pub(crate) fn operations() -> Vec<Operation> {
    let on_route = json!({"route": {"id": route_id(7).0}});
    let on_service = json!({"service": {"id": service_id().0}});
    let of_consumer = json!({"consumer": {"id": consumer_id(7).0}});
    let plugin = |scope: &Value| with(plugin(BASE), scope.clone());
    let new_route = with(
        route(7),
        json!({"id": id(BASE), "paths": ["/service-7/new"]}),
    );
    let moved_route = with(route(7), json!({"paths": ["/service-7/moved"]}));
    vec![
        Operation::consume("snapshot/build/10000", 1, || (|| full_config(), snapshot)),
        Operation::consume("snapshot/drop/10000", 1, || {
            (|| snapshot(full_config()), drop::<Snapshot>)
        }),
        change(
            "route",
            EntityKind::Routes,
            Some(route(7)),
            Some(moved_route),
        ),
        change("route-created", EntityKind::Routes, None, Some(new_route)),
        change("route-deleted", EntityKind::Routes, Some(route(7)), None),
        change(
            "route-plugin",
            EntityKind::Plugins,
            None,
            Some(plugin(&on_route)),
        ),
        change(
            "service-plugin",
            EntityKind::Plugins,
            None,
            Some(plugin(&on_service)),
        ),
        change(
            "consumer-plugin",
            EntityKind::Plugins,
            None,
            Some(plugin(&of_consumer)),
        ),
        change(
            "global-plugin",
            EntityKind::Plugins,
            None,
            Some(plugin(&json!({}))),
        ),
        change(
            "service",
            EntityKind::Services,
            Some(service()),
            Some(other_service()),
        ),
        change(
            "upstream",
            EntityKind::Upstreams,
            Some(upstream()),
            Some(other_upstream()),
        ),
        change(
            "target",
            EntityKind::Targets,
            Some(target(0)),
            Some(other_target()),
        ),
        change("sni", EntityKind::Snis, None, Some(sni(SNIS))),
        change(
            "certificate",
            EntityKind::Certificates,
            Some(certificate()),
            Some(certificate()),
        ),
        change(
            "ca-certificate",
            EntityKind::CaCertificates,
            None,
            Some(certificate()),
        ),
        // Snapshots contain no credentials, so this measures a change without an effect. No code reads the entity, and
        // any object will do.
        change(
            "credential",
            plugins::kinds::KEYAUTH_CREDENTIALS,
            None,
            Some(certificate()),
        ),
        publish_change(),
    ]
}

/// Applies a change of one entity to a snapshot: reads the affected entities and compiles them.
fn change(name: &str, kind: EntityKind, old: Option<Value>, new: Option<Value>) -> Operation {
    let name = format!("snapshot/change/{name}/10000");
    Operation::consume(name, 4, move || {
        let current = snapshot(full_config());
        let change = changes(kind, old.as_ref(), new.as_ref());
        (|| (), move |()| change(&current))
    })
}

/// Returns a function that applies a change of one entity to a snapshot.
fn changes(
    kind: EntityKind,
    old: Option<&Value>,
    new: Option<&Value>,
) -> impl Fn(&Snapshot) -> Snapshot + use<> {
    let settings = build_settings();
    let mut entities = Memory::new();
    let changed = old.into_iter().chain(new).next().map(entity_id);
    let changed = changed.unwrap_or_default();
    let old = old.map(encode);
    match new {
        Some(new) => entities.put(kind, new),
        None => drop(entities.entities.remove(&(kind, changed))),
    }
    move |current| {
        let touched = Touched {
            kind,
            id: changed,
            old: old.as_deref(),
        };
        let delta = current.read(&entities, [touched]);
        let delta = delta.expect("every entity can be read");
        let next = current.apply(&delta, 2, &settings);
        next.expect("the configuration can be served")
    }
}

/// Publishes a snapshot that has one plugin more than the one before. Each of 10,000 plugins has an instance, because
/// their configurations differ.
fn publish_change() -> Operation {
    Operation::repeat("publish/change/10000", 4, || {
        let different = |number: usize| {
            let message = json!({"status_code": 503, "echo": false, "message": number.to_string()});
            Plugin {
                route: Some(route_id(number)),
                ..fixtures::plugin("request-termination", number, message)
            }
        };
        let current = snapshot(Config {
            plugins: (0..ROUTES).map(different).collect(),
            ..config(ROUTES, nowhere())
        });
        let global = plugin(BASE);
        let next = changes(EntityKind::Plugins, None, Some(&global))(&current);
        let table = build_settings().plugins;
        let node = Node::bare().expect("a thread can be started");
        publish(None, current.instances(), &table, &node);
        move || publish(Some(current.instances()), next.instances(), &table, &node)
    })
}

fn with(mut value: Value, overrides: Value) -> Value {
    for (name, field) in overrides.as_object().into_iter().flatten() {
        value[name] = field.clone();
    }
    value
}

fn route(number: usize) -> Value {
    json!({
        "id": route_id(number).0, "name": format!("route-{number}"), "created_at": 1_700_000_000 + number,
        "protocols": ["http", "https"], "paths": [path(number)], "regex_priority": 0, "strip_path": false,
        "preserve_host": false, "path_handling": "v0", "https_redirect_status_code": 426,
        "request_buffering": true, "response_buffering": true, "service": {"id": service_id().0},
    })
}

fn plugin(number: usize) -> Value {
    json!({
        "id": id(number), "name": "request-termination", "enabled": true,
        "config": {"status_code": 503, "echo": false}, "protocols": ["http", "https"],
    })
}

fn service() -> Value {
    json!({
        "id": id(BASE + 1), "name": "balanced", "enabled": true, "protocol": "http", "host": "pool", "port": 80,
        "retries": 5, "connect_timeout": 60_000, "write_timeout": 60_000, "read_timeout": 60_000,
    })
}

fn other_service() -> Value {
    with(service(), json!({"path": "/base"}))
}

fn upstream() -> Value {
    json!({"id": id(BASE + 2), "name": "pool"})
}

fn other_upstream() -> Value {
    with(upstream(), json!({"algorithm": "least-connections"}))
}

fn target(number: usize) -> Value {
    json!({
        "id": id(BASE + 100 + number), "upstream": {"id": id(BASE + 2)}, "target": format!("10.0.0.{number}:80"),
        "weight": 100,
    })
}

fn other_target() -> Value {
    with(target(0), json!({"weight": 0}))
}

fn certificate() -> Value {
    json!({"id": id(BASE + 3), "cert": include_str!("cert.pem"), "key": include_str!("key.pem")})
}

fn sni(number: usize) -> Value {
    json!({
        "id": id(BASE + 10_000 + number), "name": format!("name-{number}.test"),
        "certificate": {"id": id(BASE + 3)},
    })
}

fn full_config() -> Config {
    fn entities<T: DeserializeOwned>(values: impl IntoIterator<Item = Value>) -> Vec<T> {
        let values = values.into_iter().map(serde_json::from_value);
        values
            .collect::<Result<_, _>>()
            .expect("the entities are complete")
    }
    let mut config = config(ROUTES, nowhere());
    config.services.extend(entities([service()]));
    config.upstreams = entities([upstream()]);
    config.targets = entities((0..TARGETS).map(target));
    config.certificates = entities([certificate()]);
    config.snis = entities((0..SNIS).map(sni));
    config
}

/// The stored entities that a change of another entity may make the snapshot read again.
struct Memory {
    entities: HashMap<(EntityKind, Uuid), Vec<u8>>,
    children: HashMap<(EntityKind, &'static str, Uuid), Vec<Uuid>>,
}

impl Memory {
    fn new() -> Self {
        let mut memory = Self {
            entities: HashMap::new(),
            children: HashMap::new(),
        };
        memory.put(EntityKind::Services, &service());
        memory.put(EntityKind::Upstreams, &upstream());
        (0..TARGETS).for_each(|number| memory.put(EntityKind::Targets, &target(number)));
        memory.put(EntityKind::Certificates, &certificate());
        (0..SNIS).for_each(|number| memory.put(EntityKind::Snis, &sni(number)));
        let ids =
            |count, of: fn(usize) -> Value| (0..count).map(|one| entity_id(&of(one))).collect();
        memory.children.extend([
            (
                (EntityKind::Targets, "upstream", id(BASE + 2)),
                ids(TARGETS, target),
            ),
            (
                (EntityKind::Snis, "certificate", id(BASE + 3)),
                ids(SNIS, sni),
            ),
            (
                (EntityKind::Routes, "service", service_id().0),
                (0..ROUTES).map(|number| route_id(number).0).collect(),
            ),
        ]);
        memory
    }

    fn put(&mut self, kind: EntityKind, entity: &Value) {
        self.entities
            .insert((kind, entity_id(entity)), encode(entity));
    }
}

impl Entities for Memory {
    fn get(&self, kind: EntityKind, id: Uuid) -> Result<Option<&[u8]>, ReadError> {
        Ok(self.entities.get(&(kind, id)).map(Vec::as_slice))
    }

    fn children(
        &self,
        kind: EntityKind,
        field: &'static str,
        parent: Uuid,
    ) -> Result<Vec<Uuid>, ReadError> {
        let children = self.children.get(&(kind, field, parent));
        Ok(children.cloned().unwrap_or_default())
    }
}

fn entity_id(entity: &Value) -> Uuid {
    serde_json::from_value(entity["id"].clone()).expect("an entity has an id")
}

fn encode(entity: &Value) -> Vec<u8> {
    let object: Object = serde_json::from_value(entity.clone()).expect("it is an object");
    codec::encode(&object)
}
