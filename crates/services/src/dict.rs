//! The shared dictionaries of Kong (`ngx.shared`): bounded tables that all workers of the process share.
//!
//! A dictionary has a size in bytes. When a new value does not fit, the values that were not used for the longest time are
//! removed, as nginx does; `safe` writes refuse the value instead. Expired values stay until they are found, replaced or
//! at the end of the list of use. Each access holds a lock for a short time.
//!
//! Source: ngx_http_lua_shdict.c; the names and sizes are those of Kong's templates/nginx_kong.lua.

use lru::LruCache;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The dictionaries and their sizes in bytes. The size of `kong_db_cache` and `kong_core_db_cache` is the setting
/// `mem_cache_size`.
pub const ZONES: &[(&str, usize)] = &[
    ("kong", 5 << 20),
    ("kong_locks", 8 << 20),
    ("kong_healthchecks", 5 << 20),
    ("kong_cluster_events", 5 << 20),
    ("kong_rate_limiting_counters", 12 << 20),
    ("kong_core_db_cache", 0),
    ("kong_core_db_cache_miss", 12 << 20),
    ("kong_db_cache", 0),
    ("kong_db_cache_miss", 12 << 20),
    ("kong_secrets", 5 << 20),
    ("prometheus_metrics", 5 << 20),
];

/// Maximum length of a key, as in nginx.
pub const MAX_KEY: usize = 65_535;

/// Bytes that an entry takes besides its key and value, more or less.
const OVERHEAD: usize = 128;
/// Bytes that an element of a list takes besides its value.
const ELEMENT_OVERHEAD: usize = 32;

/// All dictionaries of a process.
pub struct Dicts(Vec<Dict>);

impl Dicts {
    pub fn new(cache_size: usize) -> Self {
        let size = |size: usize| if size == 0 { cache_size } else { size };
        Self(
            ZONES
                .iter()
                .map(|(_, bytes)| Dict::new(size(*bytes)))
                .collect(),
        )
    }

    /// Returns the dictionary with this place in [`ZONES`].
    pub fn numbered(&self, number: usize) -> Option<&Dict> {
        self.0.get(number)
    }
}

/// A dictionary. Times are those of the node's clock, since 1970.
pub struct Dict {
    capacity: usize,
    entries: Mutex<Entries>,
}

struct Entries {
    /// In the order of use.
    map: LruCache<Box<[u8]>, Entry>,
    used: usize,
}

struct Entry {
    value: Value,
    flags: u32,
    /// `None` if the value does not expire.
    expires: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Number(f64),
    Text(Box<[u8]>),
    List(VecDeque<Value>),
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Self::Bool(_) | Self::Number(_) => 0,
            Self::Text(text) => text.len(),
            Self::List(list) => list.iter().map(|one| one.size() + ELEMENT_OVERHEAD).sum(),
        }
    }
}

/// A value that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub value: Value,
    pub flags: u32,
    pub is_stale: bool,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Set,
    /// Only if there is no value.
    Add,
    /// Only if there is a value.
    Replace,
}

/// What is to be done if a value does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Values that were not used for the longest time are removed.
    Evict,
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("exists")]
    Exists,
    #[error("not found")]
    NotFound,
    #[error("no memory")]
    NoMemory,
    #[error("not a number")]
    NotANumber,
    #[error("value not a list")]
    NotAList,
}

/// The end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

impl Dict {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: Mutex::new(Entries {
                map: LruCache::unbounded(),
                used: 0,
            }),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that are free, in whole pages, as nginx counts them.
    pub fn free_space(&self) -> usize {
        self.capacity.saturating_sub(self.entries().used) / 4096 * 4096
    }

    /// Returns a value that has not expired.
    pub fn get(&self, key: &[u8], now: Duration) -> Option<Found> {
        let mut entries = self.entries();
        entries.expire(now, 1);
        entries.find(key, now).filter(|found| !found.is_stale)
    }

    /// Returns a value, also if it has expired and was not removed yet.
    pub fn get_stale(&self, key: &[u8], now: Duration) -> Option<Found> {
        self.entries().find(key, now)
    }

    /// Writes a value, and returns whether values that have not expired were removed for it. `lives` is the time until
    /// it expires; zero is for ever.
    pub fn write(
        &self,
        key: &[u8],
        found: Found,
        how: Write,
        full: Full,
        lives: Duration,
        now: Duration,
    ) -> Result<bool, Refused> {
        let mut entries = self.entries();
        entries.expire(now, 1);
        let known = entries.map.get(key).map(|entry| entry.is_live(now));
        match (how, known) {
            (Write::Add, Some(true)) => return Err(Refused::Exists),
            (Write::Replace, None | Some(false)) => return Err(Refused::NotFound),
            _ => {}
        }
        entries.remove(key);
        let entry = Entry {
            value: found.value,
            flags: found.flags,
            expires: end(lives, now),
        };
        entries.insert(key, entry, self.capacity, full, now)
    }

    pub fn delete(&self, key: &[u8]) {
        self.entries().remove(key);
    }

    /// Adds to a number. If there is none, it starts at `init`, if that is given, and lives for `lives`. Returns the sum
    /// and whether other values were removed for it.
    pub fn increment(
        &self,
        key: &[u8],
        by: f64,
        init: Option<f64>,
        lives: Duration,
        now: Duration,
    ) -> Result<(f64, bool), Refused> {
        let mut entries = self.entries();
        entries.expire(now, 1);
        if let Some(entry) = entries.map.get_mut(key)
            && entry.is_live(now)
        {
            return match &mut entry.value {
                Value::Number(number) => {
                    *number += by;
                    Ok((*number, false))
                }
                _ => Err(Refused::NotANumber),
            };
        }
        let init = init.ok_or(Refused::NotFound)?;
        entries.remove(key);
        let entry = Entry {
            value: Value::Number(init + by),
            flags: 0,
            expires: end(lives, now),
        };
        let evicted = entries.insert(key, entry, self.capacity, Full::Evict, now)?;
        Ok((init + by, evicted))
    }

    /// Adds an element to a list, which is made if there is no value. Returns the number of its elements.
    pub fn push(
        &self,
        key: &[u8],
        value: Value,
        side: Side,
        now: Duration,
    ) -> Result<usize, Refused> {
        let mut entries = self.entries();
        entries.expire(now, 1);
        let known = entries.map.get(key).is_some_and(|entry| entry.is_live(now));
        if known
            && !matches!(
                entries.map.peek(key).map(|entry| &entry.value),
                Some(Value::List(_))
            )
        {
            return Err(Refused::NotAList);
        }
        let size = value.size() + ELEMENT_OVERHEAD;
        let needed = size + if known { 0 } else { key.len() + OVERHEAD };
        if !known {
            entries.remove(key);
        }
        // A list is never removed for its own element: it was used last.
        entries.make_room(needed, self.capacity, Full::Refuse, now)?;
        if !known {
            let list = Entry {
                value: Value::List(VecDeque::new()),
                flags: 0,
                expires: None,
            };
            entries.insert(key, list, self.capacity, Full::Refuse, now)?;
        }
        let length = match entries.map.get_mut(key).map(|entry| &mut entry.value) {
            Some(Value::List(list)) => {
                match side {
                    Side::Left => list.push_front(value),
                    Side::Right => list.push_back(value),
                }
                list.len()
            }
            _ => return Err(Refused::NotAList),
        };
        entries.used += size;
        Ok(length)
    }

    /// Takes an element from a list. A list without elements is removed.
    pub fn pop(&self, key: &[u8], side: Side, now: Duration) -> Result<Option<Value>, Refused> {
        let mut entries = self.entries();
        entries.expire(now, 1);
        let Some(entry) = entries.map.get_mut(key).filter(|entry| entry.is_live(now)) else {
            return Ok(None);
        };
        let Value::List(list) = &mut entry.value else {
            return Err(Refused::NotAList);
        };
        let value = match side {
            Side::Left => list.pop_front(),
            Side::Right => list.pop_back(),
        };
        let is_empty = list.is_empty();
        let size = value
            .as_ref()
            .map_or(0, |value| value.size() + ELEMENT_OVERHEAD);
        entries.used = entries.used.saturating_sub(size);
        if is_empty {
            entries.remove(key);
        }
        Ok(value)
    }

    /// Returns the number of elements of a list.
    pub fn length(&self, key: &[u8], now: Duration) -> Result<usize, Refused> {
        let mut entries = self.entries();
        entries.expire(now, 1);
        match entries.map.get(key).filter(|entry| entry.is_live(now)) {
            None => Ok(0),
            Some(entry) => match &entry.value {
                Value::List(list) => Ok(list.len()),
                _ => Err(Refused::NotAList),
            },
        }
    }

    /// Returns the time until a value expires: `None` if it does not, and an error if there is no value.
    pub fn ttl(&self, key: &[u8], now: Duration) -> Result<Option<Duration>, Refused> {
        let entries = self.entries();
        let entry = entries.map.peek(key).filter(|entry| entry.is_live(now));
        let entry = entry.ok_or(Refused::NotFound)?;
        Ok(entry.expires.map(|expires| expires.saturating_sub(now)))
    }

    /// Changes when a value expires.
    pub fn expire(&self, key: &[u8], lives: Duration, now: Duration) -> Result<(), Refused> {
        let mut entries = self.entries();
        let entry = entries.map.peek_mut(key).filter(|entry| entry.is_live(now));
        entry.ok_or(Refused::NotFound)?.expires = end(lives, now);
        Ok(())
    }

    /// Makes all values expire. As in nginx, this frees only a few of them.
    pub fn flush_all(&self, now: Duration) {
        let mut entries = self.entries();
        for (_, entry) in entries.map.iter_mut() {
            entry.expires = Some(Duration::ZERO);
        }
        entries.expire(now, 0);
    }

    /// Removes expired values, at most this number of them; 0 is all. Returns how many were removed.
    pub fn flush_expired(&self, most: usize, now: Duration) -> usize {
        let most = if most == 0 { usize::MAX } else { most };
        let mut entries = self.entries();
        let over = entries
            .map
            .iter()
            .rev()
            .filter(|(_, entry)| !entry.is_live(now));
        let over: Vec<Box<[u8]>> = over.take(most).map(|(key, _)| key.clone()).collect();
        for key in &over {
            entries.remove(key);
        }
        over.len()
    }

    /// Visits the keys of values that have not expired, the one that was used last first; at most this number of them,
    /// where 0 is all.
    pub fn keys(&self, most: usize, now: Duration, mut visit: impl FnMut(&[u8])) {
        let most = if most == 0 { usize::MAX } else { most };
        let entries = self.entries();
        let live = entries.map.iter().filter(|(_, entry)| entry.is_live(now));
        live.take(most).for_each(|(key, _)| visit(key));
    }
}

impl Entries {
    fn find(&mut self, key: &[u8], now: Duration) -> Option<Found> {
        let entry = self.map.get(key)?;
        Some(Found {
            // The elements of a list are not needed: a reader is told that it is a list.
            value: match &entry.value {
                Value::List(_) => Value::List(VecDeque::new()),
                value => value.clone(),
            },
            flags: entry.flags,
            is_stale: !entry.is_live(now),
        })
    }

    /// Removes up to two expired values at the end of the list of use. If `tried` is 0, the first of three is removed
    /// even if it has not expired.
    fn expire(&mut self, now: Duration, tried: usize) {
        for number in tried..3 {
            match self.map.peek_lru() {
                Some((_, entry)) if number == 0 || !entry.is_live(now) => self.pop_oldest(),
                _ => return,
            }
        }
    }

    fn insert(
        &mut self,
        key: &[u8],
        entry: Entry,
        capacity: usize,
        full: Full,
        now: Duration,
    ) -> Result<bool, Refused> {
        let size = cost(key, &entry);
        let evicted = self.make_room(size, capacity, full, now)?;
        self.used += size;
        self.map.put(key.into(), entry);
        Ok(evicted)
    }

    fn make_room(
        &mut self,
        size: usize,
        capacity: usize,
        full: Full,
        now: Duration,
    ) -> Result<bool, Refused> {
        if size > capacity {
            return Err(Refused::NoMemory);
        }
        let mut evicted = false;
        while self.used + size > capacity {
            match self.map.peek_lru() {
                Some((_, entry)) if !entry.is_live(now) => {}
                Some(_) if full == Full::Evict => evicted = true,
                _ => return Err(Refused::NoMemory),
            }
            self.pop_oldest();
        }
        Ok(evicted)
    }

    fn pop_oldest(&mut self) {
        if let Some((key, entry)) = self.map.pop_lru() {
            self.used = self.used.saturating_sub(cost(&key, &entry));
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some((key, entry)) = self.map.pop_entry(key) {
            self.used = self.used.saturating_sub(cost(&key, &entry));
        }
    }
}

impl Entry {
    fn is_live(&self, now: Duration) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }
}

fn cost(key: &[u8], entry: &Entry) -> usize {
    key.len() + entry.value.size() + OVERHEAD
}

fn end(lives: Duration, now: Duration) -> Option<Duration> {
    (!lives.is_zero()).then(|| now.saturating_add(lives))
}

#[cfg(test)]
mod tests;
