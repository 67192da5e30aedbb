//! Credentials are found together with their consumer, right after every change of either.

use crate::support::{
    Fixture, assert_consistent, commit, delete, fixture, id, put, reference, tags,
};
use model::entities::Consumer;
use model::{EntityKind as K, codec};
use plugins::kinds::{JWT_SECRETS, KEYAUTH_CREDENTIALS};
use store::{Change, ChangeSet, Origin, Revision, Store};

const CONSUMER: u128 = 1;
const CREDENTIAL: u128 = 2;

fn consumer(number: u128, username: &str) -> Change {
    let fields = [
        ("username", username.into()),
        ("custom_id", format!("custom-{username}").into()),
    ];
    put(K::Consumers, id(number), &fields)
}

fn credential(key: &str, owner: u128) -> Change {
    let fields = [("key", key.into()), ("consumer", reference(id(owner)))];
    put(KEYAUTH_CREDENTIALS, id(CREDENTIAL), &fields)
}

/// A store with a consumer and its key.
fn nora() -> Fixture {
    let fixture = fixture();
    let changes = vec![consumer(CONSUMER, "nora"), credential("key", CONSUMER)];
    commit(&fixture.store, changes).unwrap();
    fixture
}

/// Returns the username of the key's owner. Checks that the look-up agrees with the entities of the store.
fn owner(store: &Store, key: &str) -> Option<String> {
    assert_consistent(store);
    let view = store.view().unwrap();
    let kind = KEYAUTH_CREDENTIALS;
    let found = view.owned_by_unique(kind, "key", key).unwrap();
    let found_id = view.id_by_unique(kind, "key", key).unwrap();
    let expected = found_id.and_then(|id| view.owned(kind, id).unwrap());
    assert_eq!(found, expected);
    let found = found?;
    let stored = view.get(K::Consumers, found.consumer.id.0).unwrap();
    let stored: Consumer = codec::decode(stored.unwrap()).unwrap();
    assert_eq!(found.consumer, stored);
    assert_eq!(Some(found.entity), view.get(kind, found_id?).unwrap());
    found.consumer.username.map(|name| name.to_string())
}

#[track_caller]
fn check(store: &Store, key: &str, expected: Option<&str>) {
    assert_eq!(owner(store, key).as_deref(), expected);
}

#[test]
fn a_key_is_found_with_its_consumer_after_every_change_of_either() {
    let Fixture {
        store,
        directory: _directory,
        ..
    } = nora();
    check(&store, "key", Some("nora"));
    check(&store, "ke", None);
    let commit = |changes| commit(&store, changes).unwrap();

    commit(vec![consumer(CONSUMER, "eleonora")]);
    check(&store, "key", Some("eleonora"));
    commit(vec![put(
        K::Consumers,
        id(CONSUMER),
        &[("username", "n".into())],
    )]);
    check(&store, "key", Some("n"));
    commit(vec![credential("other", CONSUMER)]);
    check(&store, "other", Some("n"));
    check(&store, "key", None);
    commit(vec![consumer(7, "ida"), credential("other", 7)]);
    check(&store, "other", Some("ida"));
    commit(vec![consumer(CONSUMER, "not the owner")]);
    check(&store, "other", Some("ida"));
    commit(vec![delete(K::Consumers, id(7)), consumer(7, "ida again")]);
    check(&store, "other", Some("ida again"));
    commit(vec![consumer(7, "both"), credential("key", 7)]);
    check(&store, "key", Some("both"));
    commit(vec![delete(K::Consumers, id(7))]);
    check(&store, "key", None);
    commit(vec![consumer(7, "made anew"), credential("key", 7)]);
    check(&store, "key", Some("made anew"));
    commit(vec![delete(KEYAUTH_CREDENTIALS, id(CREDENTIAL))]);
    check(&store, "key", None);
}

#[test]
fn every_credential_of_a_consumer_follows_it() {
    let fixture = nora();
    let store = &fixture.store;
    let key = |number: u128| format!("key-{number}");
    let keys = (0..30u128).map(|number| {
        let fields = [
            ("key", key(number).into()),
            ("consumer", reference(id(CONSUMER))),
        ];
        let kind = [KEYAUTH_CREDENTIALS, JWT_SECRETS][usize::from(number % 2 == 1)];
        put(kind, id(100 + number), &fields)
    });
    commit(store, keys.collect()).unwrap();
    commit(store, vec![consumer(CONSUMER, "renamed")]).unwrap();
    assert_consistent(store);
    let view = store.view().unwrap();
    for number in 0..30 {
        let kind = [KEYAUTH_CREDENTIALS, JWT_SECRETS][usize::from(number % 2 == 1)];
        let found = view.owned_by_unique(kind, "key", &key(number)).unwrap();
        let username = found.unwrap().consumer.username;
        assert_eq!(username.as_deref(), Some("renamed"), "{number}");
    }
}

#[test]
fn a_rollback_brings_the_former_consumer_back() {
    let fixture = nora();
    let store = &fixture.store;
    commit(store, vec![consumer(CONSUMER, "renamed")]).unwrap();
    commit(store, vec![delete(K::Consumers, id(CONSUMER))]).unwrap();
    for (revision, expected) in [(2, Some("renamed")), (3, None), (1, Some("nora"))] {
        let rollback = store.transact(&mut |transaction| {
            let changes = transaction.changes_to(Revision(revision)).unwrap();
            transaction.apply(&changes)?;
            transaction.seal(&Origin::default())
        });
        rollback.unwrap();
        check(store, "key", expected);
    }
}

#[test]
fn what_a_transaction_undoes_changes_nothing() {
    let fixture = nora();
    let store = &fixture.store;
    let undone = store.transact(&mut |transaction| {
        let changes = vec![consumer(CONSUMER, "never"), credential("new", CONSUMER)];
        let changes = ChangeSet {
            changes,
            meta: Vec::new(),
        };
        transaction.apply(&changes)?;
        let view = transaction.view()?;
        let found = view.owned_by_unique(KEYAUTH_CREDENTIALS, "key", "new")?;
        assert_eq!(found.unwrap().consumer.username.as_deref(), Some("never"));
        drop(view);
        transaction.discard()
    });
    undone.unwrap();
    check(store, "new", None);
    check(store, "key", Some("nora"));
    let taken = commit(store, vec![consumer(CONSUMER, "x"), consumer(9, "x")]);
    assert!(taken.is_err());
    check(store, "key", Some("nora"));
}

#[test]
fn large_entries_are_found_too() {
    let fixture = nora();
    let store = &fixture.store;
    let long = "n".repeat(2000);
    let many = tags(&[&"t".repeat(2000)]);
    let mut fields = vec![
        ("key", "key".into()),
        ("consumer", reference(id(CONSUMER))),
        ("tags", many),
    ];
    commit(store, vec![consumer(CONSUMER, &long)]).unwrap();
    check(store, "key", Some(&long));
    let large = put(KEYAUTH_CREDENTIALS, id(CREDENTIAL), &fields);
    commit(store, vec![large]).unwrap();
    check(store, "key", Some(&long));
    commit(store, vec![consumer(CONSUMER, "short")]).unwrap();
    check(store, "key", Some("short"));
    fields.pop();
    let small = put(KEYAUTH_CREDENTIALS, id(CREDENTIAL), &fields);
    commit(store, vec![small]).unwrap();
    check(store, "key", Some("short"));
    // Texts that are hashed in keys.
    for key in ["k".repeat(600), "with\0zero".to_owned()] {
        commit(store, vec![credential(&key, CONSUMER)]).unwrap();
        check(store, &key, Some("short"));
        check(store, &format!("{key}."), None);
    }
}

#[test]
fn large_change_sets_and_first_ones_carry_consumers() {
    let fixture = fixture();
    let store = &fixture.store;
    for name in ["first", "second"] {
        let people = (0..1500u128).flat_map(|number| {
            let owner = 10_000 + number;
            let fields = [
                ("key", format!("key-{number}").into()),
                ("consumer", reference(id(owner))),
            ];
            [
                consumer(owner, &format!("{name}-{number}")),
                put(KEYAUTH_CREDENTIALS, id(20_000 + number), &fields),
            ]
        });
        commit(store, people.collect()).unwrap();
        for number in [0, 1499] {
            let expected = format!("{name}-{number}");
            check(store, &format!("key-{number}"), Some(&expected));
        }
    }
}
