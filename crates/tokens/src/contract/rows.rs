//! Imports, lists, and the writes of the Admin API.

use super::{IsSome, NOW, Store, imported, listed, new_token, owner};
use crate::store::{
    Cursor, ImportOutcome, Imported, Known, Listed, NewToken, Owner, RefreshOutcome, Write,
    WriteOutcome,
};
use std::collections::BTreeSet;
use uuid::Uuid;

pub(super) async fn imports_can_be_repeated(store: Store) {
    let rows: Vec<_> = (0..50).map(imported).collect();
    let first = store.import(rows.clone(), NOW).get().await.unwrap();
    assert_eq!(first, [ImportOutcome::Imported; 50]);
    let second = store.import(rows.clone(), NOW + 5).get().await.unwrap();
    assert_eq!(second, [ImportOutcome::Present; 50]);
    let found = store
        .find_by_access_token("access-3", NOW)
        .get()
        .await
        .unwrap();
    let found = found.expect("it was imported");
    assert_eq!(found.id, rows[3].id);
    assert_eq!(found.access_ends(), Some(NOW - 3600), "it has expired");
    let refreshed = store
        .refresh("refresh-3", new_token(), NOW)
        .get()
        .await
        .unwrap();
    assert!(matches!(refreshed, RefreshOutcome::Issued(_)));
    assert!(
        !store
            .find_by_access_token("access-3", NOW)
            .await_is_some()
            .await
    );
    let third = store.import(rows, NOW).get().await.unwrap();
    assert_eq!(
        third
            .iter()
            .filter(|outcome| **outcome == ImportOutcome::Ended)
            .count(),
        1
    );
}

pub(super) async fn imports_refuse_contradictions(store: Store) {
    let one = imported(1);
    let mut over = imported(9);
    over.ends = Some(NOW);
    let rows = vec![
        one.clone(),
        Imported {
            scope: Some("other".to_owned()),
            ..one.clone()
        },
        Imported {
            id: Uuid::from_u128(5),
            ..one.clone()
        },
        Imported {
            id: Uuid::from_u128(6),
            access_token: Known::Text("another".to_owned()),
            ..one.clone()
        },
        over,
        // A longer life or a later creation alone is not other content.
        Imported {
            ends: Some(NOW + 5),
            created_at: NOW,
            ..one
        },
    ];
    let outcomes = store.import(rows, NOW).get().await.unwrap();
    let expected = [
        ImportOutcome::Imported,
        ImportOutcome::OtherContent,
        ImportOutcome::OtherId,
        ImportOutcome::OtherId,
        ImportOutcome::Expired,
        ImportOutcome::Present,
    ];
    assert_eq!(outcomes, expected);
    // After its end, the id and the tokens are free again.
    let later = NOW + 100_000;
    let mut again = imported(1);
    again.ends = Some(later + 10);
    let outcomes = store.import(vec![again], later).get().await.unwrap();
    assert_eq!(outcomes, [ImportOutcome::Imported]);
    assert!(
        store
            .find_by_access_token("access-1", later)
            .await_is_some()
            .await
    );
}

pub(super) async fn a_hash_can_be_imported(store: Store) {
    let sha = |text: &str| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        <[u8; 32]>::try_from(digest.as_ref()).expect("it has 32 bytes")
    };
    let mut row = imported(1);
    row.access_token = Known::Sha256(sha("access-1"));
    row.refresh_token = None;
    let outcome = store.import(vec![row.clone()], NOW).get().await.unwrap();
    assert_eq!(outcome, [ImportOutcome::Imported]);
    let found = store
        .find_by_access_token("access-1", NOW)
        .get()
        .await
        .unwrap();
    assert_eq!(found.map(|token| token.id), Some(row.id));
    row.access_token = Known::Text("access-1".to_owned());
    let outcome = store.import(vec![row], NOW).get().await.unwrap();
    assert_eq!(outcome, [ImportOutcome::Present], "it is the same token");
}

pub(super) async fn lists_are_complete(store: Store) {
    let mut ids = BTreeSet::new();
    for number in 0..30 {
        let token = NewToken {
            credential: owner(1 + number % 3),
            service: (number % 2 == 0).then(|| owner(2)),
            ttl: Some(1000 + 100_000 * i64::try_from(number).unwrap()),
            ..new_token()
        };
        ids.insert(store.issue(token, NOW).get().await.unwrap().id);
    }
    // Neighbours of one owner and of others, which end at the same time.
    for number in 0..200 {
        let token = NewToken {
            credential: owner(if number < 100 { 4 } else { 4 + number % 2 }),
            service: None,
            ttl: Some(1000),
            ..new_token()
        };
        ids.insert(store.issue(token, NOW).get().await.unwrap().id);
    }
    let rows: Vec<_> = (0..10).map(imported).collect();
    ids.extend(rows.iter().map(|row| row.id));
    store.import(rows, NOW).get().await.unwrap();
    let all = async |of| listed(&store, of, NOW).await;
    let every = all(Listed::All).await;
    assert_eq!(every.len(), ids.len());
    assert_eq!(BTreeSet::from_iter(every), ids);
    assert_eq!(all(Listed::OfCredential(owner(1).id)).await.len(), 20);
    assert_eq!(all(Listed::OfCredential(owner(3).id)).await.len(), 10);
    assert_eq!(all(Listed::OfCredential(owner(4).id)).await.len(), 150);
    assert_eq!(all(Listed::OfCredential(owner(5).id)).await.len(), 50);
    assert_eq!(all(Listed::OfService(owner(2).id)).await.len(), 15);
    assert_eq!(all(Listed::OfService(owner(8).id)).await.len(), 0);
}

pub(super) async fn imports_replace_orphans(store: Store) {
    store.import(vec![imported(1)], NOW).get().await.unwrap();
    let issued = store.issue(new_token(), NOW).get().await.unwrap();
    // The client was deleted and made again.
    let again = Owner {
        created: 8,
        ..owner(1)
    };
    let rows = vec![
        Imported {
            credential: again,
            ..imported(1)
        },
        Imported {
            id: issued.id,
            credential: again,
            access_token: Known::Text(issued.access_token.0.clone()),
            refresh_token: None,
            ..imported(2)
        },
    ];
    let outcomes = store.import(rows.clone(), NOW).get().await.unwrap();
    assert_eq!(outcomes, [ImportOutcome::Imported; 2]);
    let outcomes = store.import(rows, NOW).get().await.unwrap();
    assert_eq!(outcomes, [ImportOutcome::Present; 2]);
    for token in ["access-1", &issued.access_token.0] {
        let found = store.find_by_access_token(token, NOW).get().await.unwrap();
        assert_eq!(found.map(|token| token.credential), Some(again));
    }
    assert_eq!(listed(&store, Listed::All, NOW).await.len(), 2);
}

pub(super) async fn lists_go_on_while_rows_change(store: Store) {
    let mut issued = Vec::new();
    for _ in 0..6 {
        issued.push(store.issue(new_token(), NOW).get().await.unwrap());
    }
    store.import(vec![imported(1)], NOW).get().await.unwrap();
    let page = store.list(Listed::All, None, 3, NOW).get().await.unwrap();
    let third = &issued[2];
    assert_eq!(page.tokens.last().map(|token| token.id), Some(third.id));
    let next = page.next.expect("there are more");
    assert_eq!(Cursor::parse(&next.to_string()), Some(next));
    // The row at the cursor gets another place, and the one after it ends.
    let refresh = third.refresh_token.clone().expect("it was asked for").0;
    store
        .renew(&refresh, 60, Some(600), NOW)
        .get()
        .await
        .unwrap();
    store.revoke(issued[3].id, NOW).get().await.unwrap();
    let (mut ids, mut after) = (Vec::new(), Some(next));
    while let Some(cursor) = after {
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        let page = store.list(Listed::All, after, 1, NOW).get().await.unwrap();
        ids.extend(page.tokens.iter().map(|token| token.id));
        after = page.next;
        assert!(ids.len() < 10, "it ends");
    }
    let expected = [issued[4].id, issued[5].id, third.id, imported(1).id];
    assert_eq!(BTreeSet::from_iter(ids), BTreeSet::from(expected));
    assert_eq!(Cursor::parse("x"), None);
}

async fn write(store: &Store, row: Imported, how: Write) -> WriteOutcome {
    store.write(row, how, NOW).get().await.unwrap()
}

pub(super) async fn a_row_is_created_once(store: Store) {
    let outcome = write(&store, imported(1), Write::Create).await;
    assert_eq!(outcome, WriteOutcome::Written);
    assert_eq!(
        write(&store, imported(1), Write::Create).await,
        WriteOutcome::IdTaken
    );
    let other_id = Imported {
        id: Uuid::from_u128(5),
        ..imported(1)
    };
    let taken = WriteOutcome::AccessTaken(imported(1).id);
    assert_eq!(write(&store, other_id.clone(), Write::Create).await, taken);
    assert_eq!(write(&store, other_id.clone(), Write::Put).await, taken);
    let refresh_only = Imported {
        access_token: Known::Text("another".to_owned()),
        ..other_id.clone()
    };
    assert_eq!(
        write(&store, refresh_only, Write::Create).await,
        WriteOutcome::RefreshTaken(imported(1).id)
    );
    // A token that is issued here has its texts too.
    let issued = store.issue(new_token(), NOW).get().await.unwrap();
    let same = Imported {
        access_token: Known::Text(issued.access_token.0.clone()),
        refresh_token: None,
        ..other_id.clone()
    };
    assert_eq!(
        write(&store, same.clone(), Write::Create).await,
        WriteOutcome::AccessTaken(issued.id)
    );
    // The tokens of rows that were deleted may be used again.
    for id in [imported(1).id, issued.id] {
        assert!(store.revoke(id, NOW).get().await.unwrap());
    }
    let both = Imported {
        refresh_token: other_id.refresh_token,
        ..same
    };
    assert_eq!(
        write(&store, both.clone(), Write::Create).await,
        WriteOutcome::Written
    );
    for found in [
        store.find_by_access_token(&issued.access_token.0, NOW),
        store.find_by_refresh_token("refresh-1", NOW),
        store.find_by_id(both.id, NOW),
    ] {
        let found = found.get().await.unwrap();
        assert_eq!(found.map(|token| token.id), Some(both.id));
    }
}

pub(super) async fn a_row_is_replaced_under_its_id(store: Store) {
    let issued = store.issue(new_token(), NOW).get().await.unwrap();
    store.import(vec![imported(1)], NOW).get().await.unwrap();
    let refresh = issued.refresh_token.expect("it was asked for").0;
    for (id, access, refresh) in [
        (issued.id, issued.access_token.0.as_str(), refresh.as_str()),
        (imported(1).id, "access-1", "refresh-1"),
    ] {
        let row = Imported {
            id,
            access_token: Known::Text(access.to_owned()),
            refresh_token: Some(Known::Text(refresh.to_owned())),
            scope: Some("patched".to_owned()),
            ..imported(2)
        };
        let was = |access: &str| Write::Replace {
            access_token: Known::Text(access.to_owned()),
        };
        let outcome = write(&store, row.clone(), was(access)).await;
        assert_eq!(outcome, WriteOutcome::Written);
        for found in [
            store.find_by_access_token(access, NOW),
            store.find_by_refresh_token(refresh, NOW),
            store.find_by_id(id, NOW),
        ] {
            let found = found.get().await.unwrap().expect("it is live");
            assert_eq!((found.id, found.scope.as_deref()), (id, Some("patched")));
        }
        let other = format!("{access}x");
        let renamed = Imported {
            access_token: Known::Text(other.clone()),
            ..row
        };
        let outcome = write(&store, renamed.clone(), was(access)).await;
        assert_eq!(outcome, WriteOutcome::Written);
        assert!(
            !store
                .find_by_access_token(access, NOW)
                .await_is_some()
                .await
        );
        assert!(
            store
                .find_by_access_token(&other, NOW)
                .await_is_some()
                .await
        );
        // Somebody else has changed it.
        let outcome = write(&store, renamed, was(access)).await;
        assert_eq!(outcome, WriteOutcome::NotFound);
        let refreshed = store
            .refresh(refresh, new_token(), NOW)
            .get()
            .await
            .unwrap();
        assert!(matches!(refreshed, RefreshOutcome::Issued(_)));
        assert!(
            !store
                .find_by_access_token(&other, NOW)
                .await_is_some()
                .await
        );
    }
    let missing = Write::Replace {
        access_token: imported(7).access_token,
    };
    assert_eq!(
        write(&store, imported(7), missing).await,
        WriteOutcome::NotFound
    );
}

pub(super) async fn only_a_put_revives(store: Store) {
    store.import(vec![imported(1)], NOW).get().await.unwrap();
    let issued = store.issue(new_token(), NOW).get().await.unwrap();
    let rows = [
        imported(1),
        Imported {
            id: issued.id,
            access_token: Known::Text(issued.access_token.0.clone()),
            ..imported(2)
        },
    ];
    for row in rows {
        assert!(store.revoke(row.id, NOW).get().await.unwrap());
        let outcome = write(&store, row.clone(), Write::Create).await;
        assert_eq!(outcome, WriteOutcome::IdTaken);
        let was = row.access_token.clone();
        let replace = Write::Replace { access_token: was };
        assert_eq!(
            write(&store, row.clone(), replace).await,
            WriteOutcome::NotFound
        );
        assert_eq!(
            write(&store, row.clone(), Write::Put).await,
            WriteOutcome::Written
        );
        assert!(store.find_by_id(row.id, NOW).await_is_some().await);
        let again = store.import(vec![row], NOW).get().await.unwrap();
        assert_eq!(again, [ImportOutcome::Present]);
    }
    assert!(
        store
            .find_by_access_token(&issued.access_token.0, NOW)
            .await_is_some()
            .await
    );
    let outcome = write(&store, imported(9), Write::Put).await;
    assert_eq!(outcome, WriteOutcome::Written, "it creates a row too");
}

pub(super) async fn live_rows_are_counted(store: Store) {
    let counts = async || {
        let counts = store.counts().get().await.unwrap();
        (counts.live, counts.endless)
    };
    assert_eq!(counts().await, (0, 0));
    let first = store.issue(new_token(), NOW).get().await.unwrap();
    let endless = Imported {
        ends: None,
        ..imported(1)
    };
    store
        .import(vec![endless.clone()], NOW)
        .get()
        .await
        .unwrap();
    assert_eq!(counts().await, (2, 1));
    let refresh = first.refresh_token.expect("it was asked for").0;
    store
        .refresh(&refresh, new_token(), NOW)
        .get()
        .await
        .unwrap();
    assert_eq!(counts().await, (2, 1), "one takes the place of another");
    store.revoke(endless.id, NOW).get().await.unwrap();
    assert_eq!(counts().await, (1, 0));
    write(&store, endless.clone(), Write::Put).await;
    write(&store, endless, Write::Put).await;
    assert_eq!(counts().await, (2, 1));
    store
        .renew("refresh-1", 60, Some(600), NOW)
        .get()
        .await
        .unwrap();
    assert_eq!(counts().await, (2, 0));
}
