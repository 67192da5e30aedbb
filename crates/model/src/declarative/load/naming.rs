//! Identifies entities by id and name, and resolves references.

use super::{Load, Mode, Others, ParentEntity, duplicate_message, text_of};
use crate::declarative::problems::{Problem, Taken};
use crate::declarative::relations::{self, Relations};
use crate::declarative::{KeyPart, ids};
use crate::kind::EntityKind;
use crate::value::{Object, Value};
use compact_str::CompactString;
use uuid::Uuid;

impl Load<'_> {
    /// Returns the given or derived id of an entity. Returns `None` if no value identifies it.
    pub(super) fn identify(&mut self, at: usize, relations: &Relations) -> Option<Uuid> {
        let parent = self.parent_id(at);
        let node = &mut self.nodes[at];
        let id = ids::stable(relations, &node.input, parent);
        if let Some(place) = &mut node.place
            && node.input.get("id").is_none_or(Value::is_null)
        {
            place.derived = id.filter(|_| relations.has_id);
        }
        id
    }

    /// The field that refers to the parent, with the parent's id.
    fn parent_id(&self, at: usize) -> Option<(&'static str, Uuid)> {
        let parent = self.nodes[at].parent?;
        let id = match parent.entity {
            ParentEntity::Node(at) => self.nodes[at].id,
            ParentEntity::Id(id) => id,
        };
        Some((parent.field, id))
    }

    /// Replaces references by the ids of the entities they refer to.
    pub(super) fn resolve(&mut self, at: usize, relations: &'static Relations) {
        for foreign in &relations.foreign {
            let value = self.nodes[at].input.get(foreign.field);
            let found = match value {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => self.find(foreign.kind, text),
                Some(Value::Object(object)) => match reference_id(object) {
                    Some(id) => self.find_id(foreign.kind, id),
                    // The schema refuses such a reference.
                    None => continue,
                },
                Some(_) => continue,
            };
            if found.is_none() {
                let problem = dangling(foreign, value.unwrap_or(&Value::Null));
                self.problem(at, problem);
            }
            let id = found.unwrap_or_else(Uuid::nil);
            let node = &mut self.nodes[at];
            node.input.insert(foreign.field, reference(id));
            let target = self.taken[foreign.kind.index()].ids.get(&id);
            if target != Some(&node.element) {
                self.shared.insert((foreign.kind, id));
            }
        }
        if let Some((field, id)) = self.parent_id(at) {
            self.nodes[at].input.insert(field, reference(id));
        }
    }

    /// Finds the entity that a text refers to. The text is a name or, if no entity has this name, an id.
    fn find(&self, kind: EntityKind, text: &str) -> Option<Uuid> {
        if let Some(id) = self.taken[kind.index()].names.get(text) {
            return Some(*id);
        }
        if let Some(field) = relations::of(kind).name
            && let Some(id) = self.other_by_unique(kind, field, text)
        {
            return Some(id);
        }
        self.find_id(kind, ids::parse(text)?)
    }

    /// Finds the entity with a unique value among those that stay in addition to the loaded ones.
    pub(super) fn other_by_unique(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Option<Uuid> {
        match self.others {
            Others::None => None,
            Others::Unchanged(unchanged) => unchanged.id_by_unique(kind, field, value),
            Others::Existing => {
                let id = self.existing.id_by_unique(kind, field, value)?;
                self.is_unclaimed(kind, id).then_some(id)
            }
        }
    }

    pub(super) fn is_unclaimed(&self, kind: EntityKind, id: Uuid) -> bool {
        !self.taken[kind.index()].ids.contains_key(&id)
    }

    fn find_id(&self, kind: EntityKind, id: Uuid) -> Option<Uuid> {
        let is_known = !self.is_unclaimed(kind, id)
            || match self.others {
                Others::None => false,
                Others::Unchanged(unchanged) => unchanged.has(kind, id),
                Others::Existing => self.existing.get(kind, id).is_some(),
            };
        is_known.then_some(id)
    }

    /// Assigns an entity its id and name, unless another entity already has them.
    pub(super) fn claim(&mut self, at: usize, relations: &Relations, id: Uuid) {
        let kind = relations.kind;
        let node = &mut self.nodes[at];
        node.id = id;
        if relations.has_id {
            node.input.insert("id", text_of(id));
        }
        let name = relations.name.and_then(|field| node.input.str(field));
        let name = name.map(CompactString::from);
        if let Some(place) = &mut node.place {
            place.key = name
                .as_ref()
                .map_or_else(|| id.to_string(), |name| name.to_string());
        }
        if let (Some(field), Some(name)) = (relations.name, name)
            && !self.claim_name(at, kind, field, name)
        {
            return;
        }
        if !self.claim_id(at, kind, id) {
            let message = duplicate_message(kind, "primary key", &id.to_string());
            let by = Taken::PrimaryKey;
            self.problem(at, Problem::Duplicate { message, by });
        }
    }

    fn claim_id(&mut self, at: usize, kind: EntityKind, id: Uuid) -> bool {
        if self.is_left_out_by_derived_id(at) {
            return self.taken[kind.index()].left_out.insert(id);
        }
        let is_free = self.is_free(kind, id);
        if is_free {
            let element = self.nodes[at].element;
            self.taken[kind.index()].ids.insert(id, element);
        }
        is_free
    }

    fn claim_name(
        &mut self,
        at: usize,
        kind: EntityKind,
        field: &str,
        name: CompactString,
    ) -> bool {
        let id = self.nodes[at].id;
        let other = match self.others {
            // The document may rename the entity that has the name, so this is checked after all ids are assigned.
            Others::Existing => None,
            _ => self.other_by_unique(kind, field, &name),
        };
        // A name that looks like an id could change the meaning of references that are already resolved. The `Report`
        // run loads the whole document and accepts such a name.
        let is_doubtful = self.mode == Mode::Quick && ids::parse(&name).is_some();
        let elsewhere = is_doubtful || other.is_some_and(|other| other != id);
        if elsewhere || self.taken[kind.index()].names.contains_key(&name) {
            let message = duplicate_message(kind, field, &name);
            let by = Taken::EndpointKey;
            self.problem(at, Problem::Duplicate { message, by });
            return false;
        }
        self.taken[kind.index()].names.insert(name, id);
        true
    }

    /// Whether the entity is given without an id and may be an existing entity with an id other than the derived one.
    pub(super) fn may_exist_under_another_id(&self, at: usize) -> bool {
        let has_no_id = || self.nodes[at].input.get("id").is_none_or(Value::is_null);
        matches!(self.others, Others::Existing) && has_no_id()
    }

    /// Finds the existing entity with the same name or unique values. The loaded entity then gets its id.
    pub(super) fn look_up(&self, at: usize, relations: &Relations) -> Option<Uuid> {
        let kind = relations.kind;
        let input = &self.nodes[at].input;
        let by_unique = |field: &&str| {
            let id = self.existing.id_by_unique(kind, field, input.str(field)?)?;
            self.is_free(kind, id).then_some(id)
        };
        let by_cache_key = || {
            let id = self.by_cache_key(relations, input)?;
            self.is_free(kind, id).then_some(id)
        };
        let by_name = relations.name.as_ref().and_then(by_unique);
        // An entity with another name is a different entity, even if it has the same unique value.
        let is_nameless = relations.name.is_none_or(|name| input.str(name).is_none());
        let others = relations.unique.iter().filter(|_| is_nameless);
        by_name
            .or_else(by_cache_key)
            .or_else(|| others.clone().find_map(by_unique))
    }

    /// Finds the existing entity with the same combination of unique values. References must be resolved.
    pub(super) fn by_cache_key(&self, relations: &Relations, entity: &Object) -> Option<Uuid> {
        if relations.cache_key.len() < 2 {
            return None;
        }
        let parts = relations.cache_key.iter().map(|part| {
            Some(match entity.get(part.field) {
                None | Some(Value::Null) => KeyPart::Absent,
                Some(Value::String(text)) => KeyPart::Text(text),
                Some(Value::Object(object)) => KeyPart::Reference(reference_id(object)?),
                Some(_) => return None,
            })
        });
        let parts: Option<Vec<KeyPart<'_>>> = parts.collect();
        self.existing.id_by_cache_key(relations.kind, &parts?)
    }

    fn is_free(&self, kind: EntityKind, id: Uuid) -> bool {
        let is_unchanged = match self.others {
            Others::Unchanged(unchanged) => unchanged.has(kind, id),
            Others::None | Others::Existing => false,
        };
        self.is_unclaimed(kind, id) && !is_unchanged
    }
}

fn reference_id(object: &Object) -> Option<Uuid> {
    ids::parse(object.str("id")?)
}

fn reference(id: Uuid) -> Value {
    let mut object = Object::with_capacity(1);
    object.push("id", text_of(id));
    Value::Object(object)
}

fn dangling(foreign: &relations::Foreign, value: &Value) -> Problem {
    let shown = match value {
        Value::String(text) => text.to_string(),
        other => serde_json::to_string(other).unwrap_or_default(),
    };
    let message = format!(
        "invalid reference '{}: {shown}' (no such entry in '{}')",
        foreign.field,
        foreign.kind.name()
    );
    Problem::Dangling {
        field: foreign.field.to_owned(),
        message,
    }
}
