//! The indexed fields of entities, and the effect of a removal on the entities that reference the removed one. Compiled
//! once from the schemas, in a form that is fast to use in a commit.

use model::EntityKind;
use model::schema::{EntitySchema, OnDelete, registry};
use std::sync::LazyLock;

/// Length of the array of slots. At most seven are used, by the entity type with the most indexed fields.
pub(crate) const MAX_SLOTS: usize = 12;

/// Upper bound of the numbers of entity types.
pub(crate) const KINDS: usize = 64;

/// A field that references an entity of another type.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) field: &'static str,
    pub(crate) slot: usize,
    pub(crate) parent: EntityKind,
}

/// A field of another type that references this one.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) kind: EntityKind,
    pub(crate) field: &'static str,
    pub(crate) on_delete: OnDelete,
}

#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The fields to read of an entity; a slot is an index into this list.
    pub(crate) fields: Vec<&'static str>,
    /// Slots of the unique fields.
    pub(crate) unique: Vec<usize>,
    /// Slots of the composite cache key. Empty if the type has none, or one with a single field, which is unique
    /// itself.
    pub(crate) cache_key: Vec<usize>,
    pub(crate) foreign: Vec<Foreign>,
    pub(crate) tags: usize,
    pub(crate) referenced_by: Vec<Reference>,
}

pub(crate) fn of(kind: EntityKind) -> &'static Rules {
    static TABLE: LazyLock<Vec<Rules>> = LazyLock::new(compile);
    &TABLE[kind as usize]
}

fn compile() -> Vec<Rules> {
    let mut table: Vec<Rules> = (0..KINDS).map(|_| Rules::default()).collect();
    for schema in registry().entities() {
        table[schema.kind as usize] = Rules::of(schema);
    }
    for schema in registry().entities() {
        for foreign in &schema.foreign {
            table[foreign.kind as usize].referenced_by.push(Reference {
                kind: schema.kind,
                field: &foreign.name,
                on_delete: foreign.on_delete,
            });
        }
    }
    table
}

impl Rules {
    fn of(schema: &'static EntitySchema) -> Self {
        let mut rules = Rules::default();
        rules.tags = rules.slot("tags");
        for field in &schema.unique {
            let slot = rules.slot(field);
            rules.unique.push(slot);
        }
        for foreign in &schema.foreign {
            let slot = rules.slot(&foreign.name);
            if foreign.unique {
                rules.unique.push(slot);
            }
            rules.foreign.push(Foreign {
                field: &foreign.name,
                slot,
                parent: foreign.kind,
            });
        }
        if schema.cache_key.len() > 1 {
            rules.cache_key = schema
                .cache_key
                .iter()
                .map(|field| rules.slot(field))
                .collect();
        }
        assert!(
            rules.fields.len() <= MAX_SLOTS,
            "{} has too many indexed fields",
            schema.name
        );
        rules
    }

    fn slot(&mut self, field: &'static str) -> usize {
        let known = self.fields.iter().position(|known| *known == field);
        known.unwrap_or_else(|| {
            self.fields.push(field);
            self.fields.len() - 1
        })
    }
}
