//! `burst`: hundreds and thousands of streams on one HTTP/2 connection. nginx, at its default, closes a connection after 1,000
//! requests, and those that were on their way fail.

use crate::configuration::{Plugins, Shape};
use crate::harness::{self, Harness, Progress, figure};
use crate::peers::{self, Workload};
use crate::report::{Better, Figure, Scenario};
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

const ABOUT: &str =
    "h2load: 500 and 5,000 requests on one HTTP/2 connection over TLS, 100 streams at a time.";
const REQUESTS: [usize; 2] = [500, 5_000];
const STREAMS: usize = 100;
const SUCCEEDED: (&str, &str, Better) = ("succeeded", "requests", Better::Higher);
const RATE: (&str, &str, Better) = ("requests", "1/s", Better::Higher);

/// Where a subject is; what runs there ends with the value.
struct Listener {
    name: String,
    address: SocketAddr,
    _process: crate::process::Process,
}

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let skipped = |why: &str| Ok(harness::skipped("burst", ABOUT, why));
    let Some(h2load) = peers::on_path("h2load") else {
        return skipped("h2load is not installed (package nghttp2-client)");
    };
    let mut listeners = Vec::new();
    for build in harness.builds.clone() {
        let gateway = harness.gateway(&build)?;
        let shape = Shape {
            routes: 1,
            consumers: 0,
            plugins: Plugins::None,
            changed: 0,
        };
        gateway.post_config(&shape.text(harness.upstream))?;
        if !load(&h2load, gateway.tls, 1)?.http2 {
            return skipped(&format!("{} does not serve HTTP/2 yet", build.name));
        }
        listeners.push(Listener {
            name: build.name,
            address: gateway.tls,
            _process: gateway.process,
        });
    }
    listeners.extend(nginx(harness)?);
    let mut scenario = Scenario {
        name: "burst".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for requests in REQUESTS {
        let case = format!("{requests} requests on one connection");
        scenario
            .figures
            .extend(measure(harness, &h2load, &case, requests, &listeners)?);
    }
    Ok(scenario)
}

fn nginx(harness: &mut Harness) -> Result<Option<Listener>> {
    let Some(at) = harness.peers.iter().position(|peer| peer.name == "nginx") else {
        return Ok(None);
    };
    let certificate = harness.certificate.clone();
    let workload = Workload {
        upstream: harness.upstream,
        tls: Some(&certificate),
        http2: true,
        routes: 1,
        keys: 0,
    };
    let started = harness.peer(at, &workload)?;
    Ok(started.map(|started| Listener {
        name: "nginx".to_owned(),
        address: started.address,
        _process: started.process,
    }))
}

fn measure(
    harness: &Harness,
    h2load: &Path,
    case: &str,
    requests: usize,
    listeners: &[Listener],
) -> Result<Vec<Figure>> {
    let mut figures: Vec<[Figure; 2]> = listeners
        .iter()
        .map(|listener| [SUCCEEDED, RATE].map(|kind| figure(case, &listener.name, kind, None)))
        .collect();
    let rounds = harness.options.rounds();
    let progress = Progress::start(case, rounds);
    for round in 0..rounds {
        for offset in 0..listeners.len() {
            let at = (round + offset) % listeners.len();
            let burst = load(h2load, listeners[at].address, requests)?;
            figures[at][0].samples.push(burst.succeeded);
            figures[at][1].samples.push(burst.rate);
        }
        progress.step();
    }
    Ok(figures.into_iter().flatten().collect())
}

#[derive(Debug, PartialEq)]
struct Burst {
    http2: bool,
    succeeded: f64,
    rate: f64,
}

fn load(h2load: &Path, address: SocketAddr, requests: usize) -> Result<Burst> {
    let output = Command::new(h2load)
        .args(["-n", &requests.to_string(), "-c", "1"])
        .args(["-m", &STREAMS.min(requests).to_string()])
        .arg(format!("https://{address}/"))
        .stdin(Stdio::null())
        .output()
        .context("cannot run h2load")?;
    if !output.status.success() {
        bail!("h2load: {}", String::from_utf8_lossy(&output.stderr));
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn parse(text: &str) -> Result<Burst> {
    let number_before = |word: &str, line_start: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(line_start))?;
        let words: Vec<&str> = line
            .split([' ', ','])
            .filter(|word| !word.is_empty())
            .collect();
        let at = words.iter().position(|candidate| *candidate == word)?;
        words[at.checked_sub(1)?].parse().ok()
    };
    Ok(Burst {
        http2: text.lines().any(|line| line == "Application protocol: h2"),
        succeeded: number_before("succeeded", "requests:")
            .context("h2load tells no requests that succeeded")?,
        rate: number_before("req/s", "finished in").unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_h2load_prints_is_understood() {
        let text = "TLS Protocol: TLSv1.3\nApplication protocol: h2\n\nfinished in 512.10ms, 9763.70 req/s, 1.2MB/s\n\
                    requests: 5000 total, 1100 started, 5000 done, 1000 succeeded, 4000 failed, 4000 errored, 0 timeout\n";
        let expected = Burst {
            http2: true,
            succeeded: 1000.0,
            rate: 9763.70,
        };
        assert_eq!(parse(text).ok(), Some(expected));
        assert!(parse("").is_err());
    }
}
