//! `cargo xtask check`: all checks that a change must pass, cheapest first. Every step runs, so that one run shows
//! every problem.

use crate::shell::{self, cargo};
use crate::{compat, edges, fuzz, observe, pages, sanitizer, sizes, soak};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Redis, Slapd};

/// File with the committed instruction counts.
const INSTRUCTIONS: &str = "bench/instructions.json";

/// The version of cargo-deny that CI installs.
const CARGO_DENY: &str = "0.20.2";

struct Step {
    name: &'static str,
    run: fn() -> Result<(), String>,
}

const STEPS: [Step; 14] = [
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
        name: "prometheus",
        run: observe::check,
    },
    Step {
        name: "pages",
        run: || pages::run(&[]),
    },
    Step {
        name: "fuzzing",
        run: fuzz::check,
    },
    Step {
        name: "sanitizer",
        run: sanitizer::check,
    },
    Step {
        name: "soak",
        run: soak::check,
    },
    Step {
        name: "instructions",
        run: instructions,
    },
];

/// Runs the named steps, or all steps if no name is given.
pub(crate) fn run(only: &[&str]) -> Result<(), String> {
    if let Some(unknown) = only
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        return Err(format!("unknown step `{unknown}`"));
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

/// Runs every test of the workspace. Tests also compare the generated files. The gateway's tests run its real binary,
/// which cargo builds for them. Some start servers of others, where they are installed.
pub(crate) fn test() -> Result<(), String> {
    let servers = [
        (Slapd::is_installed(), testkit::slapd::MISSING),
        (Redis::is_installed(), testkit::redis::MISSING),
    ];
    for (_, missing) in servers.iter().filter(|(is_installed, _)| !is_installed) {
        if std::env::var_os("CI").is_some() {
            return Err((*missing).to_owned());
        }
        eprintln!("note: {missing}");
    }
    shell::run(&mut cargo(&["test", "--workspace", "--no-fail-fast"]))
}

/// Compares the instruction counts of operations with the committed counts. Uses an optimised build, but not the
/// release profile, which takes too long to build.
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

/// Checks dependencies and their security advisories with cargo-deny, as deny.toml says. In CI a missing cargo-deny is
/// built, which takes minutes once. Elsewhere, if it is missing, the step only looks for crates in several versions.
fn dependencies() -> Result<(), String> {
    let Some(program) = cargo_deny()? else {
        eprintln!(
            "note: cargo-deny is not installed, so licences, sources and advisories are not checked \
             (cargo install cargo-deny --locked --version {CARGO_DENY})"
        );
        return doubled_versions();
    };
    let deny = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(shell::root()).args(words);
        command
    };
    shell::run(&mut deny(&["check", "licenses", "bans", "sources"]))?;
    if shell::run(&mut deny(&["fetch", "db"])).is_err() {
        eprintln!("note: the advisory database cannot be fetched, so advisories are not checked");
        return Ok(());
    }
    shell::run(&mut deny(&["check", "--disable-fetch", "advisories"]))
}

/// Returns the cargo-deny of CI's version or else any installed one. Returns `None` if it is missing outside of CI.
fn cargo_deny() -> Result<Option<PathBuf>, String> {
    let runs = |program: &Path| {
        let mut command = Command::new(program);
        let output = command.arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    let installed = PathBuf::from("cargo-deny");
    if runs(&installed) {
        return Ok(Some(installed));
    }
    let root = shell::target_directory()?.join("tools");
    let built = root.join("bin").join("cargo-deny");
    if runs(&built) {
        return Ok(Some(built));
    }
    if std::env::var_os("CI").is_none() {
        return Ok(None);
    }
    let mut install = cargo(&["install", "cargo-deny", "--locked", "--version", CARGO_DENY]);
    shell::run(install.arg("--root").arg(&root))?;
    Ok(Some(built))
}

/// Finds crates that Cargo.lock contains in several versions without an exception in deny.toml.
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
        Err(format!(
            "crates in several versions: {}",
            doubled.join(", ")
        ))
    }
}
