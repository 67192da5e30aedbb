//! Arguments and results of listing.

use model::EntityKind;
use uuid::Uuid;

/// A page of entities, ordered by id. The next page starts after an id, not at a position, so that concurrent writes do
/// not shift it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'v> {
    pub entities: Vec<(Uuid, &'v [u8])>,
    /// The value of `after` for the next page; `None` on the last page.
    pub next: Option<Uuid>,
}

/// Selects entities of a type by their tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TagFilter<'t> {
    #[default]
    None,
    /// Entities that have all of these tags: `?tags=a,b`.
    All(&'t [&'t str]),
    /// Entities that have at least one of these tags: `?tags=a/b`.
    Any(&'t [&'t str]),
}

/// An entry in the list of tags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tagged {
    pub tag: String,
    pub kind: EntityKind,
    pub id: Uuid,
}
