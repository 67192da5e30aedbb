//! Completes entities by their schemas, checks what must be unique, and compares them with those that exist.

use super::{Load, duplicate_message, is_transformed, text_of};
use crate::codec;
use crate::declarative::Put;
use crate::declarative::memo;
use crate::declarative::problems::{Problem, Taken};
use crate::declarative::relations::Relations;
use crate::value::{Object, Value};
use serde::Deserialize;
use uuid::Uuid;

/// The part of a stored entity that the loader sets.
#[derive(Deserialize)]
struct Stamps {
    created_at: Option<Value>,
    updated_at: Option<Value>,
}

impl Load<'_> {
    pub(super) fn complete(&mut self, at: usize, relations: &'static Relations) {
        let input = std::mem::take(&mut self.nodes[at].input);
        let has_time = input.get("created_at").is_some_and(|at| !at.is_null());
        let absent = |field: &&&str| input.get(field).is_none_or(Value::is_null);
        let generated: Vec<&'static str> =
            relations.generated.iter().filter(absent).copied().collect();
        let transforms = self.context.transform && is_transformed(relations.kind);
        let context = if transforms {
            &self.plain
        } else {
            &self.context
        };
        let mut entity = match relations.schema.process(input, context) {
            Ok(entity) => entity,
            Err(problems) => {
                if self.nodes[at].id.is_nil() {
                    // Children need some id to be checked with.
                    self.nodes[at].id = Uuid::new_v4();
                }
                return self.problem(at, Problem::Schema(problems));
            }
        };
        if self.nodes[at].id.is_nil() {
            self.identify_by_content(at, relations, &mut entity, &generated);
        }
        self.keep_generated(at, &mut entity, &generated);
        self.check_unique(at, relations, &entity);
        if transforms {
            entity = self.transform(at, relations, entity);
        }
        self.settle(at, relations, entity, has_time);
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

    /// Keeps what was generated for an entity at an earlier load.
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
        for (position, field) in relations.unique.iter().enumerate() {
            let Some(value) = entity.get(field).and_then(unique_text) else {
                continue;
            };
            let unchanged = self
                .unchanged
                .and_then(|unchanged| unchanged.id_by_unique(kind, field, value));
            let values = &mut self.taken[kind as usize].values;
            let holder = *values.entry((position, value.into())).or_insert(id);
            // The same id twice is reported as that.
            if holder != id || unchanged.is_some_and(|other| other != id) {
                let message = duplicate_message(kind, field, value);
                let by = Taken::Field;
                self.problem(at, Problem::Duplicate { message, by });
            }
        }
        if relations.cache_key.len() > 1 {
            self.check_combination(at, relations, entity);
        }
    }

    /// Fields that must be unique together: a plugin's name with what it is for.
    fn check_combination(&mut self, at: usize, relations: &Relations, entity: &Object) {
        let (kind, id) = (relations.kind, self.nodes[at].id);
        let values = relations.cache_key.iter().map(|part| {
            let value = entity.get(part.field).and_then(unique_text);
            value.unwrap_or("null")
        });
        let combination = memo::combination(kind, values.clone());
        self.nodes[at].combination = combination;
        let combinations = &mut self.taken[kind as usize].combinations;
        let holder = *combinations.entry(combination).or_insert(id);
        let is_unchanged =
            |unchanged: &memo::Unchanged<'_>| unchanged.has_combination(kind, combination);
        if holder != id || self.unchanged.is_some_and(is_unchanged) {
            let fields: Vec<&str> = relations.cache_key.iter().map(|part| part.field).collect();
            let values: Vec<&str> = values.collect();
            let message = duplicate_message(kind, &fields.join(", "), &values.join(", "));
            let by = Taken::Field;
            self.problem(at, Problem::Duplicate { message, by });
        }
    }

    /// Hashes what is stored hashed; the answer shows it as it was.
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

    /// Compares an entity with the one that exists: times stay unless something else differs.
    fn settle(&mut self, at: usize, relations: &Relations, mut entity: Object, has_time: bool) {
        if self.failed {
            return;
        }
        let (kind, id) = (relations.kind, self.nodes[at].id);
        if let Some(old) = self.existing.get(kind, id) {
            let updated_at = entity.get("updated_at").cloned();
            take_times(&mut entity, old, has_time);
            if self.encode(&entity) == old {
                return;
            }
            if let Some(time) = updated_at {
                replace(&mut entity, "updated_at", time);
            }
        }
        let entity = self.encode(&entity).to_vec();
        self.document.puts.push(Put { kind, id, entity });
    }

    /// The bytes of [`codec::encode`], in a buffer that is used again: of tens of thousands of entities most are
    /// compared only, and the others get a vector of just their size.
    fn encode(&mut self, entity: &Object) -> &[u8] {
        self.buffer.clear();
        codec::encode_into(entity, &mut self.buffer);
        &self.buffer
    }
}

/// Gives an entity the times of the one that exists; a time that was given stays.
fn take_times(entity: &mut Object, old: &[u8], has_time: bool) {
    let Ok(stamps) = codec::decode::<Stamps>(old) else {
        return;
    };
    if let Some(time) = stamps.created_at
        && (!has_time || is_same_time(entity.get("created_at"), &time))
    {
        replace(entity, "created_at", time);
    }
    if let Some(time) = stamps.updated_at {
        replace(entity, "updated_at", time);
    }
}

/// Sets a field that is there; a canonical entity gets no field at another place than its schema's.
fn replace(entity: &mut Object, field: &str, value: Value) {
    if let Some(slot) = entity.get_mut(field) {
        *slot = value;
    }
}

/// Whole seconds may be an integer in one place and a float in the other.
fn is_same_time(given: Option<&Value>, old: &Value) -> bool {
    let as_float = |value: &Value| match value {
        Value::Int(seconds) => Some(*seconds as f64),
        Value::Float(seconds) => Some(*seconds),
        _ => None,
    };
    given.and_then(as_float) == as_float(old)
}

fn unique_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Object(reference) => reference.str("id"),
        _ => None,
    }
}
