//! Operations that read and write the store with a short and a long history. `micro count` counts their instructions
//! only if its arguments name them, because creating the long history takes minutes under callgrind.

use crate::fixtures::id;
use crate::operation::Operation;
use model::{EntityKind, Object, codec};
use std::hint::black_box;
use store::{
    Change, ChangeLog, ChangeSet, History, Options, Origin, Period, Retention, Revision, Store,
};
use tempfile::TempDir;

/// Numbers of kept revisions.
const LENGTHS: [usize; 2] = [100, 100_000];
const ENTITIES: usize = 1000;
/// Number of entities that the revisions change in turn, so that each has a long history of its own.
const CHANGED: usize = 50;
/// Number of revisions that one transaction makes durable while the history is created.
const GROUP: usize = 1000;
const PAGE: usize = 20;
const RUNS: u32 = 50;

pub(crate) fn operations() -> Vec<Operation> {
    let of_length = |length| {
        [
            commit(length),
            entity(length),
            reading("newest-page", length, |history, _| {
                let page = history.revisions(None, Period::ALWAYS, PAGE);
                page.expect(READABLE).items.len()
            }),
            reading("entity-history", length, |history, number| {
                let of = (EntityKind::Services, entity_id(number));
                let page = history.revisions_of(of.0, of.1, None, Period::ALWAYS, PAGE);
                page.expect(READABLE).items.len()
            }),
            reading("diff-of-last-two", length, |history, _| {
                let last = history.newest();
                count(history, Revision(last.0 - 1), last)
            }),
            reading("entity-at-first", length, |history, number| {
                let id = entity_id(number);
                // Revision 1 is the first with entities; at revision 0 the store is empty.
                let found = history.entity(EntityKind::Services, id, Revision(1));
                usize::from(found.expect(READABLE).is_some())
            }),
        ]
    };
    LENGTHS.into_iter().flat_map(of_length).collect()
}

const READABLE: &str = "the store can be read";

fn count(history: History<'_>, from: Revision, to: Revision) -> usize {
    let differences = history.diff(from, to, None).expect("both are kept");
    let seen = differences.map(|difference| black_box(difference.expect(READABLE)));
    seen.count()
}

fn entity_id(number: usize) -> uuid::Uuid {
    id((1 << 44) + number)
}

fn put(number: usize, round: usize) -> Change {
    let id = entity_id(number);
    let mut entity = Object::new();
    entity.push("id", id.to_string().into());
    entity.push("name", format!("service-{number}").into());
    entity.push("host", "upstream.test".into());
    entity.push("path", format!("/{round}").into());
    entity.push("created_at", 1_700_000_000.into());
    entity.push("updated_at", (1_700_000_000 + round as i64).into());
    Change::Put {
        kind: EntityKind::Services,
        id,
        entity: codec::encode(&entity),
    }
}

fn change_set(changes: Vec<Change>) -> ChangeSet {
    ChangeSet {
        changes,
        meta: Vec::new(),
    }
}

/// Creates a store with this many revisions. Each revision but the first changes one entity.
fn store(length: usize) -> (TempDir, Store) {
    let directory = TempDir::new().expect("a temporary directory can be made");
    let options = Options {
        // The default reserves more address space than valgrind provides.
        max_size: 1 << 30,
        retention: Retention {
            revisions: u64::MAX,
            bytes: u64::MAX,
            ..Retention::default()
        },
    };
    let (store, _) = Store::open(directory.path(), options).expect("an empty store can be opened");
    let first = (0..ENTITIES).map(|number| put(number, 0)).collect();
    let origin = origin();
    (store.commit(None, change_set(first), &origin)).expect("the change set can be applied");
    let rounds: Vec<usize> = (1..length).collect();
    for group in rounds.chunks(GROUP) {
        let made = store.transact(&mut |transaction| {
            for round in group {
                transaction.apply(&change_set(vec![put(round % CHANGED, *round)]))?;
                transaction.seal(&origin)?;
            }
            Ok(transaction.head())
        });
        made.expect("the change sets can be applied");
    }
    assert_eq!(store.head(), Revision(length as u64));
    (directory, store)
}

fn origin() -> Origin {
    Origin {
        source: "192.0.2.1:40000".to_owned(),
        actor: Some("deploy".to_owned()),
        request_id: Some("0123456789abcdef".to_owned()),
        message: Some("another path".to_owned()),
    }
}

/// Changes one entity and makes the change durable.
fn commit(length: usize) -> Operation {
    Operation::repeat(format!("history/commit/{length}"), RUNS, move || {
        let (directory, store) = store(length);
        let origin = origin();
        let mut rounds = length..;
        move || {
            // Moves the directory into the closure. Dropping it would delete the store.
            black_box(&directory);
            let round = rounds.next().expect("it goes on");
            let change_set = change_set(vec![put(round % CHANGED, round)]);
            let committed = store.commit(None, change_set, &origin);
            committed.expect("the change set can be applied");
        }
    })
}

/// Reads an entity in its current state.
fn entity(length: usize) -> Operation {
    Operation::repeat(format!("history/entity/{length}"), RUNS, move || {
        let (directory, store) = store(length);
        let mut next = (0..CHANGED).cycle();
        move || {
            black_box(&directory);
            let view = store.view().expect(READABLE);
            let id = entity_id(next.next().expect("it goes round"));
            let found = view.get(EntityKind::Services, id).expect(READABLE);
            assert!(black_box(found).is_some(), "the entity exists");
        }
    })
}

fn reading(name: &str, length: usize, read: fn(History<'_>, usize) -> usize) -> Operation {
    Operation::repeat(format!("history/{name}/{length}"), RUNS, move || {
        let (directory, store) = store(length);
        let mut next = (0..CHANGED).cycle();
        move || {
            black_box(&directory);
            let view = store.view().expect(READABLE);
            let history = view.history().expect(READABLE);
            let found = read(history, next.next().expect("it goes round"));
            assert!(black_box(found) > 0, "there is history");
        }
    })
}
