//! Long runs of random change sets with crashes: the store, its indexes and its history must equal a model.
//!
//! The test binary starts itself as a child process, which runs the test [`child`] with a task in its environment.
//! Without a task, [`child`] does nothing. The child compares the store with its model after every step. The parent has
//! its own model. It kills the child at random moments and compares the remaining store.
//!
//! `ENDURE_CHANGE_SETS` sets the length of the run (`cargo xtask soak`), and `ENDURE_SEED` its random sequence.

mod check;
mod model;
mod plan;

use crate::support::assert_consistent;
use check::{assert_content, assert_indexes, assert_revision};
use model::{Row, State};
use plan::{End, Step, plan, random};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{
    ChangeLog, CommitError, Options, Origin, Reader, Recovery, Retention, Revision, Store,
    Transaction,
};
use tempfile::TempDir;
use testkit::random::{Random, setting};

const TASK: &str = "ENDURE_TASK";
const DONE: &str = "done ";
/// Number of change sets by default.
const CHANGE_SETS: usize = 5000;
/// Maximum number of transactions between crashes.
const BETWEEN_CRASHES: u64 = 120;
/// Number of transactions between complete checks. The child reopens its store half as often.
const BETWEEN_CHECKS: u64 = 40;
const KEPT_REVISIONS: u64 = 60;

/// Small enough that the store is full at times and removes its history.
const SMALL: usize = 1 << 20;

fn options(max_size: usize) -> Options {
    Options {
        max_size,
        retention: Retention {
            revisions: KEPT_REVISIONS,
            bytes: 1 << 20,
            ..Retention::default()
        },
    }
}

/// The task of the child, encoded in its environment.
struct Task {
    seed: u64,
    first: u64,
    max_size: usize,
}

impl Task {
    fn to_text(&self) -> String {
        format!("{} {} {}", self.seed, self.first, self.max_size)
    }

    fn parse(text: &str) -> Self {
        let mut words = text.split(' ').map(|word| word.parse().unwrap());
        let mut word = || words.next().unwrap();
        Self {
            seed: word(),
            first: word(),
            max_size: word() as usize,
        }
    }
}

const DIRECTORY: &str = "ENDURE_DIRECTORY";

#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let task = Task::parse(&std::env::var(TASK).unwrap());
    let mut worker = Worker::open(Path::new(&directory), task.max_size);
    let mut out = std::io::stdout();
    for number in task.first.. {
        worker.transact(task.seed, number);
        writeln!(out, "{DONE}{number} {}", worker.store.head()).unwrap();
        out.flush().unwrap();
        if number % BETWEEN_CHECKS == 0 {
            worker.check(task.seed, number);
        }
        if number % (2 * BETWEEN_CHECKS) == 0 {
            drop(worker);
            worker = Worker::open(Path::new(&directory), task.max_size);
        }
    }
}

struct Worker {
    // The file is closed when both the reader and the store are dropped.
    reader: Reader,
    store: Store,
    /// States by revision, since the store was opened.
    states: BTreeMap<u64, State>,
}

impl Worker {
    /// Reads the first state from the store. It is correct, because the parent or the previous worker has already
    /// compared the store with its model.
    fn open(directory: &Path, max_size: usize) -> Self {
        plugins::install();
        let (store, _) = Store::open(directory, options(max_size)).unwrap();
        let state = read(&store);
        Self {
            reader: store.reader(),
            states: BTreeMap::from([(store.head().0, state)]),
            store,
        }
    }

    fn newest(&self) -> &State {
        self.states.last_key_value().unwrap().1
    }

    fn transact(&mut self, seed: u64, number: u64) {
        let state = self.newest();
        let plan = plan(seed, number, state);
        let head = self.store.head();
        let run = || {
            self.store.transact(&mut |transaction| {
                plan.play(state, &mut |step| follow(transaction, step))
            })
        };
        let made = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(made)) => made,
            Ok(Err(CommitError::Abandoned)) => Vec::new(),
            Ok(Err(CommitError::Full { .. })) if self.store.max_size() == SMALL => Vec::new(),
            Ok(Err(error)) => panic!("{number}: {error}"),
            Err(panic) if panic.is::<Planned>() => Vec::new(),
            Err(panic) => resume_unwind(panic),
        };
        assert_eq!(self.store.head().0, head.0 + made.len() as u64);
        for (at, state) in (head.0 + 1..).zip(made) {
            self.states.insert(at, state);
        }
        self.compact(seed, number);
        let newest = self.newest();
        self.reader
            .read(|view| assert_content(view, newest))
            .unwrap();
    }

    /// Sometimes removes a part of the history.
    fn compact(&mut self, seed: u64, number: u64) {
        let mut random = random(!seed, number);
        if random.one_in(3) {
            self.store.compact(random.below(100) as usize).unwrap();
        }
        self.states = self.states.split_off(&oldest(&self.store));
    }

    fn check(&self, seed: u64, number: u64) {
        assert_consistent(&self.store);
        assert_indexes(&self.store.view().unwrap(), self.newest());
        let known: Vec<_> = self.states.iter().collect();
        let one = random(seed, number).index(known.len());
        let (revision, state) = known[one];
        assert_revision(&self.store, *revision, state, self.newest());
    }
}

fn oldest(store: &Store) -> u64 {
    store.view().unwrap().history().unwrap().oldest().0
}

/// The payload of a planned panic.
struct Planned;

/// Repeats a step of the model on the store, and compares the results.
fn follow(transaction: &mut Transaction<'_>, step: Step<'_>) -> Result<(), CommitError> {
    match step {
        Step::Apply(edits, expected) => {
            match (transaction.apply(&edits.to_change_set()), expected) {
                (Ok(()), Ok(state)) => assert_content(&transaction.view()?, state),
                (Err(CommitError::Violations(found)), Err(refused)) => {
                    let unexplained = found.iter().find(|one| !refused.explains(one));
                    assert!(
                        unexplained.is_none() && !found.is_empty(),
                        "{unexplained:?} of {refused:?}"
                    );
                }
                (Err(error @ CommitError::Full { .. }), _) => return Err(error),
                (found, expected) => panic!("{edits:?}: {found:?}, not {:?}", expected.err()),
            }
        }
        Step::Discard(state) => {
            transaction.discard()?;
            assert_content(&transaction.view()?, state);
        }
        Step::Seal { state, changes } => {
            let head = transaction.head();
            let origin = Origin::program("endure");
            let expected = changes.then_some(Revision(head.0 + 1));
            assert_eq!(transaction.seal(&origin)?, expected);
            assert_content(&transaction.view()?, state);
        }
        Step::End(End::Panic) => resume_unwind(Box::new(Planned)),
        Step::End(End::Crash) => std::process::abort(),
        Step::End(End::Commit | End::GiveUp) => {}
    }
    Ok(())
}

fn read(store: &Store) -> State {
    let view = store.view().unwrap();
    let mut state = State::default();
    for rule in model::RULES {
        for entity in view.iter(rule.kind).unwrap() {
            let (id, bytes) = entity.unwrap();
            let row = Arc::new(Row::parse(bytes));
            state.rows.insert((rule.kind, id), row);
        }
    }
    for name in 0..3 {
        let name = format!("name-{name}");
        if let Some(value) = view.meta(&name).unwrap() {
            state.meta.insert(name, value.to_vec());
        }
    }
    state
}

/// The expected state of the store, kept by the parent process.
struct Follower {
    seed: u64,
    directory: TempDir,
    states: BTreeMap<u64, State>,
    /// Number of the next transaction.
    next: u64,
    change_sets: usize,
    crashes: usize,
    unacknowledged: usize,
}

impl Follower {
    fn newest(&self) -> (u64, &State) {
        let (revision, state) = self.states.last_key_value().unwrap();
        (*revision, state)
    }

    /// Returns the states that a transaction leads to, unless the store is full.
    fn outcome(&self, number: u64) -> Vec<State> {
        let state = self.newest().1;
        let plan = plan(self.seed, number, state);
        plan.play(state, &mut |_| Ok(())).unwrap_or_default()
    }

    fn proceed(&mut self, head: u64, max_size: usize) {
        let (revision, state) = self.newest();
        let change_sets = plan(self.seed, self.next, state).sets();
        let made = self.outcome(self.next);
        if head != revision {
            assert_eq!(head, revision + made.len() as u64);
            self.states.extend((revision + 1..).zip(made));
        } else {
            assert!(made.is_empty() || max_size == SMALL, "{}", self.next);
        }
        self.change_sets += change_sets;
        self.next += 1;
    }

    /// Runs a child until it is killed or aborts in a planned crash.
    fn live(&mut self, random: &mut Random) {
        let max_size = if random.one_in(4) { SMALL } else { 1 << 30 };
        let mut child = self.spawn(max_size);
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut output = output.lines().map(Result::unwrap);
        let mut acknowledge = |line: String| {
            let Some((_, words)) = line.split_once(DONE) else {
                return;
            };
            let mut words = words.split(' ').map(|word| word.parse::<u64>().unwrap());
            assert_eq!(words.next(), Some(self.next));
            self.proceed(words.next().unwrap(), max_size);
        };
        for _ in 0..random.below(BETWEEN_CRASHES) {
            match output.next() {
                Some(line) => acknowledge(line),
                None => break,
            }
        }
        // The sleep varies the moment of the signal within a commit; it does not wait for anything.
        std::thread::sleep(Duration::from_micros(random.below(8000)));
        let _ = child.kill();
        let status = child.wait().unwrap();
        // Lines written before the child died count too; an incomplete line does not.
        output.for_each(acknowledge);
        assert!(status.signal().is_some(), "the child has failed: {status}");
        self.check_what_is_left(max_size);
    }

    fn spawn(&self, max_size: usize) -> Child {
        let task = Task {
            seed: self.seed,
            first: self.next,
            max_size,
        };
        Command::new(std::env::current_exe().unwrap())
            .args([
                "endure::child",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(DIRECTORY, self.directory.path())
            .env(TASK, task.to_text())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn check_what_is_left(&mut self, max_size: usize) {
        plugins::install();
        let (store, recovery) = Store::open(self.directory.path(), options(max_size)).unwrap();
        assert!(
            !matches!(recovery, Recovery::SetAside { .. }),
            "{recovery:?}"
        );
        let head = store.head().0;
        let (revision, state) = self.newest();
        let crashed = plan(self.seed, self.next, state).end == End::Crash;
        if head != revision {
            self.unacknowledged += 1;
            self.proceed(head, max_size);
        } else if crashed {
            // Skip the transaction with the planned crash, even if this child was killed before it. Otherwise the next
            // child would crash in it.
            self.proceed(head, max_size);
        }
        self.states = self.states.split_off(&oldest(&store));
        let newest = self.newest().1;
        assert_content(&store.view().unwrap(), newest);
        assert_indexes(&store.view().unwrap(), newest);
        assert_consistent(&store);
        for (revision, state) in &self.states {
            assert_revision(&store, *revision, state, newest);
        }
        self.crashes += 1;
    }
}

#[test]
fn the_store_equals_a_model_whatever_is_changed_and_whenever_it_crashes() {
    let change_sets = setting("ENDURE_CHANGE_SETS").map_or(CHANGE_SETS, |number| number as usize);
    let seed = setting("ENDURE_SEED").unwrap_or(2026);
    let started = Instant::now();
    let mut follower = Follower {
        seed,
        directory: TempDir::new().unwrap(),
        states: BTreeMap::from([(0, State::default())]),
        next: 0,
        change_sets: 0,
        crashes: 0,
        unacknowledged: 0,
    };
    let mut random = random(seed, u64::MAX);
    while follower.change_sets < change_sets {
        follower.live(&mut random);
    }
    let Follower {
        next: transactions,
        change_sets,
        crashes,
        unacknowledged,
        ..
    } = follower;
    let (revision, _) = follower.states.last_key_value().unwrap();
    println!(
        "seed {seed}: {change_sets} change sets in {transactions} transactions, {revision} revisions, {crashes} crashes \
         ({unacknowledged} after a commit that was not acknowledged), {:?}",
        started.elapsed()
    );
}
