//! `plugins`: what single plugins and a chain of five add to the cost of a request. All configurations are measured in the
//! same rounds, next to the gateway without plugins and the byte relay.

use crate::configuration::{self, Plugins, Shape};
use crate::harness::Harness;
use crate::load::Request;
use crate::report::Scenario;
use crate::rounds::{self, Case};
use crate::sink;
use anyhow::Result;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

const ABOUT: &str = "Cost of plugins on a single route: each program has the same requests, and only its plugins differ.";
const NAME: &str = "plugins, 1 route";
/// Names of configurations.
const NO_PLUGINS: &str = "no plugins";
const CHAIN: &str = "five plugins";
const PROMETHEUS: &str = "prometheus, all metrics";

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "plugins".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let (file, mut configurations) = (
        tempfile::NamedTempFile::new()?,
        configurations(sink::start()?),
    );
    configurations.extend(line_logs(sink::start_reader()?, file.path()));
    measure(harness, &mut scenario, NAME, 1, configurations)?;
    Ok(scenario)
}

/// Measures prometheus and a chain of five plugins on each route, next to none. The routes and the requests are the same.
pub fn measure_chain(harness: &mut Harness, scenario: &mut Scenario, routes: usize) -> Result<()> {
    let sink = sink::start()?;
    let mut configurations = configurations(sink);
    configurations.retain(|(name, _)| [NO_PLUGINS, PROMETHEUS, CHAIN].contains(name));
    let plural = if routes == 1 { "" } else { "s" };
    let name = format!("{CHAIN}, {routes} route{plural}");
    measure(harness, scenario, &name, routes, configurations)
}

fn measure(
    harness: &mut Harness,
    scenario: &mut Scenario,
    name: &str,
    routes: usize,
    configurations: Vec<(&str, Vec<Value>)>,
) -> Result<()> {
    if !harness.wants(name) || routes > harness.options.largest {
        return Ok(());
    }
    let shape = Shape {
        routes,
        consumers: 1,
        // All requests have a key, so that they are the same with and without key-auth.
        plugins: Plugins::KeyAuth,
        changed: 0,
    };
    let requests: Arc<[Request]> = configuration::requests(&shape).into();
    let case = Case {
        name: name.to_owned(),
        connections: harness.options.connections,
        size: None,
    };
    rounds::costs(harness, scenario, &case, &mut |harness| {
        let mut subjects = vec![harness.relay(&requests)?];
        for (name, plugins) in &configurations {
            let text = shape.text_with(harness.upstream, plugins);
            for mut subject in harness.silverbacks(false, &text, &requests)? {
                subject.name = format!("{}, {name}", subject.name);
                subjects.push(subject);
            }
        }
        Ok(subjects)
    })
}

/// prometheus with all metrics and all labels.
pub fn prometheus() -> Value {
    json!({"name": "prometheus", "config": {
        "per_consumer": true, "status_code_metrics": true, "latency_metrics": true, "bandwidth_metrics": true,
        "upstream_health_metrics": true,
    }})
}

/// Returns the configurations of log plugins that send a record as a line.
fn line_logs(sink: SocketAddr, file: &Path) -> [(&'static str, Vec<Value>); 2] {
    let (host, port) = (sink.ip(), sink.port());
    let tcp = json!({"name": "tcp-log", "config": {"host": host, "port": port}});
    let file = json!({"name": "file-log", "config": {"path": file}});
    [("tcp-log", vec![tcp]), ("file-log", vec![file])]
}

/// Returns the configurations to compare. Those of a log plugin send records in batches, and one by one as by default.
fn configurations(sink: SocketAddr) -> Vec<(&'static str, Vec<Value>)> {
    let log = |batch: u32| {
        json!({"name": "http-log", "config": {
            "http_endpoint": format!("http://{sink}/records"),
            "queue": {"max_batch_size": batch, "max_coalescing_delay": 1, "max_entries": 100_000},
        }})
    };
    // The limit is too high for any run to reach. The benchmark measures counting, not refused requests.
    let limit =
        json!({"name": "rate-limiting", "config": {"minute": 1_000_000_000, "policy": "local"}});
    let transform = json!({"name": "request-transformer", "config": {
        "add": {"headers": ["x-first:1", "x-second:2"]},
    }});
    let key_auth = json!({"name": "key-auth", "config": {"key_names": ["apikey"]}});
    // The trigger keeps the plugin from answering. It looks for the trigger in every request.
    let termination = json!({"name": "request-termination", "config": {
        "status_code": 403, "message": "terminated", "trigger": "x-terminate",
    }});
    vec![
        (NO_PLUGINS, Vec::new()),
        (PROMETHEUS, vec![prometheus()]),
        ("rate-limiting", vec![limit.clone()]),
        ("request-transformer", vec![transform.clone()]),
        ("http-log, batches", vec![log(1000)]),
        ("http-log, single records", vec![log(1)]),
        (
            CHAIN,
            vec![key_auth, limit, transform, log(1000), termination],
        ),
    ]
}
