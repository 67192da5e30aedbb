//! Tests of tracing from end to end: the spans that a collector gets from the real program, traces that go on across two
//! gateways, and the timings of a request for who debugs it.

use crate::http_log::wait_for;
use crate::launch;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use testkit::otlp::{self, Kind, Span, attributes};
use testkit::upstream::refusing;
use testkit::{Echo, Gateway, Sink};

/// A configuration with one route, and opentelemetry that sends to this collector.
fn traced(upstream: &str, sink: &Sink, plugins: &[Value]) -> String {
    let mut all = vec![json!({"name": "opentelemetry", "config": {
        "traces_endpoint": format!("{}/v1/traces", sink.url()),
        "queue": {"max_batch_size": 1000, "max_coalescing_delay": 3600},
    }})];
    all.extend_from_slice(plugins);
    let route = json!({"name": "r", "paths": ["/a", "/b"], "strip_path": false, "plugins": all});
    let service = json!({"name": "s", "url": upstream, "retries": 1, "routes": [route]});
    json!({"_format_version": "3.0", "services": [service]}).to_string()
}

fn gateway(configuration: &str, instrumentations: &str) -> Gateway {
    launch()
        .configuration(configuration)
        .set("tracing_instrumentations", instrumentations)
        .set("tracing_sampling_rate", "1")
        .start()
}

/// Stops the gateway, which sends what it holds, and returns the spans of the collector by name.
fn stopped(gateway: Gateway, sink: &Sink) -> BTreeMap<String, Vec<Span>> {
    assert!(gateway.stop().success());
    let mut spans: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for delivery in sink.arrived() {
        for span in otlp::spans(&delivery.body) {
            spans.entry(span.name.clone()).or_default().push(span);
        }
    }
    spans
}

#[test]
fn all_spans_of_a_request_are_below_its_root() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let plugins = [json!({"name": "correlation-id"}), json!({"name": "cors"})];
    let gateway = gateway(&traced(&echo.url(), &sink, &plugins), "all");
    assert_eq!(gateway.get("/b/c?d=e", &[]).status, 200);
    let spans = stopped(gateway, &sink);
    let names: Vec<_> = spans.keys().map(String::as_str).collect();
    let expected = [
        "kong",
        "kong.access.plugin.correlation-id",
        "kong.access.plugin.cors",
        "kong.access.plugin.opentelemetry",
        "kong.balancer",
        "kong.header_filter.plugin.cors",
        "kong.header_filter.plugin.opentelemetry",
        "kong.router",
    ];
    for name in expected {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let root = &spans["kong"][0];
    for span in spans.values().flatten() {
        assert_eq!(span.trace_id, root.trace_id);
        assert!(
            root.start <= span.start && span.start <= span.end,
            "{span:?}"
        );
        if span.name != "kong" {
            assert_eq!(span.parent_span_id, root.span_id, "{}", span.name);
        }
    }
    let shown = attributes(&root.attributes);
    assert_eq!(shown["http.status_code"], otlp::Value::Integer(200));
    assert_eq!(shown["http.route"], otlp::Value::Text("/a".into()));
    assert_eq!(root.kind(), Kind::Server);
    let balancer = &spans["kong.balancer"][0];
    assert_eq!(balancer.kind(), Kind::Client);
    let seen = &echo.seen()[0];
    let told = seen["headers"]["traceparent"].as_str();
    let hex: String = balancer
        .span_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(told.unwrap().ends_with(&format!("-{hex}-01")));
}

#[test]
fn a_trace_goes_on_across_two_gateways() {
    let (echo, near_sink, far_sink) = (Echo::start(), Sink::start(&[]), Sink::start(&[]));
    let far = gateway(&traced(&echo.url(), &far_sink, &[]), "request");
    let far_url = format!("http://{}", far.proxy);
    let near = gateway(&traced(&far_url, &near_sink, &[]), "request,balancer");
    assert_eq!(near.get("/a", &[]).status, 200);
    let near = stopped(near, &near_sink);
    let far = stopped(far, &far_sink);
    assert_eq!(near["kong"][0].trace_id, far["kong"][0].trace_id);
    assert_eq!(
        far["kong"][0].parent_span_id,
        near["kong.balancer"][0].span_id
    );
    assert!(near["kong"][0].parent_span_id.is_empty());
}

#[test]
fn lua_code_adds_spans_and_attributes_of_the_root() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let code = "local root = kong.tracing.get_root_span()
        root:set_attribute('tenant', 'a') root:add_event('seen', {n = 1})
        local span = kong.tracing.start_span('work', {span_kind = 3, attributes = {list = {1, 'x'}, yes = true}})
        kong.tracing.set_active_span(span)
        local inner = kong.tracing.start_span('inner')
        inner:record_error('no') inner:set_status(2) inner:finish()
        span:finish()
        kong.tracing.start_span('unfinished')";
    let plugins = [json!({"name": "pre-function", "config": {"access": [code]}})];
    let gateway = gateway(&traced(&echo.url(), &sink, &plugins), "request");
    assert_eq!(gateway.get("/a", &[]).status, 200);
    let spans = stopped(gateway, &sink);
    let names: Vec<_> = spans.keys().map(String::as_str).collect();
    assert_eq!(names, ["inner", "kong", "work"]);
    let (root, work, inner) = (&spans["kong"][0], &spans["work"][0], &spans["inner"][0]);
    assert_eq!(work.parent_span_id, root.span_id);
    assert_eq!(inner.parent_span_id, work.span_id);
    assert!(
        spans
            .values()
            .flatten()
            .all(|span| span.trace_id == root.trace_id)
    );
    assert_eq!(work.kind(), Kind::Client);
    assert!(work.start <= inner.start && inner.end <= work.end);
    let tenant = &attributes(&root.attributes)["tenant"];
    assert_eq!(tenant, &otlp::Value::Text("a".into()));
    assert_eq!(root.events[0].name, "seen");
    assert_eq!(
        (&*inner.events[0].name, inner.status.as_ref().unwrap().code),
        ("exception", 2)
    );
    let names: Vec<_> = work.attributes.iter().map(|pair| &*pair.key).collect();
    assert_eq!(names, ["list", "yes"]);
}

#[test]
fn a_collector_gets_all_metrics_of_the_gateway() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let config = json!({
        "metrics_endpoint": format!("{}/v1/metrics", sink.url()), "metrics_interval": 1,
        "resource_attributes": {"service.name": "edge"},
    });
    let route = json!({"name": "r", "paths": ["/a"]});
    let service = json!({"name": "s", "url": echo.url(), "routes": [route]});
    let plugins = json!([{"name": "opentelemetry", "config": config}, {"name": "prometheus"}]);
    let configuration =
        json!({"_format_version": "3.0", "services": [service], "plugins": plugins});
    let gateway = launch().configuration(&configuration.to_string()).start();
    assert_eq!(gateway.get("/a", &[]).status, 200);
    // What the gateway adds itself, what plugins count, and what counts the data plane.
    let names = [
        "silverback_change_seconds",
        "kong_node_info",
        "silverback_requests_total",
    ];
    let found = names.map(|name| {
        loop {
            let delivery = sink.next();
            assert_eq!(delivery.line, "POST /v1/metrics HTTP/1.1");
            let metrics = otlp::metrics(&delivery.body);
            let mut metrics = metrics.into_iter();
            if let Some(found) = metrics.find(|metric| metric.name == name) {
                break found;
            }
        }
    });
    assert!(matches!(found[0].data, Some(otlp::Data::Summary(_))));
    let Some(otlp::Data::Sum(requests)) = &found[2].data else {
        panic!("{found:?}");
    };
    assert!(requests.is_monotonic);
    let ok = requests.points.iter().find(|point| {
        attributes(&point.attributes)["status_class"] == otlp::Value::Text("2xx".into())
    });
    assert_eq!(ok.unwrap().value, Some(otlp::Number::Double(1.0)));
    let shown = gateway.admin_get("/metrics").text();
    for metric in &found {
        assert!(shown.contains(&format!("# TYPE {} ", metric.name)));
    }
}

#[test]
fn each_failed_try_is_a_span_with_an_error() {
    let sink = Sink::start(&[]);
    let upstream = format!("http://{}", refusing());
    let gateway = gateway(&traced(&upstream, &sink, &[]), "all");
    assert_eq!(gateway.get("/a", &[]).status, 502);
    let spans = stopped(gateway, &sink);
    let tries = &spans["kong.balancer"];
    assert_eq!(tries.len(), 2);
    for (number, one) in (1..).zip(tries) {
        let shown = attributes(&one.attributes);
        assert_eq!(shown["try_count"], otlp::Value::Number(f64::from(number)));
        assert_eq!(shown["http.status_code"], otlp::Value::Integer(502));
        assert_eq!(one.status.as_ref().map(|status| status.code), Some(2));
    }
}

#[test]
fn a_dead_collector_costs_no_request_anything() {
    let echo = Echo::start();
    let mut sink = Sink::start(&[]);
    sink.kill();
    let gateway = gateway(&traced(&echo.url(), &sink, &[]), "all");
    for _ in 0..20 {
        assert_eq!(gateway.get("/a", &[]).status, 200);
    }
    assert_eq!(echo.requests(), 20);
}

#[test]
fn lines_about_a_request_go_to_the_collectors_of_its_route() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let says = |text: &str| json!({"name": "pre-function", "config": {"access": [format!("kong.log.err('{text}')")]}});
    let logs = json!({"name": "opentelemetry", "config": {
        "logs_endpoint": format!("{}/v1/logs", sink.url()),
        "queue": {"max_batch_size": 1000, "max_coalescing_delay": 3600},
    }});
    let routes = json!([
        {"name": "r", "paths": ["/a"], "plugins": [logs, says("wanted")]},
        {"name": "q", "paths": ["/b"], "plugins": [says("unwanted")]},
    ]);
    let service = json!({"name": "s", "url": echo.url(), "routes": routes});
    let configuration = json!({"_format_version": "3.0", "services": [service]}).to_string();
    let gateway = launch().configuration(&configuration).start();
    assert_eq!(gateway.get("/b", &[]).status, 200);
    let response = gateway.get("/a", &[]);
    assert!(gateway.stop().success());
    let records: Vec<_> = sink
        .arrived()
        .iter()
        .flat_map(|one| otlp::records(&one.body))
        .collect();
    let text = |record: &otlp::LogRecord| match record.body.clone().unwrap().value {
        Some(otlp::Value::Text(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(
        !records
            .iter()
            .any(|record| text(record).contains("unwanted")),
        "{records:?}"
    );
    let about: Vec<_> = records
        .iter()
        .filter(|record| text(record).contains("wanted"))
        .collect();
    assert_eq!(about.len(), 1);
    assert_eq!(
        (about[0].severity_number, &*about[0].severity_text),
        (17, "ERR")
    );
    let id = response.header("x-kong-request-id").unwrap().to_owned();
    assert_eq!(
        attributes(&about[0].attributes)["request.id"],
        otlp::Value::Text(id)
    );
    // The gateway's own lines come too.
    assert!(records.iter().any(|record| record.attributes.is_empty()));
}

#[test]
fn a_delivery_of_log_lines_leads_to_no_further_lines() {
    /// Texts of lines that only the HTTP client writes.
    const OF_CLIENT: [&str; 3] = [
        "reuse idle connection",
        "pooling idle connection",
        "flushed",
    ];
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let logs = json!({"name": "opentelemetry", "config": {
        "logs_endpoint": format!("{}/v1/logs", sink.url()),
        "queue": {"max_batch_size": 1, "max_coalescing_delay": 0},
    }});
    let says = json!({"name": "pre-function", "config": {"access": ["kong.log.err('line ' .. kong.request.get_path())"]}});
    let route = json!({"name": "r", "paths": ["/"], "plugins": [logs, says]});
    let service = json!({"name": "s", "url": echo.url(), "routes": [route]});
    let configuration = json!({"_format_version": "3.0", "services": [service]}).to_string();
    let gateway = launch()
        .configuration(&configuration)
        .set("log_level", "debug")
        .start();
    let texts = || -> Vec<String> {
        let arrived = sink.arrived();
        let records = arrived.iter().flat_map(|one| otlp::records(&one.body));
        let bodies = records.filter_map(|record| record.body?.value);
        bodies.map(|body| format!("{body:?}")).collect()
    };
    // Lines are delivered in their order. So those about the delivery of the first line come before the third one.
    for number in 1..=3 {
        assert_eq!(gateway.get(&format!("/{number}"), &[]).status, 200);
        let line = format!("line /{number}");
        wait_for("the line is delivered", || {
            texts().iter().any(|text| text.contains(&line))
        });
    }
    let log = gateway.log();
    let is_of_client = |text: &str| OF_CLIENT.iter().any(|start| text.contains(start));
    assert!(is_of_client(&log), "the client writes lines: {log}");
    let texts = texts();
    assert!(!texts.iter().any(|text| is_of_client(text)), "{texts:?}");
}

/// The tree of the response's header.
fn tree(response: &testkit::HttpResponse) -> Option<Value> {
    let text = response.header("x-kong-request-debug-output")?;
    Some(serde_json::from_str(text).expect("the tree is JSON"))
}

#[test]
fn who_debugs_a_request_gets_its_timings() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let configuration = traced(&echo.url(), &sink, &[json!({"name": "cors"})]);
    let gateway = launch().configuration(&configuration).start();
    let asks = ("X-Kong-Request-Debug", "*");
    assert_eq!(tree(&gateway.get("/a", &[])), None);
    assert_eq!(
        tree(&gateway.get("/a", &[("X-Kong-Request-Debug", "router")])),
        None
    );
    let secrets = ("X-Kong-Request-Debug-Token", "secret");
    let response = gateway.get("/a", &[asks, secrets]);
    let tree = tree(&response).unwrap();
    assert_eq!(
        tree["request_id"].as_str(),
        response.header("x-kong-request-id")
    );
    let access = &tree["child"]["access"];
    assert!(access["child"]["router"]["total_time"].is_number());
    let cors = &access["child"]["plugins"]["child"]["cors"]["child"];
    assert_eq!(
        cors.as_object().unwrap().len(),
        1,
        "the id of the configured plugin: {tree}"
    );
    assert!(tree["child"]["upstream"]["child"]["time_to_first_byte"]["total_time"].is_number());
    let seen = echo.seen().pop().unwrap().to_string().to_lowercase();
    assert!(!seen.contains("x-kong-request-debug"), "{seen}");
}

#[test]
fn timings_come_with_a_stored_response_too() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let cache = json!({"name": "proxy-cache", "config": {
        "strategy": "memory", "content_type": ["application/json"],
    }});
    let configuration = traced(&echo.url(), &sink, &[cache]);
    let gateway = launch().configuration(&configuration).start();
    for status in ["Miss", "Hit"] {
        let response = gateway.get("/a", &[("X-Kong-Request-Debug", "*")]);
        assert_eq!(response.header("x-cache-status"), Some(status));
        assert!(tree(&response).is_some(), "{status}");
    }
}

#[test]
fn timings_survive_an_internal_redirect() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let redirects = json!({"name": "pre-function", "config": {
        "access": ["if ngx.var.uri == '/a' then ngx.exec('/b') end"],
    }});
    let configuration = traced(&echo.url(), &sink, &[redirects]);
    let gateway = launch().configuration(&configuration).start();
    let response = gateway.get("/a", &[("X-Kong-Request-Debug", "*")]);
    assert_eq!(response.status, 200);
    assert!(tree(&response).is_some());
}

#[test]
fn timings_are_logged_if_the_client_asks_for_it() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let gateway = launch()
        .configuration(&traced(&echo.url(), &sink, &[]))
        .start();
    let headers = [
        ("X-Kong-Request-Debug", "*"),
        ("X-Kong-Request-Debug-Log", "true"),
    ];
    gateway.get("/nowhere", &headers);
    assert!(tree(&gateway.get("/a", &headers)).is_some());
    gateway.wait_for_log("[request-debug] output: ");
    gateway.wait_for_log("streaming");
}

#[test]
fn clients_of_other_machines_need_the_token() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let gateway = launch()
        .configuration(&traced(&echo.url(), &sink, &[]))
        .set("trusted_ips", "127.0.0.1")
        .start();
    let file = gateway.launch().prefix().join(".request_debug_token");
    let token = std::fs::read_to_string(file).unwrap();
    let ask = |token: &str| {
        let headers = [
            ("X-Real-IP", "192.0.2.9"),
            ("X-Kong-Request-Debug", "*"),
            ("X-Kong-Request-Debug-Token", token),
        ];
        tree(&gateway.get("/a", &headers))
    };
    assert_eq!(ask(""), None);
    assert_eq!(ask(&token.replace('-', "+")), None);
    assert!(ask(&token).is_some());
}

#[test]
fn request_debug_can_be_off() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let gateway = launch()
        .configuration(&traced(&echo.url(), &sink, &[]))
        .set("request_debug", "off")
        .start();
    assert_eq!(
        tree(&gateway.get("/a", &[("X-Kong-Request-Debug", "*")])),
        None
    );
    let seen = echo.seen().pop().unwrap().to_string().to_lowercase();
    assert!(seen.contains("x-kong-request-debug"), "{seen}");
}
