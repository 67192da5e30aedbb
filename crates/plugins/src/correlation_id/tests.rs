//! Tests of correlation-id.

use super::*;
use crate::testing::case;
use plugin::testing::{Outcome, refusal};
use serde_json::json;
use std::collections::HashSet;
use uuid::{Uuid, Variant};

fn sent_id(outcome: &Outcome) -> String {
    let id = outcome.sent().header("kong-request-id");
    id.expect("the upstream gets an id").to_owned()
}

fn logged_id(outcome: &Outcome) -> Option<String> {
    let mut fields = outcome.state.log_fields.iter();
    let field = fields.find(|field| field.key == "correlation_id")?;
    Some(field.value.as_ref()?.as_str()?.to_owned())
}

fn is_random(id: &str) -> bool {
    Uuid::parse_str(id).is_ok_and(|uuid| {
        uuid.get_version_num() == 4
            && uuid.get_variant() == Variant::RFC4122
            && uuid.hyphenated().to_string() == id
    })
}

#[test]
fn a_uuid_is_random_and_of_version_4() {
    let case = case(def(), json!({"generator": "uuid"}));
    let ids: HashSet<String> = (0..200)
        .map(|_| sent_id(&case.request("GET /").run_now()))
        .collect();
    assert_eq!(ids.len(), 200);
    for id in &ids {
        assert!(is_random(id), "{id}");
    }
}

#[test]
fn an_id_becomes_a_field_of_the_record_only_if_there_is_one() {
    let case = case(def(), json!({}));
    let logged = case.request("GET /").run_now();
    assert_eq!(logged_id(&logged), Some(sent_id(&logged)));
    let unlogged = case
        .request("GET /")
        .state(|state| state.is_unlogged = true);
    assert_eq!(logged_id(&unlogged.run_now()), None);
}

#[test]
fn a_counter_grows_on_each_worker_and_outlives_configurations() {
    let run = |config| {
        let outcome = case(def(), config).request("GET /").run_now();
        let id = sent_id(&outcome);
        let (worker, count) = id.split_once('#').expect("a counter");
        assert!(is_random(worker), "{id}");
        let count: u64 = count.parse().expect("a number");
        (worker.to_owned(), count)
    };
    let (worker, first) = run(json!({}));
    let (same, second) = run(json!({"echo_downstream": true}));
    assert_eq!((same, second), (worker.clone(), first + 1));
    let other = std::thread::spawn(move || run(json!({})));
    let (other, count) = other.join().expect("the thread ends");
    assert!(other != worker);
    assert_eq!(count, 1);
}

#[test]
fn a_tracker_says_where_and_when_and_is_unique() {
    let case = case(def(), json!({"generator": "tracker"}));
    let now = case.node().clock.since_epoch();
    let end = format!("-1-{}.{:03}", now.as_secs(), now.subsec_millis());
    let begin = format!("127.0.0.1-8000-{}-", std::process::id());
    let numbers = [(); 2].map(|()| {
        let id = sent_id(&case.request("GET /").run_now());
        let number = id
            .strip_prefix(&begin)
            .and_then(|rest| rest.strip_suffix(&end));
        let number: Option<u64> = number.and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("{id}"))
    });
    assert!(numbers[0] < numbers[1], "{numbers:?}");
}

#[test]
fn the_clients_id_is_kept_and_logged() {
    let case = case(def(), json!({"echo_downstream": true}));
    let outcome = case
        .request("GET /")
        .header("KONG-request-id", "mine")
        .run_now();
    assert_eq!(sent_id(&outcome), "mine");
    assert_eq!(outcome.client.header("kong-request-id"), Some("mine"));
    assert_eq!(logged_id(&outcome).as_deref(), Some("mine"));
}

#[test]
fn an_empty_id_is_replaced() {
    let case = case(def(), json!({"generator": "uuid"}));
    let outcome = case
        .request("GET /")
        .header("Kong-Request-ID", "")
        .run_now();
    assert!(is_random(&sent_id(&outcome)));
    assert_eq!(logged_id(&outcome), Some(sent_id(&outcome)));
    assert_eq!(outcome.client.header("kong-request-id"), None);
}

#[test]
fn an_id_cannot_add_headers_to_a_response() {
    let case = case(def(), json!({"echo_downstream": true}));
    let request = case
        .request("GET /")
        .header("Kong-Request-ID", b"a\xffb\tc");
    let outcome = request.run_now();
    let headers = &outcome.client.headers;
    assert_eq!(headers.all("kong-request-id").count(), 1);
    assert_eq!(logged_id(&outcome).as_deref(), Some("a\u{fffd}b\tc"));
}

#[test]
fn a_refused_request_gets_the_id_that_was_logged() {
    let config = json!({"generator": "uuid", "echo_downstream": true, "header_name": "X-Id"});
    let case = case(def(), config).and(crate::key_auth::def(), json!({}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.client.status, 401);
    let id = outcome.client.header("x-id").map(str::to_owned);
    assert!(id.is_some());
    assert_eq!(logged_id(&outcome), id);
}

#[test]
fn a_name_that_is_no_header_name_is_refused() {
    for name in ["X Y", "a:b", "a\r\nb", "\u{e9}"] {
        crate::install();
        let refused = refusal(&def(), json!({"header_name": name}));
        assert!(refused.contains("header_name"), "{name:?}: {refused}");
    }
    let case = case(def(), json!({"header_name": null}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.sent().header("kong-request-id"), None);
    assert_eq!(outcome.client.status, 200);
}
