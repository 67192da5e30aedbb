//! Tests of prometheus: what is counted, under which labels, and for how long.

mod bounds;

use super::{def, series, sweep};
use crate::testing::people;
use model::EntityKind;
use plugin::testing::{Call, Case, FakeEntities, Upstream};
use plugin::{Latencies, Node};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

const ROUTE: Uuid = Uuid::from_u128(0x1);
const SERVICE: Uuid = Uuid::from_u128(0x2);
const NORA: Uuid = crate::testing::NORA;

/// The entities with a route and a service.
fn entities() -> FakeEntities {
    people()
        .with(EntityKind::Routes, json!({"id": ROUTE, "name": "r"}))
        .with(
            EntityKind::Services,
            json!({"id": SERVICE, "name": "s", "host": "h.test"}),
        )
}

fn case(config: Value) -> Case {
    crate::install();
    Case::new(def(), config).entities(entities())
}

fn all() -> Value {
    json!({
        "per_consumer": true, "status_code_metrics": true, "latency_metrics": true, "bandwidth_metrics": true,
    })
}

/// A request of the route and the service, which the upstream answers.
fn request(case: &Case) -> Call<'_> {
    let request = case.request("GET /").route(ROUTE, Some("r"));
    request
        .service(SERVICE, Some("s"))
        .answered(Upstream::new(200).body("hello"))
}

fn took(call: Call<'_>, gateway: f64, upstream: Option<f64>, request: f64) -> Call<'_> {
    let milliseconds = |time: f64| Duration::from_secs_f64(time / 1000.0);
    let latencies = Latencies {
        request: milliseconds(request),
        gateway: milliseconds(gateway),
        upstream: upstream.map(milliseconds),
        receive: Duration::ZERO,
    };
    call.took(SystemTime::UNIX_EPOCH, latencies)
}

/// The samples of Kong's metrics, without help and type.
fn samples(node: &Node) -> Vec<String> {
    let page = node.metrics.render();
    let samples = page.lines().filter(|line| line.starts_with("kong_"));
    samples.map(str::to_owned).collect()
}

fn samples_of(node: &Node, name: &str) -> Vec<String> {
    let samples = samples(node).into_iter();
    samples.filter(|sample| sample.starts_with(name)).collect()
}

fn sweep(node: &Arc<Node>) {
    let kong = series::get(node);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(sweep::sweep(&kong, node, &mut sweep::Seen::default()));
}

#[test]
fn a_request_is_counted_under_kongs_labels() {
    let case = case(all());
    took(request(&case), 3.9, Some(60.2), 70.0).run_now();
    took(request(&case), 0.2, Some(0.0), 0.9)
        .consumer(NORA, "nora")
        .run_now();
    let expected = [
        "kong_http_requests_total{service=\"s\",route=\"r\",code=\"200\",source=\"service\",workspace=\"default\",consumer=\"\"} 1",
        "kong_http_requests_total{service=\"s\",route=\"r\",code=\"200\",source=\"service\",workspace=\"default\",consumer=\"nora\"} 1",
    ];
    assert_eq!(
        samples_of(case.node(), "kong_http_requests_total"),
        expected
    );
    let bandwidth = samples_of(case.node(), "kong_bandwidth_bytes");
    assert_eq!(bandwidth.len(), 4, "{bandwidth:?}");
    let first = "kong_bandwidth_bytes{service=\"s\",route=\"r\",direction=\"egress\",workspace=\"default\",consumer=\"\"} ";
    assert!(bandwidth[0].starts_with(first), "{bandwidth:?}");
    let labels = "service=\"s\",route=\"r\",workspace=\"default\"";
    let mut latency = samples_of(case.node(), "kong_kong_latency_ms");
    // The buckets count whole milliseconds: 3.9 are 3, and 0.2 are 0.
    assert_eq!(
        latency[0],
        format!("kong_kong_latency_ms_bucket{{{labels},le=\"1\"}} 1")
    );
    let last = latency.split_off(latency.len() - 3);
    let end = [
        format!("kong_kong_latency_ms_bucket{{{labels},le=\"+Inf\"}} 2"),
        format!("kong_kong_latency_ms_count{{{labels}}} 2"),
        format!("kong_kong_latency_ms_sum{{{labels}}} 3"),
    ];
    assert_eq!(last, end);
    let upstream = samples_of(case.node(), "kong_upstream_latency_ms_sum");
    assert_eq!(
        upstream,
        [format!("kong_upstream_latency_ms_sum{{{labels}}} 60")]
    );
    let whole = samples_of(case.node(), "kong_request_latency_ms_bucket");
    assert_eq!(whole.len(), 14);
    let errors = samples_of(case.node(), "kong_nginx_metric_errors_total");
    assert_eq!(errors, ["kong_nginx_metric_errors_total 0"]);
}

#[test]
fn without_switches_nothing_is_counted() {
    let case = case(json!({}));
    request(&case).run_now();
    assert_eq!(samples(case.node()), ["kong_nginx_metric_errors_total 0"]);
}

#[test]
fn answers_of_the_gateway_have_source_kong_and_no_upstream_latency() {
    let case = case(all());
    took(request(&case).upstream_fails(502), 1.0, None, 2.0).run_now();
    let requests = samples_of(case.node(), "kong_http_requests_total");
    assert!(
        requests[0].contains("code=\"502\",source=\"kong\""),
        "{requests:?}"
    );
    assert!(samples_of(case.node(), "kong_upstream_latency_ms").is_empty());
    assert!(!samples_of(case.node(), "kong_request_latency_ms").is_empty());
}

#[test]
fn without_a_name_the_labels_are_the_id_of_the_route_and_the_host_of_the_service() {
    let case = case(json!({"status_code_metrics": true}));
    request(&case)
        .route(ROUTE, None)
        .service(SERVICE, None)
        .run_now();
    request(&case)
        .route(ROUTE, None)
        .without_service()
        .run_now();
    let requests = samples_of(case.node(), "kong_http_requests_total");
    assert!(
        requests[0].contains(&format!("{{service=\"\",route=\"{ROUTE}\",")),
        "{requests:?}"
    );
    assert!(requests[1].contains(&format!("{{service=\"h.test\",route=\"{ROUTE}\",")));
}

#[test]
fn consumers_are_told_apart_only_if_configured() {
    let case = case(json!({"status_code_metrics": true}));
    request(&case).consumer(NORA, "nora").run_now();
    request(&case).run_now();
    let requests = samples_of(case.node(), "kong_http_requests_total");
    assert_eq!(requests.len(), 1);
    assert!(requests[0].ends_with("consumer=\"\"} 2"), "{requests:?}");
}

#[test]
fn a_consumer_with_a_new_name_counts_under_it() {
    let case = case(json!({"status_code_metrics": true, "per_consumer": true}));
    for name in ["nora", "a\"b\\c\nd", "nora"] {
        request(&case).consumer(NORA, name).run_now();
    }
    let requests = samples_of(case.node(), "kong_http_requests_total");
    assert!(
        requests[0].ends_with("consumer=\"a\\\"b\\\\c\\nd\"} 1"),
        "{requests:?}"
    );
    assert!(
        requests[1].ends_with("consumer=\"nora\"} 2"),
        "{requests:?}"
    );
}

#[test]
fn all_statuses_have_a_counter_of_their_own() {
    let case = case(json!({"status_code_metrics": true}));
    for status in 200..600 {
        request(&case).answered(Upstream::new(status)).run_now();
        request(&case).upstream_fails(status).run_now();
    }
    request(&case).answered(Upstream::new(404)).run_now();
    let requests = samples_of(case.node(), "kong_http_requests_total");
    assert_eq!(requests.len(), 800);
    let twice: Vec<_> = requests.iter().filter(|one| one.ends_with(" 2")).collect();
    assert_eq!(twice.len(), 1);
    assert!(twice[0].contains("code=\"404\",source=\"service\""));
}

#[test]
fn metrics_are_shown_while_the_plugin_is_configured_and_go_on_with_the_next_configuration() {
    let first = case(json!({"status_code_metrics": true}));
    request(&first).run_now();
    let node = first.node().clone();
    let second =
        case(json!({"status_code_metrics": true, "bandwidth_metrics": true})).on(node.clone());
    request(&second).run_now();
    drop(first);
    assert!(samples_of(&node, "kong_http_requests_total")[0].ends_with(" 2"));
    drop(second);
    assert!(samples(&node).is_empty(), "no plugin is configured");
    let third = case(json!({"status_code_metrics": true})).on(node.clone());
    request(&third).run_now();
    assert!(samples_of(&node, "kong_http_requests_total")[0].ends_with(" 3"));
}

#[test]
fn the_health_of_upstreams_is_shown_by_the_plugin_that_logged_last() {
    let shows = case(json!({"upstream_health_metrics": true}));
    let node = shows.node().clone();
    assert!(!super::shows_upstream_health(&node));
    request(&shows).run_now();
    assert!(super::shows_upstream_health(&node));
    let hides = case(json!({})).on(node.clone());
    request(&hides).run_now();
    assert!(!super::shows_upstream_health(&node));
    request(&shows).run_now();
    drop((shows, hides));
    assert!(!super::shows_upstream_health(&node));
}
