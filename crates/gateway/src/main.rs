//! The `silverback` program: command line, settings, start-up, signals, and the wiring of the other crates.

#![forbid(unsafe_code)]

mod check;
mod cli;
mod commands;
mod control;
mod declarative_file;
mod instance;
mod logging;
mod lookup;
mod occupant;
mod plane;
mod reload;
mod settings;
mod signals;
mod sockets;
mod start;
mod workers;

use clap::Parser;
use std::process::ExitCode;

/// The system's allocator gives memory back late and splits it between threads; a gateway that loads large configurations
/// next to its traffic shows both.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{failure}");
            ExitCode::FAILURE
        }
    }
}
