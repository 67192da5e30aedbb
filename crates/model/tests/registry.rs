//! The registry: what plugins bring to it, and the mistakes that it refuses.

use model::schema::{
    Checks, Context, Conversion, EntitySource, PluginSource, Registry, Transformation,
};
use model::{EntityKind, Object, Value};
use serde_json::json;
use std::time::Duration;

const TICKETS: EntityKind = EntityKind::new(60);
const SEATS: EntityKind = EntityKind::new(50);

const PLUGIN: &str = r#"{
    "name": "theater", "priority": 7, "phases": ["access"],
    "fields": [{"config": {"type": "record", "required": true, "fields": [
        {"play": {"type": "string", "validator": "play"}}
    ]}}],
    "entity_checks": []
}"#;

/// The kind with the lower number refers to the other one.
const OF_SEATS: &str = r#"{
    "name": "seats", "primary_key": ["id"], "plugin": "theater",
    "fields": [
        {"id": {"type": "string", "auto": true, "uuid": true}},
        {"ticket": {"type": "foreign", "reference": "tickets", "on_delete": "cascade"}},
        {"row": {"type": "integer"}},
        {"code": {"type": "string"}}
    ],
    "shorthand_fields": [{"place": {"type": "integer", "func": "place"}}],
    "entity_checks": [{"custom_entity_check": {"field_sources": ["row"], "fn": "row"}}],
    "transformations": ["code"]
}"#;

const OF_TICKETS: &str = r#"{
    "name": "tickets", "primary_key": ["id"], "plugin": "theater",
    "fields": [{"id": {"type": "string", "auto": true, "uuid": true}}], "entity_checks": []
}"#;

const CHECKS: Checks = Checks {
    validators: &[("play", |value, _| match value.as_str() {
        Some("Hamlet") => Ok(()),
        _ => Err("not on the programme".into()),
    })],
    rules: &[("row", |values, _| match values {
        [Value::Int(13)] => Err("there is no such row".to_owned()),
        _ => Ok(()),
    })],
    shorthands: &[Conversion {
        name: "place",
        fills: &["row"],
        apply: |value, input| {
            input.insert("row", value);
        },
    }],
    transformations: &[Transformation {
        name: "code",
        input: "code",
        replaces_input: true,
        staleness: |_, _| None,
        apply: |entity| {
            entity.insert("code", "hidden".into());
            Ok(())
        },
    }],
};

const ENTITIES: &[EntitySource] = &[
    EntitySource {
        kind: SEATS,
        name: "seats",
        schema: OF_SEATS,
    },
    EntitySource {
        kind: TICKETS,
        name: "tickets",
        schema: OF_TICKETS,
    },
];

const THEATER: PluginSource = PluginSource {
    name: "theater",
    schema: PLUGIN,
    entities: ENTITIES,
    checks: CHECKS,
};

fn completed(
    registry: &Registry,
    kind: EntityKind,
    input: serde_json::Value,
) -> Result<Object, String> {
    let input: Object = serde_json::from_value(input).expect("an object");
    let context = Context::at(Duration::from_secs(1));
    let completed = registry.entity(kind).complete(input, &context);
    completed.map_err(|error| error.to_string())
}

#[test]
fn a_plugin_brings_entities_and_functions() {
    let registry = Registry::new(&[THEATER]).expect("the schemas are right");
    let seat = completed(&registry, SEATS, json!({"place": 4, "code": "x"}));
    let seat = seat.expect("a seat");
    assert_eq!(seat.get("row"), Some(&Value::Int(4)));
    assert_eq!(seat.str("code"), Some("hidden"));
    assert!(registry.entity(SEATS).is_transformed());
    let refused = completed(&registry, SEATS, json!({"row": 13})).expect_err("refused");
    assert!(refused.contains("there is no such row"), "{refused}");
    let plugin = |play: &str| json!({"name": "theater", "config": {"play": play}});
    completed(&registry, EntityKind::Plugins, plugin("Hamlet")).expect("accepted");
    let refused = completed(&registry, EntityKind::Plugins, plugin("Faust"));
    let refused = refused.expect_err("refused");
    assert!(refused.contains("not on the programme"), "{refused}");
}

#[test]
fn each_kind_comes_after_those_that_it_refers_to() {
    let theater = Registry::new(&[THEATER]).expect("the schemas are right");
    for registry in [&theater, plugins::install()] {
        let at = |kind| registry.kinds().iter().position(|one| *one == kind);
        for schema in registry.entities() {
            for foreign in &schema.foreign {
                assert!(at(foreign.kind) < at(schema.kind), "{}", schema.name);
            }
        }
    }
}

#[test]
fn a_registry_of_other_plugins_is_not_installed_later() {
    plugins::install();
    let error = model::schema::install(&[THEATER]).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "schema of theater: this process has already installed other schemas"
    );
}

/// Returns the error of a registry with this plugin.
fn mistake(source: PluginSource) -> String {
    let built = Registry::new(&[source]);
    built.err().map_or_else(String::new, |one| one.to_string())
}

fn with_schema(schema: &str) -> String {
    mistake(PluginSource {
        schema: String::leak(schema.to_owned()),
        ..THEATER
    })
}

fn with_entities(change: fn(&mut Vec<EntitySource>)) -> String {
    let mut entities = ENTITIES.to_vec();
    change(&mut entities);
    mistake(PluginSource {
        entities: Vec::leak(entities),
        ..THEATER
    })
}

#[test]
fn mistakes_in_a_schema_are_errors_that_name_the_field() {
    let replaced = |from: &str, to: &str| with_schema(&PLUGIN.replace(from, to));
    let validator = r#""validator": "play""#;
    for (mistake, expected) in [
        (
            replaced(validator, r#""validator": "opera""#),
            "theater: config: play: validator: unknown validator opera",
        ),
        (
            replaced(r#""type": "string""#, r#""type": "text""#),
            "theater: config: play: unknown type text",
        ),
        (
            replaced(r#""type": "string", "#, ""),
            "theater: config: play: type is missing",
        ),
        (
            replaced(validator, r#""len_min": "one""#),
            "theater: config: play: len_min: expected a length: \"one\"",
        ),
        (
            replaced(validator, r#""match": "[""#),
            "theater: config: play: match: ",
        ),
        (
            replaced(
                r#""entity_checks": []"#,
                r#""entity_checks": [{"custom_entity_check": {"field_sources": [], "fn": "none"}}]"#,
            ),
            "theater: custom_entity_check: unknown check none",
        ),
        (
            replaced(
                r#""entity_checks": []"#,
                r#""entity_checks": [{"sorted": []}]"#,
            ),
            "theater: sorted: unknown check",
        ),
        (
            replaced(
                r#""entity_checks": []"#,
                r#""entity_checks": [{"only_one_of": ["config.stage"]}]"#,
            ),
            "theater: only_one_of: there is no field config.stage",
        ),
        (
            replaced(r#"{"config""#, r#"{"a": 1, "config""#),
            "theater: expected one entry: ",
        ),
        (
            replaced(r#""priority": 7"#, r#""priority": 3000000000"#),
            "theater: the priority is out of range",
        ),
        (
            replaced(r#""name": "theater""#, r#""name": "cinema""#),
            "theater: name: not the name of its source",
        ),
        (with_schema("{"), "theater: EOF while parsing"),
    ] {
        let expected = format!("schema of {expected}");
        assert!(mistake.starts_with(&expected), "{mistake:?} {expected:?}");
    }
}

#[test]
fn mistakes_in_kinds_are_errors() {
    fn seats(change: impl Fn(&str) -> String) -> EntitySource {
        EntitySource {
            schema: String::leak(change(OF_SEATS)),
            ..ENTITIES[0]
        }
    }
    for (mistake, expected) in [
        (
            with_entities(|all| all[0].kind = TICKETS),
            "tickets: another kind has the same number",
        ),
        (
            with_entities(|all| all[0].kind = EntityKind::Services),
            "seats: the number of the kind is out of range",
        ),
        (
            with_entities(|all| all[0].kind = EntityKind::new(64)),
            "seats: the number of the kind is out of range",
        ),
        (
            with_entities(|all| all[0].name = "services"),
            "services: another kind has the same name",
        ),
        (
            with_entities(|all| all.truncate(1)),
            "seats: ticket: reference to the unknown entity tickets",
        ),
        (
            with_entities(|all| all[0] = seats(|text| text.replace("theater", "cinema"))),
            "seats: plugin: not the plugin that brings it",
        ),
        (
            with_entities(|all| all[0] = seats(|text| text.replace(r#"["code"]"#, r#"["c"]"#))),
            "seats: unknown transformation c",
        ),
        (
            with_entities(|all| {
                all[0] = seats(|text| text.replace(r#""func": "place""#, r#""func": "p""#));
            }),
            "seats: place: unknown function p",
        ),
        (
            with_entities(|all| {
                all[0] = seats(|text| {
                    let nested = r#""plugin": "theater", "nested_key": "code""#;
                    text.replace(r#""plugin": "theater""#, nested)
                });
            }),
            "seats: nested_key: ",
        ),
        (
            with_entities(|all| {
                let schema = OF_TICKETS.replace(
                    r#""uuid": true}}"#,
                    r#""uuid": true}}, {"seat": {"type": "foreign", "reference": "seats"}}"#,
                );
                all[1].schema = String::leak(schema);
            }),
            "seats: its references lead back to itself",
        ),
    ] {
        let expected = format!("schema of {expected}");
        assert!(mistake.starts_with(&expected), "{mistake:?} {expected:?}");
    }
    let checks = Checks {
        validators: &[("host", |_, _| Ok(()))],
        ..CHECKS
    };
    assert_eq!(
        mistake(PluginSource { checks, ..THEATER }),
        "schema of theater: there is another function with the name host"
    );
    let twice = Registry::new(&[THEATER, THEATER]).expect_err("refused");
    assert_eq!(
        twice.to_string(),
        "schema of theater: the plugin occurs twice"
    );
}
