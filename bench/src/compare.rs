//! `bench compare`: finds the figures of two reports that differ by more than noise.
//!
//! A figure has moved if 1 is outside the confidence interval of the ratio of its medians. The interval is computed by
//! a bootstrap over blocks of neighbouring samples.
//!
//! Machines drift between runs, and a drift looks like a change of every figure. If a case was also measured with a
//! byte relay (or nginx), the comparison therefore first divides each sample by the relay's sample of the same round.
//!
//! Two runs cannot show how much a figure varies from one start of a program to the next. That takes several reports of
//! the same program.

mod print;
#[cfg(test)]
mod tests;

use crate::report::cases::REFERENCES;
use crate::report::{Better, Figure, Report, Scenario};
use crate::statistics::{Interval, Samples, bootstrap_difference, bootstrap_ratio};
use anyhow::Result;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

/// Probability that at least one figure is reported as moved although none has.
const FAMILY_ERROR: f64 = 0.05;
const SEED: u64 = 20_260_101;

#[derive(Args)]
pub struct Options {
    /// The report to compare with
    before: PathBuf,
    /// The report of the changed version
    after: PathBuf,
    /// Show the figures within noise too
    #[arg(long)]
    all: bool,
    /// Fail if any figure is worse
    #[arg(long)]
    fail_on_worse: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let comparison = compare(
        &Report::read(&options.before)?,
        &Report::read(&options.after)?,
    );
    print!("{}", comparison.print(options.all));
    Ok(if options.fail_on_worse && comparison.any_worse() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

pub struct Comparison {
    /// Reasons why the reports may not be comparable.
    pub warnings: Vec<String>,
    /// All changes: moved figures first, the largest move first.
    pub changes: Vec<Change>,
    pub only_before: Vec<Key>,
    pub only_after: Vec<Key>,
    /// Confidence level of each interval, chosen so that all intervals together hold with 95 %.
    pub confidence: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub scenario: String,
    pub case: String,
    pub subject: String,
    pub quantity: String,
}

pub struct Change {
    pub key: Key,
    pub unit: String,
    /// Medians, in the figure's unit.
    pub before: f64,
    pub after: f64,
    pub basis: Basis,
    /// Ratio of the medians, or their difference, as `basis` says.
    pub moved: f64,
    pub interval: Interval,
    pub verdict: Verdict,
}

/// The values that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The ratio of the figures.
    Ratio,
    /// The ratio of the figures after each was divided by this subject's figure.
    Multiple(&'static str),
    /// The difference, because figures below zero have no ratio.
    Difference,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Worse,
    Better,
    /// The figure moved, but neither direction is better.
    Differs,
    /// There are so few samples that even the largest difference could be chance.
    TooFew,
    WithinNoise,
}

impl Comparison {
    pub fn any_worse(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.verdict == Verdict::Worse)
    }
}

pub fn compare(before: &Report, after: &Report) -> Comparison {
    let (old, new) = (figures(before), figures(after));
    let common = old.keys().filter(|key| new.contains_key(key)).count();
    let confidence = 1.0 - FAMILY_ERROR / common.max(1) as f64;
    let mut changes: Vec<Change> = (old.iter())
        .filter_map(|(key, old)| Some(change(key, old, new.get(key)?, confidence)))
        .collect();
    changes.sort_by(|one, other| {
        (one.verdict.cmp(&other.verdict)).then(other.size().total_cmp(&one.size()))
    });
    Comparison {
        warnings: warnings(before, after),
        changes,
        only_before: missing(&old, &new),
        only_after: missing(&new, &old),
        confidence,
    }
}

/// A figure, and the reference figures of the same case and quantity.
struct Entry<'a> {
    figure: &'a Figure,
    references: Vec<(&'static str, &'a Figure)>,
}

fn figures(report: &Report) -> BTreeMap<Key, Entry<'_>> {
    let entries = report.scenarios.iter().flat_map(|scenario| {
        scenario.figures.iter().map(move |figure| {
            let key = Key {
                scenario: scenario.name.clone(),
                case: figure.case.clone(),
                subject: figure.subject.clone(),
                quantity: figure.quantity.clone(),
            };
            (
                key,
                Entry {
                    figure,
                    references: references(scenario, figure),
                },
            )
        })
    });
    entries.collect()
}

/// Returns the reference figures of the same case and quantity. A ratio to one of them cancels the drift of the
/// machine. Memory has no references: it does not drift with the machine, and a ratio to another program's memory would
/// only add noise.
fn references<'a>(scenario: &'a Scenario, figure: &Figure) -> Vec<(&'static str, &'a Figure)> {
    if figure.unit.ends_with('B') {
        return Vec::new();
    }
    let of = |subject: &'static str| {
        let found = scenario.figures.iter().find(|other| {
            (&other.case, other.subject.as_str(), &other.quantity)
                == (&figure.case, subject, &figure.quantity)
        })?;
        let same_rounds = found.samples.values().len() == figure.samples.values().len();
        (same_rounds && found.samples.min() > 0.0).then_some((subject, found))
    };
    (REFERENCES.into_iter())
        .filter(|subject| *subject != figure.subject)
        .filter_map(of)
        .collect()
}

fn missing(from: &BTreeMap<Key, Entry<'_>>, other: &BTreeMap<Key, Entry<'_>>) -> Vec<Key> {
    from.keys()
        .filter(|key| !other.contains_key(key))
        .cloned()
        .collect()
}

fn change(key: &Key, old: &Entry<'_>, new: &Entry<'_>, confidence: f64) -> Change {
    let (basis, before, after) = comparable(old, new);
    let (moved, interval) = match basis {
        Basis::Difference => (
            after.median() - before.median(),
            bootstrap_difference(&before, &after, confidence, SEED),
        ),
        _ => (
            ratio(before.median(), after.median()),
            bootstrap_ratio(&before, &after, confidence, SEED),
        ),
    };
    let enough = can_tell(before.count(), after.count(), confidence);
    Change {
        key: key.clone(),
        unit: new.figure.unit.clone(),
        before: old.figure.samples.median(),
        after: new.figure.samples.median(),
        verdict: verdict(new.figure.better, basis, &interval, enough),
        basis,
        moved,
        interval,
    }
}

/// Returns the basis of a comparison and its samples from both reports.
fn comparable(old: &Entry<'_>, new: &Entry<'_>) -> (Basis, Samples, Samples) {
    for (subject, old_reference) in &old.references {
        if let Some((_, new_reference)) = new.references.iter().find(|(name, _)| name == subject) {
            let before = old.figure.samples.ratio(&old_reference.samples);
            let after = new.figure.samples.ratio(&new_reference.samples);
            return (Basis::Multiple(subject), before, after);
        }
    }
    let (before, after) = (&old.figure.samples, &new.figure.samples);
    let basis = if before.min() < 0.0 || after.min() < 0.0 {
        Basis::Difference
    } else {
        Basis::Ratio
    };
    (basis, before.clone(), after.clone())
}

fn ratio(before: f64, after: f64) -> f64 {
    if before == after { 1.0 } else { after / before }
}

/// Whether there are enough samples to exclude chance in the clearest case, in which all samples of one report are
/// below all samples of the other. By chance, only two of all ways to divide the samples between the reports have this
/// property.
fn can_tell(before: usize, after: usize, confidence: f64) -> bool {
    let ways: f64 = (1..=after)
        .map(|number| (before + number) as f64 / number as f64)
        .product();
    before > 0 && after > 0 && 2.0 / ways <= 1.0 - confidence
}

fn verdict(better: Better, basis: Basis, interval: &Interval, enough: bool) -> Verdict {
    let still = if basis == Basis::Difference { 0.0 } else { 1.0 };
    if !interval.low.is_finite() && interval.high.is_nan() || !enough {
        return Verdict::TooFew;
    }
    if interval.contains(still) {
        return Verdict::WithinNoise;
    }
    let grew = interval.low > still;
    match better {
        Better::Neither => Verdict::Differs,
        Better::Lower if grew => Verdict::Worse,
        Better::Higher if !grew => Verdict::Worse,
        _ => Verdict::Better,
    }
}

impl Change {
    /// Returns the size of a move for sorting. Half and double have the same size. Differences have size 0.
    fn size(&self) -> f64 {
        match self.basis {
            Basis::Difference => 0.0,
            _ => self.moved.ln().abs(),
        }
    }
}

fn warnings(before: &Report, after: &Report) -> Vec<String> {
    let machine = |report: &Report| {
        let machine = &report.machine;
        [
            ("processor", machine.cpu.clone()),
            ("cores", machine.cores.to_string()),
            ("memory", format!("{} MiB", machine.memory_mib)),
            ("kernel", machine.kernel.clone()),
            ("system", machine.system.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    };
    let pinning = |report: &Report| -> BTreeMap<String, String> {
        let pinning = report.machine.pinning.iter();
        pinning
            .map(|(component, core)| (format!("core of {component}"), core.to_string()))
            .collect()
    };
    let mut warnings = differences(&machine(before).into(), &machine(after).into());
    warnings.extend(differences(&pinning(before), &pinning(after)));
    warnings.extend(differences(&before.settings, &after.settings));
    warnings
}

fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |map: &BTreeMap<String, String>, name: &str| {
        map.get(name)
            .map_or_else(|| "nothing".to_owned(), |value| format!("\"{value}\""))
    };
    (names.into_iter())
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| {
            format!(
                "{name} differs: {} and {}",
                value(before, name),
                value(after, name)
            )
        })
        .collect()
}
