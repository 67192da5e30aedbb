//! The benchmark: one program that generates configurations, plays upstream, byte relay and load generator, and measures
//! Silverback beside the relay and other proxies. `bench/README.md` says how to run it and how to read what it prints.

#![forbid(unsafe_code)]

mod certificate;
mod compare;
mod configuration;
mod load;
mod peers;
mod process;
mod relay;
mod report;
mod scenario;
mod statistics;
mod upstream;

use anyhow::Result;

fn main() -> Result<()> {
    Ok(())
}
