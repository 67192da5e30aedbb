//! Reads the indexed fields of an encoded entity directly from its MessagePack, and derives the index entries from
//! them.

use crate::keys;
use crate::rules::{self, MAX_SLOTS, Rules};
use model::EntityKind;
use uuid::Uuid;

#[cfg(test)]
mod tests;

/// The index tables, whose entries are derived from the entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IndexTable {
    Unique = 0,
    Children = 1,
    Tags = 2,
    KindTags = 3,
}

pub(crate) const INDEX_TABLES: usize = 4;

/// The error for bytes that are not an encoded entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A stored field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field<'b> {
    Text(&'b str),
    Reference(Uuid),
    /// Any other value, still encoded.
    Other(&'b [u8]),
}

impl Field<'_> {
    fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Field::Text(text) => use_bytes(text.as_bytes()),
            Field::Reference(id) => use_bytes(id.as_bytes()),
            Field::Other(bytes) => use_bytes(bytes),
        }
    }
}

/// The indexed fields of an entity, by the slots in the rules of its type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'b> {
    pub(crate) rules: &'static Rules,
    slots: [Option<Field<'b>>; MAX_SLOTS],
}

impl<'b> Facts<'b> {
    pub(crate) fn read(kind: EntityKind, entity: &'b [u8]) -> Result<Self, Malformed> {
        let rules = rules::of(kind);
        let mut slots = [None; MAX_SLOTS];
        let mut cursor = Cursor::new(entity);
        for _ in 0..cursor.map_length()? {
            // A name that is not UTF-8 cannot be an indexed field.
            let name = cursor.text_bytes()?;
            match rules
                .fields
                .iter()
                .position(|field| field.as_bytes() == name)
            {
                Some(slot) => slots[slot] = cursor.field()?,
                None => cursor.skip()?,
            }
        }
        if cursor.rest().is_empty() {
            Ok(Self { rules, slots })
        } else {
            Err(Malformed)
        }
    }

    pub(crate) fn field(&self, slot: usize) -> Option<Field<'b>> {
        self.slots[slot]
    }

    /// Returns the tags, sorted.
    pub(crate) fn tags(&self) -> Result<Vec<&'b str>, Malformed> {
        let Some(Field::Other(list)) = self.slots[self.rules.tags] else {
            return Ok(Vec::new());
        };
        let mut cursor = Cursor::new(list);
        let length = cursor.array_length()?;
        let mut tags: Vec<&str> = Vec::with_capacity(length.min(16));
        for _ in 0..length {
            tags.push(cursor.text()?);
        }
        // A duplicate tag gets only one entry.
        tags.sort_unstable();
        tags.dedup();
        Ok(tags)
    }

    /// Calls `entry` with the table, key and value of each index entry of the entity; `key` is scratch space.
    pub(crate) fn index_entries(
        &self,
        kind: EntityKind,
        id: Uuid,
        key: &mut Vec<u8>,
        mut entry: impl FnMut(IndexTable, &[u8], &[u8]),
    ) -> Result<(), Malformed> {
        for &slot in &self.rules.unique {
            if let Some(field) = self.slots[slot] {
                field.with_bytes(|value| keys::unique(key, kind, self.rules.fields[slot], value));
                entry(IndexTable::Unique, key, id.as_bytes());
            }
        }
        if !self.rules.cache_key.is_empty() {
            keys::cache_key(key, kind, &self.cache_key());
            entry(IndexTable::Unique, key, id.as_bytes());
        }
        for foreign in &self.rules.foreign {
            if let Some(Field::Reference(parent)) = self.slots[foreign.slot] {
                keys::children(key, kind, foreign.field, parent);
                key.extend_from_slice(id.as_bytes());
                entry(IndexTable::Children, key, &[]);
            }
        }
        for tag in self.tags()? {
            keys::tag(key, tag);
            key.extend_from_slice(&keys::entity(kind, id));
            let hashed = keys::is_hashed(tag.as_bytes());
            let value = if hashed { tag.as_bytes() } else { &[] };
            entry(IndexTable::Tags, key, value);
            keys::kind_tag(key, kind, tag);
            key.extend_from_slice(id.as_bytes());
            entry(IndexTable::KindTags, key, &[]);
        }
        Ok(())
    }

    pub(crate) fn cache_key(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(64);
        for &slot in &self.rules.cache_key {
            match self.slots[slot] {
                None => keys::cache_key_part(&mut value, None),
                Some(field) => {
                    field.with_bytes(|bytes| keys::cache_key_part(&mut value, Some(bytes)));
                }
            }
        }
        value
    }
}

/// Reads MessagePack from start to end, and checks every length against the remaining bytes.
struct Cursor<'b> {
    bytes: &'b [u8],
}

impl<'b> Cursor<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    fn rest(&self) -> &'b [u8] {
        self.bytes
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self, width: usize) -> Result<usize, Malformed> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn map_length(&mut self) -> Result<usize, Malformed> {
        match self.byte()? {
            mark @ 0x80..=0x8f => Ok(usize::from(mark & 0x0f)),
            0xde => self.number(2),
            0xdf => self.number(4),
            _ => Err(Malformed),
        }
    }

    fn array_length(&mut self) -> Result<usize, Malformed> {
        match self.byte()? {
            mark @ 0x90..=0x9f => Ok(usize::from(mark & 0x0f)),
            0xdc => self.number(2),
            0xdd => self.number(4),
            _ => Err(Malformed),
        }
    }

    fn text(&mut self) -> Result<&'b str, Malformed> {
        std::str::from_utf8(self.text_bytes()?).map_err(|_| Malformed)
    }

    fn text_bytes(&mut self) -> Result<&'b [u8], Malformed> {
        let length = match self.byte()? {
            mark @ 0xa0..=0xbf => usize::from(mark & 0x1f),
            0xd9 => self.number(1)?,
            0xda => self.number(2)?,
            0xdb => self.number(4)?,
            _ => return Err(Malformed),
        };
        self.take(length)
    }

    /// Reads a value of an indexed field; nil counts as absent.
    fn field(&mut self) -> Result<Option<Field<'b>>, Malformed> {
        let start = self.bytes;
        match *start.first().ok_or(Malformed)? {
            0xc0 => self.skip().map(|()| None),
            0xa0..=0xbf | 0xd9..=0xdb => Ok(Some(Field::Text(self.text()?))),
            0x80..=0x8f | 0xde | 0xdf => Ok(Some(Field::Reference(self.reference()?))),
            _ => {
                self.skip()?;
                let length = start.len() - self.bytes.len();
                Ok(Some(Field::Other(&start[..length])))
            }
        }
    }

    /// `{"id": "<uuid>"}`
    fn reference(&mut self) -> Result<Uuid, Malformed> {
        let mut id = None;
        for _ in 0..self.map_length()? {
            if self.text_bytes()? == b"id" {
                id = Some(Uuid::try_parse(self.text()?).map_err(|_| Malformed)?);
            } else {
                self.skip()?;
            }
        }
        id.ok_or(Malformed)
    }

    /// Skips one value. It counts pending values instead of recursing, so that nesting needs no stack.
    fn skip(&mut self) -> Result<(), Malformed> {
        let mut pending = 1usize;
        while pending > 0 {
            pending -= 1;
            let mark = self.byte()?;
            let (skipped, nested) = match mark {
                0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => (0, 0),
                0x80..=0x8f => (0, 2 * usize::from(mark & 0x0f)),
                0x90..=0x9f => (0, usize::from(mark & 0x0f)),
                0xa0..=0xbf => (usize::from(mark & 0x1f), 0),
                0xc4 | 0xd9 => (self.number(1)?, 0),
                0xc5 | 0xda => (self.number(2)?, 0),
                0xc6 | 0xdb => (self.number(4)?, 0),
                0xcc | 0xd0 => (1, 0),
                0xcd | 0xd1 => (2, 0),
                0xca | 0xce | 0xd2 => (4, 0),
                0xcb | 0xcf | 0xd3 => (8, 0),
                0xdc => (0, self.number(2)?),
                0xdd => (0, self.number(4)?),
                0xde => (0, 2 * self.number(2)?),
                0xdf => (0, 2 * self.number(4)?),
                // Extension types: the model encodes no value as one.
                _ => return Err(Malformed),
            };
            self.take(skipped)?;
            pending += nested;
        }
        Ok(())
    }
}
