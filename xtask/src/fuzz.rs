//! `cargo xtask fuzz [TARGET] [--seconds N]`: the fuzz targets under libFuzzer where a nightly toolchain and cargo-fuzz are
//! installed; otherwise the same checks over the committed corpora and changes of them, on the toolchain that is there.

use crate::shell::{self, cargo};
use std::path::Path;
use std::process::Command;

/// Each target, when nobody says for how long.
const SECONDS: u64 = 60;
/// Each target as a step of `cargo xtask check`.
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
            "there is no target `{unknown}`; there are {}",
            targets.join(", ")
        ));
    }
    if !has_fuzzer() {
        eprintln!(
            "note: no nightly toolchain with cargo-fuzz (rustup toolchain install nightly, cargo install cargo-fuzz); \
             the same checks run on the committed corpora and changes of them"
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
        Err(format!("findings in {}", failed.join(", ")))
    }
}

/// The names of the files in `fuzz/fuzz_targets`.
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

/// Cargo of the nightly toolchain: through rustup, since the one that runs this is bound to its own.
fn nightly(words: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.current_dir(shell::root());
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command.args(["run", "nightly", "cargo"]).args(words);
    command
}

/// What is found goes to a folder beside the build, not into the committed corpus, which is only read.
fn run_target(target: &str, seconds: u64) -> Result<(), String> {
    let directory = shell::target_directory()?.join("fuzz");
    let found = directory.join("corpus").join(target);
    std::fs::create_dir_all(&found)
        .map_err(|error| format!("cannot make {}: {error}", found.display()))?;
    // No sanitizer: the code under test has no unsafe, and runs several times as often without.
    let mut command = nightly(&["fuzz", "run", "--sanitizer", "none", "--target-dir"]);
    command.arg(&directory).arg(target).arg(&found);
    command.arg(format!("fuzz/corpus/{target}"));
    command.arg("--").arg(format!("-max_total_time={seconds}"));
    command.args(["-timeout=10", "-print_final_stats=1", "-verbosity=0"]);
    shell::run(&mut command)
}
