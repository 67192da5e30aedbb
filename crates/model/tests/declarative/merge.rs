//! Adding a document to the existing configuration removes nothing and recognises existing entities.

use crate::running::Running;
use model::declarative::{Document, Format, format_cli_errors};
use model::schema::RouterFlavor;
use model::{EntityKind, Object};
use serde_json::{Value as Json, json};

const ID: &str = "11111111-2222-4333-8444-555555555555";
const OTHER: &str = "99999999-2222-4333-8444-555555555555";

fn running(document: &Json) -> Running {
    let mut running = Running::default();
    running.merge(document, 100).expect("accepted");
    running
}

fn counts(document: &Document) -> (usize, usize, usize) {
    let counts = document.counts;
    (counts.created, counts.updated, counts.unchanged)
}

fn refused(running: &mut Running, document: &Json) -> String {
    let before = running.entities.clone();
    let error = running.merge(document, 200).expect_err("refused");
    assert_eq!(running.entities, before);
    let text = document.to_string();
    format_cli_errors(
        &error,
        text.as_bytes(),
        Format::Json,
        RouterFlavor::default(),
    )
}

#[test]
fn entities_that_are_not_in_the_document_stay() {
    let mut running = running(&json!({"_format_version": "3.0",
        "services": [{"name": "a", "host": "a"}, {"name": "b", "host": "b"}], "consumers": [{"username": "c"}]}));
    let merged = running
        .merge(
            &json!({"_format_version": "3.0", "services": [{"name": "b", "host": "other"}, {"name": "d", "host": "d"}]}),
            200,
        )
        .expect("accepted");
    assert_eq!(counts(&merged), (1, 1, 0));
    assert_eq!(running.all(EntityKind::Services).len(), 3);
    assert_eq!(running.all(EntityKind::Consumers).len(), 1);
    assert_eq!(running.all(EntityKind::Workspaces).len(), 1);
}

#[test]
fn entities_without_id_are_identified_by_name() {
    let mut running = running(&json!({"_format_version": "3.0",
        "services": [{"id": ID, "name": "s", "host": "h", "plugins": [{"id": OTHER, "name": "key-auth"}]}],
        "upstreams": [{"id": ID, "name": "u", "targets": [{"id": ID, "target": "a:1", "weight": 1}]}],
        "consumers": [{"id": ID, "username": "c", "keyauth_credentials": [{"id": ID, "key": "k"}],
            "acls": [{"id": ID, "group": "g"}]}]}));
    let before: Vec<_> = running.entities.keys().copied().collect();
    let merged = running
        .merge(
            &json!({"_format_version": "3.0",
                "services": [{"name": "s", "host": "other", "plugins": [{"name": "key-auth", "config": {"key_names": ["x"]}}]}],
                "upstreams": [{"name": "u", "targets": [{"target": "a:1", "weight": 2}]}],
                "consumers": [{"username": "c", "keyauth_credentials": [{"key": "k", "tags": ["t"]}], "acls": [{"group": "g"}]}]}),
            200,
        )
        .expect("accepted");
    assert_eq!(counts(&merged), (0, 4, 3));
    let after: Vec<_> = running.entities.keys().copied().collect();
    assert_eq!(after, before);
}

#[test]
fn references_may_point_to_existing_entities() {
    let mut running = running(
        &json!({"_format_version": "3.0", "services": [{"id": ID, "name": "s", "host": "h"}]}),
    );
    running
        .merge(
            &json!({"_format_version": "3.0", "routes": [{"name": "by-name", "paths": ["/a"], "service": "s"},
                {"name": "by-id", "paths": ["/b"], "service": {"id": ID}}]}),
            200,
        )
        .expect("accepted");
    for route in running.all(EntityKind::Routes) {
        let service = route.get("service").and_then(model::Value::as_object);
        assert_eq!(service.and_then(|service| service.str("id")), Some(ID));
    }
    let text = refused(
        &mut running,
        &json!({"_format_version": "3.0", "routes": [{"name": "r", "paths": ["/"], "service": "nowhere"}]}),
    );
    assert!(
        text.contains("invalid reference 'service: nowhere'"),
        "{text}"
    );
    // The document itself renames the service.
    let text = refused(
        &mut running,
        &json!({"_format_version": "3.0", "services": [{"id": ID, "name": "renamed", "host": "h"}],
            "routes": [{"name": "r", "paths": ["/"], "service": "s"}]}),
    );
    assert!(text.contains("invalid reference 'service: s'"), "{text}");
}

#[test]
fn taken_values_are_reported_at_the_entity_that_repeats_them() {
    let mut running = running(&json!({"_format_version": "3.0",
        "services": [{"id": ID, "name": "s", "host": "h", "plugins": [{"id": ID, "name": "key-auth"}]}],
        "consumers": [{"username": "c", "custom_id": "1", "keyauth_credentials": [{"id": ID, "key": "k"}]}]}));
    for (document, parts) in [
        (
            json!({"services": [{"name": "fine", "host": "h"}, {"id": OTHER, "name": "s", "host": "h"}]}),
            [
                "in entry 2 of 'services'",
                "'services' entity with name set to 's' already exists with id '11111111",
            ],
        ),
        (
            json!({"plugins": [{"id": OTHER, "name": "key-auth", "service": "s"}]}),
            [
                OTHER,
                "already exists with id '11111111-2222-4333-8444-555555555555'",
            ],
        ),
        (
            json!({"consumers": [{"username": "d", "custom_id": "1"}]}),
            [
                "in 'd'",
                "'consumers' entity with custom_id set to '1' already exists",
            ],
        ),
        (
            json!({"consumers": [{"username": "d", "keyauth_credentials": [{"id": OTHER, "key": "k"}]}]}),
            [
                "keyauth_credentials",
                "entity with key set to 'k' already exists",
            ],
        ),
        (
            json!({"services": [{"id": OTHER, "name": "x", "host": "h"}, {"id": OTHER, "name": "y", "host": "h"}]}),
            ["in entry 2", "primary key"],
        ),
        (
            json!({"services": [{"name": "x", "hots": "h"}]}),
            ["in 'hots'", "unknown field"],
        ),
        (json!({"servces": []}), ["in 'servces'", "unknown field"]),
    ] {
        let mut document = document;
        document["_format_version"] = "3.0".into();
        let text = refused(&mut running, &document);
        for part in parts {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}

#[test]
fn entities_may_exchange_names() {
    let mut running = running(&json!({"_format_version": "3.0",
        "services": [{"id": ID, "name": "a", "host": "h"}, {"id": OTHER, "name": "b", "host": "h"}]}));
    let before = running.entities.len();
    let merged = merged_without_index(
        &running,
        &json!({"_format_version": "3.0",
            "services": [{"id": ID, "name": "b", "host": "h"}, {"id": OTHER, "name": "a", "host": "h"}]}),
    );
    assert_eq!(counts(&merged), (0, 2, 0));
    running.commit(&merged);
    assert_eq!(running.entities.len(), before);
}

fn merged_without_index(running: &Running, document: &Json) -> Document {
    let text = document.to_string();
    model::declarative::merge(
        text.as_bytes(),
        Format::Json,
        &crate::running::options(200),
        running,
        &mut |_, _| {},
    )
    .expect("accepted")
}

#[test]
fn times_are_those_of_the_document_or_of_the_change() {
    let mut running = running(
        &json!({"_format_version": "3.0", "services": [{"name": "old", "host": "h", "created_at": 5, "updated_at": 7}]}),
    );
    let times = |running: &Running| {
        let service: Object = running.all(EntityKind::Services).remove(0);
        let time = |field: &str| service.get(field).and_then(model::Value::as_int);
        (time("created_at"), time("updated_at"))
    };
    assert_eq!(times(&running), (Some(5), Some(7)));
    let with = |host: &str, updated: Json| json!({"_format_version": "3.0", "services": [{"name": "old", "host": host, "updated_at": updated}]});
    // An export that was edited by hand still has the old `updated_at`.
    running.merge(&with("i", json!(7)), 200).expect("accepted");
    assert_eq!(times(&running), (Some(5), Some(200)));
    running.merge(&with("j", json!(6)), 300).expect("accepted");
    assert_eq!(times(&running), (Some(5), Some(6)));
    running
        .merge(&with("k", json!("x")), 400)
        .expect("accepted");
    assert_eq!(times(&running), (Some(5), Some(400)));
}

#[test]
fn passwords_that_are_exported_are_not_hashed_again() {
    let source = json!({"_format_version": "3.0",
        "consumers": [{"username": "c", "basicauth_credentials": [{"username": "u", "password": "secret"}]}]});
    let mut running = running(&source);
    let hash = |running: &Running| {
        running.all(plugins::kinds::BASICAUTH_CREDENTIALS)[0]
            .str("password")
            .map(str::to_owned)
    };
    let before = hash(&running).expect("a password");
    assert_ne!(before, "secret");
    let again = running.merge(&source, 200).expect("accepted");
    assert_eq!(again.puts, []);
    let stored = json!({"_format_version": "3.0", "_transform": false,
        "consumers": [{"username": "c", "basicauth_credentials": [{"username": "u", "password": before}]}]});
    assert_eq!(running.merge(&stored, 300).expect("accepted").puts, []);
}

#[test]
fn a_truncated_text_is_refused_wherever_it_ends() {
    let mut running =
        running(&json!({"_format_version": "3.0", "services": [{"name": "a", "host": "a"}]}));
    let text =
        json!({"_format_version": "3.0", "services": [{"name": "b", "host": "b", "tags": ["x"]}]})
            .to_string();
    for end in 0..text.len() {
        let piece = &text.as_bytes()[..end];
        assert!(
            running.merge_text(piece, Format::Json, 200).is_err(),
            "{end}"
        );
    }
    assert_eq!(running.all(EntityKind::Services).len(), 1);
}

#[test]
fn progress_is_reported_in_order_to_the_end() {
    let services: Vec<_> = (0..2500)
        .map(|number| json!({"name": format!("s{number}"), "host": "h"}))
        .collect();
    let text = json!({"_format_version": "3.0", "services": services}).to_string();
    let mut told = Vec::new();
    model::declarative::merge(
        text.as_bytes(),
        Format::Json,
        &crate::running::options(1),
        &Running::default(),
        &mut |done, total| told.push((done, total)),
    )
    .expect("accepted");
    // The default workspace counts as an entity.
    assert_eq!(told, [(1000, 2501), (2000, 2501), (2501, 2501)]);
}
