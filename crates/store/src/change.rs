//! The types that describe a write.

use model::EntityKind;
use std::fmt;
use uuid::Uuid;

/// The number of a change set in the change log. An empty store has revision 0; each commit that changes something adds
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A change of one entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Creates the entity or replaces all of it. `entity` is the output of `model::codec::encode`.
    Put {
        kind: EntityKind,
        id: Uuid,
        entity: Vec<u8>,
    },
    /// Removes the entity, and all entities that reference it with `on_delete = cascade`. Removing a missing entity is
    /// no error.
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

/// The author of a change and the reason for it; stored with its revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The address of the client, or the component of this program that made the change (`file`, `import`).
    pub source: String,
    /// The authenticated identity of the client: the name of a token, or the subject of a certificate.
    pub actor: Option<String>,
    pub request_id: Option<String>,
    pub message: Option<String>,
}

impl Origin {
    /// Creates the origin of a change that a component of this program makes.
    pub fn program(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            ..Self::default()
        }
    }
}

/// An entity that was written or removed, directly or by a cascade. Its current state is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    pub kind: EntityKind,
    pub id: Uuid,
    /// The encoded entity before the change; `None` if it did not exist.
    pub old: Option<Vec<u8>>,
}

/// Changes that take effect together or not at all. Their order is irrelevant, except that the last change of an entity
/// wins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    pub changes: Vec<Change>,
    /// Named values stored next to the entities, such as the hash of the configuration; `None` removes a value.
    pub meta: Vec<(String, Option<Vec<u8>>)>,
}

impl ChangeSet {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.meta.is_empty()
    }

    /// Total size of the encoded entities in bytes.
    pub(crate) fn size(&self) -> usize {
        let puts = self.changes.iter().map(|change| match change {
            Change::Put { entity, .. } => entity.len(),
            Change::Delete { .. } => 0,
        });
        puts.sum()
    }
}
