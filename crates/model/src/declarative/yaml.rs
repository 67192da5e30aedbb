//! Parses YAML as Kong does. The grammar and the error texts are those of libyaml. The rules for anchors, merge keys
//! and scalars are those of lyaml.
//!
//! Input may be adversarial. The nesting depth and the expansion of aliases are limited, and the parser reads small
//! pieces so that its buffers stay small.

use super::positions::Token;
use super::scalar;
use crate::value::{Builder, MAX_DEPTH, Value};
use compact_str::CompactString;
use libyaml_safer::{Event, EventData, Mark, Parser, ScalarStyle};
use std::collections::{HashMap, HashSet};
use std::io::{BufReader, Chain, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Maximum memory of all copies that anchors and aliases cause in a document. It stops a "billion laughs" document.
const ALIAS_BUDGET: usize = 64 << 20;
/// Size of the pieces that the parser reads. The parser decodes a piece into four bytes per character.
const PIECE: usize = 16 << 10;
/// The byte order mark of UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";
const TAG_PREFIX: &str = "tag:yaml.org,2002:";

/// A YAML error as `line:column: problem`. As in lyaml, the position is that of the last valid event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct YamlError(String);

/// Parses the first document of the text. The value is `None` if the text has no document. Also returns whether a
/// mapping in it repeats a key. Later documents must be well-formed but are ignored.
pub(super) fn parse(text: &[u8]) -> Result<(Option<Value>, bool), YamlError> {
    // `libyaml_safer` panics if a comma follows a tag in brackets (`[!x,y]`). The panic must not end the process, so it
    // becomes an error.
    catch_unwind(AssertUnwindSafe(|| Reader::new(text).documents()))
        .unwrap_or_else(|_| Err(YamlError("malformed document".to_owned())))
}

struct Reader<'a> {
    parser: Parser<BufReader<Chain<&'a [u8], &'static [u8]>>>,
    /// Length of the text in bytes, without the line break that [`missing_break`] may append. The parser's positions do
    /// not count a byte order mark at the start.
    end: u64,
    /// Line and column of the last event.
    mark: (u64, u64),
    anchors: HashMap<String, Anchor>,
    alias_budget: usize,
    depth: usize,
    /// Whether a mapping so far repeats a key.
    repeated: bool,
}

struct Anchor {
    value: Value,
    size: usize,
}

/// The result of reading one node.
enum Node {
    Value(Value),
    /// The end of the surrounding sequence, mapping or document.
    End,
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Self {
        let mut parser = Parser::new();
        let input = text.chain(missing_break(text));
        parser.set_input(BufReader::with_capacity(PIECE, input));
        Self {
            parser,
            end: text.strip_prefix(BOM).unwrap_or(text).len() as u64,
            mark: (0, 0),
            anchors: HashMap::new(),
            alias_budget: ALIAS_BUDGET,
            depth: 0,
            repeated: false,
        }
    }

    fn documents(mut self) -> Result<(Option<Value>, bool), YamlError> {
        let mut first = None;
        loop {
            match self.event()?.data {
                EventData::StreamStart { .. } => {}
                EventData::StreamEnd => {
                    let (value, repeated) = first.unzip();
                    return Ok((value, repeated == Some(true)));
                }
                EventData::DocumentStart { .. } => {
                    if let Node::Value(value) = self.node()? {
                        first.get_or_insert((value, self.repeated));
                    }
                }
                EventData::DocumentEnd { .. } => self.anchors.clear(),
                _ => return Err(self.error("unexpected event")),
            }
        }
    }

    fn event(&mut self) -> Result<Event, YamlError> {
        match self.parser.parse() {
            Ok(event) => {
                let Mark { line, column, .. } = event.start_mark;
                self.mark = (line + 1, column + 1);
                Ok(event)
            }
            Err(error) => Err(self.error(error.problem())),
        }
    }

    fn error(&self, problem: impl std::fmt::Display) -> YamlError {
        let (line, column) = self.mark;
        YamlError(format!("{line}:{column}: {problem}"))
    }

    fn node(&mut self) -> Result<Node, YamlError> {
        let event = self.event()?;
        let has_added_break = event.end_mark.index > self.end;
        let (value, anchor) = match event.data {
            EventData::Alias { anchor } => return self.alias(&anchor).map(Node::Value),
            EventData::Scalar {
                anchor,
                tag,
                mut value,
                style,
                ..
            } => {
                if has_added_break && is_block(style) && value.ends_with('\n') {
                    value.pop();
                }
                (self.scalar(tag.as_deref(), value, style)?, anchor)
            }
            EventData::SequenceStart { anchor, .. } => (self.nested(Self::sequence)?, anchor),
            EventData::MappingStart { anchor, .. } => (self.nested(Self::mapping)?, anchor),
            _ => return Ok(Node::End),
        };
        if let Some(name) = anchor {
            let size = size_of_value(&value);
            let value = value.clone();
            self.spend(size)?;
            self.anchors.insert(name, Anchor { value, size });
        }
        Ok(Node::Value(value))
    }

    /// Expands an alias. An anchor is defined only after its node is complete, so a node cannot contain itself.
    fn alias(&mut self, name: &str) -> Result<Value, YamlError> {
        let Some(anchor) = self.anchors.get(name) else {
            return Err(self.error(format_args!("invalid reference: {name}")));
        };
        let size = anchor.size;
        self.spend(size)?;
        Ok(self.anchors[name].value.clone())
    }

    fn spend(&mut self, size: usize) -> Result<(), YamlError> {
        match self.alias_budget.checked_sub(size) {
            Some(rest) => {
                self.alias_budget = rest;
                Ok(())
            }
            None => Err(self.error("aliases expand to too much data")),
        }
    }

    fn scalar(
        &self,
        tag: Option<&str>,
        text: String,
        style: ScalarStyle,
    ) -> Result<Value, YamlError> {
        let name = tag.and_then(|tag| tag.strip_prefix(TAG_PREFIX));
        match name.and_then(|name| scalar::tagged(name, &text)) {
            Some(Ok(value)) => Ok(value),
            Some(Err(scalar::Mismatch)) => {
                let tag = tag.unwrap_or_default();
                Err(self.error(format_args!("invalid '{tag}' value: '{text}'")))
            }
            None if style == ScalarStyle::Plain => Ok(scalar::plain(text)),
            None => Ok(Value::from(text)),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Value, YamlError>,
    ) -> Result<Value, YamlError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn sequence(&mut self) -> Result<Value, YamlError> {
        let mut values = Vec::new();
        while let Node::Value(value) = self.node()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn mapping(&mut self) -> Result<Value, YamlError> {
        let mut fields = Fields::default();
        while let Node::Value(key) = self.node()? {
            let key = self.key(key)?;
            let Node::Value(value) = self.node()? else {
                return Err(self.error("unexpected end of mapping"));
            };
            if key == "<<" {
                self.merge(&mut fields, value)?;
            } else {
                self.repeated |= fields.set(key, value);
            }
        }
        Ok(Value::Object(fields.object.finish()))
    }

    /// Converts a key to text, since Kong has only text names.
    fn key(&self, key: Value) -> Result<CompactString, YamlError> {
        match key {
            Value::String(text) => Ok(text),
            Value::Null => Ok("null".into()),
            Value::Bool(value) => Ok(if value { "true".into() } else { "false".into() }),
            Value::Int(value) => Ok(compact_str::format_compact!("{value}")),
            Value::Float(value) => Ok(compact_str::format_compact!("{value}")),
            Value::Array(_) | Value::Object(_) => Err(self.error("a key must be a scalar")),
        }
    }

    /// Merges `<<: *base` or `<<: [*a, *b]`. Only fields that are absent are added.
    fn merge(&self, fields: &mut Fields, source: Value) -> Result<(), YamlError> {
        let sources = match source {
            Value::Array(values) => values,
            other => vec![other],
        };
        for source in sources {
            let Value::Object(object) = source else {
                return Err(self.error("invalid '<<' merge event"));
            };
            for (key, value) in object {
                fields.set_if_absent(key, value);
            }
        }
        Ok(())
    }
}

/// Reads the tokens of a text that was parsed before, for callers that need only their lines.
pub(super) struct Tokens<'a>(Reader<'a>);

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self(Reader::new(text))
    }

    /// Returns the next token of the first document and its line, or `None` at the end of the document.
    pub(super) fn next(&mut self) -> Option<(u64, Token)> {
        loop {
            let token = match self.0.event().ok()?.data {
                EventData::StreamStart { .. } | EventData::DocumentStart { .. } => continue,
                EventData::StreamEnd | EventData::DocumentEnd { .. } => return None,
                EventData::SequenceStart { .. } => Token::List,
                EventData::MappingStart { .. } => Token::Map,
                EventData::SequenceEnd | EventData::MappingEnd => Token::End,
                EventData::Alias { .. } => Token::Other,
                EventData::Scalar {
                    tag, value, style, ..
                } => {
                    let value = self.0.scalar(tag.as_deref(), value, style).ok()?;
                    match self.0.key(value).ok()? {
                        merge if merge == "<<" => Token::Other,
                        text => Token::Text(text),
                    }
                }
            };
            return Some((self.0.mark.0, token));
        }
    }
}

/// Returns a line break if the text does not end with one. Without a final line break, `libyaml_safer` reads past the
/// end of a block scalar or escape.
fn missing_break(text: &[u8]) -> &'static [u8] {
    let is_utf16 = text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff");
    match text.last() {
        None | Some(b'\n' | b'\r') => b"",
        Some(_) if is_utf16 => b"",
        Some(_) => b"\n",
    }
}

fn is_block(style: ScalarStyle) -> bool {
    matches!(style, ScalarStyle::Literal | ScalarStyle::Folded)
}

/// An object while it is being parsed.
#[derive(Default)]
struct Fields {
    object: Builder,
    /// Names that so far come only from a `<<`. A direct field of the same name overrides such a value and is not a
    /// repetition.
    merged: HashSet<CompactString>,
}

impl Fields {
    /// Sets a field. Returns whether this repeats an earlier direct field of the mapping, whose value is replaced.
    fn set(&mut self, key: CompactString, value: Value) -> bool {
        let is_override = !self.merged.is_empty() && self.merged.remove(&key);
        self.object.set(key, value).is_some() && !is_override
    }

    /// Sets a field that comes from a `<<`, unless the mapping has one of this name.
    fn set_if_absent(&mut self, key: CompactString, value: Value) {
        if !self.object.contains(&key) {
            self.merged.insert(key.clone());
            self.object.set(key, value);
        }
    }
}

/// Approximate memory of a value, for the budget that limits copies.
fn size_of_value(value: &Value) -> usize {
    let content = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size_of_value).sum(),
        Value::Object(object) => object
            .iter()
            .map(|(key, value)| key.len() + 24 + size_of_value(value))
            .sum(),
        _ => 0,
    };
    size_of::<Value>() + content
}
