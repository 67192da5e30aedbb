//! Whether the plugins that work use all of their configuration.

use super::{bundled, install};
use plugin::{BuildCx, BuildError, Implementation, PluginDef};
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// Values for fields whose schema does not say enough to derive one: plugin, field, value.
const VALUES: [(&str, &str, &str); 0] = [];

fn working() -> impl Iterator<Item = &'static Arc<PluginDef>> {
    let defs = bundled().iter();
    defs.filter(|def| matches!(def.implementation, Implementation::Ready(_)))
}

fn schema(def: &PluginDef) -> Json {
    let schema = install().plugin(&def.name);
    schema.expect("the plugin has a schema").whole_schema_json()
}

/// The fields of a record, by name.
fn fields(record: &Json) -> impl Iterator<Item = (&String, &Json)> {
    let fields = record["fields"].as_array().expect("a record has fields");
    fields
        .iter()
        .flat_map(|field| field.as_object().expect("a field is an object"))
}

fn field<'s>(record: &'s Json, name: &str) -> Option<&'s Json> {
    let mut all = fields(record);
    all.find(|(other, _)| *other == name)
        .map(|(_, field)| field)
}

/// Returns a value for a field: its default, or one that its schema allows. All fields of records are set.
fn value(plugin: &str, name: &str, schema: &Json) -> Json {
    let special = VALUES
        .iter()
        .find(|(of, field, _)| *of == plugin && *field == name);
    if let Some((_, _, value)) = special {
        return json!(value);
    }
    let kind = schema["type"].as_str().expect("a field has a type");
    if kind == "record" {
        return record(plugin, schema);
    }
    let is_empty = |list: &Json| list.as_array().is_some_and(Vec::is_empty);
    match &schema["default"] {
        Json::Null => {}
        Json::Object(_) if kind == "map" => {}
        list if is_empty(list) => {}
        default => return default.clone(),
    }
    let element = |of: &str| value(plugin, name, &schema[of]);
    match kind {
        "string" => match &schema["one_of"][0] {
            Json::Null => json!("x"),
            first => first.clone(),
        },
        "number" | "integer" => match (&schema["between"][0], &schema["gt"]) {
            (Json::Null, Json::Null) => json!(1),
            (Json::Null, more) => json!(more.as_i64().unwrap_or_default() + 1),
            (least, _) => least.clone(),
        },
        "boolean" => json!(true),
        "array" | "set" => json!([element("elements")]),
        "map" => json!({"x": element("values")}),
        other => panic!("{plugin}: the field {name} has the type {other}"),
    }
}

fn record(plugin: &str, schema: &Json) -> Json {
    let fields = fields(schema).map(|(name, field)| (name.clone(), value(plugin, name, field)));
    Json::Object(fields.collect::<Map<_, _>>())
}

/// Returns the error of reading a configuration into the plugin's struct. Errors in the values do not count.
fn unread(def: &PluginDef, config: &Json) -> Option<String> {
    let Implementation::Ready(maker) = &def.implementation else {
        panic!("{} does not work", def.name);
    };
    let config = serde_json::from_value(config.clone()).expect("JSON is a value");
    let (identity, life) = Default::default();
    let cx = BuildCx {
        identity: &identity,
        lua: &Default::default(),
        life: &life,
    };
    match maker.build(&config, &cx) {
        Err(BuildError::Config(error)) => Some(error),
        Err(BuildError::Field { .. }) | Ok(_) => None,
    }
}

/// Returns a value once for each record in it, with a further field in that record.
fn with_a_further_field(value: &Json, schema: &Json) -> Vec<Json> {
    let below = |at: &str, schema: &Json| {
        let changed = match value {
            Json::Array(list) => (list.first()).map(|first| with_a_further_field(first, schema)),
            _ => (value.get(at)).map(|inner| with_a_further_field(inner, schema)),
        };
        let put = |changed: Json| {
            let mut all = value.clone();
            match &mut all {
                Json::Array(list) => list[0] = changed,
                _ => all[at] = changed,
            }
            all
        };
        changed.into_iter().flatten().map(put).collect::<Vec<_>>()
    };
    match schema["type"].as_str() {
        Some("record") => {
            let mut own = value.clone();
            own["no_such_field"] = json!(1);
            let nested = fields(schema).flat_map(|(name, field)| below(name, field));
            std::iter::once(own).chain(nested).collect()
        }
        Some("array" | "set") => below("", &schema["elements"]),
        Some("map") => below("x", &schema["values"]),
        _ => Vec::new(),
    }
}

#[test]
fn a_working_plugin_reads_every_field_of_its_schema_and_no_other() {
    for def in working() {
        let schema = schema(def);
        let config = field(&schema, "config").expect("the plugin has a configuration");
        let full = record(&def.name, config);
        assert_eq!(unread(def, &full), None, "{}: {full}", def.name);
        for changed in with_a_further_field(&full, config) {
            let error = unread(def, &changed).unwrap_or_default();
            assert!(
                error.contains("no_such_field"),
                "{} ignores unknown fields of its configuration: {changed}",
                def.name
            );
        }
    }
}
