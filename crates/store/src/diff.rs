//! From "this is the whole configuration" to the changes that are missing.

use crate::change::{Change, ChangeSet};
use crate::error::{Damage, StoreError};
use crate::keys::{self, EntityKey};
use crate::view::View;
use model::EntityKind;
use uuid::Uuid;

/// A whole configuration, to replace the one in the store.
#[derive(Debug, Clone, Default)]
pub struct Replacement<'r> {
    entries: Vec<(EntityKey, Wanted<'r>)>,
    untouched: Vec<EntityKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted<'r> {
    Bytes(&'r [u8]),
    AsItIs,
}

#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// What was to be kept is not there: the caller's idea of the store is older than the view.
    #[error("{} {id} is to be kept, but is not in the store", kind.name())]
    KeptIsMissing { kind: EntityKind, id: Uuid },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<'r> Replacement<'r> {
    pub fn with_capacity(entities: usize) -> Self {
        Self {
            entries: Vec::with_capacity(entities),
            untouched: Vec::new(),
        }
    }

    /// The entity shall be these bytes.
    pub fn put(&mut self, kind: EntityKind, id: Uuid, entity: &'r [u8]) {
        let key = keys::entity(kind, id);
        self.entries.push((key, Wanted::Bytes(entity)));
    }

    /// The entity shall stay as it is: the caller knows that it has not changed.
    pub fn keep(&mut self, kind: EntityKind, id: Uuid) {
        self.entries.push((keys::entity(kind, id), Wanted::AsItIs));
    }

    /// Entities of this kind are not part of the configuration: what is there stays.
    pub fn leave_alone(&mut self, kind: EntityKind) {
        self.untouched.push(kind);
    }
}

impl View<'_> {
    /// The changes that turn this state into the replacement: what differs in its bytes, and removals of what is in
    /// neither `put` nor `keep`. One pass over the table beside the sorted replacement.
    pub fn diff(&self, replacement: Replacement<'_>) -> Result<ChangeSet, DiffError> {
        let Replacement {
            mut entries,
            untouched,
        } = replacement;
        // Stable: the last of an entity's entries counts.
        entries.sort_by_key(|(key, _)| *key);
        let mut wanted = LastOfEach { entries: &entries };
        let mut next = wanted.next();
        let mut changes = Vec::new();
        let table = self.tables().entities.iter(self.txn());
        for entry in table.map_err(StoreError::from)? {
            let (key, current) = entry.map_err(StoreError::from)?;
            while let Some((wanted_key, entity)) = next
                && wanted_key.as_slice() < key
            {
                changes.push(create(&wanted_key, entity)?);
                next = wanted.next();
            }
            match next {
                Some((wanted_key, entity)) if wanted_key.as_slice() == key => {
                    if let Wanted::Bytes(bytes) = entity
                        && bytes != current
                    {
                        changes.push(put(&wanted_key, bytes));
                    }
                    next = wanted.next();
                }
                _ => {
                    let (kind, id) = keys::parse_entity(key)
                        .ok_or(StoreError::Damaged(Damage::Entry { table: "entities" }))?;
                    if !untouched.contains(&kind) {
                        changes.push(Change::Delete { kind, id });
                    }
                }
            }
        }
        while let Some((key, entity)) = next {
            changes.push(create(&key, entity)?);
            next = wanted.next();
        }
        Ok(ChangeSet {
            changes,
            meta: Vec::new(),
        })
    }
}

struct LastOfEach<'e, 'r> {
    entries: &'e [(EntityKey, Wanted<'r>)],
}

impl<'r> Iterator for LastOfEach<'_, 'r> {
    type Item = (EntityKey, Wanted<'r>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&first, rest) = self.entries.split_first()?;
            self.entries = rest;
            if rest.first().is_none_or(|(key, _)| *key != first.0) {
                return Some(first);
            }
        }
    }
}

fn create(key: &EntityKey, wanted: Wanted<'_>) -> Result<Change, DiffError> {
    match wanted {
        Wanted::Bytes(bytes) => Ok(put(key, bytes)),
        Wanted::AsItIs => {
            let (kind, id) = parse(key);
            Err(DiffError::KeptIsMissing { kind, id })
        }
    }
}

fn put(key: &EntityKey, bytes: &[u8]) -> Change {
    let (kind, id) = parse(key);
    Change::Put {
        kind,
        id,
        entity: bytes.to_vec(),
    }
}

fn parse(key: &EntityKey) -> (EntityKind, Uuid) {
    keys::parse_entity(key).expect("the key was made of a kind and an id")
}
