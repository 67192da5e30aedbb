//! What the index entry of a credential carries besides its id: the credential as it is stored, and the fields of its
//! consumer that requests need. So a request that shows a key needs one look-up instead of three, each of which touches a
//! dozen cache lines that are not in the CPU's caches when there are a million keys.
//!
//! | part | bytes |
//! |---|---|
//! | id of the credential | 16 |
//! | length of the credential | 2 |
//! | the credential | |
//! | id of the consumer | 16 |
//! | length of the username, and the username | 2 |
//! | length of the custom id, and the custom id | 2 |
//!
//! The entry is rewritten in the transaction that changes the credential or its consumer. Large entries end after the id,
//! and so do those of a store in format 2, until [`crate::Store::open`] converts it.

use crate::apply::Work;
use crate::change::Revision;
use crate::env::Tables;
use crate::error::{CommitError, Damage, StoreError};
use crate::facts::{Facts, Field, IndexTable};
use crate::header::{FORMAT, Header};
use crate::keys::{self, EntityKey};
use crate::page::TagFilter;
use crate::rules;
use crate::view::View;
use compact_str::CompactString;
use heed::RwTxn;
use model::entities::{Consumer, ConsumerId};
use model::{EntityKind, codec};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The first format whose entries carry anything.
const SINCE_FORMAT: u32 = 3;
/// Maximum length of a carried entry. LMDB gives longer values than half a page pages of their own.
const LONGEST: usize = 1024;
const ID: usize = 16;
const DAMAGE: Damage = Damage::Entry { table: "unique" };
const MALFORMED: Damage = Damage::Entry { table: "entities" };
/// Number of entities that [`convert`] lists at once.
const CONVERTED_AT_ONCE: usize = 1000;
/// The length of a field that the consumer does not have.
const ABSENT: u16 = u16::MAX;

/// An entity as it is stored, and the consumer that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned<'v> {
    pub entity: &'v [u8],
    pub consumer: Consumer,
}

/// Returns the id in a value of the table `unique`.
pub(crate) fn id(value: &[u8]) -> Result<Uuid, Damage> {
    let id = value.get(..ID).and_then(|id| Uuid::from_slice(id).ok());
    id.ok_or(DAMAGE)
}

/// Returns what a value of the table `unique` carries; `None` if it has only an id.
pub(crate) fn parse(value: &[u8]) -> Result<Option<Owned<'_>>, Damage> {
    match value.get(ID..) {
        None => Err(DAMAGE),
        Some([]) => Ok(None),
        Some(carried) => read(carried).map(Some).ok_or(DAMAGE),
    }
}

fn read(mut carried: &[u8]) -> Option<Owned<'_>> {
    let rest = &mut carried;
    let entity = take_sized(rest)??;
    let (id, fields) = rest.split_first_chunk::<ID>()?;
    *rest = fields;
    let username = take_text(rest)?;
    let custom_id = take_text(rest)?;
    let consumer = Consumer {
        id: ConsumerId(Uuid::from_bytes(*id)),
        username,
        custom_id,
    };
    Some(Owned { entity, consumer })
}

/// Takes a length and as many bytes. The inner value is `None` for an absent field.
fn take_sized<'b>(rest: &mut &'b [u8]) -> Option<Option<&'b [u8]>> {
    let (length, after) = rest.split_first_chunk()?;
    let length = u16::from_le_bytes(*length);
    *rest = after;
    if length == ABSENT {
        return Some(None);
    }
    let (taken, after) = rest.split_at_checked(usize::from(length))?;
    *rest = after;
    Some(Some(taken))
}

/// Takes a text, in the same way.
fn take_text(rest: &mut &[u8]) -> Option<Option<CompactString>> {
    match take_sized(rest)? {
        None => Some(None),
        Some(text) => Some(Some(CompactString::from_utf8(text).ok()?)),
    }
}

/// Appends the length of a field and the field. A length that does not fit is longer than any entry may be.
fn put_sized(out: &mut Vec<u8>, field: Option<&[u8]>) {
    let length = field.map(|field| u16::try_from(field.len()).unwrap_or(ABSENT));
    out.extend_from_slice(&length.unwrap_or(ABSENT).to_le_bytes());
    out.extend_from_slice(field.unwrap_or_default());
}

/// Whether the entries of unique fields of this type carry the entity and its consumer.
pub(crate) fn is_for(kind: EntityKind, format: u32) -> bool {
    format >= SINCE_FORMAT && rules::of(kind).consumer.is_some()
}

/// Writes the value of an entry of the table `unique`: the id of the entity and what the entry carries.
pub(crate) fn write_value(
    view: &View<'_>,
    entity: &EntityKey,
    stored: Option<&[u8]>,
    key: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let [kind, id @ ..] = entity;
    out.clear();
    out.extend_from_slice(id);
    let kind = EntityKind::from_number(*kind).filter(|kind| !keys::is_cache_key(key, *kind));
    let (Some(kind), Some(stored)) = (kind, stored) else {
        return Ok(());
    };
    let facts = Facts::read(kind, stored).map_err(|_| MALFORMED)?;
    let Some(consumer) = consumer(view, &facts)? else {
        return Ok(());
    };
    put_sized(out, Some(stored));
    out.extend_from_slice(consumer.id.0.as_bytes());
    for text in [&consumer.username, &consumer.custom_id] {
        put_sized(out, text.as_ref().map(|text| text.as_bytes()));
    }
    if out.len() > LONGEST {
        out.truncate(ID);
    }
    Ok(())
}

/// Returns the consumer that an entity belongs to.
pub(crate) fn consumer(view: &View<'_>, facts: &Facts<'_>) -> Result<Option<Consumer>, StoreError> {
    let Some(Field::Reference(id)) = facts.rules.consumer.and_then(|slot| facts.field(slot)) else {
        return Ok(None);
    };
    let stored = view.get(EntityKind::Consumers, id)?;
    let consumer = stored.map(codec::decode).transpose();
    Ok(consumer.map_err(|_| MALFORMED)?)
}

/// Brings the entries up to date that carry an entity or a consumer that these works change. Entries that works add are
/// complete already.
pub(crate) fn refresh_all(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    works: &[Work<'_>],
) -> Result<(), CommitError> {
    let mut stale = BTreeSet::new();
    let changed = works.iter().filter(|work| work.is_effective());
    for work in changed.filter(|work| work.old.is_some() && work.new.is_some()) {
        if is_for(work.kind(), header.format) {
            stale.insert(work.key);
        } else if work.kind() == EntityKind::Consumers && header.format >= SINCE_FORMAT {
            let view = View::borrowed(txn, tables, Revision(header.revision));
            collect_owned(&view, work.id(), &mut stale)?;
        }
    }
    for entity in stale {
        refresh(txn, tables, header, &entity)?;
    }
    Ok(())
}

/// Makes the entries of all entities carry what they can, and sets the format that has such entries.
pub(crate) fn convert(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
) -> Result<(), CommitError> {
    header.format = FORMAT;
    for kind in EntityKind::all().filter(|kind| is_for(*kind, FORMAT)) {
        let mut after = None;
        loop {
            let view = View::borrowed(txn, tables, Revision(header.revision));
            let page = view.page(kind, after, CONVERTED_AT_ONCE, TagFilter::None)?;
            let entities = page.entities.iter();
            let entities: Vec<_> = entities.map(|(id, _)| keys::entity(kind, *id)).collect();
            after = page.next;
            drop(view);
            for entity in &entities {
                refresh(txn, tables, header, entity)?;
            }
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Adds the keys of the entities whose entries carry a consumer.
fn collect_owned(
    view: &View<'_>,
    consumer: Uuid,
    owned: &mut BTreeSet<EntityKey>,
) -> Result<(), StoreError> {
    for reference in &rules::of(EntityKind::Consumers).referenced_by {
        let rules = rules::of(reference.kind);
        let carried = rules.consumer.map(|slot| rules.fields[slot]);
        if carried != Some(reference.field) {
            continue;
        }
        for id in view.child_ids(reference.kind, reference.field, consumer)? {
            owned.insert(keys::entity(reference.kind, id?));
        }
    }
    Ok(())
}

/// Rewrites the entries of an entity that carry something else than what is stored.
fn refresh(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    entity: &EntityKey,
) -> Result<(), CommitError> {
    let view = View::borrowed(txn, tables, Revision(header.revision));
    let entries = unique_entries(&view, entity)?;
    drop(view);
    let table = tables.index[IndexTable::Unique as usize];
    let sum = &mut header.sums[1 + IndexTable::Unique as usize];
    for (key, new) in entries {
        let old = table.get(txn, &key)?.ok_or(StoreError::from(DAMAGE))?;
        if old != new {
            sum.remove(&key, old);
            sum.add(&key, &new);
            table.put(txn, &key, &new)?;
        }
    }
    Ok(())
}

/// Key and value of an entry of the table `unique`.
type Entry = (Vec<u8>, Vec<u8>);

/// Returns the entries of an entity in the table `unique`.
fn unique_entries(view: &View<'_>, entity: &EntityKey) -> Result<Vec<Entry>, StoreError> {
    let Some(stored) = view.tables().entities.get(view.txn(), entity)? else {
        return Ok(Vec::new());
    };
    let (kind, id) = keys::parse_entity(entity).ok_or(MALFORMED)?;
    let facts = Facts::read(kind, stored).map_err(|_| MALFORMED)?;
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let entries = facts.index_entries(kind, id, &mut Vec::new(), |table, key, _| {
        if table == IndexTable::Unique {
            keys.push(key.to_vec());
        }
    });
    entries.map_err(|_| MALFORMED)?;
    let entry = |key: Vec<u8>| {
        let mut value = Vec::new();
        write_value(view, entity, Some(stored), &key, &mut value)?;
        Ok((key, value))
    };
    keys.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests;
