//! The results that directories have given, for all workers: no password is kept, and a request whose result is known
//! takes no lock.
//!
//! A result is found by an HMAC of the settings, the username and the password, with a key that the process has made for
//! itself. So nobody can find passwords in the memory of the process by trying likely ones, unless they have the key too,
//! and nobody can make two passwords that share a result.
//!
//! Accepted and refused credentials have tables of their own: a client that tries many passwords cannot push out the
//! results of others. If a table is full, its oldest result makes room.
//!
//! Times are those of [`services::Clock::since_beginning`], so that no result lasts longer when the clock is set back.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::OnceCell;

/// Maximum number of accepted credentials.
const MAX_ACCEPTED: usize = 65_536;
/// Maximum number of refused credentials.
const MAX_REFUSED: usize = 16_384;

/// The key of a result.
pub(super) type Key = [u8; 32];

pub(super) struct Results {
    secret: hmac::Key,
    accepted: Table,
    refused: Table,
    /// The checks that run now, so that equal requests at the same time ask the directory once.
    running: Mutex<HashMap<Key, Weak<Check>>>,
}

/// A check that several requests wait for. The value is whether the credentials were accepted, or why that is not known.
pub(super) type Check = OnceCell<Result<bool, Arc<str>>>;

/// Results of one kind.
struct Table {
    /// When each result ends.
    ends: papaya::HashMap<Key, Duration>,
    /// The keys from the oldest to the newest, with the time when their result ends. A key that was inserted again is
    /// in the list twice.
    order: Mutex<VecDeque<(Key, Duration)>>,
    max: usize,
}

impl Results {
    /// Fails if the operating system gives no random numbers.
    pub(super) fn new() -> Result<Self, Unspecified> {
        Self::with_room(MAX_ACCEPTED, MAX_REFUSED)
    }

    pub(super) fn with_room(accepted: usize, refused: usize) -> Result<Self, Unspecified> {
        Ok(Self {
            secret: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            accepted: Table::new(accepted),
            refused: Table::new(refused),
            running: Mutex::default(),
        })
    }

    /// Returns the key of these fields. Each field counts with its length, so that no text can move between them.
    pub(super) fn key(&self, fields: &[&[u8]]) -> Key {
        let mut context = hmac::Context::with_key(&self.secret);
        for field in fields {
            context.update(&(field.len() as u64).to_le_bytes());
            context.update(field);
        }
        let mut key = Key::default();
        key.copy_from_slice(context.sign().as_ref());
        key
    }

    /// Returns whether the credentials are accepted, if that is known at this time.
    pub(super) fn get(&self, key: &Key, now: Duration) -> Option<bool> {
        if self.accepted.has(key, now) {
            Some(true)
        } else if self.refused.has(key, now) {
            Some(false)
        } else {
            None
        }
    }

    /// Keeps a result. It replaces an earlier one.
    pub(super) fn insert(&self, key: Key, is_accepted: bool, now: Duration, ttl: Duration) {
        let (table, other) = match is_accepted {
            true => (&self.accepted, &self.refused),
            false => (&self.refused, &self.accepted),
        };
        other.ends.pin().remove(&key);
        if let Some(end) = now.checked_add(ttl).filter(|_| !ttl.is_zero()) {
            table.insert(key, now, end);
        }
    }

    /// Joins the check of these credentials that runs now, or begins one.
    pub(super) fn check(&self, key: Key) -> Joined<'_> {
        let mut running = self.running();
        let check = match running.get(&key).and_then(Weak::upgrade) {
            Some(check) => check,
            None => {
                let check = Arc::new(Check::new());
                running.insert(key, Arc::downgrade(&check));
                check
            }
        };
        Joined {
            results: self,
            key,
            check: Some(check),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Key, Weak<Check>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn running_checks(&self) -> usize {
        self.running().len()
    }
}

/// A check that a request waits for. The first one to wait makes it; if that request ends early, the next one does.
pub(super) struct Joined<'r> {
    results: &'r Results,
    key: Key,
    /// It is taken when this is dropped.
    check: Option<Arc<Check>>,
}

impl Joined<'_> {
    pub(super) fn check(&self) -> &Check {
        self.check
            .as_deref()
            .expect("it is taken when this is dropped")
    }
}

impl Drop for Joined<'_> {
    /// Forgets the check if it has ended, or if no other request waits for it. The next request begins a new one.
    fn drop(&mut self) {
        let mut running = self.results.running();
        let Some(check) = self.check.take() else {
            return;
        };
        let address = Arc::as_ptr(&check);
        let has_ended = check.initialized();
        // Under the lock, so that the last of several requests sees that it is the last.
        drop(check);
        let is_over = |known: &Weak<Check>| {
            known.strong_count() == 0 || (has_ended && known.as_ptr() == address)
        };
        if running.get(&self.key).is_some_and(is_over) {
            running.remove(&self.key);
        }
    }
}

impl Table {
    fn new(max: usize) -> Self {
        Self {
            ends: papaya::HashMap::new(),
            order: Mutex::default(),
            max,
        }
    }

    fn has(&self, key: &Key, now: Duration) -> bool {
        self.ends.pin().get(key).is_some_and(|&end| now < end)
    }

    fn insert(&self, key: Key, now: Duration, end: Duration) {
        let ends = self.ends.pin();
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(&(oldest, its_end)) = order.front() {
            if order.len() < self.max && now < its_end {
                break;
            }
            order.pop_front();
            // A result that was inserted again has another end, and another place in the list.
            let _ = ends.remove_if(&oldest, |_, &known| known == its_end);
        }
        ends.insert(key, end);
        order.push_back((key, end));
    }
}
