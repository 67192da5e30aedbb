//! Declarative configuration: converts the text of a document to changes of the store.
//!
//! A JSON or YAML document is parsed and migrated from the formats 1.1 and 2.1. Nested entities are separated,
//! references by name are resolved, and ids are derived. The schemas complete every entity, and the result is compared
//! with the [`Existing`] configuration. The outcome is a [`Document`] with the differences, or an error with all
//! problems and their paths. Source of the rules: kong/db/declarative/ and
//! kong/db/schema/others/declarative_config.lua.
//!
//! This module does no I/O: the caller reads files and commits changes.

mod emit;
mod export;
mod ids;
mod json;
mod listing;
mod load;
mod loader;
mod memo;
mod migrate;
mod outline;
mod positions;
mod problems;
mod relations;
mod scalar;
mod text;
mod yaml;

pub use export::{ExportError, ExportFormat, export};
pub use listing::format_cli_errors;
pub use loader::{Loader, load, merge};
pub use problems::MAX_OF_DOCUMENT;
pub use text::{EMPTY_HASH, Parameters, hash, parse, sniff, structured_hash};

use crate::kind::EntityKind;
use crate::schema::Context;
use crate::value::Object;
use uuid::Uuid;

/// The id of the default workspace, to which every entity belongs. The loader adds this workspace if a document lacks
/// it.
pub const DEFAULT_WORKSPACE: Uuid = Uuid::from_u128(0x0dc6f45b_8f8d_40d2_a504_473544ee190b);

/// Settings for checking a document and reporting its problems.
#[derive(Debug, Clone)]
pub struct Options {
    pub context: Context,
    /// Report entity problems in `flattened_errors` instead of `fields`.
    pub flatten_errors: bool,
}

/// The format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    /// JSON is tried first, then YAML. The error of the YAML parser is reported.
    Auto,
}

/// The form in which a document is given.
#[derive(Debug)]
pub enum Source<'a> {
    /// A file, a `config` parameter or a YAML body.
    Text(&'a [u8], Format),
    /// The JSON body of a request that is itself a configuration. Its fields `check_hash` and `flatten_errors` are
    /// parameters of the request and not part of the document.
    JsonBody(&'a [u8]),
    /// Form or multipart fields that form a configuration.
    Object(Object),
}

/// The configuration that a document replaces or is added to. Entities that do not change keep their existing ids,
/// timestamps and generated values.
pub trait Existing {
    /// Returns the entity's encoded bytes ([`crate::codec`]).
    fn get(&self, kind: EntityKind, id: Uuid) -> Option<&[u8]>;
    /// Returns the id of the entity with this value of a unique text field.
    fn id_by_unique(&self, kind: EntityKind, field: &str, value: &str) -> Option<Uuid>;
    /// Returns the id of the entity with this combination of values ([`crate::schema::EntitySchema::cache_key`]).
    fn id_by_cache_key(&self, kind: EntityKind, parts: &[KeyPart<'_>]) -> Option<Uuid>;
    /// Visits every entity of a kind, in any order.
    fn for_each(&self, kind: EntityKind, visit: &mut dyn FnMut(Uuid, &[u8]));
}

/// The value of one field of a composite cache key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPart<'k> {
    Absent,
    Text(&'k str),
    Reference(Uuid),
}

/// An empty configuration, for `config parse` and tests.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Existing for Nothing {
    fn get(&self, _: EntityKind, _: Uuid) -> Option<&[u8]> {
        None
    }

    fn id_by_unique(&self, _: EntityKind, _: &str, _: &str) -> Option<Uuid> {
        None
    }

    fn id_by_cache_key(&self, _: EntityKind, _: &[KeyPart<'_>]) -> Option<Uuid> {
        None
    }

    fn for_each(&self, _: EntityKind, _: &mut dyn FnMut(Uuid, &[u8])) {}
}

/// An accepted document, as the differences from the existing configuration.
#[derive(Debug, Default)]
pub struct Document {
    /// New and changed entities. Each one comes after the entities that it refers to.
    pub puts: Vec<Put>,
    /// Existing entities that the document lacks. Each one comes before the entities that it refers to. Empty if the
    /// document is added to the existing configuration.
    pub deletes: Vec<(EntityKind, Uuid)>,
    /// The original form of entities with transformed fields, such as hashed passwords. The response of `POST /config`
    /// shows this form.
    pub untransformed: Vec<(EntityKind, Uuid, Object)>,
    pub counts: Counts,
    /// Whether the document contains only workspaces. Always false if it is added to the existing configuration.
    pub is_empty: bool,
    /// Sentences about accepted input that is probably a mistake.
    pub warnings: Vec<String>,
}

/// Numbers of entities that the document creates, updates or leaves unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub created: usize,
    pub updated: usize,
    pub unchanged: usize,
}

/// One entity to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Put {
    pub kind: EntityKind,
    pub id: Uuid,
    /// The entity's encoded bytes ([`crate::codec`]).
    pub entity: Vec<u8>,
}
