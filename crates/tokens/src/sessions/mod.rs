//! Sessions of the plugin session with `storage: kong`. They are written at the rate of logins, so they are not
//! configuration: they have an LMDB environment of their own on the node.
//!
//! - *Writes are queued.* `header_filter` cannot wait for a disk. A new session is found at once, because what waits for
//!   the writer is in memory too (`pending`), and it is durable a moment later. After a crash of the computer the last
//!   sessions may be missing, so that their clients log in again. A deletion is reported when it is durable.
//! - *One writer.* A thread takes all waiting operations, does them in one transaction, and syncs once
//!   (`crate::writer`).
//! - *Bounds.* All sessions together have a maximum number and a maximum number of bytes. So has each owner, and it has at most
//!   as many as there is room left. Its oldest ones make room for new ones, so that no client can log others out.
//! - *Ends* are judged at the look-up. Each new session removes some that have ended, and so does the thread when it has
//!   nothing else to do.

mod counts;
mod pending;
mod tables;
mod writer;

use crate::writer::{Answer, Writer, answer};
use pending::{Change, Pending};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};
use tables::{Name, Tables, Write, name_of};
use uuid::Uuid;
use writer::Sessions;

/// Maximum length of the data of a session. Data in cookies is shorter.
const MAX_DATA: usize = 512 * 1024;

/// Rows of sessions. Times are in seconds since 1970.
pub trait SessionStore: Send + Sync {
    /// Returns a session that has not ended.
    fn find(&self, session_id: &str, now: u64) -> Result<Option<StoredSession>, SessionStoreError>;

    /// Adds a session, which is found from now on. In the same step, the session that it replaces ends at `stale_until`,
    /// or is deleted if that is past. The id is a new one: an existing session is never overwritten.
    fn create(&self, new: NewSession<'_>, now: u64) -> Result<(), SessionStoreError>;

    /// Deletes a session, which is not found from now on. The reply comes when that is durable.
    fn delete(&self, session_id: &str) -> SessionReply<()>;

    /// Returns a row that has not ended, by its id.
    fn row(&self, id: Uuid, now: u64) -> Result<Option<SessionRow>, SessionStoreError>;

    /// Returns a row that has not ended, by the id of its session.
    fn row_of(&self, session_id: &str, now: u64) -> Result<Option<SessionRow>, SessionStoreError>;

    /// Returns rows that have not ended, in the order of their ids.
    fn list(
        &self,
        after: Option<Uuid>,
        most: usize,
        now: u64,
    ) -> Result<Vec<SessionRow>, SessionStoreError>;

    /// Writes a row, if there is what is expected.
    fn put(&self, row: SessionRow, expected: Expected, now: u64) -> SessionReply<Put>;

    /// Deletes a row by its id.
    fn remove(&self, id: Uuid) -> SessionReply<()>;
}

/// The result of a write. It comes when the write is durable.
pub type SessionReply<T> =
    Pin<Box<dyn Future<Output = Result<T, SessionStoreError>> + Send + 'static>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    pub data: String,
    /// A newer session has its place, and it ends soon.
    pub is_replaced: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct NewSession<'s> {
    pub session_id: &'s str,
    /// The consumer. Its sessions make room for its new ones.
    pub owner: Uuid,
    pub data: &'s str,
    pub ends: u64,
    pub replaces: Option<Replaced<'s>>,
}

/// The former session of one that was renewed.
#[derive(Debug, Clone, Copy)]
pub struct Replaced<'s> {
    pub session_id: &'s str,
    pub stale_until: u64,
}

/// A row as the Admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SessionRow {
    pub id: Uuid,
    pub session_id: String,
    pub data: Option<String>,
    pub expires: Option<i64>,
    pub created_at: i64,
    /// When the row ends. `None` if it stays until it is deleted.
    pub ends: Option<u64>,
    pub owner: Uuid,
    pub is_replaced: bool,
}

/// What there must be when a row is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// No row with the id.
    Nothing,
    /// Any row with the id, or none. The new one belongs to the owner of the former one.
    Anything,
    /// This row. So a change does not bring back what has ended since it was read.
    Same(SessionRow),
}

/// The result of writing a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Done,
    /// There is a row with this id.
    IdExists,
    /// The row is not there any more as it was expected.
    Changed,
    /// Another row has this session id.
    SessionIdExists,
    /// The store is full.
    Full,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionStoreError {
    #[error("the store of sessions failed: {0}")]
    Storage(String),
    #[error("too many operations wait for the store of sessions")]
    Busy,
    /// There is no room in the file to do this. Deleting needs the least room.
    #[error("the store of sessions is full")]
    Full,
    #[error("the store of sessions is closed")]
    Closed,
    #[error("a row in the store of sessions cannot be read")]
    Damaged,
    #[error("the session is too large")]
    TooLarge,
}

/// The bounds of a store.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Maximum number of sessions.
    pub rows: u64,
    /// Maximum number of bytes of all sessions. The file grows to about three times as much, for indexes and for pages that
    /// are not full.
    pub bytes: u64,
    /// Maximum number of sessions of an owner.
    pub of_owner: u64,
    /// Maximum number of bytes of the sessions of an owner.
    pub bytes_of_owner: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            rows: 10_000_000,
            bytes: 16 << 30,
            of_owner: 100_000,
            bytes_of_owner: 256 << 20,
        }
    }
}

/// The store on the node. It ends its thread when it is dropped, after all operations that wait.
pub struct EmbeddedSessions {
    tables: Arc<Tables>,
    pending: Arc<Pending>,
    writer: Writer<Sessions>,
    /// Orders the rows of one millisecond.
    counter: AtomicU64,
    /// The time from which it is logged again that the store is full.
    log_full_at: Arc<AtomicU64>,
}

impl EmbeddedSessions {
    /// Opens the store in a directory, which is created. `max_size` is the largest size of the file.
    pub fn open(
        directory: &Path,
        max_size: usize,
        bounds: Bounds,
    ) -> Result<Self, SessionStoreError> {
        let tables = Arc::new(Tables::open(directory, max_size, bounds)?);
        let writer = Writer::start(Sessions(tables.clone())).map_err(|error| {
            SessionStoreError::Storage(format!("its thread cannot start: {error}"))
        })?;
        Ok(Self {
            writer,
            tables,
            pending: Arc::default(),
            counter: AtomicU64::new(0),
            log_full_at: Arc::default(),
        })
    }

    /// Returns an id that is greater than those of earlier rows, so that inserts append.
    fn new_id(&self) -> Uuid {
        let mut random = *Uuid::new_v4().as_bytes();
        let count = self.counter.fetch_add(1, Relaxed).to_be_bytes();
        let [.., high, low] = count;
        (random[0], random[1]) = (high, low);
        let [random @ .., _, _, _, _, _, _] = random;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since.unwrap_or_default().as_millis();
        let millis = u64::try_from(millis).unwrap_or_default();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}

impl SessionStore for EmbeddedSessions {
    fn find(&self, session_id: &str, now: u64) -> Result<Option<StoredSession>, SessionStoreError> {
        let name = name_of(session_id);
        let stored = |row: SessionRow| StoredSession {
            data: row.data.unwrap_or_default(),
            is_replaced: row.is_replaced,
        };
        let change = self.pending.get(&name);
        let row = match change {
            Some(Change::Deleted) => None,
            Some(Change::Row(row)) => Some((*row).clone()),
            Some(Change::Stale(until)) => self.tables.by_name(&name)?.map(|row| row.stale(until)),
            None => self.tables.by_name(&name)?,
        };
        Ok(row.filter(|row| row.is_there(now)).map(stored))
    }

    fn create(&self, new: NewSession<'_>, now: u64) -> Result<(), SessionStoreError> {
        if new.data.len() > MAX_DATA {
            return Err(SessionStoreError::TooLarge);
        }
        let row = Arc::new(SessionRow {
            id: self.new_id(),
            session_id: new.session_id.to_owned(),
            data: Some(new.data.to_owned()),
            expires: i64::try_from(new.ends).ok(),
            created_at: i64::try_from(now).unwrap_or(i64::MAX),
            ends: Some(new.ends),
            owner: new.owner,
            is_replaced: false,
        });
        let replaced = new.replaces.map(|old| {
            let change = match old.stale_until > now {
                true => Change::Stale(old.stale_until),
                false => Change::Deleted,
            };
            (name_of(old.session_id), change)
        });
        let log_full_at = self.log_full_at.clone();
        let mut changes = vec![(name_of(new.session_id), Change::Row(row.clone()))];
        changes.extend(replaced.clone());
        self.pending.during(changes, |held| {
            let create = move |write: &mut Write<'_>| {
                write.expire(now)?;
                match &replaced {
                    Some((former, change)) => write.renew(former, change, &row),
                    None => write.insert(&row),
                }
            };
            self.writer.send(create, move |put| {
                if let Some(put) = put.ok().filter(|put| *put != Put::Done) {
                    note_unkept(put, &log_full_at, now);
                }
                drop(held);
            })
        })
    }

    fn delete(&self, session_id: &str) -> SessionReply<()> {
        let name = name_of(session_id);
        let (removed, finish) = answer();
        let sent = self.pending.during(vec![(name, Change::Deleted)], |held| {
            let finish = |removed| {
                finish(removed);
                drop(held);
            };
            self.writer
                .send(move |write| write.remove_named(&name), finish)
        });
        reply(sent.map(|()| removed))
    }

    fn row(&self, id: Uuid, now: u64) -> Result<Option<SessionRow>, SessionStoreError> {
        let row = self.tables.row(id)?;
        Ok(row.filter(|row| row.is_there(now)))
    }

    fn row_of(&self, session_id: &str, now: u64) -> Result<Option<SessionRow>, SessionStoreError> {
        let row = self.tables.by_name(&name_of(session_id))?;
        Ok(row.filter(|row| row.is_there(now)))
    }

    fn list(
        &self,
        after: Option<Uuid>,
        most: usize,
        now: u64,
    ) -> Result<Vec<SessionRow>, SessionStoreError> {
        self.tables.list(after, most, now)
    }

    fn put(&self, row: SessionRow, expected: Expected, now: u64) -> SessionReply<Put> {
        let is_too_large = row.data.as_ref().is_some_and(|data| data.len() > MAX_DATA);
        if is_too_large {
            return Box::pin(async { Err(SessionStoreError::TooLarge) });
        }
        let put = move |write: &mut Write<'_>| write.put(&row, &expected, now);
        reply(self.writer.ask(put))
    }

    fn remove(&self, id: Uuid) -> SessionReply<()> {
        reply(self.writer.ask(move |write| write.remove(id)))
    }
}

/// Returns the reply to an operation that was queued, or was not.
fn reply<T: Send + 'static>(
    asked: Result<Answer<T, SessionStoreError>, SessionStoreError>,
) -> SessionReply<T> {
    Box::pin(async move { asked?.get().await })
}

/// Logs that a session is not kept. A full store is logged once a minute, because every login meets it.
fn note_unkept(put: Put, log_full_at: &AtomicU64, now: u64) {
    let next = log_full_at.load(Relaxed);
    let is_due = put == Put::Full && now >= next;
    let takes_turn =
        || log_full_at.compare_exchange(next, now.saturating_add(60), Relaxed, Relaxed);
    if is_due && takes_turn().is_ok() {
        tracing::error!(
            "the store of sessions is full: clients that log in get a cookie, but no session is kept for it"
        );
    }
    tracing::debug!(?put, "a session is not kept");
}

impl SessionRow {
    fn is_there(&self, now: u64) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }

    /// Returns the row as it is once a newer one has its place. It never lives longer than before.
    fn stale(self, until: u64) -> Self {
        Self {
            ends: Some(self.ends.map_or(until, |ends| ends.min(until))),
            is_replaced: true,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
