//! Tests of key-auth.

use crate::kinds::KEYAUTH_CREDENTIALS;
use crate::testing::{CREDENTIAL, GUEST, NORA, case, people};
use plugin::testing::Outcome;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

fn run(config: Value, line: &str, headers: &[&str], body: &'static str) -> Outcome {
    let case = case(super::def(), config);
    let call = case.request(line).lines(headers);
    match body {
        "" => call.run_now(),
        body => call.body(body).run_now(),
    }
}

/// Returns the status, message and challenge of the response, or the consumer of an admitted request.
fn outcome(config: Value, line: &str, headers: &[&str], body: &'static str) -> String {
    let outcome = run(config, line, headers, body);
    let client = &outcome.client;
    match &outcome.upstream {
        Some(_) => outcome.consumer().unwrap_or("nobody").to_owned(),
        None => {
            let challenge = client.header("www-authenticate").unwrap_or_default();
            format!("{} {} [{challenge}]", client.status, client.message())
        }
    }
}

/// Runs a request that key-auth must admit.
fn admitted(config: Value, line: &str, headers: &[&str], body: &'static str) -> Outcome {
    let outcome = run(config, line, headers, body);
    assert!(outcome.upstream.is_some(), "{headers:?}");
    outcome
}

const GET: &str = "GET /echo";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
const NONE: &str = "401 No API key found in request [Key]";
const TWICE: &str = "401 Duplicate API key found [Key]";
const WRONG: &str = "401 Unauthorized [Key]";
const BROKEN: &str = "500 An unexpected error occurred []";

#[test]
fn a_key_is_searched_in_headers_and_query() {
    let cases: [(&str, &[&str], &str); 19] = [
        (GET, &[], NONE),
        (GET, &["apikey: good"], "nora"),
        (GET, &["APIKEY: lasting"], "nora"),
        (GET, &["apikey: expired"], WRONG),
        (GET, &["apikey: nope"], WRONG),
        (GET, &["apikey: \u{fc}"], WRONG),
        (GET, &["apikey:"], NONE),
        (GET, &["apikey: good", "apikey: good"], TWICE),
        (GET, &["apikey: orphan"], BROKEN),
        (GET, &["apikey: broken"], BROKEN),
        ("GET /?apikey=good", &[], "nora"),
        ("GET /?api%6Bey=goo%64", &[], "nora"),
        ("GET /?apikey=nope", &[], WRONG),
        ("GET /?apikey=", &[], NONE),
        ("GET /?apikey", &[], NONE),
        ("GET /?apikey=a&apikey=b", &[], TWICE),
        ("GET /?apikey[]=good", &[], NONE),
        ("GET /?apikey=good", &["apikey: nope"], WRONG),
        ("GET /?apikey=good", &["apikey:"], NONE),
    ];
    for (line, headers, wanted) in cases {
        let found = outcome(json!({}), line, headers, "");
        assert_eq!(found, wanted, "{line} {headers:?}");
    }
}

#[test]
fn a_key_is_valid_until_its_end() {
    let entities = Arc::new(people());
    let case = case(super::def(), json!({})).entities(entities.clone());
    let end = case.node().clock.since_epoch().as_secs() + 60;
    let id = Uuid::from_u128(9);
    let key = json!({"id": id, "key": "brief", "consumer": {"id": NORA}, "ttl": end});
    entities.put(KEYAUTH_CREDENTIALS, key);
    let status = || {
        let call = case.request(GET).header("apikey", "brief");
        call.run_now().client.status
    };
    assert_eq!(status(), 200);
    case.node().clock.advance(Duration::from_secs(59));
    assert_eq!(status(), 200);
    case.node().clock.advance(Duration::from_secs(1));
    assert_eq!(status(), 401);
}

#[test]
fn settings_choose_the_places_and_names_to_search() {
    let query = "GET /?apikey=good";
    let cases: [(Value, &str, &[&str], &str); 12] = [
        (
            json!({"key_in_header": false}),
            GET,
            &["apikey: good"],
            NONE,
        ),
        (
            json!({"key_in_header": false}),
            query,
            &["apikey: nope"],
            "nora",
        ),
        (json!({"key_in_query": false}), query, &[], NONE),
        (
            json!({"key_names": ["x-a", "x-b"]}),
            GET,
            &["X-B: good"],
            "nora",
        ),
        (
            json!({"key_names": ["x-a", "x-b"]}),
            GET,
            &["X-B: good", "X-A: no"],
            WRONG,
        ),
        (
            json!({"key_names": ["api_key"]}),
            GET,
            &["api-key: good"],
            "nora",
        ),
        (
            json!({"key_names": ["api_key"]}),
            GET,
            &["api_key: good"],
            "nora",
        ),
        (
            json!({"key_names": ["api-key"]}),
            GET,
            &["api_key: good"],
            NONE,
        ),
        (
            json!({"realm": "shop"}),
            GET,
            &[],
            "401 No API key found in request [Key realm=\"shop\"]",
        ),
        (
            json!({"run_on_preflight": false}),
            "OPTIONS /",
            &[],
            "nobody",
        ),
        (json!({"run_on_preflight": false}), GET, &[], NONE),
        (json!({}), "OPTIONS /", &[], NONE),
    ];
    for (config, line, headers, wanted) in cases {
        let found = outcome(config.clone(), line, headers, "");
        assert_eq!(found, wanted, "{config} {headers:?}");
    }
}

#[test]
fn a_key_is_searched_in_bodies() {
    const JSON: &str = "Content-Type: application/json";
    const PARTS: &str = "Content-Type: multipart/form-data; boundary=XyZ";
    let cases = [
        (FORM, "apikey=good", "nora"),
        (FORM, "apikey=good&apikey=good", TWICE),
        (FORM, "apikey[]=good", NONE),
        (FORM, "apikey", NONE),
        (JSON, r#"{"apikey":"good"}"#, "nora"),
        (JSON, r#"{"apikey":["good"]}"#, TWICE),
        (JSON, r#"{"apikey":5}"#, NONE),
        (JSON, r#"{"apikey":"good""#, NONE),
        ("Content-Type: text/plain", "apikey=good", NONE),
        ("X-No: type", "apikey=good", NONE),
        (
            PARTS,
            "--XyZ\r\nContent-Disposition: form-data; name=\"apikey\"\r\n\r\ngood\r\n--XyZ--\r\n",
            "nora",
        ),
    ];
    for (content_type, body, wanted) in cases {
        let config = json!({"key_in_body": true});
        let found = outcome(config, "POST /echo", &[content_type], body);
        assert_eq!(found, wanted, "{content_type} {body}");
    }
    let found = outcome(json!({}), "POST /echo", &[FORM], "apikey=good");
    assert_eq!(found, NONE);
}

#[test]
fn without_a_valid_key_the_request_continues_as_the_anonymous_consumer() {
    let by_id = json!({"anonymous": GUEST.to_string()});
    let by_name = json!({"anonymous": "guest"});
    let found = |config: &Value, headers: &[&str]| outcome(config.clone(), GET, headers, "");
    for config in [&by_id, &by_name] {
        assert_eq!(found(config, &[]), "guest");
        assert_eq!(found(config, &["apikey: nope"]), "guest");
        assert_eq!(found(config, &["apikey: good"]), "nora");
    }
    assert_eq!(found(&by_name, &["apikey: broken"]), BROKEN);
    assert_eq!(found(&json!({"anonymous": "gone"}), &[]), BROKEN);
}

#[test]
fn the_upstream_gets_the_consumer_and_not_the_headers_of_the_client() {
    let headers = [
        "apikey: good",
        "X-Consumer-ID: mine",
        "x-consumer-custom-id: mine",
        "X-Consumer-Username: mine",
        "X-Credential-Identifier: mine",
        "X-Anonymous-Consumer: true",
    ];
    let outcome = admitted(json!({}), "GET /echo?a=1", &headers, "");
    let sent = outcome.sent();
    let wanted = [
        ("X-Consumer-ID", NORA.to_string()),
        ("X-Consumer-Custom-ID", "ext-77".to_owned()),
        ("X-Consumer-Username", "nora".to_owned()),
        ("X-Credential-Identifier", CREDENTIAL.to_string()),
    ];
    for (name, value) in wanted {
        let values: Vec<&str> = sent.headers.all(name).collect();
        assert_eq!(values, [value]);
    }
    assert_eq!(sent.header("x-anonymous-consumer"), None);
    assert_eq!(sent.header("apikey"), Some("good"));
    assert_eq!(sent.query.as_deref(), Some("a=1"));
}

#[test]
fn the_upstream_gets_the_anonymous_consumer() {
    let config = json!({"anonymous": "guest"});
    let headers = [
        "X-Consumer-Custom-ID: mine",
        "X-Credential-Identifier: mine",
    ];
    let outcome = admitted(config, GET, &headers, "");
    let sent = outcome.sent();
    let id = GUEST.to_string();
    assert_eq!(sent.header("x-consumer-id"), Some(id.as_str()));
    assert_eq!(sent.header("x-consumer-username"), Some("guest"));
    assert_eq!(sent.header("x-anonymous-consumer"), Some("true"));
    for name in ["x-consumer-custom-id", "x-credential-identifier"] {
        assert_eq!(sent.header(name), None);
    }
    assert!(outcome.state.credential.is_none());
}

#[test]
fn keys_can_be_hidden_from_the_upstream() {
    let hide = || json!({"hide_credentials": true, "key_in_body": true, "key_names": ["api_key"]});
    for name in ["api_key", "api-key"] {
        let outcome = admitted(hide(), GET, &[&format!("{name}: good")], "");
        assert_eq!(outcome.sent().header(name), None);
    }
    let query = "GET /?c=v%611&api%5Fkey=good&a=v%333";
    let outcome = admitted(hide(), query, &[], "");
    assert_eq!(outcome.sent().query.as_deref(), Some("c=va1&a=v33"));
    let body = "zeta=2&api_key=good&alpha=1";
    let outcome = admitted(hide(), "POST /", &[FORM], body);
    assert_eq!(outcome.sent().text(), "alpha=1&zeta=2");
}

#[test]
fn a_bad_key_is_hidden_too_when_the_request_goes_on() {
    let config = json!({"hide_credentials": true, "anonymous": "guest"});
    let outcome = admitted(config, GET, &["apikey: nope"], "");
    assert_eq!(outcome.sent().header("apikey"), None);
}

#[test]
fn with_anonymous_a_credential_of_another_plugin_is_enough() {
    let case = case(super::def(), json!({"anonymous": "guest"}));
    let call = case.request(GET).header("apikey", "good");
    let outcome = call.credential(Uuid::nil()).run_now();
    assert_eq!(outcome.consumer(), None);
    assert_eq!(outcome.sent().header("x-consumer-id"), None);
}
