//! Tests of redirect.

use super::*;
use crate::testing::case;
use plugin::testing::refusal;
use serde_json::{Value, json};

fn location(config: Value, line: &str) -> String {
    let outcome = case(def(), config).request(line).run_now();
    assert!(outcome.upstream.is_none());
    assert_eq!(outcome.client.text(), "redirecting");
    outcome
        .client
        .header("location")
        .expect("a location")
        .to_owned()
}

#[test]
fn the_location_is_sent_as_it_is_configured() {
    let config = json!({"location": "HTTPS://a.test:443/x y?z", "status_code": 308});
    let outcome = case(def(), config).request("GET /path?query").run_now();
    let client = &outcome.client;
    assert_eq!(client.status, 308);
    assert_eq!(client.header("location"), Some("HTTPS://a.test:443/x y?z"));
    assert_eq!(client.header("content-type"), None);
}

#[test]
fn a_location_cannot_add_headers() {
    let config = json!({"location": "https://a.test/\r\nSet-Cookie: a=b"});
    assert_eq!(
        location(config, "GET /"),
        "https://a.test/%0D%0ASet-Cookie: a=b"
    );
}

#[test]
fn path_and_query_of_the_request_are_kept() {
    let cases = [
        (
            "https://a.test/old?x=1",
            "GET /a/b?c=2",
            "https://a.test/a/b?c=2",
        ),
        ("https://a.test/old?x=1", "GET /a", "https://a.test/a"),
        ("https://a.test/old?x=1", "GET /a?", "https://a.test/a"),
        ("HTTPS://A.test:443#f", "GET /", "https://a.test/#f"),
        (
            "http://u:p@a.test:81",
            "GET //evil.test/../x",
            "http://u:p@a.test:81/x",
        ),
        (
            "https://a.test",
            "GET //evil.test",
            "https://a.test/evil.test",
        ),
        (
            "https://a.test",
            "GET /a%20b?%0d%0a",
            "https://a.test/a%20b?%0d%0a",
        ),
        (
            "https://a.test",
            "GET /a%23b%3Fc",
            "https://a.test/a%23b%3Fc",
        ),
    ];
    for (to, line, wanted) in cases {
        let config = json!({"location": to, "keep_incoming_path": true});
        assert_eq!(location(config, line), wanted, "{to} {line}");
    }
}

#[test]
fn a_location_that_is_no_url_is_refused_if_it_gets_a_path() {
    crate::install();
    let config = json!({"location": "https://a.test:99999/", "keep_incoming_path": true});
    let refused = refusal(&def(), config);
    assert!(refused.contains("location"), "{refused}");
}

#[test]
fn bytes_that_are_no_characters_are_encoded() {
    assert_eq!(ascii(b"a=\xff\xc3\xa4%20"), "a=%FF%C3%A4%20");
}
