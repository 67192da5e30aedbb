//! The scenario `micro` measures single operations of the package `micro`. Criterion measures their time, and callgrind
//! counts their instructions.

use crate::harness::{Harness, figure};
use crate::report::{Better, Figure, Scenario};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ABOUT: &str = "Single operations: time measured by Criterion, and instructions counted by callgrind, which are the same in every run.";
const TIME: (&str, &str, Better) = ("time", "ns", Better::Lower);
const INSTRUCTIONS: (&str, &str, Better) = ("instructions", "each", Better::Lower);
const SUBJECT: &str = "silverback";

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "micro".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    let counts = harness.directory.path().join("instructions.json");
    let counts_text = counts.display().to_string();
    cargo(&[
        "run",
        "--release",
        "--package",
        "micro",
        "--",
        "count",
        "--json",
        &counts_text,
    ])?;
    scenario.figures = instructions(&counts)?;
    let target = harness.directory.path().join("criterion");
    let mut bench = vec!["bench", "--package", "micro", "--"];
    if harness.options.quick {
        bench.push("--quick");
    }
    run_with_home(&bench, &target)?;
    scenario.figures.extend(times(&target)?);
    Ok(scenario)
}

fn cargo(words: &[&str]) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    finish(command.args(words), words)
}

fn run_with_home(words: &[&str], home: &Path) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    finish(command.args(words).env("CRITERION_HOME", home), words)
}

fn finish(command: &mut Command, words: &[&str]) -> Result<()> {
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!(
            "cargo {} failed ({status}); it must be run in the project's folder",
            words.join(" ")
        );
    }
    Ok(())
}

fn instructions(path: &Path) -> Result<Vec<Figure>> {
    let counts = read(path)?;
    let operations = counts["operations"]
        .as_object()
        .with_context(|| format!("{}: no operations", path.display()))?;
    let mut figures = Vec::new();
    for (name, count) in operations {
        let mut figure = figure(name, SUBJECT, INSTRUCTIONS, None);
        figure.samples.push(count.as_f64().unwrap_or(f64::NAN));
        figures.push(figure);
    }
    Ok(figures)
}

/// Reads Criterion's results. For each sample of a bench, Criterion stores the number of iterations and their total
/// time.
fn times(home: &Path) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for directory in latest_results(home)? {
        let (about, sample) = (
            read(&directory.join("benchmark.json"))?,
            read(&directory.join("sample.json"))?,
        );
        let name = about["full_id"]
            .as_str()
            .context("a bench without full_id")?;
        let mut figure = figure(name, SUBJECT, TIME, None);
        let numbers = |key: &str| sample[key].as_array().cloned().unwrap_or_default();
        figure.samples = numbers("times")
            .iter()
            .zip(numbers("iters"))
            .filter_map(|(time, iterations)| Some(time.as_f64()? / iterations.as_f64()?))
            .collect();
        figures.push(figure);
    }
    figures.sort_by(|a, b| a.case.cmp(&b.case));
    Ok(figures)
}

/// Returns the directories with Criterion's latest results. They are named `new` and may be nested at any depth.
fn latest_results(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.ends_with("new") {
            found.push(path);
        } else if path.is_dir() {
            found.extend(latest_results(&path)?);
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Value> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
}
