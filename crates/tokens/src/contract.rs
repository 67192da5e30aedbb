//! The tests that every store of tokens must pass. Each gets an empty store and panics if the store breaks the contract.

#![expect(clippy::unwrap_used, reason = "a test panics if the store fails")]

mod rows;

use crate::store::{
    ImportOutcome, Imported, Known, Listed, NewCode, NewToken, Owner, RefreshOutcome, State,
    TokenStore,
};
use std::pin::Pin;
use std::sync::Arc;
use uuid::Uuid;

/// The time of the tests: 2026-01-01.
pub const NOW: i64 = 1_767_225_600;

type Store = Arc<dyn TokenStore>;

/// A test.
pub type Test = fn(Store) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// All tests by name.
pub const TESTS: &[(&str, Test)] = &[
    ("what is issued is found", |store| {
        Box::pin(issued_is_found(store))
    }),
    ("rows end", |store| Box::pin(rows_end(store))),
    ("a code gives one token", |store| {
        Box::pin(a_code_gives_one_token(store))
    }),
    ("a replayed code ends its token", |store| {
        Box::pin(a_replayed_code_ends_its_token(store))
    }),
    ("a code is of no use to another client", |store| {
        Box::pin(a_code_is_of_no_use_to_another_client(store))
    }),
    ("a refresh token is used once", |store| {
        Box::pin(a_refresh_token_is_used_once(store))
    }),
    (
        "used refresh tokens are known until their grant ends",
        |store| Box::pin(used_tokens_are_known_until_their_grant_ends(store)),
    ),
    ("a lost answer can be asked for again once", |store| {
        Box::pin(a_lost_answer_comes_again_once(store))
    }),
    (
        "a replay ends the last of a grant, also if rows in between are gone",
        |store| {
            Box::pin(a_replay_ends_the_last_also_if_rows_in_between_are_gone(
                store,
            ))
        },
    ),
    ("a replay ends the last of a grant", |store| {
        Box::pin(a_replay_ends_the_last(store))
    }),
    ("renewed rows keep id and refresh token", |store| {
        Box::pin(renewed_rows_keep_their_id(store))
    }),
    ("revoked rows stay revoked", |store| {
        Box::pin(revoked_rows_stay_revoked(store))
    }),
    ("rows that have ended are known by their id", |store| {
        Box::pin(ended_rows_are_known_by_their_id(store))
    }),
    ("imports can be repeated", |store| {
        Box::pin(rows::imports_can_be_repeated(store))
    }),
    ("imports refuse contradictions", |store| {
        Box::pin(rows::imports_refuse_contradictions(store))
    }),
    ("imports replace what a deleted entity has left", |store| {
        Box::pin(rows::imports_replace_orphans(store))
    }),
    ("a hash can be imported", |store| {
        Box::pin(rows::a_hash_can_be_imported(store))
    }),
    ("lists are complete", |store| {
        Box::pin(rows::lists_are_complete(store))
    }),
    ("lists go on while rows change", |store| {
        Box::pin(rows::lists_go_on_while_rows_change(store))
    }),
    ("a row is created once", |store| {
        Box::pin(rows::a_row_is_created_once(store))
    }),
    ("a row is replaced under its id", |store| {
        Box::pin(rows::a_row_is_replaced_under_its_id(store))
    }),
    ("only a put revives a row", |store| {
        Box::pin(rows::only_a_put_revives(store))
    }),
    ("live rows are counted", |store| {
        Box::pin(rows::live_rows_are_counted(store))
    }),
    ("expiry frees what has ended only", |store| {
        Box::pin(expiry_frees_what_has_ended(store))
    }),
];

fn owner(id: u128) -> Owner {
    Owner {
        id: Uuid::from_u128(id),
        created: 7,
    }
}

/// A token with a refresh token: two hours, and 14 days to refresh it.
pub fn new_token() -> NewToken {
    NewToken {
        credential: owner(1),
        service: Some(owner(2)),
        expires_in: 7200,
        with_refresh_token: true,
        ttl: Some(1_209_600),
        scope: Some("email profile".to_owned()),
        authenticated_userid: Some("ann".to_owned()),
    }
}

fn new_code() -> NewCode {
    NewCode {
        credential: owner(1),
        service: Some(owner(2)),
        plugin: Some(Uuid::from_u128(9)),
        redirect_uri: Some("https://app.test/callback".to_owned()),
        scope: None,
        authenticated_userid: Some("ann".to_owned()),
        challenge: Some("challenge".to_owned()),
        challenge_method: Some("S256".to_owned()),
        ttl: 300,
    }
}

/// A row from elsewhere.
pub fn imported(number: u128) -> Imported {
    Imported {
        id: Uuid::from_u128(0x1000 + number),
        access_token: Known::Text(format!("access-{number}")),
        refresh_token: Some(Known::Text(format!("refresh-{number}"))),
        credential: owner(1),
        service: None,
        expires_in: 3600,
        created_at: NOW - 7200,
        ends: Some(NOW + 100_000),
        scope: None,
        authenticated_userid: None,
    }
}

async fn issued_is_found(store: Store) {
    let issued = store.issue(new_token(), NOW).get().await.unwrap();
    let refresh = issued.refresh_token.clone().expect("it was asked for");
    assert_eq!(issued.access_token.0.len(), 32);
    assert!(
        issued
            .access_token
            .0
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric())
    );
    assert_ne!(issued.access_token, refresh);
    let access = &issued.access_token.0;
    let found = store.find_by_access_token(access, NOW).get().await.unwrap();
    let found = found.expect("it was issued");
    assert_eq!(found.id, issued.id);
    assert_eq!(
        (found.credential, found.service),
        (owner(1), Some(owner(2)))
    );
    assert_eq!(found.scope.as_deref(), Some("email profile"));
    assert_eq!(found.authenticated_userid.as_deref(), Some("ann"));
    assert_eq!(found.access_ends(), Some(NOW + 7200));
    let by_refresh = store
        .find_by_refresh_token(&refresh.0, NOW)
        .get()
        .await
        .unwrap();
    assert_eq!(by_refresh.map(|token| token.id), Some(issued.id));
    let by_id = store.find_by_id(issued.id, NOW).get().await.unwrap();
    assert_eq!(by_id.map(|token| token.id), Some(issued.id));
    // Neither is the other, and a changed letter is another token.
    assert_eq!(
        store
            .find_by_access_token(&refresh.0, NOW)
            .get()
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        store
            .find_by_refresh_token(access, NOW)
            .get()
            .await
            .unwrap(),
        None
    );
    for at in 0..access.len() {
        let mut other: Vec<u8> = access.bytes().collect();
        other[at] = if other[at] == b'a' { b'b' } else { b'a' };
        let other = String::from_utf8(other).unwrap();
        assert_eq!(
            store.find_by_access_token(&other, NOW).get().await.unwrap(),
            None
        );
    }
    for none in ["", "x", "a b", &"é".repeat(16), &"0".repeat(100_000)] {
        assert_eq!(
            store.find_by_access_token(none, NOW).get().await.unwrap(),
            None
        );
        assert_eq!(
            store.find_by_refresh_token(none, NOW).get().await.unwrap(),
            None
        );
        assert_eq!(store.find_code(none, NOW).get().await.unwrap(), None);
    }
}

async fn rows_end(store: Store) {
    let find = async |token: &str, at| {
        store
            .find_by_access_token(token, at)
            .get()
            .await
            .unwrap()
            .is_some()
    };
    let issued = store.issue(new_token(), NOW).get().await.unwrap();
    let token = &issued.access_token.0;
    assert!(
        find(token, NOW + 7200).await,
        "the access token has expired, the row has not"
    );
    assert!(find(token, NOW + 1_209_599).await);
    assert!(!find(token, NOW + 1_209_600).await);
    // Without a refresh token, nobody needs an expired row.
    let bare = NewToken {
        with_refresh_token: false,
        ..new_token()
    };
    let issued = store.issue(bare.clone(), NOW).get().await.unwrap();
    assert_eq!(issued.refresh_token, None);
    assert!(find(&issued.access_token.0, NOW + 7199).await);
    assert!(!find(&issued.access_token.0, NOW + 7200).await);
    // The row ends first.
    let short = NewToken {
        ttl: Some(60),
        ..bare.clone()
    };
    let issued = store.issue(short, NOW).get().await.unwrap();
    assert!(!find(&issued.access_token.0, NOW + 60).await);
    let endless = NewToken {
        ttl: None,
        expires_in: 0,
        ..bare
    };
    let issued = store.issue(endless, NOW).get().await.unwrap();
    assert!(find(&issued.access_token.0, NOW + 10_000_000_000).await);
}

async fn a_code_gives_one_token(store: Store) {
    let code = store.issue_code(new_code(), NOW).get().await.unwrap().0;
    let found = store
        .find_code(&code, NOW)
        .get()
        .await
        .unwrap()
        .expect("it was issued");
    assert_eq!(found.code, new_code());
    assert!(
        store.find_code(&code, NOW + 299).await_is_some().await,
        "to look does not consume it"
    );
    assert!(!store.find_code(&code, NOW + 300).await_is_some().await);
    let late = store
        .take_code(&code, new_token(), false, NOW + 300)
        .get()
        .await
        .unwrap();
    assert_eq!(late, None);
    let attempts: Vec<_> = (0..100)
        .map(|_| store.take_code(&code, new_token(), false, NOW))
        .collect();
    let mut tokens = Vec::new();
    for attempt in attempts {
        tokens.extend(attempt.get().await.unwrap());
    }
    assert_eq!(tokens.len(), 1);
    let token = &tokens[0].access_token.0;
    assert!(store.find_by_access_token(token, NOW).await_is_some().await);
    assert!(!store.find_code(&code, NOW).await_is_some().await);
    assert_eq!(listed(&store, Listed::All, NOW).await.len(), 1);
}

async fn a_replayed_code_ends_its_token(store: Store) {
    let code = store.issue_code(new_code(), NOW).get().await.unwrap().0;
    let taken = store
        .take_code(&code, new_token(), true, NOW)
        .get()
        .await
        .unwrap();
    let token = taken.expect("it is the first").access_token.0;
    assert!(
        store
            .find_by_access_token(&token, NOW)
            .await_is_some()
            .await
    );
    assert_eq!(
        store
            .take_code(&code, new_token(), true, NOW)
            .get()
            .await
            .unwrap(),
        None
    );
    assert!(
        !store
            .find_by_access_token(&token, NOW)
            .await_is_some()
            .await
    );
}

async fn a_code_is_of_no_use_to_another_client(store: Store) {
    let of_another = NewToken {
        credential: owner(3),
        ..new_token()
    };
    // An entity that was made anew with the same id is another client, too.
    let of_a_later = NewToken {
        credential: Owner {
            created: 8,
            ..owner(1)
        },
        ..new_token()
    };
    let code = store.issue_code(new_code(), NOW).get().await.unwrap().0;
    let take = |token: &NewToken| store.take_code(&code, token.clone(), true, NOW);
    for token in [&of_another, &of_a_later] {
        assert_eq!(take(token).get().await.unwrap(), None);
    }
    let taken = take(&new_token()).get().await.unwrap();
    let access = taken.expect("nobody has taken it").access_token.0;
    for token in [&of_another, &of_a_later] {
        assert_eq!(take(token).get().await.unwrap(), None);
        assert!(
            store
                .find_by_access_token(&access, NOW)
                .await_is_some()
                .await
        );
    }
}

async fn ended_rows_are_known_by_their_id(store: Store) {
    let state = async |id, now| {
        let known = store.find_known(id, now).get().await.unwrap();
        known.map(|token| (token.id, token.state))
    };
    let first = store.issue(new_token(), NOW).get().await.unwrap();
    assert_eq!(state(first.id, NOW).await, Some((first.id, State::Live)));
    let refresh = first.refresh_token.expect("it was asked for").0;
    let refreshed = store.refresh(&refresh, new_token(), NOW).get().await;
    let RefreshOutcome::Issued(second) = refreshed.unwrap() else {
        panic!("it is the first refresh");
    };
    assert_eq!(
        state(first.id, NOW).await,
        Some((first.id, State::Superseded))
    );
    assert!(store.revoke(second.id, NOW).get().await.unwrap());
    assert_eq!(
        state(second.id, NOW).await,
        Some((second.id, State::Revoked))
    );
    assert_eq!(state(second.id, NOW + 1_209_600).await, None);
    // A renewed row has moved, under the same id.
    let third = store.issue(new_token(), NOW).get().await.unwrap();
    let refresh = third.refresh_token.expect("it was asked for").0;
    let renewed = store.renew(&refresh, 60, Some(600), NOW).get().await;
    assert!(renewed.unwrap().is_some());
    assert_eq!(state(third.id, NOW).await, Some((third.id, State::Live)));
    assert_eq!(state(Uuid::from_u128(77), NOW).await, None);
}

async fn a_refresh_token_is_used_once(store: Store) {
    let first = store.issue(new_token(), NOW).get().await.unwrap();
    let refresh = first.refresh_token.expect("it was asked for").0;
    let later = NOW + 100_000;
    let attempts: Vec<_> = (0..100)
        .map(|_| store.refresh(&refresh, new_token(), later))
        .collect();
    let mut issued = Vec::new();
    for attempt in attempts {
        match attempt.get().await.unwrap() {
            RefreshOutcome::Issued(token) => issued.push(token),
            RefreshOutcome::Replayed(id) => assert_eq!(id, first.id),
            RefreshOutcome::Unknown => panic!("it is known"),
        }
    }
    assert_eq!(issued.len(), 1);
    assert!(
        !store
            .find_by_access_token(&first.access_token.0, later)
            .await_is_some()
            .await
    );
    assert!(
        store
            .find_by_access_token(&issued[0].access_token.0, later)
            .await_is_some()
            .await
    );
    let spent = store
        .find_by_refresh_token(&refresh, later)
        .get()
        .await
        .unwrap();
    assert_eq!(spent.map(|token| token.state), Some(State::Superseded));
    let unknown = store
        .refresh("unknown", new_token(), later)
        .get()
        .await
        .unwrap();
    assert_eq!(unknown, RefreshOutcome::Unknown);
    let over = issued[0].refresh_token.clone().expect("it was asked for").0;
    let over = store
        .refresh(&over, new_token(), later + 1_209_600)
        .get()
        .await
        .unwrap();
    assert_eq!(over, RefreshOutcome::Unknown, "its row has ended");
}

async fn used_tokens_are_known_until_their_grant_ends(store: Store) {
    let hours = |hours: i64| NOW + hours * 3600;
    let token = NewToken {
        ttl: Some(10 * 3600),
        ..new_token()
    };
    let expire = async |now| while store.expire(now).get().await.unwrap() {};
    let refresh = async |refresh: &str, now| {
        store
            .refresh(refresh, token.clone(), now)
            .get()
            .await
            .unwrap()
    };
    let mut row = imported(1);
    row.ends = Some(hours(10));
    store.import(vec![row], NOW).get().await.unwrap();
    let issued = store.issue(token.clone(), NOW).get().await.unwrap();
    let own = issued.refresh_token.expect("it was asked for").0;
    let mut grants = Vec::new();
    for first in [own.as_str(), "refresh-1"] {
        let (mut last, mut used) = (first.to_owned(), Vec::new());
        for hour in [8, 16, 24] {
            let RefreshOutcome::Issued(next) = refresh(&last, hours(hour)).await else {
                panic!("it is live");
            };
            used.push(last);
            last = next.refresh_token.expect("it was asked for").0;
        }
        grants.push((used, last));
    }
    // All rows but the last are gone. The grant goes on until hour 34.
    expire(hours(30)).await;
    let now = hours(30);
    for (used, last) in &grants {
        let live = store.find_by_refresh_token(last, now).get().await.unwrap();
        let live = live.expect("it is live");
        assert_eq!(live.state, State::Live);
        for used in used {
            let found = store.find_by_refresh_token(used, now).get().await.unwrap();
            let found = found.expect("it is known");
            assert_eq!((found.state, found.id), (State::Superseded, live.id));
            let outcome = refresh(used, now).await;
            assert_eq!(outcome, RefreshOutcome::Replayed(live.id));
        }
    }
    assert!(
        store
            .find_by_refresh_token("refresh-2", now)
            .get()
            .await
            .unwrap()
            .is_none()
    );
    expire(hours(60)).await;
    for (used, _) in &grants {
        for used in used {
            let outcome = refresh(used, hours(30)).await;
            assert_eq!(outcome, RefreshOutcome::Unknown, "nothing is left of it");
        }
    }
}

async fn a_lost_answer_comes_again_once(store: Store) {
    let now = NOW + 9;
    let again = async |id: Uuid, now: i64| {
        let issued = store.refresh_again(id, new_token(), 10, now);
        issued.get().await.unwrap()
    };
    let pair = async || {
        let first = store.issue(new_token(), NOW).get().await.unwrap();
        let refresh = first.refresh_token.expect("it was asked for").0;
        let next = store.refresh(&refresh, new_token(), NOW).get().await;
        match next.unwrap() {
            RefreshOutcome::Issued(next) => (first.id, next),
            other => panic!("{other:?}"),
        }
    };
    let (first, lost) = pair().await;
    assert_eq!(again(first, NOW + 10).await, None, "it is too late");
    assert_eq!(again(lost.id, now).await, None, "it was not used");
    assert_eq!(again(Uuid::from_u128(1), now).await, None);
    let issued = again(first, now).await.expect("it is in time");
    let find = async |token: &str| {
        let found = store.find_by_access_token(token, now);
        found.get().await.unwrap().map(|token| token.id)
    };
    assert_eq!(find(&lost.access_token.0).await, None);
    assert_eq!(find(&issued.access_token.0).await, Some(issued.id));
    assert_eq!(
        again(first, now).await,
        None,
        "what has followed was replaced"
    );
    assert_eq!(again(lost.id, now).await, None, "both answers have arrived");
    // The live row is still found as the last of its grant.
    assert!(store.revoke_successor(first, now).get().await.unwrap());
    assert_eq!(find(&issued.access_token.0).await, None);
    let (first, next) = pair().await;
    assert!(store.revoke(next.id, now).get().await.unwrap());
    assert_eq!(again(first, now).await, None, "it was revoked");
}

async fn a_replay_ends_the_last_also_if_rows_in_between_are_gone(store: Store) {
    let short = NewToken {
        ttl: Some(60),
        ..new_token()
    };
    let first = store.issue(new_token(), NOW).get().await.unwrap();
    let mut refresh = first.refresh_token.expect("it was asked for").0;
    for token in [short, new_token()] {
        match store.refresh(&refresh, token, NOW).get().await.unwrap() {
            RefreshOutcome::Issued(next) => {
                refresh = next.refresh_token.expect("it was asked for").0;
            }
            other => panic!("{other:?}"),
        }
    }
    let later = NOW + 3 * 3600;
    while store.expire(later).get().await.unwrap() {}
    let revoked = store.revoke_successor(first.id, later).get().await.unwrap();
    assert!(revoked, "the last row was live");
    let found = store.find_by_refresh_token(&refresh, later).get().await;
    assert_eq!(found.unwrap().map(|row| row.state), Some(State::Revoked));
}

async fn a_replay_ends_the_last(store: Store) {
    let first = store.issue(new_token(), NOW).get().await.unwrap();
    let mut last = first.clone();
    for _ in 0..5 {
        let refresh = last.refresh_token.expect("it was asked for").0;
        let RefreshOutcome::Issued(next) = store
            .refresh(&refresh, new_token(), NOW)
            .get()
            .await
            .unwrap()
        else {
            panic!("it is live");
        };
        last = next;
    }
    assert!(store.revoke_successor(first.id, NOW).get().await.unwrap());
    assert!(
        !store
            .find_by_access_token(&last.access_token.0, NOW)
            .await_is_some()
            .await
    );
    assert!(
        !store.revoke_successor(first.id, NOW).get().await.unwrap(),
        "there is none any more"
    );
}

async fn renewed_rows_keep_their_id(store: Store) {
    let first = store.issue(new_token(), NOW).get().await.unwrap();
    let refresh = first.refresh_token.clone().expect("it was asked for");
    let mut last = first.clone();
    for round in 1..=3 {
        let now = NOW + round * 1_000_000;
        let renewed = store
            .renew(&refresh.0, 60, Some(1_209_600), now)
            .get()
            .await
            .unwrap();
        let renewed = renewed.expect("it is live");
        assert_eq!(
            (renewed.id, &renewed.refresh_token),
            (first.id, &Some(refresh.clone()))
        );
        assert_eq!(renewed.created_at, now);
        assert!(
            !store
                .find_by_access_token(&last.access_token.0, now)
                .await_is_some()
                .await
        );
        let found = store
            .find_by_access_token(&renewed.access_token.0, now)
            .get()
            .await
            .unwrap();
        let found = found.expect("it is live");
        assert_eq!((found.id, found.access_ends()), (first.id, Some(now + 60)));
        assert_eq!(found.scope.as_deref(), Some("email profile"));
        assert!(store.find_by_id(first.id, now).await_is_some().await);
        last = renewed;
    }
    let now = NOW + 3_000_000;
    let of = Listed::OfCredential(owner(1).id);
    assert_eq!(listed(&store, of, now).await.len(), 1);
    assert_eq!(
        store
            .renew(&refresh.0, 60, None, now + 1_209_600)
            .get()
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        store.renew("unknown", 60, None, now).get().await.unwrap(),
        None
    );
}

async fn revoked_rows_stay_revoked(store: Store) {
    let issued = store.issue(new_token(), NOW).get().await.unwrap();
    let rows = vec![imported(1)];
    store.import(rows.clone(), NOW).get().await.unwrap();
    for id in [issued.id, rows[0].id] {
        assert!(store.revoke(id, NOW).get().await.unwrap());
        assert!(!store.revoke(id, NOW).get().await.unwrap());
        assert!(!store.find_by_id(id, NOW).await_is_some().await);
    }
    assert!(
        !store
            .find_by_access_token(&issued.access_token.0, NOW)
            .await_is_some()
            .await
    );
    assert!(
        !store
            .find_by_access_token("access-1", NOW)
            .await_is_some()
            .await
    );
    let refresh = issued.refresh_token.expect("it was asked for").0;
    let outcome = store
        .refresh(&refresh, new_token(), NOW)
        .get()
        .await
        .unwrap();
    assert_eq!(outcome, RefreshOutcome::Unknown);
    let again = store.import(rows, NOW).get().await.unwrap();
    assert_eq!(again, [ImportOutcome::Ended]);
    let own = Imported {
        id: issued.id,
        ..imported(5)
    };
    assert_eq!(
        store.import(vec![own], NOW).get().await.unwrap(),
        [ImportOutcome::Ended]
    );
    assert!(!store.revoke(Uuid::from_u128(77), NOW).get().await.unwrap());
}

async fn expiry_frees_what_has_ended(store: Store) {
    let short = NewToken {
        ttl: Some(60),
        ..new_token()
    };
    for _ in 0..20 {
        store.issue(short.clone(), NOW).get().await.unwrap();
    }
    let long = store.issue(new_token(), NOW).get().await.unwrap();
    let endless = NewToken {
        ttl: None,
        ..new_token()
    };
    let endless = store.issue(endless, NOW).get().await.unwrap();
    let rows: Vec<_> = (0..20).map(imported).collect();
    store.import(rows, NOW).get().await.unwrap();
    let later = NOW + 200_000;
    for step in 0.. {
        assert!(step < 1000, "it ends");
        if !store.expire(later).get().await.unwrap() {
            break;
        }
    }
    for token in [&long, &endless] {
        assert!(
            store
                .find_by_access_token(&token.access_token.0, later)
                .await_is_some()
                .await
        );
    }
    // At an earlier time, only what is gone is not found.
    assert_eq!(listed(&store, Listed::All, NOW).await.len(), 2);
    let counts = store.counts().get().await.unwrap();
    assert_eq!((counts.live, counts.endless), (2, 1));
}

/// Returns the ids of a list, page by page.
async fn listed(store: &Store, of: Listed, now: i64) -> Vec<Uuid> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(of, after, 7, now).get().await.unwrap();
        ids.extend(page.tokens.into_iter().map(|token| token.id));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

trait IsSome {
    async fn await_is_some(self) -> bool;
}

impl<T: Send> IsSome for crate::store::Reply<'_, Option<T>> {
    async fn await_is_some(self) -> bool {
        self.get().await.unwrap().is_some()
    }
}
