//! The embedded store: the contract of all stores, and what is its own.

use std::sync::Arc;
use tempfile::TempDir;
use tokens::contract::{NOW, TESTS, imported, new_token};
use tokens::embedded::Embedded;
use tokens::{Keys, Known, Listed, NewToken, Storage, TokenStore};

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
    let page = store.list(Listed::All, None, 10, NOW).wait().unwrap();
    assert_eq!((page.tokens.len(), page.next), (5, None));
}

#[test]
fn texts_are_shown_as_the_storage_and_the_keys_allow() {
    let shown = |storage, key: u32, keys: fn(u32) -> Keys| {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("tokens");
        let store = Embedded::open(&path, SIZE, Keys::new(&[7; 64], key), storage).unwrap();
        let issued = store.issue(new_token(), NOW).wait().unwrap();
        store.import(vec![imported(1)], NOW).wait().unwrap();
        drop(store);
        let data = std::fs::read(path.join("data.mdb")).unwrap();
        for text in [&issued.access_token.0, "access-1", "refresh-1"] {
            let mut windows = data.windows(text.len());
            let is_there = windows.any(|window| window == text.as_bytes());
            assert!(!is_there, "the text is in the file");
        }
        let store = Embedded::open(&path, SIZE, keys(key), storage).unwrap();
        let found = store.find_by_id(issued.id, NOW).wait().unwrap().unwrap();
        let texts = found.texts?;
        let own = (texts.access_token == issued.access_token)
            && (texts.refresh_token == issued.refresh_token);
        let imported = store.find_by_id(imported(1).id, NOW).wait().unwrap();
        let imported = imported.unwrap().texts.unwrap();
        Some((
            own,
            imported.access_token.0,
            imported.refresh_token.unwrap().0,
        ))
    };
    let same = |id| Keys::new(&[7; 64], id);
    let clear = (true, "access-1".to_owned(), "refresh-1".to_owned());
    assert_eq!(shown(Storage::Sealed, 1, same), Some(clear.clone()));
    let other = |id| Keys::new(&[7; 64], id + 1);
    assert_eq!(shown(Storage::Sealed, 1, other), None);
    // After a change of the sealing key, the earlier one opens the rows that it has sealed.
    let earlier = |id| Keys::new(&[7; 64], id + 1).with_earlier_seal(&[7; 32], id);
    assert_eq!(shown(Storage::Sealed, 1, earlier), Some(clear));
    let (own, access, refresh) = shown(Storage::Hashed, 1, same).unwrap();
    assert!(!own);
    for (shown, text) in [(access, "access-1"), (refresh, "refresh-1")] {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        let digits: String = digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(shown, format!("sha256:{digits}"));
        let parsed = Known::parse(&shown);
        assert_eq!(parsed, Known::Sha256(digest.as_ref().try_into().unwrap()));
    }
}

#[test]
fn what_only_looks_like_a_hash_is_a_text() {
    for text in [
        "sha256:",
        "sha256:00",
        &format!("sha256:{}", "x".repeat(64)),
        "SHA256:é",
    ] {
        assert_eq!(Known::parse(text), Known::Text(text.to_owned()));
    }
}

/// Lets a test run in another process, in the directory of this variable.
const DIRECTORY: &str = "TOKENS_TEST_DIRECTORY";

#[test]
#[ignore = "a part of the test that starts it"]
fn child() {
    let directory = std::env::var_os(DIRECTORY).expect("the parent sets it");
    let store = Embedded::open(
        std::path::Path::new(&directory),
        SIZE,
        Keys::new(&[7; 64], 1),
        Storage::Sealed,
    )
    .unwrap();
    let mut lines = std::io::stdin().lines();
    loop {
        let issued = store.issue(new_token(), NOW).wait().unwrap();
        println!("token {}", issued.access_token.0);
        let Some(Ok(token)) = lines.next() else {
            return;
        };
        let found = store.find_by_access_token(&token, NOW).wait().unwrap();
        assert!(found.is_some(), "the other process has issued it");
    }
}

#[test]
fn two_processes_share_a_store() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let directory = TempDir::new().unwrap();
    let store = open(&directory, Storage::Sealed);
    let mut issued = vec![store.issue(new_token(), NOW).wait().unwrap()];
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory.path().join("tokens"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut theirs = 0;
    for line in output.lines() {
        let line = line.unwrap();
        // The harness of the tests writes in front of it.
        let Some((_, token)) = line.split_once("token ") else {
            continue;
        };
        theirs += 1;
        let found = store.find_by_access_token(token, NOW).wait().unwrap();
        assert!(found.is_some(), "the other process has issued it");
        if theirs > 20 {
            // The other process ends, and what it still writes is read.
            input = None;
        }
        let Some(input) = &mut input else {
            continue;
        };
        // Each process meets buckets that the other one has begun, and numbers that it has taken.
        let life = 1000 + 100_000 * i64::from(theirs);
        let other = NewToken {
            ttl: Some(life),
            ..new_token()
        };
        issued.push(store.issue(other, NOW).wait().unwrap());
        let own = store.issue(new_token(), NOW).wait().unwrap();
        writeln!(input, "{}", own.access_token.0).unwrap();
        issued.push(own);
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(theirs, 21);
    for token in &issued {
        let found = store.find_by_access_token(&token.access_token.0, NOW);
        assert_eq!(found.wait().unwrap().map(|token| token.id), Some(token.id));
    }
    let page = store.list(Listed::All, None, 1000, NOW).wait().unwrap();
    assert_eq!(page.tokens.len(), issued.len() + 21);
    let counts = store.counts().wait().unwrap();
    assert_eq!(counts.live, page.tokens.len() as u64);
}

#[test]
fn idle_threads_do_not_make_the_file_grow() {
    let directory = TempDir::new().unwrap();
    let store = Arc::new(open(&directory, Storage::Sealed));
    let first = store.issue(new_token(), NOW).wait().unwrap();
    let (ready, begun) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let idle = std::thread::spawn({
        let (store, token) = (Arc::clone(&store), first.access_token.0.clone());
        move || {
            let look = || store.find_by_access_token(&token, NOW).wait().unwrap();
            assert!(look().is_some());
            ready.send(()).unwrap();
            ended.recv().unwrap();
            // It sees what was written meanwhile.
            assert!(look().is_none());
        }
    });
    begun.recv().unwrap();
    let size = || {
        let path = directory.path().join("tokens/data.mdb");
        std::fs::metadata(path).unwrap().len()
    };
    let change = |number: u128| {
        store.import(vec![imported(number)], NOW).wait().unwrap();
        store.expire(NOW + 200_000).wait().unwrap();
    };
    (0..20).for_each(&change);
    let before = size();
    (20..400).for_each(&change);
    assert!(size() - before < 1 << 20, "{before} bytes, then {}", size());
    assert!(store.revoke(first.id, NOW).wait().unwrap());
    end.send(()).unwrap();
    idle.join().unwrap();
}
