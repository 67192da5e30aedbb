//! Allowed dependencies between crates: checks the invariants of ARCHITECTURE.md with `cargo metadata`.

use crate::shell;
use std::collections::{BTreeMap, BTreeSet};

/// Each crate of the workspace with the workspace crates it may depend on. `gateway` may depend on all.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("expr", &[]),
    ("model", &["expr"]),
    ("tables", &[]),
    ("router", &["expr", "model", "tables"]),
    ("net", &["model"]),
    ("store", &["model"]),
    ("services", &["net"]),
    ("tokens", &[]),
    ("plugin", &["expr", "model", "net", "services", "tokens"]),
    ("lua", &["model", "net", "plugin", "services"]),
    (
        "plugins",
        &[
            "expr", "lua", "model", "net", "plugin", "services", "tokens",
        ],
    ),
    ("profile", &[]),
    ("proxy", &["model", "net", "plugin", "router", "tables"]),
    (
        "admin",
        &["model", "net", "plugin", "services", "store", "tokens"],
    ),
    (
        "gateway",
        &[
            "admin", "expr", "model", "net", "plugin", "plugins", "profile", "proxy", "router",
            "services", "store", "tables", "tokens",
        ],
    ),
    ("testkit", &[]),
    ("xtask", &["testkit"]),
];

/// Crates for measuring and fuzzing. They are not part of the program and may depend on every crate.
const MEASURING: [&str; 4] = ["bench", "micro", "fuzzing", "oracle"];

/// Crates of pure functions. They must not depend on crates that do I/O or have a runtime.
const PURE: [&str; 4] = ["expr", "model", "router", "tables"];
const IMPURE: [&str; 12] = [
    "tokio",
    "tokio-rustls",
    "rustls",
    "socket2",
    "heed",
    "axum",
    "hyper",
    "mio",
    "rustix",
    "reqwest",
    "async-std",
    "tempfile",
];

pub(crate) fn check() -> Result<(), String> {
    let metadata = shell::metadata()?;
    let packages = packages(&metadata);
    let names: BTreeSet<&str> = packages.keys().copied().collect();
    let mut problems = Vec::new();
    for (name, dependencies) in &packages {
        let allowed = ALLOWED.iter().find(|(known, _)| known == name);
        let Some((_, allowed)) = allowed else {
            if !MEASURING.contains(name) {
                problems.push(format!(
                    "{name} is a crate without a rule in xtask/src/edges.rs"
                ));
            }
            continue;
        };
        for dependency in dependencies {
            if names.contains(dependency) && !allowed.contains(dependency) {
                problems.push(format!("{name} must not depend on {dependency}"));
            }
            if PURE.contains(name) && IMPURE.contains(dependency) {
                problems.push(format!(
                    "{name} does no I/O and must not depend on {dependency}"
                ));
            }
        }
    }
    problems.extend(unknown(&names));
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

/// Returns crates that a rule names but the workspace does not contain. After a rename, the rule would no longer have
/// an effect.
fn unknown(names: &BTreeSet<&str>) -> Vec<String> {
    let ruled = ALLOWED
        .iter()
        .flat_map(|(name, allowed)| std::iter::once(name).chain(*allowed));
    let named: BTreeSet<&str> = ruled.chain(&MEASURING).chain(&PURE).copied().collect();
    named
        .difference(names)
        .map(|name| format!("xtask/src/edges.rs has a rule for {name}, which is no crate"))
        .collect()
}

/// Returns every package with its dependencies, without dev-dependencies.
fn packages(metadata: &serde_json::Value) -> BTreeMap<&str, Vec<&str>> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let dependencies = package["dependencies"].as_array()?;
            let shipped = dependencies
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .filter_map(|dependency| dependency["name"].as_str());
            Some((package["name"].as_str()?, shipped.collect()))
        })
        .collect()
}
