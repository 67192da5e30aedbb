//! `cargo xtask soak [store | kills | router] [--seed N]`: runs the endurance tests in full. `cargo test` runs a small
//! part of each.

use crate::shell::{self, cargo};
use std::time::{SystemTime, UNIX_EPOCH};

/// An endurance test and its amount of work.
struct Soak {
    name: &'static str,
    package: &'static str,
    /// Further arguments of `cargo test`.
    tests: &'static [&'static str],
    amount: (&'static str, &'static str),
}

const SOAKS: [Soak; 3] = [
    Soak {
        name: "store",
        package: "store",
        tests: &["--test", "it", "--", "endure"],
        amount: ("ENDURE_CHANGE_SETS", "100000"),
    },
    Soak {
        name: "kills",
        package: "gateway",
        tests: &["--test", "it", "--", "kills"],
        amount: ("ENDURE_KILLS", "1000"),
    },
    Soak {
        name: "router",
        package: "oracle",
        // Millions of decisions need an optimised build.
        tests: &["--profile", "demo", "--"],
        amount: ("ENDURE_REQUESTS", "5000000"),
    },
];

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let (only, seed) = match words {
        [] => (None, None),
        ["--seed", seed] => (None, Some(*seed)),
        [only] => (Some(*only), None),
        [only, "--seed", seed] => (Some(*only), Some(*seed)),
        _ => {
            return Err(
                "cargo xtask soak takes store, kills or router, and --seed with a number".into(),
            );
        }
    };
    let seed = match seed {
        Some(seed) => seed.parse().map_err(|_| "--seed takes a number")?,
        None => now(),
    };
    let wanted = SOAKS
        .iter()
        .filter(|soak| only.is_none_or(|only| only == soak.name));
    let mut ran = false;
    for soak in wanted {
        let (variable, amount) = soak.amount;
        eprintln!("{variable}={amount} ENDURE_SEED={seed}");
        let mut command = cargo(&["test", "--package", soak.package]);
        command.args(soak.tests).arg("--nocapture");
        shell::run(
            command
                .env(variable, amount)
                .env("ENDURE_SEED", seed.to_string()),
        )?;
        ran = true;
    }
    if ran {
        Ok(())
    } else {
        Err("there are store, kills and router".into())
    }
}

/// Returns a new seed for each run. The seed is printed, so that the run can be repeated.
fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_secs())
}
