//! The operations that explain routing.

use super::components::{Components, schema_of, text};
use super::operation::Operation;
use crate::explain::question::{CLOSEST, LIMIT, MOST, Protocol};
use crate::explain::{Conflicts, Explanation};
use serde_json::{Value, json};

pub(super) fn explain(components: &mut Components, operation: Operation) -> Operation {
    let answer = components.shared("Explanation", schema_of::<Explanation>);
    operation
        .takes(&[("application/json", question())], true)
        .answers(
            200,
            "How the gateway handles the request, and why.",
            &answer,
        )
}

pub(super) fn conflicts(operation: Operation) -> Operation {
    operation
        .query(
            "route",
            "Only conflicts of the route with this id or name.",
            text(),
        )
        .query(
            "size",
            "Maximum number of conflicts of each kind.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        )
        .answers(200, "The conflicts.", &schema_of::<Conflicts>())
}

/// Schema of the body that [`crate::explain::Question::read`] accepts. It is not derived from a struct, because the
/// reader continues after an error in order to report all of them. A test compares the two.
fn question() -> Value {
    let end = json!({
        "description": "`1.2.3.4:5`, an address alone, or `:5`.",
        "anyOf": [text(), {
            "type": "object",
            "additionalProperties": false,
            "minProperties": 1,
            "properties": {
                "ip": text(),
                "port": { "type": "integer", "minimum": 0, "maximum": 65535 },
            },
        }],
    });
    let values = json!({ "anyOf": [text(), list(text())] });
    let bound = |least, default| json!({ "type": "integer", "minimum": least, "maximum": MOST, "default": default });
    let protocols = Protocol::ALL.map(Protocol::name);
    let about = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "method": { "type": "string", "default": "GET" },
            "url": about("Replaces `protocol`, `host` and `path`."),
            "protocol": { "type": "string", "enum": protocols, "default": "http" },
            "host": about("The host, with its port if that is not the default."),
            "path": { "type": "string", "description": "The path with the query.", "default": "/" },
            "headers": { "type": "object", "additionalProperties": values },
            "source": end,
            "destination": end,
            "sni": about("Server name in the TLS handshake. Default: with https and tls, the name in the URL or host; empty for none."),
            "route": about("Id or name of a route that is explained even if it is not a candidate."),
            "consumer": about("Id or username of the consumer whose plugins are shown."),
            "closest": bound(0, CLOSEST),
            "limit": bound(1, LIMIT),
        },
    })
}

fn list(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Question;
    use boon::{Compiler, Schemas};
    use std::collections::BTreeSet;

    fn read(body: &Value) -> Option<Question> {
        let body = serde_json::from_value::<model::Object>(body.clone());
        Question::read(body.expect("the body must be an object")).ok()
    }

    /// For each field, valid and invalid values.
    fn cases() -> Vec<(&'static str, Vec<Value>, Vec<Value>)> {
        let texts = |texts: &[&str]| texts.iter().map(|text| json!(text)).collect::<Vec<_>>();
        let ends = || {
            let fine = [
                json!("1.2.3.4:5"),
                json!("::1"),
                json!(":5"),
                json!({ "ip": "1.2.3.4" }),
                json!({ "port": 65535 }),
            ];
            let wrong = [
                json!(1),
                json!({}),
                json!({ "port": 65536 }),
                json!({ "port": -1 }),
                json!({ "ip": 1 }),
                json!({ "ip": "1.2.3.4", "name": "a" }),
            ];
            (fine.to_vec(), wrong.to_vec())
        };
        let bound = |least: i64| {
            let fine = vec![json!(least), json!(MOST)];
            (fine, vec![json!(least - 1), json!(MOST + 1), json!("1")])
        };
        let headers = vec![json!({}), json!({ "a": "1", "b": ["2", "3"], "c": [] })];
        let no_headers = vec![json!("a"), json!({ "a": 1 }), json!({ "a": [1] })];
        let wrong = || vec![json!(1), json!(["a"]), json!({})];
        let (source, no_source) = ends();
        let (destination, no_destination) = ends();
        let (closest, limit) = (bound(0), bound(1));
        let protocols = Protocol::ALL.map(|protocol| json!(protocol.name()));
        vec![
            ("method", texts(&["GET", "a"]), wrong()),
            ("url", texts(&["http://a/b?c"]), wrong()),
            ("protocol", protocols.to_vec(), vec![json!("ftp"), json!(1)]),
            ("host", texts(&["a", "a:1"]), wrong()),
            ("path", texts(&["/", "/a?b"]), wrong()),
            ("headers", headers, no_headers),
            ("source", source, no_source),
            ("destination", destination, no_destination),
            ("sni", texts(&["", "a"]), wrong()),
            ("route", texts(&["a"]), wrong()),
            ("consumer", texts(&["a"]), wrong()),
            ("closest", closest.0, closest.1),
            ("limit", limit.0, limit.1),
        ]
    }

    #[test]
    fn a_question_is_described_as_it_is_read() {
        let schema = question();
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler
            .add_resource("http://a.test/question", schema.clone())
            .unwrap();
        let compiled = compiler
            .compile("http://a.test/question", &mut schemas)
            .unwrap();
        let check = |body: Value, is_fine: bool| {
            let is_described = schemas.validate(&body, compiled).is_ok();
            let is_read = read(&body).is_some();
            assert_eq!((is_described, is_read), (is_fine, is_fine), "{body}");
        };
        let cases = cases();
        for (name, fine, wrong) in &cases {
            fine.iter()
                .for_each(|value| check(json!({ *name: value }), true));
            wrong
                .iter()
                .for_each(|value| check(json!({ *name: value }), false));
        }
        check(json!({ "more": 1 }), false);
        let described = schema["properties"].as_object().unwrap().keys();
        let tried = cases.iter().map(|(name, ..)| *name);
        assert_eq!(
            described.map(String::as_str).collect::<BTreeSet<_>>(),
            tried.collect()
        );
    }

    #[test]
    fn the_defaults_of_a_question_are_as_described() {
        let schema = question();
        let properties = schema["properties"].as_object().unwrap().iter();
        let defaults: serde_json::Map<String, Value> = properties
            .filter(|(_, schema)| !schema["default"].is_null())
            .map(|(name, schema)| (name.clone(), schema["default"].clone()))
            .collect();
        assert_eq!(defaults.len(), 5);
        assert_eq!(read(&Value::Object(defaults)), read(&json!({})));
    }
}
