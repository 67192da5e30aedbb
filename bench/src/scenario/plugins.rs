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
use std::sync::Arc;

const ABOUT: &str = "Cost of plugins on a single route: each program has the same requests, and only its plugins differ.";
const NAME: &str = "plugins, 1 route";

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "plugins".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    if !harness.wants(NAME) {
        return Ok(scenario);
    }
    let sink = sink::start()?;
    let shape = Shape {
        routes: 1,
        consumers: 1,
        plugins: Plugins::None,
        changed: 0,
    };
    // All requests have a key, so that they are the same with and without key-auth.
    let requests: Arc<[Request]> = [Request::with_key("/", &configuration::key(0))].into();
    let mut subjects = vec![harness.relay(&requests)?];
    for (name, plugins) in configurations(sink) {
        let text = shape.text_with(harness.upstream, &plugins);
        for mut subject in harness.silverbacks(false, &text, &requests)? {
            subject.name = format!("{}, {name}", subject.name);
            subjects.push(subject);
        }
    }
    let case = Case {
        name: NAME.to_owned(),
        connections: harness.options.connections,
        size: None,
    };
    rounds::capacity(harness, &mut scenario, &case, &subjects)?;
    Ok(scenario)
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
        ("no plugins", Vec::new()),
        ("rate-limiting", vec![limit.clone()]),
        ("request-transformer", vec![transform.clone()]),
        ("http-log, batches", vec![log(1000)]),
        ("http-log, single records", vec![log(1)]),
        (
            "five plugins",
            vec![key_auth, limit, transform, log(1000), termination],
        ),
    ]
}
