//! How long series are kept, and how many there are at most.

use super::{NORA, ROUTE, SERVICE, case, entities, request, samples_of, sweep};
use crate::prometheus::def;
use model::EntityKind;
use plugin::testing::{Case, FakeEntities, Upstream};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const REQUESTS: &str = "kong_http_requests_total";

fn on(entities: &Arc<FakeEntities>) -> Case {
    crate::install();
    Case::new(def(), super::all()).entities(entities.clone())
}

#[test]
fn series_of_a_deleted_route_go_after_ten_minutes() {
    let entities = Arc::new(entities());
    let case = on(&entities);
    let node = case.node().clone();
    request(&case).run_now();
    request(&case).consumer(NORA, "nora").run_now();
    sweep(&node);
    assert_eq!(samples_of(&node, REQUESTS).len(), 2);
    entities.remove(EntityKind::Routes, ROUTE);
    sweep(&node);
    node.clock.advance(Duration::from_secs(599));
    sweep(&node);
    assert_eq!(
        samples_of(&node, REQUESTS).len(),
        2,
        "they are scraped once more"
    );
    node.clock.advance(Duration::from_secs(1));
    sweep(&node);
    for name in [
        REQUESTS,
        "kong_bandwidth_bytes",
        "kong_kong_latency_ms",
        "kong_request_latency_ms",
    ] {
        assert!(samples_of(&node, name).is_empty(), "{name}");
    }
    request(&case).run_now();
    assert!(
        samples_of(&node, REQUESTS)[0].ends_with(" 1"),
        "a later one starts at zero"
    );
}

#[test]
fn series_of_a_renamed_service_go_and_its_new_ones_stay() {
    let entities = Arc::new(entities());
    let case = on(&entities);
    let node = case.node().clone();
    request(&case).run_now();
    entities.put(
        EntityKind::Services,
        json!({"id": SERVICE, "name": "new", "host": "h.test"}),
    );
    request(&case).service(SERVICE, Some("new")).run_now();
    assert_eq!(samples_of(&node, REQUESTS).len(), 2);
    sweep(&node);
    node.clock.advance(Duration::from_secs(600));
    sweep(&node);
    let requests = samples_of(&node, REQUESTS);
    assert_eq!(requests.len(), 1);
    assert!(requests[0].contains("service=\"new\""), "{requests:?}");
}

#[test]
fn a_route_that_comes_back_keeps_its_series() {
    let entities = Arc::new(entities());
    let case = on(&entities);
    let node = case.node().clone();
    request(&case).run_now();
    entities.remove(EntityKind::Routes, ROUTE);
    sweep(&node);
    node.clock.advance(Duration::from_secs(300));
    entities.put(EntityKind::Routes, json!({"id": ROUTE, "name": "r"}));
    sweep(&node);
    node.clock.advance(Duration::from_secs(3000));
    sweep(&node);
    assert_eq!(samples_of(&node, REQUESTS).len(), 1);
}

#[test]
fn a_route_with_the_name_of_a_deleted_one_counts_on_under_it() {
    let entities = Arc::new(entities());
    let case = on(&entities);
    let node = case.node().clone();
    let again = Uuid::from_u128(0x77);
    let call = |route| super::took(request(&case).route(route, Some("r")), 3.0, None, 4.0);
    call(ROUTE).run_now();
    entities.remove(EntityKind::Routes, ROUTE);
    entities.put(EntityKind::Routes, json!({"id": again, "name": "r"}));
    call(again).run_now();
    let counted = || {
        let sum = samples_of(&node, "kong_request_latency_ms_sum");
        [samples_of(&node, REQUESTS), sum].concat()
    };
    let both = counted();
    assert_eq!(both.len(), 2);
    assert!(
        both[0].ends_with(" 2") && both[1].ends_with(" 8"),
        "{both:?}"
    );
    sweep(&node);
    node.clock.advance(Duration::from_secs(600));
    sweep(&node);
    assert_eq!(counted(), both, "what the deleted route has counted stays");
}

#[test]
fn series_of_a_deleted_consumer_go_and_those_of_the_route_stay() {
    let entities = Arc::new(entities());
    let case = on(&entities);
    let node = case.node().clone();
    request(&case).run_now();
    request(&case).consumer(NORA, "nora").run_now();
    sweep(&node);
    entities.remove(EntityKind::Consumers, NORA);
    sweep(&node);
    node.clock.advance(Duration::from_secs(600));
    sweep(&node);
    let requests = samples_of(&node, REQUESTS);
    assert_eq!(requests.len(), 1);
    assert!(requests[0].contains("consumer=\"\""), "{requests:?}");
}

#[test]
fn series_of_a_former_name_of_a_consumer_go_after_ten_minutes() {
    let case = case(super::all());
    let node = case.node().clone();
    request(&case).consumer(NORA, "old").run_now();
    request(&case).consumer(NORA, "nora").run_now();
    sweep(&node);
    assert_eq!(samples_of(&node, REQUESTS).len(), 2);
    node.clock.advance(Duration::from_secs(600));
    sweep(&node);
    // The replaced value of the map is freed with those that are replaced or removed later.
    let requests = samples_of(&node, REQUESTS);
    assert!(
        requests.iter().any(|one| one.contains("consumer=\"nora\"")),
        "{requests:?}"
    );
    assert_eq!(requests.len(), 1);
}

#[test]
fn routes_made_and_deleted_without_end_leave_no_series() {
    let entities = Arc::new(entities());
    let case = on(&entities);
    let node = case.node().clone();
    for number in 0..3000_u128 {
        let id = Uuid::from_u128(0x1000 + number);
        entities.put(
            EntityKind::Routes,
            json!({"id": id, "name": number.to_string()}),
        );
        request(&case)
            .route(id, Some(&number.to_string()))
            .consumer(NORA, "nora")
            .run_now();
        entities.remove(EntityKind::Routes, id);
        if number % 500 == 499 {
            sweep(&node);
            node.clock.advance(Duration::from_secs(600));
            sweep(&node);
            assert!(
                samples_of(&node, "kong_").len() == 1,
                "only the counter of errors is left"
            );
        }
    }
}

#[test]
fn consumers_beyond_the_limit_are_counted_together_under_their_route() {
    let case = case(super::all());
    let node = case.node().clone();
    // The limit is 100,000 series, three quarters of which consumers may take; each has two of bandwidth.
    for number in 0..40_000_u128 {
        let call =
            request(&case).consumer(Uuid::from_u128(0x10_0000 + number), &number.to_string());
        call.run_now();
    }
    let other = format!(
        "{REQUESTS}{{service=\"s\",route=\"r\",code=\"200\",source=\"service\",workspace=\"default\",consumer=\"other\"}} 2500"
    );
    let requests = samples_of(&node, REQUESTS);
    assert_eq!(requests.len(), 37_501);
    assert_eq!(requests.last(), Some(&other));
    assert_eq!(
        samples_of(&node, "kong_nginx_metric_errors_total"),
        ["kong_nginx_metric_errors_total 2500"]
    );
    // A route that comes later has series of its own.
    request(&case)
        .route(Uuid::from_u128(77), Some("later"))
        .answered(Upstream::new(201))
        .run_now();
    let later = samples_of(&node, REQUESTS);
    assert!(
        later
            .iter()
            .any(|one| one.contains("route=\"later\",code=\"201\""))
    );
}
