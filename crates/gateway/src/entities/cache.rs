//! Cache of the recent lookups of one worker. A lookup in a B-tree of the store with ten thousand entries touches a
//! dozen CPU cache lines. A lookup in this cache touches two.
//!
//! The cache has a fixed size, so that memory does not grow with the number of credentials. It holds only keys that
//! exist, so that guessed keys cannot evict the keys in use. An entry is ignored if any entity of its types has changed
//! since it was read.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, Hasher, RandomState};
use store::Revision;

/// Number of slots in a set. Each key belongs to one set. A new entry replaces the oldest one of its set.
const WAYS: usize = 4;
/// Number of sets. A full cache takes about 5 MB per worker.
const SETS: usize = 8192;

pub(super) struct Cache<V> {
    /// Empty until the first entry, so that a worker without lookups needs no memory.
    entries: Vec<Option<Entry<V>>>,
    hasher: SipHasher13,
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
        let set = self.entries.get(Self::places(tag))?;
        let mut found = set.iter().flatten();
        let entry = found.find(|entry| entry.tag == tag.0 && entry.revision >= since)?;
        Some(entry.value.clone())
    }

    pub(super) fn put(&mut self, tag: Tag, revision: Revision, value: V) {
        if self.entries.is_empty() {
            self.entries.resize_with(SETS * WAYS, || None);
        }
        let set = &mut self.entries[Self::places(tag)];
        set.rotate_right(1);
        set[0] = Some(Entry {
            tag: tag.0,
            revision,
            value,
        });
    }

    fn places(tag: Tag) -> std::ops::Range<usize> {
        let set = tag.0 as usize % SETS;
        set * WAYS..set * WAYS + WAYS
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
            assert_eq!(cache.get(tag, Revision(1)), Some(key));
        }
        assert_eq!(cache.entries.len(), SETS * WAYS);
    }
}
