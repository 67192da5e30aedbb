//! Remembers the last document, so that posting it again costs little more than reading it. The memo contains the
//! document's elements (see [`super::outline`]) by a hash of their text, and the entities of each element.
//!
//! An unchanged element, with everything nested in it, is not parsed, validated or compared again. This requires that
//! the store still holds that document (checked by the revision), that the same rules apply (checked by the header),
//! and that changes elsewhere do not affect the element (see [`Unchanged`]). In case of doubt everything is loaded.

use super::Existing;
use super::load::{Loaded, Origin, Parent, ParentEntity};
use crate::hashing::{FastMap, FastSet};
use crate::kind::EntityKind;
use crate::schema::registry;
use crate::schema::{EnabledPlugins, RouterFlavor};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use uuid::Uuid;

/// The inputs, other than the elements, on which the result depends.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    pub migrate: bool,
    pub transform: bool,
    pub flavor: RouterFlavor,
    pub plugins: EnabledPlugins,
    pub dbless: bool,
}

/// Identifies an element by its kind and a 128-bit hash of its text. The hash uses random keys of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ElementKey {
    kind: EntityKind,
    hash: [u64; 2],
}

/// Hash tables use the hash that the key already contains.
impl Hash for ElementKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash[0]);
    }
}

#[derive(Debug, Default)]
pub(super) struct Hashing([RandomState; 2]);

impl Hashing {
    /// Hashes the text of an element. The hash of a nested element also covers its parent.
    pub(super) fn key(&self, kind: EntityKind, parent: Option<Parent>, text: &[u8]) -> ElementKey {
        let hash = self.0.each_ref().map(|state| {
            let mut hasher = state.build_hasher();
            if let Some(Parent {
                field,
                entity: ParentEntity::Id(id),
            }) = parent
            {
                hasher.write(id.as_bytes());
                hasher.write(field.as_bytes());
            }
            hasher.write(text);
            hasher.finish()
        });
        ElementKey { kind, hash }
    }
}

#[derive(Debug)]
pub(super) struct Memo {
    /// The store's revision that contains these entities.
    pub revision: u64,
    pub header: Header,
    elements: FastMap<ElementKey, Slot>,
    entities: Vec<Remembered>,
    /// Entities of elements that every load processes again.
    always: Vec<Remembered>,
    /// Entities that are referred to from other elements than their own.
    shared: FastSet<(EntityKind, Uuid)>,
    combinations: FastMap<u128, Uuid>,
}

/// The range of an element's entities in the memo.
#[derive(Debug, Clone, Copy)]
struct Slot {
    start: u32,
    length: u32,
}

#[derive(Debug, Clone, Copy)]
struct Remembered {
    kind: EntityKind,
    id: Uuid,
    combination: u128,
}

/// The elements that a new document shares with the remembered one, and the entities of all other remembered elements.
pub(super) struct Unchanged<'a> {
    memo: &'a Memo,
    existing: &'a dyn Existing,
    /// The remembered entities of each element of the new document, or `None` if the memo lacks the element.
    known: Vec<Option<Slot>>,
    /// Remembered entities that no unchanged element contains.
    replaced: FastSet<(EntityKind, Uuid)>,
}

/// Hashes the values that must be unique together. The hash is wide enough to exclude collisions in practice. It is
/// never zero, because zero means that there are no values.
pub(super) fn combination<'v>(kind: EntityKind, values: impl Iterator<Item = &'v str>) -> u128 {
    let mut hashers = [DefaultHasher::new(), DefaultHasher::new()];
    hashers[0].write_u8(kind.number());
    for value in values {
        for hasher in &mut hashers {
            value.hash(hasher);
        }
    }
    let [high, low] = hashers.map(|hasher| u128::from(hasher.finish()));
    (high << 64 | low).max(1)
}

impl Memo {
    /// Finds the unchanged elements of a document. Returns `None` if a partial load would be incorrect, or if less than
    /// half of the elements are unchanged.
    pub(super) fn recognize<'a>(
        &'a self,
        keys: &[ElementKey],
        existing: &'a dyn Existing,
    ) -> Option<Unchanged<'a>> {
        let mut known = vec![None; keys.len()];
        let mut used: FastSet<&ElementKey> =
            FastSet::with_capacity_and_hasher(keys.len(), Default::default());
        for (known, key) in known.iter_mut().zip(keys) {
            // The second of two equal elements is loaded, because its entities have different ids.
            if let Some(slot) = self.elements.get(key)
                && used.insert(key)
            {
                *known = Some(*slot);
            } else if key.kind == EntityKind::Workspaces {
                return None;
            }
        }
        if used.len() < keys.len() / 2 {
            return None;
        }
        let is_whole = used.len() == self.elements.len();
        let gone = self.elements.iter().filter(|_| !is_whole);
        let gone = gone.filter(|(key, _)| !used.contains(key));
        let mut replaced: FastSet<_> = self.always.iter().map(Remembered::key).collect();
        for (key, slot) in gone {
            if key.kind == EntityKind::Workspaces {
                return None;
            }
            replaced.extend(self.entities(*slot).iter().map(Remembered::key));
        }
        Some(Unchanged {
            memo: self,
            existing,
            known,
            replaced,
        })
    }

    /// Remembers a document whose elements were all loaded.
    pub(super) fn of_all(header: Header, keys: &[ElementKey], loaded: &Loaded) -> Self {
        Self::build(header, keys, loaded, None)
    }

    /// Remembers a document whose `unchanged` elements were not loaded.
    pub(super) fn of_part(
        header: Header,
        keys: &[ElementKey],
        loaded: &Loaded,
        unchanged: &Unchanged<'_>,
    ) -> Self {
        Self::build(header, keys, loaded, Some(unchanged))
    }

    fn build(
        header: Header,
        keys: &[ElementKey],
        loaded: &Loaded,
        unchanged: Option<&Unchanged<'_>>,
    ) -> Self {
        let mut memo = Self {
            revision: 0,
            header,
            elements: FastMap::with_capacity_and_hasher(keys.len(), Default::default()),
            entities: Vec::with_capacity(unchanged.map_or(0, |old| old.memo.entities.len())),
            always: Vec::new(),
            shared: loaded.shared.clone(),
            combinations: FastMap::default(),
        };
        if let Some(unchanged) = unchanged {
            memo.shared.extend(&unchanged.memo.shared);
        }
        let mut origins = loaded.entities.as_slice();
        for (number, key) in (0..).zip(keys) {
            match unchanged.and_then(|old| Some((old, old.slot(number)?))) {
                Some((old, slot)) => memo.remember(*key, old.memo.entities(slot).iter().copied()),
                None => {
                    let count = origins
                        .iter()
                        .take_while(|origin| origin.element == number)
                        .count();
                    let (own, rest) = origins.split_at(count);
                    origins = rest;
                    memo.remember_loaded(*key, own);
                }
            }
        }
        memo
    }

    fn remember_loaded(&mut self, key: ElementKey, origins: &[Origin]) {
        let entities = origins.iter().map(Remembered::from);
        if origins.iter().any(|origin| is_volatile(origin.kind)) || self.elements.contains_key(&key)
        {
            self.always.extend(entities);
        } else {
            self.remember(key, entities);
        }
    }

    fn remember(&mut self, key: ElementKey, entities: impl Iterator<Item = Remembered>) {
        let start = self.entities.len();
        self.entities.extend(entities);
        for entity in &self.entities[start..] {
            if entity.combination != 0 {
                self.combinations.insert(entity.combination, entity.id);
            }
        }
        // The number of entities fits in 32 bits, because more of them would not fit in memory.
        let slot = Slot {
            start: u32::try_from(start).unwrap_or(u32::MAX),
            length: u32::try_from(self.entities.len() - start).unwrap_or(0),
        };
        self.elements.insert(key, slot);
    }

    fn entities(&self, slot: Slot) -> &[Remembered] {
        let start = slot.start as usize;
        let range = start..start + slot.length as usize;
        self.entities.get(range).unwrap_or_default()
    }
}

/// Whether entities of this kind are loaded every time. The check of a CA certificate depends on the time. For
/// transformed kinds, the response shows values that are not stored.
fn is_volatile(kind: EntityKind) -> bool {
    kind == EntityKind::CaCertificates || registry().entity(kind).is_transformed()
}

impl Remembered {
    fn key(&self) -> (EntityKind, Uuid) {
        (self.kind, self.id)
    }
}

impl From<&Origin> for Remembered {
    fn from(origin: &Origin) -> Self {
        Self {
            kind: origin.kind,
            id: origin.id,
            combination: origin.combination,
        }
    }
}

impl Unchanged<'_> {
    pub(super) fn is_known(&self, number: u32) -> bool {
        self.slot(number).is_some()
    }

    fn slot(&self, number: u32) -> Option<Slot> {
        *self.known.get(number as usize)?
    }

    /// Whether the new document has exactly the elements of the old one.
    pub(super) fn is_everything(&self) -> bool {
        self.replaced.is_empty()
            && self.known.len() == self.memo.elements.len()
            && self.known.iter().all(Option::is_some)
    }

    /// Whether only workspaces are unchanged.
    pub(super) fn is_empty(&self) -> bool {
        let mut slots = self.known.iter().flatten();
        let is_workspace = |one: &Remembered| one.kind == EntityKind::Workspaces;
        slots.all(|slot| self.memo.entities(*slot).iter().all(is_workspace))
    }

    /// Whether an entity belongs to the existing configuration and is unchanged.
    pub(super) fn has(&self, kind: EntityKind, id: Uuid) -> bool {
        !self.replaced.contains(&(kind, id)) && self.existing.get(kind, id).is_some()
    }

    /// Returns the entity with a unique value, if it is unchanged.
    pub(super) fn id_by_unique(&self, kind: EntityKind, field: &str, value: &str) -> Option<Uuid> {
        let id = self.existing.id_by_unique(kind, field, value)?;
        (!self.replaced.contains(&(kind, id))).then_some(id)
    }

    /// Whether an unchanged entity has this combination of values. A wrong positive only costs a full load.
    pub(super) fn has_combination(&self, kind: EntityKind, combination: u128) -> bool {
        let holder = self.memo.combinations.get(&combination);
        holder.is_some_and(|id| !self.replaced.contains(&(kind, *id)))
    }

    /// Returns the entities of one kind that may change or disappear. Their elements changed, were removed, or are
    /// loaded every time.
    pub(super) fn replaced(&self, kind: EntityKind) -> impl Iterator<Item = Uuid> {
        let of_kind = self.replaced.iter().filter(move |(one, _)| *one == kind);
        of_kind.map(|(_, id)| *id)
    }

    /// Returns the replaced entities that unchanged elements may refer to.
    pub(super) fn shared(&self) -> impl Iterator<Item = (EntityKind, Uuid)> {
        let shared = self.replaced.iter().copied();
        shared.filter(|entity| self.memo.shared.contains(entity))
    }
}
