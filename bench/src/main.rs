//! The benchmark: one program that generates configurations, plays upstream, byte relay and load generator, and measures
//! Silverback against the relay and nginx. `bench/README.md` says how to run it and how to read what it prints.

#![forbid(unsafe_code)]

mod configuration;
mod figures;
mod gateway;
mod load;
mod peers;
mod process;
mod relay;
mod upstream;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser)]
#[command(
    name = "bench",
    about = "Measures Silverback beside a byte relay and nginx"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// CPU per request, time of POST /config and memory: the figures of the README.
    Gateway(gateway::Options),
    /// Writes the configuration of the LMDB test: routes, consumers, keys and plugins.
    Configuration(configuration::Options),
    /// Answers 512 bytes to every request, 64 KiB to those for /big.
    Upstream {
        #[arg(default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Relays bytes and parses nothing: the floor that the figures are compared with.
    Relay {
        listen: SocketAddr,
        upstream: SocketAddr,
    },
    /// Keeps connections busy with GET requests, one at a time each, and prints the rate.
    Load {
        address: SocketAddr,
        #[arg(long, default_value_t = 64)]
        connections: usize,
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// A file with one request a line: path, then optionally a tab and an API key.
        #[arg(long)]
        requests: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Gateway(options) => gateway::run(&options),
        Command::Configuration(options) => configuration::write(&options),
        Command::Upstream { listen } => upstream::run(listen),
        Command::Relay { listen, upstream } => relay::run(listen, upstream),
        Command::Load {
            address,
            connections,
            seconds,
            requests,
        } => {
            let requests = match requests {
                Some(path) => load::read_requests(&path)?,
                None => vec![load::Request::get("/")],
            };
            let outcome = load::run(
                address,
                connections,
                Duration::from_secs_f64(seconds),
                &requests,
            )?;
            println!("{outcome}");
            Ok(())
        }
    }
}
