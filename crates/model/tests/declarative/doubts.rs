//! Tests of documents that are loaded with a warning. Kong loads them without a warning.

use crate::running::{Running, object, options};
use model::declarative::{self, Document, ExportFormat, Nothing};
use model::{EntityKind, Object};
use serde_json::{Value as Json, json};

const ID: &str = "11111111-2222-4333-8444-555555555555";

fn plugins(running: &Running) -> Vec<Object> {
    running.all(EntityKind::Plugins)
}

fn has(plugin: &Object, field: &str) -> bool {
    plugin
        .get(field)
        .and_then(model::Value::as_object)
        .is_some()
}

/// Loads a document twice and checks that the second load changes nothing.
fn load(document: &Json) -> (Running, Document) {
    let mut running = Running::default();
    let first = running.post(document, 1).expect("accepted");
    let again = running.post(document, 2).expect("accepted");
    assert_eq!((again.puts.len(), again.deletes.len()), (0, 0));
    assert_eq!(again.warnings, first.warnings);
    (running, first)
}

#[test]
fn nested_plugins_that_do_not_support_consumers_are_loaded() {
    let names = ["key-auth", "cors", "acl", "jwt"];
    let nested = names.map(|name| json!({"name": name, "config": {"allow": ["a"]}}));
    let mut document =
        json!({"_format_version": "3.0", "consumers": [{"username": "c", "plugins": nested}]});
    for at in [0, 1, 3] {
        document["consumers"][0]["plugins"][at]
            .as_object_mut()
            .unwrap()
            .remove("config");
    }
    let (running, loaded) = load(&document);
    assert!(plugins(&running).iter().all(|one| has(one, "consumer")));
    assert_eq!(plugins(&running).len(), names.len());
    let warnings = names.map(|name| {
        format!("plugin '{name}' nested in consumers 'c' does not support consumers: it is loaded unchanged and may have no effect")
    });
    assert_eq!(loaded.warnings, warnings);
    let flat = json!({"_format_version": "3.0", "consumers": [{"username": "c"}],
        "plugins": [{"name": "key-auth", "consumer": "c"}]});
    let refused = declarative::load(object(&flat), &options(1), &Nothing).expect_err("refused");
    assert!(
        refused.message.contains("value must be null"),
        "{refused:?}"
    );
}

#[test]
fn exports_of_documents_with_warnings_can_be_loaded() {
    let document = json!({"_format_version": "3.0",
        "consumers": [{"username": "c", "plugins": [{"name": "key-auth"}]}]});
    let (running, _) = load(&document);
    let exported = running.export(ExportFormat::Json);
    let exported = serde_json::from_str(&exported).expect("json");
    let (again, loaded) = load(&exported);
    assert_eq!(again.entities, running.entities);
    let warning = "plugin 'key-auth' does not support consumers: it is loaded unchanged and may have no effect";
    assert_eq!(loaded.warnings, [warning]);
}

#[test]
fn a_plugin_at_the_top_level_replaces_the_same_nested_plugin() {
    let plugin = |origin: &str| json!({"name": "cors", "config": {"origins": [origin]}});
    let service = json!({"id": ID, "name": "s", "host": "h",
        "plugins": [plugin("nested"), {"name": "key-auth"}]});
    let documents = |reference: Json| {
        let mut top = plugin("top");
        top["service"] = reference;
        [
            json!({"_format_version": "3.0", "services": [service], "plugins": [top]}),
            json!({"_format_version": "3.0", "plugins": [top], "services": [service]}),
        ]
    };
    let [by_name, by_id] = [json!("s"), json!({"id": ID})].map(documents);
    for document in by_name.into_iter().chain(by_id) {
        let (running, loaded) = load(&document);
        let mut origins = plugins(&running);
        origins.retain(|plugin| plugin.str("name") == Some("cors"));
        assert_eq!(origins.len(), 1);
        let config = format!("{:?}", origins[0].get("config"));
        assert!(
            config.contains("top") && !config.contains("nested"),
            "{config}"
        );
        assert_eq!(
            loaded.warnings,
            [
                "plugin 'cors' nested in services 's' is ignored: the same plugin is configured at the top level for the same entities"
            ]
        );
        assert_eq!(loaded.counts.created, 4);
    }
}

#[test]
fn ignored_plugins_are_still_checked() {
    let document = json!({"_format_version": "3.0", "plugins": [{"name": "cors", "service": "s"}], "services":
        [{"name": "s", "host": "h", "plugins": [{"name": "cors", "config": {"max_age": "x"}}]}]});
    let refused = declarative::load(object(&document), &options(1), &Nothing).expect_err("refused");
    assert!(refused.message.contains("expected a number"), "{refused:?}");
}

#[test]
fn the_same_plugin_twice_at_one_level_is_refused() {
    let twice = json!([{"name": "cors"}, {"id": ID, "name": "cors"}]);
    let equal = json!([{"name": "cors"}, {"name": "cors"}]);
    let services = |plugins: &Json| json!([{"name": "s", "host": "h", "plugins": plugins}]);
    for document in [
        json!({"_format_version": "3.0", "plugins": twice}),
        json!({"_format_version": "3.0", "services": services(&twice)}),
        json!({"_format_version": "3.0", "services": services(&equal),
            "plugins": [{"name": "cors", "service": "s"}]}),
    ] {
        declarative::load(object(&document), &options(1), &Nothing).expect_err("refused");
    }
}

#[test]
fn an_id_given_twice_is_refused_even_if_a_plugin_is_ignored() {
    let document = json!({"_format_version": "3.0",
        "services": [{"name": "s", "host": "h", "plugins": [{"id": ID, "name": "cors"}]}],
        "plugins": [{"id": ID, "name": "cors", "service": "s"}]});
    let refused = declarative::load(object(&document), &options(1), &Nothing).expect_err("refused");
    assert!(refused.message.contains("primary key"), "{refused:?}");
}

#[test]
fn the_number_of_warnings_is_limited() {
    let consumers: Vec<Json> = (0..60)
        .map(|n| json!({"username": format!("c{n}"), "plugins": [{"name": "key-auth"}]}))
        .collect();
    let (_, loaded) = load(&json!({"_format_version": "3.0", "consumers": consumers}));
    assert_eq!(loaded.warnings.len(), 51);
    assert_eq!(loaded.warnings[50], "and 10 more like these");
}

#[test]
fn a_name_cannot_add_a_line_to_a_warning() {
    let consumer = json!({"username": "c\nforged\u{1b}[31m", "plugins": [{"name": "key-auth"}]});
    let (_, document) = load(&json!({"_format_version": "3.0", "consumers": [consumer]}));
    assert_eq!(document.warnings.len(), 1);
    assert!(!document.warnings[0].contains(char::is_control));
}
