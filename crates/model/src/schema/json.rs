//! Writes entities and the schemas themselves as JSON.

use super::definition::{Effect, Field, Kind, Record};
use super::{EntitySchema, PluginSchema, RouterFlavor, shorthand};
use crate::value::{Object, Value};
use serde_json::{Map, Value as Json, json};

impl EntitySchema {
    /// Appends a canonical entity in the form of the Admin API. Every field is present, null if not set. Deprecated
    /// forms of plugin settings are written in addition to the new ones.
    pub fn write_json(&self, entity: &Object, out: &mut Vec<u8>) {
        self.write_json_for(entity, RouterFlavor::default(), out);
    }

    /// Appends the entity as [`write_json`](Self::write_json) does, for a given router flavor. With the `expressions`
    /// flavor, routes have additional fields.
    pub fn write_json_for(&self, entity: &Object, flavor: RouterFlavor, out: &mut Vec<u8>) {
        let ttl = entity.get("ttl").filter(|_| self.ttl);
        let ttl = ttl.map(|ttl| ("ttl", ttl.clone()));
        self.write_json_with(entity, flavor, ttl.as_slice(), out);
    }

    /// Appends an entity, with `more` after its fields. `more` contains `ttl`, and values that are shown with the
    /// entity but are not part of it.
    pub fn write_json_with(
        &self,
        entity: &Object,
        flavor: RouterFlavor,
        more: &[(&str, Value)],
        out: &mut Vec<u8>,
    ) {
        out.push(b'{');
        write_fields(self.shown_as(entity, flavor), entity, out);
        for (name, value) in more {
            out.push(b',');
            write_string(name, out);
            out.push(b':');
            write_value(value, out);
        }
        out.push(b'}');
    }

    /// Returns a canonical entity with every field, null if not set, for exports. Deprecated forms of plugin settings
    /// are left out. Values are as stored, so 1.0 stays a float (the JSON for clients has 1 instead). Fields of other
    /// router flavors are included unless they have their default, because an export must be complete.
    pub(crate) fn spelled_out(&self, entity: &Object, flavor: RouterFlavor) -> Object {
        let mut all = spell_out(self.shown_as(entity, flavor), entity);
        for field in &self.table(flavor).elsewhere {
            if let Some(value) = entity.get(&field.name)
                && field.default.as_ref() != Some(value)
            {
                all.push(field.name.clone(), value.clone());
            }
        }
        if self.ttl
            && let Some(ttl) = entity.get("ttl")
        {
            all.push("ttl", ttl.clone());
        }
        all
    }

    pub(super) fn shown_as(&self, entity: &Object, flavor: RouterFlavor) -> &Record {
        let name = match self
            .subschema_key
            .as_deref()
            .and_then(|key| entity.get(key))
        {
            Some(Value::String(name)) => Some(name.as_str()),
            Some(Value::Array(values)) => values.first().and_then(Value::as_str),
            _ => None,
        };
        self.record(name, flavor)
    }

    /// The response of `GET /schemas/<entity>`.
    pub fn schema_json(&self, flavor: RouterFlavor) -> Json {
        let name = match flavor {
            RouterFlavor::Traditional => "traditional",
            RouterFlavor::TraditionalCompatible => "traditional_compatible",
            RouterFlavor::Expressions => "expressions",
        };
        match self.definition["flavors"].get(name) {
            Some(changes) => described(&changed(&self.definition, changes)),
            None => described(&self.definition),
        }
    }

    /// The response of `GET /schemas/vaults/<name>`.
    pub fn subschema_json(&self, name: &str) -> Option<Json> {
        self.definition["subschemas"].get(name).map(described)
    }
}

impl PluginSchema {
    /// The response of `GET /schemas/plugins/<name>`.
    pub fn schema_json(&self) -> Json {
        described(&self.definition)
    }
}

fn spell_out(record: &Record, object: &Object) -> Object {
    let fields = record.shown_fields(object);
    let all = fields.filter(|field| !field.transient).map(|field| {
        let value = object.get(&field.name);
        let value = match value {
            Some(value) => spell_out_value(field, value),
            None => field.absent().clone(),
        };
        (field.name.clone(), value)
    });
    all.collect()
}

fn spell_out_value(field: &Field, value: &Value) -> Value {
    match (&field.kind, value) {
        (Kind::Record(record), Value::Object(object)) => Value::Object(spell_out(record, object)),
        (Kind::Array(element) | Kind::Set(element), Value::Array(values)) => {
            let values = values.iter().map(|value| spell_out_value(element, value));
            Value::Array(values.collect())
        }
        (Kind::Map(entry), Value::Object(object)) => {
            let values = object.iter();
            let values = values.map(|(name, value)| (name, spell_out_value(&entry.1, value)));
            Value::Object(values.collect())
        }
        _ => value.clone(),
    }
}

fn write_record(record: &Record, object: &Object, out: &mut Vec<u8>) {
    out.push(b'{');
    write_fields(record, object, out);
    out.push(b'}');
}

fn write_fields(record: &Record, object: &Object, out: &mut Vec<u8>) {
    let mut separator: &[u8] = b"";
    let is_ordered = is_ordered(record, object);
    // Canonical objects have their fields in schema order, so one pass over the record and the object finds all values.
    let mut entries = object.iter().peekable();
    for field in record.fields.iter().filter(|field| !field.transient) {
        let value = match entries.peek() {
            _ if !is_ordered => object.get(&field.name),
            Some((name, _)) if *name == field.name => entries.next().map(|(_, value)| value),
            _ => None,
        };
        if field.own && value.is_none() {
            continue;
        }
        out.extend_from_slice(separator);
        separator = b",";
        out.extend_from_slice(field.json_key.as_bytes());
        match value {
            Some(value) => write_field(field, value, out),
            None => write_value(field.absent(), out),
        }
    }
    for shorthand in &record.shorthands {
        let Effect::ReplacedBy(path) = &shorthand.effect else {
            continue;
        };
        out.extend_from_slice(separator);
        separator = b",";
        out.extend_from_slice(shorthand.field.json_key.as_bytes());
        write_value(
            shorthand::get_path(object, path).unwrap_or(&Value::Null),
            out,
        );
    }
}

/// Whether the fields of an object are in schema order. They may not be if an earlier version stored the object,
/// because it appended computed fields at the end.
fn is_ordered(record: &Record, object: &Object) -> bool {
    let mut fields = record.fields.iter();
    let mut rest = object.iter();
    // The object is in order if neither the first misplaced entry nor any entry after it is a field of the record.
    let misplaced = rest.find(|(name, _)| !fields.any(|field| field.name == *name));
    let is_field = |(name, _): (&str, &Value)| record.is_shown(name.as_bytes());
    !misplaced.into_iter().chain(rest).any(is_field)
}

fn write_field(field: &Field, value: &Value, out: &mut Vec<u8>) {
    match (&field.kind, value) {
        (Kind::Record(record), Value::Object(object)) => write_record(record, object, out),
        (Kind::Array(element) | Kind::Set(element), Value::Array(values)) => {
            out.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_field(element, value, out);
            }
            out.push(b']');
        }
        (Kind::Map(entry), Value::Object(object)) => {
            out.push(b'{');
            for (index, (name, value)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(name, out);
                out.push(b':');
                write_field(&entry.1, value, out);
            }
            out.push(b'}');
        }
        _ => write_value(value, out),
    }
}

/// Appends any value as JSON. Numbers without a fraction are written without a decimal point.
pub(crate) fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Int(number) => out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes()),
        Value::Float(number) => write_float(*number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(values) => {
            out.push(b'[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(value, out);
            }
            out.push(b']');
        }
        Value::Object(object) => {
            out.push(b'{');
            for (index, (name, value)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(name, out);
                out.push(b':');
                write_value(value, out);
            }
            out.push(b'}');
        }
    }
}

pub(super) fn write_float(number: f64, out: &mut Vec<u8>) {
    if !number.is_finite() {
        out.extend_from_slice(b"null");
        return;
    }
    out.extend_from_slice(number.to_string().as_bytes());
}

pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    // The loop reads every byte without an early exit, so that it compiles to a few vector instructions.
    let plain = bytes.iter().fold(true, |plain, &byte| {
        plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\')
    });
    if plain {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut written = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[written..index]);
        written = index + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// Returns a definition as clients see it, without attributes that only this program uses.
fn described(definition: &Json) -> Json {
    let checks = definition["entity_checks"].as_array();
    json!({
        "fields": fields(&definition["fields"]),
        "entity_checks": checks.into_iter().flatten().map(check).collect::<Vec<_>>(),
    })
}

/// Applies the changes of a router flavor to a definition. A flavor replaces or adds fields, and removes checks.
fn changed(definition: &Json, changes: &Json) -> Json {
    let items = |list: &Json| list.as_array().cloned().unwrap_or_default();
    let mut fields = items(&definition["fields"]);
    for change in items(&changes["fields"]) {
        let name = |field: &Json| field.as_object()?.keys().next().cloned();
        match fields.iter_mut().find(|one| name(one) == name(&change)) {
            Some(field) => *field = change,
            None => fields.push(change),
        }
    }
    let without = items(&changes["without_checks"]);
    let mut checks = items(&definition["entity_checks"]);
    checks.retain(|check| !without.contains(&check["custom_entity_check"]["fn"]));
    json!({ "fields": fields, "entity_checks": checks })
}

fn fields(list: &Json) -> Vec<Json> {
    let entries = list.as_array().into_iter().flatten();
    entries
        .filter_map(Json::as_object)
        .filter(|entry| !entry.values().any(|field| field["own"] == true))
        .map(|entry| {
            let described = entry.iter().map(|(name, one)| (name.clone(), field(one)));
            Json::Object(described.collect())
        })
        .collect()
}

fn field(attributes: &Json) -> Json {
    let mut shown = Map::new();
    for (name, value) in attributes.as_object().into_iter().flatten() {
        let value = match name.as_str() {
            "validator" | "func" | "into" => continue,
            "fields" | "shorthand_fields" => Json::Array(fields(value)),
            "elements" | "keys" | "values" => field(value),
            "entity_checks" => {
                Json::Array(value.as_array().into_iter().flatten().map(check).collect())
            }
            _ => value.clone(),
        };
        shown.insert(name.clone(), value);
    }
    Json::Object(shown)
}

fn check(definition: &Json) -> Json {
    let mut shown = definition.clone();
    if let Some(custom) = shown
        .get_mut("custom_entity_check")
        .and_then(Json::as_object_mut)
    {
        custom.remove("fn");
    }
    if let Some(wanted) = shown
        .get_mut("conditional")
        .and_then(|conditional| conditional["then_match"].as_object_mut())
    {
        wanted.remove("validator");
    }
    shown
}
