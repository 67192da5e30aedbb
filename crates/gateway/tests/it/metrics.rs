//! What `GET /metrics` says of changes of the configuration.

use crate::launch;
use testkit::{Echo, Gateway};

/// The value of a sample, by its name with labels.
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
consumers:
  - username: {consumer}
    keyauth_credentials: [{{key: {consumer}-key}}]
"#,
        url = echo.url()
    )
}

#[test]
fn only_what_a_change_touches_is_built_again() {
    let echo = Echo::start();
    let gateway = launch()
        .configuration(&configuration(&echo, "/a", "alice"))
        .start();
    let count = |part| rebuilds(&gateway, part);
    let post = |path, consumer| {
        let posted = gateway.post_config(&configuration(&echo, path, consumer));
        assert_eq!(posted.status, 201, "{}", posted.text());
    };
    let parts = ["router", "plans", "plugins", "services", "certificates"];
    let start = parts.map(count);

    post("/b", "alice");
    let route_changed = parts.map(count);
    let [router, plans, plugins, services, certificates] = start;
    assert_eq!(
        route_changed,
        [router + 1, plans + 1, plugins, services, certificates]
    );

    post("/b", "bob");
    let [router, ..] = parts.map(count);
    assert_eq!(router, route_changed[0]);
    let of_services = "silverback_rebuild_seconds_sum{part=\"router\"}";
    assert!(sample(&gateway, of_services) > 0.0);
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

    // Nothing differs: there is nothing to commit.
    assert_eq!(gateway.post_config(&text).status, 201);
    let again = all.map(|stage| stages(&gateway, stage));
    assert_eq!(again[0], after[0] + 1);
    assert_eq!(again[2..], after[2..]);
    assert_eq!(sample(&gateway, "silverback_revision"), revision + 1.0);
    assert!(sample(&gateway, "process_resident_memory_bytes") > 1e6);
}
