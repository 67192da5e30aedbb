//! The stored responses of a node, within a fixed number of bytes. Workers share them: a hit reads a concurrent map and
//! takes no lock. Storing, removing and evicting take the lock of one part of the keys for a short time, which no hit
//! waits for.
//!
//! The bytes are split. Three quarters are for stored responses, and one quarter for responses that are being collected
//! ([`super::collector`]). A single response may have an eighth of all. [`super::order`] decides which response leaves
//! when there is no room.

use super::collector::{Collecting, Collector};
use super::entry::{Entry, Family};
use super::flights::Flights;
use super::key::CacheKey;
use super::order::{Held, MAX_USES, Order};
use arc_swap::ArcSwapOption;
use foldhash::fast::FixedState;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a storage for which there is a part with a lock of its own, and the maximum number of parts.
const BYTES_PER_PART: usize = 4 * 1024 * 1024;
const MAX_PARTS: usize = 64;

/// Number of counters of invalidations. URIs share them.
const STAMPS: usize = 1024;

/// Expired items that each storing removes, as long as they are the oldest ones.
const EXPIRED_AT_ONCE: usize = 4;

/// Items of one part that are evicted before those of the next one.
const EVICTED_AT_ONCE: usize = 32;

/// Responses that a removal of all removes at a time, so that requests that store need not wait for the rest.
const REMOVED_AT_ONCE: usize = 256;

pub(super) struct Storage {
    /// Keys are hashes already. The seed keeps clients from finding keys that are near each other.
    slots: papaya::HashMap<CacheKey, Slot, FixedState>,
    parts: Box<[Mutex<Order>]>,
    /// Bytes of all stored items, those included that are being stored.
    bytes: AtomicUsize,
    /// Counts the removals of all. Responses of an earlier generation are not sent any more.
    generation: AtomicU64,
    /// Counts the invalidations of URIs, so that a response to an earlier request is not stored after one.
    stamps: Box<[AtomicU32]>,
    /// The number of the last family.
    families: AtomicU64,
    pub(super) collecting: Collecting,
    pub(super) flights: Flights,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    stored: usize,
    entry: usize,
}

/// What is stored under a key.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Response(Entry),
    Family(Arc<Family>),
}

/// The place of a key in the map. The map frees removed values late, so that the item is emptied out of its slot.
struct Slot {
    kept: ArcSwapOption<Kept>,
    uses: AtomicU8,
}

struct Kept {
    item: Item,
    expires_at: u64,
    generation: u64,
}

impl Item {
    fn weight(&self) -> usize {
        match self {
            Self::Response(entry) => entry.weight(),
            Self::Family(family) => family.weight(),
        }
    }

    fn expires_at(&self) -> u64 {
        match self {
            Self::Response(entry) => entry.expires_at,
            // A family without responses is not used any more, and leaves when its turn comes.
            Self::Family(_) => u64::MAX,
        }
    }
}

impl Storage {
    /// Creates a storage that takes at most this number of bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let parts = (bytes / BYTES_PER_PART).clamp(1, MAX_PARTS);
        let entry = bytes / 8;
        let seed = RandomState::new().hash_one(bytes);
        Self {
            slots: papaya::HashMap::with_hasher(FixedState::with_seed(seed)),
            parts: (0..parts).map(|_| Mutex::new(Order::new())).collect(),
            bytes: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            stamps: (0..STAMPS).map(|_| AtomicU32::new(0)).collect(),
            families: AtomicU64::new(0),
            collecting: Collecting::new(bytes / 4, entry),
            flights: Flights::default(),
            limits: Limits {
                stored: bytes - bytes / 4,
                entry,
            },
        }
    }

    /// Returns the item of a key, and counts this as a use.
    pub(super) fn item(&self, key: &CacheKey, now: u64) -> Option<Item> {
        let slots = self.slots.pin();
        let slot = slots.get(key)?;
        let kept = slot.kept.load();
        let kept = kept.as_ref()?;
        if kept.expires_at <= now || kept.generation != self.generation() {
            return None;
        }
        // Most uses find the counter at its maximum, and then do not take the cache line away from other workers.
        let uses = slot.uses.load(Ordering::Relaxed);
        if uses < MAX_USES {
            slot.uses.store(uses + 1, Ordering::Relaxed);
        }
        Some(kept.item.clone())
    }

    /// Returns the response of a key.
    pub(super) fn get(&self, key: &CacheKey, now: u64) -> Option<Entry> {
        match self.item(key, now)? {
            Item::Response(entry) => Some(entry),
            Item::Family(_) => None,
        }
    }

    /// Returns what the responses of a URI have in common.
    pub(super) fn family(&self, key: &CacheKey, now: u64) -> Option<Arc<Family>> {
        match self.item(key, now)? {
            Item::Family(family) => Some(family),
            Item::Response(_) => None,
        }
    }

    /// Returns a number for a new family, which no other one has.
    pub(super) fn next_family(&self) -> u64 {
        self.families.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Stores a response in place of the one that has the key. Returns whether it has room.
    pub(super) fn put(&self, key: CacheKey, entry: Entry, now: u64) -> bool {
        self.put_item(key, Item::Response(entry), now)
    }

    /// Stores an item in place of the one that has the key. Returns whether it has room.
    pub(super) fn put_item(&self, key: CacheKey, item: Item, now: u64) -> bool {
        let (weight, expires_at) = (item.weight(), item.expires_at());
        if weight > self.limits.entry || expires_at <= now {
            return false;
        }
        let at = self.part_of(&key);
        let before = self.bytes.fetch_add(weight, Ordering::Relaxed);
        self.make_room(
            at,
            (before + weight).saturating_sub(self.limits.stored),
            now,
        );
        let mut order = self.part(at);
        for _ in 0..EXPIRED_AT_ONCE {
            let Some((key, weight)) = order.take_expired(now) else {
                break;
            };
            self.bytes.fetch_sub(weight, Ordering::Relaxed);
            self.empty(&key);
        }
        // Read under the lock: a removal of all that begins later also removes this item.
        let generation = self.generation();
        let kept = Arc::new(Kept {
            item,
            expires_at,
            generation,
        });
        let replaced = order.put(
            key,
            Held {
                weight,
                expires_at,
                generation,
            },
        );
        self.bytes.fetch_sub(replaced, Ordering::Relaxed);
        let slots = self.slots.pin();
        match slots.get(&key) {
            Some(slot) => slot.kept.store(Some(kept)),
            None => {
                slots.insert(key, Slot::new(kept));
            }
        }
        true
    }

    /// Evicts items until there are this many more bytes. A few items of one part leave at a time, so that storing a
    /// large response neither empties a part nor keeps its lock.
    fn make_room(&self, first: usize, wanted: usize, now: u64) {
        let (mut freed, mut at, mut empty) = (0, first, 0);
        while freed < wanted && empty < self.parts.len() {
            let evicted = self.evict(at, wanted - freed, now);
            empty = if evicted == 0 { empty + 1 } else { 0 };
            freed += evicted;
            at = (at + 1) % self.parts.len();
        }
    }

    /// Evicts some items of a part. Returns their bytes, which are 0 if there are none.
    fn evict(&self, part: usize, wanted: usize, now: u64) -> usize {
        let mut order = self.part(part);
        let mut freed = 0;
        for _ in 0..EVICTED_AT_ONCE {
            let evicted = order.evict(now, |key, left| self.take_uses(key, left));
            let Some((key, held)) = evicted else {
                break;
            };
            freed += held.weight;
            self.bytes.fetch_sub(held.weight, Ordering::Relaxed);
            self.empty(&key);
            if freed >= wanted {
                break;
            }
        }
        freed
    }

    /// Returns how often an item was used, and leaves the number that `left` makes of it.
    fn take_uses(&self, key: &CacheKey, left: fn(u8) -> u8) -> u8 {
        let slots = self.slots.pin();
        let Some(slot) = slots.get(key) else {
            return 0;
        };
        let uses = slot.uses.load(Ordering::Relaxed);
        if uses > 0 {
            slot.uses.store(left(uses), Ordering::Relaxed);
        }
        uses
    }

    /// Removes the slot of a key. The caller holds the lock of its part.
    fn empty(&self, key: &CacheKey) {
        let slots = self.slots.pin();
        if let Some(slot) = slots.remove(key) {
            slot.kept.store(None);
        }
    }

    fn remove(&self, key: &CacheKey) {
        let mut order = self.part(self.part_of(key));
        self.bytes.fetch_sub(order.take(key), Ordering::Relaxed);
        self.empty(key);
    }

    /// Removes the item of a key. Returns whether there was one.
    pub(super) fn purge(&self, key: &CacheKey, now: u64) -> bool {
        let is_there = self.item(key, now).is_some();
        self.remove(key);
        is_there
    }

    /// Removes all items. None of them is sent after the call has begun.
    pub(super) fn purge_all(&self) {
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        for part in 0..self.parts.len() {
            let mut left = self.part(part).len();
            while left > 0 {
                let mut order = self.part(part);
                for (key, weight) in order.take_older(generation, REMOVED_AT_ONCE) {
                    self.bytes.fetch_sub(weight, Ordering::Relaxed);
                    self.empty(&key);
                }
                left = left.saturating_sub(REMOVED_AT_ONCE);
            }
        }
    }

    /// Makes all responses of a URI invalid, those included that are on their way.
    pub(super) fn invalidate(&self, uri: &CacheKey) {
        // In this order: a response that is stored in between finds the new stamp afterwards, and removes itself.
        self.stamp_counter(uri).fetch_add(1, Ordering::AcqRel);
        if self.slots.pin().contains_key(uri) {
            self.remove(uri);
        }
    }

    /// Returns the number of invalidations so far, of this URI and some others.
    pub(super) fn stamp(&self, uri: &CacheKey) -> u32 {
        self.stamp_counter(uri).load(Ordering::Acquire)
    }

    fn stamp_counter(&self, uri: &CacheKey) -> &AtomicU32 {
        // The remainder is below the length.
        &self.stamps[(uri.fingerprint() % STAMPS as u64) as usize]
    }

    /// Begins to collect a body.
    pub(super) fn collect(self: &Arc<Self>) -> Collector {
        Collector::new(self)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn part_of(&self, key: &CacheKey) -> usize {
        // The upper half, so that parts and stamps do not depend on the same bits.
        (key.fingerprint() >> 32) as usize % self.parts.len()
    }

    /// The lock is held only by code that does not panic. Should it do so all the same, the order is still valid.
    fn part(&self, at: usize) -> MutexGuard<'_, Order> {
        self.parts[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of stored items and their bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let items = (0..self.parts.len()).map(|at| self.part(at).len());
        (items.sum(), self.bytes.load(Ordering::Relaxed))
    }
}

impl Slot {
    fn new(kept: Arc<Kept>) -> Self {
        Self {
            kept: ArcSwapOption::new(Some(kept)),
            uses: AtomicU8::new(0),
        }
    }
}
