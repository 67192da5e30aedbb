//! Tests the metrics about configuration changes in `GET /metrics`.

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
