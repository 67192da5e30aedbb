//! Tests of zipkin: its spans, their tags and times, and what the upstream gets.

use super::def;
use crate::testing;
use plugin::testing::{Case, Upstream, refusal};
use plugin::{Latencies, Phases};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};
use testkit::Sink;
use uuid::Uuid;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn case(sink: &Sink, more: Value) -> Case {
    let mut config = json!({
        "http_endpoint": sink.url(), "sample_ratio": 1,
        "queue": {"max_batch_size": 3, "max_coalescing_delay": 3600},
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    testing::case(def(), config)
}

/// Returns the spans of the request and of the proxy. The third one is that of the try.
fn spans(sink: &Sink) -> [Value; 2] {
    let delivery = sink.next();
    assert_eq!(delivery.header("content-type"), Some("application/json"));
    let [request, proxy, attempt]: [Value; 3] = delivery.records().try_into().expect("three spans");
    let number = &attempt["tags"]["kong.balancer.try"];
    assert!(number == "1" && attempt["parentId"] == request["id"]);
    [request, proxy]
}

#[test]
fn spans_show_the_request_and_who_took_part() {
    let sink = Sink::start(&[]);
    let (consumer, credential) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let case = case(
        &sink,
        json!({"static_tags": [{"name": "env", "value": "test"}]}),
    );
    let outcome = case
        .request("PUT /a/b?c=d")
        .client("192.0.2.1:77")
        .consumer(consumer, "ann")
        .credential(credential)
        .header(
            "Zipkin-Tags",
            "a=1; b = two words ;bad;=x;http.method=EVIL;lc=x",
        )
        .answered(Upstream::new(201))
        .took(
            UNIX_EPOCH + Duration::from_secs(5),
            Latencies {
                request: Duration::from_micros(1500),
                ..Latencies::default()
            },
        )
        .run_now();
    let [request, proxy] = spans(&sink);
    let tags = &request["tags"];
    for (name, value) in [
        ("lc", "kong"),
        ("http.method", "PUT"),
        ("http.path", "/a/b"),
        ("http.protocol", "HTTP/1.1"),
        ("http.status_code", "201"),
        ("env", "test"),
        ("a", "1"),
        ("b", "two words"),
        ("kong.consumer", &consumer.to_string()),
        ("kong.credential", &credential.to_string()),
    ] {
        assert_eq!(tags[name], value, "{name}");
    }
    assert_eq!(
        (&request["name"], &request["kind"]),
        (&json!("PUT"), &json!("SERVER"))
    );
    assert_eq!(request["timestamp"], 5_000_000);
    assert_eq!(request["duration"], 1500);
    assert_eq!(
        request["remoteEndpoint"],
        json!({"ipv4": "192.0.2.1", "port": 77})
    );
    assert_eq!(request["localEndpoint"], json!({"serviceName": "kong"}));
    assert_eq!(
        (&proxy["name"], &proxy["kind"]),
        (&json!("PUT (proxy)"), &json!("CLIENT"))
    );
    assert_eq!(proxy["parentId"], request["id"]);
    let sent = outcome.sent();
    assert_eq!(sent.header("x-b3-spanid"), proxy["id"].as_str());
    assert_eq!(sent.header("x-b3-parentspanid"), request["id"].as_str());
    assert_eq!(sent.header("x-b3-traceid"), request["traceId"].as_str());
    assert_eq!(sent.header("x-b3-sampled"), Some("1"));
}

#[test]
fn a_client_with_b3_shares_its_span() {
    let sink = Sink::start(&[]);
    let case = case(&sink, json!({"include_credential": false}));
    case.request("GET /")
        .credential(Uuid::from_u128(2))
        .header("x-b3-traceid", TRACE)
        .header("x-b3-spanid", "b7ad6b7169203331")
        .header("x-b3-parentspanid", "05e3ac9a4f6e3b90")
        .run_now();
    let [request, _] = spans(&sink);
    assert_eq!(request["traceId"], TRACE);
    assert_eq!(request["id"], "b7ad6b7169203331");
    assert_eq!(request["parentId"], "05e3ac9a4f6e3b90");
    assert!(request["tags"].get("kong.credential").is_none());
    case.request("GET /")
        .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"))
        .run_now();
    let [request, _] = spans(&sink);
    assert_eq!(request["parentId"], "b7ad6b7169203331");
    assert_ne!(request["id"], "b7ad6b7169203331");
}

#[test]
fn phases_are_annotations_or_tags() {
    let sink = Sink::start(&[]);
    case(&sink, json!({})).request("GET /").run_now();
    let names = |span: &Value| -> Vec<String> {
        let annotations = span["annotations"].as_array().unwrap();
        annotations
            .iter()
            .map(|one| one["value"].as_str().unwrap().to_owned())
            .collect()
    };
    let [request, proxy] = spans(&sink);
    assert_eq!(names(&request), ["krs", "krf"]);
    assert_eq!(names(&proxy), ["kas", "kaf", "khs", "khf", "kbs", "kbf"]);
    case(&sink, json!({"phase_duration_flavor": "tags"}))
        .request("GET /")
        .run_now();
    let [request, proxy] = spans(&sink);
    assert!(request.get("annotations").is_none() && proxy.get("annotations").is_none());
    for (span, name) in [
        (&request, "kong.rewrite.duration_ms"),
        (&proxy, "kong.access.duration_ms"),
        (&proxy, "kong.header_filter.duration_ms"),
        (&proxy, "kong.body_filter.duration_ms"),
    ] {
        let text = span["tags"][name].as_str().unwrap();
        assert!(text.parse::<f64>().unwrap() >= 0.0, "{name}");
    }
}

#[test]
fn what_is_not_sampled_is_passed_on_and_not_sent() {
    let sink = Sink::start(&[]);
    let case = case(&sink, json!({"sample_ratio": 0, "traceid_byte_count": 8}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.sent().header("x-b3-sampled"), Some("0"));
    assert_eq!(outcome.sent().header("x-b3-traceid").unwrap().len(), 16);
    // The client's decision goes before the ratio.
    case.request("GET /b").header("x-b3-sampled", "1").run_now();
    let [request, _] = spans(&sink);
    assert_eq!(request["tags"]["http.path"], "/b");
    assert_eq!(request["traceId"].as_str().unwrap().len(), 16);
    assert!(sink.arrived().is_empty());
}

#[test]
fn the_trace_id_is_shown_under_a_header_name_only() {
    crate::install();
    let config = json!({"http_response_header_for_traceid": "X-Trace\r\nX-Evil"});
    let refused = refusal(&def(), config);
    let wanted = "http_response_header_for_traceid: it is no header name";
    assert!(refused.starts_with(wanted), "{refused}");
}

#[test]
fn spans_are_sent_one_by_one_if_batches_have_one() {
    let sink = Sink::start(&[]);
    let case = case(&sink, json!({"queue": {"max_batch_size": 1}}));
    case.request("GET /").run_now();
    for _ in 0..3 {
        assert_eq!(sink.next().records().len(), 1);
    }
}

#[test]
fn tags_of_a_client_are_bounded() {
    let sink = Sink::start(&[]);
    let tags: String = (0..1000).map(|number| format!("t{number}=v;")).collect();
    let case = case(&sink, json!({}));
    case.request("GET /").header("Zipkin-Tags", tags).run_now();
    let [request, _] = spans(&sink);
    assert!(request["tags"].as_object().unwrap().len() < 100);
}

#[test]
fn without_a_server_only_the_headers_change() {
    let case = testing::case(def(), json!({"sample_ratio": 1}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.sent().header("x-b3-sampled"), Some("1"));
    assert!(outcome.failures.is_empty());
}

#[test]
fn bodies_are_not_filtered() {
    let sink = Sink::start(&[]);
    let case = case(&sink, json!({}));
    let outcome = case
        .request("GET /")
        .answered(Upstream::new(200).body("whole"))
        .run_now();
    assert_eq!(outcome.client.text(), "whole");
    assert!(def().phases.intersects(Phases::BODY_FILTER));
}
