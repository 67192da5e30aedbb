//! `lua`: the effect of Lua code that waits on other requests. Thousands of requests a second sleep for 5 ms in a snippet;
//! requests of a route without plugins are measured next to them, next to the same load without the sleep, and alone.

use crate::harness::{Harness, figure};
use crate::load::{Client, Mode, Outcome, Request, Target};
use crate::progress::Progress;
use crate::report::{Better, Figure, Latency, Scenario};
use crate::rounds::{self, HALF, HIGH};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const ABOUT: &str = "Latency of a route without plugins, alone and next to 10,000 requests a second of another route, whose snippet sleeps for 5 ms or does nothing.";
/// Requests per second next to the measured ones.
const LOAD: f64 = 10_000.0;
const SLEEP: Duration = Duration::from_millis(5);
/// Connections of this load. 50 requests sleep at any time.
const CONNECTIONS: usize = 256;
/// Time by which the load begins before a sample and ends after it.
const MARGIN: Duration = Duration::from_millis(100);
const SERVED: (&str, &str, Better) = ("requests served", "1/s", Better::Higher);

/// What the measured requests are next to: a name, and the path of the load.
const LOADS: [(&str, Option<&str>); 3] = [
    ("alone", None),
    ("next to 10,000 requests/s without a sleep", Some("/brief")),
    (
        "next to 10,000 requests/s that sleep 5 ms",
        Some("/sleeping"),
    ),
];

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "lua".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let text = configuration(harness.upstream);
    for build in harness.builds_and_kong() {
        let gateway = harness.gateway(&build)?;
        gateway.post_config(&text)?;
        let target = Target {
            address: gateway.proxy,
            tls: false,
        };
        measure(harness, &mut scenario, &build.name, &target)?;
    }
    Ok(scenario)
}

/// Returns a configuration with a route without plugins, and two with snippets.
fn configuration(upstream: SocketAddr) -> String {
    let route = |path: &str, snippet: Option<String>| {
        let plugins: Vec<_> = snippet
            .map(|text| json!({"name": "post-function", "config": {"access": [text]}}))
            .into_iter()
            .collect();
        json!({"name": path.trim_matches('/'), "paths": [path], "strip_path": false, "plugins": plugins})
    };
    let seconds = SLEEP.as_secs_f64();
    json!({
        "_format_version": "3.0",
        "services": [{
            "name": "bench", "protocol": "http", "host": upstream.ip(), "port": upstream.port(),
            "routes": [
                route("/plain", None),
                route("/brief", Some("return".to_owned())),
                route("/sleeping", Some(format!("ngx.sleep({seconds})"))),
            ],
        }],
    })
    .to_string()
}

/// The results next to one load.
struct Track {
    figures: Vec<Figure>,
    all: Outcome,
}

fn measure(
    harness: &Harness,
    scenario: &mut Scenario,
    subject: &str,
    target: &Target,
) -> Result<()> {
    let connect = |path, connections| {
        let requests: Arc<[Request]> = [Request::get(path)].into();
        Client::connect(target, connections, &requests)
    };
    let rate = harness.options.rate;
    let mut client = connect("/plain", harness.options.connections)?;
    let mut tracks = Vec::new();
    for (name, path) in LOADS {
        let case = format!("{rate} requests/s, {name}");
        let kinds: &[_] = match path {
            None => &[HALF, HIGH],
            Some(_) => &[HALF, HIGH, SERVED],
        };
        let figures = kinds.iter().map(|kind| figure(&case, subject, *kind, None));
        let track = Track {
            figures: figures.collect(),
            all: Outcome::default(),
        };
        let load = path.map(|path| connect(path, CONNECTIONS)).transpose()?;
        tracks.push((case, track, load));
    }
    let rounds = harness.options.rounds();
    // A sample of the usual length would have too few of the slowest requests.
    let length = harness.options.latency_sample() * 4;
    let progress = Progress::start("lua", rounds);
    for round in 0..rounds {
        for at in 0..tracks.len() {
            // Each round begins with another load.
            let at = (at + round) % LOADS.len();
            let (case, track, load) = &mut tracks[at];
            track
                .add(&mut client, load.as_mut(), rate, length)
                .with_context(|| format!("{case}: {subject}"))?;
        }
        progress.step();
    }
    for (case, track, _) in tracks {
        scenario.latencies.push(Latency {
            case,
            subject: subject.to_owned(),
            rate,
            buckets: rounds::buckets(&track.all),
        });
        scenario.figures.extend(track.figures);
    }
    Ok(())
}

impl Track {
    /// Takes a sample.
    fn add(
        &mut self,
        client: &mut Client,
        load: Option<&mut Client>,
        rate: f64,
        length: Duration,
    ) -> Result<()> {
        let mode = Mode::Open { rate };
        let (own, other) = std::thread::scope(|scope| {
            let whole = length + MARGIN * 2;
            let load = load
                .map(|load| scope.spawn(move || load.run(Mode::Open { rate: LOAD }, whole, whole)));
            if load.is_some() {
                std::thread::sleep(MARGIN);
            }
            let own = client.run(mode, length, length);
            let other = load.map(|load| match load.join() {
                Ok(outcomes) => outcomes,
                Err(_) => bail!("the thread of the load panicked"),
            });
            (own, other)
        });
        let own = only(own?)?;
        let mut samples = vec![own.quantile(0.5), own.quantile(0.99)];
        if let Some(other) = other {
            samples.push(only(other?)?.rate());
        }
        for (figure, sample) in self.figures.iter_mut().zip(samples) {
            figure.samples.push(sample);
        }
        self.all.merge(&own);
        Ok(())
    }
}

/// Returns the outcome of a load in which no response failed.
fn only(outcomes: Vec<Outcome>) -> Result<Outcome> {
    let outcome = outcomes
        .into_iter()
        .next()
        .context("nothing was measured")?;
    if outcome.failed > 0 {
        let first = outcome.first_failure.as_deref().unwrap_or("unknown");
        bail!(
            "{} of {} responses failed ({first})",
            outcome.failed,
            outcome.requests
        );
    }
    Ok(outcome)
}
