//! The operations that tell why requests get the routes that they get.

use super::components::{Components, integer, object, text};
use super::operation::Operation;
use serde_json::{Value, json};

pub(super) fn explain(components: &mut Components, operation: Operation) -> Operation {
    let answer = components.shared("Explanation", explanation);
    operation
        .takes(&[("application/json", question())], true)
        .answers(200, "What becomes of the request, and why.", &answer)
}

pub(super) fn conflicts(operation: Operation) -> Operation {
    let never = object([
        ("route", named()),
        ("expression", text()),
        ("whole", json!({ "type": "boolean" })),
        (
            "reason",
            json!({ "type": "string", "enum": ["contradiction", "shadowed"] }),
        ),
        ("by", list(named())),
    ]);
    let example = json!({ "type": "object", "description": "As `POST /router/explain` takes it." });
    let tie = object([
        ("first", named()),
        ("second", named()),
        ("example", nullable(&example)),
    ]);
    let found = object([
        ("revision", integer()),
        ("never", list(never)),
        ("ties", list(tie)),
        ("undecided", integer()),
        ("truncated", json!({ "type": "boolean" })),
    ]);
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
        .answers(200, "The conflicts.", &found)
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

fn explanation() -> Value {
    let candidate = candidate();
    object([
        ("revision", integer()),
        ("flavor", text()),
        ("request", seen()),
        ("matched", nullable(&named())),
        ("candidates", list(candidate.clone())),
        ("omitted", integer()),
        ("closest", list(candidate.clone())),
        ("route?", with(named(), "candidates", list(candidate))),
        ("plugins", list(plugin())),
        ("service", nullable(&service())),
        ("upstream", nullable(&upstream())),
        (
            "captures",
            json!({ "type": "object", "additionalProperties": text() }),
        ),
        (
            "answer",
            nullable(&object([
                ("status", integer()),
                ("message", text()),
                ("location?", text()),
                ("after_plugins", json!({ "type": "boolean" })),
            ])),
        ),
    ])
}

fn seen() -> Value {
    object([
        ("protocol", text()),
        ("method?", text()),
        ("host?", text()),
        ("path?", text()),
        ("sni?", text()),
        ("source?", text()),
        ("destination?", text()),
    ])
}

fn candidate() -> Value {
    let found = json!({
        "type": "object",
        "description": "The values that the request has of the fields that the part asks for.",
        "additionalProperties": list(text()),
    });
    let reason = object([
        ("part", text()),
        ("any_of?", list(text())),
        ("found", found),
    ]);
    object([
        ("route", named()),
        ("place", integer()),
        ("rank", list(text())),
        ("expression", text()),
        (
            "verdict",
            json!({ "type": "string", "enum": ["matches", "comes_later", "fails"] }),
        ),
        ("reasons", list(reason)),
    ])
}

fn plugin() -> Value {
    object([
        ("name", text()),
        ("priority", integer()),
        ("phases", list(text())),
        ("scope", nullable(&text())),
        ("id?", id()),
        ("instance_name?", text()),
        ("consumers", integer()),
        ("refuses?", json!({ "type": "boolean" })),
    ])
}

fn service() -> Value {
    object([
        ("id", id()),
        ("name", nullable(&text())),
        ("protocol", text()),
        ("host", text()),
        ("port?", integer()),
        ("upstream?", named()),
    ])
}

fn upstream() -> Value {
    object([
        ("uri", text()),
        ("host", nullable(&text())),
        ("stripped?", text()),
    ])
}

fn named() -> Value {
    object([("id", id()), ("name", nullable(&text()))])
}

fn id() -> Value {
    json!({ "type": "string", "format": "uuid" })
}

fn list(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

fn nullable(schema: &Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn with(mut schema: Value, field: &str, more: Value) -> Value {
    schema["properties"][field] = more;
    if let Some(required) = schema["required"].as_array_mut() {
        required.push(field.into());
    }
    schema
}
