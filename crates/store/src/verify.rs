//! Checks that the tables agree, for example that every index entry belongs to an entity and that every entity has its
//! index entries.

use crate::carried;
use crate::checksum::Sum;
use crate::env::Table;
use crate::error::{Damage, StoreError};
use crate::facts::{Facts, Field, INDEX_TABLES, IndexTable};
use crate::header::{Header, SUMMED_TABLES};
use crate::history::parse_piece;
use crate::keys::{self, HEAD_PIECE};
use crate::record;
use crate::store::Store;
use crate::view::View;
use model::EntityKind;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A disagreement between the tables. Only a defect of this program can cause it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inconsistency {
    #[error("the header's sum of the table {table} is wrong")]
    Sum { table: &'static str },
    #[error("the header counts {counted} {}, there are {found}", kind.name())]
    Count {
        kind: EntityKind,
        counted: u64,
        found: u64,
    },
    #[error("{} {id} cannot be read", kind.name())]
    Malformed { kind: EntityKind, id: Uuid },
    #[error("{} {id} lacks an entry of the table {table}", kind.name())]
    MissingEntry {
        table: &'static str,
        kind: EntityKind,
        id: Uuid,
    },
    #[error("the table {table} has entries of no entity")]
    ExtraEntries { table: &'static str },
    #[error("the header counts {counted} bytes of history, there are {found}")]
    HistorySize { counted: u64, found: u64 },
    #[error("the record of revision {revision} does not match its changes")]
    Record { revision: u64 },
    #[error("{field} of {} {id} refers to nothing", kind.name())]
    Dangling {
        kind: EntityKind,
        id: Uuid,
        field: &'static str,
    },
}

impl Store {
    /// Reads everything and returns the inconsistencies.
    pub fn verify(&self) -> Result<Vec<Inconsistency>, StoreError> {
        let view = self.view()?;
        let header = view.header()?;
        let mut found = Vec::new();
        let mut sums = [Sum::default(); SUMMED_TABLES.len()];
        for (index, table) in view.tables().summed().into_iter().enumerate() {
            sums[index] = table_sum(&view, table)?;
            if sums[index] != header.sums[index] {
                found.push(Inconsistency::Sum {
                    table: SUMMED_TABLES[index],
                });
            }
        }
        let expected = verify_entities(&view, header.format, &mut found)?;
        for (index, expected) in expected.into_iter().enumerate() {
            if expected != sums[1 + index] {
                found.push(Inconsistency::ExtraEntries {
                    table: SUMMED_TABLES[1 + index],
                });
            }
        }
        found.extend(verify_history(&view, &header)?);
        found.extend(verify_created(&view)?);
        for kind in EntityKind::all() {
            let mut entities = 0;
            for entity in view.iter(kind)? {
                entity?;
                entities += 1;
            }
            let counted = header.count(kind);
            if counted != entities {
                found.push(Inconsistency::Count {
                    kind,
                    counted,
                    found: entities,
                });
            }
        }
        Ok(found)
    }
}

fn table_sum(view: &View<'_>, table: Table) -> Result<Sum, StoreError> {
    let mut sum = Sum::default();
    for entry in table.iter(view.txn())? {
        let (key, value) = entry?;
        sum.add(key, value);
    }
    Ok(sum)
}

/// Checks that every record is complete, and that the tables contain nothing else. A record that is being removed may
/// be incomplete.
fn verify_history(view: &View<'_>, header: &Header) -> Result<Vec<Inconsistency>, StoreError> {
    let mut found = Vec::new();
    let mut bytes = 0;
    // For each revision, the number of changed entities according to its head, its pieces and the table `touched`.
    let mut counts: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    let damage = Damage::Entry { table: "journal" };
    for entry in view.tables().journal.iter(view.txn())? {
        let (key, value) = entry?;
        let (revision, piece) = keys::parse_journal(key).ok_or(damage.clone())?;
        let [head, listed, touched] = counts.entry(revision).or_default();
        bytes += (key.len() + value.len()) as u64;
        if piece == HEAD_PIECE {
            let info = record::info(revision, value).ok_or(damage.clone())?;
            *head = info.counts.total();
            continue;
        }
        for entity in parse_piece(value) {
            let key = keys::touched(entity, revision);
            *listed += 1;
            *touched += u64::from(view.tables().touched.get(view.txn(), &key)?.is_some());
        }
    }
    let mut all = 0;
    for (revision, [head, listed, touched]) in &counts {
        let is_whole = head == listed && *revision > header.floor;
        let is_leaving = listed <= head && (header.swept + 1..=header.floor).contains(revision);
        if listed != touched || !(is_whole || is_leaving) {
            found.push(Inconsistency::Record {
                revision: *revision,
            });
        }
        all += listed;
    }
    for entry in view.tables().touched.iter(view.txn())? {
        let (key, value) = entry?;
        bytes += (key.len() + value.len()) as u64;
    }
    if all != view.tables().touched.len(view.txn())? {
        found.push(Inconsistency::ExtraEntries { table: "touched" });
    }
    for revision in header.floor + 1..=header.revision {
        if !counts.contains_key(&revision) {
            found.push(Inconsistency::Record { revision });
        }
    }
    if bytes != header.history_bytes {
        found.push(Inconsistency::HistorySize {
            counted: header.history_bytes,
            found: bytes,
        });
    }
    Ok(found)
}

/// Checks that every noted creation is that of an entity.
fn verify_created(view: &View<'_>) -> Result<Option<Inconsistency>, StoreError> {
    for entry in view.tables().meta.iter(view.txn())? {
        let (key, _) = entry?;
        if let Some(entity) = keys::parse_created(key)
            && view.tables().entities.get(view.txn(), entity)?.is_none()
        {
            return Ok(Some(Inconsistency::ExtraEntries { table: "meta" }));
        }
    }
    Ok(None)
}

/// Checks every entity, and returns the sums that the index tables must have.
fn verify_entities(
    view: &View<'_>,
    format: u32,
    found: &mut Vec<Inconsistency>,
) -> Result<[Sum; INDEX_TABLES], StoreError> {
    let mut expected = [Sum::default(); INDEX_TABLES];
    for entry in view.tables().entities.iter(view.txn())? {
        let (key, entity) = entry?;
        let (kind, id) = keys::parse_entity(key).ok_or(Damage::Entry { table: "entities" })?;
        let Ok(facts) = Facts::read(kind, entity) else {
            found.push(Inconsistency::Malformed { kind, id });
            continue;
        };
        let Some(entries) = entries(view, format, (kind, id), entity, &facts)? else {
            found.push(Inconsistency::Malformed { kind, id });
            continue;
        };
        for (table, key, value) in entries {
            expected[table as usize].add(&key, &value);
            let stored = view.tables().index[table as usize].get(view.txn(), &key)?;
            if stored != Some(&*value) {
                found.push(Inconsistency::MissingEntry {
                    table: SUMMED_TABLES[1 + table as usize],
                    kind,
                    id,
                });
            }
        }
        for foreign in &facts.rules.foreign {
            if let Some(Field::Reference(parent)) = facts.field(foreign.slot)
                && view.get(foreign.parent, parent)?.is_none()
            {
                found.push(Inconsistency::Dangling {
                    kind,
                    id,
                    field: foreign.field,
                });
            }
        }
    }
    Ok(expected)
}

/// Table, key and value of an index entry.
type IndexEntry = (IndexTable, Vec<u8>, Vec<u8>);

/// Returns the index entries that an entity must have; `None` if its tags cannot be read.
fn entries(
    view: &View<'_>,
    format: u32,
    (kind, id): (EntityKind, Uuid),
    entity: &[u8],
    facts: &Facts<'_>,
) -> Result<Option<Vec<IndexEntry>>, StoreError> {
    let mut entries = Vec::new();
    let derived = facts.index_entries(kind, id, &mut Vec::new(), |table, key, value| {
        entries.push((table, key.to_vec(), value.to_vec()));
    });
    if derived.is_err() {
        return Ok(None);
    }
    if carried::is_for(kind, format) {
        let unique = entries.iter_mut().filter(|one| one.0 == IndexTable::Unique);
        for (_, key, value) in unique {
            carried::write_value(view, &keys::entity(kind, id), Some(entity), key, value)?;
        }
    }
    Ok(Some(entries))
}
