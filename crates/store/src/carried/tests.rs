use super::{ID, Owned, SINCE_FORMAT, parse, put_sized};
use crate::facts::IndexTable;
use crate::header::FORMAT;
use crate::transaction::write_header;
use crate::{Change, ChangeLog, ChangeSet, Options, Origin, Revision, Store, View};
use model::entities::{Consumer, ConsumerId};
use model::{EntityKind, Object, Value, codec};
use plugins::kinds::KEYAUTH_CREDENTIALS;
use std::path::Path;
use uuid::Uuid;

const UNIQUE: usize = IndexTable::Unique as usize;

fn put<const N: usize>(kind: EntityKind, id: u128, fields: [(&str, Value); N]) -> Change {
    let id = Uuid::from_u128(id);
    let mut entity: Object = fields.into_iter().collect();
    entity.push("id", id.to_string().into());
    let entity = codec::encode(&entity);
    Change::Put { kind, id, entity }
}

fn consumer(username: &str) -> Change {
    put(EntityKind::Consumers, 1, [("username", username.into())])
}

fn commit(store: &Store, changes: Vec<Change>) {
    let changes = ChangeSet {
        changes,
        meta: Vec::new(),
    };
    store.commit(None, changes, &Origin::default()).unwrap();
}

/// Makes a store of the newest format one of format 2.
fn to_format_2(store: &Store) {
    let environment = store.environment();
    let tables = &environment.tables;
    let mut txn = environment.env.write_txn().unwrap();
    let mut header = View::new_borrowed(&txn, tables).unwrap().header().unwrap();
    let entries = tables.index[UNIQUE].iter(&txn).unwrap().map(|entry| {
        let (key, value) = entry.unwrap();
        (key.to_vec(), value.to_vec())
    });
    for (key, value) in entries.collect::<Vec<_>>() {
        let id = &value[..ID];
        header.sums[1 + UNIQUE].remove(&key, &value);
        header.sums[1 + UNIQUE].add(&key, id);
        tables.index[UNIQUE].put(&mut txn, &key, id).unwrap();
    }
    header.format = 2;
    write_header(&mut txn, tables, &mut header).unwrap();
    txn.commit().unwrap();
}

/// Checks the store, and returns the owner of the key and the length of the key's index entry.
fn found(store: &Store) -> (String, usize) {
    assert_eq!(store.verify().unwrap(), []);
    let view = store.view().unwrap();
    let kind = KEYAUTH_CREDENTIALS;
    let owned = view.owned_by_unique(kind, "key", "secret").unwrap();
    let prefix = [kind.number()];
    let table = view.tables().index[UNIQUE];
    let mut entries = table.prefix_iter(view.txn(), &prefix).unwrap();
    let (_, entry) = entries.next().unwrap().unwrap();
    let username = owned.unwrap().consumer.username.unwrap();
    (username.to_string(), entry.len())
}

fn open(directory: &Path) -> Store {
    Store::open(directory, Options::default()).unwrap().0
}

#[test]
fn a_store_of_format_2_is_used_as_it_is_until_a_process_opens_it_alone() {
    plugins::install();
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let reference: Object = [("id", Uuid::from_u128(1).to_string().into())]
        .into_iter()
        .collect();
    let fields = [("key", "secret".into()), ("consumer", reference.into())];
    let credential = put(KEYAUTH_CREDENTIALS, 2, fields);
    commit(&store, vec![consumer("nora"), credential]);
    let (owner, length) = found(&store);
    assert_eq!(owner, "nora");
    assert!(length > ID);

    to_format_2(&store);
    assert_eq!(found(&store), ("nora".to_owned(), ID));
    commit(&store, vec![consumer("eleonora")]);
    assert_eq!(found(&store), ("eleonora".to_owned(), ID));
    let lock = store.lend().unwrap();
    drop(store);
    let joined = Store::join(directory.path(), Options::default(), lock).unwrap();
    commit(&joined, vec![consumer("ida")]);
    assert_eq!(found(&joined), ("ida".to_owned(), ID));
    drop(joined);

    let converted = open(directory.path());
    let header = converted.view().unwrap().header().unwrap();
    assert_eq!((header.format, header.revision), (FORMAT, 3));
    assert_eq!(found(&converted), ("ida".to_owned(), length - 1));
    commit(&converted, vec![consumer("nora")]);
    assert_eq!(found(&converted), ("nora".to_owned(), length));
    assert_eq!(converted.head(), Revision(4));
    const { assert!(SINCE_FORMAT <= FORMAT) };
}

#[test]
fn an_entry_that_is_cut_is_damage() {
    let consumer = Consumer {
        id: ConsumerId(Uuid::from_u128(7)),
        username: Some("nora".into()),
        custom_id: None,
    };
    let mut value = vec![9; ID];
    put_sized(&mut value, Some(b"entity"));
    value.extend_from_slice(consumer.id.0.as_bytes());
    put_sized(&mut value, Some(b"nora"));
    put_sized(&mut value, None);
    let expected = Owned {
        entity: b"entity",
        consumer,
    };
    assert_eq!(parse(&value), Ok(Some(expected)));
    assert_eq!(parse(&value[..ID]), Ok(None));
    for length in (0..value.len()).filter(|length| *length != ID) {
        assert!(parse(&value[..length]).is_err(), "{length}");
    }
}
