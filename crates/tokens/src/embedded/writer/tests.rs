use crate::embedded::Embedded;
use crate::store::{Imported, Issued, Known, Listed, NewToken, Owner, StoreError, TokenStore};
use crate::{Keys, Storage};
use tempfile::TempDir;
use uuid::Uuid;

const NOW: i64 = 1_767_225_600;

fn open(directory: &TempDir, size: usize) -> Embedded {
    let keys = Keys::new(&[7; 64], 1);
    Embedded::open(
        &directory.path().join("tokens"),
        size,
        keys,
        Storage::Sealed,
    )
    .unwrap()
}

fn new_token(scope: &str) -> NewToken {
    let owner = |id| Owner {
        id: Uuid::from_u128(id),
        created: 7,
    };
    NewToken {
        credential: owner(1),
        service: Some(owner(2)),
        expires_in: 7200,
        with_refresh_token: true,
        ttl: Some(10_000),
        scope: Some(scope.to_owned()),
        authenticated_userid: None,
    }
}

#[test]
fn only_operations_that_fail_alone_fail() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, 1 << 28);
    // The writer waits in the first operation until all have come, so that they share a transaction.
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let first = store.writer.run(move |_| {
        // The sender is gone when this runs again.
        let _ = gone.lock().unwrap().recv();
        Ok(())
    });
    let mut issued = Vec::new();
    let mut wrong = Vec::new();
    for number in 0..20 {
        issued.push(store.issue(new_token("all"), NOW));
        if number % 7 == 3 {
            wrong.push(store.writer.run::<()>(|write| {
                write.put(write.shared.tables.loose.ids, &[1; 16], &[2; 32])?;
                panic!("a mistake");
            }));
            wrong.push(store.writer.run::<()>(|write| {
                write.put(write.shared.tables.loose.ids, &[1; 16], &[2; 32])?;
                Err(StoreError::Damaged)
            }));
        }
    }
    drop(go);
    first.wait().unwrap();
    for pair in wrong.chunks_mut(2) {
        let [panics, fails] = pair else {
            panic!("there are two");
        };
        let failure = |reply: &mut _| {
            let reply = std::mem::replace(reply, crate::Reply::Ready(Ok(())));
            reply.wait().unwrap_err()
        };
        assert!(matches!(failure(panics), StoreError::Storage(text) if text.contains("panicked")));
        assert!(matches!(failure(fails), StoreError::Damaged));
    }
    let mut texts: Vec<String> = Vec::new();
    for reply in issued {
        texts.push(reply.wait().unwrap().access_token.0);
    }
    drop(store);
    // Nothing of the wrong ones was kept, and all of the others.
    let store = open(&directory, 1 << 28);
    let found = |text: &String| store.find_by_access_token(text, NOW).wait().unwrap();
    assert!(texts.iter().all(|text| found(text).is_some()));
    let page = store.list(Listed::All, None, 100, NOW).wait().unwrap();
    assert_eq!((page.tokens.len(), page.next), (20, None));
    assert!(
        store
            .find_by_id(Uuid::from_bytes([1; 16]), NOW)
            .wait()
            .unwrap()
            .is_none()
    );
}

/// Issues tokens until the store is full.
fn fill(store: &Embedded, scope: &str) -> Vec<Issued> {
    let mut kept = Vec::new();
    loop {
        let batch: Vec<_> = (0..100)
            .map(|_| store.issue(new_token(scope), NOW))
            .collect();
        for reply in batch {
            match reply.wait() {
                Ok(issued) => kept.push(issued),
                Err(StoreError::Full) => return kept,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_full_store_still_ends_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory, 16 << 20);
    // Rows of different sizes: large ones take pages of their own.
    let mut issued = fill(&store, &"x".repeat(5000));
    issued.extend(fill(&store, "small"));
    let full = |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Full)));
    full(store.issue(new_token("all"), NOW).wait().map(drop));
    let last = issued.last().unwrap();
    let refresh = last.refresh_token.as_ref().unwrap();
    full(
        store
            .refresh(&refresh.0, new_token("all"), NOW)
            .wait()
            .map(drop),
    );
    full(store.renew(&refresh.0, 10, None, NOW).wait().map(drop));
    let imported = Imported {
        id: Uuid::from_u128(99),
        access_token: Known::Text("access".to_owned()),
        refresh_token: None,
        credential: new_token("all").credential,
        service: None,
        expires_in: 100,
        created_at: NOW,
        ends: None,
        scope: None,
        authenticated_userid: None,
    };
    full(store.import(vec![imported], NOW).wait().map(drop));
    // All of them at once take more pages than the reserve has: the halves of the batch do.
    let replies: Vec<_> = (issued.iter().map(|token| store.revoke(token.id, NOW))).collect();
    for reply in replies {
        assert!(reply.wait().unwrap());
    }
    assert!(store.find_by_id(last.id, NOW).wait().unwrap().is_none());
    while store.expire(NOW + 100_000).wait().unwrap() {}
    let later = NOW + 100_000;
    assert!(store.issue(new_token("all"), later).wait().is_ok());
    assert!(fill(&store, "small").len() > issued.len() / 10);
}
