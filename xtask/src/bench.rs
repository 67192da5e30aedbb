//! `cargo xtask bench`: builds the gateway and the benchmark in release mode, and runs the benchmark with the given
//! arguments.

use crate::shell::{self, cargo};
use std::process::Command;

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let packages = ["--package", "gateway", "--package", "bench"];
    let mut build = cargo(&["build", "--release"]);
    shell::run(build.args(packages))?;
    let release = shell::target_directory()?.join("release");
    let mut bench = Command::new(release.join("bench"));
    bench.current_dir(shell::root()).args(words);
    // The benchmark cannot find the binary by itself if cargo uses another target directory.
    bench.env("BENCH_SUBJECT", release.join("silverback"));
    shell::run(&mut bench)
}
