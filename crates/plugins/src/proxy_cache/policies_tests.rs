//! Measures the hit ratio of the order of eviction beside those of other policies, on traces with a Zipf distribution
//! and with scans. All items have the same weight here.
//!
//! `cargo test -p plugins --lib --release policies -- --ignored --nocapture` prints the table of
//! `docs/design/0018-cache-eviction.md`.

use super::key::{CacheKey, KeyParts};
use super::order::{Held, MAX_USES, Order};
use lru::LruCache;
use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};

/// Answers whether a key is cached, and caches it.
type Policy = Box<dyn FnMut(u64) -> bool>;

/// Makes a policy for a number of items.
type Make = fn(usize) -> Policy;

/// The order of eviction as the storage uses it.
fn ours(capacity: usize) -> Policy {
    let uses: RefCell<HashMap<CacheKey, u8>> = RefCell::default();
    let mut order = Order::new();
    Box::new(move |key| {
        let key = {
            let mut parts = KeyParts::new();
            parts.part(&key.to_le_bytes());
            parts.finish()
        };
        if let Some(uses) = uses.borrow_mut().get_mut(&key) {
            *uses = MAX_USES.min(*uses + 1);
            return true;
        }
        if order.len() == capacity {
            let take = |key: &CacheKey, left: fn(u8) -> u8| {
                let mut uses = uses.borrow_mut();
                let uses = uses.get_mut(key).expect("it is cached");
                let before = *uses;
                *uses = if before > 0 { left(before) } else { 0 };
                before
            };
            let evicted = order.evict(0, take);
            let (evicted, _) = evicted.expect("it is full");
            uses.borrow_mut().remove(&evicted);
        }
        let held = Held {
            weight: 1,
            expires_at: 1,
            generation: 0,
        };
        order.put(key, held);
        uses.borrow_mut().insert(key, 0);
        false
    })
}

fn lru(capacity: usize) -> Policy {
    let mut keys: LruCache<u64, (), RandomState> =
        LruCache::unbounded_with_hasher(RandomState::new());
    Box::new(move |key| {
        if keys.get(&key).is_some() {
            return true;
        }
        if keys.len() == capacity {
            keys.pop_lru();
        }
        keys.put(key, ());
        false
    })
}

/// A queue in which a used item gets another turn: what the storage had before.
fn clock(capacity: usize) -> Policy {
    let mut queue: VecDeque<u64> = VecDeque::new();
    let mut used: HashMap<u64, bool> = HashMap::new();
    Box::new(move |key| {
        if let Some(used) = used.get_mut(&key) {
            *used = true;
            return true;
        }
        while used.len() >= capacity {
            let oldest = queue.pop_front().expect("it is full");
            if used.insert(oldest, false) == Some(true) {
                queue.push_back(oldest);
            } else {
                used.remove(&oldest);
            }
        }
        queue.push_back(key);
        used.insert(key, false);
        false
    })
}

/// SIEVE (NSDI 2024): as the clock, but a used item keeps its position.
fn sieve(capacity: usize) -> Policy {
    // The newest item is at the end. Removed items leave holes, which are closed from time to time.
    let mut queue: Vec<Option<u64>> = Vec::new();
    let mut used: HashMap<u64, bool> = HashMap::new();
    let mut hand = 0;
    Box::new(move |key| {
        if let Some(used) = used.get_mut(&key) {
            *used = true;
            return true;
        }
        while used.len() >= capacity {
            if hand >= queue.len() {
                queue.retain(Option::is_some);
                hand = 0;
            }
            if let Some(candidate) = queue[hand]
                && used.insert(candidate, false) != Some(true)
            {
                used.remove(&candidate);
                queue[hand] = None;
            }
            hand += 1;
        }
        queue.push(Some(key));
        used.insert(key, false);
        false
    })
}

/// W-TinyLFU: a window of 1 %, and a segmented main part that an item enters if it was asked for more often than the one
/// that it would replace. The counts are exact and are halved after ten times the capacity.
fn tiny_lfu(capacity: usize) -> Policy {
    let new = || LruCache::<u64, (), RandomState>::unbounded_with_hasher(RandomState::new());
    let (mut window, mut probation, mut protected) = (new(), new(), new());
    let window_size = (capacity / 100).max(1);
    let main_size = capacity - window_size;
    let mut counts: HashMap<u64, u32> = HashMap::new();
    let mut counted = 0;
    Box::new(move |key| {
        *counts.entry(key).or_default() += 1;
        counted += 1;
        if counted == 10 * capacity {
            counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
            counted = 0;
        }
        if window.get(&key).is_some() || protected.get(&key).is_some() {
            return true;
        }
        if probation.pop(&key).is_some() {
            protected.put(key, ());
            if protected.len() > main_size * 4 / 5
                && let Some((demoted, ())) = protected.pop_lru()
            {
                probation.put(demoted, ());
            }
            return true;
        }
        window.put(key, ());
        if window.len() > window_size
            && let Some((candidate, ())) = window.pop_lru()
        {
            if probation.len() + protected.len() < main_size {
                probation.put(candidate, ());
            } else if let Some((victim, ())) = probation.pop_lru() {
                let count = |key| counts.get(&key).copied().unwrap_or(0);
                let stays = if count(candidate) > count(victim) {
                    candidate
                } else {
                    victim
                };
                probation.put(stays, ());
            }
        }
        false
    })
}

/// Keys by a Zipf distribution, of which a share is replaced by scans: keys in a row that never come again.
fn trace(skew: f64, keys: usize, requests: usize, scan: f64) -> Vec<u64> {
    const SCAN_LENGTH: usize = 5000;
    let mut random = fastrand::Rng::with_seed(7);
    let weights = (1..=keys).map(|rank| (rank as f64).powf(-skew));
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let total = sums[keys - 1];
    let mut scanned = 1_u64 << 40;
    let mut trace = Vec::with_capacity(requests + SCAN_LENGTH);
    while trace.len() < requests {
        if random.f64() * (SCAN_LENGTH as f64) * (1.0 - scan) < scan {
            trace.extend((0..SCAN_LENGTH as u64).map(|number| scanned + number));
            scanned += SCAN_LENGTH as u64;
        }
        let at = random.f64() * total;
        trace.push(sums.partition_point(|sum| *sum < at) as u64);
    }
    trace
}

/// Returns the percentage of hits among the requests that are no scan, after the first third.
fn hits(mut policy: Policy, trace: &[u64]) -> f64 {
    let (mut hits, mut asked) = (0, 0);
    for (number, key) in trace.iter().enumerate() {
        let is_hit = policy(*key);
        if number > trace.len() / 3 && *key < 1 << 40 {
            asked += 1;
            hits += u64::from(is_hit);
        }
    }
    100.0 * hits as f64 / f64::from(asked)
}

/// The share of hits of a cache that has the most popular keys from the beginning.
fn best_fixed(capacity: usize) -> Policy {
    let popular: HashSet<u64> = (0..capacity as u64).collect();
    Box::new(move |key| popular.contains(&key))
}

const POLICIES: [(&str, Make); 6] = [
    ("S3-FIFO (ours)", ours),
    ("W-TinyLFU", tiny_lfu),
    ("SIEVE", sieve),
    ("clock", clock),
    ("LRU", lru),
    ("best fixed", best_fixed),
];

fn measure(skew: f64, keys: usize, requests: usize, capacity: usize, scan: f64) -> Vec<f64> {
    let trace = trace(skew, keys, requests, scan);
    let policies = POLICIES.iter();
    policies
        .map(|(_, policy)| hits(policy(capacity), &trace))
        .collect()
}

#[test]
fn hits_are_within_three_points_of_the_best_policy_also_during_scans() {
    for scan in [0.0, 0.3] {
        let hits = measure(0.9, 20_000, 200_000, 2_000, scan);
        let (ours, others) = (hits[0], &hits[1..5]);
        let best = others.iter().copied().fold(0.0, f64::max);
        assert!(ours > best - 3.0, "{hits:?}");
        let lru = hits[4];
        assert!(ours > lru + 3.0, "{hits:?}");
    }
}

#[test]
fn a_scan_does_not_wash_out_what_is_hot() {
    let without = measure(0.9, 20_000, 200_000, 2_000, 0.0);
    let with = measure(0.9, 20_000, 200_000, 2_000, 0.3);
    assert!(without[0] - with[0] < 5.0, "{without:?} {with:?}");
}

#[test]
#[ignore = "it prints a table for the documentation"]
fn table() {
    let names: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
    println!("| Zipf | cache | scans | {} |", names.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(names.len()));
    for skew in [0.7, 0.9, 1.1] {
        for share in [1, 10] {
            for scan in [0.0, 0.3] {
                let hits = measure(skew, 100_000, 1_000_000, 1000 * share, scan);
                let hits: Vec<String> = hits.iter().map(|hits| format!("{hits:.1}")).collect();
                let scan = scan * 100.0;
                println!("| {skew} | {share} % | {scan} % | {} |", hits.join(" | "));
            }
        }
    }
}
