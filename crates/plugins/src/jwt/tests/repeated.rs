//! Tests of tokens that clients send again and again. From the third request on, the plugin knows the token.

use super::signer::{SECRET, token};
use super::{HS, bearing, case, entities, outcome, refused, shown};
use crate::jwt::algorithm::Algorithm;
use crate::kinds::JWT_SECRETS;
use crate::testing::NORA;
use plugin::testing::Case;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Returns a token with claims that no other test has.
fn of_test(name: &str, mut claims: Value) -> String {
    claims["iss"] = "hs".into();
    claims["sub"] = name.into();
    token(Algorithm::Hs256, &claims)
}

/// Sends a token until the plugin knows it.
fn make_known(case: &Case, token: &str) {
    for _ in 0..3 {
        assert_eq!(outcome(case, token), "nora");
    }
}

/// The credential `hs` with another secret.
fn changed(secret: &str) -> Value {
    json!({
        "id": HS, "consumer": {"id": NORA}, "key": "hs", "algorithm": "HS256", "secret": secret,
    })
}

#[test]
fn a_known_token_means_the_same() {
    let case = case(json!({}));
    for algorithm in Algorithm::ALL {
        let token = token(
            *algorithm,
            &json!({"iss": algorithm.name(), "sub": "known"}),
        );
        let first = bearing(&case, &token);
        make_known(&case, &token);
        let known = bearing(&case, &token);
        assert_eq!(shown(&known), shown(&first));
        let (first, known) = (first.upstream.unwrap(), known.upstream.unwrap());
        for header in [
            "x-credential-identifier",
            "x-consumer-id",
            "x-consumer-username",
        ] {
            assert_eq!(known.header(header), first.header(header), "{header}");
        }
    }
}

#[test]
fn the_times_of_a_known_token_are_judged_each_time() {
    let case = case(json!({"claims_to_verify": ["exp"], "maximum_expiration": 60}));
    let now = case.node().clock.since_epoch().as_secs();
    let token = of_test("times", json!({"exp": now + 60}));
    make_known(&case, &token);
    case.node().clock.advance(Duration::from_secs(59));
    assert_eq!(outcome(&case, &token), "nora");
    case.node().clock.advance(Duration::from_secs(1));
    let expired = r#"401 {"exp":"token expired"} [Bearer error="invalid_token"]"#;
    assert_eq!(outcome(&case, &token), expired);
}

#[test]
fn a_known_token_ends_with_its_credential() {
    let entities = Arc::new(entities());
    let case = case(json!({})).entities(Arc::clone(&entities));
    let token = of_test("ends", json!({}));
    make_known(&case, &token);
    entities.put(JWT_SECRETS, changed("another secret"));
    assert_eq!(outcome(&case, &token), refused("Invalid signature"));
    entities.put(JWT_SECRETS, changed(SECRET));
    make_known(&case, &token);
    entities.remove(JWT_SECRETS, HS);
    assert_eq!(
        outcome(&case, &token),
        refused("No credentials found for given 'iss'")
    );
}

#[test]
fn a_token_is_known_only_under_the_same_rules() {
    let token = of_test("rules", json!({}));
    make_known(&case(json!({})), &token);
    let base64 = case(json!({"secret_is_base64": true}));
    assert_ne!(outcome(&base64, &token), "nora");
    let other_claim = case(json!({"key_claim_name": "sub"}));
    assert_eq!(
        outcome(&other_claim, &token),
        refused("No credentials found for given 'sub'")
    );
}

#[test]
fn another_signature_of_a_known_token_is_wrong() {
    let case = case(json!({}));
    let token = of_test("signature", json!({}));
    make_known(&case, &token);
    let first = token.rfind('.').expect("a token has dots") + 1;
    let mut forged = token.into_bytes();
    forged[first] ^= 1;
    let forged = String::from_utf8(forged).unwrap();
    assert_eq!(outcome(&case, &forged), refused("Invalid signature"));
}
