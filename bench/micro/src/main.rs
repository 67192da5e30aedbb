//! The program `micro`: counts the instructions of the operations under callgrind, and compares them with the committed
//! counts.

#![forbid(unsafe_code)]

mod callgrind;
mod counts;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use counts::Counts;
use micro::Operation;
use std::path::PathBuf;
use std::process::ExitCode;

/// The gateway's allocator. Allocating and freeing memory takes a tenth of the time of many operations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of times that a grown operation is counted again before it counts as changed.
const RECOUNTS: usize = 4;

/// Counts the instructions of performance-critical operations with callgrind (Debian package `valgrind`)
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name every operation
    List,
    /// Run one operation this many times, for profilers
    Run { operation: String, times: u32 },
    /// Count instructions per run
    Count {
        /// Operations whose names begin with these texts; default: the usual ones
        operations: Vec<String>,
        /// Write the counts to this file as JSON
        #[arg(long)]
        json: Option<PathBuf>,
        /// Compare with the counts in this file; fail when an operation has grown by more than 3 % and 40
        /// instructions
        #[arg(long, conflicts_with_all = ["update", "operations"])]
        check: Option<PathBuf>,
        /// Write the counts to this file; if operations are named, keep its other counts
        #[arg(long)]
        update: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("micro: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let usual = micro::operations();
    let (long, scaling) = (micro::long_operations(), micro::scaling_operations());
    let all: Vec<&Operation> = usual.iter().chain(&long).chain(&scaling).collect();
    match command {
        Command::List => {
            for operation in &all {
                println!("{}", operation.name);
            }
            Ok(())
        }
        Command::Run { operation, times } => {
            let found = all.iter().find(|one| one.name == operation);
            let found = found.with_context(|| format!("unknown operation {operation}"))?;
            micro::run_counted(found, times);
            Ok(())
        }
        Command::Count {
            operations,
            json,
            check,
            update,
        } => {
            let chosen = match operations.as_slice() {
                [] => usual.iter().collect(),
                names => choose(&all, names)?,
            };
            let baseline = check.as_deref().map(Counts::read).transpose()?;
            if let Some(baseline) = &baseline
                && let Some(reason) = baseline.is_of_another_machine()
            {
                println!("the instruction counts are not compared: {reason}");
                return Ok(());
            }
            let mut counts = Counts::of_this_machine(callgrind::count(&chosen)?);
            if let Some(baseline) = &baseline {
                recount_grown(&mut counts, baseline, &chosen)?;
            }
            println!("{counts}");
            if let Some(path) = &json {
                counts.write(path)?;
            }
            if let Some(path) = &update {
                counts.update(path, !operations.is_empty())?;
            }
            baseline.map_or(Ok(()), |baseline| baseline.check(&counts))
        }
    }
}

/// Counts grown operations again and keeps the lower counts. Hash tables have random seeds, so a table is resized in
/// some runs but not in others.
fn recount_grown(counts: &mut Counts, baseline: &Counts, chosen: &[&Operation]) -> Result<()> {
    for _ in 0..RECOUNTS {
        let grown = baseline.grown(counts);
        if grown.is_empty() {
            break;
        }
        let is_grown = |operation: &&Operation| grown.contains(&operation.name);
        let again: Vec<&Operation> = chosen.iter().copied().filter(is_grown).collect();
        counts.lower(callgrind::count(&again)?);
    }
    Ok(())
}

fn choose<'o>(all: &[&'o Operation], names: &[String]) -> Result<Vec<&'o Operation>> {
    let is_meant = |operation: &Operation, name: &String| operation.name.starts_with(name.as_str());
    for name in names {
        if !all.iter().any(|operation| is_meant(operation, name)) {
            bail!("unknown operation {name}; `micro list` shows all operations");
        }
    }
    let is_chosen = |operation: &&Operation| names.iter().any(|name| is_meant(operation, name));
    Ok(all.iter().copied().filter(is_chosen).collect())
}
