//! Compares table and schemas with the properties of Kong's plugins. `kong-3.9.1.json` has those that Kong 3.9.1 itself
//! computes from its handlers and schemas.

use super::*;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(serde::Deserialize)]
struct Facts {
    version: String,
    priority: i32,
    phases: Vec<String>,
    scopes: Vec<String>,
    /// The default of the field `protocols`, sorted.
    protocols: Vec<String>,
    /// The values that the field may have, sorted.
    allowed_protocols: Vec<String>,
}

fn facts() -> BTreeMap<String, Facts> {
    serde_json::from_str(include_str!("kong-3.9.1.json")).expect("the facts are readable")
}

/// The attributes of a field of a plugin, from its schema or else from the schema of all plugins.
fn field(plugin: &Value, name: &str) -> Value {
    let base = install().entity(model::EntityKind::Plugins);
    let base = base.schema_json(model::schema::RouterFlavor::default());
    let in_schema = |schema: &Value| {
        let fields = schema["fields"].as_array().expect("fields").iter();
        fields.filter_map(|field| field.get(name).cloned()).next()
    };
    in_schema(plugin)
        .or_else(|| in_schema(&base))
        .expect("a field")
}

fn sorted(list: &Value) -> Vec<String> {
    let texts = list.as_array().expect("a list").iter();
    let mut texts: Vec<String> = texts
        .map(|text| text.as_str().expect("a text").into())
        .collect();
    texts.sort();
    texts
}

#[test]
fn the_table_has_the_properties_that_kong_has() {
    let facts = facts();
    assert_eq!(bundled().len(), facts.len());
    for def in bundled() {
        let facts = &facts[&*def.name];
        assert_eq!(def.version, facts.version, "{}", def.name);
        assert_eq!(def.priority, facts.priority, "{}", def.name);
        let has = |scope: &str| facts.scopes.iter().any(|one| one == scope);
        assert_eq!(def.scopes.route, has("route"), "{}", def.name);
        assert_eq!(def.scopes.service, has("service"), "{}", def.name);
        assert_eq!(def.scopes.consumer, has("consumer"), "{}", def.name);
        // `init_worker` and `configure` belong to a plugin, not to a request. A plugin that is not implemented takes no
        // part in streams, and the bodies of requests have no phase of their own in Kong.
        let is_later = matches!(def.implementation, Implementation::Later { .. });
        let expected = facts
            .phases
            .iter()
            .map(String::as_str)
            .filter(|phase| match *phase {
                "init_worker" | "configure" => false,
                "preread" => !is_later,
                _ => true,
            });
        let mut expected: Vec<&str> = expected.collect();
        let mut phases: Vec<&str> = def
            .phases
            .names()
            .filter(|phase| *phase != "request_body")
            .collect();
        expected.sort_unstable();
        phases.sort_unstable();
        assert_eq!(phases, expected, "{}", def.name);
    }
}

#[test]
fn the_schemas_have_the_properties_that_kong_has() {
    let facts = facts();
    let registry = install();
    assert_eq!(registry.plugins().count(), facts.len());
    for schema in registry.plugins() {
        let facts = &facts[schema.name];
        assert_eq!(schema.priority, facts.priority, "{}", schema.name);
        let mut phases = facts.phases.clone();
        phases.retain(|phase| !matches!(&**phase, "init_worker" | "configure"));
        let mut own = schema.phases.clone();
        own.retain(|phase| !matches!(&**phase, "init_worker" | "configure"));
        assert_eq!(own, phases, "{}", schema.name);
        let json = schema.schema_json();
        let protocols = field(&json, "protocols");
        assert_eq!(
            sorted(&protocols["default"]),
            facts.protocols,
            "{}",
            schema.name
        );
        let allowed = sorted(&protocols["elements"]["one_of"]);
        assert_eq!(allowed, facts.allowed_protocols, "{}", schema.name);
        for scope in ["route", "service", "consumer"] {
            let is_allowed = field(&json, scope)["eq"] != Value::Null
                || !field(&json, scope)
                    .as_object()
                    .expect("attributes")
                    .contains_key("eq");
            let expected = facts.scopes.iter().any(|one| one == scope);
            assert_eq!(is_allowed, expected, "{} {scope}", schema.name);
        }
    }
}

/// Kong makes both schemas by one function.
#[test]
fn the_schemas_of_functions_are_equal_and_described() {
    let registry = install();
    let of = |name: &str| registry.plugin(name).expect("a schema").schema_json();
    let schema = of("pre-function");
    assert_eq!(schema, of("post-function"));
    let fields = |list: &Value| -> Vec<Value> {
        let entries = list.as_array().expect("fields").iter();
        let entries = entries.flat_map(|entry| entry.as_object().expect("a field").values());
        entries.cloned().collect()
    };
    let [consumer, protocols, config] = &fields(&schema["fields"])[..] else {
        panic!("{schema}");
    };
    let snippets = fields(&config["fields"]);
    assert_eq!(snippets.len(), 6);
    let elements = &protocols["elements"];
    for field in [consumer, protocols, elements].into_iter().chain(&snippets) {
        assert!(field["description"].is_string(), "{field}");
    }
    for field in &snippets {
        let expected = serde_json::json!({"type": "string", "required": false});
        assert_eq!(field["elements"], expected);
    }
}
