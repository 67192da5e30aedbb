//! `scrape`: the effect of scraping `/metrics` every second on traffic, with 10,000 routes and consumers; the cost of a
//! scrape; and the cost of counting, with one consumer that is always the same and with many that are drawn evenly.

use super::plugins::prometheus;
use super::pushes::{self, Disturbance};
use crate::configuration::{self, Plugins, Shape};
use crate::gateway::{Build, Gateway};
use crate::harness::{self, Harness, figure};
use crate::load::{Client, Mode, Request};
use crate::report::{Better, Scenario};
use crate::rounds::{self, Case, HIGH};
use crate::statistics::bootstrap_difference;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ABOUT: &str = "Latency of traffic while GET /metrics is requested every second, compared with the same traffic without it, with 10,000 routes and consumers; time, CPU and memory of a scrape, without compression and with gzip at its fastest level; CPU of a request with prometheus and without.";
/// Metric that a scrape must contain. Without it the gateway does not count requests, and a scrape would be too cheap.
const COUNTED: &str = "kong_http_requests_total";
const SCRAPED: &str = "scraped every second";
/// Numbers of routes with one consumer each. With the first one the page has 100,000 series: 55 of each route, and those of
/// the gateway itself.
const ROUTES: [usize; 2] = [1_815, 10_000];
/// The number of routes with traffic.
const BUSY_ROUTES: usize = ROUTES[1];
/// Number of scrapes whose time is measured.
const SCRAPES: usize = 30;
const SCRAPE_TIME: (&str, &str, Better) = ("time of a scrape", "ms", Better::Lower);
const SCRAPE_CPU: (&str, &str, Better) = ("CPU of a scrape", "ms", Better::Lower);
const WORKER_CPU: (&str, &str, Better) = ("CPU of the workers in a scrape", "ms", Better::Lower);
const SAMPLES: (&str, &str, Better) = ("samples of a page", "1", Better::Neither);
const MEMORY: (&str, &str, Better) = ("RSS after a scrape", "MiB", Better::Lower);
/// The headers of a scrape, by their names in the report.
const ENCODINGS: [(&str, &str); 2] = [
    ("no compression", ""),
    ("gzip, fastest", "Accept-Encoding: gzip\r\n"),
];
/// Numbers of consumers for the cost of counting.
const CONSUMERS: [usize; 2] = [1, 1_000_000];
/// Requests per second that every build serves, so that a load of this rate reaches each consumer once.
const FIRST_RATE: usize = 20_000;
const CONFIDENCE: f64 = 0.95;
const SEED: u64 = 19;

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "scrape".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for build in harness.builds_and_kong() {
        for routes in ROUTES {
            let name = format!("scrapes, {routes} routes");
            let is_wanted = harness.wants(&name) || routes == BUSY_ROUTES && harness.wants(SCRAPED);
            if !is_wanted || routes > harness.options.largest {
                continue;
            }
            if !scraped(harness, &mut scenario, &build, &name, routes)? {
                let why = format!("{} does not count requests in /metrics yet", build.name);
                return Ok(harness::skipped(&scenario.name, ABOUT, &why));
            }
        }
    }
    for consumers in CONSUMERS {
        counting(harness, &mut scenario, consumers)?;
    }
    Ok(scenario)
}

/// Measures scrapes of a gateway with this number of routes, and their effect on traffic if these are the routes for it.
/// Returns whether the gateway counts requests.
fn scraped(
    harness: &mut Harness,
    scenario: &mut Scenario,
    build: &Build,
    name: &str,
    routes: usize,
) -> Result<bool> {
    let shape = Shape {
        routes,
        consumers: routes,
        plugins: Plugins::KeyAuthAndPrometheus,
        changed: 0,
    };
    let gateway = harness.gateway(build)?;
    gateway.post_config(&shape.text(harness.upstream))?;
    // One request is sent first, because a gateway that has served none does not show the metric.
    warm_up(&gateway, 0)?;
    if !gateway.get("/metrics")?.start.contains(COUNTED) {
        return Ok(false);
    }
    // Then every route gets a request, so that each scrape has all series.
    for number in 1..shape.routes {
        warm_up(&gateway, number)?;
    }
    for (encoding, header) in ENCODINGS {
        let case = format!("{name}, {encoding}, no other load");
        scrapes(scenario, &build.name, &gateway, &case, header)?;
    }
    if routes != BUSY_ROUTES || !harness.wants(SCRAPED) {
        return Ok(true);
    }
    let disturbance = Disturbance {
        name: SCRAPED,
        every: Duration::from_secs(1),
        act: &|_| match gateway.get("/metrics")?.status {
            200 => Ok(()),
            status => bail!("GET /metrics answered {status}"),
        },
    };
    let requests = configuration::requests(&shape);
    pushes::disturb(
        harness,
        scenario,
        &build.name,
        &gateway,
        &requests,
        &disturbance,
    )?;
    compare(scenario, &build.name, harness.options.rate);
    Ok(true)
}

fn warm_up(gateway: &Gateway, number: usize) -> Result<()> {
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: bench.test\r\napikey: {}\r\nConnection: close\r\n\r\n",
        configuration::path(number),
        configuration::key(number)
    );
    match crate::gateway::exchange(gateway.proxy, &head, b"")?.status {
        200 => Ok(()),
        status => bail!("the request of route {number} got status {status}"),
    }
}

/// Measures the time, the CPU and the memory of scrapes without other load.
fn scrapes(
    scenario: &mut Scenario,
    subject: &str,
    gateway: &Gateway,
    case: &str,
    header: &str,
) -> Result<()> {
    let kinds = [SCRAPE_TIME, SCRAPE_CPU, WORKER_CPU, MEMORY, SAMPLES];
    let mut figures = kinds.map(|kind| figure(case, subject, kind, None));
    let process = &gateway.process;
    for _ in 0..SCRAPES {
        let before = [process.cpu_time()?, process.cpu_time_of_workers()?];
        let begun = Instant::now();
        let page = gateway.get_with("/metrics", header)?;
        let elapsed = begun.elapsed();
        let after = [process.cpu_time()?, process.cpu_time_of_workers()?];
        if page.status != 200 {
            bail!("GET /metrics answered {}", page.status);
        }
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let samples = [
            milliseconds(elapsed),
            milliseconds(after[0].saturating_sub(before[0])),
            milliseconds(after[1].saturating_sub(before[1])),
            process.memory()?.resident,
            page.samples as f64,
        ];
        for (figure, sample) in figures.iter_mut().zip(samples) {
            figure.samples.push(sample);
        }
    }
    // The lines of a compressed page are not counted.
    let kept = if header.is_empty() {
        kinds.len()
    } else {
        kinds.len() - 1
    };
    scenario.figures.extend(figures.into_iter().take(kept));
    Ok(())
}

/// Notes how much the scrapes move the 99th percentile, with its confidence interval.
fn compare(scenario: &mut Scenario, subject: &str, rate: f64) {
    let of = |what: &str| {
        let case = format!("{what}, {rate} requests/s");
        let mut figures = scenario.figures.iter();
        let figure = figures.find(|figure| {
            figure.case == case && figure.subject == subject && figure.quantity == HIGH.0
        });
        figure.map(|figure| figure.samples.clone())
    };
    let (Some(quiet), Some(scraped)) = (of("quiet"), of(SCRAPED)) else {
        return;
    };
    let interval = bootstrap_difference(&quiet, &scraped, CONFIDENCE, SEED);
    let verdict = if interval.contains(0.0) {
        "within the noise"
    } else {
        "a difference"
    };
    scenario.notes.push(format!(
        "{subject}: scrapes move the p99 by {:+.1} µs (95 % confidence interval {:+.1} to {:+.1} µs): {verdict}.",
        scraped.median() - quiet.median(),
        interval.low,
        interval.high,
    ));
}

/// Measures the CPU of a request with key-auth alone and with prometheus, in the same rounds. Consumers beyond
/// `metrics_max_series` are counted together, as in every gateway with so many.
fn counting(harness: &mut Harness, scenario: &mut Scenario, consumers: usize) -> Result<()> {
    let plural = if consumers == 1 { "" } else { "s" };
    let name = format!("counting, {consumers} consumer{plural}");
    if !harness.wants(&name) || consumers > harness.options.largest {
        return Ok(());
    }
    let shape = Shape {
        routes: 1,
        consumers,
        plugins: Plugins::KeyAuth,
        changed: 0,
    };
    let key_auth = serde_json::json!({"name": "key-auth", "config": {"key_names": ["apikey"]}});
    // Each consumer has a request of its own, also if there are more than the requests of other scenarios.
    let requests: Arc<[Request]> = configuration::requests_up_to(&shape, consumers).into();
    let lines = [
        ("key-auth", vec![key_auth.clone()]),
        ("key-auth and prometheus", vec![key_auth, prometheus()]),
    ];
    let case = Case {
        name,
        connections: harness.options.connections,
        size: None,
    };
    rounds::costs(harness, scenario, &case, &mut |harness| {
        let mut subjects = Vec::new();
        for (line, plugins) in &lines {
            let text = shape.text_with(harness.upstream, plugins);
            for mut subject in harness.silverbacks(false, &text, &requests)? {
                subject.name = format!("{}, {line}", subject.name);
                subjects.push(subject);
            }
        }
        // Each consumer gets a request first. What the first request of a consumer does is not the cost of counting.
        let duration = Duration::from_secs(consumers.div_ceil(FIRST_RATE) as u64);
        for subject in &subjects {
            let connections = harness.options.connections;
            let mut client = Client::connect(&subject.target, connections, &requests)?;
            client.run(Mode::Closed, duration, duration)?;
        }
        Ok(subjects)
    })
}
