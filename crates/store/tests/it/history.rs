//! Reading older revisions.

use crate::support::{Fixture, assert_consistent, commit, delete, fixture, fixture_with, id, put};
use model::EntityKind as K;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{
    Change, ChangeLog, ChangeLogError, ChangeSet, Counts, Difference, Options, Origin, PastPage,
    Period, Retention, Revision, RevisionInfo, Store,
};
use uuid::Uuid;

fn consumer(number: u128, name: &str) -> Change {
    put(K::Consumers, id(number), &[("username", name.into())])
}

fn snapshot(store: &Store, revision: u64) -> Result<BTreeMap<Uuid, Vec<u8>>, ChangeLogError> {
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
fn the_last_entity_with_a_state_is_found_while_the_history_is_kept() {
    let fixture = fixture_with(Options {
        retention: Retention {
            revisions: 2,
            ..Retention::default()
        },
        ..Options::default()
    });
    let store = &fixture.store;
    let find = || {
        let view = store.view().unwrap();
        let history = view.history().unwrap();
        let is_a = |state: &[u8]| {
            let consumer: model::Object = model::codec::decode(state).unwrap();
            consumer.str("username") == Some("a")
        };
        history.last_with(K::Consumers, is_a).unwrap()
    };
    commit(store, vec![consumer(2, "a")]).unwrap();
    assert_eq!(find(), None, "it is the current state");
    commit(store, vec![delete(K::Consumers, id(2))]).unwrap();
    assert_eq!(find(), Some(id(2)));
    commit(store, vec![consumer(1, "a")]).unwrap();
    commit(store, vec![delete(K::Consumers, id(1))]).unwrap();
    assert_eq!(find(), Some(id(1)));
    commit(store, vec![consumer(3, "b")]).unwrap();
    commit(store, vec![consumer(3, "c")]).unwrap();
    while store.compact(100).unwrap() {}
    assert_eq!(find(), None, "it is no longer kept");
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
        Err(ChangeLogError::Unknown { .. })
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
    // Entities that changed back are not included, nor are those that were created and deleted.
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

fn bounded(retention: Retention) -> Fixture {
    fixture_with(Options {
        retention,
        ..Options::default()
    })
}

fn oldest(store: &Store) -> Revision {
    store.view().unwrap().history().unwrap().oldest()
}

/// Compacts to the end; returns the number of steps.
fn compact(store: &Store, limit: usize) -> usize {
    let mut steps = 1;
    while store.compact(limit).unwrap() {
        assert_consistent(store);
        steps += 1;
    }
    assert_consistent(store);
    steps
}

#[test]
fn compaction_bounds_the_number_of_revisions() {
    let fixture = bounded(Retention {
        revisions: 3,
        ..Retention::default()
    });
    let store = &fixture.store;
    assert!(!store.compact(1).unwrap());
    for round in 0..10 {
        commit(store, vec![consumer(1, &format!("a{round}"))]).unwrap();
    }
    assert!(store.is_compaction_overdue().unwrap());
    assert_eq!(snapshot(store, 1).unwrap(), state(&[consumer(1, "a0")]));
    assert_eq!(compact(store, 5), 4);
    assert!(!store.is_compaction_overdue().unwrap());
    assert_eq!(oldest(store), Revision(7));
    assert_eq!(snapshot(store, 7).unwrap(), state(&[consumer(1, "a6")]));
    match snapshot(store, 6) {
        Err(ChangeLogError::NotKept { revision, oldest }) => {
            assert_eq!((revision, oldest), (Revision(6), Revision(7)));
        }
        other => panic!("{other:?}"),
    }
    // The record of the oldest revision is removed, although its state can still be read.
    let view = store.view().unwrap();
    let history = view.history().unwrap();
    assert!(matches!(
        history.info(Revision(7)),
        Err(ChangeLogError::NotKept {
            oldest: Revision(8),
            ..
        })
    ));
    history.info(Revision(8)).unwrap();
}

#[test]
fn compaction_bounds_the_bytes() {
    let fixture = bounded(Retention {
        bytes: 500_000,
        ..Retention::default()
    });
    let store = &fixture.store;
    for round in 0..20 {
        let name = format!("{round}").repeat(100_000);
        commit(store, vec![consumer(1, &name)]).unwrap();
    }
    compact(store, 10);
    let oldest = oldest(store);
    assert!(oldest > Revision(10) && oldest < Revision(19), "{oldest}");
    for revision in oldest.0..=20 {
        let name = format!("{}", revision - 1).repeat(100_000);
        let expected = state(&[consumer(1, &name)]);
        assert_eq!(snapshot(store, revision).unwrap(), expected);
    }
}

#[test]
fn a_revision_that_exceeds_the_bytes_alone_ends_the_history_before_it() {
    let fixture = bounded(Retention {
        bytes: 500_000,
        ..Retention::default()
    });
    let store = &fixture.store;
    commit(store, vec![consumer(1, &"z".repeat(600_000))]).unwrap();
    assert_eq!(oldest(store), Revision(0));
    commit(store, vec![consumer(1, "small")]).unwrap();
    assert_eq!(oldest(store), Revision(2));
    assert_consistent(store);
    commit(store, vec![consumer(1, "again")]).unwrap();
    compact(store, 1);
    assert_eq!(oldest(store), Revision(2));
    assert_eq!(snapshot(store, 2).unwrap(), state(&[consumer(1, "small")]));
}

#[test]
fn compaction_removes_what_is_too_old_but_not_the_newest() {
    let fixture = bounded(Retention {
        age: Duration::from_millis(1),
        ..Retention::default()
    });
    let store = &fixture.store;
    for round in 0..3 {
        commit(store, vec![consumer(1, &format!("a{round}"))]).unwrap();
    }
    let newest = newest_info(store).at_ms;
    while now_ms() <= newest + 1 {
        std::thread::yield_now();
    }
    compact(store, 100);
    assert_eq!(oldest(store), Revision(2));
    assert_eq!(newest_info(store).revision, Revision(3));
}

/// A partly removed record is invisible and does not affect newer revisions.
#[test]
fn a_large_revision_goes_piece_by_piece() {
    const MANY: u128 = 2000;
    let fixture = bounded(Retention {
        revisions: 2,
        ..Retention::default()
    });
    let store = &fixture.store;
    let all =
        |round: u32| (0..MANY).map(move |number| consumer(number, &format!("{number}-{round}")));
    for round in 0..4 {
        commit(store, all(round).collect()).unwrap();
    }
    let mut steps = 0;
    while store.compact(1).unwrap() {
        assert_consistent(store);
        assert_eq!(oldest(store), Revision(if steps < 9 { 1 } else { 2 }));
        assert_eq!(
            snapshot(store, 3).unwrap(),
            state(&all(2).collect::<Vec<_>>())
        );
        steps += 1;
    }
    // Nine pieces and a head per revision.
    assert_eq!(steps, 19);
    assert_eq!(oldest(store), Revision(2));
    commit(store, vec![consumer(1, "x")]).unwrap();
    assert_consistent(store);
}

fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    elapsed.as_millis() as u64
}

fn newest_info(store: &Store) -> RevisionInfo {
    let view = store.view().unwrap();
    let history = view.history().unwrap();
    history.info(history.newest()).unwrap()
}

/// Creates revisions 1 to 5 with three consumers. Revision 2 creates the second consumer. Revision 4 deletes it and
/// creates the third.
fn five_revisions() -> Fixture {
    let fixture = fixture();
    for (number, changes) in [
        vec![consumer(1, "a")],
        vec![consumer(1, "b"), consumer(2, "x")],
        vec![consumer(2, "y")],
        vec![delete(K::Consumers, id(2)), consumer(3, "z")],
        vec![consumer(1, "c")],
    ]
    .into_iter()
    .enumerate()
    {
        let change_set = ChangeSet {
            changes,
            meta: Vec::new(),
        };
        let origin = Origin {
            source: "127.0.0.1:7".to_owned(),
            actor: (number == 2).then(|| "ci".to_owned()),
            request_id: None,
            message: Some(format!("change {}", number + 1)),
        };
        fixture.store.commit(None, change_set, &origin).unwrap();
    }
    fixture
}

fn numbers(page: &PastPage<RevisionInfo>) -> (Vec<u64>, Option<u64>) {
    let revisions = page.items.iter().map(|info| info.revision.0);
    (revisions.collect(), page.next.map(|next| next.0))
}

#[test]
fn revisions_are_listed_newest_first_with_who_made_them() {
    let fixture = five_revisions();
    let view = fixture.store.view().unwrap();
    let history = view.history().unwrap();
    let page = |before, size| {
        let page = history.revisions(before, Period::ALWAYS, size).unwrap();
        numbers(&page)
    };
    assert_eq!(page(None, 2), (vec![5, 4], Some(4)));
    assert_eq!(page(Some(Revision(4)), 2), (vec![3, 2], Some(2)));
    assert_eq!(page(Some(Revision(2)), 2), (vec![1], None));
    assert_eq!(page(Some(Revision(1)), 2), (vec![], None));
    assert_eq!(page(Some(Revision(99)), 5), (vec![5, 4, 3, 2, 1], None));
    let info = history.info(Revision(3)).unwrap();
    assert_eq!(info.origin.source, "127.0.0.1:7");
    assert_eq!(info.origin.actor.as_deref(), Some("ci"));
    assert_eq!(info.origin.message.as_deref(), Some("change 3"));
    let counts = |revision| history.info(Revision(revision)).unwrap().counts;
    let expected = |created, updated, deleted| Counts {
        created,
        updated,
        deleted,
    };
    assert_eq!(counts(1), expected(1, 0, 0));
    assert_eq!(counts(2), expected(1, 1, 0));
    assert_eq!(counts(4), expected(1, 0, 1));
    for unknown in [0, 6] {
        let missing = history.info(Revision(unknown));
        assert!(matches!(missing, Err(ChangeLogError::Unknown { .. })));
    }
}

#[test]
fn a_period_bounds_the_list() {
    let fixture = fixture();
    let store = &fixture.store;
    let mut times = vec![0];
    for round in 0..6 {
        // Every other revision gets a later millisecond than the one before.
        while round % 2 == 0 && now_ms() <= times[times.len() - 1] {
            std::thread::yield_now();
        }
        commit(store, vec![consumer(1, &format!("a{round}"))]).unwrap();
        times.push(newest_info(store).at_ms);
    }
    let view = store.view().unwrap();
    let history = view.history().unwrap();
    for since_ms in times.iter().flat_map(|time| [*time, time + 1]) {
        for until_ms in times
            .iter()
            .flat_map(|time| [time.saturating_sub(1), *time])
        {
            let period = Period { since_ms, until_ms };
            let page = history.revisions(None, period, 100).unwrap();
            let within = (1..=6).rev().filter(|revision: &u64| {
                (since_ms..=until_ms).contains(&times[*revision as usize])
            });
            assert_eq!(numbers(&page), (within.collect(), None), "{period:?}");
            let of_it = history
                .revisions_of(K::Consumers, id(1), None, period, 100)
                .unwrap();
            assert_eq!(of_it.items.len(), page.items.len());
        }
    }
}

#[test]
fn an_entity_has_a_history_of_its_own() {
    let fixture = five_revisions();
    let view = fixture.store.view().unwrap();
    let history = view.history().unwrap();
    let of = |number, before, size| {
        let page = history
            .revisions_of(K::Consumers, id(number), before, Period::ALWAYS, size)
            .unwrap();
        let shown = page.items.into_iter().map(|(info, difference)| {
            assert_eq!((difference.kind, difference.id), (K::Consumers, id(number)));
            let name = |state: Option<&[u8]>| state.map(username);
            (
                info.revision.0,
                name(difference.before),
                name(difference.after),
            )
        });
        (shown.collect::<Vec<_>>(), page.next)
    };
    let name = |name: &str| Some(name.to_owned());
    let second = vec![
        (4, name("y"), None),
        (3, name("x"), name("y")),
        (2, None, name("x")),
    ];
    assert_eq!(of(2, None, 10), (second.clone(), None));
    assert_eq!(of(2, None, 1), (second[..1].to_vec(), Some(Revision(4))));
    assert_eq!(
        of(2, Some(Revision(4)), 1),
        (second[1..2].to_vec(), Some(Revision(3)))
    );
    assert_eq!(of(2, Some(Revision(2)), 1), (vec![], None));
    assert_eq!(of(1, None, 1).0, [(5, name("b"), name("c"))]);
    assert_eq!(of(9, None, 10), (vec![], None));
}

fn username(entity: &[u8]) -> String {
    let entity: model::Object = model::codec::decode(entity).unwrap();
    entity.str("username").unwrap().to_owned()
}

#[test]
fn a_revision_shows_its_changes_part_by_part() {
    const MANY: usize = 1000;
    let fixture = fixture();
    let store = &fixture.store;
    commit(store, vec![consumer(5, "before")]).unwrap();
    let changes: Vec<_> = (0..MANY as u128)
        .map(|number| consumer(number, &format!("n{number}")))
        .collect();
    commit(store, changes.clone()).unwrap();
    commit(
        store,
        vec![consumer(5, "after"), delete(K::Consumers, id(6))],
    )
    .unwrap();
    let view = store.view().unwrap();
    let history = view.history().unwrap();
    let mut ids: Vec<Uuid> = changes.iter().map(Change::id).collect();
    ids.sort();
    for size in [1, 7, 239, 240, 241, MANY, MANY + 1] {
        let mut seen = Vec::new();
        loop {
            let part = history.changes(Revision(2), seen.len(), size).unwrap();
            if part.is_empty() {
                break;
            }
            assert!(part.len() <= size);
            seen.extend(part);
        }
        let found: Vec<Uuid> = seen.iter().map(|change| change.id).collect();
        assert_eq!(found, ids, "{size}");
        for change in seen {
            let before = (change.id == id(5)).then(|| "before".to_owned());
            assert_eq!(change.before.map(username), before);
            let number = (0..).find(|number| id(*number) == change.id).unwrap();
            assert_eq!(change.after.map(username), Some(format!("n{number}")));
        }
    }
    let last_piece = (u32::MAX as usize).saturating_mul(240);
    for beyond in [
        MANY,
        last_piece - 1,
        last_piece,
        last_piece.saturating_add(240),
        usize::MAX,
    ] {
        let part = history.changes(Revision(2), beyond, 1).unwrap();
        assert_eq!(part, [], "{beyond}");
    }
}

#[test]
fn a_diff_has_the_net_changes_in_either_direction() {
    let fixture = five_revisions();
    let view = fixture.store.view().unwrap();
    let history = view.history().unwrap();
    let diff = |from, to| {
        let diff = history.diff(Revision(from), Revision(to), None).unwrap();
        let mut named: Vec<_> = diff
            .map(|difference| {
                let Difference {
                    id, before, after, ..
                } = difference.unwrap();
                let number = (0..).find(|number| self::id(*number) == id).unwrap();
                (number, before.map(username), after.map(username))
            })
            .collect();
        named.sort();
        named
    };
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(
        diff(1, 5),
        [(1, name("a"), name("c")), (3, None, name("z"))]
    );
    assert_eq!(
        diff(5, 1),
        [(1, name("c"), name("a")), (3, name("z"), None)]
    );
    assert_eq!(diff(3, 3), []);
    assert_eq!(diff(2, 3), [(2, name("x"), name("y"))]);
    let all: Vec<_> = history
        .diff(Revision(0), Revision(5), None)
        .unwrap()
        .collect();
    for (index, one) in all.iter().enumerate() {
        let one = one.as_ref().unwrap();
        let rest = history
            .diff(Revision(0), Revision(5), Some((one.kind, one.id)))
            .unwrap();
        assert_eq!(rest.count(), all.len() - index - 1);
    }
    assert!(history.diff(Revision(0), Revision(6), None).is_err());
}

#[test]
fn a_rollback_creates_a_revision() {
    let fixture = five_revisions();
    let store = &fixture.store;
    let before = snapshot(store, 3).unwrap();
    let back = store
        .transact(&mut |transaction| {
            let changes = transaction.changes_to(Revision(3)).unwrap();
            transaction.apply(&changes)?;
            transaction.seal(&Origin::program("rollback"))
        })
        .unwrap();
    assert_eq!(back, Some(Revision(6)));
    assert_eq!(snapshot(store, 6).unwrap(), before);
    assert_consistent(store);
    store
        .transact(&mut |transaction| {
            assert!(transaction.changes_to(Revision(6)).unwrap().is_empty());
            assert!(matches!(
                transaction.changes_to(Revision(7)),
                Err(ChangeLogError::Unknown { .. })
            ));
            Ok(())
        })
        .unwrap();
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
