//! Readers during writes.

use crate::support::{Fixture, commit, fixture, fixture_with, id, put, reference};
use model::{EntityKind as K, Object, codec};
use std::sync::atomic::{AtomicBool, Ordering};
use store::{Change, ChangeLog, Options, Reader, Retention, Revision, Store, View};

/// Returns a configuration in which the name of every entity contains the number of the round. So a mixture of rounds
/// is detected.
fn round(number: u64) -> Vec<Change> {
    let mut changes = vec![put(
        K::Services,
        id(1),
        &[("name", format!("s-{number}").into())],
    )];
    changes.extend((0..50).map(|index| {
        put(
            K::Routes,
            id(100 + index),
            &[
                ("name", format!("r-{index}-{number}").into()),
                ("service", reference(id(1))),
            ],
        )
    }));
    changes
}

fn check_whole(view: &View<'_>) {
    let number = view.revision().0;
    let service: Object = codec::decode(view.get(K::Services, id(1)).unwrap().unwrap()).unwrap();
    assert_eq!(service.str("name"), Some(format!("s-{number}").as_str()));
    for index in [0, 7, 49] {
        let name = format!("r-{index}-{number}");
        let found = view.id_by_unique(K::Routes, "name", &name).unwrap();
        assert_eq!(found, Some(id(100 + index)));
    }
    assert_eq!(view.iter(K::Routes).unwrap().count(), 50);
}

#[test]
fn readers_see_whole_revisions_while_others_are_written() {
    let fixture = fixture();
    commit(&fixture.store, round(1)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let reader = fixture.store.reader();
            let (store, done) = (&fixture.store, &done);
            scope.spawn(move || {
                let mut newest = Revision(0);
                while !done.load(Ordering::Relaxed) {
                    let seen = reader
                        .read(|view| {
                            check_whole(view);
                            view.revision()
                        })
                        .unwrap();
                    assert!(seen >= newest);
                    newest = seen;
                    check_whole(&store.view().unwrap());
                }
            });
        }
        for number in 2..60 {
            commit(&fixture.store, round(number)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_reader_sees_a_commit_as_soon_as_it_has_returned() {
    let fixture = fixture();
    let reader = fixture.store.reader();
    for number in 1..5 {
        assert_eq!(
            commit(&fixture.store, round(number)).unwrap(),
            Revision(number)
        );
        let seen = reader.read(|view| view.revision()).unwrap();
        assert_eq!(seen, Revision(number));
    }
}

#[test]
fn a_view_keeps_its_revision() {
    let fixture = fixture();
    commit(&fixture.store, round(1)).unwrap();
    let view = fixture.store.view().unwrap();
    commit(&fixture.store, round(2)).unwrap();
    assert_eq!(view.revision(), Revision(1));
    check_whole(&view);
    assert_eq!(fixture.store.head(), Revision(2));
}

#[test]
fn readers_and_stores_can_move_between_threads() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Store>();
    is_send_and_sync::<Reader>();
}

#[test]
fn idle_readers_do_not_make_the_file_grow() {
    let fixture = fixture();
    commit(&fixture.store, round(1)).unwrap();
    let readers: Vec<Reader> = (0..8).map(|_| fixture.store.reader()).collect();
    for reader in &readers {
        reader.read(check_whole).unwrap();
    }
    let bound = 1 << 20;
    for number in 2..120 {
        commit(&fixture.store, round(number)).unwrap();
    }
    // The file holds only the kept history and the few pages of the state.
    let size = fixture.store.size().unwrap();
    let kept = 120 * 51 * 250;
    assert!(size < bound + kept, "{size}");
    readers[0].read(check_whole).unwrap();
}

#[test]
fn a_reader_outlives_the_store() {
    let Fixture {
        store, directory, ..
    } = fixture();
    commit(&store, round(1)).unwrap();
    let reader = store.reader();
    drop(store);
    reader.read(check_whole).unwrap();
    drop(reader);
    Store::open(directory.path(), Options::default()).unwrap();
}

/// Returns how many bytes of the file's map are resident in this process.
fn resident(file: &std::path::Path) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let name = file.to_str().unwrap();
    let mut lines = smaps.lines().skip_while(|line| !line.ends_with(name));
    let size = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    let kilobytes = size.trim().strip_suffix(" kB").unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

#[test]
fn resident_pages_are_released_and_read_again() {
    let fixture = fixture();
    let consumer = |number: u128| {
        let text = format!("{number}-{}", "x".repeat(1500));
        put(K::Consumers, id(number), &[("custom_id", text.into())])
    };
    commit(&fixture.store, (1..500).map(consumer).collect()).unwrap();
    let path = fixture.directory.path().join("data.mdb");
    let read_all = || {
        let view = fixture.store.view().unwrap();
        let entities = view.iter(K::Consumers).unwrap();
        entities
            .map(|entity| entity.unwrap().1.len())
            .sum::<usize>()
    };
    let bytes = read_all();
    assert!(resident(&path) > 1 << 19);
    fixture.store.release_resident_pages();
    assert_eq!(resident(&path), 0);
    assert_eq!(read_all(), bytes);
}

#[test]
fn idle_readers_do_not_make_the_file_grow_while_history_is_removed() {
    let fixture = fixture_with(Options {
        retention: Retention {
            revisions: 1,
            ..Retention::default()
        },
        ..Options::default()
    });
    let store = &fixture.store;
    let readers: Vec<Reader> = (0..8).map(|_| store.reader()).collect();
    for number in 1..120 {
        commit(store, round(number)).unwrap();
    }
    for reader in &readers {
        reader.read(check_whole).unwrap();
    }
    let size = store.size().unwrap();
    while store.compact(64).unwrap() {
        // A worker's reader also makes lookups during compaction.
        readers[0].read(check_whole).unwrap();
    }
    let grown = store.size().unwrap().saturating_sub(size);
    assert!(grown < 1 << 20, "{grown}");
}
