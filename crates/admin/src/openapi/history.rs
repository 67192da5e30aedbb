//! The operations of history.

use super::components::{Components, integer, object, page_of, text};
use super::operation::Operation;
use serde_json::{Value, json};

pub(super) fn list(components: &mut Components, operation: Operation) -> Operation {
    let change = change(components);
    let page = components.shared("RevisionPage", || {
        let mut item = revision();
        item["properties"]["change"] = change;
        page_of(&item)
    });
    let time = json!({ "type": "string", "description": "RFC 3339, or seconds since 1970." });
    operation
        .query(
            "since",
            "Only those made at this time or later.",
            time.clone(),
        )
        .query("until", "Only those made at this time or earlier.", time)
        .paged()
        .answers(200, "A page of the list.", &page)
}

pub(super) fn show(components: &mut Components, operation: Operation) -> Operation {
    let change = change(components);
    let shown = with_page(revision(), &change);
    numbered(operation, &["revision"])
        .paged()
        .answers(200, "The revision, and a page of what it changed.", &shown)
        .fails(&[404, 410])
}

pub(super) fn diff(components: &mut Components, operation: Operation) -> Operation {
    let change = change(components);
    let ends = object([("from", integer()), ("to", integer())]);
    numbered(operation, &["from", "to"])
        .paged()
        .answers(
            200,
            "A page of the entities that differ.",
            &with_page(ends, &change),
        )
        .fails(&[404, 410])
}

pub(super) fn rollback(components: &mut Components, operation: Operation) -> Operation {
    let change = change(components);
    let body = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "message": { "type": "string", "description": "Kept with the new revision." },
            "expected_revision": { "type": "integer", "minimum": 0, "description": "Refuse when the newest revision is another." },
            "dry_run": { "type": "boolean", "default": false, "description": "Try everything and keep nothing." },
        },
    });
    let done = object([
        ("revision", integer()),
        ("rolled_back_to", integer()),
        ("dry_run", json!({ "type": "boolean" })),
        ("created", integer()),
        ("updated", integer()),
        ("deleted", integer()),
    ]);
    numbered(operation, &["revision"])
        .query(
            "size",
            "How many of its changes the answer has at most.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        )
        .takes(&[("application/json", body)], false)
        .answers(
            200,
            "The new revision, live on this node, and what it changed.",
            &with_page(done, &change),
        )
        .fails(&[404, 409, 410, 503, 507])
}

fn numbered(operation: Operation, names: &[&str]) -> Operation {
    names.iter().fold(operation, |operation, name| {
        let number = json!({ "type": "integer", "minimum": 0 });
        operation.path(name, "The number of a revision.", number)
    })
}

/// An object that is also a page of changes.
fn with_page(mut object: Value, change: &Value) -> Value {
    let page = page_of(change);
    for (name, schema) in page["properties"].as_object().into_iter().flatten() {
        object["properties"][name] = schema.clone();
    }
    for name in page["required"].as_array().into_iter().flatten() {
        if let Some(required) = object["required"].as_array_mut() {
            required.push(name.clone());
        }
    }
    object
}

fn revision() -> Value {
    let maybe = json!({ "type": ["string", "null"] });
    object([
        ("revision", integer()),
        ("time", json!({ "type": "string", "format": "date-time" })),
        (
            "source",
            json!({ "type": "string", "description": "The address of the client, or the part of the program that made it." }),
        ),
        ("actor", maybe.clone()),
        ("request_id", maybe.clone()),
        ("message", maybe),
        ("created", integer()),
        ("updated", integer()),
        ("deleted", integer()),
    ])
}

fn change(components: &mut Components) -> Value {
    components.shared("RevisionChange", || {
        let state = json!({ "type": ["object", "null"] });
        object([
            (
                "action",
                json!({ "type": "string", "enum": ["create", "update", "delete"] }),
            ),
            ("type", text()),
            ("id", json!({ "type": "string", "format": "uuid" })),
            ("before", state.clone()),
            ("after", state),
        ])
    })
}
