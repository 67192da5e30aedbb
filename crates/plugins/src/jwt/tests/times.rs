//! Tests of the times in tokens.

use super::{case, outcome, token};
use crate::jwt::algorithm::Algorithm;
use plugin::testing::{Case, refusal};
use serde_json::{Value, json};

fn timed(case: &Case, mut claims: Value) -> String {
    claims["iss"] = "hs".into();
    outcome(case, &token(Algorithm::Hs256, &claims))
}

fn refused(problems: &str) -> String {
    format!("401 {problems} [Bearer error=\"invalid_token\"]")
}

fn now(case: &Case) -> i64 {
    let now = case.node().clock.since_epoch().as_secs();
    i64::try_from(now).expect("the time is an integer")
}

#[test]
fn times_count_only_if_they_are_to_be_verified() {
    let none = case(json!({}));
    assert_eq!(
        timed(&none, json!({"exp": 1, "nbf": 9_999_999_999_i64})),
        "nora"
    );
    let nbf = case(json!({"claims_to_verify": ["nbf"]}));
    assert_eq!(timed(&nbf, json!({"exp": 1, "nbf": 1})), "nora");
}

#[test]
fn a_token_is_valid_from_nbf_on_and_before_exp() {
    let case = case(json!({"claims_to_verify": ["exp", "nbf"]}));
    let now = now(&case);
    let expired = refused(r#"{"exp":"token expired"}"#);
    let early = refused(r#"{"nbf":"token not valid yet"}"#);
    let both = refused(r#"{"exp":"token expired","nbf":"token not valid yet"}"#);
    let cases = [
        (json!(now + 1), json!(now), "nora"),
        (json!(now), json!(now), &*expired),
        (json!(now - 1), json!(now), &expired),
        (json!(now + 1), json!(now + 1), &early),
        (json!(now), json!(now + 1), &both),
        (json!(now as f64 + 0.5), json!(now as f64 - 0.5), "nora"),
        (json!(-1), json!(-1), &expired),
        (json!(1e300), json!(-1e300), "nora"),
    ];
    for (exp, nbf, wanted) in cases {
        let claims = json!({"exp": exp, "nbf": nbf});
        assert_eq!(timed(&case, claims.clone()), wanted, "{claims}");
    }
}

#[test]
fn a_time_must_be_a_number() {
    let case = case(json!({"claims_to_verify": ["exp", "nbf"]}));
    let later = now(&case) + 9;
    let exp = refused(r#"{"exp":"must be a number"}"#);
    for value in [
        json!("9999999999"),
        json!(null),
        json!(true),
        json!(false),
        json!([later]),
        json!({"a": later}),
    ] {
        assert_eq!(
            timed(&case, json!({"exp": value, "nbf": 0})),
            exp,
            "{value}"
        );
    }
    let both = refused(r#"{"exp":"must be a number","nbf":"must be a number"}"#);
    assert_eq!(timed(&case, json!({})), both);
}

#[test]
fn a_token_may_be_valid_for_a_limited_time_only() {
    let case = case(json!({"claims_to_verify": ["exp"], "maximum_expiration": 300}));
    let now = now(&case);
    let far = refused(r#"{"exp":"exceeds maximum allowed expiration"}"#);
    assert_eq!(timed(&case, json!({"exp": now + 300})), "nora");
    assert_eq!(timed(&case, json!({"exp": now + 301})), far);
    let expired = refused(r#"{"exp":"token expired"}"#);
    assert_eq!(timed(&case, json!({"exp": now})), expired);
}

/// A limit without `claims_to_verify` is no error, as in Kong. Then only the limit counts.
#[test]
fn a_limit_excludes_other_claims_to_verify() {
    crate::install();
    let config = json!({"maximum_expiration": 300, "claims_to_verify": ["nbf"]});
    let problems = refusal(&crate::jwt::def(), config);
    assert!(problems.contains("expected to contain: exp"), "{problems}");
    let case = case(json!({"maximum_expiration": 300}));
    let far = refused(r#"{"exp":"exceeds maximum allowed expiration"}"#);
    for claims in [json!({}), json!({"exp": "1"}), json!({"exp": null})] {
        assert_eq!(timed(&case, claims), far);
    }
    assert_eq!(timed(&case, json!({"exp": 1})), "nora");
}
