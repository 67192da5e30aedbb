//! A description of the machine on which the benchmark runs.

use crate::process;
use crate::report::Machine;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub fn describe(pinning: BTreeMap<String, usize>) -> Machine {
    Machine {
        cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
        // `available_parallelism` would count only the processors to which this process is bound.
        cores: read("/proc/cpuinfo").matches("processor\t:").count(),
        memory_mib: field("/proc/meminfo", "MemTotal")
            .and_then(|size| size.strip_suffix(" kB")?.parse::<u64>().ok())
            .map_or(0, |kilobytes| kilobytes / 1024),
        kernel: read("/proc/sys/kernel/osrelease"),
        system: system(),
        pinning,
    }
}

fn system() -> String {
    read("/etc/os-release")
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or_else(
            || "unknown".to_owned(),
            |name| name.trim_matches('"').to_owned(),
        )
}

/// Returns the value of the first line `name : value`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read(path);
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the time in UTC in the format of RFC 3339, to the second.
pub fn now() -> Result<String> {
    let words = ["-u", "+%Y-%m-%dT%H:%M:%SZ"];
    process::first_line_of(Path::new("date"), &words).context("cannot run date")
}
