//! What a write is made of.

use model::EntityKind;
use std::fmt;
use uuid::Uuid;

/// The number of a change set in the journal. An empty store is at 0; each commit that changes something adds one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// One entity set or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Creates the entity or replaces it whole; `entity` is what `model::codec::encode` gave.
    Put {
        kind: EntityKind,
        id: Uuid,
        entity: Vec<u8>,
    },
    /// Removes the entity, and those that refer to it with `on_delete = cascade`. Removing what does not exist is no error.
    Delete { kind: EntityKind, id: Uuid },
}

impl Change {
    pub fn kind(&self) -> EntityKind {
        match self {
            Change::Put { kind, .. } | Change::Delete { kind, .. } => *kind,
        }
    }

    pub fn id(&self) -> Uuid {
        match self {
            Change::Put { id, .. } | Change::Delete { id, .. } => *id,
        }
    }
}

/// Who made a change, from where and why: kept with its revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The address of the client, or the part of this program that made it (`file`, `import`).
    pub source: String,
    /// As whom the client has shown itself: the name of a token, the subject of a certificate.
    pub actor: Option<String>,
    pub request_id: Option<String>,
    pub message: Option<String>,
}

impl Origin {
    /// A part of this program.
    pub fn program(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            ..Self::default()
        }
    }
}

/// An entity that was changed, whether written, removed or gone with another. Its present state is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    pub kind: EntityKind,
    pub id: Uuid,
    /// The encoded entity before; `None` when it did not exist.
    pub old: Option<Vec<u8>>,
}

/// Changes that take effect together or not at all. Their order does not matter, but that the last one of an entity counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    pub changes: Vec<Change>,
    /// Values kept beside the entities under a name, such as the hash of the configuration; `None` removes one.
    pub meta: Vec<(String, Option<Vec<u8>>)>,
}

impl ChangeSet {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.meta.is_empty()
    }

    /// Bytes of the entities.
    pub(crate) fn size(&self) -> usize {
        let puts = self.changes.iter().map(|change| match change {
            Change::Put { entity, .. } => entity.len(),
            Change::Delete { .. } => 0,
        });
        puts.sum()
    }
}
