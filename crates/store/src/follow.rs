//! Following the journal, revision by revision. The journal itself is the queue: a follower holds the number of the last revision
//! that it was told of and nothing else, so that one who is late costs nobody anything and misses nothing unnoticed.

use crate::change::Revision;
use crate::journal::JournalError;
use crate::past::Difference;
use crate::record::RevisionInfo;
use crate::store::Store;
use model::EntityKind;
use uuid::Uuid;

/// Reads the revisions after one, in order, each once.
#[derive(Debug)]
pub struct Follower {
    store: Store,
    seen: Revision,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// One revision. What it changed is asked for with [`Follower::changes`]: it may be a lot.
    Happened(RevisionInfo),
    /// The revisions from `from` to `to`, both included, are not kept any more: what they did can only be seen in the state.
    Gap { from: Revision, to: Revision },
}

/// An entity that a revision has changed, itself or because another one was removed.
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
    /// Follows from the revision after `seen`.
    pub fn new(store: Store, seen: Revision) -> Self {
        Self { store, seen }
    }

    /// The last revision that was told, be it by a gap.
    pub fn seen(&self) -> Revision {
        self.seen
    }

    /// What comes after the last event, but nothing after the revision `limit`; `None` when there is nothing until there. Who
    /// is to be told of all that is durable waits with [`crate::Journal::watch`] for that to grow.
    ///
    /// It reads the map, as every lookup does, and holds no transaction afterwards.
    pub fn next(&mut self, limit: Revision) -> Result<Option<Event>, JournalError> {
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

    /// What a revision changed, ordered by kind and id: at most `size` entities from the one at position `from` on. Fails when
    /// that is not kept any more, which may be so a moment after the revision was told.
    pub fn changes(
        &self,
        revision: Revision,
        from: usize,
        size: usize,
    ) -> Result<Vec<Changed>, JournalError> {
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
