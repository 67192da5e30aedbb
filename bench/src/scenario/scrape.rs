//! `scrape`: the effect of scraping `/metrics` every second on traffic, with 10,000 routes and consumers.

use super::pushes::{self, Disturbance};
use crate::configuration::{self, Plugins, Shape};
use crate::harness::{self, Harness};
use crate::report::Scenario;
use anyhow::{Result, bail};
use std::time::Duration;

const ABOUT: &str = "Latency of traffic while GET /metrics is requested every second, compared with the same traffic without it; 10,000 routes and consumers.";
/// Metric that a scrape must contain. Without it the gateway does not count requests, and a scrape would be too cheap.
const COUNTED: &str = "kong_http_requests_total";

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
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: bench.test\r\napikey: {}\r\nConnection: close\r\n\r\n",
            configuration::path(0),
            configuration::key(0)
        );
        crate::gateway::exchange(gateway.proxy, &head, b"")?;
        if !gateway.get("/metrics")?.start.contains(COUNTED) {
            return Ok(harness::skipped(
                &scenario.name,
                ABOUT,
                &format!("{} does not count requests in /metrics yet", build.name),
            ));
        }
        let disturbance = Disturbance {
            name: "scraped every second",
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
    }
    Ok(scenario)
}
