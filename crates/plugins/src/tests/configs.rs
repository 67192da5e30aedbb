//! Whether the plugins that work use all of their configuration, and whether they are the plugins that their schemas
//! describe.

use super::{bundled, install as registry};
use plugin::{BuildCx, BuildError, Implementation, PluginDef, Scopes};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Phases of schemas that are no phases of requests and sessions: every plugin has them here.
const LIFECYCLE: [&str; 2] = ["init_worker", "configure"];

/// Plugins that use more phases than in Kong, with these phases.
const MORE_PHASES: [(&str, &[&str]); 1] = [("grpc-web", &["request_body"])];

/// Values for fields whose schema does not say enough to derive one: plugin, field, value.
const VALUES: [(&str, &str, &str); 0] = [];

fn working() -> impl Iterator<Item = &'static Arc<PluginDef>> {
    let defs = bundled().iter();
    defs.filter(|def| matches!(def.implementation, Implementation::Ready(_)))
}

fn schema(def: &PluginDef) -> Json {
    let schema = registry().plugin(&def.name);
    schema.expect("the plugin has a schema").schema_json()
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
        untrusted_lua: plugin::UntrustedLua::default(),
        identity: &identity,
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

#[test]
fn phases_are_those_of_the_schema() {
    for def in bundled() {
        let schema = registry().plugin(&def.name).expect("it has a schema");
        let of_schema = schema.phases.iter().map(String::as_str);
        let more = MORE_PHASES.iter().filter(|(name, _)| *name == def.name);
        let wanted: BTreeSet<&str> = of_schema
            .filter(|phase| !LIFECYCLE.contains(phase))
            .chain(more.flat_map(|(_, phases)| phases.iter().copied()))
            .collect();
        let found: BTreeSet<&str> = def.phases.names().collect();
        assert_eq!(found, wanted, "{}", def.name);
    }
}

#[test]
fn versions_and_scopes_are_those_of_the_schema() {
    for def in bundled() {
        assert_eq!(def.version, "3.9.1", "{}", def.name);
        let schema = schema(def);
        // A field with `eq` must be null.
        let allows = |scope| field(&schema, scope).is_none_or(|field| field.get("eq").is_none());
        let wanted = Scopes {
            route: allows("route"),
            service: allows("service"),
            consumer: allows("consumer"),
        };
        assert_eq!(def.scopes, wanted, "{}", def.name);
    }
}

#[test]
fn only_plugins_with_a_phase_of_streams_have_stream_protocols() {
    const STREAMS: [&str; 4] = ["tcp", "tls", "tls_passthrough", "udp"];
    for def in bundled() {
        let schema = schema(def);
        let protocols = field(&schema, "protocols").map(|field| &field["default"]);
        let protocols = protocols.and_then(Json::as_array);
        let protocols = protocols.expect("the schema has default protocols");
        let has_streams = protocols
            .iter()
            .any(|one| one.as_str().is_some_and(|name| STREAMS.contains(&name)));
        let runs = (def.phases.names()).any(|phase| phase == "preread" || phase == "log");
        assert!(runs || !has_streams, "{}", def.name);
    }
}
