//! A model of the store with plain maps. Its rules are simple conditions on the state after a whole change set. The
//! model shares nothing with the schemas or the code of the store.

use crate::support;
use model::{EntityKind as K, Object, Value, codec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Change, ChangeSet, Violation};
use uuid::Uuid;

/// The rules for entities of a type.
pub struct Rule {
    pub kind: K,
    pub unique: &'static [&'static str],
    /// Fields that are unique together. An absent field counts as a value.
    pub together: &'static [&'static str],
    pub parents: &'static [(&'static str, K, WithoutParent)],
}

/// The effect on an entity when the entity that it references is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum WithoutParent {
    Goes,
    Forbids,
}

use WithoutParent::{Forbids, Goes};

pub const RULES: &[Rule] = &[
    rule(K::Consumers, &["username", "custom_id"], &[], &[]),
    rule(K::Certificates, &[], &[], &[]),
    rule(
        K::Services,
        &["name"],
        &[],
        &[("client_certificate", K::Certificates, Forbids)],
    ),
    rule(
        K::Routes,
        &["name"],
        &[],
        &[("service", K::Services, Forbids)],
    ),
    rule(
        K::Snis,
        &["name"],
        &[],
        &[("certificate", K::Certificates, Forbids)],
    ),
    rule(
        K::Upstreams,
        &["name"],
        &[],
        &[("client_certificate", K::Certificates, Forbids)],
    ),
    rule(
        K::Targets,
        &[],
        &["upstream", "target"],
        &[("upstream", K::Upstreams, Goes)],
    ),
    rule(
        K::Plugins,
        &["instance_name"],
        &["name", "route", "service", "consumer"],
        &[
            ("route", K::Routes, Goes),
            ("service", K::Services, Goes),
            ("consumer", K::Consumers, Goes),
        ],
    ),
    rule(K::KeySets, &["name"], &[], &[]),
    rule(
        K::Keys,
        &["name"],
        &["kid", "set"],
        &[("set", K::KeySets, Goes)],
    ),
    rule(
        K::FilterChains,
        &["name", "route", "service"],
        &["route", "service"],
        &[("route", K::Routes, Goes), ("service", K::Services, Goes)],
    ),
    rule(
        plugins::kinds::KEYAUTH_CREDENTIALS,
        &["key"],
        &[],
        &[("consumer", K::Consumers, Goes)],
    ),
    rule(
        plugins::kinds::ACLS,
        &[],
        &["consumer", "group"],
        &[("consumer", K::Consumers, Goes)],
    ),
    rule(
        plugins::kinds::OAUTH2_CREDENTIALS,
        &["client_id"],
        &[],
        &[("consumer", K::Consumers, Goes)],
    ),
    rule(
        plugins::kinds::OAUTH2_TOKENS,
        &["access_token", "refresh_token"],
        &[],
        &[
            ("credential", plugins::kinds::OAUTH2_CREDENTIALS, Goes),
            ("service", K::Services, Goes),
        ],
    ),
    rule(
        plugins::kinds::OAUTH2_AUTHORIZATION_CODES,
        &["code"],
        &[],
        &[
            ("service", K::Services, Goes),
            ("credential", plugins::kinds::OAUTH2_CREDENTIALS, Goes),
            ("plugin", K::Plugins, Goes),
        ],
    ),
];

const fn rule(
    kind: K,
    unique: &'static [&'static str],
    together: &'static [&'static str],
    parents: &'static [(&'static str, K, WithoutParent)],
) -> Rule {
    Rule {
        kind,
        unique,
        together,
        parents,
    }
}

pub fn rule_of(kind: K) -> &'static Rule {
    let found = RULES.iter().find(|rule| rule.kind == kind);
    found.expect("only kinds with rules are used")
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Text(String),
    Parent(Uuid),
    Tags(Vec<String>),
}

/// An entity as fields and in its stored form.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub cells: BTreeMap<String, Cell>,
    pub bytes: Vec<u8>,
}

pub type Key = (K, Uuid);

impl Row {
    pub fn new(key: Key, cells: BTreeMap<String, Cell>) -> Self {
        let fields: Vec<(&str, Value)> = cells
            .iter()
            .map(|(name, cell)| {
                let value = match cell {
                    Cell::Text(text) => text.as_str().into(),
                    Cell::Parent(id) => support::reference(*id),
                    Cell::Tags(tags) => {
                        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
                        support::tags(&tags)
                    }
                };
                (name.as_str(), value)
            })
            .collect();
        let Change::Put { entity, .. } = support::put(key.0, key.1, &fields) else {
            unreachable!("it is a put");
        };
        Self {
            cells,
            bytes: entity,
        }
    }

    pub fn parse(bytes: &[u8]) -> Self {
        let object: Object = codec::decode(bytes).unwrap();
        let mut cells = BTreeMap::new();
        for (name, value) in object.iter().filter(|(name, _)| *name != "id") {
            let cell = if let Some(text) = value.as_str() {
                Cell::Text(text.to_owned())
            } else if let Some(reference) = value.as_object() {
                Cell::Parent(reference.str("id").unwrap().parse().unwrap())
            } else {
                let tags = value.as_array().unwrap().iter();
                Cell::Tags(tags.map(|tag| tag.as_str().unwrap().to_owned()).collect())
            };
            cells.insert(name.to_string(), cell);
        }
        Self {
            cells,
            bytes: bytes.to_vec(),
        }
    }

    pub fn parent(&self, field: &str) -> Option<Uuid> {
        match self.cells.get(field) {
            Some(Cell::Parent(id)) => Some(*id),
            _ => None,
        }
    }

    pub fn tags(&self) -> &[String] {
        match self.cells.get("tags") {
            Some(Cell::Tags(tags)) => tags,
            _ => &[],
        }
    }
}

#[derive(Debug, Clone)]
pub enum Edit {
    Put(Arc<Row>),
    Delete,
    /// Bytes that are not an encoded entity.
    Garbage,
}

/// A change set, for the model and for the store.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    pub entities: Vec<(Key, Edit)>,
    pub meta: Vec<(String, Option<Vec<u8>>)>,
}

impl Edits {
    pub fn to_change_set(&self) -> ChangeSet {
        let changes = self.entities.iter().map(|((kind, id), edit)| {
            let entity = match edit {
                Edit::Put(row) => row.bytes.clone(),
                Edit::Garbage => vec![0xc1, 7],
                Edit::Delete => return support::delete(*kind, *id),
            };
            Change::Put {
                kind: *kind,
                id: *id,
                entity,
            }
        });
        ChangeSet {
            changes: changes.collect(),
            meta: self.meta.clone(),
        }
    }
}

/// A violated rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    Unique(K),
    Dangling { key: Key, field: &'static str },
    Garbage(Key),
}

#[derive(Debug)]
pub struct Refused {
    pub broken: BTreeSet<Broken>,
    /// Number of entities that the change set would write or remove.
    pub touched: usize,
}

impl Refused {
    /// Whether the model found the same violation as the store.
    pub fn explains(&self, violation: &Violation) -> bool {
        let key = (violation.kind(), violation.id());
        match violation {
            Violation::Unique { kind, .. } => self.broken.contains(&Broken::Unique(*kind)),
            Violation::Malformed { .. } => self.broken.contains(&Broken::Garbage(key)),
            Violation::Foreign { field, .. } => self.broken.iter().any(
                |broken| matches!(broken, Broken::Dangling { key: of, field: at } if *of == key && at == field),
            ),
            Violation::Referenced { by, .. } => self.broken.iter().any(
                |broken| matches!(broken, Broken::Dangling { key: (kind, _), .. } if kind == by),
            ),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    pub rows: BTreeMap<Key, Arc<Row>>,
    pub meta: BTreeMap<String, Vec<u8>>,
}

impl State {
    /// Returns the state after a change set.
    pub fn apply(&self, edits: &Edits) -> Result<State, Refused> {
        let mut after = self.clone();
        let written: BTreeMap<Key, &Edit> = edits
            .entities
            .iter()
            .map(|(key, edit)| (*key, edit))
            .collect();
        let mut broken = BTreeSet::new();
        for (key, edit) in &written {
            match edit {
                Edit::Put(row) => {
                    after.rows.insert(*key, Arc::clone(row));
                }
                Edit::Delete => {
                    after.rows.remove(key);
                }
                Edit::Garbage => {
                    broken.insert(Broken::Garbage(*key));
                }
            }
        }
        let cascaded = after.remove_orphans(&written);
        after.check_references(&mut broken);
        after.check_unique(&mut broken);
        if !broken.is_empty() {
            let touched = written.len() + cascaded;
            return Err(Refused { broken, touched });
        }
        for (name, value) in &edits.meta {
            match value {
                Some(value) => after.meta.insert(name.clone(), value.clone()),
                None => after.meta.remove(name),
            };
        }
        Ok(after)
    }

    /// Removes all entities whose parents are gone, directly or indirectly, except those that were written; returns
    /// their number.
    fn remove_orphans(&mut self, written: &BTreeMap<Key, &Edit>) -> usize {
        let before = self.rows.len();
        loop {
            let orphans: Vec<Key> = self
                .dangling()
                .filter(|(key, _, without)| *without == Goes && !written.contains_key(key))
                .map(|(key, _, _)| key)
                .collect();
            if orphans.is_empty() {
                return before - self.rows.len();
            }
            for key in orphans {
                self.rows.remove(&key);
            }
        }
    }

    fn dangling(&self) -> impl Iterator<Item = (Key, &'static str, WithoutParent)> {
        self.rows.iter().flat_map(|(key, row)| {
            let parents = rule_of(key.0).parents.iter();
            parents.filter_map(|(field, kind, without)| {
                let parent = (*kind, row.parent(field)?);
                (!self.rows.contains_key(&parent)).then_some((*key, *field, *without))
            })
        })
    }

    fn check_references(&self, broken: &mut BTreeSet<Broken>) {
        broken.extend(
            self.dangling()
                .map(|(key, field, _)| Broken::Dangling { key, field }),
        );
    }

    fn check_unique(&self, broken: &mut BTreeSet<Broken>) {
        let mut seen = BTreeSet::new();
        for ((kind, _), row) in &self.rows {
            let rule = rule_of(*kind);
            for field in rule.unique {
                if let Some(cell) = row.cells.get(*field)
                    && !seen.insert((*kind, *field, vec![Some(cell)]))
                {
                    broken.insert(Broken::Unique(*kind));
                }
            }
            let together: Vec<_> = rule
                .together
                .iter()
                .map(|field| row.cells.get(*field))
                .collect();
            if !together.is_empty() && !seen.insert((*kind, "", together)) {
                broken.insert(Broken::Unique(*kind));
            }
        }
    }
}
