//! What operators use: rules of Prometheus, dashboards, and metrics of a gateway under load, checked by a real
//! Prometheus and promtool.

mod demo;
mod expressions;
mod native;
mod page;
mod prometheus;
mod stored;

use crate::compat::{self, Case, Outcome};
use crate::shell::{self, cargo};
pub(crate) use demo::Observers;
use expressions::Expression;
pub(crate) use prometheus::Programs;
use prometheus::{MISSING, Prometheus, deployed};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Echo, Gateway, Launch};

/// Maximum time until every expression returns data: the rates need some scrapes.
const LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum duration of the load. Prometheus begins to scrape five seconds after its start.
const LEAST_LOAD: Duration = Duration::from_secs(15);

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

/// How Prometheus scrapes the gateway. It asks for the formats that it prefers by itself.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    format: Format,
    /// Settings of the gateway.
    settings: &'static [(&'static str, &'static str)],
    /// Further lines of the scrape job.
    job: &'static str,
}

/// The format in which Prometheus gets the page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    OpenMetrics,
    Protobuf {
        /// Whether the classic buckets of native histograms are stored too.
        has_classic: bool,
        /// Whether Kong's latencies are native histograms.
        has_kong: bool,
    },
}

/// Settings with which every request is traced, so that there are exemplars.
const TRACING: [(&str, &str); 2] = [
    ("tracing_instrumentations", "request"),
    ("tracing_sampling_rate", "1"),
];

/// Prometheus and the gateway without further settings.
pub(crate) const DEFAULT: Way = Way {
    name: "text",
    format: Format::Text,
    settings: &[],
    job: "",
};

pub(crate) const OPENMETRICS: Way = Way {
    name: "OpenMetrics",
    format: Format::OpenMetrics,
    settings: &[("metrics_openmetrics", "on"), TRACING[0], TRACING[1]],
    job: "",
};

/// Prometheus 3 that stores native histograms, and the gateway without further settings. Prometheus does not store the
/// classic buckets of a native histogram then.
pub(crate) const NATIVE: Way = Way {
    name: "native",
    format: Format::Protobuf {
        has_classic: false,
        has_kong: false,
    },
    settings: &TRACING,
    job: "  scrape_native_histograms: true\n",
};

/// All histograms that can be native, with the classic buckets beside them.
pub(crate) const BOTH: Way = Way {
    name: "both",
    format: Format::Protobuf {
        has_classic: true,
        has_kong: true,
    },
    settings: &[("metrics_native_histograms", "on"), TRACING[0], TRACING[1]],
    job: "  scrape_native_histograms: true\n  always_scrape_classic_histograms: true\n",
};

/// A step of `check`: skipped with a note where there is no Prometheus; in CI that is an error.
pub(crate) fn check() -> Result<(), String> {
    let Some(programs) = Programs::installed() else {
        if std::env::var_os("CI").is_some() {
            return Err(MISSING.to_owned());
        }
        eprintln!("note: skipped: {MISSING}");
        return Ok(());
    };
    shell::run(&mut cargo(&["build", "--package", "gateway"]))?;
    let binary = shell::target_directory()?.join("debug").join("silverback");
    let scraped = scrape(&programs, &binary, &DEFAULT)?;
    compat::finish(&[files(&programs), scraped])
}

/// Checks the files that users get, without a server.
pub(crate) fn files(programs: &Programs) -> Outcome {
    let mut outcome = outcome(programs, "promtool");
    for words in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "silverback.rules.yml"],
        ["test", "rules", "silverback.rules.test.yml"],
    ] {
        outcome.count(&words.join(" "), programs.promtool(&words).err());
    }
    outcome.count("every alert is tested", every_alert_is_tested().err());
    outcome
}

/// Lets a Prometheus scrape a gateway under load, and after it.
pub(crate) fn scrape(programs: &Programs, binary: &Path, way: &Way) -> Result<Outcome, String> {
    let mut outcome = outcome(programs, way.name);
    let echo = Echo::start();
    let launch = Launch::new(binary).set("plugin_time_metrics", "on");
    let settings = way.settings.iter();
    let launch = settings.fold(launch, |launch, (name, value)| launch.set(name, *value));
    let gateway = launch
        .configuration(&configuration(&echo, 0)?)
        .try_start()
        .map_err(|log| format!("the gateway did not start:\n{log}"))?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let server = Prometheus::start(programs, directory.path(), gateway.status, 0, way.job)?;
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| load(&gateway, &end));
        let checked = under_load(&server, &gateway, &echo, way, &mut outcome);
        end.store(true, Ordering::Relaxed);
        checked
    })?;
    remarks(programs, &gateway, &mut outcome)?;
    stored::check(&server, &gateway, way, &mut outcome)?;
    Ok(outcome)
}

fn outcome(programs: &Programs, way: &'static str) -> Outcome {
    Outcome {
        suite: "prometheus",
        version: programs.version.clone(),
        way,
        ..Outcome::default()
    }
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
  - name: opentelemetry
    config: {{ traces_endpoint: "{url}/traces" }}
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

fn under_load(
    server: &Prometheus,
    gateway: &Gateway,
    echo: &Echo,
    way: &Way,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let mut wanted = expressions::of_kong();
    wanted.extend(expressions::of_ours()?);
    wanted.extend(expressions::names_of_kong());
    for one in &mut wanted {
        one.text = way.renamed(&one.text);
    }
    let (least, deadline) = (Instant::now() + LEAST_LOAD, Instant::now() + LIMIT);
    let mut version = 0;
    let mut errors = BTreeSet::new();
    while Instant::now() < least || !wanted.is_empty() && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
        version += 1;
        let changed = gateway.post_config(&configuration(echo, version)?);
        if changed.status != 201 {
            return Err(format!("a change was refused: {}", changed.text()));
        }
        errors.extend(server.scrape_error());
        let page = testkit::get(gateway.status, "/metrics", &[]).text();
        wanted.retain(|one| {
            if server.evaluate(&one.text).unwrap_or(0) > 0 {
                outcome.passed += 1;
                return false;
            }
            let is_absent = is_absent(one, &page);
            if is_absent {
                let why = "this machine has no such metric";
                outcome.left_out.push(Case::new(one.origin.clone(), why));
            }
            !is_absent
        });
    }
    for one in wanted {
        let why = server.evaluate(&one.text).err();
        let why = why.unwrap_or_else(|| "no data".to_owned());
        let name = format!("{}: {}", one.origin, one.text);
        outcome.count(&name, Some(why));
    }
    outcome.count(
        "no scrape fails but by its time limit",
        stored::failure(errors.into_iter()),
    );
    variables(server, outcome);
    rules(server, outcome);
    Ok(())
}

impl Way {
    /// Returns an expression with the names that metrics have in this format.
    fn renamed(&self, expression: &str) -> String {
        match self.format {
            Format::OpenMetrics => {
                expression.replace("kong_bandwidth_bytes", "kong_bandwidth_bytes_total")
            }
            Format::Text | Format::Protobuf { .. } => expression.to_owned(),
        }
    }
}

/// Whether an expression is about something that the machine does not have.
fn is_absent(expression: &Expression, page: &str) -> bool {
    let mut names = OF_THE_MACHINE.iter();
    names.any(|name| expression.text.contains(name) && !page.contains(name))
}

/// Checks that the variables of Kong's dashboard have values.
fn variables(server: &Prometheus, outcome: &mut Outcome) {
    for (metric, label) in expressions::KONG_VARIABLES {
        let answer = server.ask(&format!("/api/v1/label/{label}/values?match[]={metric}"));
        let mut values = answer["data"].as_array().into_iter().flatten();
        let has_value = values.any(|value| value.as_str().is_some_and(|value| !value.is_empty()));
        outcome.count(
            &format!("{metric} has the label {label}"),
            (!has_value).then(|| answer.to_string()),
        );
    }
}

/// Checks that Prometheus could evaluate each rule on what the gateway says.
fn rules(server: &Prometheus, outcome: &mut Outcome) {
    let deadline = Instant::now() + LIMIT;
    let rules = loop {
        let rules = server.rules();
        let all_are_evaluated = rules.iter().all(|rule| rule["health"] != "unknown");
        if all_are_evaluated || Instant::now() > deadline {
            break rules;
        }
        thread::sleep(POLL_INTERVAL);
    };
    outcome.count(
        "there are rules",
        rules.is_empty().then(|| "none".to_owned()),
    );
    for rule in rules {
        let failure = (rule["health"] != "ok").then(|| rule["lastError"].to_string());
        outcome.count(&format!("rule {}", rule["name"]), failure);
    }
}

/// Checks that promtool has no remarks about the page but the accepted ones.
fn remarks(programs: &Programs, gateway: &Gateway, outcome: &mut Outcome) -> Result<(), String> {
    let page = testkit::get(gateway.status, "/metrics", &[]).text();
    let said = programs.check_page(&page)?;
    let is_accepted = |line: &String| ACCEPTED_REMARKS.iter().any(|name| line.contains(name));
    let mut lines = said;
    lines.retain(|line| !line.trim().is_empty() && !is_accepted(line));
    outcome.count("check metrics", stored::failure(lines.into_iter()));
    Ok(())
}
