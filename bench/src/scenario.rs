//! The scenarios of the benchmark, by name.

mod admin;
mod authentication;
mod burst;
mod cache;
mod chains;
mod config;
mod gateway;
mod http2;
mod idle;
mod limits;
mod lua;
mod micro;
mod oauth2;
mod plugins;
mod proxy;
mod pushes;
mod rebuild;
mod routes;
mod scrape;
mod soak;
mod traces;

use crate::harness::Harness;
use crate::report::Scenario;
use anyhow::{Context, Result};
use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Proxying alone: responses of 512 bytes to 10 MiB, 8 to 1,024 connections, HTTP and TLS, handshakes
    Proxy,
    /// Cost against size: routes of every kind, credentials, key-auth, rate limiting; authentication plugins
    Gateway,
    /// Cost of single plugins and of a chain of five
    Plugins,
    /// Changes of the configuration: their duration and their effect on traffic
    Config,
    /// Writes and lists of the Admin API on the embedded store
    Admin,
    /// Effect of scraping /metrics on traffic, the cost of a scrape, and the cost of counting
    Scrape,
    /// Thousands of streams on one HTTP/2 connection
    Burst,
    /// Memory of a connection that waits for its next request
    Idle,
    /// Effect of thousands of sleeping Lua functions on other requests
    Lua,
    /// OAuth2 tokens: issued, verified, introspected, imported and dropped, with up to 10,000,000 in the store
    Oauth2,
    /// Rate limits that ten gateways share by Redis: how much more than the limit passes, and the cost of a request
    Limits,
    /// proxy-cache with a million responses: its memory, and the cost of a stored response
    Cache,
    /// Hours of load with one change a second
    Soak,
    /// Hours of load by a million consumers while routes are made and deleted: memory and scrapes
    Cardinality,
    /// Criterion benches and instruction counts of single operations
    Micro,
}

impl Name {
    /// Returns the named scenarios, or all except for those that take hours.
    pub fn choose(named: &[Name]) -> Vec<Name> {
        if named.is_empty() {
            let all = Name::value_variants().iter().copied();
            return all
                .filter(|name| ![Name::Soak, Name::Cardinality].contains(name))
                .collect();
        }
        named.to_vec()
    }

    pub fn run(self, harness: &mut Harness) -> Result<Scenario> {
        let run = match self {
            Name::Proxy => proxy::run,
            Name::Gateway => gateway::run,
            Name::Plugins => plugins::run,
            Name::Config => config::run,
            Name::Admin => admin::run,
            Name::Scrape => scrape::run,
            Name::Burst => burst::run,
            Name::Idle => idle::run,
            Name::Lua => lua::run,
            Name::Oauth2 => oauth2::run,
            Name::Limits => limits::run,
            Name::Cache => cache::run,
            Name::Soak => soak::run,
            Name::Cardinality => soak::cardinality::run,
            Name::Micro => micro::run,
        };
        let shown = self.to_possible_value();
        let shown = shown.as_ref().map_or("", |value| value.get_name());
        eprintln!("== {shown}");
        run(harness).with_context(|| format!("scenario {shown}"))
    }
}
