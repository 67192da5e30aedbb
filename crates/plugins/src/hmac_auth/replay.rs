//! Remembers the signatures that were accepted, until their dates are too old, so that nobody can send a request again.
//!
//! Each credential has a set of its own. It may take as much room as is free in the table: one credential alone takes
//! half of it at most, two a third each. So no client can take the room of the others.

use services::{Background, Clock};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of signatures. They take about 30 MiB.
const CAPACITY: usize = 1 << 20;

/// Number of parts with a lock of their own.
const SHARDS: usize = 64;

/// Maximum number of outdated signatures that one turn under a lock removes.
const SLICE: usize = 1024;

/// Maximum number of outdated signatures that noting one removes.
const SLICE_OF_NOTE: usize = 8;

const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Minimum time between two warnings, in seconds.
const WARN_EVERY: u64 = 60;

pub(super) struct Signatures {
    capacity: usize,
    shards: [Mutex<Shard>; SHARDS],
    count: AtomicUsize,
    /// The key is new in every process, so that nobody can make two signatures with one hash.
    hasher: SipHasher13,
    /// The longest `clock_skew` of all plugins that use the table: one accepts dates that another finds too old.
    longest_skew: AtomicU64,
    is_tended: AtomicBool,
    /// When the last warning was logged, in seconds since 1970.
    warned: AtomicU64,
}

/// The signatures of some credentials.
type Shard = HashMap<Uuid, Set>;

/// The signatures of a credential: the date of each, which is signed and never changes, and its hash.
type Set = BTreeSet<(u64, u64)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    First,
    Again,
    /// The credential has taken its share of the room.
    Full,
}

impl Signatures {
    pub(super) fn new() -> Self {
        Self::with_room(CAPACITY)
    }

    fn with_room(capacity: usize) -> Self {
        let seed = RandomState::new();
        Self {
            capacity,
            shards: std::array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
            hasher: SipHasher13::new_with_keys(seed.hash_one(0), seed.hash_one(1)),
            longest_skew: AtomicU64::new(0),
            is_tended: AtomicBool::new(false),
            warned: AtomicU64::new(0),
        }
    }

    /// Notes that a plugin accepts dates at this distance.
    pub(super) fn extend(&self, skew: u64) {
        self.longest_skew.fetch_max(skew, SeqCst);
    }

    /// Notes a signature of a credential, and tells whether it was noted before. Times are in seconds since 1970. `date`
    /// is the latest date that is signed.
    pub(super) fn note(&self, credential: Uuid, signature: &[u8], date: u64, now: u64) -> Use {
        let mut hasher = self.hasher;
        hasher.write(signature);
        let signature = (date, hasher.finish128().h1);
        let mut shard = self.shard(credential);
        let used = match shard.get_mut(&credential) {
            Some(set) => set,
            None if self.free() == 0 => return Use::Full,
            None => shard.entry(credential).or_default(),
        };
        if used.contains(&signature) {
            return Use::Again;
        }
        self.remove_outdated(used, now, SLICE_OF_NOTE);
        if used.len() >= self.free() {
            // The clock was set back. What is further ahead than any date that is accepted may go.
            let last = now.saturating_add(self.longest_skew.load(SeqCst));
            match used.last() {
                Some(&(date, _)) if date > last => used.pop_last(),
                _ => return Use::Full,
            };
            self.count.fetch_sub(1, Relaxed);
        }
        used.insert(signature);
        self.count.fetch_add(1, Relaxed);
        Use::First
    }

    fn free(&self) -> usize {
        self.capacity.saturating_sub(self.count.load(Relaxed))
    }

    fn shard(&self, credential: Uuid) -> MutexGuard<'_, Shard> {
        // The last byte of an id is random.
        let [.., last] = *credential.as_bytes();
        lock(&self.shards[usize::from(last) % SHARDS])
    }

    /// Removes signatures whose date no plugin accepts any more. Returns how many of `most` are left.
    fn remove_outdated(&self, set: &mut Set, now: u64, most: usize) -> usize {
        let first = now.saturating_sub(self.longest_skew.load(SeqCst));
        for left in (1..=most).rev() {
            match set.first() {
                Some(&(date, _)) if date < first => set.pop_first(),
                _ => return left,
            };
            self.count.fetch_sub(1, Relaxed);
        }
        0
    }

    /// Removes all outdated signatures, with many short locks.
    fn sweep(&self, now: u64) {
        for shard in &self.shards {
            let mut left = 0;
            while left == 0 {
                left = SLICE;
                lock(shard).retain(|_, set| {
                    left = self.remove_outdated(set, now, left);
                    !set.is_empty()
                });
            }
        }
    }

    /// Makes the background sweep the table, unless it does already. The table then lives as long as it has signatures,
    /// also without a plugin that uses it: a change of the configuration must not allow replays.
    pub(super) fn tend(self: &Arc<Self>, background: &Background, clock: &Clock) {
        if !self.is_tended.swap(true, SeqCst) {
            background.spawn_service(self.clone().sweep_until_unused(clock.clone()));
        }
    }

    async fn sweep_until_unused(self: Arc<Self>, clock: Clock) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            self.sweep(clock.since_epoch().as_secs());
            // Whoever gets the table after the next line makes the background sweep it again.
            self.is_tended.swap(false, SeqCst);
            let is_used = Arc::strong_count(&self) > 1 || self.count.load(SeqCst) > 0;
            if !is_used || self.is_tended.swap(true, SeqCst) {
                return;
            }
        }
    }

    /// Warns that a signature was refused for lack of room, at most once a minute.
    pub(super) fn warn_of_full(&self, credential: Uuid, now: u64) {
        let last = self.warned.load(Relaxed);
        let is_due = last.abs_diff(now) >= WARN_EVERY;
        let exchanged = || self.warned.compare_exchange(last, now, Relaxed, Relaxed);
        if is_due && exchanged().is_ok() {
            tracing::warn!(
                %credential,
                "signed requests are refused, because the credential has too many signatures within clock_skew"
            );
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;
    const SKEW: u64 = 300;
    const ONE: Uuid = Uuid::from_u128(1);
    const TWO: Uuid = Uuid::from_u128(2);

    fn table(capacity: usize) -> Signatures {
        let table = Signatures::with_room(capacity);
        table.extend(SKEW);
        table
    }

    /// Notes numbers as signatures, and returns how many were noted.
    fn fill(table: &Signatures, credential: Uuid, numbers: u64) -> usize {
        let note = |number: &u64| table.note(credential, &number.to_le_bytes(), NOW, NOW);
        let noted = (0..numbers).filter(|number| note(number) == Use::First);
        noted.count()
    }

    #[test]
    fn a_signature_counts_once_until_its_date_is_too_old() {
        let table = table(100);
        assert_eq!(table.note(ONE, b"a", NOW, NOW), Use::First);
        assert_eq!(table.note(ONE, b"b", NOW, NOW), Use::First);
        assert_eq!(table.note(TWO, b"a", NOW, NOW), Use::First);
        assert_eq!(table.note(ONE, b"a", NOW, NOW + SKEW), Use::Again);
        table.sweep(NOW + SKEW);
        assert_eq!(table.note(ONE, b"a", NOW, NOW + SKEW), Use::Again);
        table.sweep(NOW + SKEW + 1);
        assert_eq!(table.count.load(SeqCst), 0);
        assert!(table.shards.iter().all(|shard| lock(shard).is_empty()));
    }

    #[test]
    fn a_credential_takes_what_is_free_and_leaves_room_for_others() {
        let table = table(1000);
        assert_eq!(fill(&table, ONE, 2000), 500);
        assert_eq!(fill(&table, TWO, 2000), 250);
        for number in 3..100 {
            assert!(fill(&table, Uuid::from_u128(number), 1) <= 1);
            assert!(table.count.load(SeqCst) < 1000);
        }
        assert_eq!(table.note(ONE, &7_u64.to_le_bytes(), NOW, NOW), Use::Again);
        assert_eq!(table.note(ONE, b"new", NOW, NOW), Use::Full);
    }

    #[test]
    fn a_new_signature_removes_some_that_are_too_old() {
        let table = table(1000);
        assert_eq!(fill(&table, ONE, 2000), 500);
        let last = NOW + SKEW;
        assert_eq!(table.note(ONE, b"new", last, last), Use::Full);
        assert_eq!(table.note(ONE, b"new", last, last + 1), Use::First);
        assert_eq!(table.count.load(SeqCst), 501 - SLICE_OF_NOTE);
    }

    #[test]
    fn dates_of_a_clock_that_was_wrong_give_room() {
        let table = table(1000);
        let wrong = NOW + 1_000_000;
        for number in 0..500_u64 {
            let signature = number.to_le_bytes();
            assert_eq!(table.note(ONE, &signature, wrong, wrong), Use::First);
        }
        assert_eq!(table.note(ONE, b"one", wrong, wrong), Use::Full);
        assert_eq!(fill(&table, ONE, 2000), 500);
        assert_eq!(fill(&table, ONE, 500), 0);
        assert_eq!(table.count.load(SeqCst), 500);
        assert_eq!(table.note(ONE, &7_u64.to_le_bytes(), NOW, NOW), Use::Again);
    }

    #[test]
    fn of_several_threads_one_at_most_gets_the_first_use() {
        let table = table(10_000);
        for round in 0..2000_u64 {
            let signature = round.to_le_bytes();
            let firsts: usize = std::thread::scope(|scope| {
                let note = || usize::from(table.note(ONE, &signature, NOW, NOW) == Use::First);
                let other = scope.spawn(note);
                note() + other.join().expect("it does not panic")
            });
            assert_eq!(firsts, 1, "round {round}");
        }
    }

    #[test]
    fn warnings_are_rare() {
        let table = table(1);
        let warned_at = |now| {
            table.warn_of_full(ONE, now);
            table.warned.load(Relaxed)
        };
        assert_eq!(warned_at(NOW), NOW);
        assert_eq!(warned_at(NOW + 59), NOW);
        assert_eq!(warned_at(NOW + 60), NOW + 60);
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_lives_as_long_as_it_has_signatures() {
        let (background, clock) = (Background::here(), Clock::fixed(std::time::UNIX_EPOCH));
        let table = Arc::new(table(10));
        let weak = Arc::downgrade(&table);
        table.tend(&background, &clock);
        table.note(ONE, b"a", 0, 0);
        drop(table);
        let seconds = async |seconds| {
            clock.advance(Duration::from_secs(seconds));
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            tokio::time::sleep(SWEEP_EVERY).await;
        };
        seconds(SKEW).await;
        let table = weak.upgrade().expect("it has a signature");
        assert_eq!(table.note(ONE, b"a", 0, SKEW), Use::Again);
        seconds(1).await;
        drop(table);
        seconds(1).await;
        assert!(weak.upgrade().is_none());
    }
}
