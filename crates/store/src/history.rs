//! The history in the journal: for each revision what its change set replaced.
//!
//! A record holds the state *before* the change set of every entity it touched; the state after is in the mirror, or in the
//! next record that touches the entity. So loading a configuration into an empty store writes every entity once, not
//! twice, and any kept revision can be rebuilt from the newest one backwards.

use crate::change::Origin;
use crate::env::Tables;
use crate::error::{CommitError, Damage, StoreError};
use crate::header::Header;
use crate::keys::{self, EntityKey};
use crate::store::Retention;
use crate::view::View;
use heed::RwTxn;
use std::collections::BTreeMap;

/// Sixteen whole pages with their header: a longer value would need as many free pages in a row.
const PIECE: usize = 16 * 4096 - 16;
const RECORD_FORMAT: u8 = 1;
/// Where the journal stands among the sums of the header.
const JOURNAL_SUM: usize = 6;

/// What a change set replaced: `None` where there was nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Undo {
    pub(crate) entities: BTreeMap<EntityKey, Option<Vec<u8>>>,
    pub(crate) meta: BTreeMap<String, Option<Vec<u8>>>,
}

/// What the journal keeps of a revision: what was before it, when it was made and by whom.
pub(crate) struct Record<'r> {
    pub(crate) entities: &'r [(EntityKey, Option<Vec<u8>>)],
    pub(crate) meta: &'r [(String, Option<Vec<u8>>)],
    pub(crate) at_ms: u64,
    pub(crate) origin: &'r Origin,
}

/// Writes the record of the header's revision, and removes the oldest ones that exceed the retention.
pub(crate) fn append(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    record: &Record<'_>,
    retention: Retention,
) -> Result<(), CommitError> {
    let entities = record.entities.iter();
    let size: usize = entities
        .map(|(_, old)| 22 + old.as_ref().map_or(0, Vec::len))
        .sum();
    let size = size as u64;
    // Make room first, so that the pages of what goes are not in the way of the new record's size.
    while header.floor + 1 < header.revision
        && (header.revision - header.floor > retention.revisions
            || header.journal_bytes + size > retention.bytes)
    {
        remove(txn, tables, header, header.floor + 1)?;
    }
    if retention.revisions == 0 || size > retention.bytes {
        header.floor = header.revision;
        return Ok(());
    }
    let record = encode(record);
    for (piece, bytes) in record.chunks(PIECE).enumerate() {
        let key = keys::journal(header.revision, piece as u32);
        tables.journal.put(txn, &key, bytes)?;
        header.sums[JOURNAL_SUM].add(&key, bytes);
        header.journal_bytes += bytes.len() as u64;
    }
    Ok(())
}

/// Removes all records: only the newest revision is known then.
pub(crate) fn forget(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
) -> Result<(), CommitError> {
    while header.floor < header.revision {
        remove(txn, tables, header, header.floor + 1)?;
    }
    Ok(())
}

fn remove(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    revision: u64,
) -> Result<(), CommitError> {
    for piece in 0.. {
        let key = keys::journal(revision, piece);
        let Some(bytes) = tables.journal.get(txn, &key)? else {
            break;
        };
        header.sums[JOURNAL_SUM].remove(&key, bytes);
        header.journal_bytes -= bytes.len() as u64;
        tables.journal.delete(txn, &key)?;
    }
    header.floor = revision;
    Ok(())
}

/// What has to be put back on the view's state to be at an older, kept revision.
pub(crate) fn undo_to(view: &View<'_>, revision: u64) -> Result<Undo, StoreError> {
    let mut undo = Undo::default();
    // From the newest backwards: the oldest record that touches an entity has the last word.
    for revision in (revision + 1..=view.revision().0).rev() {
        let record = read(view, revision)?;
        decode(&record, &mut undo).ok_or(Damage::Entry { table: "journal" })?;
    }
    Ok(undo)
}

fn read(view: &View<'_>, revision: u64) -> Result<Vec<u8>, StoreError> {
    let mut record = Vec::new();
    for piece in 0.. {
        let key = keys::journal(revision, piece);
        match view.tables().journal.get(view.txn(), &key)? {
            Some(bytes) => record.extend_from_slice(bytes),
            None => break,
        }
    }
    Ok(record)
}

fn encode(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = vec![RECORD_FORMAT];
    bytes.extend_from_slice(&record.at_ms.to_le_bytes());
    let Origin {
        source,
        actor,
        request_id,
        message,
    } = record.origin;
    put_bytes(&mut bytes, source.as_bytes());
    for text in [actor, request_id, message] {
        put_optional(&mut bytes, text.as_ref().map(String::as_bytes));
    }
    bytes.extend_from_slice(&(record.meta.len() as u32).to_le_bytes());
    for (name, old) in record.meta {
        put_bytes(&mut bytes, name.as_bytes());
        put_optional(&mut bytes, old.as_deref());
    }
    for (key, old) in record.entities {
        bytes.extend_from_slice(key);
        put_optional(&mut bytes, old.as_deref());
    }
    bytes
}

fn put_optional(record: &mut Vec<u8>, bytes: Option<&[u8]>) {
    record.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        put_bytes(record, bytes);
    }
}

fn put_bytes(record: &mut Vec<u8>, bytes: &[u8]) {
    record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record.extend_from_slice(bytes);
}

fn decode(record: &[u8], undo: &mut Undo) -> Option<()> {
    let (&format, mut rest) = record.split_first()?;
    if format != RECORD_FORMAT {
        return None;
    }
    take(&mut rest, 8)?;
    let source = take_number(&mut rest)?;
    take(&mut rest, source)?;
    for _ in 0..3 {
        take_optional(&mut rest)?;
    }
    for _ in 0..take_number(&mut rest)? {
        let length = take_number(&mut rest)?;
        let name = String::from_utf8(take(&mut rest, length)?.to_vec()).ok()?;
        undo.meta.insert(name, take_optional(&mut rest)?);
    }
    while !rest.is_empty() {
        let key: EntityKey = take(&mut rest, keys::ENTITY_KEY_LENGTH)?.try_into().ok()?;
        undo.entities.insert(key, take_optional(&mut rest)?);
    }
    Some(())
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let bytes = take(rest, 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

fn take_optional(rest: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    match take(rest, 1)? {
        [0] => Some(None),
        [1] => {
            let length = take_number(rest)?;
            Some(Some(take(rest, length)?.to_vec()))
        }
        _ => None,
    }
}
