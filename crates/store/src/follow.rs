//! Follows the change log, revision by revision. A follower has no queue. It reads the change log and stores only the
//! number of the last revision that it has seen. So a slow follower needs no memory and notices all missed revisions.

use crate::change::Revision;
use crate::change_log::ChangeLogError;
use crate::past::Difference;
use crate::record::RevisionInfo;
use crate::store::Store;
use model::EntityKind;
use uuid::Uuid;

/// Reads the revisions after a given one, each once and in order.
#[derive(Debug)]
pub struct Follower {
    store: Store,
    seen: Revision,
}

/// The next event for a follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A revision. There may be many changes; [`Follower::changes`] reads them.
    Happened(RevisionInfo),
    /// The records of the revisions from `from` to `to`, both included, were removed. Only their effect on the state is
    /// visible.
    Gap { from: Revision, to: Revision },
}

/// An entity that a revision has changed, directly or by removing another entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    pub effect: Effect,
    pub kind: EntityKind,
    pub id: Uuid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Created,
    Updated,
    Deleted,
}

impl Follower {
    /// Starts after the revision `seen`.
    pub fn new(store: Store, seen: Revision) -> Self {
        Self { store, seen }
    }

    /// The last revision that was reported, including those in a gap.
    pub fn seen(&self) -> Revision {
        self.seen
    }

    /// Returns the event after the last one, up to the revision `limit`; `None` if there is no event. To follow all
    /// durable revisions, wait with [`crate::ChangeLog::watch`] for the newest revision to grow.
    ///
    /// Like a lookup, this reads the memory map of the file. It leaves no transaction open.
    pub fn next(&mut self, limit: Revision) -> Result<Option<Event>, ChangeLogError> {
        if self.seen >= limit {
            return Ok(None);
        }
        let view = self.store.view()?;
        let history = view.history()?;
        let limit = limit.min(history.newest());
        if self.seen >= limit {
            return Ok(None);
        }
        let next = Revision(self.seen.0 + 1);
        let (seen, event) = if next > history.oldest() {
            (next, Event::Happened(history.info(next)?))
        } else {
            let to = limit.min(history.oldest());
            (to, Event::Gap { from: next, to })
        };
        self.seen = seen;
        Ok(Some(event))
    }

    /// Returns the changes of a revision, ordered by type and id: at most `size` entities, starting at position `from`.
    /// Fails if the revision is no longer kept, which may happen soon after it was reported.
    pub fn changes(
        &self,
        revision: Revision,
        from: usize,
        size: usize,
    ) -> Result<Vec<Changed>, ChangeLogError> {
        let view = self.store.view()?;
        let differences = view.history()?.changes(revision, from, size)?;
        Ok(differences.iter().map(Changed::from).collect())
    }
}

impl From<&Difference<'_>> for Changed {
    fn from(difference: &Difference<'_>) -> Self {
        Self {
            effect: match (difference.before, difference.after) {
                (None, _) => Effect::Created,
                (_, Some(_)) => Effect::Updated,
                (_, None) => Effect::Deleted,
            },
            kind: difference.kind,
            id: difference.id,
        }
    }
}
