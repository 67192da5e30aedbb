//! Tokens in an LMDB environment on the node.
//!
//! - *Buckets.* A row of a token that is issued here is in the bucket of its end (`place`). Its key is its number,
//!   and the token and its id hold bucket and number. So one insert at the end of a table issues a token, and one look-up
//!   finds it. A bucket consists of parts, so that no part takes long to drop.
//! - *Tables.* LMDB opens tables slowly and under a lock. So all tables exist from the start, and a part takes an empty one
//!   (`tables`). When the last row of a part has ended, the table is emptied as a whole, and is free again.
//! - *Loose rows.* Tokens that do not hold their place (imported ones, and rows whose life was renewed) are in tables of
//!   their own, by the hash of the access token. They are deleted one by one.
//! - *Look-ups* run where they are asked for, unless memory is so short that they may wait for the disk (`aside`).
//! - *One writer.* A thread takes all waiting operations, does them in one transaction, and syncs once
//!   (`crate::writer`).
//! - *Facts.* A row is never changed but for its state, and never deleted before its end. So a used refresh token is
//!   known as one, and an import does not bring a revoked token back.

mod aside;
mod importing;
mod listing;
mod operations;
mod readers;
mod reading;
mod spent;
mod tables;
mod writer;

use crate::secret::{Keys, Made, Storage};
use crate::store::{
    Code, Counts, Cursor, ImportOutcome, Imported, Issued, Listed, NewCode, NewToken, Page,
    RefreshOutcome, Reply, StoreError, Token, TokenStore, Write, WriteOutcome,
};
use aside::{Aside, Pace};
use readers::Readers;
use std::borrow::Borrow;
use std::path::Path;
use std::sync::Arc;
use tables::Tables;
use uuid::Uuid;
use writer::Writer;

/// The store. It ends its thread when it is dropped, after all operations that wait.
pub struct Embedded {
    shared: Arc<Shared>,
    writer: Writer,
    aside: Aside,
}

/// What readers and the writer share.
struct Shared {
    /// Dropped first: transactions end before the environment is closed.
    readers: Readers,
    tables: Tables,
    keys: Keys,
    storage: Storage,
    pace: Pace,
}

impl Embedded {
    /// Opens the store in a directory, which is created. `max_size` is the address space that is reserved, and so the
    /// largest size of the file.
    pub fn open(
        directory: &Path,
        max_size: usize,
        keys: Keys,
        storage: Storage,
    ) -> Result<Self, StoreError> {
        let tables = Tables::open(directory, max_size)?;
        let shared = Arc::new(Shared {
            readers: Readers::new(tables.env.clone()),
            tables,
            keys,
            storage,
            pace: Pace::new(),
        });
        Ok(Self {
            writer: Writer::start(shared.clone())?,
            aside: Aside::start(&shared)?,
            shared,
        })
    }

    /// Looks something up, at once or on another thread.
    fn look<K, T>(
        &self,
        key: &K,
        look: impl Fn(&Shared, &K) -> Result<T, StoreError> + Send + 'static,
    ) -> Reply<'_, T>
    where
        K: ToOwned<Owned: Send + 'static> + ?Sized + 'static,
        T: Send + 'static,
    {
        let Shared { pace, .. } = &*self.shared;
        if !pace.is_aside() {
            return Reply::Ready(pace.watch(|| look(&self.shared, key)));
        }
        let key = key.to_owned();
        match self.aside.look(move |shared| look(shared, key.borrow())) {
            Ok(answer) => Reply::Wait(Box::pin(answer.get())),
            Err(error) => Reply::Ready(Err(error)),
        }
    }
}

impl TokenStore for Embedded {
    fn find_by_access_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>> {
        self.look(token, move |shared, token| {
            shared.find_by_access_token(token, now)
        })
    }

    fn find_by_refresh_token(&self, token: &str, now: i64) -> Reply<'_, Option<Token>> {
        self.look(token, move |shared, token| {
            shared.find_by_refresh_token(token, now)
        })
    }

    fn find_by_id(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>> {
        self.look(&id, move |shared, id| shared.find_by_id(*id, now))
    }

    fn find_known(&self, id: Uuid, now: i64) -> Reply<'_, Option<Token>> {
        self.look(&id, move |shared, id| shared.find_known(*id, now))
    }

    fn issue(&self, token: NewToken, now: i64) -> Reply<'_, Issued> {
        self.writer.run(move |write| write.issue(&token, now))
    }

    fn issue_code(&self, code: NewCode, now: i64) -> Reply<'_, Made> {
        self.writer.run(move |write| write.issue_code(&code, now))
    }

    fn find_code(&self, code: &str, now: i64) -> Reply<'_, Option<Code>> {
        self.look(code, move |shared, code| shared.find_code(code, now))
    }

    fn take_code(
        &self,
        code: &str,
        token: NewToken,
        revoke_on_replay: bool,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        let code = code.to_owned();
        self.writer
            .run(move |write| write.take_code(&code, &token, revoke_on_replay, now))
    }

    fn refresh(&self, refresh_token: &str, token: NewToken, now: i64) -> Reply<'_, RefreshOutcome> {
        let refresh_token = refresh_token.to_owned();
        self.writer
            .run(move |write| write.refresh(&refresh_token, &token, now))
    }

    fn refresh_again(
        &self,
        id: Uuid,
        token: NewToken,
        within: i64,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        self.writer
            .run(move |write| write.refresh_again(id, &token, within, now))
    }

    fn renew(
        &self,
        refresh_token: &str,
        expires_in: i64,
        ttl: Option<i64>,
        now: i64,
    ) -> Reply<'_, Option<Issued>> {
        let refresh_token = refresh_token.to_owned();
        self.writer
            .run(move |write| write.renew(&refresh_token, expires_in, ttl, now))
    }

    fn write(&self, row: Imported, how: Write, now: i64) -> Reply<'_, WriteOutcome> {
        self.writer.run(move |write| write.write(&row, &how, now))
    }

    fn revoke(&self, id: Uuid, now: i64) -> Reply<'_, bool> {
        self.writer.run(move |write| write.revoke(id, now))
    }

    fn revoke_successor(&self, id: Uuid, now: i64) -> Reply<'_, bool> {
        self.writer
            .run(move |write| write.revoke_successor(id, now))
    }

    fn list(&self, of: Listed, after: Option<Cursor>, most: usize, now: i64) -> Reply<'_, Page> {
        Reply::Ready(self.shared.list(of, after, most, now))
    }

    fn import(&self, rows: Vec<Imported>, now: i64) -> Reply<'_, Vec<ImportOutcome>> {
        self.writer.run(move |write| write.import(&rows, now))
    }

    fn expire(&self, now: i64) -> Reply<'_, bool> {
        // A process that was killed, for instance during an upgrade, keeps pages from being used again.
        if let Err(error) = self.shared.tables.env.clear_stale_readers() {
            return Reply::Ready(Err(tables::storage(error)));
        }
        self.writer.run(move |write| write.expire(now))
    }

    fn counts(&self) -> Reply<'_, Counts> {
        Reply::Ready(self.shared.counts())
    }
}
