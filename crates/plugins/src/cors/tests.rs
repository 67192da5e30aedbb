//! Tests of cors.

use super::*;
use crate::testing::case;
use plugin::testing::{Case, Outcome, Upstream, completed, refusal};
use serde_json::json;

fn cors(config: serde_json::Value) -> Case {
    case(def(), config)
}

fn get(config: serde_json::Value, origin: &str) -> Outcome {
    let case = cors(config);
    case.request("GET /").header("Origin", origin).run_now()
}

fn preflight(config: serde_json::Value, lines: &[&str]) -> Outcome {
    let case = cors(config);
    let request = case.request("OPTIONS /").lines(lines);
    request
        .header("Access-Control-Request-Method", "PUT")
        .run_now()
}

fn allowed(outcome: &Outcome) -> Option<&str> {
    outcome.client.header("access-control-allow-origin")
}

#[test]
fn without_origins_all_may_read_responses() {
    let outcome = get(json!({"exposed_headers": ["x-a", "x-b"]}), "https://a.test");
    assert_eq!(allowed(&outcome), Some("*"));
    let client = &outcome.client;
    assert_eq!(
        client.header("access-control-expose-headers"),
        Some("x-a,x-b")
    );
    assert_eq!(client.header("vary"), None);
    let without_origin = cors(json!({})).request("GET /").run_now();
    assert_eq!(allowed(&without_origin), Some("*"));
}

#[test]
fn origins_are_compared_without_their_default_port() {
    let list = json!([
        "http://a.test:80",
        "https://b.test",
        "https://c.test:8443",
        "plain.test"
    ]);
    let cases = [
        ("http://a.test", Some("http://a.test")),
        ("http://a.test:80", Some("http://a.test")),
        ("https://a.test", None),
        ("https://b.test:443", Some("https://b.test")),
        ("https://c.test:8443", Some("https://c.test:8443")),
        ("https://c.test", None),
        ("plain.test", Some("plain.test")),
        ("http://plain.test", None),
        ("http://a.test.evil.test", None),
        ("http://a.test/path", Some("http://a.test")),
        ("http://user@a.test", Some("http://a.test")),
        ("http://a.test@evil.test", None),
        ("", None),
        ("http://", None),
    ];
    for (origin, wanted) in cases {
        let outcome = get(json!({"origins": list}), origin);
        assert_eq!(allowed(&outcome), wanted, "{origin}");
        assert_eq!(outcome.client.header("vary"), Some("Origin"), "{origin}");
    }
}

#[test]
fn a_regex_matches_the_whole_host_or_origin() {
    let cases = [
        (r"a\.test|b\.test", "http://a.test", true),
        (r"a\.test|b\.test", "http://b.test:81", true),
        // Kong lets this one read responses.
        (r"a\.test|b\.test", "http://a.test.evil.test", false),
        (r"a\.test", "http://evila.test", false),
        (r"^https://.*\.a\.test$", "https://x.a.test", true),
        (r"^https://.*\.a\.test$", "http://x.a.test", false),
        (r"https?://a\.test(:\d+)?", "https://a.test:1", true),
        (r"(?i)a\.test", "http://A.test", true),
        (r"(?!b).*\.test", "http://a.test", true),
        (r"(?!b).*\.test", "http://b.test", false),
        (r"\[?::1\]?|x:y", "http://[::1]", false),
        (r"http://\[::1\]", "http://[::1]:80", true),
        (r"([0-9a-f]|c)+d", "http://[abcd]", true),
    ];
    for (entry, origin, admits) in cases {
        let config = json!({"origins": [entry, "https://other.test"]});
        let outcome = get(config, origin);
        assert_eq!(allowed(&outcome).is_some(), admits, "{entry} {origin}");
    }
}

#[test]
fn a_search_with_too_many_steps_admits_nobody() {
    let config = json!({"origins": [r"(a|b|ab)*(?=c)c(a+)\2d"]});
    let origin = format!("http://{}caa", "ab".repeat(30));
    let outcome = get(config, &origin);
    assert_eq!((outcome.client.status, allowed(&outcome)), (200, None));
}

#[test]
fn one_plain_entry_is_sent_whatever_the_origin_is() {
    let config = json!({"origins": ["https://a.test"]});
    let outcome = cors(config.clone()).request("GET /").run_now();
    assert_eq!(allowed(&outcome), Some("https://a.test"));
    assert_eq!(
        allowed(&get(config, "https://evil.test")),
        Some("https://a.test")
    );
}

#[test]
fn the_upstreams_own_headers_are_replaced_and_its_vary_is_kept() {
    let upstream = || {
        let upstream = Upstream::new(200).header("Access-Control-Allow-Origin", "*");
        upstream.header("Vary", "Accept")
    };
    for (origin, wanted) in [
        ("http://a.test", Some("http://a.test")),
        ("http://c.test", None),
    ] {
        let case = cors(json!({"origins": ["http://a.test", "http://b.test"]}));
        let request = case.request("GET /").header("Origin", origin);
        let outcome = request.answered(upstream()).run_now();
        let headers = &outcome.client.headers;
        let found: Vec<_> = headers.all("access-control-allow-origin").collect();
        assert_eq!(found, wanted.into_iter().collect::<Vec<_>>());
        let vary: Vec<_> = headers.all("vary").collect();
        assert_eq!(vary, ["Accept", "Origin"]);
    }
}

#[test]
fn with_credentials_all_means_the_origin_of_the_request() {
    for origins in [json!(["*"]), json!([]), json!(["http://b.test", "*"])] {
        let config = json!({"origins": origins, "credentials": true});
        let outcome = get(config.clone(), "http://a.test:80");
        let client = &outcome.client;
        assert_eq!(allowed(&outcome), Some("http://a.test:80"));
        assert_eq!(
            client.header("access-control-allow-credentials"),
            Some("true")
        );
        let vary: Vec<_> = client.headers.all("vary").collect();
        assert_eq!(vary, ["Origin"], "{origins}");
    }
    let config = json!({"origins": ["*"], "credentials": true});
    let outcome = cors(config).request("GET /").run_now();
    assert_eq!(allowed(&outcome), Some("*"));
    let credentials = outcome.client.header("access-control-allow-credentials");
    assert_eq!(credentials, None);
}

#[test]
fn a_preflight_request_is_answered_before_authentication() {
    let config = json!({
        "origins": ["http://a.test"], "methods": ["GET", "PUT"], "max_age": 3600, "credentials": true,
        "exposed_headers": ["x-a"], "private_network": true,
    });
    let case = cors(config).and(crate::key_auth::def(), json!({}));
    let request = case.request("OPTIONS /").lines(&[
        "Origin: http://a.test",
        "Access-Control-Request-Method: PUT",
        "Access-Control-Request-Headers: x-b, x-c",
        "Access-Control-Request-Private-Network: true",
    ]);
    let outcome = request.run_now();
    let client = &outcome.client;
    assert!(outcome.upstream.is_none());
    assert_eq!((client.status, client.text()), (200, ""));
    let wanted = [
        ("access-control-allow-origin", Some("http://a.test")),
        ("access-control-allow-credentials", Some("true")),
        ("access-control-allow-headers", Some("x-b, x-c")),
        ("access-control-allow-methods", Some("GET,PUT")),
        ("access-control-max-age", Some("3600")),
        ("access-control-allow-private-network", Some("true")),
        ("access-control-expose-headers", None),
        ("vary", Some("Origin")),
    ];
    for (name, wanted) in wanted {
        assert_eq!(client.header(name), wanted, "{name}");
    }
}

#[test]
fn only_complete_preflight_requests_are_answered() {
    let with_origin = preflight(json!({"headers": ["x-a"]}), &["Origin: http://a.test"]);
    assert!(with_origin.upstream.is_none());
    let headers = with_origin.client.header("access-control-allow-headers");
    assert_eq!(headers, Some("x-a"));
    let without = preflight(json!({}), &[]);
    assert!(without.upstream.is_some());
    assert_eq!(allowed(&without), Some("*"));
    let goes_on = preflight(
        json!({"preflight_continue": true}),
        &["Origin: http://a.test"],
    );
    assert!(goes_on.upstream.is_some());
    assert_eq!(allowed(&goes_on), None);
}

#[test]
fn risky_origins_are_reported() {
    crate::install();
    let risk_of = |config: serde_json::Value| {
        let config = completed("cors", config).expect("the schema accepts it");
        risk(&config).map(|risk| risk.0)
    };
    let all = [
        json!({"credentials": true}),
        json!({"credentials": true, "origins": ["*"]}),
        json!({"credentials": true, "origins": ["http://a.test", "*"]}),
    ];
    for config in all {
        let found = risk_of(config.clone()).unwrap_or_default();
        assert!(found.contains("every website"), "{config}");
    }
    let null = [
        json!({"origins": ["null"]}),
        json!({"origins": ["http://a.test", "null"]}),
        json!({"origins": [".*"]}),
        json!({"origins": ["http://a.test", "nul+"]}),
    ];
    for config in null {
        let found = risk_of(config.clone()).unwrap_or_default();
        assert!(found.contains("null"), "{config}");
    }
    let fine = [
        json!({}),
        json!({"origins": ["*"]}),
        json!({"credentials": true, "origins": ["http://a.test", r".*\.a\.test"]}),
    ];
    for config in fine {
        assert_eq!(risk_of(config.clone()), None, "{config}");
    }
}

#[test]
fn an_origin_cannot_add_headers() {
    let config = json!({"credentials": true});
    let case = cors(config);
    let request = case
        .request("GET /")
        .header("Origin", b"http://a.test\t\xff");
    let outcome = request.run_now();
    let headers = &outcome.client.headers;
    assert_eq!(headers.all("access-control-allow-origin").count(), 1);
}

#[test]
fn a_regex_that_is_too_large_is_refused() {
    crate::install();
    let entry = format!("({}){{500}}", "(a{500})");
    let refused = refusal(&def(), json!({"origins": [entry]}));
    assert!(!refused.is_empty());
}

#[test]
fn matching_takes_time_in_proportion_to_the_origin() {
    let entries = [
        r"(.*\.)*a\.test",
        r"https?://(.*[.])?b\.test",
        "http://c.test",
    ];
    let origins = Origins::compile(&entries.map(str::to_owned)).expect("the entries are regexes");
    testkit::cost::assert_linear(
        2_000,
        |size| {
            ["a.", "http://", ":", "@", "[", "/"]
                .map(|piece| "http://".to_owned() + &piece.repeat(size))
        },
        |texts| {
            for origin in &texts {
                assert!(!origins.admits(&normal(origin.as_bytes())));
            }
        },
    );
}
