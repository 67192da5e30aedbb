//! What a run of the benchmark found, as it is written to a file: everything that the pages, tables and comparisons show is
//! made from this alone.

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

/// Grows when a reader of the file would misunderstand it.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
pub struct Report {
    pub format: u32,
    /// When the run began: RFC 3339, UTC.
    pub started: String,
    pub seconds: f64,
    pub machine: Machine,
    /// Of each program that took part, as it says itself.
    pub versions: BTreeMap<String, String>,
    /// Rounds, seconds of a sample, and so on, by name.
    pub settings: BTreeMap<String, String>,
    /// How the run, and each program in it, was started.
    pub commands: Vec<String>,
    /// What a reader must know: peers that are missing, cores that are shared.
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
    /// What each core was used for, by component.
    pub pinning: BTreeMap<String, usize>,
}

#[derive(Serialize, Deserialize, Default)]
pub struct Scenario {
    pub name: String,
    pub about: String,
    /// Why it was not run.
    pub skipped: Option<String>,
    pub notes: Vec<String>,
    pub figures: Vec<Figure>,
    pub latencies: Vec<Latency>,
    pub series: Vec<Series>,
}

/// One quantity of one subject in one case, measured again and again.
#[derive(Serialize, Deserialize, Clone)]
pub struct Figure {
    /// What is done: `512 B, 64 connections, HTTP`.
    pub case: String,
    /// Who does it: `silverback`, `nginx`, `relay`.
    pub subject: String,
    /// `CPU per request`, `requests`, `RSS`.
    pub quantity: String,
    pub unit: String,
    pub better: Better,
    /// Where it stands on the axis of a plot of cost against size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// In the order in which they were taken; those of one place in the list are of one round, for every subject of the case.
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
    /// `routes`, `credentials`.
    pub axis: String,
    pub value: f64,
    /// Figures of one line, subject and quantity are joined in the plot: `key-auth`.
    pub line: String,
}

/// The latency of every request of a subject in a case, all rounds together, at a fixed rate.
#[derive(Serialize, Deserialize)]
pub struct Latency {
    pub case: String,
    pub subject: String,
    /// Requests a second that were asked for.
    pub rate: f64,
    /// Upper end of each bucket that holds any, in microseconds, and how many it holds.
    #[serde(serialize_with = "rounded_pairs")]
    pub buckets: Vec<(f64, u64)>,
}

/// A quantity over the time of a run.
#[derive(Serialize, Deserialize)]
pub struct Series {
    pub case: String,
    pub subject: String,
    pub quantity: String,
    pub unit: String,
    /// Seconds since the case began, and the value then.
    #[serde(serialize_with = "rounded_pairs")]
    pub points: Vec<(f64, f64)>,
}
