//! Following the change log.

use crate::support::{Fixture, commit, delete, fixture, fixture_with, id, put, reference};
use model::EntityKind as K;
use std::thread;
use store::{
    Change, ChangeLog, ChangeSet, Changed, Effect, Event, Follower, Options, Origin, Retention,
    Revision, RevisionInfo, Store,
};

fn consumer(number: u128, name: &str) -> Change {
    put(K::Consumers, id(number), &[("username", name.into())])
}

fn changed(kind: K, number: u128, effect: Effect) -> Changed {
    let id = id(number);
    Changed { kind, id, effect }
}

/// Reads all events up to a revision.
fn read(follower: &mut Follower, limit: Revision) -> Vec<Event> {
    std::iter::from_fn(|| follower.next(limit).unwrap()).collect()
}

fn happened(event: Event) -> RevisionInfo {
    match event {
        Event::Happened(info) => info,
        gap @ Event::Gap { .. } => panic!("{gap:?}"),
    }
}

/// Returns the changes of each revision after `seen`, read in pages of this size.
fn changes(store: &Store, seen: u64, size: usize) -> Vec<Vec<Changed>> {
    let mut follower = Follower::new(store.clone(), Revision(seen));
    let events = read(&mut follower, store.head()).into_iter();
    let changes = events.map(|event| {
        let info = happened(event);
        let mut changes = Vec::new();
        while changes.len() < info.counts.total() as usize {
            let page = follower.changes(info.revision, changes.len(), size);
            changes.extend(page.unwrap());
        }
        changes
    });
    changes.collect()
}

fn keeping(revisions: u64) -> Fixture {
    let retention = Retention {
        revisions,
        ..Retention::default()
    };
    fixture_with(Options {
        retention,
        ..Options::default()
    })
}

#[test]
fn each_revision_has_its_changes_and_origin() {
    let fixture = fixture();
    let store = &fixture.store;
    let credential = put(
        plugins::kinds::KEYAUTH_CREDENTIALS,
        id(7),
        &[("key", "k".into()), ("consumer", reference(id(1)))],
    );
    commit(store, vec![consumer(1, "a"), credential]).unwrap();
    commit(store, vec![consumer(1, "b"), consumer(2, "c")]).unwrap();
    let origin = Origin {
        source: "127.0.0.1".into(),
        actor: Some("alice".into()),
        request_id: Some("0815".into()),
        message: Some("no more of them".into()),
    };
    let gone = ChangeSet {
        changes: vec![delete(K::Consumers, id(1))],
        meta: vec![("hash".into(), Some(b"1".to_vec()))],
    };
    store.commit(None, gone, &origin).unwrap();
    // Entity 1 was deleted and now exists again: each revision keeps its own record.
    commit(store, vec![consumer(1, "a")]).unwrap();
    let meta = ChangeSet {
        changes: Vec::new(),
        meta: vec![("hash".into(), None)],
    };
    store.commit(None, meta, &Origin::default()).unwrap();

    use Effect::{Created, Deleted, Updated};
    let mut both = [
        changed(K::Consumers, 1, Updated),
        changed(K::Consumers, 2, Created),
    ];
    both.sort_by_key(|one| one.id);
    let expected = vec![
        vec![
            changed(K::Consumers, 1, Created),
            changed(plugins::kinds::KEYAUTH_CREDENTIALS, 7, Created),
        ],
        both.to_vec(),
        vec![
            changed(K::Consumers, 1, Deleted),
            changed(plugins::kinds::KEYAUTH_CREDENTIALS, 7, Deleted),
        ],
        vec![changed(K::Consumers, 1, Created)],
        vec![],
    ];
    assert_eq!(changes(store, 0, 100), expected);
    assert_eq!(changes(store, 3, 1), expected[3..]);
    assert_eq!(changes(store, 0, 1), expected);
    let mut follower = Follower::new(store.clone(), Revision(2));
    let third = happened(follower.next(Revision(3)).unwrap().unwrap());
    assert_eq!((third.revision, third.origin), (Revision(3), origin));
    assert!(third.at_ms > 1_600_000_000_000);
}

#[test]
fn events_end_at_the_limit_and_never_repeat() {
    let fixture = fixture();
    let store = &fixture.store;
    let mut follower = Follower::new(store.clone(), Revision(0));
    assert_eq!(follower.next(Revision(9)).unwrap(), None);
    for round in 0..4 {
        commit(store, vec![consumer(1, &round.to_string())]).unwrap();
    }
    assert_eq!(read(&mut follower, Revision(0)), []);
    assert_eq!(read(&mut follower, Revision(1)).len(), 1);
    assert_eq!(read(&mut follower, Revision(1)), []);
    let seen = read(&mut follower, Revision(9)).into_iter();
    let seen: Vec<u64> = seen.map(|event| happened(event).revision.0).collect();
    assert_eq!(seen, [2, 3, 4]);
    // A follower ahead of the newest revision waits until there are newer ones.
    let mut ahead = Follower::new(store.clone(), Revision(6));
    assert_eq!(read(&mut ahead, Revision(9)), []);
}

#[test]
fn revisions_that_are_no_longer_kept_are_a_gap() {
    let fixture = keeping(3);
    let store = &fixture.store;
    for round in 0..10 {
        commit(store, vec![consumer(1, &round.to_string())]).unwrap();
    }
    while store.compact(1).unwrap() {}
    let gap = |from, to| Event::Gap {
        from: Revision(from),
        to: Revision(to),
    };
    let mut late = Follower::new(store.clone(), Revision(2));
    // The gap ends at the limit if all revisions up to it are gone.
    assert_eq!(read(&mut late, Revision(5)), [gap(3, 5)]);
    let events = read(&mut late, Revision(10));
    assert_eq!(events[0], gap(6, 7));
    let rest = events[1..]
        .iter()
        .cloned()
        .map(|event| happened(event).revision.0);
    let rest: Vec<u64> = rest.collect();
    assert_eq!(rest, [8, 9, 10]);
    let mut timely = Follower::new(store.clone(), Revision(7));
    assert_eq!(read(&mut timely, Revision(10)), events[1..]);
}

#[test]
fn a_store_without_history_reports_only_gaps() {
    let fixture = keeping(0);
    let mut follower = Follower::new(fixture.store.clone(), Revision(0));
    for round in 1..4 {
        let head = commit(&fixture.store, vec![consumer(1, &round.to_string())]).unwrap();
        let gap = Event::Gap {
            from: head,
            to: head,
        };
        assert_eq!(read(&mut follower, head), [gap]);
    }
}

#[test]
fn many_followers_see_every_revision_of_many_writers_once_and_in_order() {
    const WRITERS: u128 = 3;
    const EACH: u64 = 60;
    let fixture = fixture();
    let store = &fixture.store;
    let last = WRITERS as u64 * EACH;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for round in 0..EACH {
                    commit(store, vec![consumer(writer, &format!("{writer}-{round}"))]).unwrap();
                }
            });
        }
        let followers = (0..8).map(|_| scope.spawn(move || follow_until(store, last)));
        let followers: Vec<_> = followers.collect();
        for follower in followers {
            let seen = follower.join().unwrap();
            assert_eq!(seen, (1..=last).collect::<Vec<_>>());
        }
    });
}

/// Returns the revisions in the order in which they are reported.
fn follow_until(store: &Store, last: u64) -> Vec<u64> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.build().unwrap();
    let mut watch = store.watch();
    let mut follower = Follower::new(store.clone(), Revision(0));
    let mut seen = Vec::new();
    while seen.len() < last as usize {
        let head = *watch.borrow_and_update();
        let events = read(&mut follower, head).into_iter();
        seen.extend(events.map(|event| happened(event).revision.0));
        if follower.seen() < Revision(last) {
            runtime.block_on(watch.changed()).unwrap();
        }
    }
    seen
}
