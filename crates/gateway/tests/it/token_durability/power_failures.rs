//! Builds the file of the store as it is after a power failure, at many moments, from what the gateway wrote and synced
//! before each of its answers.

use super::{Connection, Pair, SECRET, launch};
use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use testkit::Echo;
use testkit::random::{Random, setting};
use testkit::recorder::{Disk, Record, Recorder};
use tokens::embedded::Embedded;
use tokens::{Keys, State, Storage, TokenStore};

const CLIENTS: usize = 8;
/// Requests of each client.
const REQUESTS: usize = 60;
/// Moments of a failure.
const FAILURES: usize = 60;

/// Issues tokens and refreshes some of them. Returns the pairs, each with the refresh token that led to it.
fn work(proxy: SocketAddr) -> Vec<(Pair, Option<String>)> {
    let mut connection = Connection::open(proxy).expect("the gateway listens");
    let mut made: Vec<(Pair, Option<String>)> = Vec::new();
    for number in 0..REQUESTS {
        let before = made.last().filter(|_| number % 3 > 0);
        let before = before.map(|(pair, _)| pair.refresh.clone());
        let answer = match &before {
            Some(token) => connection.refresh(token),
            None => connection.issue(),
        };
        let pair = Pair::of(&answer.expect("an answer"));
        made.push((pair, before));
    }
    made
}

/// All pairs by their access tokens, each with the refresh token that led to it.
type Made = HashMap<String, (Pair, Option<String>)>;

fn check(directory: &Path, file: &[u8], answered: &[&(Pair, Option<String>)], made: &Made) {
    fs::create_dir_all(directory).expect("a directory");
    fs::write(directory.join("data.mdb"), file).expect("it can be written");
    let store = Embedded::open(directory, 1 << 30, Keys::new(&SECRET, 1), Storage::Sealed);
    let store = store.expect("the store opens after a failure");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("a time").as_secs() as i64;
    let is_live = |pair: &Pair| {
        let found = store.find_by_access_token(&pair.access, now).wait();
        found.expect("it can be read").is_some()
    };
    // A refresh may be on the disk before its answer.
    let next = |pair: &Pair| {
        let mut all = made.values();
        all.find(|(_, from)| from.as_deref() == Some(&pair.refresh))
            .map(|(next, _)| next)
    };
    for (pair, from) in answered {
        let mut chain = std::iter::successors(Some(pair), |pair| next(pair));
        assert!(chain.any(is_live), "{pair:?} is lost");
        let Some(used) = from else {
            continue;
        };
        let found = store.find_by_refresh_token(used, now).wait();
        let found = found.expect("it can be read");
        assert!(
            found.is_none_or(|token| token.state != State::Live),
            "a refresh token that was used is live"
        );
    }
    drop(store);
    fs::remove_dir_all(directory).expect("it can be removed");
}

#[test]
fn answers_are_sent_when_their_tokens_are_on_the_disk() {
    let seed = setting("ENDURE_SEED").unwrap_or(2026);
    let mut random = Random::new(seed);
    let echo = Echo::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path().canonicalize().expect("a path");
    let prefix = directory.join("prefix");
    let recorder = Recorder::compile(&directory);
    let mut launch = launch(&prefix, &echo);
    for (name, value) in recorder.variables(&prefix.join("tokens.lmdb/data.mdb")) {
        launch = launch.variable(name, &value);
    }
    let gateway = launch.start();
    let proxy = gateway.proxy;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| thread::spawn(move || work(proxy)))
        .collect();
    let pairs = clients
        .into_iter()
        .flat_map(|client| client.join().expect("it has not panicked"));
    let made: Made = pairs.map(|made| (made.0.access.clone(), made)).collect();
    gateway.kill();
    let records = recorder.records();
    let answers: Vec<_> = records
        .iter()
        .map(|record| match record {
            Record::Sent(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let access = text.split("\"access_token\":\"").nth(1)?;
                made.get(access.split('"').next()?)
            }
            _ => None,
        })
        .collect();
    assert_eq!(answers.iter().flatten().count(), CLIENTS * REQUESTS);
    let (mut disk, mut answered) = (Disk::default(), Vec::new());
    let store = directory.join("store");
    for (record, answer) in records.iter().zip(answers) {
        disk.apply(record);
        let Some(answer) = answer else {
            continue;
        };
        answered.push(answer);
        if random.index(CLIENTS * REQUESTS) < FAILURES || answered.len() == CLIENTS * REQUESTS {
            check(&store, &disk.after_failure(|| false), &answered, &made);
            let some = disk.after_failure(|| random.one_in(2));
            check(&store, &some, &answered, &made);
        }
    }
}
