//! `scrape`: the effect of scraping `/metrics` every second on traffic, with 10,000 routes and consumers; the cost of a
//! scrape; and the cost of counting, with one consumer that is always the same and with many that are drawn evenly.

use super::plugins::prometheus;
use super::pushes::{self, Disturbance};
use crate::configuration::{self, Plugins, Shape};
use crate::gateway::Gateway;
use crate::harness::{self, Harness, figure};
use crate::load::Request;
use crate::report::{Better, Scenario};
use crate::rounds::{self, Case, HIGH};
use crate::statistics::bootstrap_difference;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ABOUT: &str = "Latency of traffic while GET /metrics is requested every second, compared with the same traffic without it, with 10,000 routes and consumers; time of a scrape; CPU of a request with prometheus and without.";
/// Metric that a scrape must contain. Without it the gateway does not count requests, and a scrape would be too cheap.
const COUNTED: &str = "kong_http_requests_total";
const SCRAPED: &str = "scraped every second";
/// Number of scrapes whose time is measured.
const SCRAPES: usize = 30;
const SCRAPE_TIME: (&str, &str, Better) = ("time of a scrape", "ms", Better::Lower);
const SCRAPE_CPU: (&str, &str, Better) = ("CPU of a scrape", "ms", Better::Lower);
const SAMPLES: (&str, &str, Better) = ("samples of a page", "1", Better::Neither);
/// Numbers of consumers for the cost of counting.
const CONSUMERS: [usize; 2] = [1, 1_000_000];
const CONFIDENCE: f64 = 0.95;
const SEED: u64 = 19;

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "scrape".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let shape = Shape {
        routes: 10_000,
        consumers: 10_000,
        plugins: Plugins::KeyAuthAndPrometheus,
        changed: 0,
    };
    let requests = configuration::requests(&shape);
    let text = shape.text(harness.upstream);
    for build in harness.builds_and_kong() {
        let gateway = harness.gateway(&build)?;
        gateway.post_config(&text)?;
        // One request is sent first, because a gateway that has served none does not show the metric.
        warm_up(&gateway, 0)?;
        if !gateway.get("/metrics")?.start.contains(COUNTED) {
            return Ok(harness::skipped(
                &scenario.name,
                ABOUT,
                &format!("{} does not count requests in /metrics yet", build.name),
            ));
        }
        // Then every route gets a request, so that each scrape has all series.
        for number in 1..shape.routes {
            warm_up(&gateway, number)?;
        }
        scrapes(&mut scenario, &build.name, &gateway)?;
        let disturbance = Disturbance {
            name: SCRAPED,
            every: Duration::from_secs(1),
            act: &|_| match gateway.get("/metrics")?.status {
                200 => Ok(()),
                status => bail!("GET /metrics answered {status}"),
            },
        };
        pushes::disturb(
            harness,
            &mut scenario,
            &build.name,
            &gateway,
            &requests,
            &disturbance,
        )?;
        compare(&mut scenario, &build.name, harness.options.rate);
    }
    for consumers in CONSUMERS {
        counting(harness, &mut scenario, consumers)?;
    }
    Ok(scenario)
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

/// Measures the time and the CPU of scrapes without other load.
fn scrapes(scenario: &mut Scenario, subject: &str, gateway: &Gateway) -> Result<()> {
    let case = "scrapes, no other load";
    let mut time = figure(case, subject, SCRAPE_TIME, None);
    let mut cpu = figure(case, subject, SCRAPE_CPU, None);
    let mut samples = figure(case, subject, SAMPLES, None);
    for _ in 0..SCRAPES {
        let (begun, before) = (Instant::now(), gateway.process.cpu_time()?);
        let page = gateway.get("/metrics")?;
        time.samples.push(begun.elapsed().as_secs_f64() * 1e3);
        let spent = gateway.process.cpu_time()?.saturating_sub(before);
        cpu.samples.push(spent.as_secs_f64() * 1e3);
        samples.samples.push(page.samples as f64);
    }
    scenario.figures.extend([time, cpu, samples]);
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

/// Measures the CPU of a request with key-auth alone and with prometheus, in the same rounds.
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
    let requests: Arc<[Request]> = configuration::requests(&shape).into();
    let mut subjects = Vec::new();
    for (line, plugins) in [
        ("key-auth", vec![key_auth.clone()]),
        ("key-auth and prometheus", vec![key_auth, prometheus()]),
    ] {
        let text = shape.text_with(harness.upstream, &plugins);
        for mut subject in harness.silverbacks(false, &text, &requests)? {
            subject.name = format!("{}, {line}", subject.name);
            subjects.push(subject);
        }
    }
    let case = Case {
        name,
        connections: harness.options.connections,
        size: None,
    };
    rounds::capacity(harness, scenario, &case, &subjects)
}
