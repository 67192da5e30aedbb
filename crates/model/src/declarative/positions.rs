//! Finds the lines of a document's entities, and the names that its objects contain more than once.
//!
//! The loader does not record lines. If a document has errors or repeated names, this module reads the text a second
//! time and records the line of each entity.

use super::load::doubts::Doubts;
use super::{Format, json, relations, text, yaml};
use crate::hashing::FastMap;
use crate::kind::EntityKind;
use compact_str::CompactString;
use std::collections::HashMap;

/// A token of a JSON or YAML text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// The start of a list.
    List,
    /// The start of an object.
    Map,
    /// The end of the innermost list or object.
    End,
    /// A JSON string, or a YAML scalar in the form that it would have as a name.
    Text(CompactString),
    /// Any other node: a JSON number, boolean or null, or in YAML an alias or the merge key `<<`.
    Other,
}

/// Index of the document itself, which is the parent of the top-level entities.
pub(super) const DOCUMENT: usize = 0;

/// Maximum nesting depth. It is the limit of the JSON parser, so a text that was parsed is never deeper.
const MAX_DEPTH: usize = 128;

#[derive(Default)]
pub(super) struct Positions {
    entities: Vec<Entity>,
    /// Entities by parent, kind and position in their collection.
    by_path: FastMap<(usize, EntityKind, usize), usize>,
    /// Entities by the name that references may use, or by id if they have no name. The last one counts if several have
    /// the same name.
    by_name: HashMap<(EntityKind, CompactString), usize>,
    repeated: Doubts,
}

#[derive(Default)]
struct Entity {
    line: u64,
    index: usize,
    name: Option<CompactString>,
    id: Option<CompactString>,
    /// The value that selects the subschema, such as the name of a plugin.
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

    /// Returns the entity at a position in a collection of `parent`.
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

    /// Returns a sentence for each name that an object repeats.
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
    /// The entities of a kind that are nested in another entity or in the document.
    Collection(EntityKind, usize),
    Entity(EntityKind, usize),
    Other,
}

struct Survey<'a> {
    tokens: Tokens<'a>,
    positions: Positions,
    depth: usize,
}

/// The methods that read nodes return `None` at the end of the text or at an unexpected token. The survey then ends.
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

    /// Reads the rest of a node, after its first token.
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
                    // If the name of the collection is repeated, the later entities replace the earlier ones.
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
