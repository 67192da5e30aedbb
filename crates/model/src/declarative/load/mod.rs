//! Loads a document. Separates nested entities, identifies them, resolves references, completes each entity by its
//! schema, and compares the result with the existing configuration.
//!
//! Entities are processed kind by kind, so that references point to kinds already processed. A `Quick` run stops at the
//! first problem and keeps no input. A `Report` run keeps the input that it needs to report every problem with its
//! position. A `Quick` run may reject a document that a `Report` run accepts, but not the other way round (see
//! [`doubts`]).

mod complete;
pub(super) mod doubts;
mod naming;

use super::memo::Unchanged;
use super::problems::{DocumentEntity, Problem, Report};
use super::relations::{self, Relations};
use super::{DEFAULT_WORKSPACE, Document, Existing, ids};
use crate::codec;
use crate::hashing::{FastMap, FastSet};
use crate::kind::EntityKind;
use crate::schema::Context;
use crate::value::{Object, Value};
use compact_str::CompactString;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Quick,
    Report,
}

/// An entity while it is being loaded.
struct Node {
    kind: EntityKind,
    /// Number of the top-level element that contains the entity.
    element: u32,
    /// The entity's position, to which problems are added. Present only in a `Report` run.
    place: Option<Box<DocumentEntity>>,
    /// The input without nested entities. Completion consumes it.
    input: Object,
    parent: Option<Parent>,
    id: Uuid,
    combination: u128,
    /// Whether another entity of the document replaces this one. This one is then checked, but not loaded.
    is_shadowed: bool,
}

/// The entity around a nested one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent {
    /// The field of the nested entity that refers to its parent.
    pub field: &'static str,
    pub entity: ParentEntity,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ParentEntity {
    Node(usize),
    /// The id of an entity that is a separate element. That element may be unchanged and not loaded again.
    Id(Uuid),
}

impl ParentEntity {
    fn node(self) -> Option<usize> {
        match self {
            Self::Node(at) => Some(at),
            Self::Id(_) => None,
        }
    }
}

/// The entities that the result contains in addition to the loaded ones.
#[derive(Clone, Copy)]
pub(super) enum Others<'a> {
    /// No entities. Existing entities that are not loaded are deleted.
    None,
    /// The entities of unchanged elements of the document, which are not loaded again.
    Unchanged(&'a Unchanged<'a>),
    /// All existing entities.
    Existing,
}

/// The result of a run.
pub(super) struct Loaded {
    pub document: Document,
    /// All loaded entities, ordered by element number.
    pub entities: Vec<Origin>,
    /// Entities that are referred to from other elements than their own.
    pub shared: FastSet<(EntityKind, Uuid)>,
}

/// An entity and the element that contains it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub element: u32,
    pub kind: EntityKind,
    pub id: Uuid,
    /// Hash of the values that must be unique together; zero if there are none.
    pub combination: u128,
}

pub(super) struct Load<'a> {
    context: Context,
    /// The context without transformations.
    plain: Context,
    mode: Mode,
    existing: &'a dyn Existing,
    others: Others<'a>,
    /// Called with the number of completed entities and their total.
    watch: Option<&'a mut dyn FnMut(usize, usize)>,
    completed: usize,
    report: Report,
    failed: bool,
    nodes: Vec<Node>,
    by_kind: Vec<Vec<usize>>,
    taken: Vec<TakenIn>,
    by_content: ids::ByContent,
    shared: FastSet<(EntityKind, Uuid)>,
    document: Document,
    doubts: doubts::Doubts,
    buffer: Vec<u8>,
}

/// The ids and unique values that entities of one kind already use.
#[derive(Default)]
struct TakenIn {
    /// Ids with the numbers of their elements.
    ids: FastMap<Uuid, u32>,
    /// Derived ids of shadowed entities (see [`Node::is_shadowed`]). They are kept apart from `ids`, because the entity
    /// that replaces a shadowed one may have the same id.
    left_out: FastSet<Uuid>,
    names: FastMap<CompactString, Uuid>,
    /// Values of the other unique fields. The key contains the position of the field.
    values: FastMap<(usize, CompactString), Uuid>,
    /// Combinations that must be unique, as returned by [`memo::combination`](super::memo::combination).
    combinations: FastMap<u128, Uuid>,
}

impl<'a> Load<'a> {
    pub(super) fn new(
        context: Context,
        mode: Mode,
        existing: &'a dyn Existing,
        others: Others<'a>,
    ) -> Self {
        let size = EntityKind::LIMIT;
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
            others,
            watch: None,
            completed: 0,
            report: Report::default(),
            failed: false,
            nodes: Vec::new(),
            by_kind: vec![Vec::new(); size],
            taken,
            by_content: ids::ByContent::default(),
            shared: FastSet::default(),
            document: Document::default(),
            doubts: doubts::Doubts::default(),
            buffer: Vec::new(),
        }
    }

    /// Sets a function that is called with the number of completed entities and their total.
    pub(super) fn watched(mut self, watch: &'a mut dyn FnMut(usize, usize)) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Reports a problem of one of the document's own fields.
    pub(super) fn top_problem(&mut self, field: &str, problem: &str) {
        self.failed = true;
        // Each field occurs once in a document, so `push` needs no search.
        self.report.top.push(field, Value::from(problem));
    }

    /// Processes the entities added so far, which frees their input. Returns false if the run must stop because of a
    /// problem. The problem may be a reference to an entity that has not been added yet.
    pub(super) fn work_off(&mut self) -> bool {
        for kind in EntityKind::all() {
            if self.mode == Mode::Quick && self.failed {
                return false;
            }
            self.load_kind(kind);
        }
        !self.failed
    }

    /// Processes all entities. The report is complete only in a `Report` run.
    pub(super) fn run(mut self) -> Result<Loaded, Report> {
        if self.mode == Mode::Quick && self.failed {
            return Err(self.into_report());
        }
        self.add_default_workspace();
        self.work_off();
        if self.failed || !self.references_hold() {
            return Err(self.into_report());
        }
        self.delete_the_rest();
        self.document.is_empty = self.is_empty();
        self.document.warnings = std::mem::take(&mut self.doubts).into_warnings();
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

    // === separating nested entities ===

    /// Adds an entity with everything nested in it.
    pub(super) fn add(
        &mut self,
        kind: EntityKind,
        parent: Option<Parent>,
        index: usize,
        element: u32,
        value: Value,
    ) {
        let problem = match value {
            Value::Object(input) => return self.add_entity(kind, parent, index, element, input),
            // Some encoders write an empty mapping as an empty array.
            Value::Array(values) if values.is_empty() => {
                return self.add_entity(kind, parent, index, element, Object::new());
            }
            Value::Null => "required field missing",
            _ => "expected a record",
        };
        self.failed = true;
        let mut place =
            DocumentEntity::new(kind, parent.and_then(|parent| parent.entity.node()), index);
        place.problems.push(Problem::NotAnEntity(problem));
        self.report.places.push(place);
    }

    fn add_entity(
        &mut self,
        kind: EntityKind,
        parent: Option<Parent>,
        index: usize,
        element: u32,
        input: Object,
    ) {
        let relations = relations::of(kind);
        let at = self.nodes.len();
        self.by_kind[kind.index()].push(at);
        let place = || {
            Box::new(DocumentEntity::new(
                kind,
                parent.and_then(|parent| parent.entity.node()),
                index,
            ))
        };
        self.nodes.push(Node {
            kind,
            element,
            place: (self.mode == Mode::Report).then(place),
            input: Object::new(),
            parent,
            id: Uuid::nil(),
            combination: 0,
            is_shadowed: false,
        });
        let foreign_to_it = |name: &str| {
            relations.child(name).is_some() || name.starts_with('_') || name == "ws_id"
        };
        if let Some(place) = &mut self.nodes[at].place {
            place.input = Some(without_nested(relations, &input));
        }
        self.nodes[at].input = if input.iter().any(|(name, _)| foreign_to_it(name)) {
            self.detach(at, relations, input)
        } else {
            input
        };
    }

    /// Removes nested entities and entries that are not fields. Returns the remaining input.
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
                    let parent = Parent {
                        field: child.field,
                        entity: ParentEntity::Node(at),
                    };
                    self.add(child.kind, Some(parent), index, element, value);
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
        let of_kind = &self.by_kind[EntityKind::Workspaces.index()];
        let is_default = |at: &usize| self.nodes[*at].input.str("name") == Some("default");
        let names = &self.taken[EntityKind::Workspaces.index()].names;
        let is_loaded = of_kind.iter().any(is_default) || names.contains_key("default");
        let is_there = match self.others {
            Others::None => is_loaded,
            Others::Unchanged(_) => true,
            Others::Existing => {
                let existing = self.existing;
                let default = existing.id_by_unique(EntityKind::Workspaces, "name", "default");
                is_loaded || default.is_some()
            }
        };
        if is_there {
            return;
        }
        let fields = [
            ("id", Value::from(DEFAULT_WORKSPACE.to_string())),
            ("name", Value::from("default")),
        ];
        let input = fields.into_iter().collect();
        self.add_entity(EntityKind::Workspaces, None, of_kind.len(), u32::MAX, input);
    }

    // === processing one kind after the other ===

    fn load_kind(&mut self, kind: EntityKind) {
        let nodes = std::mem::take(&mut self.by_kind[kind.index()]);
        let relations = relations::of(kind);
        self.taken[kind.index()].ids.reserve(nodes.len());
        self.taken[kind.index()].names.reserve(nodes.len());
        let mut identified = Vec::with_capacity(nodes.len());
        for &at in &nodes {
            identified.push((at, self.identify(at, relations)));
            self.resolve(at, relations);
        }
        self.find_shadowed(&nodes, relations);
        let mut unsettled = Vec::new();
        for (at, derived) in identified {
            match derived {
                Some(id) if !self.may_exist_under_another_id(at) => self.claim(at, relations, id),
                derived => unsettled.push((at, derived)),
            }
        }
        // These get the id of an existing entity if they match one. They come last, so that the id of another entity in
        // the document has precedence.
        for (at, derived) in unsettled {
            if let Some(id) = self.look_up(at, relations).or(derived) {
                self.claim(at, relations, id);
            }
        }
        for at in nodes {
            self.complete(at, relations);
            if self.mode == Mode::Quick && self.failed {
                return;
            }
            self.tell_progress();
        }
    }

    fn tell_progress(&mut self) {
        const STEP: usize = 1000;
        self.completed += 1;
        let total = self.nodes.len();
        if let Some(watch) = &mut self.watch
            && (self.completed.is_multiple_of(STEP) || self.completed == total)
        {
            watch(self.completed, total);
        }
    }

    /// Whether all entities that unchanged entities refer to still exist under their names.
    fn references_hold(&self) -> bool {
        let Others::Unchanged(unchanged) = self.others else {
            return true;
        };
        unchanged.shared().all(|(kind, id)| {
            let taken = &self.taken[kind.index()];
            let has_name = || {
                let field = relations::of(kind).name?;
                let old = codec::decode::<Object>(self.existing.get(kind, id)?).ok()?;
                Some(taken.names.get(old.str(field)?) == Some(&id))
            };
            taken.ids.contains_key(&id) && has_name().unwrap_or(true)
        })
    }

    fn is_empty(&self) -> bool {
        let is_workspace = |node: &Node| node.kind == EntityKind::Workspaces;
        let others_are_empty = match self.others {
            Others::None => true,
            Others::Unchanged(unchanged) => unchanged.is_empty(),
            Others::Existing => false,
        };
        others_are_empty && self.nodes.iter().all(is_workspace)
    }

    fn delete_the_rest(&mut self) {
        let deletes = &mut self.document.deletes;
        for kind in EntityKind::all().rev() {
            let ids = &self.taken[kind.index()].ids;
            let mut visit = |id: Uuid| {
                if !ids.contains_key(&id) {
                    deletes.push((kind, id));
                }
            };
            match self.others {
                Others::None => self.existing.for_each(kind, &mut |id, _| visit(id)),
                Others::Unchanged(unchanged) => unchanged.replaced(kind).for_each(visit),
                Others::Existing => {}
            }
        }
    }
}

/// Returns an entity as it is shown with its problems. Nested entities are left out; annotations stay.
fn without_nested(relations: &Relations, input: &Object) -> Object {
    let mut own = Object::with_capacity(input.len());
    for (name, value) in input.iter() {
        let is_list = matches!(value, Value::Array(_) | Value::Object(_));
        if !(is_list && relations.child(name).is_some()) {
            own.push(name, value.clone());
        }
    }
    own
}

/// Returns the problem of a `_comment` or `_ignore`, if any. Both are allowed in every entity and have no effect.
pub(super) fn annotation_problem(name: &str, value: &Value) -> Option<&'static str> {
    match (name, value) {
        (_, Value::Null) | ("_comment", Value::String(_)) | ("_ignore", Value::Array(_)) => None,
        ("_ignore", Value::Object(object)) if object.is_empty() => None,
        ("_comment", _) => Some("expected a string"),
        _ => Some("expected an array"),
    }
}

fn duplicate_message(kind: EntityKind, field: &str, value: &str) -> String {
    format!(
        "uniqueness violation: '{}' entity with {field} set to '{value}' already declared",
        kind.name()
    )
}

fn text_of(id: Uuid) -> Value {
    let mut buffer = Uuid::encode_buffer();
    Value::from(&*id.hyphenated().encode_lower(&mut buffer))
}
