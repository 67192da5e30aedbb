//! `limits`: rate limiting by several nodes that share one Redis. How much more than the limit passes, and what a
//! request costs next to counters of the node's own.

use crate::gateway::Gateway;
use crate::harness::{Harness, Subject, figure};
use crate::load::{Client, Mode, Request, Target};
use crate::progress::Progress;
use crate::redis::Redis;
use crate::report::{Better, Figure, Scenario, Size};
use crate::rounds::{self, Case};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ABOUT: &str = "rate-limiting with the policy redis. Overshoot: ten gateways share a limit; each gets a tenth of the load, within one window. Cost: a limit that no request reaches, next to counters of the node.";
const NODES: usize = 10;
/// The offered load, in multiples of the limit.
const LOADS: [f64; 3] = [1.0, 3.0, 10.0];
const PASSED: (&str, &str, Better) = ("passed", "% of the limit", Better::Neither);
/// Connections to each gateway.
const CONNECTIONS: usize = 8;
/// Identifiers that are used in every interval.
const HOT: usize = 64;
const MILLION: usize = 1_000_000;
/// Requests a second that load generator and gateways can do on a core each.
const MAX_RATE: f64 = 25_000.0;
/// A limit that no run reaches.
const NEVER: u64 = 1_000_000_000;

/// A limit, and how many of its windows are measured.
const LIMITS: [(&str, u64, u64, usize); 4] = [
    ("second", 1, 10, 5),
    ("second", 1, 1_000, 5),
    ("minute", 60, 6_000, 1),
    ("minute", 60, 100_000, 1),
];

/// The ways to share counters, by name, with what they add to the configuration.
fn ways() -> [(&'static str, Value); 4] {
    [
        ("leases", json!({"leases": true})),
        ("sync_rate 0.02", json!({"sync_rate": 0.02})),
        ("sync_rate 0.05", json!({"sync_rate": 0.05})),
        ("sync_rate -1", json!({"sync_rate": -1})),
    ]
}

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "limits".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let Some(redis) = Redis::start(harness.cores.load)? else {
        scenario.skipped = Some("redis-server is missing: apt install redis-server".to_owned());
        return Ok(scenario);
    };
    cost(harness, &mut scenario, &redis)?;
    for (period, seconds, limit, windows) in LIMITS {
        let case = format!("overshoot, {limit} a {period}");
        if harness.wants(&case) {
            overshoot(
                harness,
                &mut scenario,
                &redis,
                &case,
                (period, seconds, limit, windows),
            )?;
        }
    }
    Ok(scenario)
}

/// Returns a configuration with a route for each way. The ids are the same on all nodes, because they are part of the
/// counters' names.
fn configuration(upstream: SocketAddr, redis: SocketAddr, period: &str, limit: u64) -> String {
    let routes = ways().into_iter().enumerate().map(|(number, (_, more))| {
        let mut config = json!({
            "limit_by": "ip", "policy": "redis", "redis": {"host": redis.ip(), "port": redis.port()},
        });
        config[period] = limit.into();
        extend(&mut config, more);
        json!({
            "id": format!("00000000-0000-4000-8000-{number:012}"), "paths": [format!("/{number}/")],
            "plugins": [{"name": "rate-limiting", "config": config}],
        })
    });
    json!({
        "_format_version": "3.0",
        "services": [{
            "id": "00000000-0000-4000-8000-00000000a000", "host": upstream.ip(), "port": upstream.port(),
            "routes": routes.collect::<Vec<_>>(),
        }],
    })
    .to_string()
}

fn extend(config: &mut Value, more: Value) {
    if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
        config.extend(more);
    }
}

fn overshoot(
    harness: &mut Harness,
    scenario: &mut Scenario,
    redis: &Redis,
    case: &str,
    (period, seconds, limit, windows): (&str, u64, u64, usize),
) -> Result<()> {
    let build = harness.builds.first().cloned().context("no build")?;
    let text = configuration(harness.upstream, redis.address, period, limit);
    let mut gateways: Vec<Gateway> = Vec::new();
    for _ in 0..NODES {
        let gateway = harness.gateway(&build)?;
        gateway.post_config(&text)?;
        gateways.push(gateway);
    }
    let progress = Progress::start(case, LOADS.len() * windows * ways().len());
    for load in LOADS {
        let size = Size {
            axis: "load in multiples of the limit".to_owned(),
            value: load,
            line: case.to_owned(),
        };
        let rate = load * limit as f64 / seconds as f64 / NODES as f64;
        // The ways have routes of their own, so they can run in the same window, if the machine can do that.
        let at_once = match rate * (NODES * ways().len()) as f64 <= MAX_RATE {
            true => ways().len(),
            false => 1,
        };
        // At ten times the limit a window is used up after a tenth of it.
        let part = match seconds {
            1 => 0.96,
            _ => (1.6 / load).min(0.96),
        };
        let length = Duration::from_secs_f64(seconds as f64 * part);
        let routes: Vec<usize> = (0..ways().len()).collect();
        for routes in routes.chunks(at_once) {
            let clients: Result<Vec<_>> =
                (routes.iter().map(|route| connect(&gateways, *route))).collect();
            let mut clients = clients?;
            let mut figures: Vec<Figure> = (ways().iter().enumerate())
                .filter(|(number, _)| routes.contains(number))
                .map(|(_, (way, _))| {
                    figure(&format!("{case}, load {load}"), way, PASSED, Some(&size))
                })
                .collect();
            for _ in 0..windows {
                wait_for_window(seconds);
                let counts = offer(&mut clients, rate, length)?;
                for (figure, count) in figures.iter_mut().zip(counts) {
                    figure.samples.push(count as f64 * 100.0 / limit as f64);
                    progress.step();
                }
            }
            scenario.figures.extend(figures);
        }
    }
    Ok(())
}

fn connect(gateways: &[Gateway], route: usize) -> Result<Vec<Client>> {
    let requests: Arc<[Request]> = vec![Request::get(&format!("/{route}/"))].into();
    let clients = gateways.iter().map(|gateway| {
        let target = Target {
            address: gateway.proxy,
            tls: false,
        };
        Client::connect(&target, CONNECTIONS, &requests)
    });
    clients.collect()
}

/// Offers a rate to each gateway on each route at the same time. Returns the number of requests that passed on each route.
fn offer(routes: &mut [Vec<Client>], rate: f64, length: Duration) -> Result<Vec<u64>> {
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (route, clients) in routes.iter_mut().enumerate() {
            running.extend(clients.iter_mut().map(|client| {
                let load = move || client.run(Mode::Open { rate }, length, length);
                (route, scope.spawn(load))
            }));
        }
        let mut passed = Vec::new();
        for (route, load) in running {
            let outcomes = load.join().expect("a load does not panic")?;
            let counts = outcomes
                .iter()
                .map(|outcome| outcome.requests - outcome.failed);
            passed.resize(route + 1, 0);
            passed[route] += counts.sum::<u64>();
        }
        Ok(passed)
    })
}

/// Waits for the next window of this many seconds.
fn wait_for_window(seconds: u64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let next = (since.as_secs() / seconds + 1) * seconds;
    // Slightly late, so that no node is still in the window before.
    thread::sleep(Duration::from_secs(next) + Duration::from_millis(5) - since);
}

/// Measures what a request costs, with a few identifiers and with a million.
fn cost(harness: &mut Harness, scenario: &mut Scenario, redis: &Redis) -> Result<()> {
    for identifiers in [HOT, MILLION] {
        let name = format!("cost, {identifiers} identifiers");
        if !harness.wants(&name) || identifiers > harness.options.largest.max(HOT) {
            continue;
        }
        let requests: Arc<[Request]> = (0..identifiers).map(request).collect();
        let mut subjects: Vec<Subject> = Vec::new();
        let local = json!({"policy": "local"});
        let lines = [("no plugin", Value::Null), ("local", local)];
        let shared = ways().map(|(way, mut more)| {
            let redis = json!({"host": redis.address.ip(), "port": redis.address.port()});
            extend(&mut more, json!({"policy": "redis", "redis": redis}));
            (way, more)
        });
        for (line, more) in lines.into_iter().chain(shared) {
            let mut config =
                json!({"minute": NEVER, "limit_by": "header", "header_name": "x-client"});
            let is_without = more.is_null();
            extend(&mut config, more);
            let plugins = match is_without {
                true => json!([]),
                false => json!([{"name": "rate-limiting", "config": config}]),
            };
            let text = json!({
                "_format_version": "3.0",
                "services": [{
                    "name": "bench", "host": harness.upstream.ip(), "port": harness.upstream.port(),
                    "routes": [{"name": "route", "paths": ["/"], "plugins": plugins}],
                }],
            });
            for mut subject in harness.silverbacks(false, &text.to_string(), &requests)? {
                subject.name = format!("{}, {line}", subject.name);
                subjects.push(subject);
            }
        }
        let mut case = Case {
            name,
            connections: harness.options.connections,
            size: None,
        };
        rounds::capacity(harness, scenario, &case, &subjects)?;
        case.name = format!("{}, at {} requests/s", case.name, harness.options.rate);
        rounds::latency(harness, scenario, &case, &subjects)?;
    }
    Ok(())
}

fn request(identifier: usize) -> Request {
    let headers = [
        ("Host".to_owned(), "bench.test".to_owned()),
        ("X-Client".to_owned(), format!("client-{identifier}")),
    ];
    Request::with_headers("/", &headers)
}
