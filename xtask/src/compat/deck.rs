//! Tests of decK with the gateway and its embedded store. decK makes a gateway's configuration equal to that of files:
//! it lists all entities, compares them, and writes the differences with PUT and its own ids, ten requests at a time.
//!
//! decK is built from the module in the directory xtask/compat/deck, which also has the files of the scenario. Each
//! step of the scenario is a case. Steps depend on the steps before them.

use super::Bench;
use super::go::{Go, Trouble};
use super::process::{End, run_for};
use super::report::{Case, Outcome};
use crate::shell;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{Gateway, Launch};

const VERSION: &str = "1.62.1";
const MODULE: &str = "xtask/compat/deck";
const FILES: [&str; 8] = [
    "kong.yml",
    "expressions.yml",
    "more.yml",
    "plugins.yml",
    "team-a.yml",
    "team-b.yml",
    "wrong.yml",
    "wrong-expressions.yml",
];
/// Directory of the certificates and keys that the scenario's files read from environment variables.
const TEST_DATA: &str = "crates/admin/tests/data";
const VARIABLES: [(&str, &str); 5] = [
    ("DECK_CA_CERT", "ca.crt"),
    ("DECK_EC_CERT", "ec.crt"),
    ("DECK_EC_KEY", "ec.key"),
    ("DECK_RSA_CERT", "rsa.crt"),
    ("DECK_RSA_KEY", "rsa.key"),
];
const LIMIT: Duration = Duration::from_secs(300);

/// Replacements that turn kong.yml into the file for the second sync. They change entities of every type, and add and
/// remove some.
const CHANGES: [(&str, &str); 12] = [
    ("read_timeout: 3000", "read_timeout: 4000"),
    ("paths: [/nowhere]", "paths: [/elsewhere, /there]"),
    ("custom_id: a-1", "custom_id: a-2"),
    ("key: another-key-of-alice", "key: a-new-key-of-alice"),
    ("group: users", "group: guests"),
    ("minute: 5", "hour: 6"),
    ("slots: 100", "slots: 200"),
    ("weight: 50", "weight: 60"),
    (
        "target: backend.internal:9002",
        "target: backend.internal:9004",
    ),
    (
        "description: variables of this machine",
        "description: ours",
    ),
    ("kid: key-2", "kid: key-3"),
    ("- name: \"*.example.org\"", "- name: \"*.example.net\""),
];

/// Replacements that turn expressions.yml into the file for the second sync.
const CHANGES_OF_EXPRESSIONS: [(&str, &str); 3] = [
    ("priority: 33820977671045", "priority: 33820977671046"),
    ("http.queries.page != \"1\"", "http.queries.page == \"2\""),
    (
        "expression: net.dst.port >= 9000 && tls.sni =^ \".example.com\"\n        priority: 1",
        "snis: [\"*.example.com\"]",
    ),
];

/// Numbers of creates, updates and deletes, as decK counts them.
type Counts = (usize, usize, usize);

const CLEAN: Counts = (0, 0, 0);
/// Number of entities in kong.yml.
const ALL: usize = 52;
const OF_A_TEAM: usize = 7;
/// Number of entities in expressions.yml.
const EXPRESSIONS: usize = 7;
/// Number of entities in plugins.yml.
const PLUGINS: usize = 46;
const MANY_SERVICES: usize = 100;
const MANY_ROUTES: usize = 10_000;

/// A decK command and its expected result.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
    status: i32,
    counts: Option<Counts>,
    says: &'static [&'static str],
}

const fn step(
    name: &'static str,
    words: &'static [&'static str],
    status: i32,
    counts: Option<Counts>,
    says: &'static [&'static str],
) -> Step {
    Step {
        name,
        words,
        status,
        counts,
        says,
    }
}

const fn changes(name: &'static str, words: &'static [&'static str], counts: Counts) -> Step {
    step(name, words, 0, Some(counts), &[])
}

/// Creates a step with `deck gateway diff`, whose exit status is 2 if there are differences.
const fn diff(name: &'static str, words: &'static [&'static str], counts: Counts) -> Step {
    let status = match counts {
        CLEAN => 0,
        _ => 2,
    };
    step(name, words, status, Some(counts), &[])
}

const SCENARIO: [Step; 30] = [
    step(
        "ping",
        &["ping"],
        0,
        None,
        &["Successfully connected to Kong!", "3.9.1"],
    ),
    step("validate", &["validate", "kong.yml"], 0, None, &[]),
    step(
        "validate, with what only the gateway can see",
        &["validate", "wrong.yml"],
        1,
        None,
        &[
            "config.no_such_field: unknown field",
            "paths.1: invalid regex",
        ],
    ),
    changes("sync", &["sync", "kong.yml"], (ALL, 0, 0)),
    diff("diff after sync", &["diff", "kong.yml"], CLEAN),
    step("dump", &["dump", "-o", "dump.yml"], 0, None, &[]),
    diff("diff of the dump", &["diff", "dump.yml"], CLEAN),
    changes("sync again", &["sync", "kong.yml"], CLEAN),
    diff("diff of a change", &["diff", "changed.yml"], (4, 8, 4)),
    changes("sync of a change", &["sync", "changed.yml"], (4, 8, 4)),
    diff("diff after the change", &["diff", "changed.yml"], CLEAN),
    changes("apply", &["apply", "more.yml"], (2, 0, 0)),
    diff("diff after apply", &["diff", "changed.yml"], (0, 0, 2)),
    changes("sync after apply", &["sync", "changed.yml"], (0, 0, 2)),
    changes("sync of a tag", &["sync", "team-a.yml"], (OF_A_TEAM, 0, 0)),
    changes(
        "sync of another tag",
        &["sync", "team-b.yml"],
        (OF_A_TEAM, 0, 0),
    ),
    diff("diff of the first tag", &["diff", "team-a.yml"], CLEAN),
    step(
        "dump of a tag",
        &["dump", "--select-tag", "team-a", "-o", "tagged.yml"],
        0,
        None,
        &[],
    ),
    diff("diff of the dump of a tag", &["diff", "tagged.yml"], CLEAN),
    step(
        "dump of two tags that nothing has together",
        &[
            "dump",
            "--select-tag",
            "team-a",
            "--select-tag",
            "team-b",
            "-o",
            "none.yml",
        ],
        0,
        None,
        &[],
    ),
    changes("sync of nothing for two tags", &["sync", "none.yml"], CLEAN),
    changes(
        "reset of a tag",
        &["reset", "--force", "--select-tag", "team-a"],
        (0, 0, OF_A_TEAM),
    ),
    diff("diff of the other tag", &["diff", "team-b.yml"], CLEAN),
    changes(
        "sync of every plugin",
        &["sync", "plugins.yml"],
        (PLUGINS, 0, 0),
    ),
    diff("diff of every plugin", &["diff", "plugins.yml"], CLEAN),
    changes(
        "reset of every plugin",
        &["reset", "--force", "--select-tag", "every-plugin"],
        (0, 0, PLUGINS),
    ),
    diff(
        "diff of all after the tags",
        &["diff", "changed.yml"],
        (0, 0, OF_A_TEAM),
    ),
    changes("reset", &["reset", "--force"], (0, 0, ALL + OF_A_TEAM)),
    diff("diff with nothing", &["diff", "nothing.yml"], CLEAN),
    changes("sync of the dump", &["sync", "dump.yml"], (ALL, 0, 0)),
];

/// Scenario for a gateway with `router_flavor = expressions`.
const SCENARIO_OF_EXPRESSIONS: [Step; 11] = [
    step(
        "validate expressions",
        &["validate", "expressions.yml"],
        0,
        None,
        &[],
    ),
    step(
        "validate, with a field that there is not",
        &["validate", "wrong-expressions.yml"],
        1,
        None,
        &[
            "Router Expression failed validation: Unknown LHS field",
            "^",
        ],
    ),
    changes(
        "sync of expressions",
        &["sync", "expressions.yml"],
        (EXPRESSIONS, 0, 0),
    ),
    diff("diff after sync", &["diff", "expressions.yml"], CLEAN),
    step("dump", &["dump", "-o", "dump.yml"], 0, None, &[]),
    diff("diff of the dump", &["diff", "dump.yml"], CLEAN),
    diff(
        "diff of a change",
        &["diff", "changed-expressions.yml"],
        (0, 3, 0),
    ),
    changes(
        "sync of a change",
        &["sync", "changed-expressions.yml"],
        (0, 3, 0),
    ),
    diff(
        "diff after the change",
        &["diff", "changed-expressions.yml"],
        CLEAN,
    ),
    changes("reset", &["reset", "--force"], (0, 0, EXPRESSIONS)),
    changes(
        "sync of the dump",
        &["sync", "dump.yml"],
        (EXPRESSIONS, 0, 0),
    ),
];

/// Paths of other editions of Kong that decK requests. A 404 tells decK that they do not exist.
const ABSENT: [&str; 9] = [
    "/workspaces",
    "/default/services",
    "/consumer_groups?size=1000",
    "/partials?size=1000",
    "/licenses?size=1000",
    "/rbac/roles?size=1000",
    "/mtls-auths?size=1000",
    "/graphql-rate-limiting-advanced/costs",
    "/degraphql_routes",
];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: decK has no server of its own");
        return Ok(Vec::new());
    };
    eprintln!("== deck over lmdb");
    let program = build(bench.go)?;
    let classic = Deck::start(&program, Launch::new(gateway))?;
    let mut outcome = classic.play("lmdb", &SCENARIO, bench)?;
    if bench.only.is_none() {
        classic.look_for_absent(&mut outcome);
        classic.take_many_unless(bench.short, &mut outcome)?;
    }
    drop(classic);
    eprintln!("== deck over expressions");
    let launch = Launch::new(gateway).set("router_flavor", "expressions");
    let deck = Deck::start(&program, launch)?;
    let expressions = deck.play("expressions", &SCENARIO_OF_EXPRESSIONS, bench)?;
    Ok(vec![outcome, expressions])
}

/// Downloads the dependencies of decK; returns the directory of the module.
pub(super) fn fetch(go: &Go) -> Result<PathBuf, Trouble> {
    let module = shell::root().join(MODULE);
    go.fetch(&module, ".")?;
    Ok(module)
}

/// Builds decK and returns the path of the program.
pub(super) fn build(go: &Go) -> Result<PathBuf, Trouble> {
    let flag = format!("-X github.com/kong/deck/cmd.VERSION=v{VERSION}");
    let words = ["build", "-ldflags", flag.as_str(), "."];
    Ok(go.make(&fetch(go)?, &words, "deck")?)
}

/// Creates a directory with the files of the scenario.
fn prepare() -> Result<TempDir, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).map_err(|error| format!("{name}: {error}"))
    };
    for name in FILES {
        write(name, &read(&Path::new(MODULE).join(name))?)?;
    }
    write("changed.yml", &changed(FILES[0], &CHANGES)?)?;
    let changed = changed(FILES[1], &CHANGES_OF_EXPRESSIONS)?;
    write("changed-expressions.yml", &changed)?;
    write("nothing.yml", "_format_version: \"3.0\"\n")?;
    write("many.yml", &many())?;
    Ok(folder)
}

/// Returns a file with some of its texts replaced. Each text must occur exactly once.
fn changed(name: &str, changes: &[(&str, &str)]) -> Result<String, String> {
    let mut changed = read(&Path::new(MODULE).join(name))?;
    for (old, new) in changes {
        if changed.matches(old).count() != 1 {
            return Err(format!("{name} must contain `{old}` exactly once"));
        }
        changed = changed.replace(old, new);
    }
    Ok(changed)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(shell::root().join(path))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn many() -> String {
    let mut text = "_format_version: \"3.0\"\nservices:\n".to_owned();
    for service in 0..MANY_SERVICES {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "- name: service-{service}\n  url: http://service-{service}.internal\n  routes:\n"
        );
        for route in 0..MANY_ROUTES / MANY_SERVICES {
            let _ = write!(
                text,
                "  - name: route-{service}-{route}\n    paths: [/{service}/{route}]\n    hosts: [host-{route}.example.com]\n"
            );
        }
    }
    text
}

struct Deck<'p> {
    program: &'p Path,
    gateway: Gateway,
    folder: TempDir,
}

impl<'p> Deck<'p> {
    /// Starts a gateway with the embedded store, and creates a directory for decK.
    fn start(program: &'p Path, launch: Launch) -> Result<Self, String> {
        let gateway = launch
            .set("database", "lmdb")
            .try_start()
            .map_err(|log| format!("the gateway did not start:\n{log}"))?;
        Ok(Self {
            program,
            gateway,
            folder: prepare()?,
        })
    }

    /// Runs the selected steps.
    fn play(
        &self,
        way: &'static str,
        steps: &[Step],
        bench: &Bench<'_>,
    ) -> Result<Outcome, String> {
        let mut outcome = Outcome {
            suite: "deck",
            version: VERSION.to_owned(),
            way,
            ..Outcome::default()
        };
        let chosen = |name: &str| bench.only.is_none_or(|only| only == name);
        for step in steps.iter().filter(|step| chosen(step.name)) {
            outcome.count(step.name, self.take(step)?.err());
        }
        Ok(outcome)
    }

    fn look_for_absent(&self, outcome: &mut Outcome) {
        for path in ABSENT {
            let status = self.gateway.admin_get(path).status;
            let why = (status != 404).then(|| format!("{status} instead of 404"));
            outcome.count(path, why);
        }
    }

    fn take_many_unless(&self, short: bool, outcome: &mut Outcome) -> Result<(), String> {
        if !short {
            return self.take_many(outcome);
        }
        let why = "takes longer than the rest together: not in a short run";
        let name = format!("{MANY_ROUTES} routes");
        outcome.left_out.push(Case::new(name, why));
        Ok(())
    }

    /// Runs one step. The inner error says why the step failed.
    fn take(&self, step: &Step) -> Result<Result<(), String>, String> {
        let mut command = Command::new(self.program);
        command
            .current_dir(self.folder.path())
            .arg("gateway")
            .args(step.words)
            .arg("--analytics=false")
            .args((step.words[0] == "diff").then_some("--non-zero-exit-code"))
            .args((step.words[0] == "dump").then_some("--yes"))
            .env("DECK_KONG_ADDR", format!("http://{}", self.gateway.admin));
        for (name, file) in VARIABLES {
            command.env(name, read(&Path::new(TEST_DATA).join(file))?.trim());
        }
        let (status, said) = match run_for(&mut command, LIMIT)? {
            End::Status(status, said) => (status.code(), said),
            End::TooLate(said) => return Ok(Err(format!("did not finish in time:\n{said}"))),
        };
        Ok(step.check(status, &said))
    }

    /// Syncs many routes as the gateway's only configuration, and reports how long that takes.
    fn take_many(&self, outcome: &mut Outcome) -> Result<(), String> {
        const COUNT: usize = MANY_SERVICES + MANY_ROUTES;
        let steps = [
            changes(
                "sync to 10000 routes",
                &["sync", "many.yml"],
                (COUNT, 0, ALL),
            ),
            diff("diff of 10000 routes", &["diff", "many.yml"], CLEAN),
            changes(
                "reset of 10000 routes",
                &["reset", "--force"],
                (0, 0, COUNT),
            ),
        ];
        for step in steps {
            let start = Instant::now();
            outcome.count(step.name, self.take(&step)?.err());
            let took = start.elapsed().as_secs_f64();
            outcome.notes.push(format!("{}: {took:.1} s", step.name));
        }
        Ok(())
    }
}

impl Step {
    fn check(&self, status: Option<i32>, said: &str) -> Result<(), String> {
        let counts = self.counts.map(|(created, updated, deleted)| {
            format!("Summary:\n  Created: {created}\n  Updated: {updated}\n  Deleted: {deleted}\n")
        });
        let missing = self
            .says
            .iter()
            .copied()
            .chain(counts.as_deref())
            .find(|text| !said.contains(text));
        match missing {
            _ if status != Some(self.status) => Err(format!(
                "ended with {status:?}, not {}:\n{said}",
                self.status
            )),
            Some(text) => Err(format!("did not print `{text}`:\n{said}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_fails_by_status_by_counts_and_by_what_is_not_said() {
        let counts = "Summary:\n  Created: 2\n  Updated: 0\n  Deleted: 1\n";
        let step = |status, counts, says| step("s", &["sync"], status, counts, says);
        assert!(step(0, Some((2, 0, 1)), &[]).check(Some(0), counts).is_ok());
        assert!(
            step(0, Some((2, 0, 0)), &[])
                .check(Some(0), counts)
                .is_err()
        );
        assert!(step(0, None, &[]).check(Some(1), counts).is_err());
        assert!(step(0, None, &[]).check(None, counts).is_err());
        assert!(
            step(1, None, &["unknown field"])
                .check(Some(1), "x: unknown field")
                .is_ok()
        );
        assert!(
            step(1, None, &["unknown field"])
                .check(Some(1), counts)
                .is_err()
        );
    }

    #[test]
    fn every_change_finds_its_place() {
        let folder = prepare().expect("the files are there");
        for (name, changes) in [
            ("changed.yml", &CHANGES[..]),
            ("changed-expressions.yml", &CHANGES_OF_EXPRESSIONS),
        ] {
            let changed = fs::read_to_string(folder.path().join(name));
            let changed = changed.expect("it was written");
            assert!(changes.iter().all(|(_, new)| changed.contains(new)));
        }
    }

    #[test]
    fn many_are_as_many_as_it_says() {
        assert_eq!(many().matches("- name: route-").count(), MANY_ROUTES);
    }
}
