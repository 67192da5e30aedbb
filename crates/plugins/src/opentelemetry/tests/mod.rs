//! Tests of opentelemetry: decisions about sampling, what the upstream gets, and what the collector gets.

mod encoding;
mod grpc;

use super::def;
use crate::testing;
use plugin::testing::{Case, Outcome, Upstream, refusal};
use plugin::trace::{Moment, PluginPhase, SpanKind};
use plugin::{Instrumentations, Node, RequestState, Tracing};
use prost::Message as _;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::Sink;
use testkit::otlp::{self, Span};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";

/// Later than the start of any request of a test.
const DAY: Duration = Duration::from_secs(24 * 3600);

fn tracing(sampling_rate: f64) -> Tracing {
    Tracing {
        instrumentations: Instrumentations::REQUEST,
        sampling_rate,
    }
}

fn case(sink: &Sink, more: serde_json::Value) -> Case {
    let mut config = json!({"traces_endpoint": sink.url(), "queue": {"max_batch_size": 1}});
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    testing::case(def(), config).tracing(tracing(1.0))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the one span of an export.
fn next_span(sink: &Sink) -> Span {
    let mut spans = otlp::spans(&sink.next().body);
    assert_eq!(spans.len(), 1);
    spans.remove(0)
}

fn traceparent(outcome: &Outcome) -> String {
    let sent = outcome.sent();
    sent.header("traceparent").unwrap().to_owned()
}

#[test]
fn a_trace_goes_on_with_the_gateways_span_below_the_clients() {
    let sink = Sink::start(&[]);
    let case = case(&sink, json!({}));
    let outcome = case
        .request("GET /a?b=c")
        .header("traceparent", format!("{CLIENT}-01"))
        .run_now();
    let span = next_span(&sink);
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    let expected = format!("00-{TRACE}-{}-01", hex(&span.span_id));
    assert_eq!(traceparent(&outcome), expected);
    assert_eq!(outcome.state.trace.id.unwrap().hex(), *TRACE.as_bytes());
}

#[test]
fn without_a_clients_context_the_trace_begins_here() {
    let sink = Sink::start(&[]);
    let outcome = case(&sink, json!({})).request("GET /").run_now();
    let span = next_span(&sink);
    assert_eq!((span.name.as_str(), span.parent_span_id.len()), ("kong", 0));
    assert_ne!(span.trace_id, [0; 16]);
    assert!(traceparent(&outcome).contains(&hex(&span.trace_id)));
}

/// Sends requests that are not sampled, and then one that is, which alone must arrive.
#[test]
fn what_is_not_sampled_costs_only_its_header() {
    let sink = Sink::start(&[]);
    let case = case(&sink, json!({"sampling_rate": 0.5}));
    // The first half of the id decides, as a little-endian number.
    let ids = [
        "00000000000000c0448eb211c80319cd",
        "ffffffffffffffff448eb211c80319cd",
    ];
    for id in ids {
        let outcome = case
            .request("GET /")
            .header("traceparent", format!("00-{id}-b7ad6b7169203331-01"))
            .run_now();
        let sent = traceparent(&outcome);
        assert!(sent.starts_with(&format!("00-{id}-")) && sent.ends_with("-00"));
        assert!(outcome.state.trace.spans().is_empty());
        assert!(!outcome.state.trace.records(Instrumentations::ALL));
    }
    let outcome = case
        .request("GET /")
        .header("traceparent", format!("{CLIENT}-00"))
        .run_now();
    assert!(traceparent(&outcome).ends_with("-00"));
    case.request("GET /")
        .header(
            "traceparent",
            "00-ffffffffffffff3f448eb211c80319cd-b7ad6b7169203331-01",
        )
        .run_now();
    assert_eq!(
        hex(&next_span(&sink).trace_id),
        "ffffffffffffff3f448eb211c80319cd"
    );
    assert!(sink.arrived().is_empty());
}

#[test]
fn without_instrumentations_only_the_context_is_passed_on() {
    let sink = Sink::start(&[]);
    let case = case(&sink, json!({})).tracing(Tracing::default());
    let outcome = case
        .request("GET /")
        .header("traceparent", format!("{CLIENT}-01"))
        .run_now();
    let sent = traceparent(&outcome);
    assert!(sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-00"));
    assert!(sink.arrived().is_empty());
}

#[test]
fn the_end_of_a_request_can_decide_that_it_is_traced() {
    let sink = Sink::start(&[]);
    let more = json!({"sampling_rate": 0, "tail_sampling": {"errors": true}});
    let case = case(&sink, more);
    case.request("GET /fine").run_now();
    let outcome = case
        .request("GET /broken")
        .answered(Upstream::new(503))
        .run_now();
    // Other services cannot know the decision.
    assert!(traceparent(&outcome).ends_with("-00"));
    let span = next_span(&sink);
    let attributes = otlp::attributes(&span.attributes);
    assert_eq!(attributes["http.status_code"], otlp::Value::Integer(503));
    assert!(sink.arrived().is_empty());
}

#[test]
fn the_url_of_a_span_hides_credentials_if_the_node_wants_it() {
    let sink = Sink::start(&[]);
    let mut node = Node::bare().unwrap();
    let parts = Arc::get_mut(&mut node).unwrap();
    parts.redacts_records = true;
    parts.identity.tracing = tracing(1.0);
    let case = case(&sink, json!({})).on(node);
    case.request("GET /a?b=c&access_token=d").run_now();
    let span = next_span(&sink);
    let attributes = otlp::attributes(&span.attributes);
    let url = "http://a.test/a?b=c&access_token=REDACTED";
    assert_eq!(attributes["http.url"], otlp::Value::Text(url.to_owned()));
}

#[test]
fn a_batch_has_the_resource_once() {
    let sink = Sink::start(&[]);
    let more = json!({
        "resource_attributes": {"service.name": "edge", "zone": "a"},
        "headers": {"X-Key": "secret"},
        "queue": {"max_batch_size": 3, "max_coalescing_delay": 3600},
    });
    let case = case(&sink, more);
    for _ in 0..3 {
        case.request("GET /").run_now();
    }
    let delivery = sink.next();
    assert_eq!(
        delivery.header("content-type"),
        Some("application/x-protobuf")
    );
    assert_eq!(delivery.header("x-key"), Some("secret"));
    let traces = otlp::Export::<Span>::decode(&*delivery.body).unwrap();
    let [of_resource] = &traces.resources[..] else {
        panic!("several resources");
    };
    let resource = of_resource.resource.as_ref().unwrap();
    let attributes = otlp::attributes(&resource.attributes);
    assert_eq!(attributes["service.name"], otlp::Value::Text("edge".into()));
    assert_eq!(
        attributes["service.version"],
        otlp::Value::Text("3.9.1".into())
    );
    assert_eq!(attributes["zone"], otlp::Value::Text("a".into()));
    let [of_scope] = &of_resource.scopes[..] else {
        panic!("several scopes");
    };
    assert_eq!(of_scope.items.len(), 3);
    let scope = of_scope.scope.as_ref().unwrap();
    assert_eq!((&*scope.name, &*scope.version), ("kong-internal", "0.1.0"));
}

#[test]
fn spans_of_a_request_fit_into_batches() {
    for (size, expected) in [(1, vec![1, 1]), (2, vec![2])] {
        let sink = Sink::start(&[]);
        let case = case(&sink, json!({"queue": {"max_batch_size": size}}));
        let all = Tracing {
            instrumentations: Instrumentations::ALL,
            sampling_rate: 1.0,
        };
        case.tracing(all).request("GET /").run_now();
        let spans = expected
            .iter()
            .map(|_| otlp::spans(&sink.next().body).len());
        assert_eq!(spans.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_queue_that_is_too_small_for_all_spans_gets_the_root_span() {
    let export = |queue: serde_json::Value| {
        let sink = Sink::start(&[]);
        let case = case(&sink, json!({"queue": queue})).tracing(Tracing {
            instrumentations: Instrumentations::ALL,
            sampling_rate: 1.0,
        });
        case.request("GET /").run_now();
        let spans = otlp::spans(&sink.next().body);
        (spans, case.node().queues.counts()[0].counts)
    };
    let (all, _) = export(json!({"max_batch_size": 2}));
    assert_eq!(all.len(), 2);
    // The second span is longer than what is left.
    let room = all[0].encoded_len() + 20;
    for size in [1, 2] {
        let queue = json!({"max_batch_size": size, "max_coalescing_delay": 0.1, "max_bytes": room});
        let (kept, counts) = export(queue);
        assert_eq!((kept.len(), kept[0].name.as_str()), (1, "kong"));
        assert_eq!((counts.pushed, counts.refused), (2, 1), "{size}");
    }
}

#[test]
fn spans_are_not_sent_without_their_root() {
    let sink = Sink::start(&[]);
    let queue = json!({"max_batch_size": 1, "max_coalescing_delay": 0.1, "max_bytes": 150});
    let case = case(&sink, json!({"queue": queue})).tracing(Tracing {
        instrumentations: Instrumentations::ALL,
        sampling_rate: 1.0,
    });
    case.request("GET /").run_now();
    let counts = case.node().queues.counts()[0].counts;
    assert_eq!((counts.pushed, counts.refused), (2, 2));
}

#[test]
fn the_root_span_shows_the_request() {
    let sink = Sink::start(&[]);
    let long = "x".repeat(4000);
    let case = case(&sink, json!({}));
    case.request("GET /short")
        .client("192.0.2.100:77")
        .run_now();
    case.request(&format!("PUT /a%ff?b={long}"))
        .client("[2001:db8::1]:77")
        .run_now();
    let text = |text: &str| otlp::Value::Text(text.to_owned());
    let span = next_span(&sink);
    let short = otlp::attributes(&span.attributes);
    assert_eq!(short["http.url"], text("http://a.test/short"));
    assert_eq!(short["http.client_ip"], text("192.0.2.100"));
    assert_eq!(short["http.flavor"], text("1.1"));
    let span = next_span(&sink);
    let long_one = otlp::attributes(&span.attributes);
    let url = format!("http://a.test/a%ff?b={long}");
    assert_eq!(long_one["http.url"], text(&url));
    assert_eq!(long_one["http.method"], text("PUT"));
    assert_eq!(long_one["net.peer.ip"], text("2001:db8::1"));
    assert_eq!(long_one["http.status_code"], otlp::Value::Integer(200));
}

#[test]
fn spans_of_plugins_have_names_of_any_length() {
    let names = [1, 40, 47, 48, 49, 200, 20_000].map(|length| "x".repeat(length));
    let sink = Sink::start(&[]);
    let count = names.len() + 2;
    let case = case(&sink, json!({"queue": {"max_batch_size": count}})).tracing(Tracing {
        instrumentations: Instrumentations::ALL,
        sampling_rate: 1.0,
    });
    let (start, took) = (Instant::now(), Duration::from_micros(7));
    let add = |state: &mut RequestState| {
        for name in &names {
            state.trace.add(plugin::trace::Span {
                kind: SpanKind::Plugin {
                    phase: PluginPhase::Access,
                    name: name.clone().into(),
                },
                start: Moment::of(start + DAY),
                end: Moment::of(start + DAY + took),
                details: None,
            });
        }
    };
    case.request("GET /").state(add).run_now();
    let spans = otlp::spans(&sink.next().body);
    assert_eq!(spans.len(), count);
    let root = &spans[0];
    for (name, span) in names.iter().zip(&spans[1..]) {
        assert_eq!(span.name, format!("kong.access.plugin.{name}"));
        assert_eq!(span.trace_id, root.trace_id);
        assert_eq!(span.parent_span_id, root.span_id);
        assert_eq!(span.end - span.start, 7000);
        assert_eq!(
            (span.kind(), span.attributes.len()),
            (otlp::Kind::Internal, 0)
        );
    }
    let ids: HashSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), count);
}

#[test]
fn only_status_200_is_a_success() {
    let sink = Sink::start(&[202, 302]);
    let more = json!({"queue": {"max_batch_size": 1, "initial_retry_delay": 0.001}});
    case(&sink, more).request("GET /").run_now();
    let bodies = [sink.next().body, sink.next().body, sink.next().body];
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2]);
}

#[test]
fn the_response_shows_the_trace_id() {
    let sink = Sink::start(&[]);
    let case = case(
        &sink,
        json!({"http_response_header_for_traceid": "X-Trace"}),
    );
    let outcome = case
        .request("GET /")
        .header("traceparent", format!("{CLIENT}-01"))
        .run_now();
    assert_eq!(outcome.client.header("x-trace"), Some(TRACE));
}

#[test]
fn the_log_record_shows_the_trace_id() {
    let sink = Sink::start(&[]);
    let more = json!({"propagation": {"default_format": "w3c", "extract": ["w3c"], "inject": ["w3c", "datadog"]}});
    let outcome = case(&sink, more)
        .request("GET /")
        .header("traceparent", format!("{CLIENT}-01"))
        .run_now();
    let sent = outcome.sent();
    assert_eq!(
        sent.header("x-datadog-trace-id"),
        Some("9532127138774266268")
    );
}

#[test]
fn the_trace_id_is_shown_under_a_header_name_only() {
    crate::install();
    for name in ["X Trace", "X-Trace\r\nX-Evil"] {
        let config = json!({
            "traces_endpoint": "http://127.0.0.1/v1/traces", "http_response_header_for_traceid": name,
        });
        let refused = refusal(&def(), config);
        assert!(
            refused.starts_with("http_response_header_for_traceid: it is no header name"),
            "{refused}"
        );
    }
}

#[test]
fn endpoints_are_urls() {
    crate::install();
    let refused = refusal(&def(), json!({"traces_endpoint": "{vault://env/a}"}));
    assert!(
        refused.starts_with("traces_endpoint: it is a vault reference"),
        "{refused}"
    );
}
