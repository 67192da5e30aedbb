//! Older revisions.

use crate::support::{assert_consistent, commit, delete, fixture, fixture_with, id, put};
use model::EntityKind as K;
use std::collections::BTreeMap;
use store::{
    Change, ChangeSet, Journal, JournalError, Options, Origin, Retention, Revision, Store,
};
use uuid::Uuid;

fn consumer(number: u128, name: &str) -> Change {
    put(K::Consumers, id(number), &[("username", name.into())])
}

fn snapshot(store: &Store, revision: u64) -> Result<BTreeMap<Uuid, Vec<u8>>, JournalError> {
    let mut entities = BTreeMap::new();
    store.snapshot_at(Revision(revision), &mut |_, id, entity| {
        let twice = entities.insert(id, entity.to_vec());
        assert_eq!(twice, None);
    })?;
    Ok(entities)
}

fn state(changes: &[Change]) -> BTreeMap<Uuid, Vec<u8>> {
    let puts = changes.iter().filter_map(|change| match change {
        Change::Put { id, entity, .. } => Some((*id, entity.clone())),
        Change::Delete { .. } => None,
    });
    puts.collect()
}

#[test]
fn every_kept_revision_can_be_rebuilt() {
    let fixture = fixture();
    let store = &fixture.store;
    commit(store, vec![consumer(1, "a"), consumer(2, "b")]).unwrap();
    commit(store, vec![consumer(2, "c"), consumer(3, "d")]).unwrap();
    commit(store, vec![delete(K::Consumers, id(1)), consumer(4, "e")]).unwrap();
    commit(store, vec![consumer(1, "f")]).unwrap();
    let expected = [
        vec![],
        vec![consumer(1, "a"), consumer(2, "b")],
        vec![consumer(1, "a"), consumer(2, "c"), consumer(3, "d")],
        vec![consumer(2, "c"), consumer(3, "d"), consumer(4, "e")],
        vec![
            consumer(1, "f"),
            consumer(2, "c"),
            consumer(3, "d"),
            consumer(4, "e"),
        ],
    ];
    for (revision, changes) in expected.iter().enumerate() {
        let found = snapshot(store, revision as u64).unwrap();
        assert_eq!(found, state(changes), "revision {revision}");
    }
    assert!(matches!(
        snapshot(store, 5),
        Err(JournalError::Unknown { .. })
    ));
}

#[test]
fn changes_since_a_revision_are_one_for_each_entity_that_differs() {
    let fixture = fixture();
    let store = &fixture.store;
    commit(
        store,
        vec![consumer(1, "a"), consumer(2, "b"), consumer(3, "x")],
    )
    .unwrap();
    let meta = ChangeSet {
        changes: vec![
            consumer(1, "c"),
            consumer(4, "d"),
            delete(K::Consumers, id(2)),
        ],
        meta: vec![("hash".into(), Some(b"1".to_vec()))],
    };
    store.commit(None, meta, &Origin::default()).unwrap();
    // What changed back is no change, and what came and went neither.
    commit(store, vec![consumer(3, "y"), delete(K::Consumers, id(4))]).unwrap();
    commit(store, vec![consumer(3, "x")]).unwrap();

    let changes = store.changes_since(Revision(1)).unwrap();
    assert_eq!((changes.from, changes.to), (Revision(1), Revision(4)));
    let mut expected = vec![consumer(1, "c"), delete(K::Consumers, id(2))];
    expected.sort_by_key(Change::id);
    assert_eq!(changes.change_set.changes, expected);
    let hash = [("hash".to_owned(), Some(b"1".to_vec()))];
    assert_eq!(changes.change_set.meta, hash);
    assert!(
        store
            .changes_since(Revision(4))
            .unwrap()
            .change_set
            .is_empty()
    );
}

#[test]
fn history_is_bounded_by_revisions() {
    let fixture = fixture_with(Options {
        retention: Retention {
            revisions: 3,
            bytes: 1 << 20,
        },
        ..Options::default()
    });
    for round in 0..10 {
        commit(&fixture.store, vec![consumer(1, &format!("a{round}"))]).unwrap();
    }
    assert_eq!(fixture.store.oldest_revision().unwrap(), Revision(7));
    assert_eq!(
        snapshot(&fixture.store, 7).unwrap(),
        state(&[consumer(1, "a6")])
    );
    match snapshot(&fixture.store, 6) {
        Err(JournalError::NotKept { revision, oldest }) => {
            assert_eq!((revision, oldest), (Revision(6), Revision(7)));
        }
        other => panic!("{other:?}"),
    }
    assert_consistent(&fixture.store);
}

#[test]
fn history_is_bounded_by_bytes_and_a_huge_revision_ends_it() {
    let fixture = fixture_with(Options {
        retention: Retention {
            revisions: 1000,
            bytes: 500_000,
        },
        ..Options::default()
    });
    let store = &fixture.store;
    for round in 0..20 {
        // Longer than one piece of the journal.
        commit(
            store,
            vec![consumer(1, &format!("{round}").repeat(100_000))],
        )
        .unwrap();
    }
    let oldest = store.oldest_revision().unwrap();
    assert!(oldest > Revision(10) && oldest < Revision(19), "{oldest}");
    for revision in oldest.0..=20 {
        let name = format!("{}", revision - 1).repeat(100_000);
        assert_eq!(
            snapshot(store, revision).unwrap(),
            state(&[consumer(1, &name)])
        );
    }
    commit(store, vec![consumer(1, &"z".repeat(600_000))]).unwrap();
    commit(store, vec![consumer(1, "small")]).unwrap();
    assert_eq!(store.oldest_revision().unwrap(), Revision(22));
    assert_eq!(snapshot(store, 22).unwrap(), state(&[consumer(1, "small")]));
    assert_consistent(store);
}

#[test]
fn watchers_learn_of_each_new_head_only() {
    let fixture = fixture();
    let mut watch = fixture.store.watch();
    assert_eq!(*watch.borrow_and_update(), Revision(0));
    commit(&fixture.store, vec![consumer(1, "a")]).unwrap();
    assert!(watch.has_changed().unwrap());
    assert_eq!(*watch.borrow_and_update(), Revision(1));
    commit(&fixture.store, vec![consumer(1, "a")]).unwrap();
    assert!(!watch.has_changed().unwrap());
}
