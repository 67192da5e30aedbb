//! Prometheus 3 and the last Prometheus 2 scrape the gateway with their default `scrape_protocols`. Does what `cargo xtask
//! check prometheus` does with the installed Prometheus, in more formats.

use super::Bench;
use super::go::{Go, Program};
use super::report::Outcome;
use crate::observe::{self, BOTH, DEFAULT, NATIVE, OPENMETRICS, Programs, Way};

const MODULE: &str = "github.com/prometheus/prometheus";

/// Prometheus 3.16.0 is the version 0.316.0 of its module, and Prometheus 2.55.1 the version 0.55.1.
const VERSIONS: [(&str, &str); 2] = [("3.16.0", "v0.316.0"), ("2.55.1", "v0.55.1")];

const SERVER: &str = "github.com/prometheus/prometheus/cmd/prometheus";
const PROMTOOL: &str = "github.com/prometheus/prometheus/cmd/promtool";

/// Leaves out service discovery, which is most of the program and has no part in a scrape. Prometheus 2 has no such tag.
const WITHOUT_DISCOVERY: [&str; 2] = ["-tags", "remove_all_sd"];

/// Only Prometheus 3 has the settings of native histograms.
const WAYS: [Way; 4] = [DEFAULT, OPENMETRICS, NATIVE, BOTH];
const WAYS_OF_2: [Way; 2] = [DEFAULT, OPENMETRICS];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: the suite prometheus has no server of its own");
        return Ok(Vec::new());
    };
    let mut outcomes = Vec::new();
    for (version, module_version) in VERSIONS {
        let programs = programs(bench.go, version, module_version)?;
        if bench.only.is_none() {
            outcomes.push(observe::files(&programs));
        }
        let ways = if is_2(version) {
            &WAYS_OF_2[..]
        } else {
            &WAYS[..]
        };
        for way in ways {
            if bench.only.is_none_or(|name| name == way.name) {
                outcomes.push(observe::scrape(&programs, gateway, way)?);
            }
        }
    }
    Ok(outcomes)
}

fn programs(go: &Go, version: &str, module_version: &'static str) -> Result<Programs, String> {
    let install = |package| {
        let program = Program {
            package,
            version: module_version,
        };
        if is_2(version) {
            go.install_within(MODULE, &program)
        } else {
            go.install_with(&program, &WITHOUT_DISCOVERY)
        }
    };
    Ok(Programs {
        version: version.to_owned(),
        server: install(SERVER)?,
        promtool: install(PROMTOOL)?,
    })
}

fn is_2(version: &str) -> bool {
    version.starts_with("2.")
}
