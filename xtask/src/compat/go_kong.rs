//! Runs the tests of go-kong against the gateway. go-kong is the client library of decK, of Kong's ingress controller
//! and of Kong's Terraform provider. The tests run with the embedded store, with a declarative configuration only, and
//! with the router flavor `expressions`.
//!
//! The tests query `GET /` for the name of the database. Unless it is `postgres`, they skip themselves if they need a
//! database. Only this check is changed, so that every database except `off` suffices. Every test must pass, except
//! those that xtask/compat/go-kong.txt lists with a reason.

use super::Bench;
use super::go::{Go, Trouble};
use super::process::{End, run_for};
use super::report::{Case, Outcome};
use crate::shell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::Launch;

const MODULE: &str = "github.com/kong/go-kong";
const VERSION: &str = "v0.76.1";
/// The package of the module that contains the client's tests.
const PACKAGE: &str = "kong";
/// Code that decides whether a test runs with the current database, and its replacement.
const GUARD: (&str, &str) = (
    "if dbMode != dbmode {",
    "if (dbMode == \"off\") != (dbmode == \"off\") {",
);
const GUARDED: &str = "test_utils.go";
/// A test of the client's default address. It runs without an address in the environment.
const WITHOUT_ADDRESS: &str = "TestBaseRootURL";

const LIST: &str = "xtask/compat/go-kong.txt";
const LIMIT: Duration = Duration::from_secs(300);

/// Name and settings of each gateway that is tested.
const WAYS: [(&str, &[(&str, &str)]); 3] = [
    ("lmdb", &[("database", "lmdb")]),
    ("off", &[("database", "off")]),
    (
        "expressions",
        &[("database", "lmdb"), ("router_flavor", "expressions")],
    ),
];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: go-kong has no server of its own");
        return Ok(Vec::new());
    };
    let source = fetch(bench.go)?;
    let package = format!("./{PACKAGE}");
    let words = ["test", "-c", package.as_str()];
    let program = bench.go.make(&source, &words, "go-kong.test")?;
    let suite = Suite {
        program,
        folder: source.join(PACKAGE),
        exempt: Exemptions::read()?,
    };
    let mut outcomes = Vec::new();
    for (way, settings) in WAYS {
        eprintln!("== go-kong over {way}");
        let gateway = settings
            .iter()
            .fold(Launch::new(gateway), |launch, (name, value)| {
                launch.set(name, *value)
            });
        outcomes.push(suite.run(way, gateway, bench.only)?);
    }
    Ok(outcomes)
}

/// Copies the package out of the read-only module cache, replaces [`GUARD`], and downloads the dependencies.
pub(super) fn fetch(go: &Go) -> Result<PathBuf, Trouble> {
    let module = go.module(MODULE, VERSION)?;
    let copy = go.folder().join(format!("go-kong@{VERSION}"));
    fs::create_dir_all(&copy).map_err(|error| format!("{}: {error}", copy.display()))?;
    for name in ["go.mod", "go.sum", PACKAGE] {
        copy_all(&module.join(name), &copy.join(name))
            .map_err(|error| format!("cannot copy {name} of go-kong: {error}"))?;
    }
    let guarded = copy.join(PACKAGE).join(GUARDED);
    let text = fs::read_to_string(&guarded).map_err(|error| format!("{GUARDED}: {error}"))?;
    if text.matches(GUARD.0).count() != 1 {
        return Err(format!("go-kong's {GUARDED} has no `{}`", GUARD.0).into());
    }
    fs::write(&guarded, text.replace(GUARD.0, GUARD.1))
        .map_err(|error| format!("{GUARDED}: {error}"))?;
    go.fetch(&copy, &format!("./{PACKAGE}"))?;
    Ok(copy)
}

/// Copies files without their permissions. The module cache is read-only, but the copy must be writable.
fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return fs::write(to, fs::read(from)?);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

struct Suite {
    program: PathBuf,
    /// Directory in which the tests look for their data.
    folder: PathBuf,
    exempt: Exemptions,
}

impl Suite {
    fn run(
        &self,
        way: &'static str,
        gateway: Launch,
        only: Option<&str>,
    ) -> Result<Outcome, String> {
        let gateway = gateway
            .try_start()
            .map_err(|log| format!("the gateway did not start:\n{log}"))?;
        let address = format!("http://{}", gateway.admin);
        let pattern = only.unwrap_or(".");
        let list = self.output(Command::new(&self.program).args(["-test.list", pattern]))?;
        let tests = list.lines().filter(|name| name.starts_with("Test"));
        let names: Vec<&str> = tests.collect();
        let mut command = self.command(pattern);
        command.args(["-test.skip", &exactly(WITHOUT_ADDRESS)]);
        let mut said = self.output(command.env("KONG_ADMIN_URL", address))?;
        if names.contains(&WITHOUT_ADDRESS) {
            said += &self.output(&mut self.command(&exactly(WITHOUT_ADDRESS)))?;
        }
        Ok(self.judge(way, &names, &read(&said)))
    }

    fn command(&self, pattern: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-test.v", "-test.run", pattern]);
        // The tests read these environment variables. Values from outside must not affect them.
        for name in ["KONG_ADMIN_URL", "KONG_ADMIN_TOKEN", "KONG_LICENSE_DATA"] {
            command.env_remove(name);
        }
        command
    }

    fn output(&self, command: &mut Command) -> Result<String, String> {
        match run_for(command.current_dir(&self.folder), LIMIT)? {
            // The exit status only says whether a test failed. The output says which tests failed.
            End::Status(_, said) => Ok(said),
            End::TooLate(said) => Err(format!("go-kong's tests did not finish in time:\n{said}")),
        }
    }

    fn judge(
        &self,
        way: &'static str,
        names: &[&str],
        results: &BTreeMap<String, Ended>,
    ) -> Outcome {
        let mut outcome = Outcome {
            suite: "go-kong",
            version: VERSION.trim_start_matches('v').to_owned(),
            way,
            ..Outcome::default()
        };
        let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
        for name in names {
            let reason = self.exempt.reason(way, name);
            match (results.get(*name), reason) {
                (Some(Ended::Passed), reason) => {
                    outcome.passed += 1;
                    if reason.is_some() {
                        eprintln!("note: {name} passes with {way}, although {LIST} lists it");
                    }
                }
                (Some(_), Some(reason)) => *left_out.entry(reason).or_default() += 1,
                (Some(Ended::Skipped(why)), None) => {
                    let why = format!("skipped, and {LIST} does not say why: {why}");
                    outcome.failed.push(Case::new(*name, why));
                }
                (Some(Ended::Failed(why)), None) => {
                    outcome.failed.push(Case::new(*name, why.as_str()));
                }
                (None, _) => outcome.failed.push(Case::new(*name, "did not run")),
            }
        }
        let cases = left_out.into_iter().map(|(reason, tests)| {
            let plural = if tests == 1 { "" } else { "s" };
            Case::new(format!("{tests} test{plural}"), reason)
        });
        outcome.left_out = cases.collect();
        outcome
    }
}

fn exactly(name: &str) -> String {
    format!("^{name}$")
}

/// Result of a test.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Passed,
    /// Holds the output of the test before the skip.
    Skipped(String),
    Failed(String),
}

/// Parses the output of `-test.v` into results by test name. The output of a subtest belongs to its top-level test.
fn read(said: &str) -> BTreeMap<String, Ended> {
    let mut results = BTreeMap::new();
    let mut text = String::new();
    for line in said.lines() {
        if let Some(ended) = line.strip_prefix("--- ") {
            let mut words = ended.split([':', ' ']).filter(|word| !word.is_empty());
            let (verdict, name) = (words.next(), words.next().unwrap_or_default());
            let text = text.trim().to_owned();
            let ended = match verdict {
                Some("PASS") => Ended::Passed,
                Some("SKIP") => Ended::Skipped(text),
                _ => Ended::Failed(text),
            };
            results.insert(name.to_owned(), ended);
        }
        match line.strip_prefix("=== RUN   ") {
            Some(name) if !name.contains('/') => text.clear(),
            Some(_) => {}
            None => {
                text += line;
                text.push('\n');
            }
        }
    }
    results
}

/// Tests that may fail or be skipped, with the reasons.
#[derive(Debug, Default)]
struct Exemptions(Vec<Exemption>);

/// One paragraph of the list.
#[derive(Debug, Default)]
struct Exemption {
    ways: Vec<String>,
    reason: String,
    tests: Vec<String>,
}

impl Exemptions {
    fn read() -> Result<Self, String> {
        let text = fs::read_to_string(shell::root().join(LIST))
            .map_err(|error| format!("{LIST}: {error}"))?;
        Self::parse(&text)
    }

    /// Parses the list. A line `[ways] reason` comes before the names of its tests. A line that begins with `#` is a
    /// comment.
    fn parse(text: &str) -> Result<Self, String> {
        let mut found: Vec<Exemption> = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some((ways, reason)) =
                line.strip_prefix('[').and_then(|line| line.split_once(']'))
            {
                found.push(Exemption {
                    ways: ways.split(',').map(|way| way.trim().to_owned()).collect(),
                    reason: reason.trim().to_owned(),
                    tests: Vec::new(),
                });
            } else {
                let last = found.last_mut();
                let last = last.ok_or_else(|| format!("{LIST}: `{line}` is under no reason"))?;
                last.tests.push(line.to_owned());
            }
        }
        Ok(Self(found))
    }

    fn reason(&self, way: &str, test: &str) -> Option<&str> {
        let applies = |one: &&Exemption| {
            one.ways.iter().any(|name| name == way) && one.tests.iter().any(|name| name == test)
        };
        self.0.iter().find(applies).map(|one| one.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_with_what_they_said() {
        let said = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n\
            === RUN   TestB\n=== RUN   TestB/inner\n    b_test.go:1: \n        Error: no\n\
            --- FAIL: TestB (0.10s)\n    --- FAIL: TestB/inner (0.10s)\n\
            === RUN   TestC\n    c_test.go:2: not here\n--- SKIP: TestC (0.00s)\nPASS\n";
        let failed = "b_test.go:1: \n        Error: no".to_owned();
        let skipped = "c_test.go:2: not here".to_owned();
        let expected = [
            ("TestA".to_owned(), Ended::Passed),
            ("TestB".to_owned(), Ended::Failed(failed)),
            ("TestC".to_owned(), Ended::Skipped(skipped)),
        ];
        assert_eq!(read(said), BTreeMap::from(expected));
    }

    fn suite(list: &str) -> Suite {
        Suite {
            program: PathBuf::new(),
            folder: PathBuf::new(),
            exempt: Exemptions::parse(list).expect("a valid list"),
        }
    }

    #[test]
    fn only_listed_tests_may_be_skipped_or_fail() {
        let suite = suite("# why\n[lmdb, off] enterprise\nTestC\n[off] no database\nTestD\n");
        let results = [
            ("TestA", Ended::Passed),
            ("TestB", Ended::Skipped("hm".into())),
            ("TestC", Ended::Skipped("listed".into())),
            ("TestD", Ended::Failed("bad".into())),
        ];
        let results = results.map(|(name, ended)| (name.to_owned(), ended)).into();
        let names = ["TestA", "TestB", "TestC", "TestD", "TestE"];
        let outcome = suite.judge(WAYS[0].0, &names, &results);
        let failed: Vec<&str> = outcome.failed.iter().map(|case| &*case.name).collect();
        assert_eq!(
            (outcome.passed, failed),
            (1, vec!["TestB", "TestD", "TestE"])
        );
        assert_eq!(outcome.left_out, [Case::new("1 test", "enterprise")]);
        let outcome = suite.judge(WAYS[1].0, &names, &results);
        assert_eq!(outcome.failed.len(), 2);
    }

    #[test]
    fn a_test_without_a_reason_is_refused() {
        assert!(Exemptions::parse("TestA\n[off] late\n").is_err());
    }
}
