//! Remembers the signatures that were accepted, until their dates are too old, so that nobody can send a request again.
//!
//! A table of fixed size holds them for all workers. They use it without locks.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Number of slots in a set. Each signature belongs to one set.
const WAYS: usize = 16;
/// Number of sets. The table takes 16 MiB. With 400,000 signatures, one in a million finds its set full.
const SETS: usize = 1 << 17;

/// Bits of a slot for the time, in seconds since the table was made. They suffice for eight years.
const TIME_BITS: u32 = 28;
const LAST_TIME: u64 = (1 << TIME_BITS) - 1;

pub(super) struct Signatures {
    /// A slot has a part of the signature's hash, and the last second at which the signature is acceptable. 0 is empty.
    slots: Box<[AtomicU64]>,
    /// The key is new in every process, so that nobody can fill a chosen set.
    hasher: SipHasher13,
    /// The time before the first one that a slot can have.
    base: u64,
    /// The longest `clock_skew` of all plugins that use the table: one accepts dates that another finds too old.
    longest_skew: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    First,
    Again,
    /// All slots that the signature could have are taken.
    Full,
}

impl Signatures {
    /// Makes an empty table. `now` is in seconds since 1970.
    pub(super) fn new(now: u64) -> Self {
        let seed = RandomState::new();
        Self {
            slots: (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect(),
            hasher: SipHasher13::new_with_keys(seed.hash_one(0), seed.hash_one(1)),
            base: now.saturating_sub(1),
            longest_skew: AtomicU64::new(0),
        }
    }

    /// Notes that a plugin accepts dates at this distance.
    pub(super) fn extend(&self, skew: u64) {
        self.longest_skew.fetch_max(skew, SeqCst);
    }

    pub(super) fn longest_skew(&self) -> u64 {
        self.longest_skew.load(SeqCst)
    }

    /// Notes a signature until a second, and tells whether it was noted before.
    ///
    /// Two slots have the same content with a probability of 2⁻³⁶ only. The second signature then counts as used.
    pub(super) fn note(&self, signature: &[u8], now: u64, until: u64) -> Use {
        let mut hasher = self.hasher;
        hasher.write(signature);
        let hash = hasher.finish128();
        let tag = hash.h1 >> TIME_BITS << TIME_BITS;
        let first = hash.h2 as usize % SETS * WAYS;
        self.insert(&self.slots[first..first + WAYS], tag, now, until)
    }

    fn insert(&self, set: &[AtomicU64], tag: u64, now: u64, until: u64) -> Use {
        let (now, until) = (self.relative(now), self.relative(until));
        let is_live = |content: u64| content & LAST_TIME >= now;
        let is_same = |content: u64| content >> TIME_BITS == tag >> TIME_BITS && is_live(content);
        loop {
            let contents: [u64; WAYS] = std::array::from_fn(|at| set[at].load(SeqCst));
            if contents.iter().any(|&content| is_same(content)) {
                return Use::Again;
            }
            let Some(free) = contents.iter().position(|&content| !is_live(content)) else {
                return Use::Full;
            };
            let noted = set[free].compare_exchange(contents[free], tag | until, SeqCst, SeqCst);
            if noted.is_err() {
                // Another worker took the slot, perhaps for the same signature.
                continue;
            }
            // Two workers whose clocks differ can choose different slots for one signature. At least one of them sees the
            // other's.
            let mut others = (0..WAYS).filter(|&at| at != free);
            return match others.any(|at| is_same(set[at].load(SeqCst))) {
                true => Use::Again,
                false => Use::First,
            };
        }
    }

    /// Returns a time as a slot has it. It is never 0.
    fn relative(&self, time: u64) -> u64 {
        time.saturating_sub(self.base).clamp(1, LAST_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    #[test]
    fn a_signature_counts_once_until_it_ends() {
        let table = Signatures::new(NOW);
        assert_eq!(table.note(b"one", NOW, NOW + 300), Use::First);
        assert_eq!(table.note(b"two", NOW, NOW), Use::First);
        assert_eq!(table.note(b"one", NOW, NOW + 300), Use::Again);
        assert_eq!(table.note(b"one", NOW + 300, NOW + 300), Use::Again);
        assert_eq!(table.note(b"one", NOW + 301, NOW + 601), Use::First);
        assert_eq!(table.note(b"two", NOW, NOW), Use::Again);
        assert_eq!(table.note(b"two", NOW + 1, NOW + 1), Use::First);
    }

    #[test]
    fn times_before_the_table_and_far_ahead_are_kept_in_bounds() {
        let table = Signatures::new(NOW);
        assert_eq!(table.note(b"old", NOW - 9, NOW - 5), Use::First);
        assert_eq!(table.note(b"old", NOW - 9, NOW - 5), Use::Again);
        assert_eq!(table.note(b"far", NOW, u64::MAX), Use::First);
        assert_eq!(table.note(b"far", NOW + 1_000_000, u64::MAX), Use::Again);
    }

    #[test]
    fn a_full_set_refuses_until_a_signature_ends() {
        let table = Signatures::new(NOW);
        let set = &table.slots[..WAYS];
        let tag = |number: u64| (number + 1) << TIME_BITS;
        for number in 0..WAYS as u64 {
            assert_eq!(
                table.insert(set, tag(number), NOW, NOW + 10 + number),
                Use::First
            );
        }
        assert_eq!(table.insert(set, tag(99), NOW, NOW + 10), Use::Full);
        assert_eq!(table.insert(set, tag(3), NOW, NOW + 10), Use::Again);
        assert_eq!(table.insert(set, tag(99), NOW + 11, NOW + 20), Use::First);
        assert_eq!(table.insert(set, tag(98), NOW + 11, NOW + 20), Use::Full);
    }

    #[test]
    fn of_several_threads_one_at_most_gets_the_first_use() {
        let table = Signatures::new(NOW);
        for round in 0..2000_u64 {
            let signature = round.to_le_bytes();
            let firsts: usize = std::thread::scope(|scope| {
                let note = || usize::from(table.note(&signature, NOW, NOW + 9) == Use::First);
                let other = scope.spawn(note);
                note() + other.join().expect("it does not panic")
            });
            assert_eq!(firsts, 1, "round {round}");
        }
    }

    #[test]
    fn the_table_holds_hundreds_of_thousands() {
        let table = Signatures::new(NOW);
        let refused = (0..400_000_u32)
            .filter(|number| table.note(&number.to_le_bytes(), NOW, NOW + 300) != Use::First)
            .count();
        assert!(refused <= 8, "{refused}");
    }
}
