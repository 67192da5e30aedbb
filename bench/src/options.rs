//! The options of a run, and the cores that its programs use.

use crate::gateway::Build;
use crate::{peers, process};
use anyhow::{Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

#[derive(Args, Clone)]
pub struct Options {
    /// A program to measure, as PATH or NAME=PATH; several programs are compared with each other.
    #[arg(
        long,
        value_name = "[NAME=]PATH",
        env = "BENCH_SUBJECT",
        default_value = "target/release/silverback"
    )]
    silverback: Vec<String>,
    /// Take few and short samples: for daily work, not for publication.
    #[arg(long)]
    pub quick: bool,
    /// Samples of each figure [default: 100, or 11 with --quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// Processes of each program, one after the other, in scenarios that measure plugins. Each has its share of the rounds. Two
    /// processes of one program can differ by 6 %, because their memory is elsewhere.
    #[arg(long, default_value_t = 1)]
    pub processes: usize,
    /// Milliseconds of load for a sample
    #[arg(long, default_value_t = 100)]
    sample: u64,
    /// Milliseconds of load for a sample of latency; the highest percentiles need many requests
    #[arg(long, default_value_t = 250)]
    latency_sample: u64,
    /// Requests per second in measurements of latency.
    #[arg(long, default_value_t = 5000.0)]
    pub rate: f64,
    /// Requests per second where the cost of a request is measured at the same rate for all programs. The most expensive
    /// one must be able to serve them.
    #[arg(long, default_value_t = 40_000.0)]
    pub cost_rate: f64,
    /// Connections, in scenarios that do not vary them.
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Largest size (number of routes or credentials) to measure.
    #[arg(long, default_value_t = 1_000_000)]
    pub largest: usize,
    /// Duration of the scenarios soak and cardinality in minutes [default: 240, or 2 with --quick]
    #[arg(long)]
    pub minutes: Option<f64>,
    /// Run only cases whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Core of the measured program [default: the first available core]
    #[arg(long)]
    subject_core: Option<usize>,
    /// Core of the load generator [default: the second available core]
    #[arg(long)]
    load_core: Option<usize>,
    /// Core of the upstream [default: the third available core, or that of the load generator]
    #[arg(long)]
    upstream_core: Option<usize>,
    #[command(flatten)]
    pub peers: peers::Options,
}

impl Options {
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 11 } else { 100 })
    }

    pub fn sample(&self) -> Duration {
        Duration::from_millis(self.sample)
    }

    pub fn latency_sample(&self) -> Duration {
        Duration::from_millis(self.latency_sample)
    }

    pub fn settings(&self) -> BTreeMap<String, String> {
        [
            ("rounds", self.rounds().to_string()),
            ("processes of each program", self.processes.to_string()),
            ("sample", format!("{} ms", self.sample)),
            ("latency sample", format!("{} ms", self.latency_sample)),
            ("rate for latency", format!("{} requests/s", self.rate)),
            ("rate for cost", format!("{} requests/s", self.cost_rate)),
            ("connections", self.connections.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    pub fn builds(&self) -> Result<Vec<Build>> {
        self.silverback
            .iter()
            .map(|text| {
                let (name, path) = text.split_once('=').unwrap_or(("silverback", text));
                Build::silverback(name, Path::new(path))
            })
            .collect()
    }
}

/// The core of each component.
#[derive(Clone, Copy)]
pub struct Cores {
    pub subject: usize,
    pub load: usize,
    pub upstream: usize,
}

impl Cores {
    pub fn choose(options: &Options) -> Result<Self> {
        let free = process::cores()?;
        let Some(&first) = free.first() else {
            bail!("no core may be used");
        };
        let load = options
            .load_core
            .unwrap_or(free.get(1).copied().unwrap_or(first));
        Ok(Self {
            subject: options.subject_core.unwrap_or(first),
            load,
            upstream: options
                .upstream_core
                .unwrap_or(free.get(2).copied().unwrap_or(load)),
        })
    }

    pub fn notes(self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.load == self.upstream {
            notes.push(
                "Load generator and upstream share a core. They, not the subject, limit the requests per second of a cheap subject (see the busy share), \
                 but not its CPU per request."
                    .to_owned(),
            );
        }
        if self.subject == self.load {
            notes.push(
                "All components share one core: only CPU per request is meaningful.".to_owned(),
            );
        }
        notes
    }
}
