//! `cardinality`: metrics with a million consumers, while routes are made, used and deleted. Memory must stay flat, and
//! scrapes must stay short.

use super::{Plan, Track, add, load};
use crate::configuration::{self, Plugins, Shape};
use crate::gateway::{Gateway, exchange};
use crate::harness::Harness;
use crate::report::Scenario;
use crate::scenario::plugins::prometheus;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::time::Instant;

const ABOUT: &str = "Load at a fixed rate by a million consumers, while ten routes are made, used once and deleted per second: memory, descriptors, latency, and the time, the CPU and the samples of a scrape over time, and their slopes.";
/// Consumers, if `--largest` allows them.
const CONSUMERS: usize = 1_000_000;
/// Routes that are made and deleted in a second.
const ROUTES: u32 = 10;
/// Seconds from one scrape to the next, as is usual for Prometheus.
const BETWEEN_SCRAPES: u32 = 15;

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "cardinality".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let shape = Shape {
        routes: 1,
        consumers: CONSUMERS.min(harness.options.largest),
        plugins: Plugins::KeyAuth,
        changed: 0,
    };
    let plugins = json!([{"name": "key-auth", "config": {"key_names": ["apikey"]}}, prometheus()]);
    let text = shape.text_with(harness.upstream, &[]);
    let text = text.replacen('{', &format!(r#"{{"plugins":{plugins},"#), 1);
    let requests = configuration::requests_up_to(&shape, shape.consumers).into();
    let changes = format!(
        "{} consumers, {ROUTES} routes made and deleted a second",
        shape.consumers
    );
    let plan = Plan::of(harness, &changes);
    for build in harness.builds.clone() {
        let gateway = harness.writable(&build, &text)?;
        let mut scrapes = Scrapes::new(&gateway);
        let change = |second: u32| {
            for number in 0..ROUTES {
                use_new_route(&gateway, &format!("{second}-{number}"))?;
            }
            match second.is_multiple_of(BETWEEN_SCRAPES) {
                true => scrapes.add(),
                false => Ok(()),
            }
        };
        let subject = (build.name.as_str(), &gateway);
        load(harness, &mut scenario, &plan, subject, &requests, change)?;
        let Scrapes {
            time, cpu, samples, ..
        } = scrapes;
        for (quantity, unit, track) in [
            ("time of a scrape", "ms", time),
            (
                "CPU of a scrape, with that of requests meanwhile",
                "ms",
                cpu,
            ),
            ("samples of a page", "1", samples),
        ] {
            add(
                &mut scenario,
                &plan.case,
                &build.name,
                (quantity, unit),
                track,
            );
        }
    }
    Ok(scenario)
}

/// Makes a route, sends a request to it, and deletes it.
fn use_new_route(gateway: &Gateway, name: &str) -> Result<()> {
    let ask = |address, head: &str, body: &str, expected: u16| {
        let head = format!(
            "{head} HTTP/1.1\r\nHost: bench.test\r\napikey: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            configuration::key(0),
            body.len()
        );
        match exchange(address, &head, body.as_bytes())?.status {
            status if status == expected => Ok(()),
            status => bail!("{head} answered {status}"),
        }
    };
    let route: Value = json!({"name": name, "paths": [format!("/churn/{name}")]});
    ask(
        gateway.admin,
        "POST /services/bench/routes",
        &route.to_string(),
        201,
    )?;
    ask(gateway.proxy, &format!("GET /churn/{name}"), "", 200)?;
    ask(gateway.admin, &format!("DELETE /routes/{name}"), "", 204)
}

/// Scrapes of `/metrics` in the course of the run.
struct Scrapes<'g> {
    gateway: &'g Gateway,
    started: Instant,
    time: Track,
    cpu: Track,
    samples: Track,
}

impl<'g> Scrapes<'g> {
    fn new(gateway: &'g Gateway) -> Self {
        Self {
            gateway,
            started: Instant::now(),
            time: Track::new(),
            cpu: Track::new(),
            samples: Track::new(),
        }
    }

    fn add(&mut self) -> Result<()> {
        let at = self.started.elapsed().as_secs_f64();
        let (begun, before) = (Instant::now(), self.gateway.process.cpu_time()?);
        let page = self.gateway.get("/metrics")?;
        if page.status != 200 {
            bail!("GET /metrics answered {}", page.status);
        }
        let spent = self.gateway.process.cpu_time()?.saturating_sub(before);
        self.time.push((at, begun.elapsed().as_secs_f64() * 1e3));
        self.cpu.push((at, spent.as_secs_f64() * 1e3));
        self.samples.push((at, page.samples as f64));
        Ok(())
    }
}
