//! Runs this program under callgrind, once per operation.

use anyhow::{Context, Result, anyhow, bail};
use micro::{Operation, TOGGLES};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tempfile::TempDir;

/// Returns the number of instructions of one run of each operation, by the operation's name. The number of operations
/// counted in parallel is the number of processors.
pub(crate) fn count(operations: &[&Operation]) -> Result<BTreeMap<String, f64>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let directory = TempDir::new().context("cannot make a temporary directory")?;
    let mut queue = operations.to_vec();
    // The longest operations start first; otherwise one of them would run alone at the end. Operations with a small
    // count take longest, so they are sorted to the end of the queue, where `pop` takes them first.
    queue.sort_by_key(|operation| std::cmp::Reverse(operation.count));
    let queue = Mutex::new(queue);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let work = || {
        let mut counts = Vec::new();
        while let Some(operation) = next() {
            let count = count_one(operation, &program, directory.path())
                .with_context(|| format!("counting {}", operation.name))?;
            counts.push((operation.name.clone(), count));
        }
        Ok(counts)
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let counts: Result<Vec<Vec<_>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|counts| counts.map_err(|_| anyhow!("a thread panicked"))?)
            .collect()
    });
    Ok(counts?.into_iter().flatten().collect())
}

fn count_one(operation: &Operation, program: &Path, directory: &Path) -> Result<f64> {
    let file = directory.join(operation.name.replace('/', "-"));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--collect-atstart=no"]);
    command.args(TOGGLES.map(|pattern| format!("--toggle-collect={pattern}")));
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).arg("run").arg(&operation.name);
    command.arg(operation.count.to_string());
    // Other environment variables must not influence what an operation does.
    let kept = ["PATH", "TMPDIR"].map(|name| (name, std::env::var_os(name)));
    let kept = kept
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let output = command.env_clear().envs(kept).stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("valgrind is not installed (Debian package `valgrind`)"),
        _ => anyhow!("cannot run valgrind: {error}"),
    })?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("valgrind ended with {}:\n{errors}", output.status);
    }
    let profile = std::fs::read_to_string(&file).context("cannot read callgrind's output")?;
    let total = total(&profile).context("callgrind's output has no sum")?;
    if total == 0 {
        bail!("callgrind has counted nothing: it has not found the functions that it counts in");
    }
    Ok(total as f64 / f64::from(operation.count))
}

/// Returns the total number of instructions in a profile.
fn total(profile: &str) -> Option<u64> {
    let line = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_ends_with_its_sum() {
        let profile = "# callgrind format\nevents: Ir\n\nfn=(1) main\n12 40\n\ntotals: 1234\n";
        assert_eq!(total(profile), Some(1234));
        assert_eq!(total("events: Ir\n"), None);
    }
}
