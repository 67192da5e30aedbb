//! Errors of the store.

use crate::change::Revision;
use model::error::brace_notation;
use model::{EntityKind, Error, ErrorCode, Object, Value};
use std::io;
use std::path::PathBuf;
use uuid::Uuid;

/// A file that was intact when it was opened can no longer be read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be read: {0}")]
    Lmdb(#[from] heed::Error),
    #[error("the store is damaged: {0}")]
    Damaged(#[from] Damage),
}

/// The reason why a store cannot be opened. A damaged file is not an error here: see [`crate::Recovery::SetAside`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the store {path} is in use by another process")]
    InUse { path: PathBuf },
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot open the store {path}: {source}")]
    Lmdb { path: PathBuf, source: heed::Error },
    /// The file is left unchanged, because it may be an intact file of another program or version.
    #[error("{path} is not a store of this version: {reason}")]
    Foreign { path: PathBuf, reason: Damage },
    /// Only [`crate::Inspection`] reports this, because [`crate::Store::open`] renames a damaged file.
    #[error("the store {path} is damaged: {damage}")]
    Damaged { path: PathBuf, damage: Damage },
    #[error(
        "{path} was set aside as {aside} ({damage}), and a new store cannot be created: {source}"
    )]
    AfterSettingAside {
        path: PathBuf,
        aside: PathBuf,
        damage: Damage,
        source: Box<OpenError>,
    },
}

/// The kind of damage in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("it is not an LMDB file")]
    NotLmdb,
    #[error("it was written in LMDB format {found}, this program reads {expected}")]
    LmdbFormat { found: u32, expected: u32 },
    #[error("it is an LMDB file of another program")]
    OtherProgram,
    #[error("it was written in store format {found}, this program reads {expected}")]
    Format { found: u32, expected: u32 },
    #[error("it ends at byte {length}, before page {page}")]
    Truncated { length: u64, page: u64 },
    #[error("page {page} is damaged ({what})")]
    Page { page: u64, what: &'static str },
    #[error("its header is damaged")]
    Header,
    #[error("the checksum of the table {table} is wrong")]
    Checksum { table: &'static str },
    #[error("LMDB refuses it: {0}")]
    Refused(String),
    #[error("an entry of the table {table} cannot be read")]
    Entry { table: &'static str },
    #[error("an earlier file was set aside, and nothing has been written since")]
    Earlier,
}

impl Damage {
    /// Whether the file seems to be an intact file of another program or version.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(
            self,
            Damage::NotLmdb
                | Damage::LmdbFormat { .. }
                | Damage::OtherProgram
                | Damage::Format { .. }
        )
    }
}

/// A rule that a change set violates, as the Admin API reports it.
#[derive(Debug, Clone, PartialEq)]
pub enum Violation {
    /// Another entity of the same type has the same value in a unique field, or in the fields of the composite cache
    /// key.
    Unique {
        kind: EntityKind,
        id: Uuid,
        existing: Uuid,
        /// The fields and their values in the entity `id`; absent fields are null.
        key: Object,
    },
    /// A reference to a missing entity.
    Foreign {
        kind: EntityKind,
        id: Uuid,
        field: String,
        parent_kind: EntityKind,
        parent: Uuid,
    },
    /// The entity cannot be removed while others reference it.
    Referenced {
        kind: EntityKind,
        id: Uuid,
        by: EntityKind,
    },
    /// The bytes of a `Put` are not an encoded entity.
    Malformed { kind: EntityKind, id: Uuid },
}

impl Violation {
    pub fn kind(&self) -> EntityKind {
        match self {
            Violation::Unique { kind, .. }
            | Violation::Foreign { kind, .. }
            | Violation::Referenced { kind, .. }
            | Violation::Malformed { kind, .. } => *kind,
        }
    }

    pub fn id(&self) -> Uuid {
        match self {
            Violation::Unique { id, .. }
            | Violation::Foreign { id, .. }
            | Violation::Referenced { id, .. }
            | Violation::Malformed { id, .. } => *id,
        }
    }

    /// Converts to the Admin API's error. Source of the texts: kong/db/errors.lua.
    pub fn to_error(&self) -> Error {
        match self {
            Violation::Unique { key, .. } => {
                let shown = brace_notation(&Value::Object(key.clone()));
                Error::new(
                    ErrorCode::UniqueViolation,
                    format!("UNIQUE violation detected on '{shown}'"),
                )
                .with_fields(key.clone())
            }
            Violation::Foreign {
                field,
                parent_kind,
                parent,
                ..
            } => foreign_error(field, *parent_kind, *parent),
            Violation::Referenced { kind, by, .. } => {
                let (kind, by) = (kind.name(), by.name());
                let mut fields = Object::new();
                fields.push("@referenced_by", by.into());
                Error::new(
                    ErrorCode::ForeignKeyViolation,
                    format!("an existing '{by}' entity references this '{kind}' entity"),
                )
                .with_fields(fields)
            }
            Violation::Malformed { kind, id } => Error::new(
                ErrorCode::DatabaseError,
                format!("the bytes of {} {id} are not an entity", kind.name()),
            ),
        }
    }
}

fn foreign_error(field: &str, kind: EntityKind, parent: Uuid) -> Error {
    let mut reference = Object::new();
    reference.push("id", parent.to_string().into());
    let reference = Value::Object(reference);
    let shown = brace_notation(&reference);
    let mut fields = Object::new();
    fields.push(field, reference);
    Error::new(
        ErrorCode::ForeignKeyViolation,
        format!(
            "the foreign key '{shown}' does not reference an existing '{}' entity.",
            kind.name()
        ),
    )
    .with_fields(fields)
}

/// The error with which the caller of a transaction rejects the resulting state. The caller gets it back unchanged.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Rejected(pub Error);

/// The reason why a change set was not committed. None of its changes are in the store.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The change set is not based on the newest revision. The caller can base it on that revision and try again.
    #[error("the newest revision is {head}, not {expected}")]
    Conflict { expected: Revision, head: Revision },
    #[error("{} rules are broken, first: {}", .0.len(), first_text(.0))]
    Violations(Vec<Violation>),
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The caller abandoned the transaction.
    #[error("the transaction was given up")]
    Abandoned,
    /// An earlier error in the transaction prevents it from being committed.
    #[error("the transaction has failed before")]
    Spoiled,
    /// The configured maximum size is reached. Reads still work. Writes work again after entities are removed.
    #[error("the store has reached its largest size of {max_size} bytes")]
    Full { max_size: usize },
    /// LMDB reports a full disk as an input/output error if the last write was cut short.
    #[error("the change cannot be written, the disk is full or failing: {0}")]
    Disk(io::Error),
    #[error(transparent)]
    Store(StoreError),
}

fn first_text(violations: &[Violation]) -> String {
    violations
        .first()
        .map(|violation| violation.to_error().message)
        .unwrap_or_default()
}

impl CommitError {
    /// Returns the error that the Admin API reports, if the request is at fault.
    pub fn to_error(&self) -> Option<Error> {
        match self {
            CommitError::Violations(violations) => violations.first().map(Violation::to_error),
            CommitError::Rejected(Rejected(error)) => Some(error.clone()),
            _ => None,
        }
    }
}

impl From<Damage> for CommitError {
    fn from(damage: Damage) -> Self {
        CommitError::Store(StoreError::Damaged(damage))
    }
}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Lmdb(error) => error.into(),
            StoreError::Damaged(_) => CommitError::Store(error),
        }
    }
}

impl From<heed::Error> for CommitError {
    fn from(error: heed::Error) -> Self {
        match error {
            heed::Error::Io(error) => CommitError::Disk(error),
            heed::Error::Mdb(heed::MdbError::Other(code)) => {
                CommitError::Disk(io::Error::from_raw_os_error(code))
            }
            // `Store::write` fills in the size, which is not known here.
            heed::Error::Mdb(heed::MdbError::MapFull) => CommitError::Full { max_size: 0 },
            other => CommitError::Store(StoreError::Lmdb(other)),
        }
    }
}
