//! The indexed fields of entities, and the effect of a removal on the entities that reference the removed one. These
//! rules are compiled once from the schemas, so that commits can use them fast.

use model::EntityKind;
use model::schema::{EntitySchema, OnDelete, registry};
use std::sync::LazyLock;

/// Maximum number of indexed fields of an entity type. [`Rules::of`] panics if a schema has more.
pub(crate) const MAX_SLOTS: usize = 12;

/// Exclusive upper bound of the numbers of entity types.
pub(crate) const KINDS: usize = EntityKind::LIMIT;

/// A field that references an entity of another type.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) field: &'static str,
    pub(crate) slot: usize,
    pub(crate) parent: EntityKind,
}

/// A field, usually of another type, that references entities of this type.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) kind: EntityKind,
    pub(crate) field: &'static str,
    pub(crate) on_delete: OnDelete,
}

#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The fields that are read from an entity. A slot is an index into this list.
    pub(crate) fields: Vec<&'static str>,
    /// Slots of the unique fields.
    pub(crate) unique: Vec<usize>,
    /// Slots of the composite cache key. Empty if the type has no cache key. Also empty if the key has a single field,
    /// because that field itself is unique.
    pub(crate) cache_key: Vec<usize>,
    pub(crate) foreign: Vec<Foreign>,
    /// Slot of the reference to the consumer that every entity of this type belongs to. The type's entries in the table
    /// `unique` carry that consumer ([`crate::carried`]).
    pub(crate) consumer: Option<usize>,
    /// Slot of the field `tags`.
    pub(crate) tags: usize,
    pub(crate) referenced_by: Vec<Reference>,
}

pub(crate) fn of(kind: EntityKind) -> &'static Rules {
    static TABLE: LazyLock<Vec<Rules>> = LazyLock::new(compile);
    &TABLE[kind.index()]
}

fn compile() -> Vec<Rules> {
    let mut table: Vec<Rules> = (0..KINDS).map(|_| Rules::default()).collect();
    for schema in registry().entities() {
        table[schema.kind.index()] = Rules::of(schema);
    }
    for schema in registry().entities() {
        for foreign in &schema.foreign {
            table[foreign.kind.index()].referenced_by.push(Reference {
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
            if foreign.kind == EntityKind::Consumers && foreign.required {
                rules.consumer = Some(slot);
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
