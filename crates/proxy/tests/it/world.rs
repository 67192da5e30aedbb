//! A configuration in memory that tests change step by step, like a store.

use model::entities::Config;
use model::{EntityKind, Object, codec};
use proxy::snapshot::{BuildErrors, BuildSettings, Entities, ReadError, Snapshot, Touched};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Entities, and the changes since the last snapshot.
#[derive(Default, Clone)]
pub(crate) struct World {
    entities: BTreeMap<(EntityKind, Uuid), (Value, Vec<u8>)>,
    touched: BTreeMap<(EntityKind, Uuid), Option<Vec<u8>>>,
}

pub(crate) fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

pub(crate) fn reference(number: u128) -> Value {
    json!({"id": id(number)})
}

pub(crate) fn service(number: u128, overrides: Value) -> Value {
    let service = json!({
        "id": id(number), "enabled": true, "protocol": "http", "host": "a.test", "port": 80,
        "retries": 5, "connect_timeout": 60000, "write_timeout": 60000, "read_timeout": 60000,
    });
    with(service, overrides)
}

pub(crate) fn route(number: u128, service: Option<u128>, overrides: Value) -> Value {
    let mut route = json!({
        "id": id(number), "created_at": 0, "protocols": ["http", "https"],
        "paths": [format!("/{number}")], "strip_path": true, "preserve_host": false,
        "https_redirect_status_code": 426, "request_buffering": true, "response_buffering": true,
    });
    if let Some(service) = service {
        route["service"] = reference(service);
    }
    with(route, overrides)
}

pub(crate) fn with(mut value: Value, overrides: Value) -> Value {
    for (name, field) in overrides.as_object().expect("overrides are fields") {
        value[name] = field.clone();
    }
    value
}

impl World {
    pub(crate) fn put(&mut self, kind: EntityKind, entity: Value) {
        let id = entity["id"].as_str().expect("an entity has an id");
        let key = (kind, id.parse().expect("the id is a UUID"));
        let object: Object =
            serde_json::from_value(entity.clone()).expect("an entity is an object");
        let new = (entity, codec::encode(&object));
        let old = self.entities.insert(key, new);
        self.touched
            .entry(key)
            .or_insert(old.map(|(_, bytes)| bytes));
    }

    /// Deletes only this entity, without cascading.
    pub(crate) fn delete(&mut self, kind: EntityKind, id: Uuid) {
        if let Some((_, old)) = self.entities.remove(&(kind, id)) {
            self.touched.entry((kind, id)).or_insert(Some(old));
        }
    }

    pub(crate) fn of(&self, kind: EntityKind) -> impl Iterator<Item = (Uuid, &Value)> {
        let entities = self.entities.iter();
        let own = entities.filter(move |((known, _), _)| *known == kind);
        own.map(|((_, id), (entity, _))| (*id, entity))
    }

    /// Builds a snapshot from the whole configuration.
    pub(crate) fn build(&self, settings: &BuildSettings) -> Result<Snapshot, BuildErrors> {
        fn all<T: serde::de::DeserializeOwned>(world: &World, kind: EntityKind) -> Vec<T> {
            let entities = world
                .entities
                .iter()
                .filter(|((known, _), _)| *known == kind);
            entities
                .map(|(_, (_, bytes))| codec::decode(bytes).expect("the entity is complete"))
                .collect()
        }
        let config = Config {
            services: all(self, EntityKind::Services),
            routes: all(self, EntityKind::Routes),
            plugins: all(self, EntityKind::Plugins),
            upstreams: all(self, EntityKind::Upstreams),
            targets: all(self, EntityKind::Targets),
            certificates: all(self, EntityKind::Certificates),
            snis: all(self, EntityKind::Snis),
            ca_certificates: all(self, EntityKind::CaCertificates),
        };
        Snapshot::build(config, 1, None, settings)
    }

    /// Applies to `current` the changes that were made since the last call of this function.
    pub(crate) fn update(
        &mut self,
        current: &Snapshot,
        settings: &BuildSettings,
    ) -> Result<Snapshot, BuildErrors> {
        let touched = std::mem::take(&mut self.touched);
        let touched = touched.iter().map(|((kind, id), old)| Touched {
            kind: *kind,
            id: *id,
            old: old.as_deref(),
        });
        let delta = current
            .read(&*self, touched)
            .expect("the entities can be read");
        current.apply(&delta, current.revision + 1, settings)
    }
}

impl Entities for World {
    fn get(&self, kind: EntityKind, id: Uuid) -> Result<Option<&[u8]>, ReadError> {
        let found = self.entities.get(&(kind, id));
        Ok(found.map(|(_, bytes)| bytes.as_slice()))
    }

    fn children(
        &self,
        kind: EntityKind,
        field: &'static str,
        parent: Uuid,
    ) -> Result<Vec<Uuid>, ReadError> {
        let parent = json!({"id": parent});
        let children = self.of(kind);
        let children = children.filter(|(_, entity)| entity.get(field) == Some(&parent));
        Ok(children.map(|(id, _)| id).collect())
    }
}
