//! The kinds of entities, as small handles. The properties of a kind are in the installed registry
//! ([`crate::schema::registry`]), because plugins bring kinds of their own.

use crate::schema::{installed, registry};
use std::fmt;

/// A kind of entity. [`name`](Self::name) is its collection name in Admin API errors, declarative files and schemas.
///
/// The store writes the numbers of kinds, so a number never changes and is never reused for another kind. Numbers below
/// [`FIRST_OF_PLUGINS`](Self::FIRST_OF_PLUGINS) belong to the kinds of this crate. A plugin declares its kinds beside
/// their schemas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntityKind(u8);

/// The kinds that the gateway itself knows.
#[expect(
    non_upper_case_globals,
    reason = "the constants stand for the variants of an open enumeration, and are used like variants in patterns"
)]
impl EntityKind {
    pub const Workspaces: Self = Self(1);
    pub const Consumers: Self = Self(2);
    pub const Certificates: Self = Self(3);
    pub const CaCertificates: Self = Self(4);
    pub const Services: Self = Self(5);
    pub const Routes: Self = Self(6);
    pub const Snis: Self = Self(7);
    pub const Upstreams: Self = Self(8);
    pub const Targets: Self = Self(9);
    pub const Plugins: Self = Self(10);
    pub const Tags: Self = Self(11);
    pub const Vaults: Self = Self(12);
    pub const KeySets: Self = Self(13);
    pub const Keys: Self = Self(14);
    pub const FilterChains: Self = Self(15);
    pub const Parameters: Self = Self(16);
    pub const ClusteringDataPlanes: Self = Self(17);
}

impl EntityKind {
    /// Exclusive upper bound of the numbers. Tables with an entry per kind have this size.
    pub const LIMIT: usize = 64;

    /// The lowest number of a plugin's kind.
    pub const FIRST_OF_PLUGINS: u8 = 32;

    /// Returns the handle with this number, for the declaration of a plugin's kind. The registry refuses a number that
    /// is taken or out of range.
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    pub const fn number(self) -> u8 {
        self.0
    }

    /// The position of the kind in tables with [`LIMIT`](Self::LIMIT) entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub fn name(self) -> &'static str {
        registry().entity(self).name
    }

    /// All kinds, ordered so that each one comes after the kinds that it refers to.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone {
        registry().kinds().iter().copied()
    }

    pub fn from_name(name: &str) -> Option<Self> {
        registry().by_name(name).map(|schema| schema.kind)
    }

    pub fn from_number(number: u8) -> Option<Self> {
        let kind = Self(number);
        registry().has(kind).then_some(kind)
    }
}

impl fmt::Debug for EntityKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match installed().filter(|registry| registry.has(*self)) {
            Some(registry) => formatter.write_str(registry.entity(*self).name),
            None => write!(formatter, "EntityKind({})", self.0),
        }
    }
}
