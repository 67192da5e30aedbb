//! The interface of change logs, independent of where they keep the revisions.

use crate::change::{ChangeSet, Origin, Revision};
use crate::error::{CommitError, StoreError};
use model::EntityKind;
use tokio::sync::watch;
use uuid::Uuid;

/// The ordered list of change sets.
///
/// The methods may block on the disk or the network, so they must not run on worker threads.
pub trait ChangeLog: Send + Sync {
    /// Appends a change set and applies it to the entity tables. Fails if `expected_head` is given but is not the
    /// newest revision. The new revision is on disk when this returns. A change set that changes nothing creates no
    /// revision; then the newest revision is returned.
    fn commit(
        &self,
        expected_head: Option<Revision>,
        change_set: ChangeSet,
        origin: &Origin,
    ) -> Result<Revision, CommitError>;

    /// Returns the difference between a kept revision and the newest revision. It has one change for each entity that
    /// differs.
    fn changes_since(&self, revision: Revision) -> Result<Changes, ChangeLogError>;

    /// Calls `visit` for every entity of a kept revision, ordered by type and id.
    fn snapshot_at(
        &self,
        revision: Revision,
        visit: &mut dyn FnMut(EntityKind, Uuid, &[u8]),
    ) -> Result<(), ChangeLogError>;

    /// Returns a receiver with the newest revision, which is notified of each newer one.
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
pub enum ChangeLogError {
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
