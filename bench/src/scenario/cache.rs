//! `cache`: what proxy-cache holds in its memory, and what it costs to answer from it.

use crate::gateway::{self, Gateway};
use crate::harness::{Harness, Subject, figure};
use crate::load::{Client, Mode, Request, Target};
use crate::report::{Better, Scenario, Size};
use crate::rounds::{self, Case, RESIDENT};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const ABOUT: &str = "proxy-cache filled with responses of 2 KiB. Memory of the process beside the configured bytes, and the cost of a stored response, one for all requests or another one for each, beside that of request-termination with a body of the same size.";
/// Responses that the cache is filled with, if `--largest` allows it.
const RESPONSES: usize = 1_000_000;
const BODY: usize = 2048;
/// Configured bytes for each response: its body, its headers and what the store needs for it, and a third more, because
/// a quarter of the memory is for responses that are on their way.
const BYTES_EACH: usize = 4096;
/// Length of one part of the filling.
const FILLING: Duration = Duration::from_secs(1);
/// Responses of which it is tried whether they are stored.
const TRIED: usize = 1000;
const CONFIGURED: (&str, &str, Better) = ("configured", "MiB", Better::Neither);
const STORED: (&str, &str, Better) = ("stored", "% of the responses", Better::Higher);

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "cache".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let count = RESPONSES.min(harness.options.largest);
    let mebibytes = (count * BYTES_EACH).div_ceil(1024 * 1024).max(16);
    let memory = format!("memory, {count} responses");
    let size = Size {
        axis: "responses".to_owned(),
        value: count as f64,
        line: "memory".to_owned(),
    };
    let mut subjects = Vec::new();
    for build in harness.builds.clone() {
        for (line, plugin) in plugins() {
            let setting = ("KONG_MEM_CACHE_SIZE", format!("{mebibytes}m"));
            let gateway = harness.gateway_with(&build, &[setting])?;
            gateway.post_config(&configuration(harness, &plugin))?;
            let name = format!("{}, {line}", build.name);
            let is_cache = plugin["name"] == "proxy-cache";
            if is_cache && harness.wants(&memory) {
                let before = gateway.process.memory()?.resident;
                let stored = fill(&gateway, count)?;
                let after = gateway.process.memory()?.resident;
                for (kind, sample) in [
                    (RESIDENT, after),
                    (CONFIGURED, mebibytes as f64),
                    (("grown", "MiB", Better::Lower), after - before),
                    (STORED, stored),
                ] {
                    let mut figure = figure(&memory, &name, kind, Some(&size));
                    figure.samples.push(sample);
                    scenario.figures.push(figure);
                }
            }
            subjects.push(Subject {
                name,
                target: Target {
                    address: gateway.proxy,
                    tls: false,
                },
                process: Some(gateway.process),
                requests: Arc::from([request(0)]),
            });
        }
    }
    for (name, requests) in [("one response", 1), ("another response each time", count)] {
        let case = Case {
            name: format!("{name} of {count}"),
            connections: harness.options.connections,
            size: None,
        };
        if !harness.wants(&case.name) {
            continue;
        }
        let requests: Arc<[Request]> = (0..requests).map(|at| request(mixed(at, count))).collect();
        for subject in &mut subjects {
            subject.requests = Arc::clone(&requests);
        }
        rounds::capacity(harness, &mut scenario, &case, &subjects)?;
    }
    Ok(scenario)
}

fn plugins() -> [(&'static str, Value); 3] {
    let cache = |rfc9111: bool| {
        let config = json!({
            "strategy": "memory", "rfc9111": rfc9111, "cache_ttl": 86400, "content_type": ["application/octet-stream"],
        });
        json!({"name": "proxy-cache", "config": config})
    };
    let body: String = "x".repeat(BODY);
    let termination =
        json!({"status_code": 200, "content_type": "application/octet-stream", "body": body});
    [
        (
            "request-termination",
            json!({"name": "request-termination", "config": termination}),
        ),
        ("proxy-cache", cache(false)),
        ("proxy-cache, rfc9111", cache(true)),
    ]
}

fn configuration(harness: &Harness, plugin: &Value) -> String {
    json!({
        "_format_version": "3.0",
        "services": [{
            "name": "bench", "host": harness.upstream.ip(), "port": harness.upstream.port(),
            "routes": [{"name": "route", "paths": ["/page/"], "strip_path": false, "plugins": [plugin]}],
        }],
    })
    .to_string()
}

fn path(number: usize) -> String {
    format!("/page/{number:07}")
}

/// The body of request-termination is another one than the upstream's.
fn request(number: usize) -> Request {
    Request::get(&path(number)).with_any_body()
}

/// Returns another number below `count` for each one, in an order that is not that of the memory.
fn mixed(number: usize, count: usize) -> usize {
    // A prime divides no smaller number.
    const STEP: usize = 611_953;
    match count.is_multiple_of(STEP) {
        true => number,
        false => (number * STEP) % count,
    }
}

/// Requests every response once, over one connection, so that none is left out. Returns the percentage of those that
/// were stored.
fn fill(gateway: &Gateway, count: usize) -> Result<f64> {
    let requests: Arc<[Request]> = (0..count).map(|at| Request::get(&path(at))).collect();
    let target = Target {
        address: gateway.proxy,
        tls: false,
    };
    let mut client = Client::connect(&target, 1, &requests)?;
    let mut sent = 0;
    while sent < count as u64 {
        for outcome in client.run(Mode::Closed, FILLING, FILLING)? {
            if outcome.failed > 0 || outcome.requests == 0 {
                bail!("the cache cannot be filled: {:?}", outcome.first_failure);
            }
            sent += outcome.requests;
        }
    }
    let tried = TRIED.min(count);
    let mut stored = 0;
    for at in 0..tried {
        let path = path(at * count / tried);
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        let answer = gateway::exchange(gateway.proxy, &head, b"")?;
        stored += usize::from(answer.header("x-cache-status") == Some("Hit"));
    }
    Ok(stored as f64 * 100.0 / tried as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixed_order_leaves_out_no_response() {
        for count in [1, 1000, 4096, 1_000_000] {
            let mut numbers: Vec<usize> = (0..count).map(|at| mixed(at, count)).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..count), "{count}");
        }
    }
}
