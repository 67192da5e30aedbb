//! Stores in temporary directories, and small test entities.

use model::{EntityKind, Object, Value, codec};
use store::{
    Change, ChangeLog, ChangeSet, CommitError, Options, Origin, Recovery, Revision, Store,
};
use tempfile::TempDir;
use uuid::Uuid;

pub struct Fixture {
    pub store: Store,
    pub recovery: Recovery,
    pub directory: TempDir,
}

pub fn fixture() -> Fixture {
    fixture_with(Options::default())
}

pub fn fixture_with(options: Options) -> Fixture {
    plugins::install();
    let directory = TempDir::new().unwrap();
    let (store, recovery) = Store::open(directory.path(), options).unwrap();
    Fixture {
        store,
        recovery,
        directory,
    }
}

impl Fixture {
    /// Closes the store and opens its file again.
    pub fn reopen(self) -> Fixture {
        let Fixture {
            store, directory, ..
        } = self;
        drop(store);
        let (store, recovery) = Store::open(directory.path(), Options::default()).unwrap();
        Fixture {
            store,
            recovery,
            directory,
        }
    }
}

pub fn id(number: u128) -> Uuid {
    // Spread over the key space like random ids, but the same in every run.
    Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

pub fn reference(id: Uuid) -> Value {
    let mut reference = Object::new();
    reference.push("id", id.to_string().into());
    reference.into()
}

pub fn tags(tags: &[&str]) -> Value {
    let tags: Vec<Value> = tags.iter().map(|tag| Value::from(*tag)).collect();
    tags.into()
}

pub fn put(kind: EntityKind, id: Uuid, fields: &[(&str, Value)]) -> Change {
    let mut entity = Object::new();
    entity.push("id", id.to_string().into());
    for (name, value) in fields {
        entity.push(*name, value.clone());
    }
    Change::Put {
        kind,
        id,
        entity: codec::encode(&entity),
    }
}

pub fn delete(kind: EntityKind, id: Uuid) -> Change {
    Change::Delete { kind, id }
}

pub fn commit(store: &Store, changes: Vec<Change>) -> Result<Revision, CommitError> {
    let change_set = ChangeSet {
        changes,
        meta: Vec::new(),
    };
    store.commit(None, change_set, &Origin::default())
}

pub fn assert_consistent(store: &Store) {
    assert_eq!(store.verify().unwrap(), []);
}
