//! What operators use: rules of Prometheus, dashboards, and metrics of a gateway under load, checked by a real
//! Prometheus and promtool.

mod demo;
mod expressions;
mod prometheus;

use crate::shell::{self, cargo};
pub(crate) use demo::Observers;
use expressions::Expression;
use prometheus::{MISSING, Prometheus, check_page, deployed, is_installed, promtool};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Echo, Gateway, Launch};

/// Maximum time until every expression returns data: the rates need some scrapes.
const LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause between rounds of requests, because the gateway under test and Prometheus share the machine.
const PAUSE: Duration = Duration::from_millis(20);

/// Metrics of the machine that not every machine has: their expressions may be empty where the page lacks them.
const OF_THE_MACHINE: [&str; 2] = [
    "silverback_cgroup_cpu_",
    "silverback_pressure_seconds_total",
];

/// Kinds of promtool's remarks about names that Kong has given, or that Prometheus itself uses.
const ACCEPTED_REMARKS: [&str; 4] = [
    "kong_",
    // Both are written in the way of the official clients of Prometheus.
    "process_",
    "silverback_worker_stalled_seconds",
    "no metrics",
];

/// A step of `check`: skipped with a note where there is no Prometheus; in CI that is an error.
pub(crate) fn check() -> Result<(), String> {
    if !is_installed() {
        if std::env::var_os("CI").is_some() {
            return Err(MISSING.to_owned());
        }
        eprintln!("note: skipped: {MISSING}");
        return Ok(());
    }
    promtool(&["check", "config", "prometheus.yml"])?;
    promtool(&["check", "rules", "silverback.rules.yml"])?;
    promtool(&["test", "rules", "silverback.rules.test.yml"])?;
    every_alert_is_tested()?;
    shell::run(&mut cargo(&["build", "--package", "gateway"]))?;
    let binary = shell::target_directory()?.join("debug").join("silverback");
    let echo = Echo::start();
    let gateway = Launch::new(binary)
        .set("plugin_time_metrics", "on")
        .configuration(&configuration(&echo, 0)?)
        .try_start()
        .map_err(|log| format!("the gateway did not start:\n{log}"))?;
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| load(&gateway, &end));
        let checked = under_load(&gateway, &echo);
        end.store(true, Ordering::Relaxed);
        checked
    })
}

/// An alert that is not in the tests of the rules may never fire.
fn every_alert_is_tested() -> Result<(), String> {
    let read = |name: &str| {
        std::fs::read_to_string(deployed().join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let (rules, tests) = (
        read("silverback.rules.yml")?,
        read("silverback.rules.test.yml")?,
    );
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let untested: Vec<&str> = alerts
        .filter(|name| !tests.contains(&format!("alertname=\"{name}\"")))
        .collect();
    match untested.as_slice() {
        [] => Ok(()),
        names => Err(format!("alerts without a test: {}", names.join(", "))),
    }
}

/// A configuration that uses what the dashboards show. Each version differs in a tag.
fn configuration(echo: &Echo, version: u32) -> Result<String, String> {
    let read = |name: &str| {
        let path = shell::root().join("crates/admin/tests/data").join(name);
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(
            text.lines()
                .map(|line| format!("      {line}\n"))
                .collect::<String>(),
        )
    };
    let (certificate, key) = (read("ec.crt")?, read("ec.key")?);
    let (url, address) = (echo.url(), echo.address);
    // Nothing listens on port 1, so the Redis is down and a service gets 502, as some expressions need.
    Ok(format!(
        r#"
_format_version: "3.0"
services:
  - name: shop
    url: {url}
    routes:
      - name: orders
        paths: [/orders]
        plugins:
          - name: pre-function
            config: {{ access: ["kong.ctx.shared.seen = true"] }}
          - name: http-log
            config: {{ http_endpoint: "{url}/log" }}
          - name: rate-limiting
            config: {{ hour: 1000000000, policy: redis, redis: {{ host: 127.0.0.1, port: 1 }} }}
      - name: closed
        paths: [/closed]
        plugins: [{{ name: key-auth }}]
  - name: broken
    url: http://127.0.0.1:1
    tags: [version-{version}]
    routes:
      - name: broken
        paths: [/broken]
  - name: pool
    host: pool
    routes:
      - name: pool
        paths: [/pool]
upstreams:
  - name: pool
    targets: [{{ target: "{address}" }}]
    healthchecks:
      active:
        http_path: /
        healthy: {{ interval: 1, successes: 1 }}
        unhealthy: {{ interval: 1, http_failures: 1, tcp_failures: 1, timeouts: 1 }}
certificates:
  - cert: |
{certificate}
    key: |
{key}
    snis: [{{ name: example.test }}]
plugins:
  - name: prometheus
    config:
      per_consumer: true
      status_code_metrics: true
      latency_metrics: true
      bandwidth_metrics: true
      upstream_health_metrics: true
"#
    ))
}

/// Sends requests until the end: to routes, to none, one that a plugin refuses, and one that fails.
fn load(gateway: &Gateway, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        // The gateway closes a connection after a number of requests.
        let mut client = Client::connect(gateway.proxy);
        for target in ["/orders", "/pool", "/closed", "/broken", "/nowhere"] {
            client.request("GET", target, &[], b"");
        }
        thread::sleep(PAUSE);
    }
}

fn under_load(gateway: &Gateway, echo: &Echo) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let server = Prometheus::start(directory.path(), gateway.status, 0)?;
    let mut wanted = expressions::of_kong();
    wanted.extend(expressions::of_ours()?);
    let total = wanted.len();
    let deadline = Instant::now() + LIMIT;
    let mut version = 0;
    while !wanted.is_empty() && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
        version += 1;
        let changed = gateway.post_config(&configuration(echo, version)?);
        if changed.status != 201 {
            return Err(format!("a change was refused: {}", changed.text()));
        }
        let page = testkit::get(gateway.status, "/metrics", &[]).text();
        wanted.retain(|one| {
            let is_empty = server.evaluate(&one.text).unwrap_or(0) == 0;
            let is_absent = is_empty && is_absent(one, &page);
            if is_absent {
                eprintln!("note: this machine has no such metric: {}", one.origin);
            }
            is_empty && !is_absent
        });
    }
    let empty = wanted.iter().map(|one| {
        let why = server.evaluate(&one.text).err();
        let why = why.unwrap_or_else(|| "no data".to_owned());
        format!("{}: {}: {why}", one.origin, one.text)
    });
    let mut problems: Vec<String> = empty.collect();
    problems.extend(variables(&server));
    problems.extend(rules(&server));
    let page = testkit::get(gateway.status, "/metrics", &[]).text();
    problems.extend(remarks(&page)?);
    println!(
        "prometheus: {} of {total} expressions return data",
        total - wanted.len()
    );
    match problems.as_slice() {
        [] => Ok(()),
        some => Err(some.join("\n")),
    }
}

/// Whether an expression is about something that the machine does not have.
fn is_absent(expression: &Expression, page: &str) -> bool {
    let mut names = OF_THE_MACHINE.iter();
    names.any(|name| expression.text.contains(name) && !page.contains(name))
}

/// Variables of Kong's dashboard without a value.
fn variables(server: &Prometheus) -> Vec<String> {
    let is_empty = |(metric, label): &&(&str, &str)| {
        let target = format!("/api/v1/label/{label}/values?match[]={metric}");
        let values = server.ask(&target);
        let values = values["data"].as_array().into_iter().flatten();
        !values
            .into_iter()
            .any(|value| value.as_str().is_some_and(|value| !value.is_empty()))
    };
    let empty = expressions::KONG_VARIABLES.iter().filter(is_empty);
    empty
        .map(|(metric, label)| format!("{metric} has no label {label}"))
        .collect()
}

/// Rules that Prometheus could not evaluate on what the gateway says.
fn rules(server: &Prometheus) -> Vec<String> {
    let answer = server.ask("/api/v1/rules");
    let groups = answer["data"]["groups"].as_array().into_iter().flatten();
    let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
    rules
        .filter(|rule| rule["health"] == "err")
        .map(|rule| format!("rule {}: {}", rule["name"], rule["lastError"]))
        .collect()
}

/// Remarks of promtool about a page, without the accepted ones.
fn remarks(page: &str) -> Result<BTreeSet<String>, String> {
    let said = check_page(page)?;
    let is_accepted = |line: &String| ACCEPTED_REMARKS.iter().any(|name| line.contains(name));
    let lines = said
        .into_iter()
        .filter(|line| !line.trim().is_empty() && !is_accepted(line));
    Ok(lines
        .map(|line| format!("promtool check metrics: {line}"))
        .collect())
}
