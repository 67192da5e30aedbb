//! Reads only the outline of a JSON document: the texts of its elements, each with its parent.
//!
//! An element is a top-level entity with everything nested in it. A large entity, for example a service with all routes
//! of a gateway, is split into several elements. Otherwise a change of one route would require loading all routes.

use super::load::{Parent, ParentEntity};
use super::memo::{ElementKey, Hashing};
use super::relations;
use super::{ids, json, migrate};
use crate::kind::EntityKind;
use crate::value::{Object, Value};

/// Maximum length of an element's text. A longer element is split if possible.
const LONG: usize = 4096;

/// The elements of a document and its other fields. Top-level elements of a kind come after the kinds that it refers
/// to.
#[derive(Default)]
pub(super) struct Outline<'a> {
    pub fields: Object,
    pub elements: Vec<Element<'a>>,
}

pub(super) struct Element<'a> {
    pub key: ElementKey,
    pub kind: EntityKind,
    pub nesting: Nesting,
    /// Position in the collection.
    pub index: usize,
    text: Text<'a>,
}

/// The position of an element in the document.
#[derive(Debug, Clone, Copy)]
pub(super) enum Nesting {
    Top,
    /// Nested in a top-level entity of this kind.
    InTop(EntityKind, Parent),
    Deeper(Parent),
}

enum Text<'a> {
    Whole(&'a [u8]),
    /// The remaining fields after the nested entities were removed.
    Rest(Object),
}

impl Element<'_> {
    pub(super) fn size(&self) -> usize {
        match &self.text {
            Text::Whole(text) => text.len(),
            // This text is small compared with the nested entities that were removed.
            Text::Rest(_) => 0,
        }
    }

    /// The element as a value. Returns `None` if its text is malformed.
    pub(super) fn value(&self, migrate: bool) -> Option<Value> {
        let mut value = match &self.text {
            Text::Whole(text) => unambiguous(text)?,
            Text::Rest(object) => Value::Object(object.clone()),
        };
        match self.nesting {
            Nesting::Top if migrate => migrate::top_level(self.kind, &mut value),
            Nesting::InTop(EntityKind::Services, _) if migrate => {
                migrate::in_service(self.kind, &mut value);
            }
            _ => {}
        }
        Some(value)
    }
}

impl Nesting {
    pub(super) fn parent(self) -> Option<Parent> {
        match self {
            Self::Top => None,
            Self::InTop(_, parent) | Self::Deeper(parent) => Some(parent),
        }
    }
}

/// Reads the outline. Returns `None` if the text is not an object or contains something that only the full parser
/// handles, such as a repeated name.
pub(super) fn read<'a>(text: &'a [u8], ignored: &[&str], hashing: &Hashing) -> Option<Outline<'a>> {
    let mut reader = Reader {
        hashing,
        outline: Outline::default(),
    };
    let mut collections = Vec::new();
    for (name, field) in json::split(text)? {
        if ignored.contains(&name.as_str()) {
            continue;
        }
        match relations::collection(&name) {
            Some(kind) => collections.push((kind, field)),
            None => reader.outline.fields.push(name, parsed(&field)?),
        }
    }
    collections.sort_by_key(|(kind, _)| EntityKind::all().position(|one| one == *kind));
    for (kind, field) in collections {
        reader.collection(kind, Nesting::Top, field)?;
    }
    Some(reader.outline)
}

struct Reader<'a, 'h> {
    hashing: &'h Hashing,
    outline: Outline<'a>,
}

impl<'a> Reader<'a, '_> {
    fn collection(
        &mut self,
        kind: EntityKind,
        nesting: Nesting,
        field: json::Field<'a>,
    ) -> Option<()> {
        let texts = match field {
            json::Field::Array(texts) => texts,
            json::Field::Other(text) => {
                return match serde_json::from_slice(text).ok()? {
                    Value::Null => Some(()),
                    Value::Object(object) if object.is_empty() => Some(()),
                    _ => None,
                };
            }
        };
        self.outline.elements.reserve(texts.len());
        for (index, text) in texts.into_iter().enumerate() {
            let is_done = text.len() > LONG && self.take_apart(kind, nesting, index, text)?;
            if !is_done {
                self.push(kind, nesting, index, Text::Whole(text));
            }
        }
        Some(())
    }

    fn push(&mut self, kind: EntityKind, nesting: Nesting, index: usize, text: Text<'a>) {
        let parent = nesting.parent();
        let key = match &text {
            Text::Whole(text) => self.hashing.key(kind, parent, text),
            Text::Rest(object) => {
                let text = serde_json::to_vec(object).unwrap_or_default();
                self.hashing.key(kind, parent, &text)
            }
        };
        self.outline.elements.push(Element {
            key,
            kind,
            nesting,
            index,
            text,
        });
    }

    /// Splits an entity into elements: one for itself and one for each nested entity. Returns false if it has no nested
    /// entities, or if its id cannot be determined before it is loaded. Returns `None` if the text is malformed.
    fn take_apart(
        &mut self,
        kind: EntityKind,
        nesting: Nesting,
        index: usize,
        text: &'a [u8],
    ) -> Option<bool> {
        let relations = relations::of(kind);
        let (mut rest, mut nested) = (Object::new(), Vec::new());
        for (name, field) in json::split(text)? {
            match relations.child(&name) {
                Some(child) => nested.push((child, field)),
                None => rest.push(name, parsed(&field)?),
            }
        }
        let parent = nesting.parent().map(|parent| match parent.entity {
            ParentEntity::Id(id) => Some((parent.field, id)),
            ParentEntity::Node(_) => None,
        });
        let id = ids::stable(relations, &rest, parent.flatten());
        let (Some(id), false) = (id, nested.is_empty()) else {
            return Some(false);
        };
        self.push(kind, nesting, index, Text::Rest(rest));
        for (child, field) in nested {
            let parent = Parent {
                field: child.field,
                entity: ParentEntity::Id(id),
            };
            let nesting = match nesting {
                Nesting::Top => Nesting::InTop(kind, parent),
                _ => Nesting::Deeper(parent),
            };
            self.collection(child.kind, nesting, field)?;
        }
        Some(true)
    }
}

fn parsed(field: &json::Field<'_>) -> Option<Value> {
    match field {
        json::Field::Array(elements) => {
            let values: Option<Vec<Value>> =
                elements.iter().map(|text| unambiguous(text)).collect();
            values.map(Value::Array)
        }
        json::Field::Other(text) => unambiguous(text),
    }
}

/// Parses a value. Returns `None` if an object in it repeats a name, because only the full parser warns about this.
fn unambiguous(text: &[u8]) -> Option<Value> {
    let (value, repeated) = Value::from_json(text).ok()?;
    (!repeated).then_some(value)
}
