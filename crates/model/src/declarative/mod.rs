//! Declarative configuration: from the text of a document to what has to be written to the store.
//!
//! A document is read (JSON or YAML), its formats 1.1 and 2.1 migrated, nested entities are taken apart, references by
//! name resolved, ids derived, every entity completed by its schema, and the outcome compared with what is
//! [`Existing`]. Either every problem is reported at once, each at its path, or a [`Document`] says what differs.
//! Source of the rules: kong/db/declarative/ and kong/db/schema/others/declarative_config.lua.
//!
//! Nothing here does I/O; reading files and committing changes is for the caller.

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
pub use problems::MOST_OF_DOCUMENT;
pub use text::{EMPTY_HASH, Parameters, hash, parse, sniff, structured_hash};

use crate::kind::EntityKind;
use crate::schema::Context;
use crate::value::Object;
use uuid::Uuid;

/// The workspace of every entity; added to each configuration.
pub const DEFAULT_WORKSPACE: Uuid = Uuid::from_u128(0x0dc6f45b_8f8d_40d2_a504_473544ee190b);

/// How a document is checked and reported.
#[derive(Debug, Clone)]
pub struct Options {
    pub context: Context,
    /// Report entity problems in `flattened_errors` instead of `fields`.
    pub flatten_errors: bool,
}

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    /// JSON is tried first, then YAML, whose error is the one reported.
    Auto,
}

/// Where a document comes from.
#[derive(Debug)]
pub enum Source<'a> {
    /// A file, a `config` parameter or a YAML body.
    Text(&'a [u8], Format),
    /// The JSON body of a request that is itself a configuration: `check_hash` and `flatten_errors` in it are
    /// parameters of the request, not of the document.
    JsonBody(&'a [u8]),
    /// Form or multipart fields that are a configuration.
    Object(Object),
}

/// The configuration that a document is going to replace or to be added to. Ids, timestamps and generated values of entities that do not
/// change are taken from it.
pub trait Existing {
    /// The entity's encoded bytes ([`crate::codec`]).
    fn get(&self, kind: EntityKind, id: Uuid) -> Option<&[u8]>;
    /// The entity with this value of a unique text field.
    fn id_by_unique(&self, kind: EntityKind, field: &str, value: &str) -> Option<Uuid>;
    /// The entity with these values together ([`crate::schema::EntitySchema::cache_key`]).
    fn id_by_cache_key(&self, kind: EntityKind, parts: &[KeyPart<'_>]) -> Option<Uuid>;
    /// Every entity of a kind, in any order.
    fn for_each(&self, kind: EntityKind, visit: &mut dyn FnMut(Uuid, &[u8]));
}

/// A field of a composite cache key, in the order of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPart<'k> {
    Absent,
    Text(&'k str),
    Reference(Uuid),
}

/// An empty configuration: what `config parse` and tests compare with.
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

/// An accepted document, as its difference from what exists.
#[derive(Debug, Default)]
pub struct Document {
    /// New and changed entities, each after those it refers to.
    pub puts: Vec<Put>,
    /// What exists and is not in the document, each before those it refers to. None when the document is added to what exists.
    pub deletes: Vec<(EntityKind, Uuid)>,
    /// Entities whose stored form is transformed (hashed passwords …) as they were before that: the answer to
    /// `POST /config` shows these.
    pub untransformed: Vec<(EntityKind, Uuid, Object)>,
    pub counts: Counts,
    /// Whether there is nothing in it but workspaces. A document that is added to what exists is never empty.
    pub is_empty: bool,
    /// What is accepted although it can hardly be meant, as sentences.
    pub warnings: Vec<String>,
}

/// What becomes of the entities that a document was loaded for.
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
    /// Its encoded bytes ([`crate::codec`]).
    pub entity: Vec<u8>,
}
