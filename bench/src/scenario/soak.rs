//! `soak`: hours of load at a fixed rate with one configuration change per second. Memory, descriptors and latency must
//! not grow.

pub(super) mod cardinality;

use crate::configuration::{self, Plugins, Shape};
use crate::gateway::Gateway;
use crate::harness::{Harness, figure};
use crate::load::{Client, Mode, Outcome, Request, Target};
use crate::progress::Progress;
use crate::report::{Better, Latency, Scenario, Series};
use crate::rounds;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ABOUT: &str = "Load at a fixed rate while one route changes per second; memory, descriptors and latency over time, and their slopes.";
const SIZE: usize = 1_000;
/// Maximum number of points in a plot, for any duration of the run.
const POINTS: u32 = 720;
/// Share of the run that slopes ignore at the start, because caches fill and pools grow then, and metrics of deleted routes
/// stay for ten minutes.
const WARM_UP: f64 = 0.2;

/// A quantity over time, as pairs of seconds and value.
type Track = Vec<(f64, f64)>;

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "soak".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for build in harness.builds_and_kong() {
        let gateway = harness.gateway(&build)?;
        soak(harness, &mut scenario, &build.name, &gateway)?;
    }
    Ok(scenario)
}

fn length(harness: &Harness) -> Duration {
    let usual = if harness.options.quick { 2.0 } else { 240.0 };
    Duration::from_secs_f64(harness.options.minutes.unwrap_or(usual) * 60.0)
}

/// A run: its name in the report, and its load.
struct Plan {
    case: String,
    rate: f64,
    length: Duration,
    window: Duration,
}

impl Plan {
    fn of(harness: &Harness, changes: &str) -> Self {
        let (length, rate) = (length(harness), harness.options.rate);
        Self {
            case: format!(
                "{} minutes at {rate} requests/s, {changes}",
                length.as_secs_f64() / 60.0
            ),
            rate,
            length,
            window: (length / POINTS).max(Duration::from_secs(1)),
        }
    }
}

fn soak(
    harness: &Harness,
    scenario: &mut Scenario,
    subject: &str,
    gateway: &Gateway,
) -> Result<()> {
    let shape = Shape {
        routes: SIZE,
        consumers: SIZE,
        plugins: Plugins::KeyAuth,
        changed: 0,
    };
    let texts = [1, 2].map(|changed| Shape { changed, ..shape }.text(harness.upstream));
    gateway.post_config(&texts[0])?;
    let requests = configuration::requests(&shape).into();
    let change = |second: u32| {
        gateway.post_config(&texts[second as usize % 2])?;
        Ok(())
    };
    let plan = Plan::of(harness, "one change a second");
    load(
        harness,
        scenario,
        &plan,
        (subject, gateway),
        &requests,
        change,
    )
}

/// Runs a load, makes a change in each second, and adds tracks to the report.
fn load(
    harness: &Harness,
    scenario: &mut Scenario,
    plan: &Plan,
    (subject, gateway): (&str, &Gateway),
    requests: &Arc<[Request]>,
    change: impl FnMut(u32) -> Result<()> + Send,
) -> Result<()> {
    let target = Target {
        address: gateway.proxy,
        tls: false,
    };
    let mut client = Client::connect(&target, harness.options.connections, requests)?;
    let progress = Progress::start(&plan.case, 1);
    let (outcomes, tracks) = load_and_watch(&mut client, gateway, change, plan)?;
    progress.step();
    scenario.latencies.extend(latency(&outcomes, subject, plan));
    scenario.notes.push(totals(&outcomes, subject));
    let highs = outcomes
        .iter()
        .zip(1..)
        .map(|(outcome, number)| {
            let at = plan.window.as_secs_f64() * f64::from(number);
            (at, outcome.quantile(0.99))
        })
        .collect();
    let [resident, proportional, descriptors] = tracks;
    let tracks = [
        ("RSS", "MiB", resident),
        ("PSS", "MiB", proportional),
        ("descriptors", "open", descriptors),
        ("latency p99", "µs", highs),
    ];
    for (quantity, unit, points) in tracks {
        add(scenario, &plan.case, subject, (quantity, unit), points);
    }
    Ok(())
}

fn load_and_watch(
    client: &mut Client,
    gateway: &Gateway,
    change: impl FnMut(u32) -> Result<()> + Send,
    plan: &Plan,
) -> Result<(Vec<Outcome>, [Track; 3])> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(gateway, change, plan.window, &done));
        let mode = Mode::Open { rate: plan.rate };
        let outcomes = client.run(mode, plan.length, plan.window);
        done.store(true, Ordering::Relaxed);
        let tracks = watcher
            .join()
            .unwrap_or_else(|_| bail!("the thread that changes the configuration panicked"));
        Ok((outcomes?, tracks?))
    })
}

fn latency(outcomes: &[Outcome], subject: &str, plan: &Plan) -> Option<Latency> {
    let (first, others) = outcomes.split_first()?;
    let mut all = first.clone();
    others.iter().for_each(|outcome| all.merge(outcome));
    Some(Latency {
        case: plan.case.clone(),
        subject: subject.to_owned(),
        rate: plan.rate,
        buckets: rounds::buckets(&all),
    })
}

fn totals(outcomes: &[Outcome], subject: &str) -> String {
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let (requests, failed) = (
        sum(|outcome| outcome.requests),
        sum(|outcome| outcome.failed),
    );
    format!("{subject}: {requests} requests, {failed} failed")
}

/// Adds a track as a plot, and its slope as a figure.
fn add(
    scenario: &mut Scenario,
    case: &str,
    subject: &str,
    (quantity, unit): (&str, &str),
    points: Track,
) {
    let (name, unit_of_slope) = (format!("{quantity} slope"), format!("{unit} an hour"));
    let mut figure = figure(case, subject, (&name, &unit_of_slope, Better::Lower), None);
    figure.samples.push(slope(&points) * 3_600.0);
    scenario.figures.push(figure);
    scenario.series.push(Series {
        case: case.to_owned(),
        subject: subject.to_owned(),
        quantity: quantity.to_owned(),
        unit: unit.to_owned(),
        points,
    });
}

/// Makes a change every second, and reads memory and descriptors once per window. Returns RSS, PSS and the number of
/// descriptors.
fn watch(
    gateway: &Gateway,
    mut change: impl FnMut(u32) -> Result<()>,
    window: Duration,
    done: &AtomicBool,
) -> Result<[Track; 3]> {
    let started = Instant::now();
    let mut tracks = [const { Track::new() }; 3];
    let mut read = Duration::ZERO;
    for number in 1_u32.. {
        let due = Duration::from_secs(1) * number;
        if let Some(early) = due.checked_sub(started.elapsed()) {
            std::thread::sleep(early);
        }
        if done.load(Ordering::Relaxed) {
            break;
        }
        change(number)?;
        if started.elapsed() < read {
            continue;
        }
        read += window;
        let at = started.elapsed().as_secs_f64();
        let memory = gateway.process.memory()?;
        let descriptors = gateway.process.descriptors()?;
        let values = [memory.resident, memory.proportional, descriptors as f64];
        for (track, value) in tracks.iter_mut().zip(values) {
            track.push((at, value));
        }
    }
    Ok(tracks)
}

/// Returns the slope per second of the least-squares line. Ignores the start of the run ([`WARM_UP`]).
fn slope(points: &[(f64, f64)]) -> f64 {
    let points = &points[(points.len() as f64 * WARM_UP) as usize..];
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (time, value) = (mean(|point| point.0), mean(|point| point.1));
    let (mut both, mut square) = (0.0, 0.0);
    for (at, is) in points {
        both += (at - time) * (is - value);
        square += (at - time) * (at - time);
    }
    if square > 0.0 { both / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_of_the_part_after_the_start() {
        let mut points: Track = (0..100).map(|at| (f64::from(at), 3.0)).collect();
        points[0].1 = 900.0;
        assert!(slope(&points).abs() < 1e-12);
        let rising: Track = (0..100)
            .map(|at| (f64::from(at), 2.0 * f64::from(at)))
            .collect();
        assert!((slope(&rising) - 2.0).abs() < 1e-9);
        assert_eq!(slope(&[]), 0.0);
    }
}
