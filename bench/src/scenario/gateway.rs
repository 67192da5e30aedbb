//! `gateway`: the cost of routes, credentials and plugins against their number. Each request uses another route and
//! another key than the request before it.

use super::{authentication, chains, plugins, routes};
use crate::configuration::{self, Plugins, Shape};
use crate::harness::{Harness, Subject};
use crate::load::Request;
use crate::report::{Scenario, Size};
use crate::rounds::{self, Case};
use anyhow::Result;
use std::sync::Arc;

const ABOUT: &str = "Cost of a request against the number of routes and credentials, without plugins, with key-auth, with rate limiting and with both; of prometheus and of a chain of five plugins next to none; of each authentication plugin; of chains as in production; and against the number of routes of every kind.";
const ROUTES: [usize; 4] = [1, 100, 10_000, 100_000];
const CREDENTIALS: [usize; 4] = [1, 100, 10_000, 1_000_000];
/// Number of routes and keys in the published LMDB test.
const PUBLISHED: usize = 10_000;

/// One line of the plot of cost against size.
struct Line {
    name: &'static str,
    axis: &'static str,
    shapes: Vec<Shape>,
}

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "gateway".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let limited = limits_rates(harness)?;
    for line in lines() {
        for shape in &line.shapes {
            let name = case_name(&line, shape);
            if !harness.wants(&name) || shape.routes.max(shape.consumers) > harness.options.largest
            {
                continue;
            }
            if !limited && shape.plugins.limit_rates() {
                scenario.notes.push(format!(
                    "{name}: skipped, this version does not support rate limiting yet"
                ));
                continue;
            }
            measure(harness, &mut scenario, &line, shape, name)?;
        }
    }
    for routes in [1, PUBLISHED] {
        plugins::measure_chain(harness, &mut scenario, routes)?;
    }
    authentication::measure(harness, &mut scenario)?;
    chains::measure(harness, &mut scenario)?;
    routes::measure(harness, &mut scenario)?;
    published(harness, &mut scenario)?;
    Ok(scenario)
}

fn lines() -> Vec<Line> {
    let by_routes = |plugins: Plugins, consumers: usize| {
        ROUTES
            .map(|routes| Shape {
                routes,
                consumers,
                plugins,
                changed: 0,
            })
            .to_vec()
    };
    vec![
        Line {
            name: "no plugins",
            axis: "routes",
            shapes: by_routes(Plugins::None, 0),
        },
        Line {
            name: "key-auth, 100 keys",
            axis: "routes",
            shapes: by_routes(Plugins::KeyAuth, 100),
        },
        Line {
            name: "key-auth, 1 route",
            axis: "credentials",
            shapes: CREDENTIALS
                .map(|consumers| Shape {
                    routes: 1,
                    consumers,
                    plugins: Plugins::KeyAuth,
                    changed: 0,
                })
                .to_vec(),
        },
        Line {
            name: "rate limiting",
            axis: "routes",
            shapes: by_routes(Plugins::RateLimiting, 0),
        },
        Line {
            name: "key-auth and rate limiting, 100 keys",
            axis: "routes",
            shapes: by_routes(Plugins::KeyAuthAndRateLimiting, 100),
        },
    ]
}

fn case_name(line: &Line, shape: &Shape) -> String {
    let number = match line.axis {
        "routes" => shape.routes,
        _ => shape.consumers,
    };
    let axis = if number == 1 {
        line.axis.trim_end_matches('s')
    } else {
        line.axis
    };
    format!("{}, {number} {axis}", line.name)
}

fn measure(
    harness: &mut Harness,
    scenario: &mut Scenario,
    line: &Line,
    shape: &Shape,
    name: String,
) -> Result<()> {
    let requests: Arc<[Request]> = configuration::requests(shape).into();
    let mut subjects = vec![harness.relay(&requests)?];
    subjects.extend(harness.silverbacks(false, &shape.text(harness.upstream), &requests)?);
    if !shape.plugins.limit_rates() {
        let keys = if shape.plugins.authenticate() {
            shape.consumers
        } else {
            0
        };
        subjects.extend(harness.peers(false, shape.routes, keys, &requests)?);
    }
    let value = match line.axis {
        "routes" => shape.routes,
        _ => shape.consumers,
    };
    let size = Size {
        axis: line.axis.to_owned(),
        value: value as f64,
        line: line.name.to_owned(),
    };
    let case = Case {
        name,
        connections: harness.options.connections,
        size: Some(&size),
    };
    rounds::capacity(harness, scenario, &case, &subjects)
}

/// Measures the configuration of the published LMDB test: 10,000 routes and keys, with key-auth and request-termination
/// on every route. nginx and the other competitors have a single route and no authentication.
fn published(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    let name = "LMDB test, 10000 routes and keys, peers bare";
    let latency = format!(
        "LMDB test at {} requests/s, peers bare",
        harness.options.rate
    );
    if !(harness.wants(name) || harness.wants(&latency)) || harness.options.largest < PUBLISHED {
        return Ok(());
    }
    let shape = Shape {
        routes: PUBLISHED,
        consumers: PUBLISHED,
        plugins: Plugins::KeyAuthAndTermination,
        changed: 0,
    };
    let requests: Arc<[Request]> = configuration::requests(&shape).into();
    let mut subjects: Vec<Subject> = vec![harness.relay(&requests)?];
    subjects.extend(harness.silverbacks(false, &shape.text(harness.upstream), &requests)?);
    subjects.extend(harness.peers(false, 1, 0, &requests)?);
    let mut case = Case {
        name: name.to_owned(),
        connections: harness.options.connections,
        size: None,
    };
    if harness.wants(&case.name) {
        rounds::capacity(harness, scenario, &case, &subjects)?;
    }
    case.name = latency;
    if harness.wants(&case.name) {
        rounds::latency(harness, scenario, &case, &subjects)?;
    }
    Ok(())
}

/// Whether the first build implements rate limiting. A build that ignores the plugin would seem to do it at no cost.
fn limits_rates(harness: &mut Harness) -> Result<bool> {
    let Some(build) = harness.builds.first().cloned() else {
        return Ok(false);
    };
    let gateway = harness.gateway(&build)?;
    let shape = Shape {
        routes: 1,
        consumers: 0,
        plugins: Plugins::RateLimiting,
        changed: 0,
    };
    gateway.post_config(&shape.text(harness.upstream))?;
    let head = "GET / HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n\r\n";
    let answer = crate::gateway::exchange(gateway.proxy, head, b"")?;
    Ok(answer.header("ratelimit-limit").is_some())
}
