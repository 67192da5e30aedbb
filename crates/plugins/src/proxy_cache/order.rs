//! The order in which stored items leave the storage: S3-FIFO ("FIFO queues are all you need for cache eviction", SOSP
//! 2023).
//!
//! New items enter a small queue, which gets a tenth of the bytes. An item that was used there again moves to the main
//! queue. The others leave, and only a fingerprint of their key stays. An item that comes back while its fingerprint is
//! there enters the main queue at once. So a scan passes through the small queue and leaves the main queue as it is.
//! `docs/design/0018-cache-eviction.md` compares this with other policies.
//!
//! A use of an item only raises a small counter beside it, which needs no lock. The queues are in order of entry, so
//! that a use moves nothing.

use super::key::CacheKey;
use lru::LruCache;
use std::collections::hash_map::RandomState;

/// The share of the small queue: one part of this many.
const SMALL_SHARE: usize = 10;

/// Uses that count. More uses give no further turns in the main queue.
pub(super) const MAX_USES: u8 = 3;

/// Further turns at one eviction. More would make one request pay for the uses of many others.
const MAX_TURNS: usize = 16;

/// Items of one part of the storage. The map finds an item of a queue, and keeps the order of entry.
pub(super) struct Order {
    small: Queue,
    main: Queue,
    /// Fingerprints of the keys that have left the small queue.
    ghosts: LruCache<u64, (), RandomState>,
}

struct Queue {
    keys: LruCache<CacheKey, Held, RandomState>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) weight: usize,
    pub(super) expires_at: u64,
    pub(super) generation: u64,
}

impl Order {
    pub(super) fn new() -> Self {
        Self {
            small: Queue::new(),
            main: Queue::new(),
            ghosts: LruCache::unbounded_with_hasher(RandomState::new()),
        }
    }

    /// Adds an item, or replaces the one with its key, which keeps its position. Returns the weight of the item that was
    /// replaced.
    pub(super) fn put(&mut self, key: CacheKey, held: Held) -> usize {
        for queue in [&mut self.small, &mut self.main] {
            if let Some(known) = queue.keys.peek_mut(&key) {
                let before = std::mem::replace(known, held);
                queue.bytes = queue.bytes - before.weight + held.weight;
                return before.weight;
            }
        }
        let queue = match self.ghosts.pop(&key.fingerprint()) {
            Some(()) => &mut self.main,
            None => &mut self.small,
        };
        queue.push(key, held);
        0
    }

    /// Removes an item. Returns its weight, or 0 if there is none.
    pub(super) fn take(&mut self, key: &CacheKey) -> usize {
        let mut queues = [&mut self.small, &mut self.main].into_iter();
        let taken = queues.find_map(|queue| queue.take(key));
        taken.map_or(0, |held| held.weight)
    }

    /// Removes the item whose turn it is. `take_uses` returns how often an item was used, and begins to count anew from
    /// the number that it is given.
    pub(super) fn evict(
        &mut self,
        now: u64,
        take_uses: impl Fn(&CacheKey, fn(u8) -> u8) -> u8,
    ) -> Option<(CacheKey, Held)> {
        let mut turns = 0;
        loop {
            let may_turn = turns < MAX_TURNS;
            turns += 1;
            let is_small_full = self.small.bytes >= self.bytes() / SMALL_SHARE;
            if is_small_full && let Some((key, held)) = self.small.pop() {
                if held.expires_at > now && may_turn && take_uses(&key, |_| 0) > 0 {
                    self.main.push(key, held);
                    continue;
                }
                self.remember(&key);
                return Some((key, held));
            }
            let (key, held) = self.main.pop()?;
            if held.expires_at > now && may_turn && take_uses(&key, |uses| uses - 1) > 0 {
                self.main.push(key, held);
                continue;
            }
            return Some((key, held));
        }
    }

    /// Removes an item that is the oldest of its queue and has expired.
    pub(super) fn take_expired(&mut self, now: u64) -> Option<(CacheKey, usize)> {
        let mut queues = [&mut self.small, &mut self.main].into_iter();
        queues.find_map(|queue| {
            let (key, held) = queue.keys.peek_lru()?;
            let (key, weight) = (*key, held.weight);
            (held.expires_at <= now && queue.take(&key).is_some()).then_some((key, weight))
        })
    }

    /// Remembers a key that leaves the small queue. There are as many fingerprints as there are items in the main queue.
    fn remember(&mut self, key: &CacheKey) {
        self.ghosts.put(key.fingerprint(), ());
        while self.ghosts.len() > self.main.keys.len().max(1) {
            self.ghosts.pop_lru();
        }
    }

    /// Removes up to `most` items of earlier generations. Items of this generation that it meets go to the end of their
    /// queue. Returns the keys with their weights.
    pub(super) fn take_older(&mut self, generation: u64, most: usize) -> Vec<(CacheKey, usize)> {
        let mut taken = Vec::new();
        for queue in [&mut self.small, &mut self.main] {
            for _ in 0..queue.keys.len().min(most) {
                match queue.pop() {
                    Some((key, held)) if held.generation == generation => queue.push(key, held),
                    Some((key, held)) => taken.push((key, held.weight)),
                    None => break,
                }
            }
        }
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.small.keys.len() + self.main.keys.len()
    }

    fn bytes(&self) -> usize {
        self.small.bytes + self.main.bytes
    }
}

impl Queue {
    fn new() -> Self {
        Self {
            keys: LruCache::unbounded_with_hasher(RandomState::new()),
            bytes: 0,
        }
    }

    fn push(&mut self, key: CacheKey, held: Held) {
        self.bytes += held.weight;
        self.keys.put(key, held);
    }

    fn pop(&mut self) -> Option<(CacheKey, Held)> {
        let (key, held) = self.keys.pop_lru()?;
        self.bytes -= held.weight;
        Some((key, held))
    }

    fn take(&mut self, key: &CacheKey) -> Option<Held> {
        let held = self.keys.pop(key)?;
        self.bytes -= held.weight;
        Some(held)
    }
}
