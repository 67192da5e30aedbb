//! The results of a benchmark run, as written to a file. All pages, tables and comparisons are generated from this file
//! alone.

pub mod cases;
mod file;
mod format;
pub mod html;
pub mod markdown;
mod plots;
mod style;
mod svg;
pub mod terminal;
#[cfg(test)]
pub mod tests;

pub use format::{number, percent_change};
pub use terminal::table;

use crate::statistics::{Samples, rounded_pairs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the file format. It increases when older readers would misread the file.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
pub struct Report {
    pub format: u32,
    /// Start of the run in UTC, in the format of RFC 3339.
    pub started: String,
    pub seconds: f64,
    pub machine: Machine,
    /// Version of each program that took part, as reported by the program.
    pub versions: BTreeMap<String, String>,
    /// Settings of the run by name, for example rounds and seconds per sample.
    pub settings: BTreeMap<String, String>,
    /// Command lines of the run and of each program in it.
    pub commands: Vec<String>,
    /// Important facts for the reader, for example missing competitors and shared cores.
    pub notes: Vec<String>,
    pub scenarios: Vec<Scenario>,
}

#[derive(Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_mib: u64,
    pub kernel: String,
    pub system: String,
    /// The core that each component used.
    pub pinning: BTreeMap<String, usize>,
}

#[derive(Serialize, Deserialize, Default)]
pub struct Scenario {
    pub name: String,
    pub about: String,
    /// The reason why the scenario was not run.
    pub skipped: Option<String>,
    pub notes: Vec<String>,
    pub figures: Vec<Figure>,
    pub latencies: Vec<Latency>,
    pub series: Vec<Series>,
}

/// One quantity of one subject in one case, measured repeatedly.
#[derive(Serialize, Deserialize, Clone)]
pub struct Figure {
    /// The kind of load, for example `512 B, 64 connections, HTTP`.
    pub case: String,
    /// The measured program, for example `silverback`, `nginx` or `relay`.
    pub subject: String,
    /// The measured quantity, for example `CPU per request`, `requests` or `RSS`.
    pub quantity: String,
    pub unit: String,
    pub better: Better,
    /// Position on the axis of a plot of cost against size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Samples in the order of the rounds. Samples of different subjects with the same index belong to the same round.
    pub samples: Samples,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
    Neither,
}

#[derive(Serialize, Deserialize, Clone)]
pub struct Size {
    /// Name of the axis, for example `routes` or `credentials`.
    pub axis: String,
    pub value: f64,
    /// Name of the line, for example `key-auth`. Figures with the same line, subject and quantity are joined in the
    /// plot.
    pub line: String,
}

/// The latency of every request of a subject in a case at a fixed rate, over all rounds.
#[derive(Serialize, Deserialize)]
pub struct Latency {
    pub case: String,
    pub subject: String,
    /// Intended number of requests per second.
    pub rate: f64,
    /// Upper end of each non-empty bucket in microseconds, and its number of requests.
    #[serde(serialize_with = "rounded_pairs")]
    pub buckets: Vec<(f64, u64)>,
}

/// A quantity over the duration of a run.
#[derive(Serialize, Deserialize)]
pub struct Series {
    pub case: String,
    pub subject: String,
    pub quantity: String,
    pub unit: String,
    /// Seconds since the start of the case, and the value at that time.
    #[serde(serialize_with = "rounded_pairs")]
    pub points: Vec<(f64, f64)>,
}
