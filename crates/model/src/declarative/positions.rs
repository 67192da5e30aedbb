//! The lines of a document's entities, and the names that its objects contain more than once.
//!
//! The loader knows nothing of places. This is another pass over a text that has been parsed already, only for a document
//! with errors or with repeated names. It keeps some numbers for each entity.

use super::load::doubts::Doubts;
use super::{Format, json, relations, text, yaml};
use crate::hashing::FastMap;
use crate::kind::EntityKind;
use compact_str::CompactString;
use std::collections::HashMap;

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A list begins.
    List,
    /// An object begins.
    Map,
    /// The end of the innermost list or map.
    End,
    /// A scalar, as it would be read as a name.
    Text(CompactString),
    /// A node without a name or text of its own: an alias, or what a `<<` stands before.
    Other,
}

/// The document itself, as the parent of the entities at the top.
pub(super) const DOCUMENT: usize = 0;

/// Objects nest no deeper in a text that could be parsed: the limit of the JSON parser.
const MAX_DEPTH: usize = 128;

#[derive(Default)]
pub(super) struct Positions {
    entities: Vec<Entity>,
    /// By parent, kind and place in its collection.
    by_path: FastMap<(usize, EntityKind, usize), usize>,
    /// By the name that others refer to, or the id. Of several the last.
    by_name: HashMap<(EntityKind, CompactString), usize>,
    repeated: Doubts,
}

#[derive(Default)]
struct Entity {
    line: u64,
    index: usize,
    name: Option<CompactString>,
    id: Option<CompactString>,
    /// The value that selects its subschema: the name of a plugin.
    subschema: Option<CompactString>,
}

impl Positions {
    pub(super) fn of(text: &[u8], format: Format) -> Self {
        let tokens = if text::is_json(text, format) {
            Tokens::Json(json::Tokens::new(text))
        } else {
            Tokens::Yaml(Box::new(yaml::Tokens::new(text)))
        };
        let mut survey = Survey {
            tokens,
            positions: Self {
                entities: vec![Entity::default()],
                ..Self::default()
            },
            depth: 0,
        };
        survey.node(Role::Document);
        survey.positions
    }

    /// The entity at a place of a collection.
    pub(super) fn entity(&self, parent: usize, kind: EntityKind, index: usize) -> Option<usize> {
        self.by_path.get(&(parent, kind, index)).copied()
    }

    pub(super) fn named(&self, kind: EntityKind, name: &str) -> Option<usize> {
        self.by_name.get(&(kind, name.into())).copied()
    }

    pub(super) fn line(&self, entity: usize) -> u64 {
        self.entities[entity].line
    }

    pub(super) fn index(&self, entity: usize) -> usize {
        self.entities[entity].index
    }

    pub(super) fn name(&self, entity: usize) -> Option<&str> {
        self.entities[entity].name.as_deref()
    }

    pub(super) fn subschema(&self, entity: usize) -> Option<&str> {
        self.entities[entity].subschema.as_deref()
    }

    /// A sentence for each name that an object has more than once.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.repeated.into_warnings()
    }
}

enum Tokens<'a> {
    Json(json::Tokens<'a>),
    Yaml(Box<yaml::Tokens<'a>>),
}

/// The role of a node in the document.
#[derive(Clone, Copy)]
enum Role {
    Document,
    /// The entities of a kind that belong to another one, or to the document.
    Collection(EntityKind, usize),
    Entity(EntityKind, usize),
    Other,
}

struct Survey<'a> {
    tokens: Tokens<'a>,
    positions: Positions,
    depth: usize,
}

/// `None` ends the whole survey: at the end of the text, or where something in it is not understood.
impl Survey<'_> {
    fn next(&mut self) -> Option<(u64, Token)> {
        match &mut self.tokens {
            Tokens::Json(tokens) => tokens.next(),
            Tokens::Yaml(tokens) => tokens.next(),
        }
    }

    /// Reads one node.
    fn node(&mut self, role: Role) -> Option<Token> {
        let (_, token) = self.next()?;
        self.inside(&token, role)?;
        Some(token)
    }

    /// Reads the rest of a node of which the first token has been taken.
    fn inside(&mut self, token: &Token, role: Role) -> Option<()> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        match token {
            Token::List => self.list(role)?,
            Token::Map => self.map(role)?,
            Token::End | Token::Text(_) | Token::Other => {}
        }
        self.depth -= 1;
        Some(())
    }

    fn list(&mut self, role: Role) -> Option<()> {
        for index in 0.. {
            let (line, token) = self.next()?;
            let role = match (role, &token) {
                (_, Token::End) => break,
                (Role::Collection(kind, parent), _) => {
                    let entity = self.positions.entities.len();
                    self.positions.entities.push(Entity {
                        line,
                        index,
                        ..Entity::default()
                    });
                    // Under a name that is given twice the later entities count.
                    let path = (parent, kind, index);
                    self.positions.by_path.insert(path, entity);
                    Role::Entity(kind, entity)
                }
                _ => Role::Other,
            };
            self.inside(&token, role)?;
        }
        Some(())
    }

    fn map(&mut self, role: Role) -> Option<()> {
        // The line of each name, and the number of entities in its value.
        let mut given: HashMap<CompactString, (u64, usize)> = HashMap::new();
        loop {
            let (line, token) = self.next()?;
            let name = match token {
                Token::End => break,
                Token::Text(name) => name,
                Token::Other => {
                    self.node(Role::Other)?;
                    continue;
                }
                Token::List | Token::Map => return None,
            };
            let before = self.positions.entities.len();
            let value = self.node(value_role(role, &name))?;
            let entities = self.positions.entities.len() - before;
            if let (Role::Entity(kind, entity), Token::Text(value)) = (role, value) {
                self.positions.entities[entity].learn(kind, &name, value);
            }
            if let Some((first, dropped)) = given.insert(name.clone(), (line, entities)) {
                self.positions.repeated.add(|| {
                    format!(
                        "line {line}: `{}` was given already in line {first}; the later value is used{}",
                        name.escape_debug(),
                        lost(dropped)
                    )
                });
            }
        }
        if let Role::Entity(kind, entity) = role {
            let found = &self.positions.entities[entity];
            if let Some(name) = found.name.as_ref().or(found.id.as_ref()) {
                let key = (kind, name.clone());
                self.positions.by_name.insert(key, entity);
            }
        }
        Some(())
    }
}

/// Says how many entities a repeated name loses.
fn lost(entities: usize) -> String {
    match entities {
        0 => String::new(),
        1 => ", and the entity of the earlier one is dropped".to_owned(),
        several => format!(", and the {several} entities of the earlier one are dropped"),
    }
}

/// Returns the role of a field's value.
fn value_role(role: Role, name: &str) -> Role {
    match role {
        Role::Document => {
            relations::collection(name).map_or(Role::Other, |kind| Role::Collection(kind, DOCUMENT))
        }
        Role::Entity(kind, entity) => match relations::of(kind).child(name) {
            Some(child) => Role::Collection(child.kind, entity),
            None => Role::Other,
        },
        Role::Collection(..) | Role::Other => Role::Other,
    }
}

impl Entity {
    fn learn(&mut self, kind: EntityKind, field: &str, value: CompactString) {
        let relations = relations::of(kind);
        if relations.schema.subschema_key.as_deref() == Some(field) {
            self.subschema = Some(value.clone());
        }
        if relations.name == Some(field) {
            self.name = Some(value);
        } else if field == "id" {
            self.id = Some(value);
        }
    }
}
