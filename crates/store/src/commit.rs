//! One commit, from the change set to the disk.

use crate::apply::{self, Work};
use crate::change::{ChangeSet, Revision};
use crate::env::{Environment, Tables};
use crate::error::{CommitError, Rejected};
use crate::header::{HEADER_KEY, Header};
use crate::history::{self, MetaWork};
use crate::store::{Retention, Store};
use crate::view::View;
use heed::RwTxn;
use std::time::{SystemTime, UNIX_EPOCH};

impl Store {
    /// One attempt in one transaction, which ends with this function, whatever comes out.
    pub(crate) fn attempt(
        &self,
        expected_head: Option<Revision>,
        change_set: &ChangeSet,
        retention: Retention,
        accept: &mut dyn FnMut(&View<'_>) -> Result<(), Rejected>,
    ) -> Result<Revision, CommitError> {
        let Environment { env, tables, .. } = &self.inner.environment;
        let mut txn = env.write_txn()?;
        let before = View::new_borrowed(&txn, tables)?;
        let head = before.revision();
        if let Some(expected) = expected_head
            && expected != head
        {
            return Err(CommitError::Conflict { expected, head });
        }
        let used = before.used_bytes()?;
        let mut header = before.header()?;
        drop(before);
        if !write(&mut txn, tables, &mut header, change_set, retention)? {
            return Ok(head);
        }
        let after = View::new_borrowed(&txn, tables)?;
        self.check_room(used, after.used_bytes()?)?;
        accept(&after)?;
        let revision = after.revision();
        drop(after);
        txn.commit()?;
        Ok(revision)
    }

    /// Gives up the history, which is the first to go: the newest state needs the room more.
    ///
    /// LMDB uses a page again in the second transaction after the one that freed it; so there are two.
    pub(crate) fn make_room(&self) -> Result<(), CommitError> {
        for _ in 0..2 {
            let Environment { env, tables, .. } = &self.inner.environment;
            let mut txn = env.write_txn()?;
            let mut header = View::new_borrowed(&txn, tables)?.header()?;
            history::forget(&mut txn, tables, &mut header)?;
            write_header(&mut txn, tables, &mut header)?;
            txn.commit()?;
        }
        tracing::warn!("the store is full: its history was removed");
        Ok(())
    }

    /// Refuses to grow into the last eighth of the map: LMDB writes a page elsewhere before it frees the old one, so
    /// that without room left nothing could be removed any more.
    fn check_room(&self, before: usize, after: usize) -> Result<(), CommitError> {
        if after > before && after > self.usable() {
            return Err(heed::Error::Mdb(heed::MdbError::MapFull).into());
        }
        Ok(())
    }

    pub(crate) fn usable(&self) -> usize {
        self.max_size() / 8 * 7
    }
}

/// Writes a change set as the revision after the header's; false when it changes nothing.
fn write(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    change_set: &ChangeSet,
    retention: Retention,
) -> Result<bool, CommitError> {
    let before = View::new_borrowed(txn, tables)?;
    let works = apply::plan(&before, &change_set.changes)?;
    let mut violations = Vec::new();
    let index = apply::check(&before, &works, &mut violations)?;
    drop(before);
    apply::write(txn, tables, header, &works, index, &mut violations)?;
    if !violations.is_empty() {
        return Err(CommitError::Violations(violations));
    }
    let meta = write_meta(txn, tables, header, &change_set.meta)?;
    if meta.is_empty() && !works.iter().any(Work::is_effective) {
        return Ok(false);
    }
    header.revision += 1;
    history::append(txn, tables, header, &works, &meta, now_ms(), retention)?;
    write_header(txn, tables, header)?;
    Ok(true)
}

fn write_header(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
) -> Result<(), CommitError> {
    header.transaction = txn.id() as u64;
    tables.header.put(txn, HEADER_KEY, &header.encode())?;
    Ok(())
}

fn write_meta(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    meta: &[(String, Option<Vec<u8>>)],
) -> Result<Vec<MetaWork>, CommitError> {
    let mut works = Vec::new();
    for (name, new) in meta {
        let key = name.as_bytes();
        let old = tables.meta.get(txn, key)?.map(<[u8]>::to_vec);
        if old == *new {
            continue;
        }
        if let Some(old) = &old {
            header.sums[META_SUM].remove(key, old);
        }
        match new {
            Some(new) => {
                header.sums[META_SUM].add(key, new);
                tables.meta.put(txn, key, new)?;
            }
            None => {
                tables.meta.delete(txn, key)?;
            }
        }
        works.push(MetaWork {
            name: name.clone(),
            old,
        });
    }
    Ok(works)
}

/// Where the named values stand among the sums of the header.
const META_SUM: usize = 5;

fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| elapsed.as_millis() as u64)
}
