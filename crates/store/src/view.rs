//! Reads one revision.

use crate::carried::{self, Owned};
use crate::change::Revision;
use crate::env::{Table, Tables};
use crate::error::{Damage, StoreError};
use crate::facts::{Facts, Field, IndexTable};
use crate::header::{HEADER_KEY, Header};
use crate::keys;
use crate::page::{Page, TagFilter, Tagged};
use crate::past::History;
use heed::{RoTxn, WithoutTls};
use model::EntityKind;
use model::declarative::KeyPart;
use std::ops::Bound;
use uuid::Uuid;

/// The store at one revision, unaffected by concurrent writes. Borrowed data lives as long as the view.
///
/// A view keeps the pages of its revision in use: the file cannot reuse them until the view is dropped. So create one
/// per request or task. For a lookup on every request use [`crate::Reader`].
#[derive(Debug)]
pub struct View<'s> {
    txn: Txn<'s>,
    tables: &'s Tables,
    revision: Revision,
}

pub(crate) enum Txn<'s> {
    Owned(RoTxn<'s, WithoutTls>),
    Borrowed(&'s RoTxn<'s, WithoutTls>),
}

impl std::fmt::Debug for Txn<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Txn")
    }
}

impl<'s> View<'s> {
    pub(crate) fn new(txn: RoTxn<'s, WithoutTls>, tables: &'s Tables) -> Result<Self, StoreError> {
        let revision = Self::newest_revision(&txn, tables)?;
        Ok(Self {
            txn: Txn::Owned(txn),
            tables,
            revision,
        })
    }

    pub(crate) fn new_borrowed(
        txn: &'s RoTxn<'s, WithoutTls>,
        tables: &'s Tables,
    ) -> Result<Self, StoreError> {
        let revision = Self::newest_revision(txn, tables)?;
        Ok(Self::borrowed(txn, tables, revision))
    }

    pub(crate) fn borrowed(
        txn: &'s RoTxn<'s, WithoutTls>,
        tables: &'s Tables,
        revision: Revision,
    ) -> Self {
        Self {
            txn: Txn::Borrowed(txn),
            tables,
            revision,
        }
    }

    pub(crate) fn txn(&self) -> &RoTxn<'_, WithoutTls> {
        match &self.txn {
            Txn::Owned(txn) => txn,
            Txn::Borrowed(txn) => txn,
        }
    }

    pub(crate) fn tables(&self) -> &Tables {
        self.tables
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn get(&self, kind: EntityKind, id: Uuid) -> Result<Option<&[u8]>, StoreError> {
        Ok(self
            .tables
            .entities
            .get(self.txn(), &keys::entity(kind, id))?)
    }

    /// Returns the id of the entity whose unique `field` has this value.
    pub fn id_by_unique(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Result<Option<Uuid>, StoreError> {
        let mut key = Vec::with_capacity(64 + value.len().min(keys::MAX_TEXT));
        keys::unique(&mut key, kind, field, value.as_bytes());
        let found = self.unique_entry(&key)?;
        if !keys::is_hashed(value.as_bytes()) {
            return Ok(found);
        }
        let Some(id) = found else { return Ok(None) };
        let holds = self.facts(kind, id)?.is_some_and(|facts| {
            let slot = facts.rules.fields.iter().position(|known| *known == field);
            slot.and_then(|slot| facts.field(slot)) == Some(Field::Text(value))
        });
        Ok(holds.then_some(id))
    }

    /// Returns the entity whose unique `field` has this value, and the consumer that it belongs to. The type must be one
    /// whose entities always belong to a consumer. Usually this is one look-up.
    pub fn owned_by_unique(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Result<Option<Owned<'_>>, StoreError> {
        if keys::is_hashed(value.as_bytes()) {
            let id = self.id_by_unique(kind, field, value)?;
            return id.map_or(Ok(None), |id| self.owned(kind, id));
        }
        let mut key = Vec::with_capacity(64 + value.len());
        keys::unique(&mut key, kind, field, value.as_bytes());
        let table = &self.tables.index[IndexTable::Unique as usize];
        let Some(entry) = table.get(self.txn(), &key)? else {
            return Ok(None);
        };
        match carried::parse(entry)? {
            Some(owned) => Ok(Some(owned)),
            None => self.owned(kind, carried::id(entry)?),
        }
    }

    /// Returns an entity, and the consumer that it belongs to. The type must be one whose entities always belong to a
    /// consumer.
    pub fn owned(&self, kind: EntityKind, id: Uuid) -> Result<Option<Owned<'_>>, StoreError> {
        let Some(entity) = self.get(kind, id)? else {
            return Ok(None);
        };
        let damage = Damage::Entry { table: "entities" };
        let facts = Facts::read(kind, entity).map_err(|_| damage.clone())?;
        let consumer = carried::consumer(self, &facts)?.ok_or(damage)?;
        Ok(Some(Owned { entity, consumer }))
    }

    /// Returns the id of the entity with this composite cache key, such as the plugin with a name, route, service and
    /// consumer.
    pub fn id_by_cache_key(
        &self,
        kind: EntityKind,
        parts: &[KeyPart<'_>],
    ) -> Result<Option<Uuid>, StoreError> {
        let mut value = Vec::with_capacity(64);
        for part in parts {
            let bytes = match part {
                KeyPart::Absent => None,
                KeyPart::Text(text) => Some(text.as_bytes()),
                KeyPart::Reference(id) => Some(id.as_bytes().as_slice()),
            };
            keys::cache_key_part(&mut value, bytes);
        }
        let mut key = Vec::with_capacity(64 + value.len());
        keys::cache_key(&mut key, kind, &value);
        let found = self.unique_entry(&key)?;
        let (true, Some(id)) = (value.len() > keys::MAX_TEXT, found) else {
            return Ok(found);
        };
        let facts = self.facts(kind, id)?;
        Ok(facts
            .is_some_and(|facts| facts.cache_key() == value)
            .then_some(id))
    }

    /// Lists entities of a type after an id, at most `size`.
    pub fn page(
        &self,
        kind: EntityKind,
        after: Option<Uuid>,
        size: usize,
        tags: TagFilter<'_>,
    ) -> Result<Page<'_>, StoreError> {
        let entities = &self.tables.entities;
        match tags {
            TagFilter::None => {
                let range = Range::new(self, entities, &[kind.number()], after)?;
                self.collect_page(kind, range, size)
            }
            TagFilter::All(tags) => {
                let Some((first, others)) = tags.split_first() else {
                    return self.page(kind, after, size, TagFilter::None);
                };
                if others.is_empty() {
                    let range = self.tag_range(kind, first, after)?;
                    return self.collect_page(kind, range, size);
                }
                let prefix = |tag: &&str| {
                    let mut prefix = Vec::with_capacity(64);
                    keys::kind_tag(&mut prefix, kind, tag);
                    prefix
                };
                let intersection = Intersection {
                    view: self,
                    prefixes: tags.iter().map(prefix).collect(),
                    from: after.map_or(Some(Uuid::nil()), successor),
                };
                self.collect_page(kind, intersection, size)
            }
            TagFilter::Any(tags) => {
                let ranges = tags
                    .iter()
                    .map(|tag| Ok(self.tag_range(kind, tag, after)?.peekable()))
                    .collect::<Result<Vec<_>, StoreError>>()?;
                self.collect_page(kind, Union { ranges }, size)
            }
        }
    }

    /// Lists entities of a type whose reference `field` is `parent`.
    pub fn children(
        &self,
        kind: EntityKind,
        field: &str,
        parent: Uuid,
        after: Option<Uuid>,
        size: usize,
    ) -> Result<Page<'_>, StoreError> {
        let range = self.child_range(kind, field, parent, after)?;
        self.collect_page(kind, range, size)
    }

    /// Iterates over all entities of a type, ordered by id.
    pub fn iter(
        &self,
        kind: EntityKind,
    ) -> Result<impl Iterator<Item = Result<(Uuid, &[u8]), StoreError>>, StoreError> {
        let entries = self
            .tables
            .entities
            .prefix_iter(self.txn(), &[kind.number()])?;
        Ok(entries.map(|entry| {
            let (key, entity) = entry?;
            let (_, id) = keys::parse_entity(key).ok_or(Damage::Entry { table: "entities" })?;
            Ok((id, entity))
        }))
    }

    pub fn count(&self, kind: EntityKind) -> Result<u64, StoreError> {
        Ok(self.header()?.count(kind))
    }

    /// Returns a named value.
    pub fn meta(&self, name: &str) -> Result<Option<&[u8]>, StoreError> {
        Ok(self.tables.meta.get(self.txn(), name.as_bytes())?)
    }

    /// Returns the history up to this revision.
    pub fn history(&self) -> Result<History<'_>, StoreError> {
        History::new(self)
    }

    /// Lists all tags of all entities after an entry, at most `size`. They are ordered by tag, type and id, but tags
    /// that are stored as a hash are last. Also returns the value of `after` for the next page.
    pub fn tags(
        &self,
        after: Option<&Tagged>,
        size: usize,
    ) -> Result<(Vec<Tagged>, Option<Tagged>), StoreError> {
        self.tag_entries(&[], after, size)
    }

    /// Lists the entities of all types that have a tag, in the same way as [`View::tags`].
    pub fn tagged(
        &self,
        tag: &str,
        after: Option<&Tagged>,
        size: usize,
    ) -> Result<(Vec<Tagged>, Option<Tagged>), StoreError> {
        let mut prefix = Vec::with_capacity(64);
        keys::tag(&mut prefix, tag);
        self.tag_entries(&prefix, after, size)
    }

    pub(crate) fn header(&self) -> Result<Header, StoreError> {
        let record = self.tables.header.get(self.txn(), HEADER_KEY)?;
        Ok(Header::decode(record.ok_or(Damage::Header)?)?)
    }

    /// Iterates over the ids of entities of a type whose reference `field` is `parent`.
    pub fn child_ids(
        &self,
        kind: EntityKind,
        field: &str,
        parent: Uuid,
    ) -> Result<impl Iterator<Item = Result<Uuid, StoreError>>, StoreError> {
        self.child_range(kind, field, parent, None)
    }

    pub(crate) fn newest_revision(
        txn: &RoTxn<'_, WithoutTls>,
        tables: &Tables,
    ) -> Result<Revision, StoreError> {
        let record = tables.header.get(txn, HEADER_KEY)?;
        let revision = Header::peek_revision(record.ok_or(Damage::Header)?)?;
        Ok(Revision(revision))
    }

    /// Returns the bytes of the pages that the tables use.
    pub(crate) fn used_bytes(&self) -> Result<usize, StoreError> {
        let mut bytes = 0;
        for table in self.tables.summed() {
            let stat = table.stat(self.txn())?;
            let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
            bytes += pages * stat.page_size as usize;
        }
        Ok(bytes)
    }

    fn child_range(
        &self,
        kind: EntityKind,
        field: &str,
        parent: Uuid,
        after: Option<Uuid>,
    ) -> Result<Range<'_>, StoreError> {
        let mut prefix = Vec::with_capacity(64);
        keys::children(&mut prefix, kind, field, parent);
        let table = &self.tables.index[IndexTable::Children as usize];
        Range::new(self, table, &prefix, after)
    }

    fn facts(&self, kind: EntityKind, id: Uuid) -> Result<Option<Facts<'_>>, StoreError> {
        let Some(entity) = self.get(kind, id)? else {
            return Ok(None);
        };
        let facts = Facts::read(kind, entity).map_err(|_| Damage::Entry { table: "entities" })?;
        Ok(Some(facts))
    }

    fn unique_entry(&self, key: &[u8]) -> Result<Option<Uuid>, StoreError> {
        let table = &self.tables.index[IndexTable::Unique as usize];
        let entry = table.get(self.txn(), key)?;
        Ok(entry.map(carried::id).transpose()?)
    }

    fn tag_range(
        &self,
        kind: EntityKind,
        tag: &str,
        after: Option<Uuid>,
    ) -> Result<Range<'_>, StoreError> {
        let mut prefix = Vec::with_capacity(64);
        keys::kind_tag(&mut prefix, kind, tag);
        let table = &self.tables.index[IndexTable::KindTags as usize];
        Range::new(self, table, &prefix, after)
    }

    /// Finds the first id not less than `from` among the tag entries with this prefix.
    fn tag_at_least(&self, prefix: &[u8], from: Uuid) -> Result<Option<Uuid>, StoreError> {
        let mut key = Vec::with_capacity(prefix.len() + 16);
        key.extend_from_slice(prefix);
        key.extend_from_slice(from.as_bytes());
        let table = &self.tables.index[IndexTable::KindTags as usize];
        let found = table.get_greater_than_or_equal_to(self.txn(), &key)?;
        let Some(id) = found.and_then(|(key, _)| key.strip_prefix(prefix)) else {
            return Ok(None);
        };
        let id = Uuid::from_slice(id).map_err(|_| Damage::Entry { table: "an index" })?;
        Ok(Some(id))
    }

    fn collect_page(
        &self,
        kind: EntityKind,
        mut ids: impl Iterator<Item = Result<Uuid, StoreError>>,
        size: usize,
    ) -> Result<Page<'_>, StoreError> {
        let mut entities: Vec<(Uuid, &[u8])> = Vec::with_capacity(size.min(1000));
        while entities.len() < size {
            let Some(id) = ids.next() else { break };
            let id = id?;
            let entity = self.get(kind, id)?;
            entities.push((id, entity.ok_or(Damage::Entry { table: "entities" })?));
        }
        let more = ids.next().transpose()?.is_some();
        let last = entities.last().map(|(id, _)| *id);
        Ok(Page {
            entities,
            next: last.filter(|_| more),
        })
    }

    fn tag_entries(
        &self,
        prefix: &[u8],
        after: Option<&Tagged>,
        size: usize,
    ) -> Result<(Vec<Tagged>, Option<Tagged>), StoreError> {
        let mut start = Vec::with_capacity(64);
        if let Some(after) = after {
            keys::tag(&mut start, &after.tag);
            start.extend_from_slice(&keys::entity(after.kind, after.id));
        }
        let start = match after {
            Some(_) => Bound::Excluded(start.as_slice()),
            // LMDB does not accept an empty key.
            None if prefix.is_empty() => Bound::Unbounded,
            None => Bound::Included(prefix),
        };
        let table = &self.tables.index[IndexTable::Tags as usize];
        let mut entries = Vec::with_capacity(size.min(1000));
        for entry in table.range(self.txn(), &(start, Bound::Unbounded))? {
            let (key, text) = entry?;
            if !key.starts_with(prefix) {
                break;
            }
            if entries.len() == size {
                let next = entries.last().cloned();
                return Ok((entries, next));
            }
            entries.push(parse_tagged(key, text).ok_or(Damage::Entry { table: "tags" })?);
        }
        Ok((entries, None))
    }
}

fn parse_tagged(key: &[u8], text: &[u8]) -> Option<Tagged> {
    let (tag, rest) = keys::parse_tag(key)?;
    let tag = match tag {
        Some(tag) => tag,
        None => std::str::from_utf8(text).ok()?,
    };
    let (kind, id) = keys::parse_entity(rest)?;
    Some(Tagged {
        tag: tag.to_owned(),
        kind,
        id,
    })
}

/// Iterates over the ids at the end of all keys of a table with a prefix.
struct Range<'v> {
    entries: heed::RoRange<'v, heed::types::Bytes, heed::types::Bytes>,
    prefix: Vec<u8>,
}

impl<'v> Range<'v> {
    fn new(
        view: &'v View<'_>,
        table: &Table,
        prefix: &[u8],
        after: Option<Uuid>,
    ) -> Result<Self, StoreError> {
        let mut start = prefix.to_vec();
        let start = match after {
            Some(id) => {
                start.extend_from_slice(id.as_bytes());
                Bound::Excluded(start.as_slice())
            }
            None => Bound::Included(start.as_slice()),
        };
        Ok(Self {
            entries: table.range(view.txn(), &(start, Bound::Unbounded))?,
            prefix: prefix.to_vec(),
        })
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Uuid, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (key, _) = match self.entries.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error.into())),
        };
        let id = key.strip_prefix(self.prefix.as_slice())?;
        let damage = StoreError::Damaged(Damage::Entry { table: "an index" });
        Some(Uuid::from_slice(id).map_err(|_| damage))
    }
}

/// Iterates over the ids of entities that have all of several tags. If an entity lacks a tag, the iterator skips to the
/// next entity that has this tag. So the number of steps is about the number of entities with the rarest tag, times the
/// number of tags.
struct Intersection<'v> {
    view: &'v View<'v>,
    prefixes: Vec<Vec<u8>>,
    /// The id to continue from; `None` at the end.
    from: Option<Uuid>,
}

impl Iterator for Intersection<'_> {
    type Item = Result<Uuid, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut candidate = self.from.take()?;
        let mut agreed = 0;
        for prefix in self.prefixes.iter().cycle() {
            match self.view.tag_at_least(prefix, candidate) {
                Ok(Some(id)) if id == candidate => agreed += 1,
                Ok(Some(id)) => (candidate, agreed) = (id, 1),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
            if agreed == self.prefixes.len() {
                break;
            }
        }
        self.from = successor(candidate);
        Some(Ok(candidate))
    }
}

/// Returns the next greater id, if there is one.
fn successor(id: Uuid) -> Option<Uuid> {
    id.as_u128().checked_add(1).map(Uuid::from_u128)
}

/// Iterates over the ids of several ordered ranges, in order and without duplicates.
struct Union<'v> {
    ranges: Vec<std::iter::Peekable<Range<'v>>>,
}

impl Iterator for Union<'_> {
    type Item = Result<Uuid, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut least: Option<Uuid> = None;
        for range in &mut self.ranges {
            match range.peek() {
                Some(Err(_)) => return range.next(),
                Some(Ok(id)) => least = Some(least.map_or(*id, |least| least.min(*id))),
                None => {}
            }
        }
        let least = least?;
        for range in &mut self.ranges {
            range.next_if(|id| matches!(id, Ok(id) if *id == least));
        }
        Some(Ok(least))
    }
}
