//! Formats the errors of a document as the indented listing of `config parse`. The listing contains the lines of the
//! entities and suggestions for unknown names. Responses of the Admin API have neither, as in Kong.

use super::positions::{DOCUMENT, Positions};
use super::relations::{self, Relations};
use super::{Format, loader, problems};
use crate::error::{Error, brace_notation};
use crate::kind::EntityKind;
use crate::schema::{Record, RouterFlavor, registry};
use crate::value::{Object, Value};
use expr::nearest;
use std::fmt::Write;

/// Formats the errors of a document for `check`, `import` and a failed start. `text` is the document's text.
pub fn format_cli_errors(
    error: &Error,
    text: &[u8],
    format: Format,
    flavor: RouterFlavor,
) -> String {
    let Some(fields) = error.fields.as_ref().filter(|fields| !fields.is_empty()) else {
        return error.message.trim_end().to_owned();
    };
    if let Some(problem) = unreadable(fields) {
        return in_words(problem, text);
    }
    // Reading the text again is useless if it could not be parsed. Such an error names no collection.
    let has_entities = fields
        .iter()
        .any(|(name, _)| relations::collection(name).is_some());
    let positions = if has_entities {
        Positions::of(text, format)
    } else {
        Positions::default()
    };
    let mut listing = Listing {
        out: String::new(),
        positions: &positions,
        flavor,
    };
    listing.fields(fields, 0, Subject::Document);
    let mut out = listing.out;
    for warning in positions.into_warnings() {
        let _ = writeln!(out, "warning: {warning}");
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns why a document could not be parsed, without the words of the Admin API.
fn unreadable(fields: &Object) -> Option<&str> {
    let problem = fields.str("error").filter(|_| fields.len() == 1)?;
    problem.strip_prefix(problems::UNREADABLE)
}

/// Describes why a text could not be parsed. The parsers write positions as `4:3: …` and `… at line 4 column 3`.
fn in_words(problem: &str, text: &[u8]) -> String {
    let is_blank = |line: &[u8]| {
        let line = line.trim_ascii();
        line.is_empty() || line.starts_with(b"#")
    };
    if text.split(|byte| *byte == b'\n').all(is_blank) {
        return "the file is empty".to_owned();
    }
    let of_yaml = || {
        let (position, problem) = problem.split_once(": ")?;
        Some((position.split_once(':')?, problem))
    };
    let of_json = || {
        let (problem, position) = problem.rsplit_once(" at line ")?;
        Some((position.split_once(" column ")?, problem))
    };
    match of_yaml().or_else(of_json) {
        Some(((line, column), problem))
            if line.parse::<usize>().is_ok() && column.parse::<usize>().is_ok() =>
        {
            format!("line {line}, column {column}: {problem}")
        }
        _ => problem.to_owned(),
    }
}

/// Returns the problem with the name of an unknown plugin. Kong's text advises to enable the plugin, which does not help
/// here, so this text takes its place.
fn unknown_plugin(message: &str) -> Option<String> {
    let rest = message.strip_prefix("plugin '")?;
    let (name, _) = rest.split_once("' not enabled; ")?;
    if registry().plugin(name).is_some() {
        return None;
    }
    let known = registry().plugins().map(|plugin| plugin.name);
    Some(match nearest(name, known) {
        Some(known) => format!("there is no plugin `{name}`; did you mean `{known}`?"),
        None => format!("there is no plugin `{name}`"),
    })
}

struct Listing<'a> {
    out: String,
    positions: &'a Positions,
    flavor: RouterFlavor,
}

/// The part of a document that a subtree of the errors is about.
#[derive(Clone, Copy)]
enum Subject {
    Document,
    /// The entities of a kind, and the entity or document around them. It is `None` if the text does not contain it.
    Collection(EntityKind, Option<usize>),
    /// An entity of a kind. The index is `None` if the entity was not found in the text.
    Entity(EntityKind, Option<usize>, &'static Record),
    /// The fields of a record, or of each record in a list.
    Record(&'static Record),
    Other,
}

impl Listing<'_> {
    fn fields(&mut self, fields: &Object, indent: usize, place: Subject) {
        let mut fields: Vec<_> = fields.iter().collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, value) in fields {
            let title = format!("in '{name}'");
            if let Subject::Collection(kind, _) = place {
                // Problems with references are listed under the names of the entities, not their positions.
                let entity = self.positions.named(kind, name);
                let title = self.with_line(title, entity);
                self.value(&title, name, value, indent, Subject::Other);
            } else if value.as_str() == Some("unknown field")
                && let Some(known) = place.nearest(name)
            {
                let hint = format!("unknown field; did you mean `{known}`?").into();
                self.value(&title, name, &hint, indent, Subject::Other);
            } else {
                self.value(&title, name, value, indent, place.of_field(name));
            }
        }
    }

    fn value(&mut self, title: &str, name: &str, value: &Value, indent: usize, place: Subject) {
        let _ = write!(self.out, "{:indent$}{title}:", "");
        match value {
            Value::Object(inner) => {
                self.out.push('\n');
                self.fields(inner, indent + 2, place);
            }
            Value::Array(list) => {
                self.out.push('\n');
                let present = list.iter().enumerate();
                for (index, value) in present.filter(|(_, value)| !value.is_null()) {
                    let title = format!("- in entry {} of '{name}'", index + 1);
                    let (title, place) = match place {
                        Subject::Collection(kind, parent) => {
                            let entity = self.entity(kind, parent, index, value);
                            let record = self.record(kind, entity);
                            let title = self.with_line(title, entity);
                            (title, Subject::Entity(kind, entity, record))
                        }
                        _ => (title, place),
                    };
                    self.value(&title, name, value, indent + 2, place);
                }
            }
            Value::String(message) => {
                // A message may show an expression and underline a part of it on the next line. These lines must be
                // indented alike.
                let shown = unknown_plugin(message)
                    .unwrap_or_else(|| message.replace('\n', &format!("\n{:indent$}  ", "")));
                let _ = writeln!(self.out, " {shown}");
            }
            other => {
                let _ = writeln!(self.out, " {}", brace_notation(other));
            }
        }
    }

    /// Finds the entity that a problem is about. The problem is at position `index` of a collection.
    fn entity(
        &self,
        kind: EntityKind,
        parent: Option<usize>,
        index: usize,
        problem: &Value,
    ) -> Option<usize> {
        let at_place = self.positions.entity(parent?, kind, index);
        let Some(name) = problem.as_str().and_then(|text| taken_name(kind, text)) else {
            return at_place;
        };
        // Kong reports a duplicate name as if the entity were at the top level. That position may belong to another
        // entity, or the entity may be nested.
        let has_name = |entity: &usize| self.positions.name(*entity) == Some(name);
        let nested = || {
            let entity = self.positions.named(kind, name)?;
            (self.positions.index(entity) == index).then_some(entity)
        };
        at_place.filter(has_name).or_else(nested)
    }

    fn record(&self, kind: EntityKind, entity: Option<usize>) -> &'static Record {
        let subschema = entity.and_then(|entity| self.positions.subschema(entity));
        relations::of(kind).schema.record(subschema, self.flavor)
    }

    fn with_line(&self, title: String, entity: Option<usize>) -> String {
        match entity {
            Some(entity) => format!("{title} (line {})", self.positions.line(entity)),
            None => title,
        }
    }
}

impl Subject {
    fn of_field(self, name: &str) -> Self {
        let of_record =
            |record: &'static Record| record.inner(name).map_or(Self::Other, Self::Record);
        match self {
            Self::Document => relations::collection(name)
                .map_or(Self::Other, |kind| Self::Collection(kind, Some(DOCUMENT))),
            Self::Entity(kind, entity, record) => match relations::of(kind).child(name) {
                Some(child) => Self::Collection(child.kind, entity),
                None => of_record(record),
            },
            Self::Record(record) => of_record(record),
            Self::Collection(..) | Self::Other => Self::Other,
        }
    }

    /// The allowed field name that is most similar to an unknown one.
    fn nearest(self, name: &str) -> Option<&'static str> {
        match self {
            Self::Document => {
                let kinds = EntityKind::all().map(|kind| kind.name());
                let collections = kinds.filter(|name| relations::collection(name).is_some());
                nearest(name, collections.chain(loader::FIELDS))
            }
            Self::Entity(kind, _, record) => {
                let Relations { children, .. } = relations::of(kind);
                let children = children.iter().map(|child| child.name);
                nearest(name, record.names().chain(children))
            }
            Self::Record(record) => nearest(name, record.names()),
            Self::Collection(..) | Self::Other => None,
        }
    }
}

/// Extracts the name from the message that another entity already has this name.
fn taken_name(kind: EntityKind, problem: &str) -> Option<&str> {
    let field = relations::of(kind).name?;
    let kind = kind.name();
    let begin = format!("uniqueness violation: '{kind}' entity with {field} set to '");
    let (name, _) = problem.strip_prefix(&begin)?.rsplit_once("' already ")?;
    Some(name)
}
