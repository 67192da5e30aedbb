//! Prometheus 3 scrapes the gateway with its default `scrape_protocols`. It does what `cargo xtask check prometheus` does with
//! the installed Prometheus, and compares what it has stored with the page.

use super::Bench;
use super::go::Program;
use super::report::Outcome;
use crate::observe::{self, BOTH, DEFAULT, NATIVE, OPENMETRICS, Programs};

const VERSION: &str = "3.16.0";

/// The modules of Prometheus 3.16.0 have the version 0.316.0.
const SERVER: Program = Program {
    package: "github.com/prometheus/prometheus/cmd/prometheus",
    version: "v0.316.0",
};
const PROMTOOL: Program = Program {
    package: "github.com/prometheus/prometheus/cmd/promtool",
    version: "v0.316.0",
};

/// Leaves out service discovery, which is most of the program and has no part in a scrape.
const WITHOUT_DISCOVERY: [&str; 2] = ["-tags", "remove_all_sd"];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: the suite prometheus has no server of its own");
        return Ok(Vec::new());
    };
    let install = |program| bench.go.install_with(program, &WITHOUT_DISCOVERY);
    let programs = Programs {
        version: VERSION.to_owned(),
        server: install(&SERVER)?,
        promtool: install(&PROMTOOL)?,
    };
    let mut outcomes = Vec::new();
    if bench.only.is_none() {
        outcomes.push(observe::files(&programs));
    }
    for way in [DEFAULT, OPENMETRICS, NATIVE, BOTH] {
        if bench.only.is_none_or(|name| name == way.name) {
            outcomes.push(observe::scrape(&programs, gateway, &way)?);
        }
    }
    Ok(outcomes)
}
