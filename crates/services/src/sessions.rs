//! Storage of sessions for the plugin session: rows by session id, each with a time at which it expires. Sessions are not
//! configuration, so they are not in the store of entities.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of expired sessions that one call removes.
const SLICE: usize = 8;

/// Memory of a session in addition to its texts, estimated.
const OVERHEAD: usize = 256;

/// Rows of sessions. The calls block a worker, so an implementation must not wait for the network or a disk.
pub trait SessionStore: Send + Sync {
    /// Returns a session that has not expired. Times are in Unix seconds.
    fn find(&self, id: &str, now: u64) -> Result<Option<StoredSession>, SessionStoreError>;

    /// Adds a session. In the same step, the session that it replaces expires at `stale_until`, or is deleted if that is
    /// past. The id is a new one: an existing row is never overwritten.
    fn create(&self, new: NewSession<'_>, now: u64) -> Result<(), SessionStoreError>;

    /// Deletes a session, if it exists.
    fn delete(&self, id: &str) -> Result<(), SessionStoreError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    pub data: String,
    /// A newer session has its place, and it expires soon.
    pub is_replaced: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct NewSession<'s> {
    pub id: &'s str,
    /// Whose session it is. An owner's sessions make room for its new ones.
    pub owner: &'s str,
    pub data: &'s str,
    pub expires: u64,
    pub replaces: Option<Replaced<'s>>,
}

/// The former row of a session that was renewed.
#[derive(Debug, Clone, Copy)]
pub struct Replaced<'s> {
    pub id: &'s str,
    pub stale_until: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionStoreError {
    #[error("the session is larger than the storage")]
    TooLarge,
    #[error("a session with this id exists")]
    Exists,
}

/// Sessions in the memory of the process. They end with it, and other nodes do not have them. If they need more memory
/// than is allowed, those that expire first are removed.
pub struct MemorySessions {
    capacity: usize,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    by_id: HashMap<Box<str>, Row>,
    by_expiry: BTreeSet<(u64, Box<str>)>,
    bytes: usize,
}

struct Row {
    data: Box<str>,
    expires: u64,
    is_replaced: bool,
}

impl MemorySessions {
    /// `capacity` is the maximum memory in bytes.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            rows: Mutex::default(),
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for MemorySessions {
    fn find(&self, id: &str, now: u64) -> Result<Option<StoredSession>, SessionStoreError> {
        let rows = self.rows();
        let row = rows.by_id.get(id).filter(|row| row.expires > now);
        Ok(row.map(|row| StoredSession {
            data: row.data.to_string(),
            is_replaced: row.is_replaced,
        }))
    }

    fn create(&self, new: NewSession<'_>, now: u64) -> Result<(), SessionStoreError> {
        let needed = size(new.id, new.data);
        if needed > self.capacity {
            return Err(SessionStoreError::TooLarge);
        }
        let mut rows = self.rows();
        rows.remove_expired(now);
        if rows.by_id.contains_key(new.id) {
            return Err(SessionStoreError::Exists);
        }
        if let Some(old) = new.replaces {
            rows.expire(old, now);
        }
        while rows.bytes + needed > self.capacity && rows.remove_first() {}
        let (data, expires) = (new.data.into(), new.expires);
        let is_replaced = false;
        rows.insert(
            new.id,
            Row {
                data,
                expires,
                is_replaced,
            },
        );
        Ok(())
    }

    fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.rows().remove(id);
        Ok(())
    }
}

impl Rows {
    fn insert(&mut self, id: &str, row: Row) {
        self.bytes += size(id, &row.data);
        self.by_expiry.insert((row.expires, id.into()));
        self.by_id.insert(id.into(), row);
    }

    fn remove(&mut self, id: &str) -> Option<Row> {
        let (id, row) = self.by_id.remove_entry(id)?;
        self.bytes -= size(&id, &row.data);
        self.by_expiry.remove(&(row.expires, id));
        Some(row)
    }

    /// Makes a session expire soon. It never lives longer than before.
    fn expire(&mut self, old: Replaced<'_>, now: u64) {
        let Some(row) = self.remove(old.id) else {
            return;
        };
        let expires = row.expires.min(old.stale_until);
        if expires > now {
            let is_replaced = true;
            self.insert(
                old.id,
                Row {
                    expires,
                    is_replaced,
                    ..row
                },
            );
        }
    }

    fn remove_first(&mut self) -> bool {
        let first = self.by_expiry.first().map(|(_, id)| id.clone());
        first.is_some_and(|id| self.remove(&id).is_some())
    }

    fn remove_expired(&mut self, now: u64) {
        for _ in 0..SLICE {
            match self.by_expiry.first() {
                Some((expires, _)) if *expires <= now => self.remove_first(),
                _ => return,
            };
        }
    }
}

fn size(id: &str, data: &str) -> usize {
    2 * id.len() + data.len() + OVERHEAD
}

#[cfg(test)]
mod tests;
