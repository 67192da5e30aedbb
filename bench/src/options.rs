//! The options of a run, and which core does what in it.

use crate::gateway::Build;
use crate::{peers, process};
use anyhow::{Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

#[derive(Args, Clone)]
pub struct Options {
    /// A program to measure, as PATH or NAME=PATH; several are measured beside each other.
    #[arg(
        long,
        value_name = "[NAME=]PATH",
        env = "BENCH_SUBJECT",
        default_value = "target/release/silverback"
    )]
    silverback: Vec<String>,
    /// Few and short samples: for daily work, not for publication.
    #[arg(long)]
    pub quick: bool,
    /// Samples of each figure [default: 100, or 11 with --quick]
    #[arg(long)]
    rounds: Option<usize>,
    /// Milliseconds of load for a sample
    #[arg(long, default_value_t = 100)]
    sample: u64,
    /// The same where latency is measured: the highest percentiles need many requests
    #[arg(long, default_value_t = 250)]
    latency_sample: u64,
    /// Requests a second where latency is measured.
    #[arg(long, default_value_t = 5000.0)]
    pub rate: f64,
    /// Connections, where a scenario does not vary them.
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Sizes (routes, credentials) beyond this are left out.
    #[arg(long, default_value_t = 1_000_000)]
    pub largest: usize,
    /// How long the soak scenario takes, in minutes [default: 240, or 2 with --quick]
    #[arg(long)]
    pub minutes: Option<f64>,
    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// The core of the measured program [default: the first that may be used]
    #[arg(long)]
    subject_core: Option<usize>,
    /// The core of the load generator [default: the second]
    #[arg(long)]
    load_core: Option<usize>,
    /// The core of the upstream [default: the third, or that of the load generator]
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
            ("sample", format!("{} ms", self.sample)),
            ("latency sample", format!("{} ms", self.latency_sample)),
            ("rate for latency", format!("{} requests/s", self.rate)),
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

/// Which core does what.
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
                "Load generator and upstream share a core: the requests a second of a cheap subject are bounded by them, not by it (see the busy share). \
                 CPU per request is not."
                    .to_owned(),
            );
        }
        if self.subject == self.load {
            notes.push(
                "Everything shares one core: only CPU per request means anything.".to_owned(),
            );
        }
        notes
    }
}
