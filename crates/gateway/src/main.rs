//! The `silverback` program: command line, settings, start-up, signals, and the wiring of the other crates.

mod access;
mod access_log;
mod audit_log;
mod check;
mod cli;
mod client;
mod commands;
mod control;
mod debug_token;
mod declarative_file;
mod entities;
mod events;
mod explain;
mod expr;
mod instance;
mod life;
mod local;
mod logging;

mod memory;
mod metrics;
mod oauth2_transfer;
mod occupant;
mod output;
mod plane;
mod plugin_list;
mod profiles;
mod progress;
mod reload;
mod revisions;
mod service_manager;
mod session_store;
mod settings;
mod signals;
mod sockets;
mod start;
mod token_store;
mod tokens;
mod top;
mod transfer;
mod upgrade;
mod workers;

use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;

/// Maximum time that a failed `start` waits until its error text is written, for example to a full pipe.
const LAST_WORDS: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    plugins::install();
    let patience = match cli.command {
        cli::Command::Start { .. } => Some(LAST_WORDS),
        // Other commands wait without limit, because their user may read the text in a pager.
        _ => None,
    };
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::say_last(failure.to_string(), patience);
            ExitCode::FAILURE
        }
    }
}
