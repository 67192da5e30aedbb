//! Requests that fetch a response right now, so that others for the same response can wait for it.
//!
//! A waiting request never gets the response of another one directly. It looks into the storage when the other has
//! finished. So only what may be stored is shared.

use super::key::CacheKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

const PARTS: usize = 16;

/// Seconds for which no request waits for a response that could not be stored the last time.
const UNSHARED_FOR: u64 = 10;

/// Keys of each part that are known not to be storable. All are forgotten when there are more.
const MAX_UNSHARED: usize = 1024;

#[derive(Default)]
pub(super) struct Flights {
    parts: [Mutex<Part>; PARTS],
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Part {
    /// The requests that fetch. Their semaphore has no permits and is closed at the end.
    flying: HashMap<CacheKey, Arc<Semaphore>>,
    /// Keys whose last response could not be stored, and until when this counts.
    unshared: HashMap<CacheKey, u64>,
}

/// A request's place beside others for the same response.
pub(super) enum Place {
    /// It fetches.
    First(Flight),
    /// Another one fetches.
    Later(Later),
}

/// A request that fetches a response. Dropping it wakes the others, whatever the outcome is.
pub(super) struct Flight {
    storage: Arc<super::storage::Storage>,
    key: CacheKey,
    ended: Arc<Semaphore>,
}

/// Waits for another request.
pub(super) struct Later(Arc<Semaphore>);

/// Counts a waiting request until it is dropped.
pub(super) struct Waiting<'f>(&'f Flights);

impl Flights {
    fn part(&self, key: &CacheKey) -> MutexGuard<'_, Part> {
        let at = (key.fingerprint() % PARTS as u64) as usize;
        self.parts[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that the response of this key cannot be shared, so that requests need not wait for it.
    pub(super) fn set_unshared(&self, key: CacheKey, now: u64) {
        let mut part = self.part(&key);
        if part.unshared.len() >= MAX_UNSHARED {
            part.unshared.clear();
        }
        part.unshared.insert(key, now + UNSHARED_FOR);
    }

    /// Whether the last response of this key could not be shared.
    pub(super) fn is_unshared(&self, key: &CacheKey, now: u64) -> bool {
        let part = self.part(key);
        part.unshared.get(key).is_some_and(|until| *until > now)
    }

    /// Counts one more waiting request, unless there are `most` of them.
    pub(super) fn wait(&self, most: usize) -> Option<Waiting<'_>> {
        let add = |all: usize| Some(all + 1).filter(|all| *all <= most);
        let counted = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        counted.ok().map(|_| Waiting(self))
    }
}

impl super::storage::Storage {
    /// Lets a request fetch the response of a key, or returns the one that does so already.
    pub(super) fn take_off(self: &Arc<Self>, key: CacheKey) -> Place {
        let mut part = self.flights.part(&key);
        if let Some(ended) = part.flying.get(&key) {
            return Place::Later(Later(Arc::clone(ended)));
        }
        let ended = Arc::new(Semaphore::new(0));
        part.flying.insert(key, Arc::clone(&ended));
        part.unshared.remove(&key);
        Place::First(Flight {
            storage: Arc::clone(self),
            key,
            ended,
        })
    }
}

impl Later {
    /// Waits until the other request has finished, at most for this time.
    pub(super) async fn wait(self, most: Duration) {
        // Acquiring fails when the semaphore is closed. Both ends of the wait mean the same for the caller.
        let _ = tokio::time::timeout(most, self.0.acquire()).await;
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.storage
            .flights
            .part(&self.key)
            .flying
            .remove(&self.key);
        self.ended.close();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
