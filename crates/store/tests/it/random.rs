//! Compares random change sets with a plain map. The tables must agree with the map and with each other, even after
//! refused change sets.

use crate::support::{assert_consistent, delete, fixture_with, id, put, reference, tags};
use model::EntityKind as K;
use plugins::kinds::KEYAUTH_CREDENTIALS;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use store::{
    Change, ChangeLog, ChangeSet, CommitError, Difference, Options, Origin, Retention, Revision,
    Store,
};
use uuid::Uuid;

const KINDS: [K; 5] = [
    K::Services,
    K::Routes,
    K::Plugins,
    K::Consumers,
    KEYAUTH_CREDENTIALS,
];

type State = BTreeMap<(K, Uuid), Vec<u8>>;

fn change() -> impl Strategy<Value = Change> {
    let number = || 0..12u128;
    let name = "[a-c]{1,2}";
    let service = (number(), name).prop_map(|(number, name)| {
        put(
            K::Services,
            id(number),
            &[
                ("name", name.as_str().into()),
                ("tags", tags(&[&name, "t"])),
            ],
        )
    });
    let route = (number(), name, number()).prop_map(|(number, name, service)| {
        put(
            K::Routes,
            id(100 + number),
            &[("name", name.into()), ("service", reference(id(service)))],
        )
    });
    let plugin =
        (number(), "[ab]", proptest::option::of(number())).prop_map(|(number, name, route)| {
            let mut fields = vec![("name", name.into())];
            if let Some(route) = route {
                fields.push(("route", reference(id(100 + route))));
            }
            put(K::Plugins, id(200 + number), &fields)
        });
    let consumer = (number(), name).prop_map(|(number, name)| {
        let fields = [("username", name.into())];
        put(K::Consumers, id(300 + number), &fields)
    });
    let credential = (number(), name, number()).prop_map(|(number, key, consumer)| {
        let consumer = reference(id(300 + consumer));
        let fields = [("key", key.into()), ("consumer", consumer)];
        put(KEYAUTH_CREDENTIALS, id(400 + number), &fields)
    });
    let removal = (proptest::sample::select(&KINDS), number());
    let removal = removal.prop_map(|(kind, number)| delete(kind, id(base(kind) + number)));
    prop_oneof![3 => service, 3 => route, 3 => plugin, 3 => consumer, 3 => credential, 3 => removal]
}

/// The smallest number of an entity of a type.
fn base(kind: K) -> u128 {
    match kind {
        K::Routes => 100,
        K::Plugins => 200,
        K::Consumers => 300,
        KEYAUTH_CREDENTIALS => 400,
        _ => 0,
    }
}

/// Reads all entities of the store.
fn read(store: &Store) -> State {
    let view = store.view().unwrap();
    let mut state = State::new();
    for kind in K::all() {
        for entity in view.iter(kind).unwrap() {
            let (id, bytes) = entity.unwrap();
            state.insert((kind, id), bytes.to_vec());
        }
    }
    state
}

/// Applies the change set to a plain map, with the two cascades that these types have.
fn apply(state: &State, changes: &[Change]) -> State {
    let mut next = state.clone();
    for change in changes {
        match change {
            Change::Put { kind, id, entity } => next.insert((*kind, *id), entity.clone()),
            Change::Delete { kind, id } => next.remove(&(*kind, *id)),
        };
    }
    let written: Vec<_> = changes
        .iter()
        .map(|change| (change.kind(), change.id()))
        .collect();
    for (child, field, parent) in [
        (K::Plugins, "route", K::Routes),
        (KEYAUTH_CREDENTIALS, "consumer", K::Consumers),
    ] {
        let of_parent = next.keys().filter(|(kind, _)| *kind == parent);
        let parents: Vec<Uuid> = of_parent.map(|(_, id)| *id).collect();
        next.retain(|key, entity| {
            let entity: model::Object = model::codec::decode(entity).unwrap();
            let owner = entity
                .get(field)
                .and_then(|owner| owner.as_object()?.str("id"));
            let dangling = owner.is_some_and(|owner| !parents.contains(&owner.parse().unwrap()));
            key.0 != child || !dangling || written.contains(key)
        });
    }
    next
}

#[test]
fn the_store_equals_a_map_and_its_history() {
    let mut runner = TestRunner::new(Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    });
    // Each change set is followed by a compaction with this limit.
    let change_set = (proptest::collection::vec(change(), 1..6), 0..12usize);
    let change_sets = (proptest::collection::vec(change_set, 1..40), any::<Index>());
    runner
        .run(&change_sets, |(change_sets, pick)| {
            let fixture = fixture_with(Options {
                retention: Retention {
                    revisions: 8,
                    ..Retention::default()
                },
                ..Options::default()
            });
            let store = &fixture.store;
            let mut states = vec![State::new()];
            for (round, (changes, entries)) in change_sets.into_iter().enumerate() {
                let change_set = ChangeSet {
                    changes: changes.clone(),
                    meta: vec![("round".to_owned(), Some(vec![round as u8]))],
                };
                let current = states.last().unwrap();
                match store.commit(None, change_set, &Origin::default()) {
                    Ok(_) => {
                        let next = apply(current, &changes);
                        prop_assert_eq!(&read(store), &next);
                        states.push(next);
                    }
                    Err(CommitError::Violations(_)) => prop_assert_eq!(&read(store), current),
                    Err(error) => panic!("{error}"),
                }
                store.compact(entries).unwrap();
                check_entities(store, &states);
            }
            assert_consistent(store);
            check_history(store, &states);
            check_rollback(store, &states, pick);
            Ok(())
        })
        .unwrap();
}

/// Checks every entity at every kept revision against the model.
fn check_entities(store: &Store, states: &[State]) {
    let view = store.view().unwrap();
    let history = view.history().unwrap();
    for revision in history.oldest().0..=history.newest().0 {
        for kind in KINDS {
            for number in 0..12 {
                let id = id(number + base(kind));
                let found = history.entity(kind, id, Revision(revision)).unwrap();
                let expected = states[revision as usize].get(&(kind, id));
                assert_eq!(found, expected.map(Vec::as_slice));
            }
        }
    }
}

/// Checks that a rollback to a kept revision restores its state, and that the new revision records exactly the
/// differences as its changes.
fn check_rollback(store: &Store, states: &[State], pick: Index) {
    let oldest = oldest(store);
    let target = oldest + pick.index(states.len() - oldest as usize) as u64;
    let meta = store
        .transact(&mut |transaction| {
            let changes = transaction.changes_to(Revision(target)).unwrap();
            transaction.apply(&changes)?;
            transaction.seal(&Origin::default())?;
            Ok(transaction.view()?.meta("round")?.map(<[u8]>::to_vec))
        })
        .unwrap();
    assert_eq!(read(store), states[target as usize]);
    assert_eq!(meta.is_some(), target > 0);
    assert_consistent(store);
    let undone = store.view().unwrap().history().unwrap().newest();
    if undone.0 as usize == states.len() {
        assert_eq!(
            differences(store, undone.0 - 1, undone.0),
            differences(store, states.len() as u64 - 1, target)
        );
    }
}

/// Returns the changes from one revision to another.
fn differences(store: &Store, from: u64, to: u64) -> Vec<Change> {
    let view = store.view().unwrap();
    let history = view.history().unwrap();
    let differences = history.diff(Revision(from), Revision(to), None).unwrap();
    differences
        .map(|difference| {
            let Difference {
                kind, id, after, ..
            } = difference.unwrap();
            match after {
                Some(entity) => Change::Put {
                    kind,
                    id,
                    entity: entity.to_vec(),
                },
                None => Change::Delete { kind, id },
            }
        })
        .collect()
}

fn oldest(store: &Store) -> u64 {
    store.view().unwrap().history().unwrap().oldest().0
}

fn check_history(store: &Store, states: &[State]) {
    for revision in oldest(store)..states.len() as u64 {
        let mut found = State::new();
        store
            .snapshot_at(Revision(revision), &mut |kind, id, entity| {
                found.insert((kind, id), entity.to_vec());
            })
            .unwrap();
        assert_eq!(found, states[revision as usize]);
        let changes = store.changes_since(Revision(revision)).unwrap();
        let newest = apply(&found, &changes.change_set.changes);
        assert_eq!(&newest, states.last().unwrap());
    }
}
