//! The stored responses of a node, within a fixed number of bytes. Workers share them: a hit reads a concurrent map and
//! takes no lock. Storing, removing and evicting take one short lock, which no hit waits for.
//!
//! When there is no room, the response that was used least recently goes. The order is exact for the time of storing. A
//! hit only marks the response, and a marked one gets a second chance when its turn comes (the "clock" form of least
//! recently used), because a hit that moved it in the order would need the lock.
//!
//! The bytes are split. Three quarters are for stored responses, and one quarter for responses that are being collected:
//! many at once must not take more memory than the storage has. A single response may have an eighth of all. Bodies of
//! more than [`SMALL`] bytes get only half of the quarter: a few clients that read large responses slowly must not keep
//! all others from being stored.

use super::key::CacheKey;
use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use lru::LruCache;
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that each stored response takes beside its headers and its body: its places in the map and in the order.
const OVERHEAD: usize = 512;

/// Bytes that each header line takes beside its text.
const HEADER_OVERHEAD: usize = std::mem::size_of::<Line>();

/// Length of the pieces in which a body is kept and sent.
const PIECE: usize = 64 * 1024;

/// Length of a body up to which it may use all the bytes for responses that are being collected.
const SMALL: usize = 64 * 1024;

/// Second chances at one eviction. More would make one request pay for many hits of others.
const MAX_CHANCES: usize = 16;

/// Responses at the end of the order that each storing examines for their age.
const EXAMINED: usize = 4;

/// Responses that a removal of all removes at a time, so that requests that store need not wait for the rest.
const REMOVED_AT_ONCE: usize = 256;

/// A stored response.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) status: u16,
    pub(super) headers: Lines,
    pub(super) body: Body,
    /// Time of storing, in seconds since 1970.
    pub(super) stored_at: u64,
    /// Seconds for which the response may be sent.
    pub(super) ttl: u64,
    /// Time at which the response leaves the storage, in seconds since 1970.
    pub(super) expires_at: u64,
}

/// Header lines in order. Their texts are in one buffer, because a buffer for each would take more memory than most
/// texts.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines(Box<[Line]>);

#[derive(Debug, Clone)]
pub(super) struct Line {
    /// The name as received.
    pub(super) name: Bytes,
    pub(super) value: Bytes,
    /// Whether no earlier line has this name.
    pub(super) is_first: bool,
}

impl Lines {
    pub(super) fn new<'l>(lines: impl Iterator<Item = (&'l str, &'l [u8])> + Clone) -> Self {
        let length = |(name, value): (&str, &[u8])| name.len() + value.len();
        let mut texts = BytesMut::with_capacity(lines.clone().map(length).sum());
        for (name, value) in lines.clone() {
            texts.extend_from_slice(name.as_bytes());
            texts.extend_from_slice(value);
        }
        let mut texts = texts.freeze();
        let mut names = HashSet::new();
        let lines = lines.map(|(name, value)| Line {
            name: texts.split_to(name.len()),
            value: texts.split_to(value.len()),
            is_first: names.insert(name.to_ascii_lowercase()),
        });
        Self(lines.collect())
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Line> {
        self.0.iter()
    }
}

/// A body in pieces. They belong to the stored response alone and keep no buffer of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Body {
    pub(super) pieces: Box<[Bytes]>,
    pub(super) len: usize,
}

impl Entry {
    fn weight(&self) -> usize {
        let line = |line: &Line| line.name.len() + line.value.len() + HEADER_OVERHEAD;
        OVERHEAD + self.headers.iter().map(line).sum::<usize>() + self.body.len
    }
}

pub(super) struct Storage {
    slots: papaya::HashMap<CacheKey, Slot>,
    order: Mutex<Order>,
    /// Counts the removals of all. Responses of an earlier generation are not sent any more.
    generation: AtomicU64,
    /// Bytes of the bodies that are being collected.
    collecting: AtomicUsize,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    stored: usize,
    collecting: usize,
    entry: usize,
}

/// The place of a key in the map. The map frees removed values late, so that the response is emptied out of its slot.
struct Slot {
    kept: ArcSwapOption<Kept>,
    is_used: AtomicBool,
}

struct Kept {
    entry: Arc<Entry>,
    generation: u64,
}

/// The keys of all stored responses, and their bytes.
struct Order {
    keys: LruCache<CacheKey, Held, RandomState>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    weight: usize,
    expires_at: u64,
}

impl Storage {
    /// Creates a storage that takes at most this number of bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            slots: papaya::HashMap::new(),
            order: Mutex::new(Order {
                keys: LruCache::unbounded_with_hasher(RandomState::new()),
                bytes: 0,
            }),
            generation: AtomicU64::new(0),
            collecting: AtomicUsize::new(0),
            limits: Limits {
                stored: bytes - bytes / 4,
                collecting: bytes / 4,
                entry: bytes / 8,
            },
        }
    }

    /// Returns the response of a key.
    pub(super) fn get(&self, key: &CacheKey, now: u64) -> Option<Arc<Entry>> {
        let slots = self.slots.pin();
        let slot = slots.get(key)?;
        let kept = slot.kept.load();
        let kept = kept.as_ref()?;
        if kept.entry.expires_at <= now || kept.generation != self.generation() {
            return None;
        }
        // Most hits find the mark set, and then do not take the cache line away from other workers.
        if !slot.is_used.load(Ordering::Relaxed) {
            slot.is_used.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(&kept.entry))
    }

    /// Stores a response in place of the one that has the key. Returns whether it has room.
    pub(super) fn put(&self, key: CacheKey, entry: Entry, now: u64) -> bool {
        let weight = entry.weight();
        if weight > self.limits.entry || entry.expires_at <= now {
            return false;
        }
        let held = Held {
            weight,
            expires_at: entry.expires_at,
        };
        let mut order = self.order();
        // Read under the lock: a removal of all that begins later also removes this response.
        let kept = Arc::new(Kept {
            entry: Arc::new(entry),
            generation: self.generation(),
        });
        order.take(&key);
        self.make_room(&mut order, weight, now);
        order.bytes += weight;
        order.keys.put(key, held);
        let slots = self.slots.pin();
        match slots.get(&key) {
            Some(slot) => {
                slot.is_used.store(false, Ordering::Relaxed);
                slot.kept.store(Some(kept));
            }
            None => {
                slots.insert(key, Slot::new(kept));
            }
        }
        true
    }

    /// Removes responses from the end of the order: a few that are too old, and as many as are needed for the room.
    fn make_room(&self, order: &mut Order, weight: usize, now: u64) {
        for _ in 0..EXAMINED {
            match order.keys.peek_lru() {
                Some((key, held)) if held.expires_at <= now => {
                    let key = *key;
                    self.remove(order, &key);
                }
                _ => break,
            }
        }
        let mut chances = 0;
        while order.bytes + weight > self.limits.stored {
            let Some((key, held)) = order.keys.peek_lru() else {
                return;
            };
            let (key, is_old) = (*key, held.expires_at <= now);
            if !is_old && chances < MAX_CHANCES && self.take_mark(&key) {
                chances += 1;
                order.keys.promote(&key);
            } else {
                self.remove(order, &key);
            }
        }
    }

    /// Whether the response was sent since its last turn.
    fn take_mark(&self, key: &CacheKey) -> bool {
        let slots = self.slots.pin();
        let slot = slots.get(key);
        slot.is_some_and(|slot| slot.is_used.swap(false, Ordering::Relaxed))
    }

    fn remove(&self, order: &mut Order, key: &CacheKey) {
        order.take(key);
        let slots = self.slots.pin();
        if let Some(slot) = slots.remove(key) {
            slot.kept.store(None);
        }
    }

    /// Removes the response of a key. Returns whether there was one.
    pub(super) fn purge(&self, key: &CacheKey, now: u64) -> bool {
        let is_there = self.get(key, now).is_some();
        self.remove(&mut self.order(), key);
        is_there
    }

    /// Removes all responses. None of them is sent after the call has begun.
    pub(super) fn purge_all(&self) {
        let mut left = {
            let order = self.order();
            self.generation.fetch_add(1, Ordering::AcqRel);
            order.keys.len()
        };
        while left > 0 {
            let mut order = self.order();
            for _ in 0..left.min(REMOVED_AT_ONCE) {
                let Some((key, _)) = order.keys.peek_lru() else {
                    return;
                };
                let key = *key;
                self.remove_or_promote(&mut order, &key);
            }
            left = left.saturating_sub(REMOVED_AT_ONCE);
        }
    }

    /// Removes a response unless it was stored after the last removal of all.
    fn remove_or_promote(&self, order: &mut Order, key: &CacheKey) {
        let is_current = {
            let slots = self.slots.pin();
            let kept = slots.get(key).map(|slot| slot.kept.load());
            let generation = self.generation();
            kept.is_some_and(|kept| {
                kept.as_ref()
                    .is_some_and(|kept| kept.generation == generation)
            })
        };
        if is_current {
            order.keys.promote(key);
        } else {
            self.remove(order, key);
        }
    }

    /// Begins to collect a body.
    pub(super) fn collect(self: &Arc<Self>) -> Collector {
        Collector {
            storage: Arc::clone(self),
            pieces: Vec::new(),
            last: BytesMut::new(),
            len: 0,
        }
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The lock is held only by code that does not panic. Should it do so all the same, the order is still valid.
    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of stored responses and their bytes.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        let order = self.order();
        (order.keys.len(), order.bytes)
    }

    #[cfg(test)]
    pub(super) fn collecting(&self) -> usize {
        self.collecting.load(Ordering::Relaxed)
    }
}

impl Slot {
    fn new(kept: Arc<Kept>) -> Self {
        Self {
            kept: ArcSwapOption::new(Some(kept)),
            is_used: AtomicBool::new(false),
        }
    }
}

impl Order {
    fn take(&mut self, key: &CacheKey) {
        if let Some(held) = self.keys.pop(key) {
            self.bytes -= held.weight;
        }
    }
}

/// Collects a body that is to be stored, while it is sent to the client. It copies the body, so that the stored one
/// keeps no larger buffers of the connection.
pub(super) struct Collector {
    storage: Arc<Storage>,
    pieces: Vec<Bytes>,
    last: BytesMut,
    len: usize,
}

/// The body has become too large to be stored, or too many bodies are being collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Collector {
    /// Adds a piece. After [`NoRoom`] the collector must be dropped, which gives its memory back.
    pub(super) fn add(&mut self, mut data: &[u8]) -> Result<(), NoRoom> {
        self.reserve(data.len())?;
        while !data.is_empty() {
            let room = PIECE - self.last.len();
            let (now, later) = data.split_at(data.len().min(room));
            self.last.extend_from_slice(now);
            if self.last.len() == PIECE {
                self.end_piece();
            }
            data = later;
        }
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let limits = self.storage.limits;
        if bytes > limits.entry.saturating_sub(self.len) {
            return Err(NoRoom);
        }
        let most = match self.len + bytes <= SMALL {
            true => limits.collecting,
            false => limits.collecting / 2,
        };
        let add = |all: usize| all.checked_add(bytes).filter(|all| *all <= most);
        let collecting = &self.storage.collecting;
        collecting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map_err(|_| NoRoom)?;
        self.len += bytes;
        Ok(())
    }

    fn end_piece(&mut self) {
        // A copy of the exact length: the buffer has grown by doubling.
        let piece = Bytes::copy_from_slice(&self.last);
        self.last.clear();
        self.pieces.push(piece);
    }

    /// Returns the body that was collected.
    pub(super) fn finish(&mut self) -> Body {
        if !self.last.is_empty() {
            self.end_piece();
        }
        Body {
            pieces: std::mem::take(&mut self.pieces).into_boxed_slice(),
            len: self.len,
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.storage
            .collecting
            .fetch_sub(self.len, Ordering::Relaxed);
    }
}
