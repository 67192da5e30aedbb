//! Collects the problems of a document per entity and reports them in one of two forms: as `fields`, which mirror the
//! document, or as `flattened_errors`. Source: kong/db/errors.lua.

use crate::error::{Error, ErrorCode, MAX_OF_ENTITY, bounded, brace_notation, keep, keep_fields};
use crate::kind::EntityKind;
use crate::value::{Object, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Whether flattened errors include dangling references. Kong 3.9.1 loses them: its recorded response has neither
/// `fields` nor `flattened_errors` for them.
const FLATTENED_KEEPS_DANGLING: bool = false;

/// Maximum number of problems reported for a document. It is enough for a common mistake in thousands of entities. A
/// document can have millions of problems, and a response with all of them would be larger than the document.
pub const MAX_OF_DOCUMENT: usize = 10_000;

/// The begin of the error for a text that cannot be parsed as a document.
pub(super) const UNREADABLE: &str = "failed parsing declarative configuration: ";

/// The error for a text that cannot be parsed as a document.
pub(super) fn unreadable(problem: &str) -> Error {
    let text = format!("{UNREADABLE}{problem}");
    invalid([("error", Value::from(text))].into_iter().collect())
}

/// Creates an error with code 14, whose message repeats the fields.
pub(super) fn invalid(fields: Object) -> Error {
    let fields = Value::Object(fields);
    let message = format!("declarative config is invalid: {}", brace_notation(&fields));
    let error = Error::new(ErrorCode::DeclarativeConfig, message);
    match fields {
        Value::Object(fields) => error.with_fields(fields),
        _ => error,
    }
}

/// A position in a document, normally that of an entity.
#[derive(Debug)]
pub(super) struct DocumentEntity {
    pub kind: EntityKind,
    /// The entity around this one.
    pub parent: Option<usize>,
    /// Position in the collection.
    pub index: usize,
    /// The entity as given, without the entities nested in it. `None` if it is not an object.
    pub input: Option<Object>,
    /// The key under which problems with references are reported: the entity's unique name, else its id.
    pub key: String,
    /// The derived id, if the input has no id. It is shown with problems that are found after ids are assigned.
    pub derived: Option<Uuid>,
    pub problems: Vec<Problem>,
}

impl DocumentEntity {
    pub(super) fn new(kind: EntityKind, parent: Option<usize>, index: usize) -> Self {
        Self {
            kind,
            parent,
            index,
            input: None,
            key: index.to_string(),
            derived: None,
            problems: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Problem {
    /// The problems that the schema found, as a tree of fields.
    Schema(Object),
    /// A problem of a field that the schema does not check.
    Field(String, String),
    /// The value at this position is not an object.
    NotAnEntity(&'static str),
    /// A reference to an entity that does not exist.
    Dangling { field: String, message: String },
    /// The name or id belongs to an earlier entity.
    Duplicate { message: String, by: Taken },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    EndpointKey,
    PrimaryKey,
    /// A unique field other than the endpoint key.
    Field,
}

impl Problem {
    /// Whether Kong finds the problem during validation, before it checks references and uniqueness.
    fn is_of_validation(&self) -> bool {
        matches!(
            self,
            Problem::Schema(_) | Problem::Field(..) | Problem::NotAnEntity(_)
        )
    }
}

/// All problems of one document.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Problems of the document's own fields.
    pub top: Object,
    pub places: Vec<DocumentEntity>,
}

impl Report {
    pub(super) fn into_error(mut self, flatten: bool) -> Error {
        if flatten {
            return self.flattened();
        }
        if self.is_of_references()
            && let Some(fields) = self.references()
        {
            return invalid(bounded(fields, MAX_OF_DOCUMENT));
        }
        let mut left = MAX_OF_DOCUMENT;
        let mut fields = std::mem::take(&mut self.top);
        let mut is_all = keep_fields(&mut fields, &mut left);
        for at in 0..self.places.len() {
            if is_all && !self.places[at].problems.is_empty() {
                let path = self.path(at);
                let mut tree = self.tree(at);
                is_all = keep(&mut tree, &mut left);
                add_at_path(&mut fields, &path, tree);
            }
        }
        invalid(fields)
    }

    /// Whether all problems concern references and uniqueness. Kong reports such problems in special forms.
    fn is_of_references(&self) -> bool {
        let mut problems = self.places.iter().flat_map(|place| &place.problems);
        self.top.is_empty() && !problems.any(Problem::is_of_validation)
    }

    /// Returns the problems in Kong's special forms, or `None` if two of them cannot be combined in one collection.
    fn references(&self) -> Option<Object> {
        let mut forms = References::default();
        for (at, place) in self.places.iter().enumerate() {
            for problem in &place.problems {
                self.add_reference(&mut forms, at, place, problem)?;
            }
        }
        Some(forms.into_fields())
    }

    fn add_reference(
        &self,
        forms: &mut References,
        at: usize,
        place: &DocumentEntity,
        problem: &Problem,
    ) -> Option<()> {
        let collection = place.kind.name();
        match problem {
            Problem::Dangling { message, .. } => {
                let message = Value::from(message.as_str());
                match forms.keyed(collection, &place.key)? {
                    Value::Array(messages) => messages.push(message),
                    slot @ Value::Null => *slot = Value::Array(vec![message]),
                    _ => return None,
                }
                Some(())
            }
            Problem::Duplicate { message, by } => {
                let message = Value::from(message.as_str());
                match by {
                    Taken::Field => fill(forms.keyed(collection, &place.key)?, message),
                    // Kong 3.9.1 reports duplicate names as if their collection were at the top level.
                    Taken::EndpointKey => forms.listed(&[(collection, place.index)], message),
                    Taken::PrimaryKey => forms.listed(&self.path(at), message),
                }
            }
            _ => None,
        }
    }

    /// Returns the path from the top level: the collection and index of each entity.
    fn path(&self, at: usize) -> Vec<(&'static str, usize)> {
        let mut path = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next {
            let place = &self.places[at];
            path.push((place.kind.name(), place.index));
            next = place.parent;
        }
        path.reverse();
        path
    }

    /// Returns an entity's problems as a tree with at most [`MAX_OF_ENTITY`] texts, or as a single text about the whole
    /// entity.
    fn tree(&self, at: usize) -> Value {
        let problems = &self.places[at].problems;
        if let [problem] = problems.as_slice() {
            match problem {
                Problem::NotAnEntity(message) => return Value::from(*message),
                Problem::Duplicate { message, by } if *by != Taken::Field => {
                    return Value::from(message.as_str());
                }
                _ => {}
            }
        }
        let mut tree = Object::new();
        for problem in problems {
            match problem {
                Problem::Schema(fields) if tree.is_empty() => tree = fields.clone(),
                Problem::Schema(fields) => {
                    for (name, value) in fields.iter() {
                        tree.insert(name, value.clone());
                    }
                }
                Problem::Field(field, message) | Problem::Dangling { field, message } => {
                    tree.insert(field.as_str(), Value::from(message.as_str()));
                }
                Problem::NotAnEntity(message) => add_entity_message(&mut tree, message),
                Problem::Duplicate { message, .. } => add_entity_message(&mut tree, message),
            }
        }
        Value::Object(bounded(tree, MAX_OF_ENTITY))
    }

    /// Creates the error with `flattened_errors`. Problems that belong to no entity stay in `fields`.
    fn flattened(mut self) -> Error {
        let after_validation = self.is_of_references();
        let mut left = MAX_OF_DOCUMENT;
        let mut fields = std::mem::take(&mut self.top);
        let mut is_all = keep_fields(&mut fields, &mut left);
        let mut entries = Vec::new();
        for at in self.flattened_order() {
            if !is_all {
                break;
            }
            let place = &self.places[at];
            let only_dangling = after_validation
                && !FLATTENED_KEEPS_DANGLING
                && place
                    .problems
                    .iter()
                    .all(|problem| matches!(problem, Problem::Dangling { .. }));
            if place.problems.is_empty() || only_dangling {
                continue;
            }
            let mut tree = self.tree(at);
            is_all = keep(&mut tree, &mut left);
            match &place.input {
                Some(input) => {
                    let entity = self.shown(at, input.clone(), after_validation);
                    flatten_entity(place.kind, entity, tree, &mut entries);
                }
                None => {
                    let path = self.path(at);
                    add_at_path(&mut fields, &path, tree);
                }
            }
        }
        let mut error = invalid(fields);
        // Kong's JSON encoder cannot tell an empty list from an empty object, and writes an object.
        error.flattened_errors = Some(if entries.is_empty() {
            Value::Object(Object::new())
        } else {
            Value::Array(entries)
        });
        error
    }

    /// Returns the order of entities in `flattened_errors`. Top-level collections are in reverse alphabetical order,
    /// and their entities from last to first. Nested entities come before the one around them, in ascending order.
    fn flattened_order(&self) -> Vec<usize> {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.places.len()];
        let mut top = Vec::new();
        for (at, place) in self.places.iter().enumerate() {
            match place.parent {
                Some(parent) => children[parent].push(at),
                None => top.push(at),
            }
        }
        let name = |at: &usize| (self.places[*at].kind.name(), self.places[*at].index);
        top.sort_by(|a, b| name(b).cmp(&name(a)));
        let mut order = Vec::with_capacity(self.places.len());
        for at in top {
            self.order_nested(at, &mut children, &mut order);
        }
        order
    }

    fn order_nested(&self, at: usize, children: &mut [Vec<usize>], order: &mut Vec<usize>) {
        let mut nested = std::mem::take(&mut children[at]);
        nested.sort_by_key(|&at| (self.places[at].kind.name(), self.places[at].index));
        for at in nested {
            self.order_nested(at, children, order);
        }
        order.push(at);
    }

    /// Returns an entity as it is shown in `flattened_errors`. Derived ids are included only if
    /// validation found no problem.
    fn shown(&self, at: usize, mut entity: Object, after_validation: bool) -> Object {
        let place = &self.places[at];
        if let (true, Some(id)) = (after_validation, place.derived) {
            entity.insert("id", Value::from(id.to_string()));
        }
        if let Some((field, id)) = self.parent_reference(at, after_validation)
            && !entity.contains(field)
        {
            entity.push(field, reference(&id));
        }
        entity
    }

    /// Returns the field that refers to the parent, and the parent's given or derived id.
    fn parent_reference(
        &self,
        at: usize,
        after_validation: bool,
    ) -> Option<(&'static str, String)> {
        let place = &self.places[at];
        let parent = &self.places[place.parent?];
        let field = super::relations::of(parent.kind).child_field(place.kind)?;
        let given = parent.input.as_ref()?.str("id").filter(|id| is_uuid(id));
        let derived = parent.derived.filter(|_| after_validation);
        let id = given
            .map(str::to_owned)
            .or(derived.map(|id| id.to_string()))?;
        Some((field, id))
    }
}

pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok()
}

/// Problems of references and uniqueness. Each collection has either an object with one entry per entity, or an array.
#[derive(Default)]
struct References {
    keyed: BTreeMap<&'static str, BTreeMap<String, Value>>,
    listed: Object,
}

impl References {
    fn keyed(&mut self, collection: &'static str, key: &str) -> Option<&mut Value> {
        if self.listed.contains(collection) {
            return None;
        }
        let of_kind = self.keyed.entry(collection).or_default();
        Some(of_kind.entry(key.to_owned()).or_default())
    }

    fn listed(&mut self, path: &[(&'static str, usize)], message: Value) -> Option<()> {
        let (collection, _) = path.first()?;
        if self.keyed.contains_key(collection) || !is_free(&self.listed, path) {
            return None;
        }
        add_at_path(&mut self.listed, path, message);
        Some(())
    }

    fn into_fields(self) -> Object {
        let mut fields = self.listed;
        for (collection, entities) in self.keyed {
            let mut map = Object::with_capacity(entities.len());
            for (key, value) in entities {
                map.push(key, value);
            }
            fields.push(collection, Value::Object(map));
        }
        fields
    }
}

fn fill(slot: &mut Value, message: Value) -> Option<()> {
    slot.is_null().then(|| *slot = message)
}

/// Returns the slot `index` of the array under `collection`. Creates the array and the slot if absent.
fn indexed<'a>(out: &'a mut Object, collection: &str, index: usize) -> Option<&'a mut Value> {
    if !out.contains(collection) {
        out.push(collection, Value::Array(Vec::new()));
    }
    let Some(Value::Array(list)) = out.get_mut(collection) else {
        return None;
    };
    if list.len() <= index {
        list.resize(index + 1, Value::Null);
    }
    list.get_mut(index)
}

/// Whether a problem can be inserted at a path: no other problem is at this position or at an entity around it.
fn is_free(out: &Object, path: &[(&'static str, usize)]) -> bool {
    let [(collection, index), rest @ ..] = path else {
        return false;
    };
    match out.get(collection) {
        None => true,
        Some(Value::Array(list)) => match list.get(*index) {
            None | Some(Value::Null) => true,
            Some(Value::Object(inner)) => is_free(inner, rest),
            Some(_) => false,
        },
        Some(_) => false,
    }
}

/// Inserts a problem at the path of its entity. If a text is already at an entity on the path, it becomes a message in
/// the `@entity` field of that entity.
fn add_at_path(out: &mut Object, path: &[(&'static str, usize)], problem: Value) {
    let [(collection, index), rest @ ..] = path else {
        return;
    };
    if !matches!(out.get(collection), Some(Value::Array(_))) {
        out.insert(*collection, Value::Array(Vec::new()));
    }
    let Some(slot) = indexed(out, collection, *index) else {
        return;
    };
    if rest.is_empty() && slot.is_null() {
        *slot = problem;
        return;
    }
    let inner = as_tree(slot);
    if !rest.is_empty() {
        return add_at_path(inner, rest, problem);
    }
    match problem {
        Value::Object(fields) => {
            for (name, value) in fields {
                inner.insert(name, value);
            }
        }
        other => add_entity_message(inner, other.as_str().unwrap_or_default()),
    }
}

fn as_tree(slot: &mut Value) -> &mut Object {
    if !matches!(slot, Value::Object(_)) {
        let mut tree = Object::new();
        if let Some(message) = slot.as_str() {
            add_entity_message(&mut tree, message);
        }
        *slot = Value::Object(tree);
    }
    match slot {
        Value::Object(tree) => tree,
        _ => unreachable!("made an object above"),
    }
}

fn add_entity_message(tree: &mut Object, message: &str) {
    let message = Value::from(message);
    match tree.get_mut("@entity") {
        Some(Value::Array(messages)) => messages.push(message),
        _ => {
            tree.insert("@entity", Value::Array(vec![message]));
        }
    }
}

/// Adds an entity's problems to `flattened_errors`. An entity may contain another entity instead of a reference, such
/// as a whole service in the `service` of a route. That entity then gets its own entry before this one.
fn flatten_entity(kind: EntityKind, mut entity: Object, problem: Value, entries: &mut Vec<Value>) {
    let mut errors = Vec::new();
    match problem {
        Value::Object(mut tree) => {
            for foreign in &super::relations::of(kind).foreign {
                let Some(Value::Object(referred)) = entity.get(foreign.field) else {
                    continue;
                };
                let referred = referred.clone();
                match referred.str("id").filter(|id| is_uuid(id)) {
                    Some(id) => drop(entity.insert(foreign.field, reference(id))),
                    None => drop(entity.remove(foreign.field)),
                }
                if matches!(tree.get(foreign.field), Some(Value::Object(_)))
                    && let Some(problem) = tree.remove(foreign.field)
                {
                    flatten_entity(foreign.kind, referred, problem, entries);
                }
            }
            categorize(&tree, "", &mut errors);
        }
        message => add_flat(&mut errors, None, message),
    }
    if !errors.is_empty() {
        entries.push(entry(kind, entity, errors));
    }
}

fn entry(kind: EntityKind, entity: Object, errors: Vec<Value>) -> Value {
    let mut entry = Object::new();
    let kind = kind.name();
    entry.push(
        "entity_type",
        Value::from(kind.strip_suffix('s').unwrap_or(kind)),
    );
    if let Some(id) = entity.str("id").filter(|id| is_uuid(id)) {
        entry.push("entity_id", Value::from(id));
    }
    if let Some(name) = entity.str("name").filter(|name| !name.is_empty()) {
        entry.push("entity_name", Value::from(name));
    }
    if let Some(Value::Array(tags)) = entity.get("tags")
        && tags.iter().all(|tag| tag.as_str().is_some())
    {
        entry.push("entity_tags", Value::Array(tags.clone()));
    }
    entry.push("entity", Value::Object(entity));
    entry.push("errors", Value::Array(errors));
    Value::Object(entry)
}

fn reference(id: &str) -> Value {
    Value::Object([("id", Value::from(id))].into_iter().collect())
}

/// Collects the errors of the fields in descending order of their names. Paths have dots, and array positions count
/// from 1.
fn categorize(tree: &Object, prefix: &str, errors: &mut Vec<Value>) {
    let mut fields: Vec<_> = tree.iter().collect();
    fields.sort_by(|a, b| b.0.cmp(a.0));
    for (name, value) in fields {
        if name == "@entity" {
            add_flat(errors, None, value.clone());
        } else {
            categorize_value(value, &join(prefix, name), errors);
        }
    }
}

fn categorize_value(value: &Value, path: &str, errors: &mut Vec<Value>) {
    match value {
        Value::Null => {}
        Value::Object(inner) => categorize(inner, path, errors),
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate().rev() {
                categorize_value(value, &format!("{path}.{}", index + 1), errors);
            }
        }
        other => add_flat(errors, Some(path), other.clone()),
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

fn add_flat(errors: &mut Vec<Value>, field: Option<&str>, message: Value) {
    if let Value::Array(messages) = message {
        for message in messages {
            add_flat(errors, field, message);
        }
        return;
    }
    let mut error = Object::new();
    error.push(
        "type",
        Value::from(if field.is_some() { "field" } else { "entity" }),
    );
    if let Some(field) = field {
        error.push("field", Value::from(field));
    }
    error.push("message", message);
    errors.push(Value::Object(error));
}
