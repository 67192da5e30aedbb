//! `cargo xtask check`: all that a change must pass, cheapest first. Every step runs, so that one look shows every problem.

use crate::shell::{self, cargo};
use crate::{compat, edges, fuzz, sizes};
use std::process::Command;

/// The committed counts.
const INSTRUCTIONS: &str = "bench/instructions.json";

struct Step {
    name: &'static str,
    run: fn() -> Result<(), String>,
}

const STEPS: [Step; 10] = [
    Step {
        name: "formatting",
        run: || shell::run(&mut cargo(&["fmt", "--all", "--check"])),
    },
    Step {
        name: "crate edges",
        run: edges::check,
    },
    Step {
        name: "file sizes",
        run: sizes::check,
    },
    Step {
        name: "dependencies",
        run: dependencies,
    },
    Step {
        name: "lints",
        run: lints,
    },
    Step {
        name: "documentation",
        run: documentation,
    },
    Step {
        name: "tests",
        run: test,
    },
    Step {
        name: "clients",
        run: compat::check,
    },
    Step {
        name: "fuzzing",
        run: fuzz::check,
    },
    Step {
        name: "instructions",
        run: instructions,
    },
];

/// Runs the steps of these names, or all when there is none.
pub(crate) fn run(only: &[&str]) -> Result<(), String> {
    if let Some(unknown) = only
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        return Err(format!("there is no step `{unknown}`"));
    }
    let steps: Vec<&Step> = STEPS
        .iter()
        .filter(|step| only.is_empty() || only.contains(&step.name))
        .collect();
    let mut failed = Vec::new();
    for step in &steps {
        eprintln!("== {}", step.name);
        if let Err(message) = (step.run)() {
            eprintln!("{message}");
            failed.push(step.name);
        }
    }
    let passed = steps.len() - failed.len();
    println!("check: {passed} passed, {} failed", failed.len());
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}

/// Every test of the workspace; generated files are compared by tests. The gateway's tests run its real binary, which cargo
/// builds for them.
pub(crate) fn test() -> Result<(), String> {
    shell::run(&mut cargo(&["test", "--workspace", "--no-fail-fast"]))
}

/// What operations cost, against the committed counts. Of an optimised build; the release profile takes too long for this.
fn instructions() -> Result<(), String> {
    let words = ["build", "--package", "micro", "--profile", "demo"];
    shell::run(&mut cargo(&words))?;
    let program = shell::target_directory()?.join("demo").join("micro");
    let mut command = Command::new(program);
    command.args(["count", "--check", INSTRUCTIONS]);
    shell::run(command.current_dir(shell::root()))
}

fn lints() -> Result<(), String> {
    shell::run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

fn documentation() -> Result<(), String> {
    let mut command = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ]);
    shell::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// deny.toml by cargo-deny where it is installed; building it takes longer than all else together.
fn dependencies() -> Result<(), String> {
    let installed = cargo(&["deny", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !installed {
        eprintln!(
            "note: cargo-deny is not installed; only doubled versions are looked for (cargo install cargo-deny)"
        );
        return doubled_versions();
    }
    shell::run(&mut cargo(&[
        "deny", "check", "licenses", "bans", "sources",
    ]))
}

/// Crates that Cargo.lock holds in several versions and deny.toml does not excuse.
fn doubled_versions() -> Result<(), String> {
    let read = |name: &str| {
        std::fs::read_to_string(shell::root().join(name))
            .map_err(|error| format!("cannot read {name}: {error}"))
    };
    let (lock, excused) = (read("Cargo.lock")?, read("deny.toml")?);
    let mut names: Vec<&str> = lock
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .collect();
    names.sort_unstable();
    let mut doubled: Vec<&str> = names
        .windows(2)
        .filter(|pair| pair[0] == pair[1])
        .map(|pair| pair[0])
        .filter(|name| {
            !excused.contains(&format!("\"{name}@"))
                && !excused.contains(&format!("crate = \"{name}\""))
        })
        .collect();
    doubled.dedup();
    if doubled.is_empty() {
        Ok(())
    } else {
        Err(format!("in several versions: {}", doubled.join(", ")))
    }
}
