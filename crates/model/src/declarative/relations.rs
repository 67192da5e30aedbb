//! The properties of each kind of entity that the loader needs: its name field, its references, and the kinds that can
//! be nested in it. They are read once from the schemas.

use crate::kind::EntityKind;
use crate::schema::{self, EntitySchema};
use std::sync::LazyLock;
use uuid::Uuid;

/// The namespace of all derived ids. Source: kong/db/schema/others/declarative_config.lua (uuid_generators).
const ROOT: Uuid = Uuid::from_u128(0xfd02801f_0957_4a15_a55a_c8d9606f30b5);

pub(super) struct Relations {
    pub kind: EntityKind,
    pub schema: &'static EntitySchema,
    /// The namespace of this kind's derived ids.
    pub namespace: Uuid,
    /// The field whose value references may use instead of an id. It is the endpoint key, if that is unique.
    pub name: Option<&'static str>,
    pub cache_key: Vec<KeyField>,
    pub foreign: Vec<Foreign>,
    /// Unique fields other than the name.
    pub unique: Vec<&'static str>,
    /// Fields that get a random value if absent.
    pub generated: &'static [String],
    pub children: Vec<Child>,
    /// Whether `id` is a field. Kinds such as parameters are identified by another field.
    pub has_id: bool,
}

pub(super) struct KeyField {
    pub field: &'static str,
    /// Whether an id can be derived only if this field has a value.
    pub needed: bool,
}

pub(super) struct Foreign {
    pub field: &'static str,
    pub kind: EntityKind,
}

/// A kind of entity that can be nested in another kind.
pub(super) struct Child {
    pub kind: EntityKind,
    pub name: &'static str,
    /// The child's field that refers to the parent.
    pub field: &'static str,
}

impl Relations {
    pub(super) fn child(&self, name: &str) -> Option<&Child> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(super) fn child_field(&self, kind: EntityKind) -> Option<&'static str> {
        let child = self.children.iter().find(|child| child.kind == kind);
        child.map(|child| child.field)
    }
}

pub(super) fn of(kind: EntityKind) -> &'static Relations {
    static ALL: LazyLock<Vec<Option<Relations>>> = LazyLock::new(all);
    ALL[kind.index()]
        .as_ref()
        .expect("every kind has its relations")
}

/// Returns the kind of a top-level collection. Documents do not contain tags as entities, because tags are only an
/// index of the other entities.
pub(super) fn collection(name: &str) -> Option<EntityKind> {
    EntityKind::from_name(name).filter(|kind| *kind != EntityKind::Tags)
}

fn all() -> Vec<Option<Relations>> {
    let mut all: Vec<Option<Relations>> = Vec::new();
    all.resize_with(EntityKind::LIMIT, || None);
    for kind in EntityKind::all() {
        all[kind.index()] = Some(relations(kind));
    }
    for kind in EntityKind::all() {
        for foreign in &schema::registry().entity(kind).foreign {
            let child = Child {
                kind,
                name: kind.name(),
                field: foreign.name.as_str(),
            };
            if let Some(parent) = &mut all[foreign.kind.index()] {
                parent.children.push(child);
            }
        }
    }
    all
}

fn relations(kind: EntityKind) -> Relations {
    let schema = schema::registry().entity(kind);
    let is_unique = |name: &str| schema.unique.iter().any(|unique| unique == name);
    let optional = |name: &str| {
        let reference = schema.foreign.iter().find(|foreign| foreign.name == name);
        reference.is_some_and(|foreign| !foreign.required)
    };
    let name = schema.endpoint_key.as_deref().filter(|key| is_unique(key));
    let unique_references = schema.foreign.iter().filter(|foreign| foreign.unique);
    Relations {
        kind,
        schema,
        namespace: Uuid::new_v5(&ROOT, kind.name().as_bytes()),
        name,
        cache_key: schema
            .cache_key
            .iter()
            .map(|field| KeyField {
                field,
                needed: !optional(field),
            })
            .collect(),
        foreign: schema
            .foreign
            .iter()
            .map(|foreign| Foreign {
                field: &foreign.name,
                kind: foreign.kind,
            })
            .collect(),
        unique: schema
            .unique
            .iter()
            .map(String::as_str)
            .filter(|field| name != Some(field))
            .chain(unique_references.map(|foreign| foreign.name.as_str()))
            .collect(),
        generated: &schema.generated,
        children: Vec::new(),
        has_id: schema.primary_key.iter().any(|key| key == "id"),
    }
}
