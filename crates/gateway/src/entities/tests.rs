use super::StoreEntities;
use model::{EntityKind, Object, Value, codec};
use plugin::Entities;
use plugins::credentials::KeyauthCredential;
use plugins::kinds::KEYAUTH_CREDENTIALS;
use store::{Change, ChangeLog, ChangeSet, Options, Origin, Revision, Store};
use tempfile::TempDir;
use uuid::Uuid;

const CONSUMER: Uuid = Uuid::from_u128(1);
const CREDENTIAL: Uuid = Uuid::from_u128(2);

fn store() -> (TempDir, Store) {
    plugins::install();
    let directory = tempfile::tempdir().expect("a directory");
    let (store, _) = Store::open(directory.path(), Options::default()).expect("a new store");
    (directory, store)
}

fn put<const N: usize>(kind: EntityKind, id: Uuid, fields: [(&str, Value); N]) -> Change {
    let mut entity: Object = fields.into_iter().collect();
    entity.push("id", id.to_string().into());
    let entity = codec::encode(&entity);
    Change::Put { kind, id, entity }
}

fn consumer(id: Uuid, username: &str) -> Change {
    put(EntityKind::Consumers, id, [("username", username.into())])
}

fn credential(key: &str, owner: Uuid) -> Change {
    let reference: Object = [("id", owner.to_string().into())].into_iter().collect();
    let fields = [("key", key.into()), ("consumer", reference.into())];
    put(KEYAUTH_CREDENTIALS, CREDENTIAL, fields)
}

fn commit(store: &Store, changes: Vec<Change>) {
    let changes = ChangeSet {
        changes,
        meta: Vec::new(),
    };
    let committed = store.commit(None, changes, &Origin::default());
    committed.expect("the changes are valid");
}

/// Checks who owns a key, by look-ups that read the store and by look-ups that are cached.
#[track_caller]
fn check(entities: &StoreEntities, key: &str, expected: Option<&str>) {
    let entities: &dyn Entities = entities;
    for _ in 0..4 {
        let found = entities.owned_by_unique::<KeyauthCredential>("key", key);
        let found = found.expect("the store can be read");
        let username = found.as_ref().and_then(|(_, owner)| owner.username.clone());
        assert_eq!(username.as_deref(), expected);
        let by_id = entities.owned_by_id::<KeyauthCredential>(CREDENTIAL);
        let by_id = by_id.expect("the store can be read");
        if let Some((credential, owner)) = found {
            assert_eq!(credential.consumer, owner.id);
            let (same, its_owner) = by_id.expect("the credential exists");
            assert_eq!((same.id, its_owner), (credential.id, owner));
        }
    }
}

#[test]
fn cached_credentials_have_the_newest_consumer() {
    let (_directory, store) = store();
    let entities = StoreEntities::new(store.clone());
    let other = Uuid::from_u128(3);
    check(&entities, "key", None);
    let changes = vec![consumer(CONSUMER, "nora"), credential("key", CONSUMER)];
    commit(&store, changes);
    check(&entities, "key", Some("nora"));
    commit(&store, vec![consumer(CONSUMER, "eleonora")]);
    check(&entities, "key", Some("eleonora"));
    commit(&store, vec![consumer(other, "ida")]);
    check(&entities, "key", Some("eleonora"));
    commit(&store, vec![credential("key", other)]);
    check(&entities, "key", Some("ida"));
    commit(&store, vec![credential("new", other)]);
    check(&entities, "key", None);
    check(&entities, "new", Some("ida"));
    let id = other;
    let kind = EntityKind::Consumers;
    commit(&store, vec![Change::Delete { kind, id }]);
    check(&entities, "new", None);
    let rollback = store.transact(&mut |transaction| {
        let back = transaction.changes_to(Revision(2));
        transaction.apply(&back.expect("the revision is kept"))?;
        transaction.seal(&Origin::default())
    });
    rollback.expect("the state can be restored");
    check(&entities, "key", Some("eleonora"));
    check(&entities, "new", None);
}

#[test]
fn a_credential_and_its_consumer_are_cached_apart_from_the_credential_alone() {
    let (_directory, store) = store();
    let entities = StoreEntities::new(store.clone());
    let changes = vec![consumer(CONSUMER, "nora"), credential("key", CONSUMER)];
    commit(&store, changes);
    let alone = || {
        let entities: &dyn Entities = &entities;
        let by_key = entities.by_unique::<KeyauthCredential>("key", "key");
        let by_id = entities.by_id::<KeyauthCredential>(CREDENTIAL);
        let ids = [by_key, by_id].map(|found| {
            let found = found.expect("the store can be read");
            found.expect("the credential exists").id.0
        });
        assert_eq!(ids, [CREDENTIAL; 2]);
    };
    for _ in 0..3 {
        alone();
        check(&entities, "key", Some("nora"));
    }
}
