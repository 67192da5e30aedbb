//! The embedded store: the contract of all stores, and what is its own.

use std::sync::Arc;
use tempfile::TempDir;
use tokens::contract::{NOW, TESTS, imported, new_token};
use tokens::embedded::Embedded;
use tokens::{Keys, Listed, Storage, TokenStore};

const SIZE: usize = 1 << 30;

fn open(directory: &TempDir, storage: Storage) -> Embedded {
    let path = directory.path().join("tokens");
    Embedded::open(&path, SIZE, Keys::new(&[7; 64], 1), storage).expect("it can be opened")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime can be made").block_on(future)
}

#[test]
fn it_keeps_the_contract() {
    for (name, test) in TESTS {
        eprintln!("{name}");
        let directory = TempDir::new().unwrap();
        let store = Arc::new(open(&directory, Storage::Sealed));
        block_on(test(store));
    }
}

#[test]
fn what_is_issued_survives_a_restart() {
    let directory = TempDir::new().unwrap();
    let store = open(&directory, Storage::Sealed);
    let mut issued = Vec::new();
    for _ in 0..3 {
        issued.push(block_on(store.issue(new_token(), NOW).get()).unwrap());
    }
    block_on(store.import(vec![imported(1)], NOW).get()).unwrap();
    drop(store);
    let store = open(&directory, Storage::Sealed);
    issued.push(block_on(store.issue(new_token(), NOW).get()).unwrap());
    for token in &issued {
        let found = block_on(store.find_by_access_token(&token.access_token.0, NOW).get());
        assert_eq!(found.unwrap().map(|token| token.id), Some(token.id));
    }
    let listed = block_on(store.list(Listed::All, None, 10, NOW).get()).unwrap();
    assert_eq!(listed.len(), 5);
}

#[test]
fn texts_are_shown_only_if_they_are_sealed_with_the_same_key() {
    let shown = |storage, key: u32| {
        let directory = TempDir::new().unwrap();
        let store = open(&directory, storage);
        let issued = block_on(store.issue(new_token(), NOW).get()).unwrap();
        drop(store);
        let path = directory.path().join("tokens");
        let data = std::fs::read(path.join("data.mdb")).unwrap();
        let text = issued.access_token.0.as_bytes();
        assert!(
            !data.windows(text.len()).any(|window| window == text),
            "the text is in the file"
        );
        let store = Embedded::open(&path, SIZE, Keys::new(&[7; 64], key), storage).unwrap();
        let found = block_on(store.find_by_id(issued.id, NOW).get())
            .unwrap()
            .unwrap();
        let expected = found.texts.map(|texts| {
            assert_eq!(texts.access_token, issued.access_token);
            assert_eq!(texts.refresh_token, issued.refresh_token);
        });
        expected.is_some()
    };
    assert!(shown(Storage::Sealed, 1));
    assert!(!shown(Storage::Sealed, 2));
    assert!(!shown(Storage::Hashed, 1));
}
