//! Resumption of TLS sessions, with tickets and with a cache for clients without tickets. The keys of tickets change
//! every six hours. All workers share keys and cache, because a returning client may reach any worker. A handshake
//! locks one part of the cache for each access; requests take no lock.

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ProducesTickets, StoresServerSessions};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of separately locked parts of the cache, so that concurrent handshakes rarely wait for each other.
const PARTS: usize = 16;
/// Length of the creation time in seconds, which is prepended to a ticket's plain text.
const STAMP: usize = 8;

/// `ssl_session_*` settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSettings {
    /// `ssl_session_tickets`: whether tickets are issued.
    pub tickets: bool,
    /// `ssl_session_timeout`: lifetime of a session. Tickets are valid for at most twelve hours, like their keys.
    pub lifetime: Duration,
    /// Maximum number of cached sessions. nginx fits 4,000 into a megabyte of `ssl_session_cache`.
    pub cached: usize,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            tickets: true,
            lifetime: Duration::from_secs(24 * 60 * 60),
            cached: 40_000,
        }
    }
}

/// Issues tickets and refuses them after their lifetime, even if their key is still valid.
#[derive(Debug)]
pub(super) struct Tickets {
    keys: Arc<dyn ProducesTickets>,
    lifetime: u32,
}

impl Tickets {
    pub(super) fn new(lifetime: Duration) -> Result<Self, rustls::Error> {
        let keys = Ticketer::new()?;
        let lifetime = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        Ok(Self {
            lifetime: lifetime.min(keys.lifetime()),
            keys,
        })
    }

    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let plain = self.keys.decrypt(ticket)?;
        let (stamp, state) = plain.split_first_chunk::<STAMP>()?;
        let age = now.checked_sub(u64::from_be_bytes(*stamp))?;
        (age < u64::from(self.lifetime)).then(|| state.to_vec())
    }

    fn seal(&self, state: &[u8], now: u64) -> Option<Vec<u8>> {
        self.keys.encrypt(&[&now.to_be_bytes(), state].concat())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.lifetime > 0
    }

    fn lifetime(&self) -> u32 {
        self.lifetime
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, unix_seconds())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, unix_seconds())
    }
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Cache of sessions by id. If it is full, a new session replaces the oldest one of its part.
pub(super) struct Sessions {
    parts: Box<[Mutex<Part>]>,
    hasher: RandomState,
    per_part: usize,
    lifetime: u64,
}

#[derive(Default)]
struct Part {
    entries: HashMap<Vec<u8>, Entry>,
    /// Ids in order of insertion. Their sessions may already have been removed.
    order: VecDeque<Vec<u8>>,
}

struct Entry {
    value: Vec<u8>,
    made: u64,
}

impl Sessions {
    pub(super) fn new(settings: &SessionSettings) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            per_part: settings.cached.div_ceil(PARTS),
            lifetime: settings.lifetime.as_secs(),
        }
    }

    fn part(&self, key: &[u8]) -> MutexGuard<'_, Part> {
        let hash = self.hasher.hash_one(key) as usize;
        let part = &self.parts[hash % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, key: Vec<u8>, value: Vec<u8>, now: u64) -> bool {
        if self.per_part == 0 {
            return false;
        }
        let mut part = self.part(&key);
        while part.order.len() >= self.per_part {
            if let Some(oldest) = part.order.pop_front() {
                part.entries.remove(&oldest);
            }
        }
        part.order.push_back(key.clone());
        part.entries.insert(key, Entry { value, made: now });
        true
    }

    fn is_fresh(&self, entry: &Entry, now: u64) -> bool {
        now.saturating_sub(entry.made) < self.lifetime
    }

    fn find(&self, key: &[u8], now: u64) -> Option<Vec<u8>> {
        let part = self.part(key);
        let entry = part.entries.get(key)?;
        self.is_fresh(entry, now).then(|| entry.value.clone())
    }

    fn remove(&self, key: &[u8], now: u64) -> Option<Vec<u8>> {
        let entry = self.part(key).entries.remove(key)?;
        self.is_fresh(&entry, now).then_some(entry.value)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.insert(key, value, unix_seconds())
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key, unix_seconds())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.remove(key, unix_seconds())
    }

    fn can_cache(&self) -> bool {
        self.per_part > 0
    }
}

/// Omits the sessions, because their keys are secret.
impl std::fmt::Debug for Sessions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(cached: usize) -> Sessions {
        Sessions::new(&SessionSettings {
            cached,
            lifetime: Duration::from_secs(10),
            ..SessionSettings::default()
        })
    }

    #[test]
    fn tickets_end_with_their_lifetime() {
        let tickets = Tickets::new(Duration::from_secs(10)).unwrap();
        let ticket = tickets.seal(b"state", 1_000).unwrap();
        assert_eq!(tickets.open(&ticket, 1_009), Some(b"state".to_vec()));
        assert_eq!(tickets.open(&ticket, 1_010), None);
        assert_eq!(tickets.open(&ticket, 999), None, "from the future");
        assert_eq!(tickets.lifetime(), 10);
        let mut forged = ticket;
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(tickets.open(&forged, 1_000), None);
        assert_eq!(tickets.open(b"", 1_000), None);
    }

    #[test]
    fn tickets_live_no_longer_than_their_keys() {
        let tickets = Tickets::new(Duration::from_secs(10_000_000)).unwrap();
        assert!(tickets.lifetime() <= 12 * 60 * 60);
    }

    #[test]
    fn sessions_end_with_their_lifetime() {
        let sessions = sessions(100);
        assert!(sessions.insert(vec![1], vec![2], 1_000));
        assert_eq!(sessions.find(&[1], 1_009), Some(vec![2]));
        assert_eq!(sessions.find(&[1], 1_010), None);
        assert_eq!(sessions.remove(&[1], 1_005), Some(vec![2]));
        assert_eq!(sessions.find(&[1], 1_005), None, "taken");
    }

    #[test]
    fn no_more_sessions_are_kept_than_there_is_room_for() {
        let sessions = sessions(PARTS * 2);
        for number in 0..1_000_u32 {
            sessions.insert(number.to_be_bytes().to_vec(), vec![], 0);
        }
        let kept = sessions.parts.iter().map(|part| {
            let part = part.lock().unwrap();
            assert!(part.order.len() <= 2);
            part.entries.len()
        });
        assert_eq!(kept.sum::<usize>(), PARTS * 2);
        assert!(sessions.find(&999_u32.to_be_bytes(), 0).is_some());
        assert!(
            !Sessions::new(&SessionSettings {
                cached: 0,
                ..SessionSettings::default()
            })
            .can_cache()
        );
    }
}
