//! Entities in log records.

use super::json;
use crate::entities::Entities;
use crate::request::{Consumer, EntityRef};
use model::{EntityKind, Object, Value};
use std::sync::Arc;
use uuid::Uuid;

/// Appends an entity of a workspace as Kong's log records show it: without fields that have no value, and with the
/// workspace. Consumers do not show it.
pub fn write_entity(kind: EntityKind, entity: &Object, workspace: Uuid, out: &mut Vec<u8>) {
    object(entity.iter().filter(|(name, _)| *name != "ws_id"), out);
    if kind == EntityKind::Consumers {
        return;
    }
    let is_empty = out.ends_with(b"{}");
    out.pop();
    out.extend_from_slice(if is_empty {
        br#""ws_id":"#
    } else {
        br#","ws_id":"#
    });
    json::id(workspace, out);
    out.push(b'}');
}

fn object<'v>(fields: impl Iterator<Item = (&'v str, &'v Value)>, out: &mut Vec<u8>) {
    out.push(b'{');
    let present = fields.filter(|(_, value)| !value.is_null());
    for (at, (name, value)) in present.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::string(name.as_bytes(), out);
        out.push(b':');
        write_value(value, out);
    }
    out.push(b'}');
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => object(fields.iter(), out),
        Value::Array(values) => {
            out.push(b'[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_value(value, out);
            }
            out.push(b']');
        }
        Value::String(text) => json::string(text.as_bytes(), out),
        other => super::fields::write_value(other, out),
    }
}

/// Returns a route or service. One that was deleted since the request was routed, or cannot be read, is shown by its id
/// and name.
pub(super) fn reference(
    entities: &dyn Entities,
    kind: EntityKind,
    entity: EntityRef<'_>,
) -> Arc<[u8]> {
    let found = entities.logged(kind, entity.id).ok().flatten();
    found.unwrap_or_else(|| named(entity.id, &[("name", entity.name)]))
}

pub(super) fn consumer(entities: &dyn Entities, consumer: &Consumer) -> Arc<[u8]> {
    let found = entities.logged(EntityKind::Consumers, consumer.id.0);
    found.ok().flatten().unwrap_or_else(|| {
        let names = [
            ("username", consumer.username.as_deref()),
            ("custom_id", consumer.custom_id.as_deref()),
        ];
        named(consumer.id.0, &names)
    })
}

fn named(id: Uuid, names: &[(&str, Option<&str>)]) -> Arc<[u8]> {
    let mut out = Vec::new();
    out.extend_from_slice(br#"{"id":"#);
    json::id(id, &mut out);
    for (field, name) in names {
        if let Some(name) = name {
            out.push(b',');
            json::string(field.as_bytes(), &mut out);
            out.push(b':');
            json::string(name.as_bytes(), &mut out);
        }
    }
    out.push(b'}');
    out.into()
}
