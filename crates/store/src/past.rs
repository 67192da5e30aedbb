//! Reads history: revisions, the changes of each, and the state of entities at each. Every step is a lookup in an
//! ordered table, so the cost depends on the size of the result, not on the length of the history.

use crate::change::{Change, ChangeSet, Revision};
use crate::change_log::ChangeLogError;
use crate::error::{Damage, StoreError};
use crate::history::{PIECE_KEYS, parse_piece};
use crate::keys::{self, EntityKey, HEAD_PIECE};
use crate::record::{self, RevisionInfo};
use crate::view::View;
use model::EntityKind;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use uuid::Uuid;

/// The kept revisions that a view can read.
#[derive(Debug, Clone, Copy)]
pub struct History<'v> {
    view: &'v View<'v>,
    oldest: u64,
    newest: u64,
}

/// An entity that differs between two revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference<'v> {
    pub kind: EntityKind,
    pub id: Uuid,
    /// The encoded entity; `None` if it did not exist. Never equal to `after`.
    pub before: Option<&'v [u8]>,
    pub after: Option<&'v [u8]>,
}

/// A period of time, both ends included, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub since_ms: u64,
    pub until_ms: u64,
}

impl Period {
    pub const ALWAYS: Self = Self {
        since_ms: 0,
        until_ms: u64::MAX,
    };
}

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastPage<T> {
    pub items: Vec<T>,
    /// The value of `before` for the next page; `None` on the last page.
    pub next: Option<Revision>,
}

impl<'v> History<'v> {
    pub(crate) fn new(view: &'v View<'v>) -> Result<Self, StoreError> {
        Ok(Self {
            view,
            oldest: view.header()?.floor,
            newest: view.revision().0,
        })
    }

    /// The oldest revision whose state can be read. Its record is not kept.
    pub fn oldest(&self) -> Revision {
        Revision(self.oldest)
    }

    pub fn newest(&self) -> Revision {
        Revision(self.newest)
    }

    /// Returns the record of a revision after the oldest.
    pub fn info(&self, revision: Revision) -> Result<RevisionInfo, ChangeLogError> {
        self.check_record(revision)?;
        Ok(self.kept_info(revision.0)?)
    }

    /// Lists the revisions of a period that are older than `before`, at most `size`.
    pub fn revisions(
        &self,
        before: Option<Revision>,
        period: Period,
        size: usize,
    ) -> Result<PastPage<RevisionInfo>, StoreError> {
        let start = self.start(before, period)?;
        let mut page = PastPage::new(size);
        for revision in (self.oldest + 1..=start).rev() {
            let info = self.kept_info(revision)?;
            if info.at_ms < period.since_ms || !page.push(info, |info| info.revision, size) {
                break;
            }
        }
        Ok(page)
    }

    /// Lists the revisions that changed an entity, with the entity before and after each of them. The other arguments
    /// are those of [`History::revisions`].
    pub fn revisions_of(
        &self,
        kind: EntityKind,
        id: Uuid,
        before: Option<Revision>,
        period: Period,
        size: usize,
    ) -> Result<PastPage<(RevisionInfo, Difference<'v>)>, StoreError> {
        let start = self.start(before, period)?;
        let entity = keys::entity(kind, id);
        let range = (
            Bound::Excluded(keys::touched(&entity, self.oldest)),
            Bound::Included(keys::touched(&entity, start)),
        );
        let bounds = (as_slice(&range.0), as_slice(&range.1));
        let mut page = PastPage::new(size);
        let mut after = None;
        if start <= self.oldest {
            return Ok(page);
        }
        let table = &self.view.tables().touched;
        for entry in table.rev_range(self.view.txn(), &bounds)? {
            let (key, state) = entry?;
            let revision = keys::touched_by(key, &entity).ok_or(DAMAGED_TOUCHED)?;
            let info = self.kept_info(revision)?;
            if info.at_ms < period.since_ms {
                break;
            }
            let difference = Difference {
                kind,
                id,
                before: existing(state),
                after: match after {
                    Some(after) => after,
                    None => self.state(&entity, revision)?,
                },
            };
            after = Some(difference.before);
            if !page.push((info, difference), |(info, _)| info.revision, size) {
                break;
            }
        }
        Ok(page)
    }

    /// Finds the entity of a type that last had a state which `matches`, among the states that later revisions replaced.
    /// The cost depends on the number of kept changes to entities of this type.
    pub fn last_with(
        &self,
        kind: EntityKind,
        matches: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Uuid>, StoreError> {
        let table = &self.view.tables().touched;
        let mut last = None;
        let mut newest = self.oldest;
        for entry in table.prefix_iter(self.view.txn(), &[kind.number()])? {
            let (key, state) = entry?;
            let (id, revision) = keys::parse_touched(key).ok_or(DAMAGED_TOUCHED)?;
            if revision > newest && existing(state).is_some_and(&matches) {
                (last, newest) = (Some(id), revision);
            }
        }
        Ok(last)
    }

    /// Returns the changes of a revision, ordered by type and id: at most `size` entities, starting at position `from`.
    /// The total number of changes is [`crate::Counts::total`] of the revision.
    pub fn changes(
        &self,
        revision: Revision,
        from: usize,
        size: usize,
    ) -> Result<Vec<Difference<'v>>, ChangeLogError> {
        self.check_record(revision)?;
        let piece = u32::try_from(from / PIECE_KEYS).unwrap_or(u32::MAX);
        // No record has a piece with the largest number, so it stands for every position beyond the record.
        let first = piece.saturating_add(HEAD_PIECE + 1);
        let pieces = self.pieces(revision.0, first, revision.0)?;
        let mut skip = from % PIECE_KEYS;
        let mut changes = Vec::with_capacity(size.min(1000));
        for piece in pieces {
            for entity in piece?.iter().skip(std::mem::take(&mut skip)) {
                if changes.len() == size {
                    return Ok(changes);
                }
                let (before, after) = (revision.0 - 1, revision.0);
                changes.extend(self.difference(entity, before, after)?);
            }
        }
        Ok(changes)
    }

    /// Returns the state of an entity after a revision.
    pub fn entity(
        &self,
        kind: EntityKind,
        id: Uuid,
        revision: Revision,
    ) -> Result<Option<&'v [u8]>, ChangeLogError> {
        self.check_state(revision)?;
        Ok(self.state(&keys::entity(kind, id), revision.0)?)
    }

    /// Returns the entities that differ between two revisions, ordered by type and id. `from` may be newer than `to`.
    /// Entities up to and including `after` are skipped. An entity with the same state in both revisions is not
    /// returned, even if it changed in between.
    pub fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<(EntityKind, Uuid)>,
    ) -> Result<impl Iterator<Item = Result<Difference<'v>, StoreError>> + use<'v>, ChangeLogError>
    {
        self.check_state(from)?;
        self.check_state(to)?;
        let mut touched = self.touched_between(from.min(to).0, from.max(to).0)?;
        if let Some((kind, id)) = after {
            touched = touched.split_off(&keys::entity(kind, id));
            touched.remove(&keys::entity(kind, id));
        }
        let history = *self;
        Ok(touched
            .into_iter()
            .filter_map(move |entity| history.difference(&entity, from.0, to.0).transpose()))
    }

    /// Returns the changes from the newest state back to that of a revision.
    pub fn changes_to(&self, revision: Revision) -> Result<ChangeSet, ChangeLogError> {
        let changes = self.diff(self.newest(), revision, None)?;
        let meta = self.meta_since(revision)?.into_iter();
        Ok(ChangeSet {
            changes: into_changes(changes)?,
            meta: meta.map(|(name, [then, _])| (name, then)).collect(),
        })
    }

    /// Returns the changes from the state of a revision to the newest.
    pub fn changes_since(&self, revision: Revision) -> Result<ChangeSet, ChangeLogError> {
        let changes = self.diff(revision, self.newest(), None)?;
        let meta = self.meta_since(revision)?.into_iter();
        Ok(ChangeSet {
            changes: into_changes(changes)?,
            meta: meta.map(|(name, [_, now])| (name, now)).collect(),
        })
    }

    /// Returns the named values that have changed since a revision, with their values then and now.
    fn meta_since(&self, revision: Revision) -> Result<Vec<ThenAndNow>, StoreError> {
        let mut names = BTreeMap::new();
        for revision in revision.0 + 1..=self.newest {
            let meta = record::meta(self.head(revision)?).ok_or(DAMAGED_JOURNAL)?;
            for (name, before) in meta {
                names.entry(name).or_insert(before);
            }
        }
        let mut changed = Vec::new();
        for (name, then) in names {
            let now = self.view.meta(&name)?.map(<[u8]>::to_vec);
            if then != now {
                changed.push((name, [then, now]));
            }
        }
        Ok(changed)
    }

    /// Returns the entities changed by the revisions after `after`, up to `up_to`.
    fn touched_between(&self, after: u64, up_to: u64) -> Result<BTreeSet<EntityKey>, StoreError> {
        let mut touched = BTreeSet::new();
        if after < up_to {
            for piece in self.pieces(after + 1, HEAD_PIECE + 1, up_to)? {
                touched.extend(piece?);
            }
        }
        Ok(touched)
    }

    /// Iterates over the pieces from a position in one record to the end of another record.
    fn pieces(
        &self,
        revision: u64,
        piece: u32,
        last: u64,
    ) -> Result<impl Iterator<Item = Result<&'v [EntityKey], StoreError>> + use<'v>, StoreError>
    {
        let start = keys::journal(revision, piece);
        let end = keys::journal(last, u32::MAX);
        let bounds = (
            Bound::Included(start.as_slice()),
            Bound::Included(end.as_slice()),
        );
        let journal = &self.view.tables().journal;
        let entries = journal.range(self.view.txn(), &bounds)?;
        Ok(entries.filter_map(|entry| match entry {
            Ok((key, value)) => match keys::parse_journal(key) {
                Some((_, HEAD_PIECE)) => None,
                Some(_) => Some(Ok(parse_piece(value))),
                None => Some(Err(DAMAGED_JOURNAL.into())),
            },
            Err(error) => Some(Err(error.into())),
        }))
    }

    fn difference(
        &self,
        entity: &EntityKey,
        from: u64,
        to: u64,
    ) -> Result<Option<Difference<'v>>, StoreError> {
        let (kind, id) = keys::parse_entity(entity).ok_or(DAMAGED_JOURNAL)?;
        let before = self.state(entity, from)?;
        let after = self.state(entity, to)?;
        Ok((before != after).then_some(Difference {
            kind,
            id,
            before,
            after,
        }))
    }

    /// Finds the state of an entity at a revision. This is its state before the next revision that changed it, or its
    /// current state if there is no such revision.
    fn state(&self, entity: &EntityKey, revision: u64) -> Result<Option<&'v [u8]>, StoreError> {
        let (tables, txn) = (self.view.tables(), self.view.txn());
        if revision < self.newest {
            let next = tables
                .touched
                .get_greater_than(txn, &keys::touched(entity, revision))?;
            if let Some((key, state)) = next
                && keys::touched_by(key, entity).is_some()
            {
                return Ok(existing(state));
            }
        }
        Ok(tables.entities.get(txn, entity)?)
    }

    /// Finds the newest revision older than `before` that was created within the period.
    fn start(&self, before: Option<Revision>, period: Period) -> Result<u64, StoreError> {
        let before = before.map_or(u64::MAX, |before| before.0);
        let start = self.newest.min(before.saturating_sub(1));
        if period.until_ms == u64::MAX {
            return Ok(start);
        }
        // The times of revisions never decrease.
        let (mut within, mut beyond) = (self.oldest, start.max(self.oldest) + 1);
        while within + 1 < beyond {
            let middle = within + (beyond - within) / 2;
            let made = record::time(self.head(middle)?).ok_or(DAMAGED_JOURNAL)?;
            if made <= period.until_ms {
                within = middle;
            } else {
                beyond = middle;
            }
        }
        Ok(within)
    }

    fn head(&self, revision: u64) -> Result<&'v [u8], StoreError> {
        let key = keys::journal(revision, HEAD_PIECE);
        let head = self.view.tables().journal.get(self.view.txn(), &key)?;
        Ok(head.ok_or(DAMAGED_JOURNAL)?)
    }

    fn kept_info(&self, revision: u64) -> Result<RevisionInfo, StoreError> {
        Ok(record::info(revision, self.head(revision)?).ok_or(DAMAGED_JOURNAL)?)
    }

    fn check_state(&self, revision: Revision) -> Result<(), ChangeLogError> {
        let (head, oldest) = (self.newest(), self.oldest());
        if revision > head {
            Err(ChangeLogError::Unknown { revision, head })
        } else if revision < oldest {
            Err(ChangeLogError::NotKept { revision, oldest })
        } else {
            Ok(())
        }
    }

    fn check_record(&self, revision: Revision) -> Result<(), ChangeLogError> {
        let (head, oldest) = (self.newest(), Revision(self.oldest + 1));
        // Revision 0, the empty store, has no record.
        if revision > head || revision.0 == 0 {
            Err(ChangeLogError::Unknown { revision, head })
        } else if revision < oldest {
            Err(ChangeLogError::NotKept { revision, oldest })
        } else {
            Ok(())
        }
    }
}

fn into_changes<'v>(
    differences: impl Iterator<Item = Result<Difference<'v>, StoreError>>,
) -> Result<Vec<Change>, StoreError> {
    differences
        .map(|difference| Ok(difference?.into_change()))
        .collect()
}

impl Difference<'_> {
    fn into_change(self) -> Change {
        let Difference { kind, id, .. } = self;
        match self.after {
            Some(entity) => Change::Put {
                kind,
                id,
                entity: entity.to_vec(),
            },
            None => Change::Delete { kind, id },
        }
    }
}

impl<T> PastPage<T> {
    fn new(size: usize) -> Self {
        Self {
            items: Vec::with_capacity(size.min(1000)),
            next: None,
        }
    }

    /// Adds an item. If the page is already full, sets the start of the next page instead and returns false.
    fn push(&mut self, item: T, revision: impl Fn(&T) -> Revision, size: usize) -> bool {
        if self.items.len() < size {
            self.items.push(item);
            return true;
        }
        self.next = self.items.last().map(revision);
        false
    }
}

/// A name with its values then and now.
type ThenAndNow = (String, [Option<Vec<u8>>; 2]);

const DAMAGED_JOURNAL: Damage = Damage::Entry { table: "journal" };
const DAMAGED_TOUCHED: Damage = Damage::Entry { table: "touched" };

/// An empty state means that the entity did not exist, because an encoded entity is never empty.
fn existing(state: &[u8]) -> Option<&[u8]> {
    (!state.is_empty()).then_some(state)
}

fn as_slice<const N: usize>(bound: &Bound<[u8; N]>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
