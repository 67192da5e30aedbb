//! Tests of the store of sessions.

use super::counts::ALL;
use super::*;
use tempfile::TempDir;

const NORA: Uuid = Uuid::from_u128(1);
const OTTO: Uuid = Uuid::from_u128(2);

fn open(directory: &TempDir, bounds: Bounds) -> EmbeddedSessions {
    let path = directory.path().join("sessions");
    EmbeddedSessions::open(&path, 1 << 28, bounds).unwrap()
}

fn store() -> (TempDir, EmbeddedSessions) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, Bounds::default());
    (directory, store)
}

fn new<'s>(session_id: &'s str, data: &'s str, ends: u64) -> NewSession<'s> {
    NewSession {
        session_id,
        owner: NORA,
        data,
        ends,
        replaces: None,
    }
}

fn found(store: &EmbeddedSessions, id: &str, now: u64) -> Option<String> {
    let found = store.find(id, now).unwrap();
    found.map(|session| session.data)
}

/// Waits until everything that was queued is in the tables.
fn settle(store: &EmbeddedSessions) {
    wait_for(store.remove(Uuid::nil())).unwrap();
}

fn wait_for<T: Send + 'static>(reply: SessionReply<T>) -> Result<T, SessionStoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(reply)
}

/// Runs a check before the writer has written, and after.
fn both(store: &EmbeddedSessions, check: impl Fn()) {
    check();
    settle(store);
    check();
}

#[test]
fn sessions_are_found_until_they_end_or_are_replaced() {
    let (_directory, store) = store();
    store.create(new("a", "data of a", 100), 10).unwrap();
    both(&store, || {
        assert_eq!(found(&store, "a", 99).as_deref(), Some("data of a"));
        assert_eq!(found(&store, "a", 100), None, "it has ended");
        assert_eq!(found(&store, "b", 10), None);
    });
    store.create(new("a", "other", 200), 10).unwrap();
    settle(&store);
    assert_eq!(found(&store, "a", 10).as_deref(), Some("data of a"));

    let replacing = |id, ends, old, stale_until| NewSession {
        replaces: Some(Replaced {
            session_id: old,
            stale_until,
        }),
        ..new(id, "renewed", ends)
    };
    store.create(replacing("b", 200, "a", 30), 20).unwrap();
    both(&store, || {
        assert_eq!(found(&store, "b", 199).as_deref(), Some("renewed"));
        let stale = store.find("a", 29).unwrap().unwrap();
        assert!(stale.is_replaced);
        assert_eq!(
            found(&store, "a", 30),
            None,
            "the replaced session is stale"
        );
    });
    store.create(replacing("c", 300, "b", 1000), 21).unwrap();
    both(&store, || {
        assert_eq!(found(&store, "b", 200), None, "no session lives longer")
    });
    store.create(replacing("d", 300, "c", 22), 22).unwrap();
    both(&store, || {
        assert_eq!(found(&store, "c", 22), None, "it is deleted at once")
    });
    store
        .create(replacing("e", 300, "unknown", 40), 22)
        .unwrap();
    wait_for(store.delete("e")).unwrap();
    wait_for(store.delete("e")).unwrap();
    both(&store, || {
        assert_eq!(found(&store, "e", 22), None);
        assert_eq!(found(&store, "d", 22).as_deref(), Some("renewed"));
    });
}

#[test]
fn sessions_survive_a_restart() {
    let (directory, store) = store();
    store.create(new("a", "data of a", 100), 10).unwrap();
    store.create(new("b", "data of b", 100), 10).unwrap();
    wait_for(store.delete("b")).unwrap();
    drop(store);
    let store = open(&directory, Bounds::default());
    assert_eq!(found(&store, "a", 99).as_deref(), Some("data of a"));
    assert_eq!(found(&store, "b", 99), None);
}

#[test]
fn an_owner_removes_only_its_own_sessions_the_oldest_first() {
    let directory = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        rows: 100,
        of_owner: 20,
        bytes_of_owner: 1 << 20,
        ..Bounds::default()
    };
    let store = open(&directory, bounds);
    let of_otto = NewSession {
        owner: OTTO,
        ..new("otto", "data", 50)
    };
    store.create(of_otto, 1).unwrap();
    let ids: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    for id in &ids {
        // A later end does not protect it.
        store
            .create(new(id, "data", 5000 - id.len() as u64), 1)
            .unwrap();
    }
    settle(&store);
    let kept = ids.iter().filter(|id| found(&store, id, 1).is_some());
    assert_eq!(
        kept.collect::<Vec<_>>(),
        ids[180..].iter().collect::<Vec<_>>()
    );
    assert!(found(&store, "otto", 1).is_some());
}

#[test]
fn owners_share_the_room() {
    let directory = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        rows: 100,
        of_owner: 1000,
        bytes_of_owner: 6000,
        ..Bounds::default()
    };
    let store = open(&directory, bounds);
    for owner in 0..10_u128 {
        for number in 0..60 {
            let id = format!("{owner} {number}");
            let owner = Uuid::from_u128(owner);
            let data = "x".repeat(20);
            let session = NewSession {
                owner,
                ..new(&id, &data, 90)
            };
            store.create(session, 1).unwrap();
        }
    }
    settle(&store);
    let rows = store.list(None, 1000, 1).unwrap();
    assert!(rows.len() <= 100, "{}", rows.len());
    let of = |owner| {
        let owner = Uuid::from_u128(owner);
        rows.iter().filter(|row| row.owner == owner).count()
    };
    assert_eq!([of(0), of(1), of(2)], [50, 25, 13]);
    // The first owner has more than its share now. A new session takes the place of one, and a renewed one of none.
    let renewed = NewSession {
        owner: Uuid::from_u128(0),
        replaces: Some(Replaced {
            session_id: "0 59",
            stale_until: 50,
        }),
        ..new("0 new", "x", 90)
    };
    store.create(renewed, 1).unwrap();
    settle(&store);
    assert!(store.find("0 59", 1).unwrap().unwrap().is_replaced);
    assert_eq!(found(&store, "0 59", 50), None);
    let rows = store.list(None, 1000, 1).unwrap();
    let of_first = rows.iter().filter(|row| row.owner == Uuid::from_u128(0));
    assert_eq!(of_first.count(), 50);
    let before = store.list(None, 1000, 1).unwrap().len();
    assert!(before >= 99);
    let large = "x".repeat(7000);
    store.create(new("large", &large, 90), 1).unwrap();
    settle(&store);
    assert_eq!(found(&store, "large", 1), None);
    let large = "x".repeat(MAX_DATA + 1);
    let refused = store.create(new("large", &large, 90), 1);
    assert!(matches!(refused, Err(SessionStoreError::TooLarge)));
}

#[test]
fn ended_sessions_are_removed_in_slices() {
    let (_directory, store) = store();
    let rows = || store.tables.list(None, 1000, 0).unwrap().len();
    for number in 0..100 {
        store
            .create(new(&number.to_string(), "data", 10), 1)
            .unwrap();
    }
    settle(&store);
    assert_eq!(rows(), 100);
    store.create(new("one", "data", 90), 50).unwrap();
    settle(&store);
    assert_eq!(rows(), 101 - 8);
    for number in 0..20 {
        let id = format!("new {number}");
        store.create(new(&id, "data", 90), 50).unwrap();
    }
    settle(&store);
    assert_eq!(rows(), 21);
}

#[test]
fn a_row_that_cannot_be_read_is_in_nobodys_way() {
    let (_directory, store) = store();
    let mut write = store.tables.write().unwrap();
    write.put_damaged(Uuid::from_u128(9), 10).unwrap();
    write.commit().unwrap();
    store.create(new("a", "data", 90), 50).unwrap();
    settle(&store);
    assert_eq!(found(&store, "a", 50).as_deref(), Some("data"));
    assert_eq!(store.tables.list(None, 10, 0).unwrap().len(), 1);
}

#[test]
fn an_owner_with_a_row_that_cannot_be_read_gets_new_ones() {
    let directory = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        of_owner: 2,
        ..Bounds::default()
    };
    let store = open(&directory, bounds);
    let damage = |ends: u64| {
        let row = store.tables.list(None, 1, 0).unwrap().remove(0);
        let mut write = store.tables.write().unwrap();
        write.put_damaged(row.id, ends).unwrap();
        write.commit().unwrap();
    };
    // One is removed as one that has ended, and the other one while it makes room.
    store.create(new("a", "data", 10), 5).unwrap();
    settle(&store);
    damage(10);
    store.create(new("b", "data", 90), 50).unwrap();
    settle(&store);
    damage(90);
    for id in ["c", "d", "e"] {
        store.create(new(id, "data", 90), 50).unwrap();
        settle(&store);
        assert_eq!(found(&store, id, 50).as_deref(), Some("data"), "{id}");
    }
    assert_eq!(found(&store, "d", 50).as_deref(), Some("data"));
}

#[test]
fn an_idle_store_removes_what_has_ended() {
    let (_directory, store) = store();
    for number in 0..1100 {
        let id = number.to_string();
        store
            .create(new(&id, "data", 10 + number / 1050), 1)
            .unwrap();
    }
    settle(&store);
    let rows = || store.tables.list(None, 2000, 0).unwrap().len();
    assert!(!store.tables.tidy(9).unwrap());
    assert_eq!(rows(), 1100);
    assert!(store.tables.tidy(10).unwrap());
    assert_eq!(rows(), 1100 - 1024);
    assert!(!store.tables.tidy(10).unwrap());
    assert_eq!(rows(), 50);
    assert!(!store.tables.tidy(11).unwrap());
    assert_eq!(rows(), 0);
}

#[test]
fn rows_are_listed_in_the_order_in_which_they_were_made() {
    let (_directory, store) = store();
    let ids: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    for id in &ids {
        store.create(new(id, "data", 90), 1).unwrap();
    }
    settle(&store);
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(after, 7, 1).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        listed.extend(page.into_iter().map(|row| row.session_id));
    }
    assert_eq!(listed, ids);
    assert!(
        store.list(None, 7, 90).unwrap().is_empty(),
        "all have ended"
    );
}

#[test]
fn rows_are_written_under_their_id() {
    let (_directory, store) = store();
    let row = |id: u128, session_id: &str| SessionRow {
        id: Uuid::from_u128(id),
        session_id: session_id.to_owned(),
        data: Some("x".to_owned()),
        expires: None,
        created_at: 5,
        ends: None,
        owner: Uuid::nil(),
        is_replaced: false,
    };
    let put = |row, expected| wait_for(store.put(row, expected, 10)).unwrap();
    let same = Expected::Same;
    assert_eq!(put(row(1, "a"), Expected::Nothing), Put::Done);
    assert_eq!(put(row(1, "b"), Expected::Nothing), Put::IdExists);
    assert_eq!(put(row(2, "a"), Expected::Nothing), Put::SessionIdExists);
    assert_eq!(put(row(2, "a"), Expected::Anything), Put::SessionIdExists);
    assert_eq!(put(row(1, "b"), same(row(1, "other"))), Put::Changed);
    assert_eq!(put(row(1, "b"), same(row(1, "a"))), Put::Done);
    assert_eq!(put(row(1, "c"), same(row(1, "a"))), Put::Changed);
    assert_eq!(put(row(9, "c"), same(row(9, "c"))), Put::Changed);
    assert_eq!(
        store.row(Uuid::from_u128(1), 10).unwrap(),
        Some(row(1, "b"))
    );
    assert_eq!(store.row_of("b", 10).unwrap(), Some(row(1, "b")));
    assert_eq!(store.row_of("a", 10).unwrap(), None);
    wait_for(store.remove(Uuid::from_u128(1))).unwrap();
    assert_eq!(store.row(Uuid::from_u128(1), 10).unwrap(), None);
    assert_eq!(put(row(3, "b"), Expected::Nothing), Put::Done);
}

#[test]
fn a_row_that_is_replaced_keeps_its_owner() {
    let (_directory, store) = store();
    store.create(new("a", "data", 90), 1).unwrap();
    let renewed = NewSession {
        replaces: Some(Replaced {
            session_id: "a",
            stale_until: 50,
        }),
        ..new("b", "data", 90)
    };
    store.create(renewed, 1).unwrap();
    settle(&store);
    let known = store.row_of("a", 1).unwrap().unwrap();
    let other = SessionRow {
        data: Some("other".to_owned()),
        owner: Uuid::nil(),
        is_replaced: false,
        ..known.clone()
    };
    wait_for(store.put(other, Expected::Anything, 1)).unwrap();
    let now = store.row_of("a", 1).unwrap().unwrap();
    assert_eq!((now.owner, now.is_replaced), (NORA, true));
    assert_eq!(now.data.as_deref(), Some("other"));
}

#[test]
fn all_sessions_together_have_a_bound_of_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let bounds = Bounds {
        bytes: 40_000,
        ..Bounds::default()
    };
    let data = "x".repeat(1000);
    let fill = |store: &EmbeddedSessions| {
        for owner in 1..=10 {
            for number in 0..40 {
                let id = format!("{owner} {number}");
                let session = NewSession {
                    owner: Uuid::from_u128(owner),
                    ..new(&id, &data, 90)
                };
                store.create(session, 1).unwrap();
            }
        }
        settle(store);
        let rows = store.list(None, 1000, 1).unwrap();
        let of = |owner| {
            let owner = Uuid::from_u128(owner);
            rows.iter().filter(|row| row.owner == owner).count()
        };
        assert!(rows.len() * 1000 < 40_000, "{}", rows.len());
        assert!(rows.len() > 30, "{}", rows.len());
        // Each owner has at most as much as there was left, and nobody lost a session to another one.
        assert!(of(1) > of(2) && of(2) > of(3) && of(3) > 0);
        rows
    };
    let store = open(&directory, bounds);
    let rows = fill(&store);
    let row = SessionRow {
        id: Uuid::from_u128(7),
        session_id: "large".to_owned(),
        data: Some("x".repeat(30_000)),
        owner: Uuid::nil(),
        ..rows[0].clone()
    };
    let put = |store: &EmbeddedSessions| wait_for(store.put(row.clone(), Expected::Nothing, 1));
    assert_eq!(put(&store).unwrap(), Put::Full);
    // Removing makes room, and the sums of a store that has none or wrong ones are found.
    for row in rows {
        wait_for(store.remove(row.id)).unwrap();
    }
    assert_eq!(put(&store).unwrap(), Put::Done);
    let sums = |store: &EmbeddedSessions| store.tables.write().unwrap().count_at(ALL).unwrap();
    let right = sums(&store);
    let mut store = store;
    for wrong in [Some((7, 1 << 40)), None] {
        let mut write = store.tables.write().unwrap();
        write.spoil_sums(wrong).unwrap();
        write.commit().unwrap();
        drop(store);
        store = open(&directory, bounds);
        assert_eq!(sums(&store), right);
    }
    let second = SessionRow {
        id: Uuid::from_u128(8),
        session_id: "second".to_owned(),
        ..row.clone()
    };
    assert_eq!(wait_for(store.remove(row.id)).ok(), Some(()));
    assert_eq!(
        wait_for(store.put(second.clone(), Expected::Nothing, 1)).unwrap(),
        Put::Done
    );
    let third = SessionRow {
        id: Uuid::from_u128(9),
        session_id: "third".to_owned(),
        owner: NORA,
        ..second
    };
    assert_eq!(
        wait_for(store.put(third, Expected::Nothing, 1)).unwrap(),
        Put::Full
    );
}

#[test]
fn writers_of_many_threads_lose_nothing() {
    let (_directory, store) = store();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..200 {
                    let id = format!("{thread} {number}");
                    store.create(new(&id, &id, 90), 1).unwrap();
                    assert_eq!(found(store, &id, 1), Some(id));
                }
            });
        }
    });
    settle(&store);
    assert_eq!(store.list(None, 1000, 1).unwrap().len(), 800);
    assert!(store.pending.is_empty());
}

#[test]
fn a_full_store_still_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions");
    let store = EmbeddedSessions::open(&path, 4 << 20, Bounds::default()).unwrap();
    let data = "x".repeat(1000);
    let ids: Vec<String> = (0..8000).map(|number| number.to_string()).collect();
    for id in &ids {
        store.create(new(id, &data, 90), 1).unwrap();
        if id.ends_with("00") {
            settle(&store);
        }
    }
    settle(&store);
    let kept = |store: &EmbeddedSessions| {
        let kept = ids.iter().filter(|id| found(store, id, 1).is_some());
        kept.count()
    };
    let before = kept(&store);
    assert!((1000..4000).contains(&before), "{before}");
    let row = SessionRow {
        id: Uuid::from_u128(1),
        session_id: "put".to_owned(),
        data: None,
        expires: None,
        created_at: 5,
        ends: None,
        owner: Uuid::nil(),
        is_replaced: false,
    };
    assert_eq!(
        wait_for(store.put(row, Expected::Nothing, 1)).unwrap(),
        Put::Full
    );
    // A session that is renewed stays, with the room that it had.
    let renewed = NewSession {
        replaces: Some(Replaced {
            session_id: &ids[100],
            stale_until: 50,
        }),
        ..new("new", &data, 90)
    };
    store.create(renewed, 1).unwrap();
    settle(&store);
    assert!(found(&store, "new", 1).is_some());
    assert!(found(&store, &ids[100], 1).is_none());
    let before = before - 1;
    let deleted: Vec<_> = ids[101..601].iter().map(|id| store.delete(id)).collect();
    for reply in deleted {
        wait_for(reply).unwrap();
    }
    assert_eq!(kept(&store), before - 500);
    store.create(new("one more", &data, 90), 1).unwrap();
    settle(&store);
    assert!(found(&store, "one more", 1).is_some());
}
