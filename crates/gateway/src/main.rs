//! The `silverback` program: command line, settings, start-up, signals, and the wiring of the other crates.

mod check;
mod cli;
mod commands;
mod control;
mod declarative_file;
mod instance;
mod logging;
mod lookup;
mod memory;
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
