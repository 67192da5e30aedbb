//! The method of measurement. Each round measures every subject once and begins with a different subject, so that drift
//! of the machine affects all subjects equally.

use crate::harness::{Harness, Subject, figure};
use crate::load::{Client, Mode, Outcome};
use crate::process::Memory;
use crate::progress::Progress;
use crate::report::{Better, Figure, Latency, Scenario, Size};
use anyhow::{Context, Result};
use std::time::Duration;

pub const CPU: (&str, &str, Better) = ("CPU per request", "µs", Better::Lower);
pub const RATE: (&str, &str, Better) = ("requests", "1/s", Better::Higher);
/// Processor time of the threads that serve requests, without what is sent and written aside.
const WORKERS: (&str, &str, Better) = ("CPU per request on workers", "µs", Better::Lower);
const BUSY: (&str, &str, Better) = ("busy", "% of its core", Better::Neither);
const GENERATOR: (&str, &str, Better) = ("generator CPU per request", "µs", Better::Neither);
pub const RESIDENT: (&str, &str, Better) = ("RSS", "MiB", Better::Lower);
pub const PROPORTIONAL: (&str, &str, Better) = ("PSS", "MiB", Better::Lower);
pub const HALF: (&str, &str, Better) = ("latency p50", "µs", Better::Lower);
pub const HIGH: (&str, &str, Better) = ("latency p99", "µs", Better::Lower);
const WARM_UP: Duration = Duration::from_millis(300);

/// The load that all subjects of a case receive.
pub struct Case<'a> {
    pub name: String,
    pub connections: usize,
    pub size: Option<&'a Size>,
}

/// A subject in a case with its connections and results.
struct Entry<'a> {
    subject: &'a Subject,
    client: Client,
    figures: Vec<Figure>,
    latency: Option<Outcome>,
    /// Number of requests in all loads so far, including the warm-up.
    requests: u64,
    reconnects: u64,
    /// The reason why the report leaves out the subject in this case.
    failure: Option<String>,
}

impl<'a> Entry<'a> {
    fn new(subject: &'a Subject, case: &Case<'_>, kinds: &[(&str, &str, Better)]) -> Result<Self> {
        let client = Client::connect(&subject.target, case.connections, &subject.requests)
            .with_context(|| format!("{}: {}", case.name, subject.name))?;
        let figures = kinds
            .iter()
            .map(|kind| figure(&case.name, &subject.name, *kind, case.size))
            .collect();
        Ok(Self {
            subject,
            client,
            figures,
            latency: None,
            requests: 0,
            reconnects: 0,
            failure: None,
        })
    }

    /// Runs a load. Returns `None` if the load failed, if a response was wrong or if none arrived. The subject is then
    /// left out of the case.
    fn load(&mut self, mode: Mode, duration: Duration) -> Result<Option<Outcome>> {
        if self.failure.is_some() {
            return Ok(None);
        }
        // An error, for example because the subject has exited, must not discard the samples of the other subjects.
        let mut outcomes = match self.client.run(mode, duration, duration) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.failure = Some(format!("{error:#}"));
                return Ok(None);
            }
        };
        let outcome = outcomes.pop().context("a load without an outcome")?;
        if outcome.failed > 0 || outcome.requests == 0 {
            self.failure = Some(format!(
                "{} of {} responses failed ({})",
                outcome.failed,
                outcome.requests,
                outcome
                    .first_failure
                    .as_deref()
                    .unwrap_or("no response arrived")
            ));
            return Ok(None);
        }
        self.requests += outcome.requests;
        self.reconnects += outcome.reconnects;
        Ok(Some(outcome))
    }

    fn push(&mut self, samples: &[f64]) {
        for (figure, sample) in self.figures.iter_mut().zip(samples) {
            figure.samples.push(*sample);
        }
    }

    /// Runs a load. Returns its outcome, and the processor time that the subject and its workers have used for it.
    fn spend(
        &mut self,
        mode: Mode,
        duration: Duration,
    ) -> Result<Option<(Outcome, Duration, Duration)>> {
        let (before, before_of_workers) = (self.cpu_time()?, self.cpu_time_of_workers()?);
        let Some(outcome) = self.load(mode, duration)? else {
            return Ok(None);
        };
        let spent = self.cpu_time()?.saturating_sub(before);
        let of_workers = self
            .cpu_time_of_workers()?
            .saturating_sub(before_of_workers);
        Ok(Some((outcome, spent, of_workers)))
    }

    /// Measures the cost of a request and the maximum rate in a closed loop.
    fn capacity(&mut self, duration: Duration) -> Result<()> {
        let Some((outcome, spent, of_workers)) = self.spend(Mode::Closed, duration)? else {
            return Ok(());
        };
        let (elapsed, count) = (outcome.elapsed.as_secs_f64(), outcome.requests as f64);
        let memory = self.memory()?;
        self.push(&[
            count / elapsed,
            outcome.cpu.as_secs_f64() * 1e6 / count,
            spent.as_secs_f64() * 1e6 / count,
            spent.as_secs_f64() / elapsed * 100.0,
            memory.resident,
            memory.proportional,
            of_workers.as_secs_f64() * 1e6 / count,
        ]);
        Ok(())
    }

    /// Measures the cost of a request at a rate that is the same for all subjects.
    fn cost(&mut self, rate: f64, duration: Duration) -> Result<()> {
        let Some((outcome, spent, of_workers)) = self.spend(Mode::Open { rate }, duration)? else {
            return Ok(());
        };
        let (elapsed, count) = (outcome.elapsed.as_secs_f64(), outcome.requests as f64);
        self.push(&[
            count / elapsed,
            spent.as_secs_f64() * 1e6 / count,
            spent.as_secs_f64() / elapsed * 100.0,
            of_workers.as_secs_f64() * 1e6 / count,
        ]);
        Ok(())
    }

    fn latency(&mut self, rate: f64, duration: Duration) -> Result<()> {
        let Some(outcome) = self.load(Mode::Open { rate }, duration)? else {
            return Ok(());
        };
        self.push(&[outcome.quantile(0.5), outcome.quantile(0.99)]);
        match &mut self.latency {
            Some(all) => all.merge(&outcome),
            None => self.latency = Some(outcome),
        }
        Ok(())
    }

    fn cpu_time(&self) -> Result<Duration> {
        let process = self.subject.process.as_ref();
        process.map_or(Ok(Duration::ZERO), |process| process.cpu_time())
    }

    fn cpu_time_of_workers(&self) -> Result<Duration> {
        let process = self.subject.process.as_ref();
        process.map_or(Ok(Duration::ZERO), |process| process.cpu_time_of_workers())
    }

    fn memory(&self) -> Result<Memory> {
        let process = self.subject.process.as_ref();
        process.map_or(Ok(Memory::default()), |process| process.memory())
    }
}

/// Number of quantities that are measured for `direct`, and for programs whose workers are not known by their names. The
/// other quantities need a process, and workers.
const OF_DIRECT: usize = 2;
const OF_PROCESS: usize = 6;

/// Measures the cost of a request in a closed loop ([`capacity`]) and at one rate ([`cost`]), with the number of processes
/// in the options. `start` starts one of each program.
pub fn costs(
    harness: &mut Harness,
    scenario: &mut Scenario,
    case: &Case<'_>,
    start: &mut dyn FnMut(&mut Harness) -> Result<Vec<Subject>>,
) -> Result<()> {
    let processes = harness.options.processes.max(1);
    let rounds = harness.options.rounds().div_ceil(processes);
    for _ in 0..processes {
        let subjects = start(harness)?;
        closed_loop(harness, scenario, case, &subjects, rounds)?;
        cost(harness, scenario, case, &subjects, rounds)?;
    }
    Ok(())
}

/// Measures CPU per request, requests per second and memory in a closed loop.
pub fn capacity(
    harness: &mut Harness,
    scenario: &mut Scenario,
    case: &Case<'_>,
    subjects: &[Subject],
) -> Result<()> {
    let rounds = harness.options.rounds();
    closed_loop(harness, scenario, case, subjects, rounds)
}

fn closed_loop(
    harness: &mut Harness,
    scenario: &mut Scenario,
    case: &Case<'_>,
    subjects: &[Subject],
    rounds: usize,
) -> Result<()> {
    let kinds = [RATE, GENERATOR, CPU, BUSY, RESIDENT, PROPORTIONAL, WORKERS];
    let mut entries = Vec::new();
    for subject in subjects {
        let count = match &subject.process {
            None => OF_DIRECT,
            Some(process) if process.cpu_time_of_workers()?.is_zero() => OF_PROCESS,
            Some(_) => kinds.len(),
        };
        let kinds = &kinds[..count];
        enter(
            harness,
            scenario,
            &mut entries,
            Entry::new(subject, case, kinds),
            subject,
        );
    }
    let sample = harness.options.sample();
    let measure = |entry: &mut Entry<'_>| entry.capacity(sample);
    alternate(rounds, case, &mut entries, measure)?;
    finish(harness, scenario, case, entries, 0.0);
    Ok(())
}

/// Measures CPU per request at the rate in the options. In a closed loop a cheap program serves more requests a second than
/// an expensive one, and each request costs less the more arrive at the same time: a program wakes less often, and so
/// do the generator and the upstream that it sends to. At one rate, programs differ only by what they do.
fn cost(
    harness: &mut Harness,
    scenario: &mut Scenario,
    case: &Case<'_>,
    subjects: &[Subject],
    rounds: usize,
) -> Result<()> {
    let rate = harness.options.cost_rate;
    let case = &Case {
        name: format!("{}, {rate} requests/s", case.name),
        ..*case
    };
    let kinds = [RATE, CPU, BUSY, WORKERS];
    let mut entries = Vec::new();
    for subject in subjects {
        let Some(process) = &subject.process else {
            continue;
        };
        let has_workers = !process.cpu_time_of_workers()?.is_zero();
        let count = kinds.len() - usize::from(!has_workers);
        let entry = Entry::new(subject, case, &kinds[..count]);
        enter(harness, scenario, &mut entries, entry, subject);
    }
    let sample = harness.options.sample();
    let measure = |entry: &mut Entry<'_>| entry.cost(rate, sample);
    alternate(rounds, case, &mut entries, measure)?;
    finish(harness, scenario, case, entries, rate);
    Ok(())
}

/// Measures latency at the rate in the options. The latency of a request starts at the time when it was due.
pub fn latency(
    harness: &mut Harness,
    scenario: &mut Scenario,
    case: &Case<'_>,
    subjects: &[Subject],
) -> Result<()> {
    let mut entries = Vec::new();
    for subject in subjects {
        let entry = Entry::new(subject, case, &[HALF, HIGH]);
        enter(harness, scenario, &mut entries, entry, subject);
    }
    let rate = harness.options.rate;
    let sample = harness.options.latency_sample();
    let measure = |entry: &mut Entry<'_>| entry.latency(rate, sample);
    alternate(harness.options.rounds(), case, &mut entries, measure)?;
    finish(harness, scenario, case, entries, rate);
    Ok(())
}

/// Adds a connected entry. If the connection failed, the subject is left out.
fn enter<'a>(
    harness: &mut Harness,
    scenario: &mut Scenario,
    entries: &mut Vec<Entry<'a>>,
    entry: Result<Entry<'a>>,
    subject: &Subject,
) {
    match entry {
        Ok(entry) => entries.push(entry),
        Err(error) => leave_out(harness, scenario, &subject.name, &format!("{error:#}")),
    }
}

/// Leaves a subject out of a case and notes that in the report.
pub fn leave_out(harness: &mut Harness, scenario: &mut Scenario, subject: &str, failure: &str) {
    let note = format!("left out: {failure}");
    eprintln!("note: {note}");
    scenario.notes.push(note);
    harness.failed.push(subject.to_owned());
}

/// Measures each entry once in each round.
fn alternate(
    rounds: usize,
    case: &Case<'_>,
    entries: &mut [Entry<'_>],
    measure: impl Fn(&mut Entry<'_>) -> Result<()>,
) -> Result<()> {
    for entry in &mut *entries {
        entry.load(Mode::Closed, WARM_UP)?;
    }
    let progress = Progress::start(&case.name, rounds);
    for round in 0..rounds {
        let count = entries.len();
        for offset in 0..count {
            measure(&mut entries[(round + offset) % count])?;
        }
        progress.step();
    }
    Ok(())
}

fn finish(
    harness: &mut Harness,
    scenario: &mut Scenario,
    case: &Case<'_>,
    entries: Vec<Entry<'_>>,
    rate: f64,
) {
    for entry in entries {
        if let Some(failure) = entry.failure {
            let failure = format!("{}: {}: {failure}", case.name, entry.subject.name);
            leave_out(harness, scenario, &entry.subject.name, &failure);
            continue;
        }
        if entry.reconnects > 0 {
            scenario.notes.push(format!(
                "{}: {} closed connections: {} were reopened for {} requests",
                case.name, entry.subject.name, entry.reconnects, entry.requests
            ));
        }
        for figure in entry.figures {
            add(&mut scenario.figures, figure);
        }
        scenario
            .latencies
            .extend(entry.latency.map(|outcome| Latency {
                case: case.name.clone(),
                subject: entry.subject.name.clone(),
                rate,
                buckets: buckets(&outcome),
            }));
    }
}

/// Adds a figure, or its samples to those of former processes of the same program.
fn add(figures: &mut Vec<Figure>, figure: Figure) {
    let is_same = |known: &&mut Figure| {
        (&known.case, &known.subject, &known.quantity)
            == (&figure.case, &figure.subject, &figure.quantity)
    };
    match figures.iter_mut().find(is_same) {
        Some(known) => known.samples.extend(figure.samples),
        None => figures.push(figure),
    }
}

/// Returns the buckets with their upper ends in microseconds.
pub fn buckets(outcome: &Outcome) -> Vec<(f64, u64)> {
    outcome
        .latency
        .iter_recorded()
        .map(|bucket| {
            let end = bucket.value_iterated_to() as f64 / 1e3;
            (end, bucket.count_since_last_iteration())
        })
        .collect()
}
