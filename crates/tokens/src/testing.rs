//! Stores for tests of what uses a store. They lead to another store, with replies that come later and with failures.

use crate::Made;
use crate::sessions::{
    Expected, NewSession, Put, SessionReply, SessionRow, SessionStore, SessionStoreError,
    StoredSession,
};
use crate::store::{
    Code, Counts, Cursor, ImportOutcome, Imported, Issued, Listed, NewCode, NewToken, Page,
    RefreshOutcome, Reply, StoreError, Token, TokenStore, Write, WriteOutcome,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// A store that gives its replies later, as one on another machine.
pub struct SlowTokens {
    store: Arc<dyn TokenStore>,
    failure: Mutex<Option<StoreError>>,
    /// Whether somebody else refreshes with each refresh token that is looked for, just after that.
    pub is_raced: AtomicBool,
}

impl SlowTokens {
    pub fn new(store: Arc<dyn TokenStore>) -> Self {
        Self {
            store,
            failure: Mutex::default(),
            is_raced: AtomicBool::new(false),
        }
    }

    /// Lets all operations fail, or no more.
    pub fn fail(&self, failure: Option<StoreError>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    fn later<'a, T: Send + 'a>(&self, reply: Reply<'a, T>) -> Reply<'a, T> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failure.clone();
        Reply::Wait(Box::pin(async move {
            tokio::task::yield_now().await;
            match failure {
                Some(failure) => Err(failure),
                None => reply.get().await,
            }
        }))
    }
}

impl TokenStore for SlowTokens {
    fn find_by_access_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>> {
        self.later(self.store.find_by_access_token(token, now))
    }

    fn find_by_refresh_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>> {
        let found = self.store.find_by_refresh_token(token, now);
        if !self.is_raced.load(Relaxed) {
            return self.later(found);
        }
        let token = token.to_owned();
        Reply::Wait(Box::pin(async move {
            let found = found.get().await?;
            if let Some(found) = &found {
                let next = NewToken {
                    credential: found.credential,
                    service: found.service,
                    expires_in: found.expires_in,
                    with_refresh_token: true,
                    ttl: None,
                    scope: None,
                    authenticated_userid: None,
                };
                self.store.refresh(&token, next, now).get().await?;
            }
            Ok(found)
        }))
    }

    fn find_by_id(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>> {
        self.later(self.store.find_by_id(id, now))
    }

    fn find_known(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>> {
        self.later(self.store.find_known(id, now))
    }

    fn issue(&self, token: NewToken, now: i64) -> Reply<'_, Issued> {
        self.later(self.store.issue(token, now))
    }

    fn issue_code(&self, code: NewCode, now: i64) -> Reply<'_, Made> {
        self.later(self.store.issue_code(code, now))
    }

    fn find_code(&self, code: &str, now: i64) -> Reply<'_, Option<Code>> {
        self.later(self.store.find_code(code, now))
    }

    fn take_code(
        &self,
        code: &str,
        token: NewToken,
        revoke_on_replay: bool,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        self.later(self.store.take_code(code, token, revoke_on_replay, now))
    }

    fn refresh(&self, refresh_token: &str, token: NewToken, now: i64) -> Reply<'_, RefreshOutcome> {
        self.later(self.store.refresh(refresh_token, token, now))
    }

    fn refresh_again(
        &self,
        id: Uuid,
        token: NewToken,
        within: i64,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        self.later(self.store.refresh_again(id, token, within, now))
    }

    fn renew(
        &self,
        refresh_token: &str,
        expires_in: i64,
        ttl: Option<i64>,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        self.later(self.store.renew(refresh_token, expires_in, ttl, now))
    }

    fn revoke(&self, id: Uuid, now: i64) -> Reply<'_, bool> {
        self.later(self.store.revoke(id, now))
    }

    fn revoke_successor(&self, id: Uuid, now: i64) -> Reply<'_, bool> {
        self.later(self.store.revoke_successor(id, now))
    }

    fn write(&self, row: Imported, how: Write, now: i64) -> Reply<'_, WriteOutcome> {
        self.later(self.store.write(row, how, now))
    }

    fn counts(&self) -> Reply<'_, Counts> {
        self.later(self.store.counts())
    }

    fn list(&self, of: Listed, after: Option<Cursor>, most: usize, now: i64) -> Reply<'_, Page> {
        self.later(self.store.list(of, after, most, now))
    }

    fn import(&self, rows: Vec<Imported>, now: i64) -> Reply<'_, Vec<ImportOutcome>> {
        self.later(self.store.import(rows, now))
    }

    fn expire(&self, now: i64) -> Reply<'_, bool> {
        self.later(self.store.expire(now))
    }
}

/// What somebody else does with a session just after it was looked for by its session id.
pub enum Meanwhile {
    Delete,
    /// Writes other data.
    Write(&'static str),
}

/// A store of sessions where somebody else is busy.
pub struct DisturbedSessions {
    sessions: Arc<dyn SessionStore>,
    pub can_delete: bool,
    meanwhile: Mutex<VecDeque<Meanwhile>>,
}

impl DisturbedSessions {
    /// `meanwhile` happens at one look-up each.
    pub fn new(sessions: Arc<dyn SessionStore>, meanwhile: Vec<Meanwhile>) -> Self {
        Self {
            sessions,
            can_delete: true,
            meanwhile: Mutex::new(meanwhile.into()),
        }
    }

    fn next(&self) -> Option<Meanwhile> {
        let mut meanwhile = self
            .meanwhile
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        meanwhile.pop_front()
    }
}

impl SessionStore for DisturbedSessions {
    fn find(&self, id: &str, now: u64) -> Result<Option<StoredSession>, SessionStoreError> {
        self.sessions.find(id, now)
    }

    fn create(&self, new: NewSession<'_>, now: u64) -> Result<(), SessionStoreError> {
        self.sessions.create(new, now)
    }

    fn delete(&self, id: &str) -> SessionReply<()> {
        match self.can_delete {
            true => self.sessions.delete(id),
            false => Box::pin(async { Err(SessionStoreError::Busy) }),
        }
    }

    fn row(&self, id: Uuid, now: u64) -> Result<Option<SessionRow>, SessionStoreError> {
        self.sessions.row(id, now)
    }

    fn row_of(&self, id: &str, now: u64) -> Result<Option<SessionRow>, SessionStoreError> {
        let row = self.sessions.row_of(id, now)?;
        // An operation is queued when it is called, whether its reply is awaited or not.
        match (self.next(), &row) {
            (Some(Meanwhile::Delete), _) => drop(self.sessions.delete(id)),
            (Some(Meanwhile::Write(data)), Some(row)) => {
                let row = SessionRow {
                    data: Some(data.to_owned()),
                    ..row.clone()
                };
                drop(self.sessions.put(row, Expected::Anything, now));
            }
            _ => {}
        }
        Ok(row)
    }

    fn list(
        &self,
        after: Option<Uuid>,
        most: usize,
        now: u64,
    ) -> Result<Vec<SessionRow>, SessionStoreError> {
        self.sessions.list(after, most, now)
    }

    fn put(&self, row: SessionRow, expected: Expected, now: u64) -> SessionReply<Put> {
        self.sessions.put(row, expected, now)
    }

    fn remove(&self, id: Uuid) -> SessionReply<()> {
        self.sessions.remove(id)
    }
}
