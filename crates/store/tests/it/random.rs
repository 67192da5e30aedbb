//! Random change sets against a plain map: the tables agree with it and with each other, whatever was refused.

use crate::support::{assert_consistent, delete, fixture_with, id, put, reference, tags};
use model::EntityKind as K;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use store::{Change, ChangeSet, CommitError, Journal, Options, Origin, Retention, Revision, Store};
use uuid::Uuid;

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
    let kind = prop_oneof![
        Just((K::Services, 0)),
        Just((K::Routes, 100)),
        Just((K::Plugins, 200))
    ];
    let removal =
        (kind, number()).prop_map(|((kind, base), number)| delete(kind, id(base + number)));
    prop_oneof![3 => service, 3 => route, 3 => plugin, 2 => removal]
}

/// What is in the store is found by walking it: the model is only told what was acknowledged.
fn read(store: &Store) -> State {
    let view = store.view().unwrap();
    let mut state = State::new();
    for kind in K::ALL {
        for entity in view.iter(kind).unwrap() {
            let (id, bytes) = entity.unwrap();
            state.insert((kind, id), bytes.to_vec());
        }
    }
    state
}

/// The change set on a plain map, with the one cascade that these kinds have.
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
    let routes: Vec<Uuid> = next
        .keys()
        .filter(|(kind, _)| *kind == K::Routes)
        .map(|(_, id)| *id)
        .collect();
    next.retain(|key, entity| {
        let plugin: model::Object = model::codec::decode(entity).unwrap();
        let route = plugin
            .get("route")
            .and_then(|route| route.as_object()?.str("id"));
        let dangling = route.is_some_and(|route| !routes.contains(&route.parse().unwrap()));
        key.0 != K::Plugins || !dangling || written.contains(key)
    });
    next
}

#[test]
fn the_store_equals_a_map_and_its_history() {
    let mut runner = TestRunner::new(Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    });
    let change_sets = proptest::collection::vec(proptest::collection::vec(change(), 1..6), 1..40);
    runner
        .run(&change_sets, |change_sets| {
            let fixture = fixture_with(Options {
                retention: Retention {
                    revisions: 8,
                    bytes: 1 << 20,
                },
                ..Options::default()
            });
            let store = &fixture.store;
            let mut states = vec![State::new()];
            for changes in change_sets {
                let change_set = ChangeSet {
                    changes: changes.clone(),
                    meta: Vec::new(),
                };
                let current = states.last().unwrap();
                match store.commit(None, change_set, &Origin::default()) {
                    Ok(revision) if revision.0 as usize == states.len() => {
                        let next = apply(current, &changes);
                        prop_assert_eq!(&read(store), &next);
                        states.push(next);
                    }
                    Ok(_) => prop_assert_eq!(&apply(current, &changes), current),
                    Err(CommitError::Violations(_)) => prop_assert_eq!(&read(store), current),
                    Err(error) => panic!("{error}"),
                }
            }
            assert_consistent(store);
            check_history(store, &states);
            Ok(())
        })
        .unwrap();
}

fn check_history(store: &Store, states: &[State]) {
    let oldest = store.oldest_revision().unwrap().0;
    for revision in oldest..states.len() as u64 {
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
