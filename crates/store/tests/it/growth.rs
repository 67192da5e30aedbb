//! Growth of the file, and its limit.

use crate::support::{Fixture, assert_consistent, commit, delete, fixture, fixture_with, id, put};
use model::EntityKind as K;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;
use store::{Change, ChangeSet, CommitError, Options, Origin, Store};

fn blob(number: u128, bytes: usize) -> Change {
    let name = format!("{number:03}-").repeat(bytes / 4);
    put(
        K::Consumers,
        id(number),
        &[("custom_id", name.as_str().into())],
    )
}

#[test]
fn the_file_is_as_large_as_its_content_whatever_is_reserved() {
    let fixture = fixture();
    let data = fixture.directory.path().join("data.mdb");
    let on_disk = || data.metadata().unwrap().blocks() * 512;
    assert!(on_disk() < 1 << 20);
    for number in 0..10 {
        commit(&fixture.store, vec![blob(number, 1 << 20)]).unwrap();
    }
    assert!((10 << 20..20 << 20).contains(&on_disk()), "{}", on_disk());
    assert_consistent(&fixture.store);
}

/// Writing to a hole through the memory map would kill the process if the disk is full.
#[test]
fn the_table_of_readers_has_no_holes() {
    let fixture = fixture();
    let lock = fixture.directory.path().join("lock.mdb");
    let metadata = lock.metadata().unwrap();
    assert!(metadata.blocks() * 512 >= metadata.len(), "{metadata:?}");
    let readers: Vec<_> = (0..1000).map(|_| fixture.store.view().unwrap()).collect();
    drop(readers);
    assert_eq!(lock.metadata().unwrap().len(), metadata.len());
}

/// Fills a store until it refuses to grow; returns the number of stored blobs.
fn fill(store: &Store) -> u128 {
    for number in 0.. {
        match commit(store, vec![blob(number, 20_000)]) {
            Ok(_) => {}
            Err(CommitError::Full { max_size }) => {
                assert_eq!(max_size, store.max_size());
                return number;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("no store is endless")
}

fn small() -> Fixture {
    fixture_with(Options {
        max_size: 2 << 20,
        ..Options::default()
    })
}

#[test]
fn a_full_store_refuses_more_and_keeps_what_it_has() {
    let fixture = small();
    let taken = fill(&fixture.store);
    assert!(taken > 20, "{taken}");
    let view = fixture.store.view().unwrap();
    assert_eq!(view.count(K::Consumers).unwrap(), taken as u64);
    drop(view);
    assert_consistent(&fixture.store);
    let size = fixture.store.size().unwrap();
    assert!(size <= fixture.store.max_size() as u64);
}

/// The error has the size of the store, whichever function writes. [`Store::found`] may fill the store to its last page,
/// so that even removing the history fails.
#[test]
fn a_store_that_is_too_small_reports_its_size() {
    let fixture = small();
    let store = &fixture.store;
    let found = |bytes: usize| store.found(vec![blob(1, bytes)]);
    let assert_full = |result: Result<(), CommitError>| match result {
        Err(CommitError::Full { max_size }) => assert_eq!(max_size, store.max_size()),
        other => panic!("{other:?}"),
    };
    let mut bytes = store.max_size();
    assert_full(found(bytes));
    while let Err(error) = found(bytes) {
        assert_full(Err(error));
        bytes -= 4096;
    }
    assert_full(commit(store, vec![blob(2, 4)]).map(|_| ()));
    assert_consistent(store);
}

#[test]
fn a_full_store_accepts_removals_and_then_more_entities() {
    let fixture = small();
    let taken = fill(&fixture.store);
    for round in 0..5 {
        let removed = (0..taken / 2).map(|number| delete(K::Consumers, id(number)));
        commit(&fixture.store, removed.collect()).unwrap();
        let again = (0..taken / 2).map(|number| blob(number, 20_000));
        commit(&fixture.store, again.collect()).unwrap_or_else(|error| panic!("{round}: {error}"));
    }
    let all = (0..taken).map(|number| delete(K::Consumers, id(number)));
    commit(&fixture.store, all.collect()).unwrap();
    assert_consistent(&fixture.store);
}

/// Space freed by the history is usable immediately, although readers keep transactions open between lookups.
#[test]
fn a_full_store_with_readers_accepts_removals_one_by_one() {
    let fixture = small();
    let readers: Vec<_> = (0..3).map(|_| fixture.store.reader()).collect();
    let taken = fill(&fixture.store);
    for number in 0..taken {
        for reader in &readers {
            let left = reader.read(|view| view.count(K::Consumers).unwrap());
            assert_eq!(u128::from(left.unwrap()), taken - number);
        }
        commit(&fixture.store, vec![delete(K::Consumers, id(number))])
            .unwrap_or_else(|error| panic!("{number} of {taken}: {error}"));
    }
    assert_consistent(&fixture.store);
}

/// A lookup keeps the pages in use that are freed while it runs. A removal waits for its end.
#[test]
fn a_full_store_accepts_removals_although_a_lookup_takes_long() {
    let fixture = small();
    let store = &fixture.store;
    let taken = fill(store);
    let (mut lookup, mut waits) = (None, 0);
    for number in 0..taken {
        let changes = ChangeSet {
            changes: vec![delete(K::Consumers, id(number))],
            meta: Vec::new(),
        };
        lookup = lookup.or_else(|| Some(long_lookup(store)));
        let removed = store.transact(&mut |transaction| {
            let applied = transaction.apply(&changes);
            let sealed = applied.and_then(|()| transaction.seal(&Origin::default()));
            if sealed.is_err() && lookup.take().is_some() {
                waits += 1;
            }
            sealed
        });
        removed.unwrap_or_else(|error| panic!("{number} of {taken}: {error}"));
    }
    assert!(waits > 0);
    assert_consistent(store);
}

/// No reader is why a large change does not fit, so that others do not wait for it.
#[test]
fn a_large_change_without_room_is_tried_twice() {
    let fixture = small();
    let store = &fixture.store;
    let taken = fill(store);
    let removed = (0..taken / 4).map(|number| delete(K::Consumers, id(number)));
    commit(store, removed.collect()).unwrap();
    for (bytes, expected) in [(store.max_size() / 2, 2), (store.max_size(), 1)] {
        let changes = ChangeSet {
            changes: vec![blob(taken, bytes)],
            meta: Vec::new(),
        };
        let mut attempts = 0;
        let result = store.transact(&mut |transaction| {
            attempts += 1;
            transaction.apply(&changes)?;
            transaction.seal(&Origin::default())
        });
        assert!(matches!(result, Err(CommitError::Full { .. })));
        assert_eq!(attempts, expected, "{bytes}");
    }
    assert_consistent(store);
}

/// Starts a lookup that ends 10 ms after the result is dropped.
fn long_lookup(store: &Store) -> Sender<()> {
    let (begun, begins) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let reader = store.reader();
    thread::spawn(move || {
        let looked = reader.read(|_| {
            begun.send(()).expect("the test waits");
            let _ = ends.recv();
            thread::sleep(Duration::from_millis(10));
        });
        looked.expect("the store can be read");
    });
    begins.recv().expect("the lookup begins");
    end
}

#[test]
fn a_full_store_works_again_with_a_larger_size() {
    let fixture = small();
    let taken = fill(&fixture.store);
    let fixture = fixture.reopen();
    commit(
        &fixture.store,
        vec![blob(taken, 20_000), blob(taken + 1, 1 << 20)],
    )
    .unwrap();
    assert_consistent(&fixture.store);
}
