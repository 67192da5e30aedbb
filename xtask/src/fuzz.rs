//! `cargo xtask fuzz [TARGET] [--seconds N]`: runs the fuzz targets under libFuzzer if a nightly toolchain and
//! cargo-fuzz are installed. Otherwise runs the same checks on the committed corpora and on mutations of them, with the
//! current toolchain.

use crate::shell::{self, cargo};
use std::path::Path;
use std::process::Command;

/// Default time for each target.
const SECONDS: u64 = 60;
/// Time for each target as a step of `cargo xtask check`.
const CHECK_SECONDS: u64 = 3;

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let (mut only, mut seconds) = (None, SECONDS);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "--seconds" {
            let number = words.next().and_then(|text| text.parse().ok());
            seconds = number.ok_or("--seconds takes a number")?;
        } else {
            only = Some(*word);
        }
    }
    fuzz(only, seconds)
}

pub(crate) fn check() -> Result<(), String> {
    fuzz(None, CHECK_SECONDS)
}

fn fuzz(only: Option<&str>, seconds: u64) -> Result<(), String> {
    let targets = targets()?;
    if let Some(unknown) = only.filter(|only| !targets.iter().any(|target| target == only)) {
        return Err(format!(
            "unknown target `{unknown}`; the targets are {}",
            targets.join(", ")
        ));
    }
    if !has_fuzzer() {
        eprintln!(
            "note: no nightly toolchain with cargo-fuzz (rustup toolchain install nightly, cargo install cargo-fuzz); \
             the same checks run on the committed corpora and mutations of them"
        );
        let mut command = cargo(&["test", "--package", "fuzzing"]);
        return shell::run(command.env("FUZZ_SECONDS", seconds.to_string()));
    }
    let wanted = targets
        .iter()
        .filter(|target| only.is_none_or(|only| only == target.as_str()));
    let mut failed = Vec::new();
    for target in wanted {
        if let Err(message) = run_target(target, seconds) {
            eprintln!("{message}");
            failed.push(target.as_str());
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "the fuzzer found failures in {}",
            failed.join(", ")
        ))
    }
}

/// Returns the names of the files in `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>, String> {
    let folder = shell::root().join("fuzz").join("fuzz_targets");
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let stem = |path: &Path| Some(path.file_stem()?.to_string_lossy().into_owned());
    let mut names: Vec<String> = entries
        .filter_map(|entry| stem(&entry.ok()?.path()))
        .collect();
    names.sort();
    Ok(names)
}

fn has_fuzzer() -> bool {
    let mut command = nightly(&["fuzz", "--version"]);
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs the nightly toolchain's cargo through rustup, because the current cargo always uses its own toolchain.
fn nightly(words: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.current_dir(shell::root());
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command.args(["run", "nightly", "cargo"]).args(words);
    command
}

/// Runs one target. New inputs are saved in the target directory; the committed corpus is only read.
fn run_target(target: &str, seconds: u64) -> Result<(), String> {
    let directory = shell::target_directory()?.join("fuzz");
    let found = directory.join("corpus").join(target);
    std::fs::create_dir_all(&found)
        .map_err(|error| format!("cannot make {}: {error}", found.display()))?;
    // The code under test has no unsafe code, and runs several times as fast without a sanitizer.
    let mut command = nightly(&["fuzz", "run", "--sanitizer", "none", "--target-dir"]);
    command.arg(&directory).arg(target).arg(&found);
    command.arg(format!("fuzz/corpus/{target}"));
    command.arg("--").arg(format!("-max_total_time={seconds}"));
    command.args(["-timeout=10", "-print_final_stats=1", "-verbosity=0"]);
    shell::run(&mut command)
}
