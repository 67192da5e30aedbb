//! The contract of [`SessionStore`], which every implementation must keep, and the bounds of the one in memory.

use super::*;

fn new<'s>(id: &'s str, data: &'s str, expires: u64) -> NewSession<'s> {
    NewSession {
        id,
        owner: "nora",
        data,
        expires,
        replaces: None,
    }
}

fn found(store: &dyn SessionStore, id: &str, now: u64) -> Option<String> {
    let found = store.find(id, now).expect("the storage works");
    found.map(|session| session.data)
}

fn keeps_the_contract(store: &dyn SessionStore) {
    let create = |session, now| store.create(session, now);
    create(new("a", "data of a", 100), 10).expect("the id is new");
    assert_eq!(found(store, "a", 99).as_deref(), Some("data of a"));
    assert_eq!(found(store, "a", 100), None, "it has expired");
    assert_eq!(found(store, "b", 10), None);

    let again = create(new("a", "other", 200), 10);
    assert!(matches!(again, Err(SessionStoreError::Exists)));
    assert_eq!(found(store, "a", 10).as_deref(), Some("data of a"));

    let replacing = |id, expires, old, stale_until| NewSession {
        replaces: Some(Replaced {
            id: old,
            stale_until,
        }),
        ..new(id, "renewed", expires)
    };
    create(replacing("b", 200, "a", 30), 20).expect("the id is new");
    assert_eq!(found(store, "b", 199).as_deref(), Some("renewed"));
    assert_eq!(found(store, "a", 29).as_deref(), Some("data of a"));
    assert_eq!(found(store, "a", 30), None, "the replaced session is stale");

    create(replacing("c", 300, "b", 1000), 21).expect("the id is new");
    assert_eq!(found(store, "b", 200), None, "no session lives longer");
    create(replacing("d", 300, "c", 22), 22).expect("the id is new");
    assert_eq!(found(store, "c", 22), None, "it is deleted at once");
    create(replacing("e", 300, "unknown", 40), 22).expect("the old one may be gone");

    store.delete("e").expect("the storage works");
    store
        .delete("e")
        .expect("deleting it again changes nothing");
    assert_eq!(found(store, "e", 22), None);
    assert_eq!(found(store, "d", 22).as_deref(), Some("renewed"));
}

#[test]
fn sessions_in_memory_keep_the_contract() {
    keeps_the_contract(&MemorySessions::new(1 << 20));
}

#[test]
fn the_memory_is_bounded_and_the_first_to_expire_go() {
    let store = MemorySessions::new(10 * OVERHEAD);
    for number in 0..1000_u64 {
        let id = number.to_string();
        store
            .create(new(&id, "data", 5000 - number), 1)
            .expect("it fits");
        assert!(store.rows().bytes <= 10 * OVERHEAD);
    }
    assert_eq!(found(&store, "0", 1).as_deref(), Some("data"));
    let large = "x".repeat(10 * OVERHEAD);
    let refused = store.create(new("large", &large, 9000), 1);
    assert!(matches!(refused, Err(SessionStoreError::TooLarge)));
    assert_eq!(found(&store, "0", 1).as_deref(), Some("data"));
}

#[test]
fn expired_sessions_are_removed_in_slices() {
    let store = MemorySessions::new(1 << 20);
    for number in 0..100 {
        let id = format!("old {number}");
        store.create(new(&id, "data", 10), 1).expect("it fits");
    }
    store.create(new("one", "data", 90), 50).expect("it fits");
    assert_eq!(store.rows().by_id.len(), 101 - SLICE);
    for number in 0..20 {
        let id = format!("new {number}");
        store.create(new(&id, "data", 90), 50).expect("it fits");
    }
    assert_eq!(store.rows().by_id.len(), 21);
    assert_eq!(store.rows().by_expiry.len(), 21);
}
