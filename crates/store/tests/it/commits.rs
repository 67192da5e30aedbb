//! Effects of commits, and the change sets that are refused.

use crate::support::{
    assert_consistent, commit, delete, fixture, fixture_with, id, put, reference,
};
use model::{EntityKind as K, Error, ErrorCode, Value};
use serde_json::json;
use store::{
    Change, ChangeLog, ChangeSet, CommitError, KeyPart, Options, Origin, Recovery, Rejected,
    Revision, Store,
};

fn violations(result: Result<Revision, CommitError>) -> Vec<Error> {
    match result {
        Err(CommitError::Violations(violations)) => {
            violations.iter().map(store::Violation::to_error).collect()
        }
        other => panic!("expected violations, got {other:?}"),
    }
}

fn fields(error: &Error) -> serde_json::Value {
    serde_json::to_value(error.fields.as_ref().unwrap()).unwrap()
}

fn service(number: u128, name: &str) -> Change {
    put(K::Services, id(number), &[("name", name.into())])
}

fn route(number: u128, name: &str, service: u128) -> Change {
    let service = reference(id(service));
    put(
        K::Routes,
        id(number),
        &[("name", name.into()), ("service", service)],
    )
}

fn has(store: &Store, kind: K, number: u128) -> bool {
    let view = store.view().unwrap();
    view.get(kind, id(number)).unwrap().is_some()
}

#[test]
fn commits_survive_reopening() {
    let fixture = fixture();
    assert_eq!(fixture.recovery, Recovery::Created);
    let revision = commit(&fixture.store, vec![route(2, "r", 1), service(1, "s")]).unwrap();
    assert_eq!(revision, Revision(1));

    let fixture = fixture.reopen();
    assert_eq!(fixture.recovery, Recovery::Opened);
    assert_eq!(fixture.store.head(), Revision(1));
    let view = fixture.store.view().unwrap();
    let found = view.id_by_unique(K::Routes, "name", "r").unwrap();
    assert_eq!(found, Some(id(2)));
    assert_eq!(view.count(K::Services).unwrap(), 1);
    assert_consistent(&fixture.store);
}

#[test]
fn founding_entities_belong_to_revision_0() {
    let fixture = fixture();
    fixture.store.found(vec![service(1, "s")]).unwrap();
    assert_eq!(fixture.store.head(), Revision(0));
    // The second call does nothing, because the store already has entities.
    fixture.store.found(vec![service(2, "t")]).unwrap();
    assert!(has(&fixture.store, K::Services, 1) && !has(&fixture.store, K::Services, 2));
    commit(&fixture.store, vec![route(3, "r", 1)]).unwrap();
    let fixture = fixture.reopen();
    fixture.store.found(vec![service(2, "t")]).unwrap();
    assert!(!has(&fixture.store, K::Services, 2));
    let view = fixture.store.view().unwrap();
    let history = view.history().unwrap();
    let info = history.info(Revision(1)).unwrap();
    assert_eq!((info.counts.created, info.counts.total()), (1, 1));
    let mut then = Vec::new();
    let see = &mut |kind, id, _: &[u8]| then.push((kind, id));
    fixture.store.snapshot_at(Revision(0), see).unwrap();
    assert_eq!(then, [(K::Services, id(1))]);
    assert_consistent(&fixture.store);
}

#[test]
fn a_taken_name_is_refused_and_nothing_of_the_change_set_stays() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "billing")]).unwrap();
    let errors = violations(commit(
        &fixture.store,
        vec![service(2, "other"), service(3, "billing")],
    ));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].code, ErrorCode::UniqueViolation);
    assert_eq!(
        errors[0].message,
        "UNIQUE violation detected on '{name=\"billing\"}'"
    );
    assert_eq!(fields(&errors[0]), json!({"name": "billing"}));
    assert!(!has(&fixture.store, K::Services, 2));
    assert_eq!(fixture.store.head(), Revision(1));
    assert_consistent(&fixture.store);
}

#[test]
fn the_same_name_twice_in_a_change_set_is_refused() {
    let fixture = fixture();
    let errors = violations(commit(
        &fixture.store,
        vec![service(1, "a"), service(2, "b"), service(3, "a")],
    ));
    assert_eq!(errors.len(), 1);
    assert_eq!(fields(&errors[0]), json!({"name": "a"}));
}

#[test]
fn names_can_be_swapped_and_passed_on_in_one_change_set() {
    let fixture = fixture();
    commit(
        &fixture.store,
        vec![service(1, "a"), service(2, "b"), service(3, "c")],
    )
    .unwrap();
    commit(
        &fixture.store,
        vec![
            service(1, "b"),
            service(2, "a"),
            delete(K::Services, id(3)),
            service(4, "c"),
        ],
    )
    .unwrap();
    let view = fixture.store.view().unwrap();
    for (name, number) in [("a", 2), ("b", 1), ("c", 4)] {
        let found = view.id_by_unique(K::Services, "name", name).unwrap();
        assert_eq!(found, Some(id(number)), "{name}");
    }
    assert_consistent(&fixture.store);
}

#[test]
fn a_composite_key_is_unique_with_absent_fields_as_null() {
    let fixture = fixture();
    let plugin = |number: u128, route: Option<u128>| {
        let mut fields = vec![("name", "key-auth".into())];
        if let Some(route) = route {
            fields.push(("route", reference(id(route))));
        }
        put(K::Plugins, id(number), &fields)
    };
    commit(
        &fixture.store,
        vec![
            service(1, "s"),
            route(2, "r", 1),
            plugin(10, None),
            plugin(11, Some(2)),
        ],
    )
    .unwrap();
    let errors = violations(commit(&fixture.store, vec![plugin(12, None)]));
    assert_eq!(
        fields(&errors[0]),
        json!({"name": "key-auth", "route": null, "service": null, "consumer": null})
    );
    let errors = violations(commit(&fixture.store, vec![plugin(12, Some(2))]));
    let route = json!({"id": id(2).to_string()});
    assert_eq!(fields(&errors[0])["route"], route);

    let view = fixture.store.view().unwrap();
    let key = [
        KeyPart::Text("key-auth"),
        KeyPart::Reference(id(2)),
        KeyPart::Absent,
        KeyPart::Absent,
    ];
    let found = view.id_by_cache_key(K::Plugins, &key).unwrap();
    assert_eq!(found, Some(id(11)));
}

#[test]
fn a_reference_to_nothing_is_refused() {
    let fixture = fixture();
    let errors = violations(commit(&fixture.store, vec![route(2, "r", 1)]));
    assert_eq!(errors[0].code, ErrorCode::ForeignKeyViolation);
    let id = id(1);
    assert_eq!(
        errors[0].message,
        format!(
            "the foreign key '{{id=\"{id}\"}}' does not reference an existing 'services' entity."
        )
    );
    assert_eq!(
        fields(&errors[0]),
        json!({"service": {"id": id.to_string()}})
    );
}

#[test]
fn a_change_set_cannot_reference_an_entity_that_it_removes() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "s"), route(2, "r", 1)]).unwrap();
    // The route is written unchanged, which counts as a write too.
    let errors = violations(commit(
        &fixture.store,
        vec![delete(K::Services, id(1)), route(2, "r", 1)],
    ));
    assert_eq!(errors[0].code, ErrorCode::ForeignKeyViolation);
}

#[test]
fn an_entity_that_others_need_cannot_be_removed_alone() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "s"), route(2, "r", 1)]).unwrap();
    let errors = violations(commit(&fixture.store, vec![delete(K::Services, id(1))]));
    assert_eq!(errors[0].code, ErrorCode::ForeignKeyViolation);
    assert_eq!(
        errors[0].message,
        "an existing 'routes' entity references this 'services' entity"
    );
    assert_eq!(fields(&errors[0]), json!({"@referenced_by": "routes"}));

    // It can be removed together with the entities that need it, or after those reference another one.
    commit(
        &fixture.store,
        vec![
            service(3, "t"),
            route(2, "r", 3),
            delete(K::Services, id(1)),
        ],
    )
    .unwrap();
    commit(
        &fixture.store,
        vec![delete(K::Services, id(3)), delete(K::Routes, id(2))],
    )
    .unwrap();
    assert_consistent(&fixture.store);
}

#[test]
fn cascades_remove_indirect_references_too() {
    let fixture = fixture();
    let consumer = |number| {
        put(
            K::Consumers,
            id(number),
            &[("username", format!("c{number}").into())],
        )
    };
    let child = |kind, number, name: &str, value: &str, consumer| {
        put(
            kind,
            id(number),
            &[(name, value.into()), ("consumer", reference(id(consumer)))],
        )
    };
    let token = put(
        plugins::kinds::OAUTH2_TOKENS,
        id(30),
        &[
            ("access_token", "t".into()),
            ("credential", reference(id(21))),
        ],
    );
    commit(
        &fixture.store,
        vec![
            consumer(1),
            consumer(2),
            child(plugins::kinds::KEYAUTH_CREDENTIALS, 20, "key", "k", 1),
            child(plugins::kinds::OAUTH2_CREDENTIALS, 21, "client_id", "c", 1),
            child(plugins::kinds::KEYAUTH_CREDENTIALS, 22, "key", "l", 2),
            token,
        ],
    )
    .unwrap();
    commit(&fixture.store, vec![delete(K::Consumers, id(1))]).unwrap();
    assert!(!has(
        &fixture.store,
        plugins::kinds::KEYAUTH_CREDENTIALS,
        20
    ));
    assert!(!has(&fixture.store, plugins::kinds::OAUTH2_CREDENTIALS, 21));
    assert!(!has(&fixture.store, plugins::kinds::OAUTH2_TOKENS, 30));
    assert!(has(&fixture.store, plugins::kinds::KEYAUTH_CREDENTIALS, 22));
    assert_consistent(&fixture.store);
}

#[test]
fn every_violation_of_a_change_set_is_reported() {
    let fixture = fixture();
    let errors = violations(commit(
        &fixture.store,
        vec![
            route(2, "r", 1),
            route(3, "q", 1),
            service(4, "s"),
            service(5, "s"),
        ],
    ));
    assert_eq!(errors.len(), 3);
}

#[test]
fn a_change_set_with_another_expected_head_is_refused() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "s")]).unwrap();
    let change_set = ChangeSet {
        changes: vec![service(2, "t")],
        meta: Vec::new(),
    };
    let stale = fixture
        .store
        .commit(Some(Revision(0)), change_set.clone(), &Origin::default());
    assert!(matches!(
        stale,
        Err(CommitError::Conflict {
            expected: Revision(0),
            head: Revision(1)
        })
    ));
    let current = fixture
        .store
        .commit(Some(Revision(1)), change_set, &Origin::default());
    assert_eq!(current.unwrap(), Revision(2));
}

#[test]
fn unchanged_entities_create_no_revision() {
    let fixture = fixture();
    let change_set = ChangeSet {
        changes: vec![service(1, "s")],
        meta: vec![("hash".into(), Some(b"1".to_vec()))],
    };
    let commit = |changes: &ChangeSet| {
        fixture
            .store
            .commit(None, changes.clone(), &Origin::default())
            .unwrap()
    };
    assert_eq!(commit(&change_set), Revision(1));
    assert_eq!(commit(&change_set), Revision(1));
    assert_eq!(commit(&ChangeSet::default()), Revision(1));
    let nothing_to_remove = ChangeSet {
        changes: vec![delete(K::Services, id(9))],
        meta: vec![("other".into(), None)],
    };
    assert_eq!(commit(&nothing_to_remove), Revision(1));
}

#[test]
fn the_last_change_of_an_entity_counts() {
    let fixture = fixture();
    let changes = vec![
        service(1, "first"),
        delete(K::Services, id(1)),
        service(1, "last"),
        service(2, "gone"),
        delete(K::Services, id(2)),
    ];
    commit(&fixture.store, changes).unwrap();
    let view = fixture.store.view().unwrap();
    let found = view.id_by_unique(K::Services, "name", "last").unwrap();
    assert_eq!(found, Some(id(1)));
    assert_eq!(view.count(K::Services).unwrap(), 1);
    assert_consistent(&fixture.store);
}

#[test]
fn a_transaction_sees_its_state_and_an_error_undoes_it() {
    let fixture = fixture();
    let change_set = ChangeSet {
        changes: vec![service(1, "s")],
        meta: vec![("hash".into(), Some(b"h".to_vec()))],
    };
    let refusal = Error::new(ErrorCode::SchemaViolation, "no");
    let result = fixture.store.transact(&mut |transaction| {
        transaction.apply(&change_set)?;
        transaction.seal(&Origin::default())?;
        let view = transaction.view()?;
        assert_eq!(view.revision(), Revision(1));
        assert_eq!(view.count(K::Services).unwrap(), 1);
        assert_eq!(view.meta("hash").unwrap(), Some(b"h".as_slice()));
        let found = view.id_by_unique(K::Services, "name", "s").unwrap();
        assert_eq!(found, Some(id(1)));
        Err::<(), _>(Rejected(refusal.clone()).into())
    });
    assert_eq!(result.unwrap_err().to_error(), Some(refusal));
    assert_eq!(fixture.store.head(), Revision(0));
    let view = fixture.store.view().unwrap();
    assert_eq!(view.count(K::Services).unwrap(), 0);
    assert_eq!(view.meta("hash").unwrap(), None);
}

#[test]
fn a_panic_in_a_transaction_leaves_the_store_usable() {
    let fixture = fixture();
    let store = fixture.store.clone();
    let thread = std::thread::spawn(move || {
        let change_set = ChangeSet {
            changes: vec![service(1, "s")],
            meta: Vec::new(),
        };
        store.transact::<()>(&mut |transaction| {
            transaction.apply(&change_set)?;
            panic!("a defect")
        })
    });
    assert!(thread.join().is_err());
    assert_eq!(
        commit(&fixture.store, vec![service(1, "s")]).unwrap(),
        Revision(1)
    );
}

#[test]
fn bytes_that_are_no_entity_are_refused() {
    let fixture = fixture();
    for bytes in [
        b"".as_slice(),
        b"\x81",
        b"\xc1",
        b"\x81\xa4name",
        b"\x80\x00",
    ] {
        let change = Change::Put {
            kind: K::Services,
            id: id(1),
            entity: bytes.to_vec(),
        };
        let errors = violations(commit(&fixture.store, vec![change]));
        assert_eq!(errors[0].code, ErrorCode::DatabaseError, "{bytes:?}");
    }
}

fn set(changes: Vec<Change>) -> ChangeSet {
    ChangeSet {
        changes,
        meta: Vec::new(),
    }
}

#[test]
fn several_revisions_of_a_transaction_become_durable_together() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "one")]).unwrap();
    let touched = fixture
        .store
        .transact(&mut |transaction| {
            transaction.apply(&set(vec![service(2, "two")]))?;
            transaction.apply(&set(vec![route(3, "r", 2)]))?;
            assert_eq!(transaction.seal(&Origin::default())?, Some(Revision(2)));
            transaction.apply(&set(vec![delete(K::Services, id(1))]))?;
            transaction.apply(&set(vec![service(2, "renamed")]))?;
            assert_eq!(transaction.seal(&Origin::default())?, Some(Revision(3)));
            Ok(transaction.touched())
        })
        .unwrap();
    assert_eq!(fixture.store.head(), Revision(3));
    let touched: Vec<_> = touched
        .iter()
        .map(|touched| (touched.kind, touched.id, touched.old.is_some()))
        .collect();
    assert_eq!(
        touched,
        [
            (K::Services, id(2), false),
            (K::Services, id(1), true),
            (K::Routes, id(3), false)
        ]
    );
    assert!(!has(&fixture.store, K::Services, 1));
    assert_consistent(&fixture.store);
    let mut at_two = Vec::new();
    fixture
        .store
        .snapshot_at(Revision(2), &mut |kind, id, _| at_two.push((kind, id)))
        .unwrap();
    assert_eq!(
        at_two,
        [
            (K::Services, id(2)),
            (K::Services, id(1)),
            (K::Routes, id(3))
        ]
    );
}

#[test]
fn a_refused_change_set_keeps_the_rest_of_the_transaction() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "one"), route(9, "r", 1)]).unwrap();
    fixture
        .store
        .transact(&mut |transaction| {
            transaction.apply(&set(vec![service(2, "two")]))?;
            for refused in [
                vec![service(3, "two")],
                vec![service(3, "three"), service(4, "three")],
                vec![service(3, "three"), route(5, "new", 77)],
                vec![delete(K::Services, id(1)), service(3, "three")],
            ] {
                let result = transaction.apply(&set(refused));
                assert!(
                    matches!(result, Err(CommitError::Violations(_))),
                    "{result:?}"
                );
            }
            transaction.apply(&set(vec![service(3, "three")]))?;
            transaction.seal(&Origin::default())
        })
        .unwrap();
    let view = fixture.store.view().unwrap();
    assert_eq!(view.count(K::Services).unwrap(), 3);
    assert_eq!(view.count(K::Routes).unwrap(), 1);
    assert_consistent(&fixture.store);
}

#[test]
fn a_discarded_revision_leaves_no_trace() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "one"), route(9, "r", 1)]).unwrap();
    let bytes = |store: &Store| {
        let view = store.view().unwrap();
        let all = view.iter(K::Services).unwrap();
        all.map(|one| one.map(|(id, bytes)| (id, bytes.to_vec())).unwrap())
            .collect::<Vec<_>>()
    };
    let before = bytes(&fixture.store);
    let head = fixture
        .store
        .transact(&mut |transaction| {
            let mut changes = set(vec![
                delete(K::Services, id(1)),
                delete(K::Routes, id(9)),
                service(2, "one"),
            ]);
            changes.meta = vec![("hash".into(), Some(b"1".to_vec()))];
            transaction.apply(&changes)?;
            changes = set(vec![service(2, "again"), service(1, "one")]);
            changes.meta = vec![("hash".into(), Some(b"2".to_vec()))];
            transaction.apply(&changes)?;
            transaction.discard()?;
            assert!(transaction.touched().is_empty());
            assert_eq!(transaction.seal(&Origin::default())?, None);
            Ok(transaction.head())
        })
        .unwrap();
    assert_eq!(head, Revision(1));
    assert_eq!(bytes(&fixture.store), before);
    assert_eq!(fixture.store.view().unwrap().meta("hash").unwrap(), None);
    assert_consistent(&fixture.store);
}

#[test]
fn changes_that_cancel_out_create_no_revision() {
    let fixture = fixture();
    commit(&fixture.store, vec![service(1, "one")]).unwrap();
    let sealed = fixture.store.transact(&mut |transaction| {
        transaction.apply(&set(vec![service(1, "other"), service(2, "two")]))?;
        transaction.apply(&set(vec![service(1, "one"), delete(K::Services, id(2))]))?;
        transaction.seal(&Origin::default())
    });
    assert_eq!(sealed.unwrap(), None);
    assert_eq!(fixture.store.head(), Revision(1));
    assert_consistent(&fixture.store);
}

#[test]
fn unsealed_changes_are_not_committed() {
    let fixture = fixture();
    fixture
        .store
        .transact(&mut |transaction| {
            transaction.apply(&set(vec![service(1, "one")]))?;
            transaction.seal(&Origin::default())?;
            transaction.apply(&set(vec![service(2, "two")]))
        })
        .unwrap();
    assert!(has(&fixture.store, K::Services, 1));
    assert!(!has(&fixture.store, K::Services, 2));
    assert_consistent(&fixture.store);
}

#[test]
fn many_changes_that_are_not_unique_spoil_their_transaction() {
    let fixture = fixture();
    let mut changes: Vec<Change> = (0..1500)
        .map(|number| service(number, &number.to_string()))
        .collect();
    changes.push(service(5000, "7"));
    let result = fixture.store.transact(&mut |transaction| {
        let refused = transaction.apply(&set(changes.clone()));
        assert!(matches!(refused, Err(CommitError::Violations(_))));
        assert!(matches!(
            transaction.seal(&Origin::default()),
            Err(CommitError::Spoiled)
        ));
        Ok(())
    });
    assert!(matches!(result, Err(CommitError::Spoiled)), "{result:?}");
    assert_eq!(fixture.store.head(), Revision(0));
    assert_consistent(&fixture.store);
}

#[test]
fn the_last_change_of_a_kind_is_known() {
    let fixture = fixture();
    let store = &fixture.store;
    let changed = |store: &Store| [K::Services, K::Routes].map(|kind| store.last_change(kind));
    commit(store, vec![service(1, "s"), route(2, "r", 1)]).unwrap();
    assert_eq!(changed(store), [Revision(1), Revision(1)]);
    commit(store, vec![service(3, "t")]).unwrap();
    assert_eq!(changed(store), [Revision(2), Revision(1)]);
    // A commit without changes and a refused commit do not count.
    commit(store, vec![route(2, "r", 1)]).unwrap();
    commit(store, vec![route(4, "r", 1)]).unwrap_err();
    assert_eq!(changed(store), [Revision(2), Revision(1)]);
    // A cascading deletion counts as a change.
    let plugin = vec![("name", "key-auth".into()), ("route", reference(id(2)))];
    commit(store, vec![put(K::Plugins, id(5), &plugin)]).unwrap();
    commit(store, vec![delete(K::Routes, id(2))]).unwrap();
    assert_eq!(store.last_change(K::Plugins), Revision(4));
    // A reopened store does not know which types changed before, so every type may have changed.
    let fixture = fixture.reopen();
    assert_eq!(changed(&fixture.store), [Revision(4), Revision(4)]);
}

/// A service with `count` tags that begin with `prefix`.
fn tagged(count: usize, prefix: &str) -> ChangeSet {
    let tags: Vec<Value> = (0..count)
        .map(|number| Value::from(format!("{prefix}{number}")))
        .collect();
    ChangeSet {
        changes: vec![put(K::Services, id(1), &[("tags", tags.into())])],
        meta: Vec::new(),
    }
}

#[test]
fn replacing_the_tags_of_an_entity_costs_as_much_as_there_are() {
    testkit::cost::assert_linear(
        1000,
        |count| {
            let fixture = fixture_with(Options {
                max_size: 64 << 20,
                ..Options::default()
            });
            let before = tagged(count, "before");
            let origin = Origin::default();
            fixture.store.commit(None, before, &origin).unwrap();
            (fixture, tagged(count, "after"))
        },
        |(fixture, after)| {
            let origin = Origin::default();
            fixture.store.commit(None, after, &origin).unwrap();
        },
    );
}
