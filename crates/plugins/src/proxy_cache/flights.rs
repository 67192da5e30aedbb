//! Requests that fetch a response right now, so that others for the same response can wait for it.
//!
//! A waiting request never gets the response of another one directly. It looks into the storage when the other has
//! finished. So only what may be stored is shared.

use super::key::CacheKey;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;
use tokio::time::Instant;

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
    /// The requests that fetch.
    flying: HashMap<CacheKey, Arc<End>>,
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
    end: Arc<End>,
}

/// Waits for another request.
pub(super) struct Later(Arc<End>);

/// The end of a request that fetches.
struct End {
    /// It has no permits and is closed at the end.
    closed: Semaphore,
    /// Whether the others know all that they can know about the response. It is not so if the client has gone before.
    is_known: AtomicBool,
    /// Whether the request fetches only after its own client has got another response. That client decides when it
    /// begins, so nobody waits for it.
    is_background: bool,
}

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
    fn set_unshared(&self, key: CacheKey, now: u64) {
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

    /// Returns the number of keys whose last response could not be shared.
    #[cfg(test)]
    pub(super) fn unshared(&self) -> usize {
        let parts = self.parts.iter();
        let part = |part: &Mutex<Part>| part.lock().expect("no panic").unshared.len();
        parts.map(part).sum()
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
    /// Lets a request fetch the response of a key, or returns the one that does so already. It takes the place of a
    /// request that fetches in the background.
    pub(super) fn take_off(self: &Arc<Self>, key: CacheKey) -> Place {
        let mut part = self.flights.part(&key);
        match part.flying.get(&key) {
            Some(end) if !end.is_background => Place::Later(Later(Arc::clone(end))),
            _ => Place::First(self.begin(&mut part, key, false)),
        }
    }

    /// Lets a request fetch the response of a key after its client has got another response. `None` if a request
    /// fetches it already.
    pub(super) fn take_off_in_background(self: &Arc<Self>, key: CacheKey) -> Option<Flight> {
        let mut part = self.flights.part(&key);
        let is_free = !part.flying.contains_key(&key);
        is_free.then(|| self.begin(&mut part, key, true))
    }

    fn begin(self: &Arc<Self>, part: &mut Part, key: CacheKey, is_background: bool) -> Flight {
        let end = Arc::new(End {
            closed: Semaphore::new(0),
            is_known: AtomicBool::new(false),
            is_background,
        });
        part.flying.insert(key, Arc::clone(&end));
        part.unshared.remove(&key);
        Flight {
            storage: Arc::clone(self),
            key,
            end,
        }
    }
}

impl Later {
    /// Waits until the other request has finished, at most until this time. Returns whether it has left without a
    /// response, so that one of those that waited should fetch for the others.
    pub(super) async fn wait(self, until: Instant) -> bool {
        // Acquiring fails when the semaphore is closed.
        let waited = tokio::time::timeout_at(until, self.0.closed.acquire()).await;
        waited.is_ok() && !self.0.is_known.load(Ordering::Acquire)
    }
}

impl Flight {
    /// Lets the others go to the upstream: the response cannot be shared, and the next one probably neither.
    pub(super) fn set_unshared(&self, now: u64) {
        self.storage.flights.set_unshared(self.key, now);
        self.set_known(true);
    }

    /// Sets whether the outcome is known, so that it is of no use to wait for a further request.
    pub(super) fn set_known(&self, is_known: bool) {
        self.end.is_known.store(is_known, Ordering::Release);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut part = self.storage.flights.part(&self.key);
        // Another request may have taken its place.
        let flying = part.flying.get(&self.key);
        if flying.is_some_and(|end| Arc::ptr_eq(end, &self.end)) {
            part.flying.remove(&self.key);
        }
        drop(part);
        self.end.closed.close();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
