//! Writes and removes history. [`crate::past`] reads it.
//!
//! The record of a revision has a head and the keys of the entities that it changed. The table `touched` has the state
//! of each of these entities *before* the revision. The state after it is the state before the next revision that
//! changes the entity, or the current state in the entity tables. So loading a configuration into an empty store writes
//! every entity once, not twice. And because `touched` is ordered by entity and then by revision, finding the state of
//! an entity at any revision takes one lookup, however many revisions there are.

use crate::change::Origin;
use crate::env::{Environment, Table, Tables};
use crate::error::{CommitError, Damage, StoreError};
use crate::header::{Header, JOURNAL, SUMMED_TABLES, TOUCHED};
use crate::keys::{self, ENTITY_KEY_LENGTH, EntityKey, HEAD_PIECE};
use crate::record::{self, Counts};
use crate::store::{Retention, Store};
use crate::transaction::write_header;
use crate::view::View;
use heed::{PutFlags, RoTxn, RwTxn, WithoutTls};

/// Maximum number of keys in a piece of a record; that many keys fill a page of LMDB. Compaction removes whole pieces.
pub(crate) const PIECE_KEYS: usize = (4096 - 16) / ENTITY_KEY_LENGTH;

/// Number of bytes that take about as long to remove as an entry.
const LONG: u64 = 4096;

/// The data kept about a revision: the state before it, its time and its author. Entities are ordered by key.
pub(crate) struct Record<'r> {
    pub(crate) entities: &'r [(EntityKey, Option<Vec<u8>>)],
    pub(crate) meta: &'r [(String, Option<Vec<u8>>)],
    pub(crate) counts: Counts,
    pub(crate) at_ms: u64,
    pub(crate) origin: &'r Origin,
}

/// The tables of the history, and the header with their sums.
pub(crate) struct Writer<'w, 't> {
    pub(crate) txn: &'w mut RwTxn<'t>,
    pub(crate) tables: &'w Tables,
    pub(crate) header: &'w mut Header,
}

impl Writer<'_, '_> {
    /// Writes the record of the header's revision. If this record alone exceeds the retention, it is not written. The
    /// history then starts at this revision, and compaction removes all older records.
    pub(crate) fn append(
        &mut self,
        record: &Record<'_>,
        retention: Retention,
    ) -> Result<(), CommitError> {
        let revision = self.header.revision;
        if retention.revisions == 0 || size(record) > retention.bytes {
            self.header.floor = revision;
            return Ok(());
        }
        let at_ms = record.at_ms.max(time(self.txn, self.tables, revision - 1)?);
        let head = record::encode(at_ms, record.counts, record.origin, record.meta);
        let [journal, touched] = [self.tables.journal, self.tables.touched];
        let key = keys::journal(revision, HEAD_PIECE);
        self.put((journal, JOURNAL), PutFlags::APPEND, &key, &head)?;
        for (piece, entities) in record.entities.chunks(PIECE_KEYS).enumerate() {
            let key = keys::journal(revision, HEAD_PIECE + 1 + piece as u32);
            let piece: Vec<u8> = entities.iter().flat_map(|(key, _)| *key).collect();
            self.put((journal, JOURNAL), PutFlags::APPEND, &key, &piece)?;
        }
        // The first load fills the table from the left, which leaves its pages full.
        let flags = if touched.is_empty(self.txn)? {
            PutFlags::APPEND
        } else {
            PutFlags::empty()
        };
        for (entity, before) in record.entities {
            let key = keys::touched(entity, revision);
            let before = before.as_deref().unwrap_or_default();
            self.put((touched, TOUCHED), flags, &key, before)?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        (table, sum): (Table, usize),
        flags: PutFlags,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), CommitError> {
        table.put_with_flags(self.txn, flags, key, value)?;
        self.header.sums[sum].add(key, value);
        self.header.history_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn delete(&mut self, (table, sum): (Table, usize), key: &[u8]) -> Result<(), CommitError> {
        let damage = Damage::Entry {
            table: SUMMED_TABLES[sum],
        };
        let value = table.get(self.txn, key)?.ok_or(damage)?;
        self.header.sums[sum].remove(key, value);
        self.header.history_bytes -= (key.len() + value.len()) as u64;
        table.delete(self.txn, key)?;
        Ok(())
    }

    /// Removes all records at once, so that only the newest state can be read.
    pub(crate) fn clear(&mut self) -> Result<(), CommitError> {
        self.tables.journal.clear(self.txn)?;
        self.tables.touched.clear(self.txn)?;
        let Header {
            revision,
            floor,
            swept,
            history_bytes,
            sums,
            ..
        } = &mut *self.header;
        (*floor, *swept, *history_bytes) = (*revision, *revision, 0);
        sums[JOURNAL] = Default::default();
        sums[TOUCHED] = Default::default();
        Ok(())
    }

    /// Removes about `limit` entries of records that exceed the retention, the oldest first. Returns whether there are
    /// more. A large record is removed piece by piece.
    pub(crate) fn compact(
        &mut self,
        retention: Retention,
        now_ms: u64,
        limit: usize,
    ) -> Result<bool, CommitError> {
        let mut removed = 0;
        loop {
            if self.header.swept == self.header.floor {
                if !exceeds(self.txn, self.tables, self.header, retention, now_ms)? {
                    return Ok(false);
                }
                self.header.floor += 1;
            }
            if removed >= limit {
                return Ok(true);
            }
            removed += self.sweep()?;
        }
    }

    /// Removes the last piece of the oldest record that is being removed. The head of a record is removed last. Returns
    /// the number of removed entries; long entries count more than once.
    fn sweep(&mut self) -> Result<usize, CommitError> {
        let journal = (self.tables.journal, JOURNAL);
        let revision = self.header.swept + 1;
        let before = self.header.history_bytes;
        let end = keys::journal(revision + 1, HEAD_PIECE);
        let last = journal.0.get_lower_than(self.txn, &end)?;
        let damage = Damage::Entry { table: "journal" };
        let Some((key, piece)) = last else {
            self.header.swept = revision;
            return Ok(1);
        };
        let (found, number) = keys::parse_journal(key).ok_or(damage)?;
        if found != revision {
            self.header.swept = revision;
            return Ok(1);
        }
        let key = keys::journal(found, number);
        let entities = match number {
            HEAD_PIECE => Vec::new(),
            _ => piece.to_vec(),
        };
        for entity in parse_piece(&entities) {
            let touched = keys::touched(entity, revision);
            self.delete((self.tables.touched, TOUCHED), &touched)?;
        }
        self.delete(journal, &key)?;
        if number == HEAD_PIECE {
            self.header.swept = revision;
        }
        let bytes = before - self.header.history_bytes;
        Ok(1 + entities.len() / ENTITY_KEY_LENGTH + (bytes / LONG) as usize)
    }
}

impl Store {
    /// Removes about `limit` entries of the history that exceed the retention, the oldest first. Returns whether there
    /// are more. Writes only if there are such entries.
    pub fn compact(&self, limit: usize) -> Result<bool, CommitError> {
        let Environment { env, tables, .. } = &self.inner.environment;
        let retention = self.inner.retention;
        let now_ms = record::now_ms();
        let view = self.view()?;
        let header = view.header()?;
        if header.swept == header.floor && !exceeds(view.txn(), tables, &header, retention, now_ms)?
        {
            return Ok(false);
        }
        drop(view);
        self.write(|| {
            let mut txn = env.write_txn()?;
            let mut header = View::new_borrowed(&txn, tables)?.header()?;
            let mut history = Writer {
                txn: &mut txn,
                tables,
                header: &mut header,
            };
            let more = history.compact(retention, now_ms, limit)?;
            write_header(&mut txn, tables, &mut header)?;
            txn.commit()?;
            self.inner.committed();
            Ok(more)
        })
    }

    /// Whether the history exceeds its retention by so much that compaction should not wait until the gateway is idle.
    pub fn is_compaction_overdue(&self) -> Result<bool, StoreError> {
        let Retention {
            revisions, bytes, ..
        } = self.inner.retention;
        let header = self.view()?.header()?;
        let beyond = |limit: u64| limit.saturating_add(limit / 8);
        Ok(header.revision - header.floor > beyond(revisions)
            || header.history_bytes > beyond(bytes))
    }
}

/// Whether the oldest record exceeds the retention. The newest record never does.
fn exceeds(
    txn: &RoTxn<'_, WithoutTls>,
    tables: &Tables,
    header: &Header,
    retention: Retention,
    now_ms: u64,
) -> Result<bool, StoreError> {
    let Header {
        floor, revision, ..
    } = *header;
    if floor + 1 >= revision {
        return Ok(false);
    }
    if revision - floor > retention.revisions || header.history_bytes > retention.bytes {
        return Ok(true);
    }
    let age = now_ms.saturating_sub(time(txn, tables, floor + 1)?);
    Ok(age > record::whole_ms(retention.age))
}

/// Returns the creation time of a revision; 0 if there is no record of it.
fn time(txn: &RoTxn<'_, WithoutTls>, tables: &Tables, revision: u64) -> Result<u64, StoreError> {
    let key = keys::journal(revision, HEAD_PIECE);
    match tables.journal.get(txn, &key)? {
        Some(head) => Ok(record::time(head).ok_or(Damage::Entry { table: "journal" })?),
        None => Ok(0),
    }
}

/// Returns the keys in a piece of a record.
pub(crate) fn parse_piece(piece: &[u8]) -> &[EntityKey] {
    piece.as_chunks().0
}

/// Approximate size that the record will have in the tables, without its head and without the keys of its pieces.
fn size(record: &Record<'_>) -> u64 {
    let sizes = record.entities.iter().map(|(_, before)| {
        let before = before.as_ref().map_or(0, Vec::len);
        2 * ENTITY_KEY_LENGTH + 8 + before
    });
    sizes.sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use super::{JOURNAL, TOUCHED, Writer};
    use crate::error::{CommitError, Damage, StoreError};
    use crate::{Options, Store};

    #[test]
    fn a_missing_entry_is_reported_with_its_table() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, _) = Store::open(directory.path(), Options::default()).expect("a new store");
        let mut header = store
            .view()
            .and_then(|view| view.header())
            .expect("a header");
        let environment = store.environment();
        let mut txn = environment.env.write_txn().expect("a transaction");
        let tables = &environment.tables;
        let mut history = Writer {
            txn: &mut txn,
            tables,
            header: &mut header,
        };
        for (table, sum, name) in [
            (tables.journal, JOURNAL, "journal"),
            (tables.touched, TOUCHED, "touched"),
        ] {
            match history.delete((table, sum), b"missing") {
                Err(CommitError::Store(StoreError::Damaged(Damage::Entry { table }))) => {
                    assert_eq!(table, name);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
