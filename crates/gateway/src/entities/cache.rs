//! Cache of the recent lookups of one worker. A lookup in a B-tree of the store with ten thousand entries touches a
//! dozen CPU cache lines. A lookup in this cache touches three.
//!
//! The cache has a fixed size, so that memory does not grow with the number of credentials. It holds only keys that
//! exist, so that guessed keys cannot evict the keys in use. An entry is ignored if any entity of its types has changed
//! since it was read.
//!
//! A key gets an entry when it is put a second time. So keys that occur once do not evict keys that occur again, and
//! with more keys than entries most lookups do not pay for an entry that nobody will read: replacing one costs 0.4 µs,
//! because its values are not in the CPU's caches.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, Hasher, RandomState};
use store::Revision;

/// Number of entries in a set. Each key belongs to one set. A new entry replaces the oldest one of its set.
const WAYS: usize = 4;
/// Number of sets. A full cache takes about 5 MB per worker.
const SETS: usize = 8192;
/// Number of keys without an entry that a set remembers.
const SEEN: usize = 7;

pub(super) struct Cache<V> {
    /// Empty until the first entry, so that a worker without lookups needs no memory.
    sets: Vec<Set>,
    /// [`WAYS`] entries for each set.
    entries: Vec<Option<Entry<V>>>,
    hasher: SipHasher13,
}

/// What decides about a key of a set. It fits into one line of the CPU's caches, so a key without an entry touches no
/// more than that.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set {
    /// The first half of the tag of each entry.
    tags: [u64; WAYS],
    /// Parts of the tags of keys that were put once.
    seen: [u32; SEEN],
    /// Positions of the oldest entry and the oldest key that was seen.
    oldest_entry: u8,
    oldest_seen: u8,
}

struct Entry<V> {
    tag: u128,
    revision: Revision,
    value: V,
}

/// Represents a key by 128 bits of a hash. The seed is new in every process, so that nobody can construct two keys with
/// the same tag. Tags also keep credentials out of the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u128);

impl<V: Clone> Cache<V> {
    pub(super) fn new() -> Self {
        Self {
            sets: Vec::new(),
            entries: Vec::new(),
            // The standard library offers random numbers only in this form.
            hasher: SipHasher13::new_with_keys(
                RandomState::new().hash_one(0),
                RandomState::new().hash_one(1),
            ),
        }
    }

    pub(super) fn tag(&self, key: &[u8]) -> Tag {
        let mut hasher = self.hasher;
        hasher.write(key);
        Tag(hasher.finish128().as_u128())
    }

    /// Returns an entry that was read at revision `since` or later.
    pub(super) fn get(&self, tag: Tag, since: Revision) -> Option<V> {
        let way = self.sets.get(tag.set())?.way(tag)?;
        let entry = self.entries.get(tag.set() * WAYS + way)?.as_ref()?;
        let is_current = entry.tag == tag.0 && entry.revision >= since;
        is_current.then(|| entry.value.clone())
    }

    /// Keeps a value if its key was put before.
    pub(super) fn put(&mut self, tag: Tag, revision: Revision, value: V) {
        if self.sets.is_empty() {
            self.sets.resize(SETS, Set::default());
            self.entries.resize_with(SETS * WAYS, || None);
        }
        if let Some(way) = self.sets[tag.set()].admit(tag) {
            self.entries[tag.set() * WAYS + way] = Some(Entry {
                tag: tag.0,
                revision,
                value,
            });
        }
    }
}

impl Tag {
    fn set(self) -> usize {
        self.0 as usize % SETS
    }

    /// The half that the table of sets has.
    fn half(self) -> u64 {
        self.0 as u64
    }

    /// The part by which a set remembers a key. These bits do not select the set.
    fn part(self) -> u32 {
        (self.0 >> 96) as u32
    }
}

impl Set {
    fn way(&self, tag: Tag) -> Option<usize> {
        self.tags.iter().position(|half| *half == tag.half())
    }

    /// Returns the position of the entry for a key; `None` if the key was not seen before.
    fn admit(&mut self, tag: Tag) -> Option<usize> {
        if let Some(way) = self.way(tag) {
            return Some(way);
        }
        if !self.seen.contains(&tag.part()) {
            let place = usize::from(self.oldest_seen);
            self.seen[place] = tag.part();
            self.oldest_seen = ((place + 1) % SEEN) as u8;
            return None;
        }
        let way = usize::from(self.oldest_entry);
        self.tags[way] = tag.half();
        self.oldest_entry = ((way + 1) % WAYS) as u8;
        Some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_until_its_entities_change() {
        let mut cache = Cache::new();
        let tag = cache.tag(b"key");
        assert_eq!(cache.get(tag, Revision(1)), None);
        cache.put(tag, Revision(1), "value");
        cache.put(tag, Revision(1), "value");
        assert_eq!(cache.get(tag, Revision(0)), Some("value"));
        assert_eq!(cache.get(tag, Revision(1)), Some("value"));
        assert_eq!(cache.get(tag, Revision(2)), None);
        cache.put(tag, Revision(2), "newer");
        assert_eq!(cache.get(tag, Revision(2)), Some("newer"));
    }

    #[test]
    fn the_cache_keeps_its_size_and_the_latest_entries() {
        let mut cache = Cache::new();
        for key in 0..4 * SETS {
            let tag = cache.tag(&key.to_le_bytes());
            cache.put(tag, Revision(1), key);
            cache.put(tag, Revision(1), key);
            assert_eq!(cache.get(tag, Revision(1)), Some(key));
        }
        assert_eq!(cache.entries.len(), SETS * WAYS);
        assert_eq!(size_of::<Set>(), 64);
    }

    #[test]
    fn keys_that_occur_once_do_not_evict_those_in_use() {
        let mut cache = Cache::new();
        let used = cache.tag(b"in use");
        cache.put(used, Revision(1), 0);
        assert_eq!(cache.get(used, Revision(1)), None);
        cache.put(used, Revision(1), 0);
        for key in 0..20 * SETS {
            let once = cache.tag(&key.to_le_bytes());
            cache.put(once, Revision(1), key);
        }
        assert_eq!(cache.get(used, Revision(1)), Some(0));
    }
}
