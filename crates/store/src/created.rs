//! The revision in which each entity was created.
//!
//! What belongs to an entity, but is not in this store (such as the tokens of a client), names this revision. So what
//! belonged to a deleted entity does not belong to another one that is made with the same id later.
//!
//! The entries are in the table `meta`, whose other keys are texts. They are no part of the history: removing history
//! does not touch them, and an entity that a rollback makes again gets the revision of the rollback.

use crate::env::Tables;
use crate::error::{CommitError, Damage, StoreError};
use crate::header::{Header, META};
use crate::keys::{self, CREATED_KEY_LENGTH, EntityKey};
use crate::record::Counts;
use crate::view::View;
use heed::{PutFlags, RwTxn};
use model::EntityKind;
use std::collections::BTreeSet;
use uuid::Uuid;

/// Notes which of the changed entities the header's revision has created or deleted, and counts the changes by effect.
/// Each entity has its state before the revision. They are ordered by key. `ended` are those that the revision has
/// deleted. One of them that exists was made again, and is another entity.
pub(crate) fn note(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    entities: &[(EntityKey, Option<Vec<u8>>)],
    ended: &BTreeSet<EntityKey>,
) -> Result<Counts, CommitError> {
    let mut counts = Counts::default();
    let revision = header.revision.to_be_bytes();
    let mut flags = PutFlags::empty();
    let first = entities.iter().find(|(_, before)| before.is_none());
    if let Some((first, _)) = first {
        let last = tables.meta.last(txn)?;
        if last.is_none_or(|(last, _)| *last < keys::created(first)[..]) {
            // A load into an empty store fills pages completely.
            flags = PutFlags::APPEND;
        }
    }
    for (entity, before) in entities {
        let key = keys::created(entity);
        // An entity that did not exist before must exist now, or it would not be in the list.
        if before.is_none() {
            counts.created += 1;
            remove(txn, tables, header, &key)?;
            tables.meta.put_with_flags(txn, flags, &key, &revision)?;
            header.sums[META].add(&key, &revision);
        } else if tables.entities.get(txn, entity)?.is_some() {
            counts.updated += 1;
            if ended.contains(entity) {
                remove(txn, tables, header, &key)?;
                tables.meta.put(txn, &key, &revision)?;
                header.sums[META].add(&key, &revision);
            }
        } else {
            counts.deleted += 1;
            remove(txn, tables, header, &key)?;
        }
    }
    Ok(counts)
}

fn remove(
    txn: &mut RwTxn<'_>,
    tables: &Tables,
    header: &mut Header,
    key: &[u8; CREATED_KEY_LENGTH],
) -> Result<(), CommitError> {
    let Some(old) = tables.meta.get(txn, key)? else {
        return Ok(());
    };
    header.sums[META].remove(key, old);
    tables.meta.delete(txn, key)?;
    Ok(())
}

impl View<'_> {
    /// Returns the revision in which an entity was created, if it exists. It is 0 for entities that every configuration
    /// has, and for those that were created before this was noted.
    pub fn created(&self, kind: EntityKind, id: Uuid) -> Result<Option<u64>, StoreError> {
        let entity = keys::entity(kind, id);
        if self.tables().entities.get(self.txn(), &entity)?.is_none() {
            return Ok(None);
        }
        let noted = self
            .tables()
            .meta
            .get(self.txn(), &keys::created(&entity))?;
        let Some(noted) = noted else {
            return Ok(Some(0));
        };
        let revision = noted
            .try_into()
            .map_err(|_| Damage::Entry { table: "meta" })?;
        Ok(Some(u64::from_be_bytes(revision)))
    }
}
