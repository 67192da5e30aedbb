//! `cargo xtask soak [store | kills | router | lua] [--seed N] [--minutes N] [--output FILE]`: runs the endurance tests in
//! full. `cargo test` runs a small part of each.

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

/// The test of Lua code takes a time. It needs an optimised build, because it is about load.
const LUA: &str = "lua";
const LUA_TEST: [&str; 6] = ["--profile", "demo", "--test", "it", "--", "lua_soak"];
/// Default duration in minutes.
const LUA_MINUTES: u64 = 60;

const USAGE: &str = "cargo xtask soak takes store, kills, router or lua, and --seed with a number; for lua also --minutes with \
                     a number, and --output with a file";

/// The words of the command.
#[derive(Default)]
struct Options<'a> {
    only: Option<&'a str>,
    seed: Option<u64>,
    minutes: Option<u64>,
    output: Option<&'a str>,
}

impl<'a> Options<'a> {
    fn read(words: &[&'a str]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--seed" => options.seed = Some(words.next()?.parse().ok()?),
                "--minutes" => options.minutes = Some(words.next()?.parse().ok()?),
                "--output" => options.output = Some(words.next()?),
                name if options.only.is_none() && !name.starts_with('-') => {
                    options.only = Some(name);
                }
                _ => return None,
            }
        }
        // The time is Lua's alone.
        if options.minutes.or(options.output.map(|_| 0)).is_some() {
            options.only.get_or_insert(LUA);
        }
        let is_known = |name| name == LUA || SOAKS.iter().any(|soak| soak.name == name);
        options.only.is_none_or(is_known).then_some(options)
    }
}

pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let options = Options::read(words).ok_or(USAGE)?;
    let seed = options.seed.unwrap_or_else(now);
    let is_wanted = |name| options.only.is_none_or(|only| only == name);
    for soak in SOAKS.iter().filter(|soak| is_wanted(soak.name)) {
        let (variable, amount) = soak.amount;
        eprintln!("{variable}={amount} ENDURE_SEED={seed}");
        let mut command = cargo(&["test", "--package", soak.package]);
        command.args(soak.tests).arg("--nocapture");
        shell::run(
            command
                .env(variable, amount)
                .env("ENDURE_SEED", seed.to_string()),
        )?;
    }
    if is_wanted(LUA) {
        let minutes = options.minutes.unwrap_or(LUA_MINUTES);
        lua(minutes * 60, seed, options.output)?;
    }
    Ok(())
}

/// Runs the test of Lua code as a step of `cargo xtask check`: ten minutes in CI, one minute elsewhere.
pub(crate) fn check() -> Result<(), String> {
    let minutes = if std::env::var_os("CI").is_some() {
        10
    } else {
        1
    };
    lua(minutes * 60, now(), None)
}

fn lua(seconds: u64, seed: u64, output: Option<&str>) -> Result<(), String> {
    eprintln!("ENDURE_SECONDS={seconds} ENDURE_SEED={seed}");
    let mut command = cargo(&["test", "--package", "gateway"]);
    command.args(LUA_TEST).arg("--nocapture");
    command
        .env("ENDURE_SECONDS", seconds.to_string())
        .env("ENDURE_SEED", seed.to_string());
    if let Some(file) = output {
        command.env("ENDURE_REPORT", shell::root().join(file));
    }
    shell::run(&mut command)
}

/// Returns a new seed for each run. The seed is printed, so that the run can be repeated.
fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_secs())
}
