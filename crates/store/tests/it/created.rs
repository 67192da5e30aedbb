//! The revision in which an entity was created.

use crate::support::{Fixture, assert_consistent, commit, delete, fixture, fixture_with, id, put};
use model::EntityKind as K;
use std::time::Duration;
use store::{Change, ChangeLog, ChangeSet, CommitError, Options, Origin, Retention, Revision};

fn consumer(number: u128, name: &str) -> Change {
    put(K::Consumers, id(number), &[("username", name.into())])
}

fn created(fixture: &Fixture, number: u128) -> Option<u64> {
    let view = fixture.store.view().unwrap();
    view.created(K::Consumers, id(number)).unwrap()
}

#[test]
fn an_entity_that_is_made_again_is_another_one() {
    let fixture = fixture();
    let store = &fixture.store;
    assert_eq!(created(&fixture, 1), None);
    commit(store, vec![consumer(2, "b")]).unwrap();
    commit(store, vec![consumer(1, "a"), consumer(3, "c")]).unwrap();
    assert_eq!(created(&fixture, 1), Some(2));
    commit(store, vec![consumer(1, "changed")]).unwrap();
    assert_eq!(created(&fixture, 1), Some(2), "a changed one keeps it");
    commit(store, vec![delete(K::Consumers, id(1))]).unwrap();
    assert_eq!(created(&fixture, 1), None);
    commit(store, vec![consumer(1, "changed")]).unwrap();
    assert_eq!(created(&fixture, 1), Some(5));
    assert_eq!(
        (created(&fixture, 2), created(&fixture, 3)),
        (Some(1), Some(2))
    );
    assert_consistent(store);
    let fixture = fixture.reopen();
    assert_eq!(created(&fixture, 1), Some(5));
}

#[test]
fn an_entity_that_a_rollback_restores_is_another_one() {
    let fixture = fixture();
    let store = &fixture.store;
    commit(store, vec![consumer(1, "a"), consumer(2, "b")]).unwrap();
    commit(store, vec![delete(K::Consumers, id(1)), consumer(2, "c")]).unwrap();
    let back = store
        .view()
        .unwrap()
        .history()
        .unwrap()
        .changes_to(Revision(1))
        .unwrap();
    store.commit(None, back, &Origin::default()).unwrap();
    assert_eq!(
        (created(&fixture, 1), created(&fixture, 2)),
        (Some(3), Some(1))
    );
    assert_consistent(store);
}

#[test]
fn a_change_that_is_undone_creates_nothing() {
    let fixture = fixture();
    let store = &fixture.store;
    commit(store, vec![consumer(1, "a")]).unwrap();
    let set = |change| ChangeSet {
        changes: vec![change],
        meta: Vec::new(),
    };
    store
        .transact(&mut |transaction| {
            transaction.apply(&set(delete(K::Consumers, id(1))))?;
            transaction.discard()?;
            transaction.apply(&set(consumer(2, "b")))?;
            transaction.seal(&Origin::default())?;
            transaction.apply(&set(consumer(1, "c")))?;
            transaction.seal(&Origin::default())?;
            Ok::<_, CommitError>(())
        })
        .unwrap();
    assert_eq!(
        (created(&fixture, 1), created(&fixture, 2)),
        (Some(1), Some(2))
    );
    assert_consistent(store);
}

#[test]
fn an_entity_that_one_revision_deletes_and_makes_again_is_another_one() {
    let fixture = fixture();
    let store = &fixture.store;
    commit(
        store,
        vec![consumer(1, "a"), consumer(2, "b"), consumer(3, "c")],
    )
    .unwrap();
    let remove = |number| delete(K::Consumers, id(number));
    commit(
        store,
        vec![remove(1), consumer(1, "new"), remove(2), consumer(2, "b")],
    )
    .unwrap();
    assert_eq!(created(&fixture, 1), Some(2));
    assert_eq!(created(&fixture, 2), Some(1), "it is as it was");
    // It is also another entity if it is deleted and made again in several steps.
    store
        .transact(&mut |transaction| {
            for change in [
                remove(3),
                consumer(4, "d"),
                consumer(3, "e"),
                consumer(2, "f"),
            ] {
                transaction.apply(&ChangeSet {
                    changes: vec![change],
                    meta: Vec::new(),
                })?;
            }
            transaction.seal(&Origin::default())?;
            Ok::<_, CommitError>(())
        })
        .unwrap();
    let all = [1, 2, 3, 4].map(|number| created(&fixture, number));
    assert_eq!(all, [Some(2), Some(1), Some(3), Some(3)]);
    // What was noted of one revision does not reach the next one.
    commit(store, vec![consumer(3, "g")]).unwrap();
    assert_eq!(created(&fixture, 3), Some(3));
    assert_consistent(store);
}

#[test]
fn it_does_not_depend_on_the_history() {
    let none = Retention {
        revisions: 0,
        bytes: 0,
        age: Duration::ZERO,
    };
    let fixture = fixture_with(Options {
        retention: none,
        ..Options::default()
    });
    let store = &fixture.store;
    store.found(vec![consumer(9, "default")]).unwrap();
    assert_eq!(created(&fixture, 9), Some(0));
    for number in 1..=5 {
        commit(store, vec![consumer(number, &number.to_string())]).unwrap();
    }
    while store.compact(100).unwrap() {}
    for number in 1..=5 {
        assert_eq!(created(&fixture, number), Some(number as u64));
    }
    assert_consistent(store);
}
