//! What tracing adds to the chain of plugins with 500 routes: opentelemetry with all requests sampled, with the root span
//! alone and with all instrumentations, and with one request of a hundred. All lines are measured in the same rounds.

use super::chains;
use crate::configuration::{Plugins, Shape, key, path};
use crate::harness::{Harness, Subject};
use crate::load::Request;
use crate::load::Target;
use crate::report::Scenario;
use crate::rounds::{self, Case};
use crate::sink;
use anyhow::Result;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME: &str = "opentelemetry on the chain of key-auth, 500 routes";
const ROUTES: usize = 500;

/// A line: its name, `tracing_instrumentations`, and the share of the requests that are sampled. `None` is the chain
/// without the plugin.
const LINES: [(&str, &str, Option<f64>); 5] = [
    ("chain", "off", None),
    ("+ opentelemetry, off", "off", Some(1.0)),
    ("+ opentelemetry, request, 100 %", "request", Some(1.0)),
    ("+ opentelemetry, all, 100 %", "all", Some(1.0)),
    ("+ opentelemetry, all, 1 %", "all", Some(0.01)),
];

pub fn measure(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    if !harness.wants(NAME) || ROUTES > harness.options.largest {
        return Ok(());
    }
    let sink = sink::start()?;
    let shape = Shape {
        routes: ROUTES,
        consumers: 1,
        plugins: Plugins::KeyAuth,
        changed: 0,
    };
    let requests = (0..ROUTES).map(|number| chains::request(&path(number), "apikey", key(0)));
    let requests: Arc<[Request]> = requests.collect();
    let case = Case {
        name: NAME.to_owned(),
        connections: harness.options.connections,
        size: None,
    };
    rounds::costs(harness, scenario, &case, &mut |harness| {
        let mut subjects = vec![harness.relay(&requests)?];
        for (name, instrumentations, rate) in LINES {
            let mut plugins = chains::six().to_vec();
            plugins.extend(rate.map(|rate| plugin(&sink.to_string(), instrumentations, rate)));
            let text = shape.text_with(harness.upstream, &plugins);
            let settings = [("KONG_TRACING_INSTRUMENTATIONS", instrumentations.to_owned())];
            for build in harness.builds.clone() {
                let gateway = harness.gateway_with(&build, &settings)?;
                gateway.post_config(&text)?;
                subjects.push(Subject {
                    name: format!("{}, {name}", build.name),
                    process: Some(gateway.process),
                    target: Target {
                        address: gateway.proxy,
                        tls: false,
                    },
                    requests: Arc::clone(&requests),
                });
            }
        }
        Ok(subjects)
    })
}

/// Number of spans in a batch: those of about 500 requests. With all instrumentations it is that of a collector by default
/// (processor `batch`). Small batches wake the sender often, and large ones do not fit into the processor's cache.
fn batch(instrumentations: &str) -> u32 {
    match instrumentations {
        "all" => 8192,
        _ => 512,
    }
}

fn plugin(sink: &str, instrumentations: &str, rate: f64) -> Value {
    json!({"name": "opentelemetry", "config": {
        "traces_endpoint": format!("http://{sink}/v1/traces"), "sampling_rate": rate,
        "queue": {"max_batch_size": batch(instrumentations), "max_coalescing_delay": 1, "max_entries": 100_000},
    }})
}
