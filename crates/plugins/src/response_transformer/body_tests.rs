//! Tests of the rules for JSON bodies.

use super::*;
use crate::testing::config;
use serde_json::json;

fn rules(given: serde_json::Value) -> Rules {
    Rules::compile(&config("response-transformer", given))
}

fn changed(given: serde_json::Value, body: &str) -> String {
    let changed = rules(given).transform(body.as_bytes());
    String::from_utf8(changed.expect("the body is an object")).expect("the result is a text")
}

#[test]
fn rules_apply_in_their_order() {
    let given = json!({
        "remove": {"json": ["a"]}, "rename": {"json": ["b:c", "none:x"]},
        "replace": {"json": ["c:new", "d:no"]}, "add": {"json": ["e:1", "c:no"]}, "append": {"json": ["e:2"]},
    });
    let body = r#"{"a":1,"b":"old","z":[1.50, 1e400]}"#;
    assert_eq!(
        changed(given, body),
        r#"{"z":[1.50, 1e400],"c":"new","e":["1","2"]}"#
    );
}

#[test]
fn values_have_types_by_position() {
    let given = json!({"add": {
        "json": ["a:b:c", "b:-1.5", "c:true", "d:TRUE", "e:x", "f:0x1F", "g:1e3", "h:\"q\"", "i:"],
        "json_types": ["string", "number", "boolean", "boolean", "number", "number", "number"],
    }});
    let wanted = r#"{"a":"b:c","b":-1.5,"c":true,"d":false,"f":31,"g":1000,"h":"\"q\""}"#;
    assert_eq!(changed(given, "{}"), wanted);
}

#[test]
fn false_counts_as_absent_and_null_does_not() {
    let body = r#"{"f":false,"n":null}"#;
    let replace = json!({"replace": {"json": ["f:1", "n:1", "o:1"]}});
    assert_eq!(changed(replace, body), r#"{"f":false,"n":"1"}"#);
    let add = json!({"add": {"json": ["f:1", "n:1", "o:1"]}});
    assert_eq!(changed(add, body), r#"{"f":"1","n":null,"o":"1"}"#);
    let rename = json!({"rename": {"json": ["f:x", "n:y"]}});
    assert_eq!(changed(rename, body), r#"{"x":false,"y":null}"#);
}

#[test]
fn a_further_value_extends_lists_and_texts() {
    let cases = [
        (r#"{"a":"x"}"#, r#"{"a":["x","v"]}"#),
        (r#"{"a": [ 1 , [2] ] }"#, r#"{"a":[1 , [2],"v"]}"#),
        (r#"{"a":[ ]}"#, r#"{"a":["v"]}"#),
        (r#"{"a":5}"#, r#"{"a":["v"]}"#),
        (r#"{"a":null}"#, r#"{"a":["v"]}"#),
        (r#"{"a":{}}"#, r#"{"a":["v"]}"#),
        (
            r#"{"a":{"1":"x","b":2}}"#,
            r#"{"a":{"1":"x","b":2,"2":"v"}}"#,
        ),
        ("{}", r#"{"a":["v"]}"#),
    ];
    for (body, wanted) in cases {
        let given = json!({"append": {"json": ["a:v"]}});
        assert_eq!(changed(given, body), wanted, "{body}");
    }
}

#[test]
fn a_member_cannot_hide_from_a_rule() {
    let remove = || json!({"remove": {"json": ["secret"]}});
    let deep = format!(
        r#"{{"secret":1,"d":{}{}}}"#,
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    assert!(!changed(remove(), &deep).contains("secret"));
    assert_eq!(
        changed(remove(), r#"{"secret":1,"a":2,"secret":3}"#),
        r#"{"a":2}"#
    );
    assert_eq!(changed(remove(), r#"{"s\u0065cret":1}"#), "{}");
    assert_eq!(
        changed(remove(), r#"{"secret":1,"x":"\ud800"}"#),
        r#"{"x":"\ud800"}"#
    );
    let mended = changed(remove(), r#"{"secret":1,"\ud800":2}"#);
    assert_eq!(mended, "{\"\u{fffd}\":2}");
    assert_eq!(
        changed(remove(), "{\"secret\":1,\"x\":NaN,\"y\":\"a\tb\"}"),
        r#"{"x":null,"y":"a\u0009b"}"#
    );
    let bytes = rules(remove()).transform(b"{\"secret\":1,\"x\":\"\xff\"}");
    assert_eq!(bytes.as_deref(), Some("{\"x\":\"\u{fffd}\"}".as_bytes()));
}

#[test]
fn what_is_no_object_stays() {
    let rules = rules(json!({"add": {"json": ["a:1"]}}));
    for body in ["", "[1]", "\"a\"", "5", "null", "{", "{}}", "{\"a\":1,}"] {
        assert_eq!(rules.transform(body.as_bytes()), None, "{body}");
    }
    assert_eq!(rules.transform(b"\x1f\x8b\x08"), None);
}

#[test]
fn a_body_costs_as_much_as_it_is_long() {
    let rules = rules(json!({
        "remove": {"json": ["x"]}, "rename": {"json": ["y:z"]}, "append": {"json": ["a:v", "b:w"]},
    }));
    let shapes = [
        ("{\"a\":[", "1,", "1]}"),
        ("{\"a\":{\"1\":1", ",\"2\":1", "}}"),
        ("{\"a\":", "[", ""),
        ("{\"x\":1", ",\"x\":1", "}"),
        ("{\"x\":\"", "\\ud800", "\"}"),
        ("{\"y\":\"", "\\u0041", "\"}"),
    ];
    testkit::cost::assert_linear(
        2_000,
        |size| shapes.map(|(begin, again, end)| [begin, &again.repeat(size), end].concat()),
        |bodies| {
            for body in &bodies {
                std::hint::black_box(rules.transform(body.as_bytes()));
            }
        },
    );
}
