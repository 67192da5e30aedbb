//! `kill -9` at random moments, while two configurations are loaded alternately.
//!
//! The test binary starts itself as a child process, which runs the test [`child`] with a directory in its environment.
//! Without a directory, [`child`] does nothing.

use crate::support::{assert_consistent, commit, delete, id, put, reference};
use model::EntityKind as K;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use store::{Change, ChangeLog, Options, Recovery, Revision, Store};
use tempfile::TempDir;
use uuid::Uuid;

const DIRECTORY: &str = "STORE_KILL_TEST_DIRECTORY";
const KILLS: u32 = 60;
const ACKNOWLEDGED: &str = "acknowledged ";

/// Returns one of two configurations: one for even revisions and one for odd revisions. Both have the service and the
/// routes with even numbers, with different content. Each has its own routes with odd numbers.
fn configuration(revision: u64) -> Vec<Change> {
    let own = u128::from(revision % 2);
    let mut changes = vec![put(
        K::Services,
        id(1),
        &[("name", format!("service-{own}").into())],
    )];
    changes.extend((0..400u128).map(|number| {
        let number = if number % 2 == 0 {
            number
        } else {
            number + 1000 * own
        };
        put(
            K::Routes,
            id(10_000 + number),
            &[
                ("name", format!("route-{number}").into()),
                ("service", reference(id(1))),
                ("tags", crate::support::tags(&[&format!("tag-{own}")])),
            ],
        )
    }));
    changes
}

fn next_change_set(revision: u64) -> Vec<Change> {
    let next = configuration(revision);
    let kept: Vec<Uuid> = next.iter().map(Change::id).collect();
    let gone = configuration(revision + 1)
        .into_iter()
        .filter(|change| !kept.contains(&change.id()))
        .map(|change| delete(change.kind(), change.id()));
    gone.chain(next.iter().cloned()).collect()
}

#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    plugins::install();
    let (store, _) = Store::open(Path::new(&directory), Options::default()).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "opened").unwrap();
    loop {
        let revision = store.head().0 + 1;
        let committed = commit(&store, next_change_set(revision)).unwrap();
        assert_eq!(committed, Revision(revision));
        writeln!(out, "{ACKNOWLEDGED}{revision}").unwrap();
        out.flush().unwrap();
    }
}

fn spawn(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets the child work for a while, kills it, and returns the last revision that it acknowledged.
fn kill_after(directory: &Path, lines: usize, pause: Duration) -> Option<u64> {
    let mut child = spawn(directory);
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut output = output.lines().map(Result::unwrap);
    let mut seen: Vec<String> = output.by_ref().take(lines).collect();
    // The sleep varies the moment of the signal within a commit; it does not wait for anything.
    std::thread::sleep(pause);
    child.kill().unwrap();
    child.wait().unwrap();
    // Lines written before the child died count too.
    seen.extend(output);
    let mut acknowledged = seen
        .iter()
        .rev()
        .filter_map(|line| line.strip_prefix(ACKNOWLEDGED));
    acknowledged
        .next()
        .map(|revision| revision.parse().unwrap())
}

#[test]
fn a_killed_load_leaves_the_old_or_the_new_configuration_whole() {
    let directory = TempDir::new().unwrap();
    let mut acknowledged = 0;
    let mut between = 0;
    for round in 0..KILLS {
        let random = u64::from(round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let lines = random as usize % 6;
        let pause = Duration::from_micros(random / 7 % 25_000);
        if let Some(last) = kill_after(directory.path(), lines, pause) {
            acknowledged = last;
        }
        plugins::install();
        let (store, recovery) = Store::open(directory.path(), Options::default()).unwrap();
        assert!(
            !matches!(recovery, Recovery::SetAside { .. }),
            "{recovery:?}"
        );
        let head = store.head().0;
        assert!(
            head == acknowledged || head == acknowledged + 1,
            "round {round}: {head}, acknowledged {acknowledged}"
        );
        between += u32::from(head != acknowledged);
        acknowledged = head;
        check_whole(&store, head);
    }
    assert!(
        acknowledged > 20,
        "{acknowledged} revisions, {between} unacknowledged"
    );
}

fn check_whole(store: &Store, head: u64) {
    let mut expected = BTreeMap::new();
    if head > 0 {
        for change in configuration(head) {
            if let Change::Put { kind, id, entity } = change {
                expected.insert((kind, id), entity);
            }
        }
    }
    let mut found = BTreeMap::new();
    let show = &mut |kind, id, entity: &[u8]| {
        found.insert((kind, id), entity.to_vec());
    };
    store.snapshot_at(Revision(head), show).unwrap();
    assert!(found == expected, "revision {head} is not whole");
    assert_consistent(store);
    // A write transaction can still be opened. The next child commits changes.
    assert_eq!(commit(store, vec![]).unwrap(), Revision(head));
}
