//! A write transaction, from the first change to the disk. It may create several revisions, which become durable
//! together, with a single sync.

use crate::apply::{self, Work};
use crate::carried;
use crate::change::{Change, ChangeSet, Origin, Revision, Touched};
use crate::change_log::ChangeLogError;
use crate::created;
use crate::env::{Environment, Tables};
use crate::error::{CommitError, StoreError, Violation};
use crate::header::{HEADER_KEY, Header, META};
use crate::history::{self, Record};
use crate::keys::{self, EntityKey};
use crate::record;
use crate::store::{Retention, Store, lock};
use crate::view::View;
use heed::RwTxn;
use model::EntityKind;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

/// Maximum number of entities in a change set that is checked completely before any of them is written. If a larger one
/// violates uniqueness, the transaction is spoiled.
const CHECKED_FIRST: usize = 1000;

/// Pauses before a small change is tried again that found no room. Pages that a reader uses cannot be written although
/// they are free. Lookups take microseconds, but their threads may have to wait for a processor.
const PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(16),
    Duration::from_millis(64),
    Duration::from_millis(256),
];

/// What a change needs that has found no room.
#[derive(Debug, Default)]
struct Demand {
    /// Total bytes of the entities to write.
    size: usize,
    /// Whether there was room, but only in the part of the map that is kept for removals.
    grows: bool,
}

/// Previous states of entities or named values; `None` if there was none.
type Before<K> = Vec<(K, Option<Vec<u8>>)>;

/// A write transaction. Changes belong to the revision under construction until [`Transaction::seal`] completes it.
/// Changes that are not sealed when the transaction ends are not committed.
pub struct Transaction<'s> {
    txn: RwTxn<'s>,
    tables: &'s Tables,
    header: Header,
    retention: Retention,
    begun_at: Revision,
    /// Entities and named values before the revision under construction, in the order of their changes.
    entities: Before<EntityKey>,
    meta: Before<String>,
    /// Entities that the revision under construction has deleted, also those that it has made again.
    ended: BTreeSet<EntityKey>,
    /// Number of change sets applied to the revision under construction. If it is greater than one, an entity may be
    /// listed twice.
    applied: usize,
    /// The entities that sealed revisions of this transaction have changed, with their previous states. An entity may
    /// be listed once per revision. Its first state is the one before the transaction.
    sealed: Before<EntityKey>,
    /// Total bytes of the entities to write.
    size: usize,
    /// Whether a change set is only partly applied, so that the transaction must not be committed.
    is_spoiled: bool,
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Transaction")
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Runs `work` in a write transaction and makes the sealed revisions durable. An error of `work` undoes all its
    /// changes. Other write transactions wait until this one ends.
    ///
    /// If the store is full, its history is removed and `work` is called a second time, with the same entities. This
    /// does not happen if the written entities alone would not fit. A small change is tried several times,
    /// because a reader may still use the pages that were freed.
    ///
    /// This function blocks on the disk, so it must not run on worker threads.
    pub fn transact<T>(
        &self,
        work: &mut dyn FnMut(&mut Transaction<'_>) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        self.write(|| {
            let mut demand = Demand::default();
            let mut result = self.attempt(self.inner.retention, work, &mut demand);
            let mut pauses = PAUSES.into_iter();
            while let Err(CommitError::Full { .. }) = result
                && let Some(pause) = pauses.next()
                && self.may_find_room(&demand, pause)
            {
                thread::sleep(pause);
                result = self
                    .make_room()
                    .and_then(|()| self.attempt(Retention::NOTHING, work, &mut demand));
            }
            let (done, head) = result?;
            self.inner.publish(head);
            Ok(done)
        })
    }

    /// Runs `work`, which writes, while no other thread of this process writes. If the store is full, the error gets its
    /// size.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce() -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        let _writing = lock(&self.inner.writing);
        work().map_err(|error| match error {
            CommitError::Full { .. } => CommitError::Full {
                max_size: self.max_size(),
            },
            other => other,
        })
    }

    /// Writes the entities that every configuration has into a new store. They belong to revision 0, so they do not
    /// appear in the history as changes. If the store has entities or revisions, this does nothing.
    pub fn found(&self, entities: Vec<Change>) -> Result<(), CommitError> {
        self.write(|| {
            let mut transaction = self.begin(self.inner.retention)?;
            let is_empty = transaction.tables.entities.is_empty(&transaction.txn)?;
            if transaction.head() != Revision(0) || !is_empty {
                return Ok(());
            }
            transaction.apply(&ChangeSet {
                changes: entities,
                meta: Vec::new(),
            })?;
            transaction.txn.commit()?;
            self.inner.committed();
            Ok(())
        })
    }

    /// Converts a store of an older format. Another process must not have it open.
    pub(crate) fn convert(&self) -> Result<(), CommitError> {
        self.write(|| {
            let mut transaction = self.begin(self.inner.retention)?;
            let used = transaction.view()?.used_bytes()?;
            let Transaction {
                txn,
                tables,
                header,
                ..
            } = &mut transaction;
            carried::convert(txn, tables, header)?;
            self.check_room(used, transaction.view()?.used_bytes()?)?;
            transaction.write_header()?;
            transaction.txn.commit()?;
            self.inner.committed();
            Ok(())
        })
    }

    fn begin(&self, retention: Retention) -> Result<Transaction<'_>, StoreError> {
        let Environment { env, tables, .. } = &self.inner.environment;
        let txn = env.write_txn()?;
        let header = View::new_borrowed(&txn, tables)?.header()?;
        Ok(Transaction {
            txn,
            tables,
            begun_at: Revision(header.revision),
            header,
            retention,
            entities: Vec::new(),
            meta: Vec::new(),
            ended: BTreeSet::new(),
            applied: 0,
            sealed: Vec::new(),
            size: 0,
            is_spoiled: false,
        })
    }

    fn attempt<T>(
        &self,
        retention: Retention,
        work: &mut dyn FnMut(&mut Transaction<'_>) -> Result<T, CommitError>,
        demand: &mut Demand,
    ) -> Result<(T, Revision), CommitError> {
        let mut transaction = self.begin(retention)?;
        let used = transaction.view()?.used_bytes()?;
        let done = work(&mut transaction);
        demand.size = transaction.size;
        let done = done?;
        transaction.discard()?;
        let (begun_at, head) = (transaction.begun_at, transaction.head());
        if head > begun_at {
            let room = self.check_room(used, transaction.view()?.used_bytes()?);
            demand.grows = room.is_err();
            room?;
            transaction.write_header()?;
            let Transaction { txn, sealed, .. } = transaction;
            txn.commit()?;
            let kinds = sealed.iter().filter_map(|(key, _)| keys::parse_entity(key));
            self.inner.note_changes(head, kinds.map(|(kind, _)| kind));
        }
        if begun_at > self.inner.head() {
            // Another process has committed since the last refresh. This process does not know which types changed. The
            // caller publishes its revision even if this transaction has no changes.
            self.inner.note_changes(begun_at, EntityKind::all());
        }
        Ok((done, head))
    }

    /// Removes the history, because the newest state is more important.
    ///
    /// LMDB reuses a page only in the second transaction after the one that freed it. So this function commits two
    /// transactions, and the next one can use the freed pages.
    fn make_room(&self) -> Result<(), CommitError> {
        let mut had_history = false;
        for _ in 0..2 {
            let Environment { env, tables, .. } = &self.inner.environment;
            let mut txn = env.write_txn()?;
            let mut header = View::new_borrowed(&txn, tables)?.header()?;
            had_history |= header.history_bytes > 0;
            let mut history = history::Writer {
                txn: &mut txn,
                tables,
                header: &mut header,
            };
            history.clear()?;
            write_header(&mut txn, tables, &mut header)?;
            txn.commit()?;
            self.inner.committed();
        }
        if had_history {
            tracing::warn!("the store is full: its history was removed");
        }
        Ok(())
    }

    /// Refuses growth into the last eighth of the map. LMDB copies a page before it frees the old one, so in a
    /// completely full map even removals would fail.
    fn check_room(&self, before: usize, after: usize) -> Result<(), CommitError> {
        if after > before && after > self.usable() {
            return Err(heed::Error::Mdb(heed::MdbError::MapFull).into());
        }
        Ok(())
    }

    /// Whether there may be room for a change after this pause. The first one is none: then the history is removed. Later
    /// only readers that have ended can have made room, but neither for a large change nor for one that grows the store.
    fn may_find_room(&self, demand: &Demand, pause: Duration) -> bool {
        /// A change of this size is written again without much delay for others.
        const SMALL: usize = 1 << 20;
        let reserve = self.max_size() - self.usable();
        match pause.is_zero() {
            true => demand.size < self.usable(),
            false => !demand.grows && demand.size < SMALL.min(reserve / 4),
        }
    }

    fn usable(&self) -> usize {
        self.max_size() / 8 * 7
    }
}

impl Transaction<'_> {
    /// The newest sealed revision.
    pub fn head(&self) -> Revision {
        Revision(self.header.revision)
    }

    /// Returns the state with all applied changes.
    pub fn view(&self) -> Result<View<'_>, StoreError> {
        View::new_borrowed(&self.txn, self.tables)
    }

    /// Whether a change set is only partly applied, so that the transaction cannot be committed.
    pub fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    /// Fails if the newest revision is not `expected`.
    pub fn expect_head(&self, expected: Revision) -> Result<(), CommitError> {
        let head = self.head();
        if head == expected {
            Ok(())
        } else {
            Err(CommitError::Conflict { expected, head })
        }
    }

    /// Returns the changes from the newest sealed revision back to the state of a kept one.
    pub fn changes_to(&self, revision: Revision) -> Result<ChangeSet, ChangeLogError> {
        self.view()?.history()?.changes_to(revision)
    }

    /// Adds changes to the revision under construction. If they violate rules ([`CommitError::Violations`]), none of
    /// them is applied and other changes may follow. But after a violation in a change set of more than 1000 entities
    /// the transaction is spoiled ([`Transaction::is_spoiled`]).
    pub fn apply(&mut self, change_set: &ChangeSet) -> Result<(), CommitError> {
        if self.is_spoiled {
            return Err(CommitError::Spoiled);
        }
        self.size += change_set.size();
        let before = View::new_borrowed(&self.txn, self.tables)?;
        let works = apply::plan(&before, &change_set.changes)?;
        let mut violations = Vec::new();
        let mut index = apply::check(&before, &works, &mut violations)?;
        if works.len() <= CHECKED_FIRST {
            apply::check_unique(&before, &works, &mut index, &mut violations)?;
        }
        drop(before);
        if works.len() <= CHECKED_FIRST && !violations.is_empty() {
            return Err(CommitError::Violations(violations));
        }
        // Reset when everything is written.
        self.is_spoiled = true;
        self.write(works, index, violations)?;
        self.write_meta(&change_set.meta)?;
        self.applied += 1;
        self.write_header()?;
        self.is_spoiled = false;
        Ok(())
    }

    fn write(
        &mut self,
        works: Vec<Work<'_>>,
        index: apply::IndexChanges,
        mut violations: Vec<Violation>,
    ) -> Result<(), CommitError> {
        apply::write(
            &mut self.txn,
            self.tables,
            &mut self.header,
            &works,
            index,
            &mut violations,
        )?;
        if !violations.is_empty() {
            return Err(CommitError::Violations(violations));
        }
        for work in works.into_iter().filter(Work::is_effective) {
            if work.ends() {
                self.ended.insert(work.key);
            }
            self.entities.push((work.key, work.old));
        }
        Ok(())
    }

    fn write_meta(&mut self, meta: &[(String, Option<Vec<u8>>)]) -> Result<(), CommitError> {
        for (name, new) in meta {
            let key = name.as_bytes();
            let old = self.tables.meta.get(&self.txn, key)?.map(<[u8]>::to_vec);
            if old == *new {
                continue;
            }
            if let Some(old) = &old {
                self.header.sums[META].remove(key, old);
            }
            match new {
                Some(new) => {
                    self.header.sums[META].add(key, new);
                    self.tables.meta.put(&mut self.txn, key, new)?;
                }
                None => {
                    self.tables.meta.delete(&mut self.txn, key)?;
                }
            }
            self.meta.push((name.clone(), old));
        }
        Ok(())
    }

    /// Completes the revision under construction. Returns `None`, and creates no revision, if nothing has changed.
    pub fn seal(&mut self, origin: &Origin) -> Result<Option<Revision>, CommitError> {
        if self.is_spoiled {
            return Err(CommitError::Spoiled);
        }
        let applied = std::mem::take(&mut self.applied);
        let mut entities = std::mem::take(&mut self.entities);
        let mut meta = std::mem::take(&mut self.meta);
        let ended = std::mem::take(&mut self.ended);
        if applied > 1 {
            self.keep_net(&mut entities, &mut meta)?;
        }
        if entities.is_empty() && meta.is_empty() {
            return Ok(None);
        }
        self.is_spoiled = true;
        self.header.revision += 1;
        let (txn, header) = (&mut self.txn, &mut self.header);
        let counts = created::note(txn, self.tables, header, &entities, &ended)?;
        let record = Record {
            entities: &entities,
            meta: &meta,
            counts,
            at_ms: record::now_ms(),
            origin,
        };
        let mut history = history::Writer {
            txn: &mut self.txn,
            tables: self.tables,
            header: &mut self.header,
        };
        history.append(&record, self.retention)?;
        self.write_header()?;
        self.sealed.append(&mut entities);
        self.is_spoiled = false;
        Ok(Some(self.head()))
    }

    /// Keeps only the first state of each entity and named value. Drops those whose current state equals the first one.
    fn keep_net(
        &self,
        entities: &mut Before<EntityKey>,
        meta: &mut Before<String>,
    ) -> Result<(), StoreError> {
        keep_first(entities);
        meta.sort_by(|left, right| left.0.cmp(&right.0));
        meta.dedup_by(|later, earlier| later.0 == earlier.0);
        let mut failed = None;
        let mut differs = |table: &crate::env::Table, key: &[u8], old: Option<&[u8]>| match table
            .get(&self.txn, key)
        {
            Ok(now) => now != old,
            Err(error) => {
                failed = Some(error);
                true
            }
        };
        entities.retain(|(key, old)| differs(&self.tables.entities, key, old.as_deref()));
        meta.retain(|(name, old)| differs(&self.tables.meta, name.as_bytes(), old.as_deref()));
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Undoes the revision under construction.
    pub fn discard(&mut self) -> Result<(), CommitError> {
        if self.is_spoiled {
            return Err(CommitError::Spoiled);
        }
        let mut entities = std::mem::take(&mut self.entities);
        let mut meta = std::mem::take(&mut self.meta);
        self.applied = 0;
        if entities.is_empty() && meta.is_empty() {
            return Ok(());
        }
        keep_first(&mut entities);
        let changes = entities.into_iter().filter_map(|(key, old)| {
            let (kind, id) = keys::parse_entity(&key)?;
            Some(match old {
                Some(entity) => Change::Put { kind, id, entity },
                None => Change::Delete { kind, id },
            })
        });
        // If a named value changed several times, its first state must be applied last.
        meta.reverse();
        let back = ChangeSet {
            changes: changes.collect(),
            meta,
        };
        self.apply(&back)?;
        self.entities.clear();
        self.meta.clear();
        self.ended.clear();
        self.applied = 0;
        Ok(())
    }

    /// Returns all entities that sealed revisions of this transaction have changed, with their state before the
    /// transaction, ordered by type and id.
    pub fn touched(&self) -> Vec<Touched> {
        net(&self.sealed)
    }

    /// Returns the entities that the revision under construction has changed so far, directly or by a cascade. Each has
    /// its state before that revision. They are ordered by type and id.
    pub fn pending(&self) -> Vec<Touched> {
        net(&self.entities)
    }

    fn write_header(&mut self) -> Result<(), CommitError> {
        write_header(&mut self.txn, self.tables, &mut self.header)
    }
}

fn net(before: &Before<EntityKey>) -> Vec<Touched> {
    let mut before = before.clone();
    keep_first(&mut before);
    let touched = before.into_iter().filter_map(|(key, old)| {
        let (kind, id) = keys::parse_entity(&key)?;
        Some(Touched { kind, id, old })
    });
    touched.collect()
}

/// Removes duplicates. The sort is stable, so that the first state of an entity is kept.
fn keep_first(entities: &mut Before<EntityKey>) {
    entities.sort_by_key(|(key, _)| keys::order(key));
    entities.dedup_by(|later, earlier| later.0 == earlier.0);
}

pub(crate) fn write_header(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
) -> Result<(), CommitError> {
    header.transaction = txn.id() as u64;
    tables.header.put(txn, HEADER_KEY, &header.encode())?;
    Ok(())
}
