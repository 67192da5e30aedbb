//! Replacing the whole configuration.

use crate::support::{commit, delete, fixture, id, put};
use model::EntityKind as K;
use store::{Change, ChangeSet, DiffError, Replacement, Store};

fn consumer(number: u128, name: &str) -> Change {
    put(K::Consumers, id(number), &[("username", name.into())])
}

fn replacement(changes: &[Change]) -> Replacement<'_> {
    let mut replacement = Replacement::with_capacity(changes.len());
    for change in changes {
        if let Change::Put { kind, id, entity } = change {
            replacement.put(*kind, *id, entity);
        }
    }
    replacement
}

fn diff(store: &Store, replacement: Replacement<'_>) -> Vec<Change> {
    let view = store.view().unwrap();
    let ChangeSet { mut changes, .. } = view.diff(replacement).unwrap();
    changes.sort_by_key(|change| (change.kind(), change.id()));
    changes
}

fn sorted(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by_key(|change| (change.kind(), change.id()));
    changes
}

#[test]
fn only_what_differs_is_written() {
    let fixture = fixture();
    let all = vec![consumer(1, "a"), consumer(2, "b"), consumer(3, "c")];
    assert_eq!(diff(&fixture.store, replacement(&all)), sorted(all.clone()));
    commit(&fixture.store, all.clone()).unwrap();
    assert_eq!(diff(&fixture.store, replacement(&all)), []);

    let service = put(K::Services, id(9), &[("name", "s".into())]);
    let next = vec![
        consumer(1, "a"),
        consumer(2, "x"),
        consumer(4, "d"),
        service.clone(),
    ];
    let expected = vec![
        consumer(2, "x"),
        delete(K::Consumers, id(3)),
        consumer(4, "d"),
        service,
    ];
    assert_eq!(diff(&fixture.store, replacement(&next)), sorted(expected));
    let nothing = diff(&fixture.store, Replacement::default());
    assert_eq!(nothing.len(), 3);
    assert!(
        nothing
            .iter()
            .all(|change| matches!(change, Change::Delete { .. }))
    );
}

#[test]
fn what_is_kept_needs_no_bytes_and_must_exist() {
    let fixture = fixture();
    let store = &fixture.store;
    commit(
        store,
        vec![consumer(1, "a"), consumer(2, "b"), consumer(3, "c")],
    )
    .unwrap();
    let changed = [consumer(2, "x")];
    let mut with_kept = replacement(&changed);
    with_kept.keep(K::Consumers, id(1));
    let expected = vec![consumer(2, "x"), delete(K::Consumers, id(3))];
    assert_eq!(diff(store, with_kept), sorted(expected));

    let mut missing = Replacement::default();
    missing.keep(K::Consumers, id(8));
    let view = store.view().unwrap();
    assert!(matches!(
        view.diff(missing),
        Err(DiffError::KeptIsMissing { kind: K::Consumers, id: missing }) if missing == id(8)
    ));
}

#[test]
fn kinds_that_are_left_alone_stay() {
    let fixture = fixture();
    let node = put(K::ClusteringDataPlanes, id(1), &[("hostname", "h".into())]);
    commit(&fixture.store, vec![node, consumer(2, "a")]).unwrap();
    let mut replacement = Replacement::default();
    replacement.leave_alone(K::ClusteringDataPlanes);
    let expected = [delete(K::Consumers, id(2))];
    assert_eq!(diff(&fixture.store, replacement), expected);
}

#[test]
fn the_last_entry_of_an_entity_counts() {
    let fixture = fixture();
    let twice = [consumer(1, "a"), consumer(1, "b")];
    assert_eq!(diff(&fixture.store, replacement(&twice)), twice[1..]);
}
