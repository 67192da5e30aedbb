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

/// As the program has it: a tenth of many operations is memory that is taken and given back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many times an operation that has grown is counted again before that counts as a change.
const RECOUNTS: usize = 4;

/// Instructions of the operations that performance is made of, counted by callgrind (Debian package `valgrind`)
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name every operation
    List,
    /// Run one operation so many times, for profilers
    Run { operation: String, times: u32 },
    /// Count instructions per run
    Count {
        /// Operations whose name begins so; the usual ones without
        operations: Vec<String>,
        /// Write the counts here as JSON
        #[arg(long)]
        json: Option<PathBuf>,
        /// Compare with the counts in this file; fail when an operation has grown by more than 3 % and 40
        /// instructions
        #[arg(long, conflicts_with_all = ["update", "operations"])]
        check: Option<PathBuf>,
        /// Make the counts those of this file; without other operations when some are named
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
            let found = found.with_context(|| format!("there is no operation {operation}"))?;
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
                println!("instructions are not compared: {reason}");
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

/// Counts the operations again that have grown, and keeps the lower counts. Hash tables have random seeds, so a table
/// grows within some runs and not within others.
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
            bail!("there is no operation {name}; `micro list` names them");
        }
    }
    let is_chosen = |operation: &&Operation| names.iter().any(|name| is_meant(operation, name));
    Ok(all.iter().copied().filter(is_chosen).collect())
}
