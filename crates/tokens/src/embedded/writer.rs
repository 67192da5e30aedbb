//! The writer of tokens: its transactions, and the changes in them.

use super::Shared;
use super::operations::Numbers;
use super::reading::View;
use super::tables::{Map, Table, storage};
use crate::room;
use crate::store::{Reply, StoreError};
use crate::writer::{self, Environment, Unwritten};
use heed::{PutFlags, RwTxn};
use std::sync::Arc;

pub(super) struct Writer(writer::Writer<Tokens>);

/// What the thread writes to, and what it knows of the file since its last transaction.
struct Tokens {
    shared: Arc<Shared>,
    numbers: Numbers,
    /// The last transaction that this process has committed.
    last: usize,
    /// Whether the file was nearly full at the last look.
    was_short: bool,
}

/// The transaction of a batch.
pub(super) struct Write<'w> {
    pub(super) shared: &'w Shared,
    pub(super) txn: RwTxn<'w>,
    pub(super) map: Arc<Map>,
    pub(super) numbers: &'w mut Numbers,
    /// The map at its begin.
    before: Arc<Map>,
    last: &'w mut usize,
    was_short: &'w mut bool,
    changes: u64,
    /// Whether the file is nearly full, if that was asked.
    is_short: Option<bool>,
}

impl Write<'_> {
    pub(super) fn view(&self) -> View<'_> {
        View {
            shared: self.shared,
            txn: &self.txn,
            map: &self.map,
        }
    }

    /// Refuses to add something if the file is nearly full, before anything of the operation is done. What ends tokens
    /// goes on.
    pub(super) fn need_room(&mut self) -> Result<(), StoreError> {
        let is_short = match self.is_short {
            Some(is_short) => is_short,
            None => self.look_for_room()?,
        };
        match is_short {
            true => Err(StoreError::Full),
            false => Ok(()),
        }
    }

    fn look_for_room(&mut self) -> Result<bool, StoreError> {
        let tables = &self.shared.tables;
        let is_short = room::is_short(&tables.env, &self.txn, tables.all()).map_err(storage)?;
        if is_short && !*self.was_short {
            tracing::error!("the store of tokens is full: it issues none until some have ended");
        }
        *self.was_short = is_short;
        self.is_short = Some(is_short);
        Ok(is_short)
    }

    pub(super) fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.changes += 1;
        table.put(&mut self.txn, key, value).map_err(storage)
    }

    /// Puts an entry after all others of the table.
    pub(super) fn append(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        self.changes += 1;
        table
            .put_with_flags(&mut self.txn, PutFlags::APPEND, key, value)
            .map_err(storage)
    }

    pub(super) fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), StoreError> {
        self.changes += 1;
        table
            .delete(&mut self.txn, key)
            .map(|_| ())
            .map_err(storage)
    }

    /// Changes the tables themselves.
    pub(super) fn change<R>(
        &mut self,
        change: impl FnOnce(&Shared, &mut RwTxn<'_>, &mut Map) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.changes += 1;
        change(self.shared, &mut self.txn, Arc::make_mut(&mut self.map))
    }
}

impl Writer {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self, StoreError> {
        let tokens = Tokens {
            shared,
            numbers: Numbers::new(),
            last: 0,
            was_short: false,
        };
        writer::Writer::start(tokens)
            .map(Self)
            .map_err(|error| StoreError::Storage(format!("its thread cannot start: {error}")))
    }

    /// Runs an operation. The result comes when it is durable.
    pub(super) fn run<T: Send + 'static>(
        &self,
        operation: impl Fn(&mut Write<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Reply<'static, T> {
        match self.0.ask(operation) {
            Ok(answer) => Reply::Wait(Box::pin(answer.get())),
            Err(error) => Reply::Ready(Err(error)),
        }
    }
}

impl Environment for Tokens {
    const NAME: &'static str = "tokens";

    type Write<'w> = Write<'w>;
    type Error = StoreError;

    /// Begins a transaction. During an upgrade another process writes too. Then what this process knows may be out of
    /// date.
    fn begin(&mut self) -> Result<Write<'_>, StoreError> {
        let Self {
            shared,
            numbers,
            last,
            was_short,
        } = self;
        let tables = &shared.tables;
        let txn = tables.env.write_txn().map_err(storage)?;
        let map = if txn.id() == *last + 1 {
            tables.map.load_full()
        } else {
            numbers.clear();
            Arc::new(tables.read_map(&txn)?)
        };
        Ok(Write {
            shared,
            txn,
            before: Arc::clone(&map),
            map,
            numbers,
            last,
            was_short,
            changes: 0,
            is_short: None,
        })
    }

    fn changes(write: &Write<'_>) -> u64 {
        write.changes
    }

    fn commit(write: Write<'_>) -> Result<(), StoreError> {
        let Write {
            shared,
            mut txn,
            map,
            before,
            last,
            ..
        } = write;
        let tables = &shared.tables;
        tables.write_counts(&mut txn, &before, &map)?;
        let id = txn.id();
        txn.commit().map_err(storage)?;
        *last = id;
        tables.map.store(map);
        shared.readers.release_idle();
        Ok(())
    }
}

impl From<Unwritten> for StoreError {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::Busy => Self::Busy,
            Unwritten::Closed => Self::Closed,
            Unwritten::Panicked => Self::Storage("an operation has panicked".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
