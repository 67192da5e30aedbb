//! Tests of response-transformer.

use super::*;
use crate::testing::case;
use plugin::testing::{Case, Outcome, Upstream};
use serde_json::{Value, json};

fn transformer(config: Value) -> Case {
    case(def(), config)
}

fn answered(config: Value, upstream: Upstream) -> Outcome {
    transformer(config)
        .request("GET /")
        .answered(upstream)
        .run_now()
}

fn json_of(body: &str) -> Upstream {
    Upstream::new(200)
        .header("Content-Type", "application/json")
        .body(body.to_owned())
}

fn all<'o>(outcome: &'o Outcome, name: &str) -> Vec<&'o str> {
    outcome.client.headers.all(name).collect()
}

#[test]
fn headers_are_changed_by_what_was_there_before() {
    let config = json!({
        "remove": {"headers": ["X-A", "x-gone"]},
        "rename": {"headers": ["X-M:X-N", "X-A:X-Was-A", "X-None:X-New"]},
        "replace": {"headers": ["X-A:again", "X-Absent:no", "X-B:b:2"]},
        "add": {"headers": ["X-Gone:no", "X-C:yes", "X-Empty:"]},
        "append": {"headers": ["X-B:3", "X-C:4"]},
    });
    let upstream = Upstream::new(200)
        .header("X-A", "1")
        .header("X-B", "2")
        .header("X-M", "m1")
        .header("X-M", "m2")
        .header("X-Gone", "g")
        .header("X-N", "n");
    let outcome = answered(config, upstream);
    let wanted: [(&str, &[&str]); 9] = [
        ("x-a", &["again"]),
        ("x-was-a", &["1"]),
        ("x-m", &[]),
        ("x-n", &["m1", "m2"]),
        ("x-absent", &[]),
        ("x-b", &["b:2", "3"]),
        ("x-gone", &[]),
        ("x-c", &["yes", "4"]),
        ("x-empty", &[]),
    ];
    for (name, values) in wanted {
        assert_eq!(all(&outcome, name), values, "{name}");
    }
}

#[test]
fn headers_of_the_framing_cannot_be_set() {
    for name in [
        "Content-Length",
        "transfer-encoding",
        "Connection",
        "Upgrade",
    ] {
        let config = json!({
            "rename": {"headers": [format!("X-A:{name}")]},
            "replace": {"headers": [format!("{name}:1")]},
            "add": {"headers": [format!("{name}:1")]},
            "append": {"headers": [format!("{name}:1")]},
        });
        let upstream = Upstream::new(200).header("X-A", "1").body("four");
        let outcome = answered(config, upstream);
        let client = &outcome.client;
        assert_eq!((client.text(), client.length), ("four", Some(4)), "{name}");
        assert!(!all(&outcome, name).contains(&"1"), "{name}");
    }
}

#[test]
fn what_is_no_header_name_is_not_set() {
    for name in ["X B", "X-B\r\nX-C", "é"] {
        let config = json!({
            "replace": {"headers": [format!("{name}:1")]},
            "add": {"headers": [format!("{name}:1"), "X-D:1"]},
            "append": {"headers": [format!("{name}:1")]},
        });
        let outcome = answered(config, Upstream::new(200));
        assert_eq!(all(&outcome, "x-d"), ["1"]);
        assert!(all(&outcome, name).is_empty(), "{name}");
    }
}

#[test]
fn a_value_cannot_add_headers() {
    let config = json!({"add": {"headers": ["X-A:a\r\nX-B: b"]}});
    let outcome = answered(config, Upstream::new(200));
    assert_eq!(all(&outcome, "x-a"), ["a%0D%0AX-B: b"]);
    assert_eq!(all(&outcome, "x-b"), [""; 0]);
}

#[test]
fn a_json_body_is_changed_when_it_is_complete() {
    let config = json!({"add": {"json": ["b:2"]}, "remove": {"json": ["a"]}});
    let upstream = Upstream::new(200)
        .header(
            "Content-Type",
            "text/plain, Application/Problem+JSON; charset=utf-8",
        )
        .piece("{\"a\":1,")
        .piece("\"c\"")
        .piece(":[]}");
    let outcome = answered(config, upstream);
    assert_eq!(outcome.client.text(), r#"{"c":[],"b":"2"}"#);
    assert_eq!(outcome.client.length, None);
}

#[test]
fn responses_of_the_gateway_are_changed_too() {
    let config = json!({"add": {"json": ["extra:1"], "headers": ["X-C:yes"]}});
    let case = transformer(config).and(crate::key_auth::def(), json!({}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.client.status, 401);
    assert_eq!(outcome.client.header("x-c"), Some("yes"));
    let body = outcome.client.json();
    assert_eq!(
        (&body["extra"], &body["message"]),
        (&json!("1"), &json!("No API key found in request"))
    );
}

#[test]
fn other_bodies_stay_as_they_are() {
    let config = || json!({"add": {"json": ["a:1"]}});
    let typed = |kind: &str, body: &str| {
        let upstream = Upstream::new(200).header("Content-Type", kind);
        answered(config(), upstream.body(body.to_owned()))
    };
    for kind in [
        "text/plain",
        "application/jsonp",
        "text/json",
        "application/json+x",
    ] {
        let outcome = typed(kind, "{}");
        assert_eq!(
            (outcome.client.text(), outcome.client.length),
            ("{}", Some(2)),
            "{kind}"
        );
    }
    assert_eq!(typed("application/json", "[1]").client.text(), "[1]");
    assert_eq!(typed("application/json", "no").client.text(), "no");
    let compressed = json_of("{}").header("Content-Encoding", "gzip");
    assert_eq!(answered(config(), compressed).client.text(), "{}");
    let identity = json_of("{}").header("Content-Encoding", "identity");
    assert_eq!(answered(config(), identity).client.text(), r#"{"a":"1"}"#);
}

#[test]
fn a_body_that_is_too_large_is_not_shown_without_the_rules() {
    let config = || json!({"remove": {"json": ["secret"]}});
    let piece = "x".repeat(1 << 20);
    let mut upstream = Upstream::new(200).header("Content-Type", "application/json");
    for _ in 0..17 {
        upstream = upstream.piece(piece.clone());
    }
    let outcome = answered(config(), upstream);
    assert_eq!(outcome.failures.len(), 1);
    assert!(outcome.failures[0].error.contains("too large"));
    let stated = json_of(&format!("{{\"secret\":\"{}\"}}", piece.repeat(17)));
    let outcome = answered(config(), stated);
    assert_eq!(outcome.client.status, 502);
    assert!(!outcome.client.text().contains("secret"));
}

#[test]
fn memory_is_given_back() {
    let total = Arc::new(Total::default());
    let piece = vec![0; held::MOST];
    for _ in 0..20 {
        let mut one = Held::new(&total);
        assert!(one.add(&piece));
        assert!(!one.add(b"x"));
    }
    let mut many: Vec<Held> = (0..16).map(|_| Held::new(&total)).collect();
    assert!(many.iter_mut().all(|held| held.add(&piece)));
    let mut further = Held::new(&total);
    assert!(!further.add(b"x"));
    many.pop();
    assert!(further.add(b"x"));
}

#[test]
fn a_plugin_without_rules_has_no_phases() {
    let outcome = answered(json!({}), json_of("{\"a\": 1}"));
    assert_eq!(outcome.client.text(), "{\"a\": 1}");
    assert_eq!(outcome.client.length, Some(8));
}
