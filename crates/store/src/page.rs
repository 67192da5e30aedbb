//! The arguments and results of listing.

use model::EntityKind;
use uuid::Uuid;

/// One page of entities, ordered by id. Stable while the collection is written: the next page starts after an id, not at
/// a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'v> {
    pub entities: Vec<(Uuid, &'v [u8])>,
    /// Give it as `after` for the next page; `None` on the last one.
    pub next: Option<Uuid>,
}

/// Which entities of a kind to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TagFilter<'t> {
    #[default]
    None,
    /// Those that have every tag: `?tags=a,b`.
    All(&'t [&'t str]),
    /// Those that have at least one: `?tags=a/b`.
    Any(&'t [&'t str]),
}

/// One entry of the list of tags.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tagged {
    pub tag: String,
    pub kind: EntityKind,
    pub id: Uuid,
}
