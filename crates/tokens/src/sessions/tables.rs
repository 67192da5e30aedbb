//! The tables of the environment, and the steps of a transaction.

use super::counts::ALL;
use super::pending::Change;
use super::{Bounds, Expected, Put, SessionRow, SessionStoreError};
use crate::room;
use crate::writer::MAX_BATCH;
use aws_lc_rs::digest::{SHA256, digest};
use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls};
use std::fs::DirBuilder;
use std::ops::Bound;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use uuid::Uuid;

type Table = heed::Database<'static, Bytes, Bytes>;

const MAX_READERS: u32 = 1024;

/// Number of ended rows that one operation removes.
const SLICE: usize = 8;

/// SHA-256 of a session id. It is a key of fixed length, also for long ids.
pub(super) type Name = [u8; 32];

pub(super) fn name_of(session_id: &str) -> Name {
    let mut name = Name::default();
    name.copy_from_slice(digest(&SHA256, session_id.as_bytes()).as_ref());
    name
}

/// The open environment.
pub(super) struct Tables {
    env: Env<WithoutTls>,
    bounds: Bounds,
    /// Id to the row.
    pub(super) rows: Table,
    /// Name to the id.
    names: Table,
    /// End and id.
    ends: Table,
    /// Owner and id. Ids grow with time, so that the first one of an owner is its oldest.
    owners: Table,
    /// Owner to the number of its rows and their bytes. At `counts::ALL` are those of all owners.
    pub(super) counts: Table,
}

/// A transaction that writes.
pub(super) struct Write<'w> {
    pub(super) tables: &'w Tables,
    pub(super) txn: RwTxn<'w>,
    changes: u64,
}

impl Tables {
    pub(super) fn open(
        directory: &Path,
        max_size: usize,
        bounds: Bounds,
    ) -> Result<Self, SessionStoreError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|error| {
            SessionStoreError::Storage(format!("{}: {error}", directory.display()))
        })?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options
            .map_size(max_size)
            .max_readers(MAX_READERS)
            .max_dbs(5);
        #[expect(
            unsafe_code,
            reason = "LMDB maps a file, which no other program may change"
        )]
        // SAFETY: the directory is the store's own, and only its owner may write there.
        let env = unsafe { options.open(directory) }.map_err(storage)?;
        let txn = env.write_txn().map_err(storage)?;
        let created = env.create_databases_and_commit(txn, |opener, txn| {
            let mut create = |name| opener.create_database(txn, Some(name));
            let created = [
                create("rows")?,
                create("names")?,
                create("ends")?,
                create("owners")?,
                create("counts")?,
            ];
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(created))
        });
        let [rows, names, ends, owners, counts] = created.map_err(storage)?.unwrap_commit();
        let tables = Self {
            env,
            bounds,
            rows,
            names,
            ends,
            owners,
            counts,
        };
        tables.sum_up()?;
        Ok(tables)
    }

    fn read(&self) -> Result<RoTxn<'_, WithoutTls>, SessionStoreError> {
        self.env.read_txn().map_err(storage)
    }

    pub(super) fn row(&self, id: Uuid) -> Result<Option<SessionRow>, SessionStoreError> {
        let txn = self.read()?;
        let stored = self.rows.get(&txn, id.as_bytes()).map_err(storage)?;
        stored.map(decode).transpose()
    }

    pub(super) fn by_name(&self, name: &Name) -> Result<Option<SessionRow>, SessionStoreError> {
        let txn = self.read()?;
        let Some(id) = self.names.get(&txn, name).map_err(storage)? else {
            return Ok(None);
        };
        let stored = self.rows.get(&txn, id).map_err(storage)?;
        stored.map(decode).transpose()
    }

    /// Returns rows that have not ended, in the order of their ids.
    pub(super) fn list(
        &self,
        after: Option<Uuid>,
        most: usize,
        now: u64,
    ) -> Result<Vec<SessionRow>, SessionStoreError> {
        let txn = self.read()?;
        let start = match &after {
            Some(id) => Bound::Excluded(&id.as_bytes()[..]),
            None => Bound::Unbounded,
        };
        let range = (start, Bound::Unbounded);
        let mut rows = Vec::new();
        for entry in self.rows.range(&txn, &range).map_err(storage)? {
            let (_, stored) = entry.map_err(storage)?;
            let row = decode(stored)?;
            if row.is_there(now) {
                rows.push(row);
            }
            if rows.len() >= most {
                break;
            }
        }
        Ok(rows)
    }

    pub(super) fn write(&self) -> Result<Write<'_>, SessionStoreError> {
        let txn = self.env.write_txn().map_err(storage)?;
        Ok(Write {
            tables: self,
            txn,
            changes: 0,
        })
    }

    /// Removes rows that have ended. Returns whether there may be more.
    pub(super) fn tidy(&self, now: u64) -> Result<bool, SessionStoreError> {
        let mut write = self.write()?;
        let removed = write.expire_up_to(MAX_BATCH, now)?;
        if removed > 0 {
            write.commit()?;
        }
        Ok(removed == MAX_BATCH)
    }

    fn all(&self) -> [Table; 5] {
        [self.rows, self.names, self.ends, self.owners, self.counts]
    }
}

impl Write<'_> {
    pub(super) fn commit(self) -> Result<(), SessionStoreError> {
        self.txn.commit().map_err(storage)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn store(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), SessionStoreError> {
        self.changes += 1;
        table.put(&mut self.txn, key, value).map_err(storage)
    }

    pub(super) fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), SessionStoreError> {
        self.changes += 1;
        table
            .delete(&mut self.txn, key)
            .map(|_| ())
            .map_err(storage)
    }

    fn get(&self, id: Uuid) -> Result<Option<SessionRow>, SessionStoreError> {
        let stored = self.tables.rows.get(&self.txn, id.as_bytes());
        stored.map_err(storage)?.map(decode).transpose()
    }

    fn id_of(&self, name: &Name) -> Result<Option<Uuid>, SessionStoreError> {
        let id = self.tables.names.get(&self.txn, name).map_err(storage)?;
        id.map(|id| Uuid::from_slice(id).map_err(|_| SessionStoreError::Damaged))
            .transpose()
    }

    /// Adds a row. If there is no room for it, rows of its owner are removed, the oldest first.
    pub(super) fn insert(&mut self, row: &SessionRow) -> Result<Put, SessionStoreError> {
        let name = name_of(&row.session_id);
        if self.id_of(&name)?.is_some() {
            return Ok(Put::SessionIdExists);
        }
        let stored = encode(row)?;
        if self.is_short()? {
            return Ok(Put::Full);
        }
        self.add(row, name, &stored)
    }

    /// Adds the row of a renewed session, and lets the former one become stale or removes it. In a full file the new row
    /// takes the room of the former one at once.
    pub(super) fn renew(
        &mut self,
        former: &Name,
        change: &Change,
        row: &SessionRow,
    ) -> Result<Put, SessionStoreError> {
        if !self.is_short()? {
            self.replace(former, change)?;
            return self.insert(row);
        }
        let Some(id) = self.id_of(former)? else {
            return Ok(Put::Full);
        };
        let known = self.tables.rows.get(&self.txn, id.as_bytes());
        let length = known.map_err(storage)?.map_or(0, <[u8]>::len);
        let name = name_of(&row.session_id);
        let stored = encode(row)?;
        self.remove(id)?;
        match stored.len() <= length && self.id_of(&name)?.is_none() {
            true => self.add(row, name, &stored),
            false => Ok(Put::Full),
        }
    }

    /// Whether the file has no room for more rows.
    fn is_short(&self) -> Result<bool, SessionStoreError> {
        let tables = self.tables.all().into_iter();
        room::is_short(&self.tables.env, &self.txn, tables).map_err(storage)
    }

    fn add(
        &mut self,
        row: &SessionRow,
        name: Name,
        stored: &[u8],
    ) -> Result<Put, SessionStoreError> {
        if !self.make_room(row.owner, stored.len())? {
            return Ok(Put::Full);
        }
        let (tables, id) = (self.tables, row.id.as_bytes());
        self.store(tables.rows, id, stored)?;
        self.store(tables.names, &name, id)?;
        if let Some(ends) = row.ends {
            self.store(tables.ends, &end_key(ends, row.id), &[])?;
        }
        self.store(tables.owners, &owner_key(row.owner, row.id), &[])?;
        let (rows, bytes) = self.count(row.owner)?;
        self.set_count(row.owner, rows + 1, bytes + stored.len() as u64)?;
        Ok(Put::Done)
    }

    /// Writes a row of the Admin API.
    pub(super) fn put(
        &mut self,
        row: &SessionRow,
        expected: &Expected,
        now: u64,
    ) -> Result<Put, SessionStoreError> {
        let is_live = |row: &SessionRow| row.is_there(now);
        let known = self.get(row.id)?.filter(is_live);
        let mut row = row.clone();
        match (expected, known) {
            (Expected::Nothing, Some(_)) => return Ok(Put::IdExists),
            (Expected::Same(expected), known) if known.as_ref() != Some(expected) => {
                return Ok(Put::Changed);
            }
            (Expected::Anything, Some(known)) => {
                (row.owner, row.is_replaced) = (known.owner, known.is_replaced);
            }
            _ => {}
        }
        if let Some(id) = self.id_of(&name_of(&row.session_id))?
            && id != row.id
        {
            if self.get(id)?.as_ref().is_some_and(is_live) {
                return Ok(Put::SessionIdExists);
            }
            self.remove(id)?;
        }
        self.remove(row.id)?;
        self.insert(&row)
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Result<(), SessionStoreError> {
        let Some(stored) = self
            .tables
            .rows
            .get(&self.txn, id.as_bytes())
            .map_err(storage)?
        else {
            return Ok(());
        };
        let (length, row) = (stored.len() as u64, decode(stored)?);
        let tables = self.tables;
        self.delete(tables.rows, id.as_bytes())?;
        self.delete(tables.names, &name_of(&row.session_id))?;
        if let Some(ends) = row.ends {
            self.delete(tables.ends, &end_key(ends, id))?;
        }
        self.delete(tables.owners, &owner_key(row.owner, id))?;
        let (rows, bytes) = self.count(row.owner)?;
        self.set_count(
            row.owner,
            rows.saturating_sub(1),
            bytes.saturating_sub(length),
        )
    }

    /// Removes a row, also one that cannot be read. Then its other keys stay. If it stayed the first one, it would be in the
    /// way of all later rows.
    fn remove_whatever_it_is(&mut self, id: Uuid) -> Result<(), SessionStoreError> {
        match self.remove(id) {
            Err(SessionStoreError::Damaged) => {
                tracing::error!(%id, "a session cannot be read and is deleted");
                self.delete(self.tables.rows, id.as_bytes())
            }
            removed => removed,
        }
    }

    pub(super) fn remove_named(&mut self, name: &Name) -> Result<(), SessionStoreError> {
        match self.id_of(name)? {
            Some(id) => self.remove(id),
            None => Ok(()),
        }
    }

    /// Makes a row stale, or removes it.
    pub(super) fn replace(
        &mut self,
        name: &Name,
        change: &Change,
    ) -> Result<(), SessionStoreError> {
        let (Some(id), Change::Stale(until)) = (self.id_of(name)?, change) else {
            return self.remove_named(name);
        };
        let known = self.tables.rows.get(&self.txn, id.as_bytes());
        let Some(known) = known.map_err(storage)? else {
            return Ok(());
        };
        let (before, row) = (known.len() as u64, decode(known)?);
        let ends = row.ends;
        let row = row.stale(*until);
        let stored = encode(&row)?;
        let tables = self.tables;
        self.store(tables.rows, id.as_bytes(), &stored)?;
        if let Some(ends) = ends {
            self.delete(tables.ends, &end_key(ends, id))?;
        }
        let ends = row.ends.unwrap_or(*until);
        self.store(tables.ends, &end_key(ends, id), &[])?;
        let (rows, bytes) = self.count(row.owner)?;
        let bytes = (bytes + stored.len() as u64).saturating_sub(before);
        self.set_count(row.owner, rows, bytes)
    }

    /// Removes some rows that have ended.
    pub(super) fn expire(&mut self, now: u64) -> Result<(), SessionStoreError> {
        self.expire_up_to(SLICE, now).map(drop)
    }

    /// Removes rows that have ended, and returns how many.
    pub(super) fn expire_up_to(
        &mut self,
        most: usize,
        now: u64,
    ) -> Result<usize, SessionStoreError> {
        for done in 0..most {
            let first = self.tables.ends.first(&self.txn).map_err(storage)?;
            let Some((key, _)) = first else {
                return Ok(done);
            };
            let ends = key.first_chunk().ok_or(SessionStoreError::Damaged)?;
            if u64::from_be_bytes(*ends) > now {
                return Ok(done);
            }
            let key = key.to_vec();
            let id = Uuid::from_slice(&key[8..]).map_err(|_| SessionStoreError::Damaged)?;
            self.remove_whatever_it_is(id)?;
            // A key without its row would stay the first one.
            self.delete(self.tables.ends, &key)?;
        }
        Ok(most)
    }

    /// Puts a row that cannot be read.
    #[cfg(test)]
    pub(super) fn put_damaged(&mut self, id: Uuid, ends: u64) -> Result<(), SessionStoreError> {
        self.store(self.tables.rows, id.as_bytes(), b"damaged")?;
        self.store(self.tables.ends, &end_key(ends, id), b"")
    }

    /// Removes rows of an owner until one more is within its bounds. An owner that has more than its share of the room,
    /// because others have come, gives one row for the new one. Returns whether there is room.
    fn make_room(&mut self, owner: Uuid, length: usize) -> Result<bool, SessionStoreError> {
        let bounds = self.tables.bounds;
        let mut has_given = false;
        loop {
            let (rows, bytes) = self.count(owner)?;
            let wanted = bytes.saturating_add(length as u64);
            let (all_rows, all_bytes) = self.count_at(ALL)?;
            let free = bounds.rows.saturating_sub(all_rows);
            let free_bytes = bounds.bytes.saturating_sub(all_bytes);
            let is_within_share = rows < free && wanted <= free_bytes;
            let has_place = free > 0 && length as u64 <= free_bytes;
            let fits = (is_within_share || (has_given && has_place))
                && rows < bounds.of_owner
                && wanted <= bounds.bytes_of_owner;
            if fits {
                return Ok(true);
            }
            let Some(oldest) = self.oldest(owner)? else {
                if (rows, bytes) == (0, 0) {
                    return Ok(false);
                }
                // Rows that could not be read are still counted.
                self.set_count(owner, 0, 0)?;
                continue;
            };
            self.remove_whatever_it_is(oldest)?;
            // A key without its row would stay the first one.
            self.delete(self.tables.owners, &owner_key(owner, oldest))?;
            has_given = true;
        }
    }

    fn oldest(&self, owner: Uuid) -> Result<Option<Uuid>, SessionStoreError> {
        let owners = &self.tables.owners;
        let mut of_owner = owners
            .prefix_iter(&self.txn, owner.as_bytes())
            .map_err(storage)?;
        let Some((key, _)) = of_owner.next().transpose().map_err(storage)? else {
            return Ok(None);
        };
        let id = key.last_chunk().ok_or(SessionStoreError::Damaged)?;
        Ok(Some(Uuid::from_bytes(*id)))
    }
}

fn end_key(ends: u64, id: Uuid) -> [u8; 24] {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&ends.to_be_bytes());
    key[8..].copy_from_slice(id.as_bytes());
    key
}

fn owner_key(owner: Uuid, id: Uuid) -> [u8; 32] {
    let mut key = [0; 32];
    key[..16].copy_from_slice(owner.as_bytes());
    key[16..].copy_from_slice(id.as_bytes());
    key
}

fn encode(row: &SessionRow) -> Result<Vec<u8>, SessionStoreError> {
    rmp_serde::to_vec(row).map_err(|error| SessionStoreError::Storage(error.to_string()))
}

fn decode(stored: &[u8]) -> Result<SessionRow, SessionStoreError> {
    rmp_serde::from_slice(stored).map_err(|_| SessionStoreError::Damaged)
}

pub(super) fn storage(error: heed::Error) -> SessionStoreError {
    match error {
        heed::Error::Mdb(MdbError::MapFull) => SessionStoreError::Full,
        error => SessionStoreError::Storage(error.to_string()),
    }
}
