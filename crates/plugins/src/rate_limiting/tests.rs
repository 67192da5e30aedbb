//! Tests of the plugin: the identifiers, the headers and the refusal.

use super::config::{Config, LimitBy};
use super::counters::Counters;
use super::{Identify, NAME, def};
use crate::testing::{self, case};
use plugin::BuildError;
use plugin::testing::{Call, Case, Headers, Outcome};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Whether a request passes.
fn passes(call: Call<'_>) -> bool {
    call.run_now().upstream.is_some()
}

/// A case with this configuration on the node of another one, as after a change of the configuration.
fn changed(case: &Case, config: Value) -> Case {
    Case::new(def(), config).on(Arc::clone(case.node()))
}

fn run(case: &Case) -> Outcome {
    case.request("GET /").run_now()
}

/// The values of these headers, joined by commas.
fn shown(headers: &Headers, names: &[&str]) -> String {
    let values = names.iter().map(|name| headers.get(name).unwrap_or("-"));
    values.collect::<Vec<_>>().join(",")
}

#[test]
fn every_period_can_have_a_limit() {
    let limits = json!({"second": 1, "minute": 2, "hour": 3, "day": 4, "month": 5, "year": 6.5});
    let headers = run(&case(def(), limits)).client.headers;
    let names = ["Second", "Minute", "Hour", "Day", "Month", "Year"];
    let names = names.map(|period| format!("X-RateLimit-Limit-{period}"));
    let names = names.each_ref().map(String::as_str);
    assert_eq!(shown(&headers, &names), "1,2,3,4,5,6.5");
}

// The clock of the node stands at 20 seconds of a minute, and at 800 seconds of an hour.

#[test]
fn headers_show_limits_remaining_requests_and_the_reset() {
    let case = case(def(), json!({"minute": 2, "hour": 2, "limit_by": "ip"}));
    let names = [
        "X-RateLimit-Limit-Minute",
        "X-RateLimit-Remaining-Minute",
        "X-RateLimit-Remaining-Hour",
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
        "Retry-After",
    ];
    for wanted in ["2,1,1,2,1,2800,-", "2,0,0,2,0,2800,-"] {
        let passed = run(&case);
        assert!(passed.upstream.is_some());
        assert_eq!(shown(&passed.client.headers, &names), wanted);
    }
    let refused = run(&case);
    assert_eq!(
        (refused.client.status, refused.upstream.is_none()),
        (429, true)
    );
    assert_eq!(
        shown(&refused.client.headers, &names),
        "2,0,0,2,0,2800,2800"
    );
}

#[test]
fn a_refused_request_shows_what_remains_of_other_windows() {
    let case = case(def(), json!({"minute": 1, "day": 5, "error_code": 503}));
    let names = [
        "X-RateLimit-Remaining-Minute",
        "X-RateLimit-Remaining-Day",
        "Retry-After",
    ];
    assert_eq!(shown(&run(&case).client.headers, &names), "0,4,-");
    let refused = run(&case).client;
    assert_eq!(refused.status, 503);
    assert_eq!(shown(&refused.headers, &names), "0,4,40");
    case.node().clock.advance(Duration::from_secs(40));
    assert_eq!(shown(&run(&case).client.headers, &names), "0,3,-");
}

#[test]
fn a_limit_with_a_fraction_lets_one_more_pass() {
    let case = case(def(), json!({"minute": 1.5}));
    let names = ["X-RateLimit-Limit-Minute", "X-RateLimit-Remaining-Minute"];
    assert_eq!(shown(&run(&case).client.headers, &names), "1.5,0.5");
    assert_eq!(shown(&run(&case).client.headers, &names), "1.5,0");
    assert!(!passes(case.request("GET /")));
}

#[test]
fn headers_can_be_hidden() {
    let case = case(def(), json!({"minute": 1, "hide_client_headers": true}));
    for status in [200, 429] {
        let client = run(&case).client;
        let headers = shown(&client.headers, &["RateLimit-Limit", "Retry-After"]);
        assert_eq!((client.status, headers.as_str()), (status, "-,-"));
    }
}

#[test]
fn consumers_come_before_credentials_and_those_before_addresses() {
    let case = case(def(), json!({"minute": 1}));
    let get = || case.request("GET /");
    let as_consumer = |id, credential| {
        let call = get().consumer(Uuid::from_u128(id), "a");
        passes(call.credential(Uuid::from_u128(credential)))
    };
    assert!(as_consumer(1, 7));
    assert!(
        !as_consumer(1, 8),
        "another credential of the same consumer"
    );
    assert!(as_consumer(2, 7));
    let with_credential = |id| passes(get().credential(Uuid::from_u128(id)));
    assert!(with_credential(7));
    assert!(!with_credential(7));
    assert!(passes(get()));
    assert!(!passes(get()));
}

#[test]
fn services_headers_and_paths_identify_too() {
    let by_service = case(def(), json!({"minute": 1, "limit_by": "service"}));
    let of_service = |id| {
        let call = by_service.request("GET /");
        passes(call.service(Uuid::from_u128(id), None))
    };
    assert!(of_service(1) && of_service(2) && !of_service(1));

    let config = json!({"hour": 1, "limit_by": "header", "header_name": "X-Plan"});
    let by_header = changed(&by_service, config);
    let with = |lines: &[&str]| passes(by_header.request("GET /").lines(lines));
    assert!(with(&["x-plan: a", "x-plan: b"]), "the first line counts");
    assert!(!with(&["X-Plan: a"]) && with(&["X-Plan: b"]));
    assert!(with(&[]) && !with(&[]));
    assert!(with(&["X-Plan: 127.0.0.1"]), "a text is no address");

    let by_path = changed(
        &by_header,
        json!({"day": 1, "limit_by": "path", "path": "/a"}),
    );
    assert!(passes(by_path.request("GET /a?b")));
    assert!(!passes(by_path.request("GET /a?b")));
    assert!(!passes(by_path.request("GET /%61")) && !passes(by_path.request("GET //b/../a")));
    let by_other_path = changed(&by_path, json!({"day": 1, "limit_by": "path", "path": "/"}));
    assert!(
        passes(by_other_path.request("GET /a?b")),
        "/a is identified by its address"
    );
}

#[test]
fn a_changed_limit_keeps_the_counts_and_another_route_has_its_own() {
    let two = case(def(), json!({"hour": 2})).on_route();
    let three = changed(&two, json!({"hour": 3})).on_route();
    let on_first = |case: &Case| passes(case.request("GET /"));
    assert!(on_first(&two) && on_first(&two) && !on_first(&two));
    assert!(on_first(&three) && !on_first(&three));
    let route = Uuid::from_u128(2);
    let moved = changed(&two, json!({"hour": 2})).for_route(route);
    assert!(passes(moved.request("GET /").route(route, None)));
}

#[test]
fn a_header_name_must_be_configured() {
    let mut config: Config = testing::config("rate-limiting", json!({"hour": 1}));
    config.limit_by = Some(LimitBy::Header);
    let error = Identify::by(&config).err();
    assert!(matches!(error, Some(BuildError::Field { .. })));
}

/// ldap-auth makes a credential of the username that the client sends. A directory accepts many spellings of one name, so
/// their number of counters is bounded.
#[test]
fn spellings_of_a_username_share_counters_when_there_are_too_many() {
    let node = Arc::clone(Case::empty().node());
    let counters = || Counters::new(2);
    let _counters = node.shared.get_or_insert(NAME, "counters", counters);
    let case = case(def(), json!({"minute": 1, "limit_by": "credential"})).on(node);
    let passing = |consumer: Option<Uuid>| {
        let call = |id: u128| {
            let call = case.request("GET /");
            let call = match consumer {
                Some(consumer) => call.consumer(consumer, "nora"),
                None => call,
            };
            call.credential(Uuid::from_u128(id))
        };
        (1..=20).filter(|id| passes(call(*id))).count()
    };
    assert_eq!(passing(None), 3);
    // The credentials of consumers are entities, which clients cannot make.
    assert_eq!(passing(Some(testing::NORA)), 20);
}
