//! Tests of basic-auth, and of basic-auth together with key-auth.

use super::*;
use crate::key_auth;
use crate::testing::{CREDENTIAL, NORA, OTTO as OTTO_ID, case};
use plugin::testing::Case;
use serde_json::{Value, json};

fn outcome(case: &Case, lines: &[&str]) -> String {
    let outcome = case.request("GET /").lines(lines).run_now();
    match &outcome.upstream {
        None => {
            let challenge = outcome.client.header("www-authenticate");
            format!(
                "{} {}",
                outcome.client.status,
                challenge.unwrap_or_default()
            )
        }
        Some(_) => outcome.consumer().unwrap_or("nobody").to_owned(),
    }
}

/// Header with the credentials `otto:pw2`.
const OTTO: &str = "Authorization: Basic b3R0bzpwdzI=";
const REFUSED: &str = "401 Basic realm=\"service\"";

#[test]
fn a_password_is_read_from_either_header() {
    let case = case(def(), json!({"hide_credentials": true}));
    let cases: [(&[&str], &str); 9] = [
        (&[], REFUSED),
        (&[OTTO], "otto"),
        (&["Authorization: basic b3R0bzpwdzI"], "otto"),
        (&["Authorization: Bearer b3R0bzpwdzI="], REFUSED),
        // The next three encode `otto:pw3`, `otto` and `:pw2`.
        (&["Authorization: Basic b3R0bzpwdzM="], REFUSED),
        (&["Authorization: Basic b3R0bw=="], REFUSED),
        (&["Authorization: Basic OnB3Mg=="], REFUSED),
        // If Proxy-Authorization has an unknown user, Authorization counts. If it has a known user with a wrong
        // password, Authorization does not count.
        (&[OTTO, "Proxy-Authorization: Basic bm9uZTp4"], "otto"),
        (&[OTTO, "Proxy-Authorization: Basic b3R0bzpwdzM="], REFUSED),
    ];
    for (lines, wanted) in cases {
        assert_eq!(outcome(&case, lines), wanted, "{lines:?}");
    }
}

#[test]
fn the_upstream_gets_the_consumer_and_hidden_credentials_only_if_configured() {
    for hides in [true, false] {
        let case = case(def(), json!({"hide_credentials": hides}));
        let lines = [OTTO, "X-Consumer-Custom-ID: mine"];
        let outcome = case.request("GET /").lines(&lines).run_now();
        let sent = outcome.sent();
        assert_eq!(sent.header("authorization").is_none(), hides);
        let id = OTTO_ID.to_string();
        assert_eq!(sent.header("x-consumer-id"), Some(id.as_str()));
        assert_eq!(sent.header("x-consumer-username"), Some("otto"));
        assert_eq!(sent.header("x-consumer-custom-id"), None);
        assert_eq!(sent.header("x-credential-identifier"), Some("otto"));
        let credential = outcome.state.credential.expect("a credential");
        assert_eq!(credential.id, CREDENTIAL);
    }
}

#[test]
fn the_realm_is_that_of_the_configuration() {
    let case = case(def(), json!({"realm": "shop"}));
    assert_eq!(outcome(&case, &[]), "401 Basic realm=\"shop\"");
}

#[test]
fn two_authentications_are_both_needed_unless_anonymous_is_set() {
    let both_with = |config: Value| case(def(), config.clone()).and(key_auth::def(), config);
    let both = both_with(json!({}));
    assert_eq!(outcome(&both, &["apikey: good", OTTO]), "otto");
    assert_eq!(outcome(&both, &["apikey: good"]), REFUSED);
    assert_eq!(outcome(&both, &[OTTO]), "401 Key");
    let either = both_with(json!({"anonymous": "guest"}));
    assert_eq!(outcome(&either, &["apikey: good", OTTO]), "nora");
    assert_eq!(outcome(&either, &["apikey: good"]), "nora");
    assert_eq!(outcome(&either, &[OTTO]), "otto");
    assert_eq!(outcome(&either, &[]), "guest");
    let by_id = both_with(json!({"anonymous": NORA.to_string()}));
    assert_eq!(outcome(&by_id, &[]), "nora");
}

#[test]
fn a_credential_costs_as_much_as_it_is_long() {
    let shapes = [
        ("Basic ", "OjpB"),
        ("Basic ", "YWFh"),
        ("", "Basi"),
        ("Basic ", "="),
        ("", "Basic "),
        ("Basic", " \t"),
    ];
    testkit::cost::assert_linear(
        2000,
        |size| shapes.map(|(begin, again)| [begin, &again.repeat(size)].concat()),
        |headers: [String; 6]| {
            for header in &headers {
                std::hint::black_box(username_and_password(header.as_bytes()));
            }
        },
    );
}
