//! Adversarial input: the loader must not panic, and must return an error or a document in bounded time and memory.

use crate::numbers::Numbers;
use crate::running::{Running, options};
use model::declarative::{Format, Loader, Nothing, Source, format_cli_errors, load, parse, sniff};
use model::schema::RouterFlavor;
use serde_json::json;

fn try_all(text: &[u8]) {
    let _ = sniff(text);
    for format in [Format::Auto, Format::Json, Format::Yaml] {
        let _ = parse(text, format);
        let loaded = Loader::new().load(Source::Text(text, format), &options(1), &Nothing, 0);
        if let Err(error) = loaded {
            let listing = format_cli_errors(&error, text, format, RouterFlavor::default());
            assert!(!listing.is_empty());
        }
    }
    let _ = Loader::new().load(Source::JsonBody(text), &options(1), &Nothing, 0);
}

#[test]
fn no_bytes_cause_a_panic() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let alphabet: &[&[u8]] = &[
        b"a",
        b":",
        b" ",
        b"\n",
        b"-",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b"\"",
        b"'",
        b"&a",
        b"*a",
        b"!",
        b"!!int ",
        b"|",
        b">",
        b"#",
        b"%",
        b"@",
        b"?",
        b"<<",
        b"\t",
        b"\r",
        b"\0",
        b"\\",
        b"~",
        b"1",
        b"---",
        b"...",
        "é".as_bytes(),
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"services",
        b"\"services\":[",
        b"_format_version",
        b"%TAG ! x",
        b"%YAML 1.1\n",
        b"%41",
    ];
    for _ in 0..1500 {
        let mut text = Vec::new();
        for _ in 0..numbers.below(24) {
            text.extend_from_slice(alphabet[numbers.below(alphabet.len())]);
        }
        try_all(&text);
    }
}

#[test]
fn no_change_of_a_document_causes_a_panic() {
    let document = json!({"_format_version": "2.1", "_comment": "x", "services": [{"name": "s", "url": "http://h:1/p",
        "routes": [{"name": "r", "paths": ["/x", "/a(b"], "plugins": [{"name": "key-auth", "config": {"key_names": ["k"]}}]}]}],
        "consumers": [{"username": "c", "keyauth_credentials": [{"key": "k", "ttl": 5}], "acls": [{"group": "g"}]}],
        "upstreams": [{"name": "u", "targets": [{"target": "1.2.3.4"}]}], "plugins": [{"name": "cors", "service": "s"}],
        "certificates": [{"cert": "c", "key": "k", "snis": [{"name": "n"}]}], "vaults": [{"name": "env", "prefix": "e"}]});
    let text = document.to_string().into_bytes();
    let mut numbers = Numbers(7);
    for _ in 0..600 {
        let mut changed = text.clone();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(changed.len());
            match numbers.below(3) {
                0 => changed[at] = b"[]{}\",:0a-\n\xff"[numbers.below(12)],
                1 => drop(changed.drain(at..(at + numbers.below(20)).min(changed.len()))),
                _ => {
                    let from = numbers.below(changed.len());
                    let piece = changed[from..(from + 15).min(changed.len())].to_vec();
                    changed.splice(at..at, piece);
                }
            }
            if changed.is_empty() {
                break;
            }
        }
        try_all(&changed);
    }
}

#[test]
fn any_value_in_any_position_is_accepted_or_refused() {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("x"),
        json!([]),
        json!([[]]),
        json!([null]),
        json!({}),
        json!({"id": 1}),
        json!([{"id": []}]),
        json!({"a": {"b": []}}),
    ];
    for kind in model::EntityKind::all() {
        let schema = plugins::install().entity(kind);
        let mut names: Vec<String> = [
            "id",
            "name",
            "ttl",
            "tags",
            "routes",
            "plugins",
            "snis",
            "key",
            "config",
            "protocols",
        ]
        .map(str::to_owned)
        .to_vec();
        names.extend(schema.foreign.iter().map(|foreign| foreign.name.clone()));
        for value in &values {
            for name in &names {
                let document =
                    json!({"_format_version": "3.0", kind.name(): [{name: value}, {name: value}]});
                let object = serde_json::from_value(document.clone()).expect("an object");
                for flatten_errors in [false, true] {
                    let options = model::declarative::Options {
                        flatten_errors,
                        ..options(1)
                    };
                    if let Err(error) = load(Clone::clone(&object), &options, &Nothing) {
                        assert!(
                            error
                                .message
                                .starts_with("declarative config is invalid: {"),
                            "{error}"
                        );
                    }
                }
            }
            let document = json!({"_format_version": "3.0", kind.name(): value});
            let _ = Running::default().post(&document, 1);
        }
    }
}

#[test]
fn ten_thousand_problems_are_reported_in_linear_time() {
    let routes: Vec<_> = (0..10_000)
        .map(|number| json!({"name": format!("r{number}"), "paths": ["/"], "service": "missing"}))
        .collect();
    let error = Running::default()
        .post(&json!({"_format_version": "3.0", "routes": routes}), 1)
        .expect_err("refused");
    let fields = error.fields.expect("fields");
    let routes = fields.get("routes").and_then(model::Value::as_object);
    assert_eq!(routes.map(model::Object::len), Some(10_000));
}
