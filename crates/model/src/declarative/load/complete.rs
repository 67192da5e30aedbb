//! Completes entities by their schemas, checks uniqueness, and compares the entities with the existing ones.

use super::{Load, Others, duplicate_message, text_of};
use crate::codec;
use crate::declarative::Put;
use crate::declarative::memo;
use crate::declarative::problems::{Problem, Taken};
use crate::declarative::relations::Relations;
use crate::kind::EntityKind;
use crate::value::{Object, Value};
use serde::Deserialize;
use uuid::Uuid;

/// The fields of a stored entity that the loader sets.
#[derive(Deserialize)]
struct Stamps {
    created_at: Option<Value>,
    updated_at: Option<Value>,
}

impl Load<'_> {
    pub(super) fn complete(&mut self, at: usize, relations: &'static Relations) {
        let mut input = std::mem::take(&mut self.nodes[at].input);
        let misplaced = self.take_misplaced(at, relations, &mut input);
        let has_time = input.get("created_at").is_some_and(|at| !at.is_null());
        let updated_at = input.get("updated_at").cloned();
        let absent = |field: &&str| input.get(field).is_none_or(Value::is_null);
        let generated: Vec<&'static str> = relations
            .generated
            .iter()
            .map(String::as_str)
            .filter(absent)
            .collect();
        let transforms = self.context.transform && relations.schema.is_transformed();
        let context = if transforms {
            &self.plain
        } else {
            &self.context
        };
        let mut entity = match relations.schema.process(input, context) {
            Ok(entity) => entity,
            Err(problems) => {
                if self.nodes[at].id.is_nil() {
                    // Nested entities refer to this one when they are checked, so it needs an id.
                    self.nodes[at].id = Uuid::new_v4();
                }
                return self.problem(at, Problem::Schema(problems));
            }
        };
        for (field, value) in misplaced {
            entity = relations.schema.with_field(entity, field, value);
        }
        if self.nodes[at].is_shadowed {
            return self.leave_out(at);
        }
        if self.nodes[at].id.is_nil() {
            self.identify_by_content(at, relations, &mut entity, &generated);
        }
        self.keep_generated(at, &mut entity, &generated);
        self.check_unique(at, relations, &entity);
        if transforms {
            entity = self.transform(at, relations, entity);
        }
        let times = Times {
            created: has_time,
            updated: updated_at.filter(|_| matches!(self.others, Others::Existing)),
        };
        self.settle(at, relations, entity, times);
    }

    fn identify_by_content(
        &mut self,
        at: usize,
        relations: &Relations,
        entity: &mut Object,
        generated: &[&'static str],
    ) {
        let id = self.by_content.next(relations, entity, generated);
        if relations.has_id {
            entity.insert("id", text_of(id));
        }
        self.claim(at, relations, id);
    }

    /// Keeps the values that an earlier load generated for the entity.
    fn keep_generated(&self, at: usize, entity: &mut Object, generated: &[&'static str]) {
        if generated.is_empty() {
            return;
        }
        let node = &self.nodes[at];
        let Some(old) = self.existing.get(node.kind, node.id) else {
            return;
        };
        if let Ok(old) = codec::decode::<Object>(old) {
            for field in generated {
                if let Some(value) = old.get(field) {
                    entity.insert(*field, value.clone());
                }
            }
        }
    }

    fn check_unique(&mut self, at: usize, relations: &Relations, entity: &Object) {
        let (kind, id) = (relations.kind, self.nodes[at].id);
        self.check_stored_name(at, relations, entity);
        for (position, field) in relations.unique.iter().enumerate() {
            let Some(value) = entity.get(field).and_then(unique_text) else {
                continue;
            };
            let other = self.other_by_unique(kind, field, value);
            let other = other.filter(|other| *other != id);
            let values = &mut self.taken[kind.index()].values;
            let holder = *values.entry((position, value.into())).or_insert(id);
            // Two entities with the same id are reported by `claim`, not here.
            if holder != id || other.is_some() {
                let message = self.taken_message(kind, field, value, other);
                let by = Taken::Field;
                self.problem(at, Problem::Duplicate { message, by });
            }
        }
        if relations.cache_key.len() > 1 {
            self.check_combination(at, relations, entity);
        }
    }

    /// Checks the name of an entity that is added to the existing ones. No other existing entity may keep this name.
    fn check_stored_name(&mut self, at: usize, relations: &Relations, entity: &Object) {
        let kind = relations.kind;
        if let (Others::Existing, Some(field)) = (self.others, relations.name)
            && let Some(name) = entity.str(field)
            && let Some(other) = self.other_by_unique(kind, field, name)
        {
            let message = self.taken_message(kind, field, name, Some(other));
            let by = Taken::PrimaryKey;
            self.problem(at, Problem::Duplicate { message, by });
        }
    }

    /// Checks fields that must be unique together, such as a plugin's name and the entities it applies to.
    fn check_combination(&mut self, at: usize, relations: &Relations, entity: &Object) {
        let (kind, id) = (relations.kind, self.nodes[at].id);
        let values = combined(relations, entity);
        let combination = memo::combination(kind, values.clone());
        self.nodes[at].combination = combination;
        let combinations = &mut self.taken[kind.index()].combinations;
        let holder = *combinations.entry(combination).or_insert(id);
        let (is_unchanged, other) = match self.others {
            Others::None => (false, None),
            Others::Unchanged(unchanged) => (unchanged.has_combination(kind, combination), None),
            Others::Existing => (false, self.by_cache_key(relations, entity)),
        };
        let other = other.filter(|other| self.is_unclaimed(kind, *other));
        if holder != id || is_unchanged || other.is_some() {
            let fields: Vec<&str> = relations.cache_key.iter().map(|part| part.field).collect();
            let values: Vec<&str> = values.collect();
            let message = self.taken_message(kind, &fields.join(", "), &values.join(", "), other);
            let by = Taken::Field;
            self.problem(at, Problem::Duplicate { message, by });
        }
    }

    /// The message that an existing entity, or another entity of the document, already has the value.
    fn taken_message(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
        other: Option<Uuid>,
    ) -> String {
        match (self.others, other) {
            (Others::Existing, Some(other)) => format!(
                "uniqueness violation: '{}' entity with {field} set to '{value}' already exists with id '{other}'",
                kind.name()
            ),
            _ => duplicate_message(kind, field, value),
        }
    }

    /// Transforms an entity to its stored form, for example with a hashed password. The response shows the original.
    fn transform(&mut self, at: usize, relations: &Relations, entity: Object) -> Object {
        let kind = relations.kind;
        let shown = entity.clone();
        match relations.schema.process(entity, &self.context) {
            Ok(transformed) => {
                let id = self.nodes[at].id;
                self.document.untransformed.push((kind, id, shown));
                transformed
            }
            Err(problems) => {
                self.problem(at, Problem::Schema(problems));
                shown
            }
        }
    }

    /// Compares an entity with the existing one. Its `updated_at` changes only if another field differs or if the
    /// document gives a new time.
    fn settle(&mut self, at: usize, relations: &Relations, mut entity: Object, times: Times) {
        if self.failed {
            return;
        }
        let (kind, id) = (relations.kind, self.nodes[at].id);
        let now = entity.get("updated_at").cloned();
        let given = times.updated(now.as_ref());
        if let Some(old) = self.existing.get(kind, id) {
            take_times(&mut entity, old, times.created);
            // A given `updated_at` that equals the stored one is ignored, because an edited export still contains it.
            let given = given.filter(|given| !is_same_time(Some(given), entity.get("updated_at")));
            let next = given.clone().or(now);
            replace(&mut entity, "updated_at", given);
            if self.encode(&entity) == old {
                self.document.counts.unchanged += 1;
                return;
            }
            replace(&mut entity, "updated_at", next);
            self.document.counts.updated += 1;
        } else {
            replace(&mut entity, "updated_at", given);
            self.document.counts.created += 1;
        }
        let entity = self.encode(&entity).to_vec();
        self.document.puts.push(Put { kind, id, entity });
    }

    /// Returns the bytes of [`codec::encode`] in a reused buffer, because most entities are only compared. The others
    /// are copied to a vector of the exact size.
    fn encode(&mut self, entity: &Object) -> &[u8] {
        self.buffer.clear();
        codec::encode_into(entity, &mut self.buffer);
        &self.buffer
    }
}

/// The times that a document gives for an entity.
struct Times {
    /// Whether `created_at` is given.
    created: bool,
    /// The given `updated_at`, if it is accepted here.
    updated: Option<Value>,
}

impl Times {
    /// Returns the given `updated_at` in the type of the field. An invalid time counts as absent.
    fn updated(&self, now: Option<&Value>) -> Option<Value> {
        match (now?, self.updated.as_ref()?) {
            (Value::Int(_), Value::Int(seconds)) if *seconds > 0 => Some(Value::Int(*seconds)),
            (Value::Float(_), Value::Int(seconds)) if *seconds > 0 => {
                Some(Value::Float(*seconds as f64))
            }
            (Value::Float(_), Value::Float(seconds)) if *seconds > 0.0 => {
                Some(Value::Float(*seconds))
            }
            _ => None,
        }
    }
}

/// Copies the times of the existing entity, except a `created_at` that was given.
fn take_times(entity: &mut Object, old: &[u8], has_time: bool) {
    let Ok(stamps) = codec::decode::<Stamps>(old) else {
        return;
    };
    if let Some(time) = stamps.created_at
        && (!has_time || is_same_time(entity.get("created_at"), Some(&time)))
    {
        replace(entity, "created_at", Some(time));
    }
    replace(entity, "updated_at", stamps.updated_at);
}

/// Sets an existing field if there is a value. Adding a field would break the canonical order.
fn replace(entity: &mut Object, field: &str, value: Option<Value>) {
    if let (Some(slot), Some(value)) = (entity.get_mut(field), value) {
        *slot = value;
    }
}

/// Compares two times. One may be an integer and the other a float.
fn is_same_time(given: Option<&Value>, old: Option<&Value>) -> bool {
    let as_float = |value: &Value| match value {
        Value::Int(seconds) => Some(*seconds as f64),
        Value::Float(seconds) => Some(*seconds),
        _ => None,
    };
    given.and_then(as_float) == old.and_then(as_float)
}

/// The values of an entity that must be unique together.
pub(super) fn combined<'v>(
    relations: &'v Relations,
    entity: &'v Object,
) -> impl Iterator<Item = &'v str> + Clone {
    relations.cache_key.iter().map(|part| {
        let value = entity.get(part.field).and_then(unique_text);
        value.unwrap_or("null")
    })
}

fn unique_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Object(reference) => reference.str("id"),
        _ => None,
    }
}
