//! The effect of a background activity on traffic. Blocks of load without and with the activity alternate. A block
//! takes 20 seconds, or 5 seconds in a quick run.

use crate::configuration::{self, Plugins, Shape};
use crate::gateway::Gateway;
use crate::harness::{Harness, figure};
use crate::load::{Client, Mode, Outcome, Request, Target};
use crate::progress::Progress;
use crate::report::{Figure, Latency, Scenario, Series};
use crate::rounds::{self, HALF, HIGH, RATE};
use anyhow::{Result, bail};
use rustix::process::setpriority_process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LOWEST_PRIORITY: i32 = 19;

/// A background activity, and its frequency.
pub struct Disturbance<'a> {
    pub name: &'a str,
    pub every: Duration,
    pub act: &'a (dyn Fn(usize) -> Result<()> + Sync),
}

/// Lengths of the alternating blocks of undisturbed and disturbed load.
struct Blocks {
    /// Number of pairs of an undisturbed and a disturbed block.
    rounds: usize,
    /// Duration of a block.
    block: Duration,
    /// Duration of a sample within a block.
    window: Duration,
}

impl Blocks {
    fn of(harness: &Harness) -> Self {
        let (rounds, block) = if harness.options.quick {
            (1, 5)
        } else {
            (3, 20)
        };
        Self {
            rounds,
            block: Duration::from_secs(block),
            window: Duration::from_millis(500),
        }
    }
}

pub fn measure(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    let shape = Shape {
        routes: 10_000,
        consumers: 10_000,
        plugins: Plugins::KeyAuthAndTermination,
        changed: 0,
    };
    if !harness.wants("configuration pushes") || harness.options.largest < shape.routes {
        return Ok(());
    }
    let texts = [1, 2].map(|changed| {
        let shape = Shape { changed, ..shape };
        shape.text(harness.upstream)
    });
    for build in harness.builds_and_kong() {
        let gateway = harness.gateway(&build)?;
        gateway.post_config(&texts[0])?;
        let disturbance = Disturbance {
            name: "configuration pushes, one of 50,000 objects a second",
            every: Duration::from_secs(1),
            act: &|number| gateway.post_config(&texts[(number + 1) % 2]).map(drop),
        };
        let requests = configuration::requests(&shape);
        disturb(
            harness,
            scenario,
            &build.name,
            &gateway,
            &requests,
            &disturbance,
        )?;
    }
    scenario.notes.push(
        "The client that pushes runs on the core of the load generator, at the lowest priority."
            .to_owned(),
    );
    Ok(())
}

/// Measures a gateway's throughput and latency with and without the disturbance.
pub fn disturb(
    harness: &Harness,
    scenario: &mut Scenario,
    subject: &str,
    gateway: &Gateway,
    requests: &[Request],
    disturbance: &Disturbance<'_>,
) -> Result<()> {
    let target = Target {
        address: gateway.proxy,
        tls: false,
    };
    let requests: Arc<[Request]> = requests.into();
    let mut client = Client::connect(&target, harness.options.connections, &requests)?;
    let rate = harness.options.rate;
    let modes = [
        ("closed loop".to_owned(), Mode::Closed),
        (format!("{rate} requests/s"), Mode::Open { rate }),
    ];
    for (mode_name, mode) in modes {
        let blocks = Blocks::of(harness);
        let cases = ["quiet", disturbance.name].map(|what| format!("{what}, {mode_name}"));
        let mut tracks = cases.map(|case| Track::new(&case, subject, mode));
        let progress = Progress::start(tracks[1].name(), blocks.rounds * 2);
        let started = Instant::now();
        for _ in 0..blocks.rounds {
            for (disturbed, track) in tracks.iter_mut().enumerate() {
                let at = started.elapsed();
                let act = (disturbed == 1).then_some(disturbance);
                let windows = block(&mut client, mode, &blocks, act)?;
                track.add(at, &windows)?;
                progress.step();
            }
        }
        for track in tracks {
            track.finish(scenario, harness.options.rate);
        }
    }
    Ok(())
}

fn block(
    client: &mut Client,
    mode: Mode,
    blocks: &Blocks,
    disturbance: Option<&Disturbance<'_>>,
) -> Result<Vec<Outcome>> {
    let Some(disturbance) = disturbance else {
        return client.run(mode, blocks.block, blocks.window);
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| repeat(disturbance, &done));
        let windows = client.run(mode, blocks.block, blocks.window);
        done.store(true, Ordering::Relaxed);
        match background.join() {
            Ok(result) => result?,
            Err(_) => bail!("the thread of the {} panicked", disturbance.name),
        }
        windows
    })
}

fn repeat(disturbance: &Disturbance<'_>, done: &AtomicBool) -> Result<()> {
    // The disturbance shares a core with the load generator and must not slow it down. On Linux this call changes the
    // priority of the current thread only.
    setpriority_process(None, LOWEST_PRIORITY)?;
    let started = Instant::now();
    for number in 0.. {
        let due = disturbance.every * number as u32;
        if let Some(early) = due.checked_sub(started.elapsed()) {
            std::thread::sleep(early);
        }
        if done.load(Ordering::Relaxed) {
            break;
        }
        (disturbance.act)(number)?;
    }
    Ok(())
}

/// The results of a subject in one mode, either with or without the disturbance.
struct Track {
    mode: Mode,
    figures: Vec<Figure>,
    series: Series,
    all: Option<Outcome>,
}

impl Track {
    fn new(case: &str, subject: &str, mode: Mode) -> Self {
        let kinds: &[_] = match mode {
            Mode::Closed => &[RATE],
            Mode::Open { .. } => &[HALF, HIGH],
        };
        let (quantity, unit, _) = kinds[kinds.len() - 1];
        Self {
            mode,
            figures: kinds
                .iter()
                .map(|kind| figure(case, subject, *kind, None))
                .collect(),
            series: Series {
                case: case.to_owned(),
                subject: subject.to_owned(),
                quantity: quantity.to_owned(),
                unit: unit.to_owned(),
                points: Vec::new(),
            },
            all: None,
        }
    }

    fn name(&self) -> &str {
        &self.series.case
    }

    fn add(&mut self, begun: Duration, windows: &[Outcome]) -> Result<()> {
        let mut at = begun.as_secs_f64();
        for window in windows {
            if window.failed > 0 {
                let first = window.first_failure.as_deref().unwrap_or("unknown");
                bail!(
                    "{}: {} responses failed ({first})",
                    self.name(),
                    window.failed
                );
            }
            at += window.elapsed.as_secs_f64();
            let samples = match self.mode {
                Mode::Closed => vec![window.requests as f64 / window.elapsed.as_secs_f64()],
                Mode::Open { .. } => vec![window.quantile(0.5), window.quantile(0.99)],
            };
            for (figure, sample) in self.figures.iter_mut().zip(&samples) {
                figure.samples.push(*sample);
            }
            self.series.points.push((at, samples[samples.len() - 1]));
            match &mut self.all {
                Some(all) => all.merge(window),
                None => self.all = Some(window.clone()),
            }
        }
        Ok(())
    }

    fn finish(self, scenario: &mut Scenario, rate: f64) {
        if let (Mode::Open { .. }, Some(all)) = (self.mode, &self.all) {
            scenario.latencies.push(Latency {
                case: self.series.case.clone(),
                subject: self.series.subject.clone(),
                rate,
                buckets: rounds::buckets(all),
            });
        }
        scenario.figures.extend(self.figures);
        scenario.series.push(self.series);
    }
}
