//! What every journal does, wherever it keeps the revisions.

use crate::change::{ChangeSet, Origin, Revision};
use crate::error::{CommitError, StoreError};
use model::EntityKind;
use tokio::sync::watch;
use uuid::Uuid;

/// The ordered list of change sets.
///
/// The calls block on the disk or the network: off the worker threads, please.
pub trait Journal: Send + Sync {
    /// Appends a change set, if `expected_head` is none or still the newest revision, and applies it to the mirror. When
    /// it returns, the revision is on disk. A change set that changes nothing makes no revision: the head comes back.
    fn commit(
        &self,
        expected_head: Option<Revision>,
        change_set: ChangeSet,
        origin: &Origin,
    ) -> Result<Revision, CommitError>;

    /// What leads from a kept revision to the newest: one change for each entity that differs.
    fn changes_since(&self, revision: Revision) -> Result<Changes, JournalError>;

    /// Calls `visit` with every entity of a kept revision, ordered by kind and id.
    fn snapshot_at(
        &self,
        revision: Revision,
        visit: &mut dyn FnMut(EntityKind, Uuid, &[u8]),
    ) -> Result<(), JournalError>;

    /// The newest revision, now and whenever there is a newer one.
    fn watch(&self) -> watch::Receiver<Revision>;

    fn head(&self) -> Revision;
}

/// The difference of two revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    pub from: Revision,
    pub to: Revision,
    pub change_set: ChangeSet,
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("revision {revision} is not kept any more, the oldest is {oldest}")]
    NotKept {
        revision: Revision,
        oldest: Revision,
    },
    #[error("there is no revision {revision}, the newest is {head}")]
    Unknown { revision: Revision, head: Revision },
    #[error(transparent)]
    Store(#[from] StoreError),
}
