//! Tests the metrics about configuration changes and plugins in `GET /metrics`.

use crate::launch;
use testkit::{Echo, Gateway};

/// Returns the value of a sample. `name` includes the labels.
fn sample(gateway: &Gateway, name: &str) -> f64 {
    let answer = gateway.admin_get("/metrics");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = found.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    value.parse().expect("a number")
}

fn rebuilds(gateway: &Gateway, part: &str) -> u64 {
    let name = format!("silverback_rebuild_seconds_count{{part=\"{part}\"}}");
    sample(gateway, &name) as u64
}

fn stages(gateway: &Gateway, stage: &str) -> u64 {
    let name = format!("silverback_change_seconds_count{{stage=\"{stage}\"}}");
    sample(gateway, &name) as u64
}

/// Returns the number of items rebuilt so far, for each of [`PARTS`].
fn made(gateway: &Gateway) -> [u64; PARTS.len()] {
    PARTS.map(|part| {
        let name = format!("silverback_rebuilt_total{{part=\"{part}\"}}");
        sample(gateway, &name) as u64
    })
}

const PARTS: [&str; 6] = [
    "certificates",
    "services",
    "balancers",
    "plugins",
    "plans",
    "router",
];

fn configuration(echo: &Echo, path: &str, consumer: &str) -> String {
    format!(
        r#"
_format_version: "3.0"
services:
  - name: one
    url: {url}
    routes:
      - name: one
        paths: [{path}]
        plugins: [{{name: key-auth}}]
      - name: two
        paths: [/two]
  - name: balanced
    url: http://pool
    routes:
      - name: three
        paths: [/three]
upstreams:
  - name: pool
    targets: [{{target: "127.0.0.1:1"}}]
  - name: other
    targets: [{{target: "127.0.0.1:1"}}]
consumers:
  - username: {consumer}
    keyauth_credentials: [{{key: {consumer}-key}}]
"#,
        url = echo.url()
    )
}

#[test]
fn only_parts_affected_by_a_change_are_rebuilt() {
    let echo = Echo::start();
    let gateway = launch()
        .configuration(&configuration(&echo, "/a", "alice"))
        .start();
    let mut before = made(&gateway);
    let mut text = configuration(&echo, "/a", "alice");
    let mut check = |what: &str, with: &str, expected: [u64; PARTS.len()]| {
        assert!(text.contains(what), "{what}");
        text = text.replace(what, with);
        let posted = gateway.post_config(&text);
        assert_eq!(posted.status, 201, "{}", posted.text());
        let after = made(&gateway);
        let difference: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        assert_eq!(difference, expected, "{with}");
        before = after;
    };
    // The counts are in the order of PARTS.
    check("/a]", "/b]", [0, 0, 0, 0, 1, 1]);
    check("alice", "bob", [0; 6]);
    check(
        "url: http://pool",
        "url: http://pool/base",
        [0, 1, 0, 0, 0, 0],
    );
    check(
        "127.0.0.1:1\"}]\n  - name: other",
        "127.0.0.1:2\"}]\n  - name: other",
        [0, 0, 1, 0, 0, 0],
    );
    check(
        "{name: key-auth}",
        "{name: key-auth, config: {hide_credentials: true}}",
        [0, 0, 0, 1, 1, 0],
    );
    check("name: other", "name: pool2", [0, 0, 1, 0, 0, 0]);
    let of_router = "silverback_rebuild_seconds_sum{part=\"router\"}";
    assert!(sample(&gateway, of_router) > 0.0);
    assert!(rebuilds(&gateway, "router") >= 2);
}

#[test]
fn stages_and_revision_follow_the_changes() {
    let echo = Echo::start();
    let gateway = launch()
        .configuration(&configuration(&echo, "/a", "alice"))
        .start();
    let all = ["validate", "apply", "read", "compile", "sync", "swap"];
    let before = all.map(|stage| stages(&gateway, stage));
    let revision = sample(&gateway, "silverback_revision");
    let text = configuration(&echo, "/b", "alice");
    assert_eq!(gateway.post_config(&text).status, 201);
    let after = all.map(|stage| stages(&gateway, stage));
    assert_eq!(after, before.map(|count| count + 1));
    assert_eq!(sample(&gateway, "silverback_revision"), revision + 1.0);

    // The configuration is the same, so nothing is committed.
    assert_eq!(gateway.post_config(&text).status, 201);
    let again = all.map(|stage| stages(&gateway, stage));
    assert_eq!(again[0], after[0] + 1);
    assert_eq!(again[2..], after[2..]);
    assert_eq!(sample(&gateway, "silverback_revision"), revision + 1.0);
    assert!(sample(&gateway, "process_resident_memory_bytes") > 1e6);
}

#[test]
fn lua_code_is_counted_by_plugin() {
    let echo = Echo::start();
    let text = format!(
        r#"
_format_version: "3.0"
services:
  - name: one
    url: {url}
    routes:
      - name: works
        paths: [/works]
        plugins:
          - name: post-function
            config: {{access: ["ngx.sleep(0.001)"], log: ["local a = 1"]}}
          - name: request-transformer
            config: {{add: {{headers: ["x-a:$(query_params.a:upper())"]}}}}
      - name: fails
        paths: [/fails]
        plugins:
          - {{name: pre-function, config: {{access: ["error('x')"]}}}}
      - name: loops
        paths: [/loops]
        plugins:
          - {{name: pre-function, config: {{access: ["while true do end"]}}}}
"#,
        url = echo.url()
    );
    let gateway = launch().configuration(&text).start();
    for _ in 0..3 {
        assert_eq!(gateway.get("/works?a=b", &[]).status, 200);
    }
    assert_eq!(gateway.get("/fails", &[]).status, 500);
    assert_eq!(gateway.get("/loops", &[]).status, 500);
    let of = |metric: &str, labels: &str| {
        let name = format!("silverback_lua_{metric}{{{labels}}}");
        sample(&gateway, &name)
    };
    // The log phase comes after the response. The next request on the worker comes after it.
    let post = "plugin=\"post-function\"";
    assert_eq!(of("calls_total", post), 6.0);
    // Each call of the access phase has waited once.
    assert_eq!(of("slice_seconds_count", post), 9.0);
    assert!(of("slice_seconds_sum", post) < 1.0);
    assert_eq!(of("errors_total", post), 0.0);
    let template = "plugin=\"request-transformer\"";
    assert_eq!(of("calls_total", template), 3.0);
    let pre = "plugin=\"pre-function\"";
    assert_eq!(of("calls_total", pre), 2.0);
    assert_eq!(of("errors_total", pre), 2.0);
    assert_eq!(of("stopped_total", &format!("{pre},limit=\"time\"")), 1.0);
    assert_eq!(of("stopped_total", &format!("{pre},limit=\"memory\"")), 0.0);
    assert!(of("slice_seconds_sum", pre) > 0.15);
    assert!(of("memory_bytes", "worker=\"0\"") > 100_000.0);
    assert_eq!(sample(&gateway, "silverback_lua_vms_replaced_total"), 0.0);
}

#[test]
fn the_time_of_plugins_is_measured_only_on_request_and_without_their_waits() {
    let echo = Echo::start();
    let configuration = format!(
        r#"
_format_version: "3.0"
services:
  - name: one
    url: {}
    routes: [{{name: one, paths: [/]}}]
plugins:
  - name: pre-function
    config: {{access: ["ngx.sleep(1)"], header_filter: ["ngx.ctx.seen = true"]}}
"#,
        echo.url()
    );
    let start = |times: &str| {
        let launch = launch().set("plugin_time_metrics", times);
        launch.configuration(&configuration).start()
    };
    let gateway = start("on");
    assert_eq!(gateway.get("/", &[]).status, 200);
    for phase in ["access", "header_filter"] {
        let of = |part: &str| {
            format!("silverback_plugin_seconds_{part}{{plugin=\"pre-function\",phase=\"{phase}\"}}")
        };
        assert_eq!(sample(&gateway, &of("count")), 1.0, "{phase}");
        let seconds = sample(&gateway, &of("sum"));
        assert!(seconds > 0.0 && seconds < 1.0, "{phase}: {seconds}");
    }
    let silent = start("off");
    assert_eq!(silent.get("/", &[]).status, 200);
    let metrics = silent.admin_get("/metrics").text();
    assert!(!metrics.contains("silverback_plugin_seconds"));
}

/// What Prometheus sends if it is to store native histograms.
const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

#[test]
fn kongs_metrics_count_requests_of_routes_and_follow_names() {
    let echo = Echo::start();
    let configuration = |service: &str| {
        format!(
            r#"
_format_version: "3.0"
services:
  - name: {service}
    url: {}
    routes: [{{name: one, paths: [/]}}]
plugins:
  - name: prometheus
    config: {{status_code_metrics: true, latency_metrics: true, bandwidth_metrics: true}}
"#,
            echo.url()
        )
    };
    let launch = launch().set("metrics_native_histograms", "on");
    let gateway = launch.configuration(&configuration("first")).start();
    assert_eq!(gateway.get("/", &[]).status, 200);
    assert_eq!(gateway.get("/", &[]).status, 200);
    let of = |service: &str| {
        format!(
            "kong_http_requests_total{{service=\"{service}\",route=\"one\",code=\"200\",source=\"service\",workspace=\"default\",consumer=\"\"}}"
        )
    };
    // The log phase comes after the response. The next request on the worker comes after it.
    assert_eq!(gateway.get("/", &[]).status, 200);
    assert!(sample(&gateway, &of("first")) >= 2.0);
    // The path of the route does not change, so only the place of its series tells that the service has another name.
    let posted = gateway.post_config(&configuration("second"));
    assert_eq!(posted.status, 201, "{}", posted.text());
    for _ in 0..3 {
        assert_eq!(gateway.get("/", &[]).status, 200);
    }
    assert!(sample(&gateway, &of("second")) >= 2.0);
    assert_eq!(sample(&gateway, &of("first")), 3.0);
    assert_eq!(sample(&gateway, "kong_datastore_reachable"), 1.0);

    let page = testkit::http::get(gateway.admin, "/metrics", &[("Accept", PROTOBUF)]);
    assert_eq!(
        page.header("content-type"),
        Some(
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
        )
    );
    let name = b"kong_request_latency_ms";
    assert!(page.body.windows(name.len()).any(|window| window == name));
}
