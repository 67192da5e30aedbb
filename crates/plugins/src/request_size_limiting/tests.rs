//! Tests of request-size-limiting.

use super::*;
use crate::testing::case;
use plugin::testing::{Case, Outcome};
use serde_json::{Value, json};

fn limit(config: Value) -> Case {
    case(def(), config)
}

fn bytes(size: i64) -> Case {
    limit(json!({"allowed_payload_size": size, "size_unit": "bytes"}))
}

fn post(case: &Case, length: usize) -> Outcome {
    case.request("POST /").body("x".repeat(length)).run_now()
}

fn chunked(case: &Case, length: usize) -> Outcome {
    let body = "x".repeat(length);
    let (first, second) = body.split_at(length / 2);
    let pieces = [first.to_owned(), second.to_owned()];
    case.request("POST /").pieces(pieces).run_now()
}

#[test]
fn a_body_up_to_the_limit_passes() {
    for send in [post, chunked] {
        let case = bytes(10);
        assert_eq!(send(&case, 10).client.status, 200);
        let refused = send(&case, 11);
        assert!(refused.upstream.is_none());
        assert_eq!(refused.client.status, 413);
        assert_eq!(refused.client.message(), "Request size limit exceeded");
    }
}

#[test]
fn units_are_powers_of_1024() {
    let case = limit(json!({"allowed_payload_size": 1, "size_unit": "kilobytes"}));
    assert_eq!(post(&case, 1024).client.status, 200);
    assert_eq!(post(&case, 1025).client.status, 413);
    let length = |case: &Case, length: u64| {
        let request = case
            .request("POST /")
            .header("Content-Length", length.to_string());
        request.run_now().client.status
    };
    let megabytes = limit(json!({"allowed_payload_size": 2}));
    assert_eq!(length(&megabytes, (2 << 20) + 1), 413);
    let default = limit(json!({"allowed_payload_size": null}));
    assert_eq!(length(&default, (128 << 20) + 1), 413);
    let huge = limit(json!({"allowed_payload_size": i64::MAX}));
    assert_eq!(length(&huge, u64::from(u32::MAX)), 200);
}

#[test]
fn a_client_that_waits_for_permission_gets_417() {
    let case = bytes(10);
    for value in ["100-continue", " 100-Continue "] {
        let request = case.request("POST /").header("Expect", value);
        let outcome = request.header("Content-Length", "11").run_now();
        assert_eq!(outcome.client.status, 417);
    }
}

#[test]
fn a_negative_limit_admits_only_requests_without_a_body() {
    let case = bytes(-1);
    assert_eq!(case.request("GET /").run_now().client.status, 200);
    assert_eq!(post(&case, 0).client.status, 413);
    assert_eq!(post(&case, 1).client.status, 413);
    assert_eq!(chunked(&case, 1).client.status, 413);
    let zero = bytes(0);
    assert_eq!(post(&zero, 0).client.status, 200);
    assert_eq!(post(&zero, 1).client.status, 413);
}

#[test]
fn a_length_can_be_required() {
    let case = limit(json!({
        "allowed_payload_size": 10, "size_unit": "bytes", "require_content_length": true,
    }));
    let refused = case.request("GET /").run_now();
    assert_eq!(refused.client.status, 411);
    let message = "A valid Content-Length header is required";
    assert_eq!(refused.client.message(), message);
    assert_eq!(post(&case, 10).client.status, 200);
    assert_eq!(chunked(&case, 10).client.status, 200);
    assert_eq!(chunked(&case, 11).client.status, 413);
}

#[test]
fn a_body_that_another_plugin_has_read_is_measured() {
    let config = json!({"key_in_header": false, "key_in_query": false, "key_in_body": true});
    let case = bytes(20).and(crate::key_auth::def(), config);
    let send = |body: &str| {
        let kind = "application/x-www-form-urlencoded";
        let request = case.request("POST /").header("Content-Type", kind);
        request.pieces([body.to_owned()]).run_now().client.status
    };
    assert_eq!(send("apikey=good"), 200);
    assert_eq!(send("apikey=good&more=1234"), 413);
}
