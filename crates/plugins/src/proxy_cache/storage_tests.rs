//! Tests of the storage, alone and with many workers at once.

use super::collector::{Collector, NoRoom};
use super::entry::{Entry, Terms};
use super::key::{CacheKey, KeyText, Owner};
use super::storage::Storage;
use bytes::Bytes;
use plugin::Stored;
use std::alloc::System;
use std::sync::Arc;
use std::thread;
use testkit::memory::{Counting, Counts};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

const KIB: usize = 1024;
const NOW: u64 = 1_800_000_000;

fn key(name: &str) -> CacheKey {
    let nobody = Owner {
        consumer: None,
        credential: None,
        route: None,
    };
    let mut text = KeyText::new(nobody, "GET");
    text.request_line(&[name.as_bytes()], false);
    text.finish()
}

fn stored<'l>(lines: impl Iterator<Item = (&'l str, &'l [u8])>, len: usize) -> Stored {
    Stored::new(lines).with_body(vec![Bytes::from(vec![b'x'; len])])
}

fn entry(len: usize) -> Entry {
    Entry {
        status: 200,
        stored: Arc::new(stored(std::iter::empty(), len)),
        stored_at: NOW,
        ttl: 60,
        expires_at: NOW + 60,
        terms: Terms::default(),
    }
}

fn put(storage: &Storage, name: &str, len: usize) -> bool {
    storage.put(key(name), entry(len), NOW)
}

fn has(storage: &Storage, name: &str) -> bool {
    storage.get(&key(name), NOW).is_some()
}

#[test]
fn a_stored_response_is_found_until_it_expires() {
    let storage = Storage::new(100 * KIB);
    assert!(put(&storage, "a", 10));
    assert!(storage.get(&key("a"), NOW + 59).is_some());
    assert!(storage.get(&key("a"), NOW + 60).is_none());
    assert!(!has(&storage, "b"));
}

#[test]
fn a_response_replaces_the_one_with_its_key() {
    let storage = Storage::new(100 * KIB);
    for len in [10, 2000, 1] {
        assert!(put(&storage, "a", len));
        assert_eq!(
            storage.get(&key("a"), NOW).unwrap().stored.body_length(),
            len
        );
    }
    let one = storage.size();
    assert_eq!(one.0, 1);
    storage.purge(&key("a"), NOW);
    assert_eq!(storage.size(), (0, 0));
}

#[test]
fn the_response_that_was_not_used_for_longest_goes_first() {
    let storage = Storage::new(40 * KIB);
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert!(put(&storage, name, 4 * KIB));
    }
    assert!(has(&storage, "a"));
    assert!(put(&storage, "g", 4 * KIB));
    assert!(has(&storage, "a"), "it was used");
    assert!(!has(&storage, "b"));
    for name in ["c", "d", "e", "f", "g"] {
        assert!(has(&storage, name), "{name}");
    }
}

#[test]
fn the_bytes_never_exceed_the_bound_whatever_is_stored_and_used() {
    let storage = Storage::new(64 * KIB);
    for number in 0..2000_usize {
        put(&storage, &number.to_string(), number * 37 % (8 * KIB));
        has(&storage, &(number / 2).to_string());
        assert!(storage.size().1 <= 48 * KIB);
    }
}

#[test]
fn headers_take_room_too() {
    let storage = Storage::new(64 * KIB);
    let large = Bytes::from(vec![b'x'; 9 * KIB]);
    let mut with_header = entry(0);
    with_header.stored = Arc::new(stored([("x", &*large)].into_iter(), 0));
    assert!(!storage.put(key("a"), with_header, NOW));
    assert_eq!(storage.size(), (0, 0));
}

#[test]
fn a_response_that_is_too_large_leaves_the_others() {
    let storage = Storage::new(64 * KIB);
    assert!(put(&storage, "a", 10));
    assert!(!put(&storage, "b", 8 * KIB));
    assert!(has(&storage, "a"));
}

#[test]
fn expired_responses_make_room_before_others() {
    let storage = Storage::new(40 * KIB);
    let mut short = entry(4 * KIB);
    short.expires_at = NOW + 1;
    for name in ["a", "b"] {
        storage.put(key(name), short.clone(), NOW);
        assert!(has(&storage, name), "used, but old afterwards");
    }
    storage.put(key("c"), entry(4 * KIB), NOW + 1);
    assert_eq!(storage.size().0, 1);
}

#[test]
fn one_or_all_responses_can_be_removed() {
    let storage = Storage::new(1024 * KIB);
    for number in 0..600 {
        put(&storage, &number.to_string(), 100);
    }
    assert!(storage.purge(&key("7"), NOW));
    assert!(!storage.purge(&key("7"), NOW));
    assert!(!has(&storage, "7") && has(&storage, "8"));
    storage.purge_all();
    assert!(!has(&storage, "8"));
    assert_eq!(storage.size(), (0, 0));
    assert!(put(&storage, "8", 100) && has(&storage, "8"));
}

#[test]
fn what_is_stored_after_a_removal_of_all_stays_while_it_runs() {
    let storage = Storage::new(1024 * KIB);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                storage.purge_all();
            }
        });
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..1000 {
                    put(&storage, &(number % 50).to_string(), 100);
                    has(&storage, &(number % 50).to_string());
                }
            });
        }
    });
    let (count, _) = storage.size();
    let found = (0..50).filter(|number| has(&storage, &number.to_string()));
    assert_eq!(found.count(), count);
    storage.purge_all();
    assert_eq!(storage.size(), (0, 0));
}

#[test]
fn workers_that_store_and_read_at_once_get_whole_responses() {
    let storage = Storage::new(64 * KIB);
    thread::scope(|scope| {
        for worker in 0..4_usize {
            let storage = &storage;
            scope.spawn(move || {
                for number in 0..2000_usize {
                    let name = (number % 20).to_string();
                    put(storage, &name, (number % 20) * 100 + worker);
                    if let Some(entry) = storage.get(&key(&name), NOW) {
                        assert_eq!(entry.stored.body_length() / 100, number % 20);
                    }
                }
            });
        }
    });
    assert!(storage.size().1 <= 48 * KIB);
}

fn collected(collector: &mut Collector) -> Vec<u8> {
    collector.finish().concat()
}

#[test]
fn a_body_is_collected_whole_and_kept_in_pieces() {
    let storage = Arc::new(Storage::new(8192 * KIB));
    let mut collector = storage.collect();
    let text: Vec<u8> = (0..200 * KIB).map(|number| number as u8).collect();
    for piece in text.chunks(3000) {
        collector.add(piece).unwrap();
    }
    let body = collector.finish();
    assert_eq!(body.len(), 4);
    assert_eq!(body.concat(), text);
}

#[test]
fn a_body_beyond_its_share_is_not_collected_further() {
    let storage = Arc::new(Storage::new(64 * KIB));
    let mut collector = storage.collect();
    collector.add(&[0; 8 * KIB]).unwrap();
    assert_eq!(collector.add(&[0]), Err(NoRoom));
    drop(collector);
    assert_eq!(storage.collecting.bytes(), 0);
}

#[test]
fn many_bodies_at_once_take_no_more_than_their_share() {
    let storage = Arc::new(Storage::new(64 * KIB));
    let mut collectors: Vec<Collector> = (0..100).map(|_| storage.collect()).collect();
    let added = collectors
        .iter_mut()
        .filter_map(|collector| collector.add(&[0; KIB]).ok());
    assert_eq!(added.count(), 16);
    assert_eq!(collected(&mut collectors[0]).len(), KIB);
    drop(collectors);
    assert_eq!(storage.collecting.bytes(), 0);
}

#[test]
fn large_bodies_that_are_read_slowly_leave_room_for_small_ones() {
    let storage = Arc::new(Storage::new(8 * 1024 * KIB));
    let collect = |len: usize| {
        let mut collector = storage.collect();
        collector.add(&vec![0; len]).ok().map(|()| collector)
    };
    let large: Vec<Collector> = (0..100).filter_map(|_| collect(100 * KIB)).collect();
    assert_eq!(large.len(), 10);
    let small: Vec<Collector> = (0..100).filter_map(|_| collect(60 * KIB)).collect();
    assert_eq!(small.len(), 17);
    assert!(storage.collecting.bytes() <= 2 * 1024 * KIB);
}

#[test]
fn the_memory_that_is_really_held_stays_within_the_bytes_and_is_used() {
    const BYTES: usize = 64 * 1024 * KIB;
    let headers = [
        ("Content-Type", "application/json; charset=utf-8"),
        ("Cache-Control", "public, max-age=3600"),
        ("ETag", "\"0123456789abcdef0123456789abcdef\""),
        ("Last-Modified", "Thu, 01 Jan 1998 00:00:00 GMT"),
        ("Date", "Thu, 01 Jan 1998 00:00:00 GMT"),
        ("Vary", "Accept-Encoding"),
    ];
    let pairs = headers
        .iter()
        .map(|(name, value)| (*name, value.as_bytes()));
    let before = Counts::of_this_thread();
    let storage = Storage::new(BYTES);
    let mut most = 0;
    for number in 0..40_000 {
        let mut entry = entry(2 * KIB);
        entry.stored = Arc::new(stored(pairs.clone(), 2 * KIB));
        storage.put(key(&number.to_string()), entry, NOW);
        most = most.max(Counts::since(before).held);
    }
    let (count, accounted) = storage.size();
    let most = usize::try_from(most).unwrap();
    println!("{count} responses, {accounted} bytes accounted, {most} held at most");
    assert!(accounted <= BYTES / 4 * 3);
    assert!(most <= accounted, "{most} of {accounted}");
    assert!(most >= accounted / 10 * 7, "{most} of {accounted}");
}

#[test]
fn the_bytes_are_bounded_also_with_many_parts_and_responses_of_very_different_sizes() {
    const BYTES: usize = 32 * 1024 * KIB;
    let storage = Storage::new(BYTES);
    thread::scope(|scope| {
        for worker in 0..4_usize {
            let storage = &storage;
            scope.spawn(move || {
                for number in 0..1500_usize {
                    let len = if number % 100 == 0 {
                        2048 * KIB
                    } else {
                        10 * KIB
                    };
                    put(storage, &format!("{worker}-{number}"), len);
                    has(storage, &format!("{worker}-{}", number / 2));
                }
            });
        }
    });
    let (count, bytes) = storage.size();
    assert!(bytes <= BYTES / 4 * 3, "{bytes}");
    assert!(bytes >= BYTES / 2, "{bytes} in {count} responses");
    storage.purge_all();
    assert_eq!(storage.size(), (0, 0));
}

#[test]
fn a_large_response_leaves_most_of_those_that_are_used() {
    let storage = Storage::new(32 * 1024 * KIB);
    let name = |number: usize| number.to_string();
    for number in 0..2000 {
        put(&storage, &name(number), 4 * KIB);
        has(&storage, &name(number));
        has(&storage, &name(number));
    }
    for large in 0..2 {
        assert!(put(&storage, &format!("large {large}"), 3 * 1024 * KIB));
    }
    let left = (0..2000)
        .filter(|number| has(&storage, &name(*number)))
        .count();
    assert!(left > 1800, "{left}");
    for number in 0..20_000 {
        put(&storage, &format!("scan {number}"), 4 * KIB);
    }
    let left = (0..2000)
        .filter(|number| has(&storage, &name(*number)))
        .count();
    assert!(left > 1800, "{left} after a scan");
}
