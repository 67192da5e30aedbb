//! Loads a document: takes entities apart, names them, resolves what they refer to, completes each by its schema, and
//! compares the outcome with what exists.
//!
//! Entities are worked off kind by kind, those that are referred to first. A `Quick` run ends at the first doubt and
//! keeps nothing of the input; a `Report` run keeps what it needs to tell every problem where it is. Both decide alike.

use super::matching::Matching;
use super::memo::{self, Unchanged};
use super::problems::{Place, Problem, Report, Taken};
use super::relations::{self, Relations};
use super::{DEFAULT_WORKSPACE, Document, Existing, Put, ids};
use crate::codec;
use crate::kind::EntityKind;
use crate::schema::Context;
use crate::value::{Object, Value};
use compact_str::CompactString;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Quick,
    Report,
}

/// An entity on its way from the document to the store.
struct Node {
    kind: EntityKind,
    /// Which top-level element it comes from.
    element: u32,
    /// Where to report problems; only in a `Report` run.
    place: Option<Box<Place>>,
    /// What is left of the input.
    input: Object,
    /// The node it is nested in and the field that refers to it.
    parent: Option<(usize, &'static str)>,
    id: Uuid,
    combination: u64,
}

/// What a run has come to.
pub(super) struct Loaded {
    pub document: Document,
    /// What came from each element, in the order of the elements' numbers.
    pub entities: Vec<Origin>,
    /// Entities that are referred to from other elements than their own.
    pub shared: HashSet<(EntityKind, Uuid)>,
}

/// An entity and the element it came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub element: u32,
    pub kind: EntityKind,
    pub id: Uuid,
    /// Stands for the values that must be unique together; zero when there are none.
    pub combination: u64,
}

pub(super) struct Load<'a> {
    context: Context,
    /// The same without transformations.
    plain: Context,
    mode: Mode,
    existing: &'a dyn Existing,
    /// Entities that are known to stay as they are, when only changed elements are loaded.
    unchanged: Option<&'a Unchanged<'a>>,
    report: Report,
    failed: bool,
    nodes: Vec<Node>,
    by_kind: Vec<Vec<usize>>,
    taken: Vec<TakenIn>,
    matching: Matching,
    shared: HashSet<(EntityKind, Uuid)>,
    document: Document,
}

/// What the entities of one kind have taken.
#[derive(Default)]
struct TakenIn {
    /// With the element.
    ids: HashMap<Uuid, u32>,
    names: HashMap<CompactString, Uuid>,
    /// Values of the other unique fields, and combinations that must be unique, each behind its field's position.
    values: HashMap<(usize, String), Uuid>,
}

/// The part of a stored entity that the loader sets.
#[derive(Deserialize)]
struct Stamps {
    created_at: Option<Value>,
    updated_at: Option<Value>,
}

impl<'a> Load<'a> {
    pub(super) fn new(
        context: Context,
        mode: Mode,
        existing: &'a dyn Existing,
        unchanged: Option<&'a Unchanged<'a>>,
    ) -> Self {
        let kinds = EntityKind::ALL.iter().map(|kind| *kind as usize);
        let size = kinds.max().unwrap_or(0) + 1;
        let mut taken = Vec::new();
        taken.resize_with(size, TakenIn::default);
        let plain = Context {
            transform: false,
            ..context.clone()
        };
        Self {
            context,
            plain,
            mode,
            existing,
            unchanged,
            report: Report::default(),
            failed: false,
            nodes: Vec::new(),
            by_kind: vec![Vec::new(); size],
            taken,
            matching: Matching::default(),
            shared: HashSet::new(),
            document: Document::default(),
        }
    }

    /// A problem of one of the document's own fields.
    pub(super) fn top_problem(&mut self, field: &str, problem: &str) {
        self.failed = true;
        self.report.top.insert(field, Value::from(problem));
    }

    /// Adds a top-level element with everything nested in it.
    pub(super) fn add(&mut self, kind: EntityKind, index: usize, element: u32, value: Value) {
        self.add_value(kind, None, index, element, value);
    }

    /// Works everything off; the report is complete in a `Report` run only.
    pub(super) fn run(mut self) -> Result<Loaded, Report> {
        if self.mode == Mode::Quick && self.failed {
            return Err(self.into_report());
        }
        self.add_default_workspace();
        for kind in EntityKind::ALL {
            self.load_kind(kind);
            if self.mode == Mode::Quick && self.failed {
                return Err(self.into_report());
            }
        }
        if self.failed || !self.references_hold() {
            return Err(self.into_report());
        }
        self.delete_the_rest();
        let origins = self.nodes.iter().map(|node| Origin {
            element: node.element,
            kind: node.kind,
            id: node.id,
            combination: node.combination,
        });
        let entities = origins.collect();
        Ok(Loaded {
            document: self.document,
            entities,
            shared: self.shared,
        })
    }

    fn into_report(mut self) -> Report {
        let places = self.nodes.into_iter().filter_map(|node| node.place);
        let others = std::mem::take(&mut self.report.places);
        self.report.places = places.map(|place| *place).chain(others).collect();
        self.report
    }

    fn problem(&mut self, at: usize, problem: Problem) {
        self.failed = true;
        if let Some(place) = &mut self.nodes[at].place {
            place.problems.push(problem);
        }
    }

    // === taking apart ===

    fn add_value(
        &mut self,
        kind: EntityKind,
        parent: Option<(usize, &'static str)>,
        index: usize,
        element: u32,
        value: Value,
    ) {
        let problem = match value {
            Value::Object(input) => return self.add_entity(kind, parent, index, element, input),
            // What an empty mapping becomes in some encoders.
            Value::Array(values) if values.is_empty() => {
                return self.add_entity(kind, parent, index, element, Object::new());
            }
            Value::Null => "required field missing",
            _ => "expected a record",
        };
        self.failed = true;
        let mut place = Place::new(kind, parent.map(|(at, _)| at), index);
        place.problems.push(Problem::NotAnEntity(problem));
        self.report.places.push(place);
    }

    fn add_entity(
        &mut self,
        kind: EntityKind,
        parent: Option<(usize, &'static str)>,
        index: usize,
        element: u32,
        input: Object,
    ) {
        let relations = relations::of(kind);
        let at = self.nodes.len();
        self.by_kind[kind as usize].push(at);
        let place = || Box::new(Place::new(kind, parent.map(|(at, _)| at), index));
        self.nodes.push(Node {
            kind,
            element,
            place: (self.mode == Mode::Report).then(place),
            input: Object::new(),
            parent,
            id: Uuid::nil(),
            combination: 0,
        });
        let foreign_to_it = |name: &str| {
            relations.child(name).is_some() || name.starts_with('_') || name == "ws_id"
        };
        let own = if input.iter().any(|(name, _)| foreign_to_it(name)) {
            self.detach(at, relations, input)
        } else {
            input
        };
        if let Some(place) = &mut self.nodes[at].place {
            place.input = Some(own.clone());
        }
        self.nodes[at].input = own;
    }

    /// Takes out what is nested in an entity, and what is no field of it; returns the rest.
    fn detach(&mut self, at: usize, relations: &'static Relations, input: Object) -> Object {
        let mut own = Object::with_capacity(input.len());
        for (name, value) in input {
            if let Some(child) = relations.child(&name) {
                self.add_children(at, child, value);
            } else if name == "_comment" || name == "_ignore" {
                if let Some(problem) = annotation_problem(&name, &value) {
                    self.problem(at, Problem::Field(name.to_string(), problem.to_owned()));
                }
            } else if !(name == "ws_id" && relations.schema.workspaceable) {
                own.push(name, value);
            }
        }
        own
    }

    fn add_children(&mut self, at: usize, child: &'static relations::Child, value: Value) {
        let element = self.nodes[at].element;
        match value {
            Value::Array(values) => {
                for (index, value) in values.into_iter().enumerate() {
                    let parent = Some((at, child.field));
                    self.add_value(child.kind, parent, index, element, value);
                }
            }
            Value::Null => {}
            Value::Object(object) if object.is_empty() => {}
            _ => {
                let problem = Problem::Field(child.name.to_owned(), "expected an array".to_owned());
                self.problem(at, problem);
            }
        }
    }

    fn add_default_workspace(&mut self) {
        let of_kind = &self.by_kind[EntityKind::Workspaces as usize];
        let is_default = |at: &usize| self.nodes[*at].input.str("name") == Some("default");
        if self.unchanged.is_some() || of_kind.iter().any(is_default) {
            return;
        }
        let fields = [
            ("id", Value::from(DEFAULT_WORKSPACE.to_string())),
            ("name", Value::from("default")),
        ];
        let input = fields.into_iter().collect();
        self.add_entity(EntityKind::Workspaces, None, of_kind.len(), u32::MAX, input);
    }

    // === one kind after the other ===

    fn load_kind(&mut self, kind: EntityKind) {
        let nodes = std::mem::take(&mut self.by_kind[kind as usize]);
        let relations = relations::of(kind);
        let mut nameless = Vec::new();
        for &at in &nodes {
            let derived = self.identify(at, relations);
            self.resolve(at, relations);
            match derived {
                Some(id) => self.claim(at, relations, id),
                None => nameless.push(at),
            }
        }
        // Ids that are given or derived come first: a nameless entity must not take one of them.
        for &at in &nameless {
            self.match_unique(at, relations);
        }
        for at in nodes {
            self.complete(at, relations);
            if self.mode == Mode::Quick && self.failed {
                return;
            }
        }
    }

    /// The id that an entity has or that can be derived.
    fn identify(&mut self, at: usize, relations: &Relations) -> Option<Uuid> {
        let parent = self.nodes[at].parent;
        let parent = parent.map(|(parent, field)| (field, self.nodes[parent].id));
        let node = &mut self.nodes[at];
        match node.input.get("id") {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if relations.has_id => return parse_id(text),
            // For the schema to refuse.
            Some(_) => return None,
        }
        let derived = ids::derived(relations, &node.input, parent);
        if let Some(place) = &mut node.place {
            place.derived = derived.filter(|_| relations.has_id);
        }
        derived
    }

    /// Replaces references by the ids of what they refer to.
    fn resolve(&mut self, at: usize, relations: &'static Relations) {
        for foreign in &relations.foreign {
            let value = self.nodes[at].input.get(foreign.field);
            let found = match value {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => self.find(foreign.kind, text),
                Some(Value::Object(object)) => match reference_id(object) {
                    Some(id) => self.find_id(foreign.kind, id),
                    // For the schema to refuse.
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
            let target = self.taken[foreign.kind as usize].ids.get(&id);
            if target != Some(&node.element) {
                self.shared.insert((foreign.kind, id));
            }
        }
        if let Some((parent, field)) = self.nodes[at].parent {
            let id = self.nodes[parent].id;
            self.nodes[at].input.insert(field, reference(id));
        }
    }

    /// The entity that a text refers to: by name, else by id.
    fn find(&self, kind: EntityKind, text: &str) -> Option<Uuid> {
        if let Some(id) = self.taken[kind as usize].names.get(text) {
            return Some(*id);
        }
        if let (Some(unchanged), Some(field)) = (self.unchanged, relations::of(kind).name)
            && let Some(id) = unchanged.id_by_unique(kind, field, text)
        {
            return Some(id);
        }
        self.find_id(kind, parse_id(text)?)
    }

    fn find_id(&self, kind: EntityKind, id: Uuid) -> Option<Uuid> {
        let is_known = self.taken[kind as usize].ids.contains_key(&id)
            || self
                .unchanged
                .is_some_and(|unchanged| unchanged.has(kind, id));
        is_known.then_some(id)
    }

    /// Gives an entity its id and name, unless they are taken.
    fn claim(&mut self, at: usize, relations: &Relations, id: Uuid) {
        let kind = relations.kind;
        let node = &mut self.nodes[at];
        node.id = id;
        if relations.has_id {
            node.input.insert("id", text_of(id));
        }
        let element = node.element;
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
        if self.is_free(kind, id) {
            self.taken[kind as usize].ids.insert(id, element);
        } else {
            let message = duplicate_message(kind, "primary key", &id.to_string());
            let by = Taken::PrimaryKey;
            self.problem(at, Problem::Duplicate { message, by });
        }
    }

    fn claim_name(
        &mut self,
        at: usize,
        kind: EntityKind,
        field: &str,
        name: CompactString,
    ) -> bool {
        let id = self.nodes[at].id;
        let elsewhere = self.unchanged.is_some_and(|unchanged| {
            let other = unchanged.id_by_unique(kind, field, &name);
            // A name that reads as an id could change what a reference elsewhere means.
            other.is_some_and(|other| other != id) || parse_id(&name).is_some()
        });
        if elsewhere || self.taken[kind as usize].names.contains_key(&name) {
            let message = duplicate_message(kind, field, &name);
            let by = Taken::EndpointKey;
            self.problem(at, Problem::Duplicate { message, by });
            return false;
        }
        self.taken[kind as usize].names.insert(name, id);
        true
    }

    /// Looks a nameless entity up by its unique fields, so that it keeps its id.
    fn match_unique(&mut self, at: usize, relations: &Relations) {
        let kind = relations.kind;
        let node = &self.nodes[at];
        let found = relations.unique.iter().find_map(|field| {
            let value = node.input.str(field)?;
            let id = self.existing.id_by_unique(kind, field, value)?;
            self.is_free(kind, id).then_some(id)
        });
        if let Some(id) = found {
            self.claim(at, relations, id);
        }
    }

    fn is_free(&self, kind: EntityKind, id: Uuid) -> bool {
        !self.taken[kind as usize].ids.contains_key(&id)
            && !self
                .unchanged
                .is_some_and(|unchanged| unchanged.has(kind, id))
    }

    // === completing ===

    fn complete(&mut self, at: usize, relations: &'static Relations) {
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
            self.match_content(at, relations, &mut entity, &generated);
        } else if !generated.is_empty() {
            self.keep_generated(at, &mut entity, &generated);
        }
        self.check_unique(at, relations, &entity);
        if transforms {
            entity = self.transform(at, relations, entity);
        }
        self.settle(at, relations, entity, has_time);
    }

    /// A nameless entity without unique fields is the one that exists with the same content, else a new one.
    fn match_content(
        &mut self,
        at: usize,
        relations: &Relations,
        entity: &mut Object,
        generated: &[&'static str],
    ) {
        let kind = relations.kind;
        let (taken, unchanged) = (&self.taken[kind as usize].ids, self.unchanged);
        let free = |id: Uuid| {
            !taken.contains_key(&id) && !unchanged.is_some_and(|unchanged| unchanged.has(kind, id))
        };
        let found = self
            .matching
            .take(self.existing, kind, entity, generated, free);
        let own = || entity.str("id").and_then(|id| Uuid::try_parse(id).ok());
        let id = found.or_else(own).unwrap_or_else(Uuid::new_v4);
        if relations.has_id {
            entity.insert("id", text_of(id));
        }
        self.claim(at, relations, id);
        if found.is_some() {
            self.keep_generated(at, entity, generated);
        }
    }

    /// Keeps what was generated for an entity at an earlier load.
    fn keep_generated(&self, at: usize, entity: &mut Object, generated: &[&'static str]) {
        let node = &self.nodes[at];
        let Some(old) = self.existing.get(node.kind, node.id) else {
            return;
        };
        if generated.is_empty() {
            return;
        }
        if let Ok(old) = codec::decode::<Object>(old) {
            for field in generated {
                if let Some(value) = old.get(field) {
                    entity.insert(*field, value.clone());
                }
            }
        }
    }

    fn check_unique(&mut self, at: usize, relations: &Relations, entity: &Object) {
        let kind = relations.kind;
        for (position, field) in relations.unique.iter().enumerate() {
            let Some(value) = entity.get(field).and_then(unique_text) else {
                continue;
            };
            let text = value.to_owned();
            let elsewhere = self
                .unchanged
                .and_then(|unchanged| unchanged.id_by_unique(kind, field, &text))
                .is_some_and(|id| id != self.nodes[at].id);
            self.take_value(at, kind, position, text, elsewhere, || {
                duplicate_message(kind, field, value)
            });
        }
        if relations.cache_key.len() > 1 {
            self.check_combination(at, relations, entity);
        }
    }

    /// Fields that must be unique together: a plugin's name with what it is for.
    fn check_combination(&mut self, at: usize, relations: &Relations, entity: &Object) {
        let kind = relations.kind;
        let values = relations.cache_key.iter().map(|part| {
            let value = entity.get(part.field).and_then(unique_text);
            value.unwrap_or_default()
        });
        let text = values.collect::<Vec<_>>().join("\u{1f}");
        let combination = memo::combination(kind, &text);
        self.nodes[at].combination = combination;
        let elsewhere = self
            .unchanged
            .is_some_and(|unchanged| unchanged.has_combination(kind, combination));
        let position = relations.unique.len();
        self.take_value(at, kind, position, text, elsewhere, || {
            let fields: Vec<&str> = relations.cache_key.iter().map(|part| part.field).collect();
            let values = relations.cache_key.iter().map(|part| {
                let value = entity.get(part.field).and_then(unique_text);
                value.unwrap_or("null")
            });
            let values = values.collect::<Vec<_>>().join(", ");
            duplicate_message(kind, &fields.join(", "), &values)
        });
    }

    fn take_value(
        &mut self,
        at: usize,
        kind: EntityKind,
        position: usize,
        text: String,
        elsewhere: bool,
        message: impl FnOnce() -> String,
    ) {
        let id = self.nodes[at].id;
        let values = &mut self.taken[kind as usize].values;
        let other = *values.entry((position, text)).or_insert(id);
        // The same id twice is reported as that.
        if elsewhere || other != id {
            let message = message();
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
        let Some(old) = self.existing.get(kind, id) else {
            let entity = codec::encode(&entity);
            return self.document.puts.push(Put { kind, id, entity });
        };
        let updated_at = entity.get("updated_at").cloned();
        if let Ok(stamps) = codec::decode::<Stamps>(old) {
            if let (false, Some(time)) = (has_time, stamps.created_at) {
                replace(&mut entity, "created_at", time);
            }
            if let Some(time) = stamps.updated_at {
                replace(&mut entity, "updated_at", time);
            }
        }
        let encoded = codec::encode(&entity);
        if encoded == old {
            return;
        }
        if let Some(time) = updated_at {
            replace(&mut entity, "updated_at", time);
        }
        let entity = codec::encode(&entity);
        self.document.puts.push(Put { kind, id, entity });
    }

    /// Whether everything that unchanged entities refer to is still there under its name.
    fn references_hold(&self) -> bool {
        let Some(unchanged) = self.unchanged else {
            return true;
        };
        unchanged.shared().all(|(kind, id)| {
            let taken = &self.taken[kind as usize];
            let has_name = || {
                let field = relations::of(kind).name?;
                let old = codec::decode::<Object>(self.existing.get(kind, id)?).ok()?;
                Some(taken.names.get(old.str(field)?) == Some(&id))
            };
            taken.ids.contains_key(&id) && has_name().unwrap_or(true)
        })
    }

    fn delete_the_rest(&mut self) {
        let deletes = &mut self.document.deletes;
        for kind in EntityKind::ALL.into_iter().rev() {
            let ids = &self.taken[kind as usize].ids;
            let mut visit = |id: Uuid| {
                if !ids.contains_key(&id) {
                    deletes.push((kind, id));
                }
            };
            match self.unchanged {
                Some(unchanged) => unchanged.replaced(kind).for_each(visit),
                None => self.existing.for_each(kind, &mut |id, _| visit(id)),
            }
        }
    }
}

/// What is wrong with a `_comment` or `_ignore`, which are allowed everywhere and mean nothing.
pub(super) fn annotation_problem(name: &str, value: &Value) -> Option<&'static str> {
    match (name, value) {
        (_, Value::Null) | ("_comment", Value::String(_)) | ("_ignore", Value::Array(_)) => None,
        ("_ignore", Value::Object(object)) if object.is_empty() => None,
        ("_comment", _) => Some("expected a string"),
        _ => Some("expected an array"),
    }
}

/// Kinds of which the stored form differs from what was given.
pub(super) fn is_transformed(kind: EntityKind) -> bool {
    matches!(
        kind,
        EntityKind::BasicauthCredentials | EntityKind::Oauth2Credentials
    )
}

fn reference_id(object: &Object) -> Option<Uuid> {
    parse_id(object.str("id")?)
}

/// An id as Kong writes and accepts them; other forms of UUIDs are names.
fn parse_id(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|_| text.len() == 36)
}

fn reference(id: Uuid) -> Value {
    let mut object = Object::with_capacity(1);
    object.push("id", text_of(id));
    Value::Object(object)
}

fn text_of(id: Uuid) -> Value {
    let mut buffer = Uuid::encode_buffer();
    Value::from(&*id.hyphenated().encode_lower(&mut buffer))
}

/// Sets a field that is there; a canonical entity gets no field at another place than its schema's.
fn replace(entity: &mut Object, field: &str, value: Value) {
    if let Some(slot) = entity.get_mut(field) {
        *slot = value;
    }
}

fn unique_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        Value::Object(reference) => reference.str("id"),
        _ => None,
    }
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

fn duplicate_message(kind: EntityKind, field: &str, value: &str) -> String {
    format!(
        "uniqueness violation: '{}' entity with {field} set to '{value}' already declared",
        kind.name()
    )
}
