//! Tests of request-termination.

use super::*;
use crate::testing::case;
use model::EntityKind;
use plugin::Capture;
use plugin::testing::{Case, FakeEntities, ROUTE, refusal};
use serde_json::{Value, json};

fn terminated(config: Value, line: &str, headers: &[&str]) -> Option<(u16, String)> {
    let case = case(def(), config);
    let outcome = case.request(line).lines(headers).run_now();
    let client = &outcome.client;
    let is_terminated = outcome.upstream.is_none();
    is_terminated.then(|| (client.status, client.text().to_owned()))
}

#[test]
fn a_termination_answers_with_what_is_configured() {
    let cases = [
        (json!({}), 503, r#"{"message":"Service unavailable"}"#),
        (
            json!({"status_code": 502}),
            502,
            r#"{"message":"Bad Gateway"}"#,
        ),
        (json!({"status_code": 418}), 418, ""),
        (json!({"message": "\"x\""}), 503, r#"{"message":"\"x\""}"#),
        (
            json!({"body": "<p>", "content_type": "text/html"}),
            503,
            "<p>",
        ),
    ];
    for (config, status, body) in cases {
        let found = terminated(config.clone(), "GET /", &[]);
        assert_eq!(found, Some((status, body.to_owned())), "{config}");
    }
}

#[test]
fn a_body_has_the_content_type_that_is_configured() {
    let types = [
        (
            json!({"body": "x", "content_type": "text/html"}),
            Some("text/html"),
        ),
        (json!({"body": "x"}), None),
        (json!({}), Some("application/json; charset=utf-8")),
    ];
    for (config, wanted) in types {
        let outcome = case(def(), config).request("GET /").run_now();
        assert_eq!(outcome.client.header("content-type"), wanted);
    }
}

#[test]
fn a_trigger_is_a_header_or_a_query_argument() {
    let terminates = |line: &str, headers: &[&str]| {
        terminated(json!({"trigger": "x_stop"}), line, headers).is_some()
    };
    assert!(!terminates("GET /", &[]));
    assert!(terminates("GET /", &["X-Stop: no"]));
    assert!(terminates("GET /?x_stop", &[]));
    assert!(terminates("GET /?x_stop=1&x_stop=2", &[]));
    assert!(!terminates("GET /?x_stops=1", &[]));
}

#[test]
fn a_message_and_a_body_exclude_each_other() {
    crate::install();
    let refused = refusal(&def(), json!({"message": "x", "body": "y"}));
    assert!(refused.contains("message cannot be used with"), "{refused}");
}

fn echo() -> Case {
    let route = json!({"id": ROUTE, "kind": "routes"});
    let entities = FakeEntities::default().with(EntityKind::Routes, route);
    let case = case(def(), json!({"echo": true}));
    case.entities(entities).identity("node 1", "host")
}

#[test]
fn an_echo_shows_the_request() {
    // A named group has two captures: one with its number, and one with its name.
    let capture = |number, name: Option<&str>, value: &str| Capture {
        number,
        name: name.map(str::to_owned),
        value: value.to_owned(),
    };
    let captures = [
        capture(1, None, "7"),
        capture(0, Some("id"), "7"),
        capture(2, None, "x"),
    ];
    let outcome = echo()
        .request("POST /a/../b?q=1&q=2&flag")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .lines(&["X-Twice: 1", "X-Twice: 2"])
        .body("a=1&a=2")
        .captures(captures)
        .run_now();
    let shown = outcome.client.json();
    assert_eq!(
        (outcome.client.status, &shown["message"]),
        (503, &json!("Service unavailable"))
    );
    assert!(shown["kong"]["worker_pid"].is_number());
    assert_eq!(shown["kong"]["node_id"], "node 1");
    assert_eq!(shown["kong"]["hostname"], "host");
    assert_eq!(shown["matched_route"]["kind"], "routes");
    assert_eq!(
        shown["matched_route"]["ws_id"],
        "0dc6f45b-8f8d-40d2-a504-473544ee190b"
    );
    let wanted = json!({
        "scheme": "http", "host": "a.test", "port": 8000, "method": "POST", "path": "/b",
        "headers": {
            "host": "a.test", "content-type": "application/x-www-form-urlencoded", "x-twice": ["1", "2"],
            "content-length": "7",
        },
        "query": {"q": ["1", "2"], "flag": true},
        "body": {"a": ["1", "2"]}, "raw_body": "a=1&a=2",
        "uri_captures": {"named": {"id": "7"}, "unnamed": ["7", "x"]},
    });
    assert_eq!(shown["request"], wanted);
}

#[test]
fn an_echo_shows_that_there_is_no_body() {
    let outcome = echo().request("GET /").run_now();
    let shown = outcome.client.json();
    assert_eq!(shown["request"]["raw_body"], "");
    assert_eq!(shown["request"].get("body"), None);
}
