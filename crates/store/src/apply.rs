//! Applies changes to the tables inside a write transaction. Determines the cascading deletions, checks references and
//! uniqueness, and updates the index entries.
//!
//! All writes are in key order, because neighbouring keys share a page. Writing an empty table in key order also fills
//! its pages completely.

use crate::carried;
use crate::change::{Change, Revision};
use crate::env::{Table, Tables};
use crate::error::{CommitError, Violation};
use crate::facts::{Facts, Field, INDEX_TABLES, IndexTable, Malformed};
use crate::header::Header;
use crate::keys::{self, EntityKey};
use crate::rules;
use crate::view::View;
use heed::{MdbError, PutFlags, RwTxn};
use model::schema::OnDelete;
use model::{EntityKind, Object, codec};
use std::collections::BTreeMap;
use uuid::Uuid;

/// An entity before and after a change.
#[derive(Debug)]
pub(crate) struct Work<'c> {
    pub(crate) key: EntityKey,
    pub(crate) old: Option<Vec<u8>>,
    pub(crate) new: Option<&'c [u8]>,
    /// Whether the change set deletes it and makes it again.
    is_remade: bool,
}

impl Work<'_> {
    pub(crate) fn kind(&self) -> EntityKind {
        self.parse().0
    }

    pub(crate) fn id(&self) -> Uuid {
        self.parse().1
    }

    fn parse(&self) -> (EntityKind, Uuid) {
        keys::parse_entity(&self.key).expect("the key was made of a kind and an id")
    }

    fn is_removal(&self) -> bool {
        self.new.is_none() && self.old.is_some()
    }

    /// Whether the entity is deleted, also if it is made again.
    pub(crate) fn ends(&self) -> bool {
        self.new.is_none() || self.is_remade
    }

    pub(crate) fn is_effective(&self) -> bool {
        self.new != self.old.as_deref()
    }
}

/// Converts the changes to work, ordered by key, and adds cascading deletions. Writes nothing.
pub(crate) fn plan<'c>(
    view: &View<'_>,
    changes: &'c [Change],
) -> Result<Vec<Work<'c>>, CommitError> {
    let entities = &view.tables().entities;
    let was_empty = entities.is_empty(view.txn())?;
    let mut works: Vec<Work<'_>> = changes.iter().map(into_work).collect();
    // The sort is stable, so the last change of an entity stays last.
    works.sort_by_key(|work| keys::order(&work.key));
    keep_last(&mut works);
    if !was_empty {
        for work in &mut works {
            work.old = entities.get(view.txn(), &work.key)?.map(<[u8]>::to_vec);
        }
    }
    let cascaded = cascade(view, &works)?;
    if !cascaded.is_empty() {
        works.extend(cascaded);
        works.sort_by_key(|work| keys::order(&work.key));
    }
    Ok(works)
}

fn into_work(change: &Change) -> Work<'_> {
    let key = keys::entity(change.kind(), change.id());
    let new = match change {
        Change::Put { entity, .. } => Some(entity.as_slice()),
        Change::Delete { .. } => None,
    };
    Work {
        key,
        old: None,
        new,
        is_remade: false,
    }
}

fn keep_last(works: &mut Vec<Work<'_>>) {
    works.dedup_by(|later, earlier| {
        let same = later.key == earlier.key;
        if same {
            earlier.is_remade |= earlier.new.is_none();
            earlier.new = later.new.take();
        }
        same
    });
}

/// Returns all entities that are deleted because an entity that they reference is deleted, directly or indirectly.
fn cascade<'c>(view: &View<'_>, works: &[Work<'_>]) -> Result<Vec<Work<'c>>, CommitError> {
    let mut found: BTreeMap<EntityKey, Work<'c>> = BTreeMap::new();
    let removals = works.iter().filter(|work| work.is_removal());
    let mut pending: Vec<(EntityKind, Uuid)> =
        removals.map(|work| (work.kind(), work.id())).collect();
    while let Some((kind, id)) = pending.pop() {
        for reference in &rules::of(kind).referenced_by {
            if reference.on_delete != OnDelete::Cascade {
                continue;
            }
            for child in view.child_ids(reference.kind, reference.field, id)? {
                let key = keys::entity(reference.kind, child?);
                // An entity that the same change set writes is not deleted; its reference is checked when it is
                // written.
                if position(works, &key).is_some() || found.contains_key(&key) {
                    continue;
                }
                let old = view.tables().entities.get(view.txn(), &key)?;
                let work = Work {
                    key,
                    old: old.map(<[u8]>::to_vec),
                    new: None,
                    is_remade: false,
                };
                pending.push((work.kind(), work.id()));
                found.insert(key, work);
            }
        }
    }
    Ok(found.into_values().collect())
}

fn position(works: &[Work<'_>], key: &EntityKey) -> Option<usize> {
    let order = keys::order(key);
    works
        .binary_search_by_key(&order, |work| keys::order(&work.key))
        .ok()
}

/// The index entries that the work removes and adds.
#[derive(Debug, Default)]
pub(crate) struct IndexChanges {
    removed: [Batch; INDEX_TABLES],
    added: [Batch; INDEX_TABLES],
}

impl IndexChanges {
    /// Reserves room in each table for about as many new entries as there are entities, because growing a buffer copies
    /// it. Unused room costs only address space.
    fn for_works(works: usize) -> Self {
        let mut changes = Self::default();
        for batch in &mut changes.added {
            batch.spans.reserve(works);
            batch.bytes.reserve(works * 64);
        }
        changes
    }
}

pub(crate) fn check(
    view: &View<'_>,
    works: &[Work<'_>],
    violations: &mut Vec<Violation>,
) -> Result<IndexChanges, CommitError> {
    let mut changes = IndexChanges::for_works(works.len());
    let mut key = Vec::with_capacity(512);
    for (index, work) in works.iter().enumerate() {
        if work.is_removal() {
            check_referenced(view, works, work, violations)?;
        }
        let Ok([old, new]) = facts(work) else {
            let (kind, id) = work.parse();
            violations.push(Violation::Malformed { kind, id });
            continue;
        };
        if let Some(new) = &new {
            check_references(view, works, work, new, violations)?;
        }
        if work.is_effective() && collect(&mut changes, work, index, [old, new], &mut key).is_err()
        {
            let (kind, id) = work.parse();
            violations.push(Violation::Malformed { kind, id });
        }
    }
    Ok(changes)
}

fn facts<'w>(work: &'w Work<'_>) -> Result<[Option<Facts<'w>>; 2], Malformed> {
    let kind = work.kind();
    let read =
        |entity: Option<&'w [u8]>| entity.map(|entity| Facts::read(kind, entity)).transpose();
    Ok([read(work.old.as_deref())?, read(work.new)?])
}

fn check_references(
    view: &View<'_>,
    works: &[Work<'_>],
    work: &Work<'_>,
    facts: &Facts<'_>,
    violations: &mut Vec<Violation>,
) -> Result<(), CommitError> {
    let (kind, id) = work.parse();
    for foreign in &facts.rules.foreign {
        let Some(Field::Reference(parent)) = facts.field(foreign.slot) else {
            continue;
        };
        let key = keys::entity(foreign.parent, parent);
        let exists = match position(works, &key) {
            Some(index) => works[index].new.is_some(),
            None => view.tables().entities.get(view.txn(), &key)?.is_some(),
        };
        if !exists {
            violations.push(Violation::Foreign {
                kind,
                id,
                field: foreign.field.to_owned(),
                parent_kind: foreign.parent,
                parent,
            });
        }
    }
    Ok(())
}

fn check_referenced(
    view: &View<'_>,
    works: &[Work<'_>],
    work: &Work<'_>,
    violations: &mut Vec<Violation>,
) -> Result<(), CommitError> {
    let (kind, id) = work.parse();
    for reference in &rules::of(kind).referenced_by {
        if reference.on_delete != OnDelete::Restrict {
            continue;
        }
        for child in view.child_ids(reference.kind, reference.field, id)? {
            // An entity that is also removed or written is no obstacle; if it is written, its own reference is checked.
            if position(works, &keys::entity(reference.kind, child?)).is_none() {
                violations.push(Violation::Referenced {
                    kind,
                    id,
                    by: reference.kind,
                });
                break;
            }
        }
    }
    Ok(())
}

fn collect(
    changes: &mut IndexChanges,
    work: &Work<'_>,
    owner: usize,
    [old, new]: [Option<Facts<'_>>; 2],
    key: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let (kind, id) = work.parse();
    let IndexChanges { removed, added } = changes;
    match (old, new) {
        (None, None) => Ok(()),
        (None, Some(new)) => new.index_entries(kind, id, key, |table, key, value| {
            added[table as usize].push(key, value, owner);
        }),
        (Some(old), None) => old.index_entries(kind, id, key, |table, key, value| {
            removed[table as usize].push(key, value, owner);
        }),
        (Some(old), Some(new)) => {
            let old = entries(kind, id, &old, key)?;
            let new = entries(kind, id, &new, key)?;
            let lacks = |sorted: &[IndexEntry], entry| sorted.binary_search(entry).is_err();
            for entry in old.iter().filter(|entry| lacks(&new, entry)) {
                removed[entry.table as usize].push(&entry.key, &entry.value, owner);
            }
            for entry in new.iter().filter(|entry| lacks(&old, entry)) {
                added[entry.table as usize].push(&entry.key, &entry.value, owner);
            }
            Ok(())
        }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IndexEntry {
    table: IndexTable,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Returns the index entries of an entity, sorted.
fn entries(
    kind: EntityKind,
    id: Uuid,
    facts: &Facts<'_>,
    key: &mut Vec<u8>,
) -> Result<Vec<IndexEntry>, Malformed> {
    let mut entries = Vec::new();
    facts.index_entries(kind, id, key, |table, key, value| {
        entries.push(IndexEntry {
            table,
            key: key.to_vec(),
            value: value.to_vec(),
        });
    })?;
    entries.sort_unstable();
    Ok(entries)
}

/// Finds violations of uniqueness before anything is written.
pub(crate) fn check_unique(
    view: &View<'_>,
    works: &[Work<'_>],
    changes: &mut IndexChanges,
    violations: &mut Vec<Violation>,
) -> Result<(), CommitError> {
    const UNIQUE: usize = IndexTable::Unique as usize;
    let table = view.tables().index[UNIQUE];
    changes.removed[UNIQUE].sort();
    changes.added[UNIQUE].sort();
    let removed: Vec<&[u8]> = changes.removed[UNIQUE].iter().map(|one| one.key).collect();
    let mut previous: Option<Entry<'_>> = None;
    for entry in changes.added[UNIQUE].iter() {
        let stored = table.get(view.txn(), entry.key)?;
        let stored = stored.filter(|_| removed.binary_search(&entry.key).is_err());
        let same = previous.filter(|previous| previous.key == entry.key);
        if let Some(existing) = same.map(|previous| previous.value).or(stored) {
            let conflict = Conflict {
                owner: entry.owner,
                key: entry.key.to_vec(),
                existing: carried::id(existing).unwrap_or_default(),
            };
            violations.push(unique_violation(&works[conflict.owner], &conflict));
        }
        previous = Some(entry);
    }
    Ok(())
}

/// Writes the work. Adds violations of uniqueness found while writing to `violations`.
pub(crate) fn write(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    works: &[Work<'_>],
    changes: IndexChanges,
    violations: &mut Vec<Violation>,
) -> Result<(), CommitError> {
    write_entities(txn, tables, header, works)?;
    let IndexChanges { removed, added } = changes;
    for (table, mut batch) in removed.into_iter().enumerate() {
        batch.sort();
        for entry in batch.iter() {
            // The stored value may carry more than the one that was derived from the entity.
            if let Some(stored) = tables.index[table].get(txn, entry.key)? {
                header.sums[1 + table].remove(entry.key, stored);
            }
            tables.index[table].delete(txn, entry.key)?;
        }
    }
    for (table, mut batch) in added.into_iter().enumerate() {
        batch.sort();
        let conflicts = add_entries(txn, tables, header, table, &batch, works)?;
        violations.extend(
            conflicts
                .into_iter()
                .map(|conflict| unique_violation(&works[conflict.owner], &conflict)),
        );
    }
    carried::refresh_all(txn, tables, header, works)
}

fn write_entities(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    works: &[Work<'_>],
) -> Result<(), CommitError> {
    let flags = append_if_empty(txn, tables.entities)?;
    for work in works.iter().filter(|work| work.is_effective()) {
        let count = &mut header.counts[usize::from(work.key[0])];
        if let Some(old) = &work.old {
            header.sums[0].remove(&work.key, old);
            *count -= 1;
        }
        match work.new {
            Some(new) => {
                header.sums[0].add(&work.key, new);
                *count += 1;
                tables.entities.put_with_flags(txn, flags, &work.key, new)?;
            }
            None => {
                tables.entities.delete(txn, &work.key)?;
            }
        }
    }
    Ok(())
}

fn append_if_empty(txn: &RwTxn<'_>, table: Table) -> Result<PutFlags, heed::Error> {
    Ok(if table.is_empty(txn)? {
        PutFlags::APPEND
    } else {
        PutFlags::empty()
    })
}

struct Conflict {
    owner: usize,
    key: Vec<u8>,
    existing: Uuid,
}

/// Writes entries in order and returns those whose key already exists. That can happen only in the unique table,
/// because all other keys end with the entity's id.
fn add_entries(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    number: usize,
    batch: &Batch,
    works: &[Work<'_>],
) -> Result<Vec<Conflict>, CommitError> {
    let table = tables.index[number];
    let flags = append_if_empty(txn, table)? | PutFlags::NO_OVERWRITE;
    let mut conflicts = Vec::new();
    let mut previous: &[u8] = &[];
    let mut carried = Vec::new();
    for entry in batch.iter() {
        let mut value = entry.value;
        let work = &works[entry.owner];
        if number == IndexTable::Unique as usize && carried::is_for(work.kind(), header.format) {
            let view = View::borrowed(txn, tables, Revision(header.revision));
            carried::write_value(&view, &work.key, work.new, entry.key, &mut carried)?;
            value = &carried;
        }
        let taken = if entry.key == previous {
            true
        } else {
            match table.put_with_flags(txn, flags, entry.key, value) {
                Ok(()) => false,
                Err(heed::Error::Mdb(MdbError::KeyExist)) => true,
                Err(error) => return Err(error.into()),
            }
        };
        if taken {
            let existing = table.get(txn, entry.key)?.unwrap_or_default();
            conflicts.push(Conflict {
                owner: entry.owner,
                key: entry.key.to_vec(),
                existing: carried::id(existing).unwrap_or_default(),
            });
        }
        header.sums[1 + number].add(entry.key, value);
        previous = entry.key;
    }
    Ok(conflicts)
}

fn unique_violation(work: &Work<'_>, conflict: &Conflict) -> Violation {
    let (kind, id) = work.parse();
    let field = conflict.key[1..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let field = String::from_utf8_lossy(field);
    let entity: Object = work
        .new
        .and_then(|bytes| codec::decode(bytes).ok())
        .unwrap_or_default();
    let rules = rules::of(kind);
    let fields: Vec<&str> = if field == keys::CACHE_KEY {
        rules
            .cache_key
            .iter()
            .map(|slot| rules.fields[*slot])
            .collect()
    } else {
        vec![&field]
    };
    let key = fields
        .into_iter()
        .map(|field| (field, entity.get(field).cloned().unwrap_or_default()))
        .collect();
    Violation::Unique {
        kind,
        id,
        existing: conflict.existing,
        key,
    }
}

/// Index entries of one table, stored in one buffer.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    /// The first bytes of the key, as a number with the same order.
    prefix: u128,
    start: u32,
    owner: u32,
    value: u32,
    /// Length of the key; LMDB limits it to 511 bytes.
    key: u16,
}

#[derive(Debug, Clone, Copy)]
struct Entry<'b> {
    key: &'b [u8],
    value: &'b [u8],
    owner: usize,
}

impl Batch {
    fn push(&mut self, key: &[u8], value: &[u8], owner: usize) {
        self.spans.push(Span {
            prefix: prefix(key),
            start: narrow(self.bytes.len()),
            owner: narrow(owner),
            value: narrow(value.len()),
            key: u16::try_from(key.len()).expect("keys of LMDB are shorter"),
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |span: &Span| span.key(bytes);
        self.spans.sort_unstable_by(|left, right| {
            left.prefix
                .cmp(&right.prefix)
                .then_with(|| key(left).cmp(key(right)))
                .then(left.owner.cmp(&right.owner))
        });
    }

    fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.spans.iter().map(|span| {
            let value = span.start as usize + usize::from(span.key);
            Entry {
                key: span.key(&self.bytes),
                value: &self.bytes[value..value + span.value as usize],
                owner: span.owner as usize,
            }
        })
    }
}

impl Span {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.start as usize;
        &bytes[start..start + usize::from(self.key)]
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("a change set is smaller than 4 GiB")
}

fn prefix(key: &[u8]) -> u128 {
    let mut first = [0; 16];
    let length = key.len().min(16);
    first[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(first)
}
