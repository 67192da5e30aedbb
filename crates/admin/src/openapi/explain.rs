//! The operations that tell why requests get the routes that they get.

use super::components::{Components, schema_of, text};
use super::operation::Operation;
use crate::explain::{Conflicts, Explanation};
use serde_json::{Value, json};

pub(super) fn explain(components: &mut Components, operation: Operation) -> Operation {
    let answer = components.shared("Explanation", schema_of::<Explanation>);
    operation
        .takes(&[("application/json", question())], true)
        .answers(200, "What becomes of the request, and why.", &answer)
}

pub(super) fn conflicts(operation: Operation) -> Operation {
    operation
        .query(
            "route",
            "Only conflicts of this route: its id or name.",
            text(),
        )
        .query(
            "size",
            "How many of each kind at most.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        )
        .answers(200, "The conflicts.", &schema_of::<Conflicts>())
}

fn question() -> Value {
    let end = json!({
        "description": "`1.2.3.4:5`, an address alone, or `:5`.",
        "anyOf": [text(), {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "ip": text(),
                "port": { "type": "integer", "minimum": 0, "maximum": 65535 },
            },
        }],
    });
    let values = json!({ "anyOf": [text(), list(text())] });
    let bound = |least, default| json!({ "type": "integer", "minimum": least, "maximum": 1000, "default": default });
    let about = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "method": { "type": "string", "default": "GET" },
            "url": about("In place of `protocol`, `host` and `path`."),
            "protocol": { "type": "string", "enum": ["http", "https", "tcp", "tls", "udp"], "default": "http" },
            "host": about("With its port if it is not the usual one."),
            "path": { "type": "string", "description": "With the query.", "default": "/" },
            "headers": { "type": "object", "additionalProperties": values },
            "source": end,
            "destination": end,
            "sni": about("Of the TLS handshake; by default that of the URL or host, and none where it is empty."),
            "route": about("Id or name of a route to explain whether or not it is a candidate."),
            "consumer": about("Id or username of the consumer whose plugins are to be told."),
            "closest": bound(0, 5),
            "limit": bound(1, 100),
        },
    })
}

fn list(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}
