//! The configuration of the published LMDB test: routes and consumers by the ten thousand, one key each, key-auth and
//! request-termination on every route.

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Args, Clone)]
pub struct Options {
    #[arg(long, default_value_t = 10_000)]
    pub routes: usize,
    #[arg(long, default_value_t = 10_000)]
    pub consumers: usize,
    /// The address that the service points to.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub upstream: SocketAddr,
    /// Where to write it; standard output without.
    #[arg(long)]
    pub output: Option<PathBuf>,
}

pub fn write(options: &Options) -> Result<()> {
    let text = large(options.routes, options.consumers, options.upstream, 0);
    match &options.output {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
        None => {
            println!("{text}");
            Ok(())
        }
    }
}

/// The path of route `number`.
pub fn path(number: usize) -> String {
    format!("/service-{}/route-{number}", number % 100)
}

/// The key of consumer `number`; looks random and is the same in every run.
pub fn key(number: usize) -> String {
    // splitmix64: consecutive numbers give unrelated keys.
    let mix = |seed: u64| {
        let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    format!("{:016x}{:016x}", mix(number as u64), mix(!(number as u64)))
}

/// As the test has it. `changed` is put into the first route, so that two values make configurations that differ in one route.
///
/// request-termination has a trigger: without one no request would reach the upstream, and there would be no proxying to
/// measure. The plugin runs on every request all the same and looks for its trigger.
pub fn large(routes: usize, consumers: usize, upstream: SocketAddr, changed: usize) -> String {
    let routes: Vec<Value> = (0..routes)
        .map(|number| {
            let mut route = json!({
                "name": format!("route-{number}"),
                "paths": [path(number)],
                "strip_path": false,
                "protocols": ["http", "https"],
                "tags": [format!("team-{}", number % 50), "bench"],
                "plugins": [
                    {"name": "key-auth", "config": {"key_names": ["apikey"], "key_in_query": true, "hide_credentials": false, "run_on_preflight": true}},
                    {"name": "request-termination", "config": {"status_code": 403, "message": "terminated", "echo": false, "trigger": "x-terminate"}}
                ]
            });
            if number == 0 && changed > 0 {
                route["https_redirect_status_code"] = json!([301, 302, 307, 308][changed % 4]);
            }
            route
        })
        .collect();
    let consumers: Vec<Value> = (0..consumers)
        .map(|number| {
            json!({
                "username": format!("consumer-{number}"),
                "custom_id": format!("customer-{number}"),
                "tags": [format!("team-{}", number % 50)],
                "keyauth_credentials": [{"key": key(number)}]
            })
        })
        .collect();
    json!({
        "_format_version": "3.0",
        "services": [service(upstream, routes)],
        "consumers": consumers,
    })
    .to_string()
}

/// One route for every path, with key-auth and one consumer when `authenticated`.
pub fn small(upstream: SocketAddr, authenticated: bool) -> String {
    let mut route = json!({"name": "all", "paths": ["/"], "strip_path": false});
    let mut consumers = Vec::new();
    if authenticated {
        route["plugins"] = json!([{"name": "key-auth"}]);
        consumers.push(json!({"username": "consumer-0", "keyauth_credentials": [{"key": key(0)}]}));
    }
    json!({"_format_version": "3.0", "services": [service(upstream, vec![route])], "consumers": consumers}).to_string()
}

fn service(upstream: SocketAddr, routes: Vec<Value>) -> Value {
    json!({"name": "bench", "protocol": "http", "host": upstream.ip().to_string(), "port": upstream.port(), "routes": routes})
}
