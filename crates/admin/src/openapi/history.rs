//! The operations of history.

use super::components::{Components, schema_of};
use super::operation::Operation;
use crate::revisions::answer::{Diff, Listed, RolledBack, Shown};
use crate::shown::Page;
use serde_json::json;

pub(super) fn list(components: &mut Components, operation: Operation) -> Operation {
    let page = components.shared("RevisionPage", schema_of::<Page<Listed>>);
    let time = json!({ "type": "string", "description": "RFC 3339, or seconds since 1970." });
    operation
        .query(
            "since",
            "Only revisions created at this time or later.",
            time.clone(),
        )
        .query(
            "until",
            "Only revisions created at this time or earlier.",
            time,
        )
        .paged()
        .answers(200, "A page of the list.", &page)
}

pub(super) fn show(operation: Operation) -> Operation {
    numbered(operation, &["revision"])
        .paged()
        .answers(
            200,
            "The revision, and a page of its changes.",
            &schema_of::<Shown>(),
        )
        .fails(&[404, 410])
}

pub(super) fn diff(operation: Operation) -> Operation {
    numbered(operation, &["from", "to"])
        .paged()
        .answers(
            200,
            "A page of the entities that differ.",
            &schema_of::<Diff>(),
        )
        .fails(&[404, 410])
}

pub(super) fn rollback(operation: Operation) -> Operation {
    let body = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "message": { "type": "string", "description": "Reason for the rollback, stored with the new revision." },
            "expected_revision": { "type": "integer", "minimum": 0, "description": "Refuse unless this is the newest revision." },
            "entities": {
                "type": "array",
                "minItems": 1,
                "items": { "type": "string" },
                "description": "Restore only these entities, each as type and id or name: `services/billing`. Default: all.",
            },
            "dry_run": { "type": "boolean", "default": false, "description": "Try everything but change nothing." },
        },
    });
    numbered(operation, &["revision"])
        .query(
            "size",
            "Maximum number of changes in the response.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        )
        .takes(&[("application/json", body)], false)
        .answers(
            200,
            "The new revision, live on this node, and its changes.",
            &schema_of::<RolledBack>(),
        )
        .fails(&[404, 409, 410, 503, 507])
}

fn numbered(operation: Operation, names: &[&str]) -> Operation {
    names.iter().fold(operation, |operation, name| {
        let number = json!({ "type": "integer", "minimum": 0 });
        operation.path(name, "Number of a revision.", number)
    })
}
