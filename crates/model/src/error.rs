//! Kong's error objects with `code`, `name`, `message` and `fields`, and the HTTP status of each.
//! Source: kong/db/errors.lua.

use crate::value::{Object, Value};
use std::fmt::{self, Write};

/// An error of the Admin API.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    pub code: ErrorCode,
    pub message: String,
    /// The `fields` of the JSON object. For [`ErrorCode::InvalidOptions`], its name there is `options`.
    pub fields: Option<Object>,
    /// The `flattened_errors` of a declarative configuration, if the client requested them.
    pub flattened_errors: Option<Value>,
}

/// The kind of an error. The numbers are part of the Admin API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ErrorCode {
    InvalidPrimaryKey = 1,
    SchemaViolation = 2,
    PrimaryKeyViolation = 3,
    ForeignKeyViolation = 4,
    UniqueViolation = 5,
    NotFound = 6,
    InvalidOffset = 7,
    DatabaseError = 8,
    InvalidSize = 9,
    /// The shown name contains the field: `invalid unique <field>`. The message must start with the field and a colon.
    InvalidUnique = 10,
    InvalidOptions = 11,
    OperationUnsupported = 12,
    ForeignKeysUnresolved = 13,
    DeclarativeConfig = 14,
    ReferencedByOthers = 19,
}

impl ErrorCode {
    pub const ALL: [ErrorCode; 15] = [
        Self::InvalidPrimaryKey,
        Self::SchemaViolation,
        Self::PrimaryKeyViolation,
        Self::ForeignKeyViolation,
        Self::UniqueViolation,
        Self::NotFound,
        Self::InvalidOffset,
        Self::DatabaseError,
        Self::InvalidSize,
        Self::InvalidUnique,
        Self::InvalidOptions,
        Self::OperationUnsupported,
        Self::ForeignKeysUnresolved,
        Self::DeclarativeConfig,
        Self::ReferencedByOthers,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidPrimaryKey => "invalid primary key",
            Self::SchemaViolation => "schema violation",
            Self::PrimaryKeyViolation => "primary key violation",
            Self::ForeignKeyViolation => "foreign key violation",
            Self::UniqueViolation => "unique constraint violation",
            Self::NotFound => "not found",
            Self::InvalidOffset => "invalid offset",
            Self::DatabaseError => "database error",
            Self::InvalidSize => "invalid size",
            Self::InvalidUnique => "invalid unique",
            Self::InvalidOptions => "invalid options",
            Self::OperationUnsupported => "operation unsupported",
            Self::ForeignKeysUnresolved => "foreign keys unresolved",
            Self::DeclarativeConfig => "invalid declarative configuration",
            Self::ReferencedByOthers => "referenced by others",
        }
    }

    pub fn status(self) -> u16 {
        match self {
            Self::UniqueViolation => 409,
            Self::NotFound => 404,
            Self::OperationUnsupported => 405,
            Self::DatabaseError => 500,
            _ => 400,
        }
    }
}

impl Error {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fields: None,
            flattened_errors: None,
        }
    }

    pub fn with_fields(mut self, fields: Object) -> Self {
        self.fields = Some(fields);
        self
    }

    /// Creates the error for an entity that a schema refuses. `problems` has the shape of the entity. At most
    /// [`MAX_OF_ENTITY`] problems are reported.
    pub fn schema_violation(problems: Object) -> Self {
        let problems = bounded(problems, MAX_OF_ENTITY);
        let texts = violations(&problems);
        let message = match texts.len() {
            1 => format!("schema violation ({})", texts[0]),
            count => format!("{count} schema violations ({})", texts.join("; ")),
        };
        Self::new(ErrorCode::SchemaViolation, message).with_fields(problems)
    }

    /// Returns the error as a JSON object of the Admin API.
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = serde_json::Map::new();
        object.insert("code".into(), (self.code as u8).into());
        object.insert("name".into(), self.name().into());
        object.insert("message".into(), self.message.as_str().into());
        if let Some(fields) = &self.fields {
            let key = match self.code {
                ErrorCode::InvalidOptions => "options",
                _ => "fields",
            };
            object.insert(key.into(), json(fields));
        }
        if let Some(flattened) = &self.flattened_errors {
            object.insert("flattened_errors".into(), json(flattened));
        }
        serde_json::Value::Object(object)
    }

    /// Returns the shown name. For [`ErrorCode::InvalidUnique`], it ends with the field with which the message starts.
    fn name(&self) -> String {
        let name = self.code.name();
        match (self.code, self.message.split_once(':')) {
            (ErrorCode::InvalidUnique, Some((field, _))) => format!("{name} {field}"),
            _ => name.to_owned(),
        }
    }
}

/// Converts a value to JSON. This cannot fail, because a value tree contains only types that JSON has.
fn json(value: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Maximum number of problems reported for one entity. An entity can have hundreds of thousands of problems, and nobody
/// reads more than these.
pub const MAX_OF_ENTITY: usize = 1_000;

/// The text that replaces the first problem that is not reported.
pub const MORE: &str = "there are more errors, which are not shown";

/// Keeps the first `most` texts of a tree of problems. Replaces the next text by [`MORE`] and removes the rest.
pub(crate) fn bounded(mut problems: Object, most: usize) -> Object {
    let mut left = most;
    keep_fields(&mut problems, &mut left);
    problems
}

/// Limits one of several trees as [`bounded`] does. `left` is the number of texts that may still be reported. Returns
/// whether the whole tree is reported.
pub(crate) fn keep(problem: &mut Value, left: &mut usize) -> bool {
    match problem {
        Value::Null => true,
        Value::Object(problems) => keep_fields(problems, left),
        Value::Array(problems) => {
            let end = problems.iter_mut().position(|problem| !keep(problem, left));
            if let Some(end) = end {
                problems.truncate(end + 1);
            }
            end.is_none()
        }
        text if *left == 0 => {
            *text = MORE.into();
            false
        }
        _ => {
            *left -= 1;
            true
        }
    }
}

pub(crate) fn keep_fields(problems: &mut Object, left: &mut usize) -> bool {
    let end = problems
        .iter_mut()
        .position(|(_, problem)| !keep(problem, left));
    if let Some(end) = end {
        problems.truncate(end + 1);
    }
    end.is_none()
}

/// Returns one text per problem. Problems of the whole entity come first, then those of the fields in order of their
/// names. Problems of nested fields have one text each, down to one level.
/// Source: kong/db/errors.lua (schema_violation).
fn violations(problems: &Object) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(Value::Array(errors)) = problems.get("@entity") {
        texts.extend(errors.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    let mut fields: Vec<_> = problems
        .iter()
        .filter(|(name, problem)| *name != "@entity" || problem.as_array().is_none())
        .collect();
    fields.sort_by_key(|(name, _)| *name);
    for (name, problem) in fields {
        match problem {
            Value::Array(elements) => {
                for (index, problem) in elements.iter().enumerate() {
                    if !problem.is_null() {
                        texts.push(format!("{name}.{}: {}", index + 1, nested(problem)));
                    }
                }
            }
            Value::Object(object) => {
                let mut inner: Vec<_> = object.iter().collect();
                inner.sort_by_key(|(name, _)| *name);
                for (inner, problem) in inner {
                    texts.push(format!("{name}.{inner}: {}", nested(problem)));
                }
            }
            problem => texts.push(format!("{name}: {}", nested(problem))),
        }
    }
    texts
}

fn nested(problem: &Value) -> String {
    match problem {
        Value::String(text) => text.to_string(),
        problem => {
            let mut text = String::new();
            write_pretty(&mut text, problem, 0);
            text
        }
    }
}

/// Prints a table as Penlight's `pretty.write` does, with one entry per line and sorted by name. Elements after a gap
/// are printed with their index.
fn write_pretty(out: &mut String, value: &Value, indent: usize) {
    let mut lines: Vec<(String, &Value)> = Vec::new();
    match value {
        Value::Array(values) => {
            let mut gap = false;
            for (index, value) in values.iter().enumerate() {
                gap |= value.is_null();
                if !value.is_null() {
                    let key = if gap {
                        format!("[{}] = ", index + 1)
                    } else {
                        String::new()
                    };
                    lines.push((key, value));
                }
            }
        }
        Value::Object(object) => {
            lines.extend(object.iter().map(|(name, value)| (pretty_key(name), value)));
            lines.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        scalar => return write_brace(out, scalar),
    }
    out.push_str("{\n");
    for (index, (key, value)) in lines.iter().enumerate() {
        let _ = write!(out, "{:width$}{key}", "", width = indent + 2);
        write_pretty(out, value, indent + 2);
        out.push_str(if index + 1 < lines.len() { ",\n" } else { "\n" });
    }
    let _ = write!(out, "{:indent$}}}", "");
}

fn pretty_key(name: &str) -> String {
    if is_lua_name(name) {
        format!("{name} = ")
    } else {
        format!("[\"{name}\"] = ")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Prints a value as Kong does in messages: `{id="…"}`. Tables are in braces, names are sorted, and strings are quoted.
/// A null in an array is a gap, and the elements after it are numbered (`{[2]="…"}`). Source: kong/db/errors.lua
/// (pl.pretty.write without spacing).
pub fn brace_notation(value: &Value) -> String {
    let mut text = String::new();
    write_brace(&mut text, value);
    text
}

fn write_brace(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Int(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Float(value) => {
            let _ = write!(out, "{value}");
        }
        Value::String(text) => write_quoted(out, text),
        Value::Array(values) => write_brace_array(out, values),
        Value::Object(object) => write_brace_object(out, object),
    }
}

fn write_brace_array(out: &mut String, values: &[Value]) {
    let whole = values
        .iter()
        .position(Value::is_null)
        .unwrap_or(values.len());
    let present = values.iter().enumerate();
    let mut separator = "{";
    for (index, value) in present.filter(|(_, value)| !value.is_null()) {
        out.push_str(separator);
        separator = ",";
        if index > whole {
            let _ = write!(out, "[{}]=", index + 1);
        }
        write_brace(out, value);
    }
    out.push_str(if separator == "{" { "{}" } else { "}" });
}

fn write_brace_object(out: &mut String, object: &Object) {
    let mut fields: Vec<_> = object.iter().collect();
    fields.sort_by_key(|(key, _)| *key);
    out.push('{');
    for (index, (key, value)) in fields.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if is_lua_name(key) {
            out.push_str(key);
        } else {
            out.push('[');
            write_quoted(out, key);
            out.push(']');
        }
        out.push('=');
        write_brace(out, value);
    }
    out.push('}');
}

fn is_lua_name(key: &str) -> bool {
    const WORDS: [&str; 22] = [
        "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if",
        "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
    ];
    let first_is_letter =
        key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_word = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    first_is_letter && is_word && !WORDS.contains(&key)
}

/// Quotes a text as Penlight's `quote_string` does: in long brackets (`[[…]]`) if it contains line breaks or long
/// brackets, else in quotes.
fn write_quoted(out: &mut String, text: &str) {
    let level = longest_bracket(text);
    if (level.is_some() || text.contains('\n')) && !text.contains('\r') {
        let signs = "=".repeat(level.map_or(0, |level| level + 1));
        // Lua ignores a line break directly after the opening bracket, so it is doubled.
        let first = if text.starts_with('\n') { "\n" } else { "" };
        let _ = write!(out, "[{signs}[{first}{text}]{signs}]");
        return;
    }
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\\n"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            _ => out.push(letter),
        }
    }
    out.push('"');
}

/// Returns the maximum number of `=` in the Lua long brackets (`[==[` or `]==]`) of the text. The closing bracket that
/// will follow the text starts with `]`, so it counts too.
fn longest_bracket(text: &str) -> Option<usize> {
    let bytes: Vec<u8> = text.bytes().chain([b']']).collect();
    let mut longest = None;
    for (at, &bracket) in bytes.iter().enumerate() {
        if !matches!(bracket, b'[' | b']') {
            continue;
        }
        let rest = &bytes[at + 1..];
        let signs = rest.iter().take_while(|&&byte| byte == b'=').count();
        if rest.get(signs) == Some(&bracket) {
            longest = longest.max(Some(signs));
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, expected: &str) {
        let value: Value = serde_json::from_str(json).expect("json");
        assert_eq!(brace_notation(&value), expected);
    }

    #[test]
    fn messages_print_tables_as_lua_does() {
        check(r#"{"b":1,"a":{"id":"x"}}"#, r#"{a={id="x"},b=1}"#);
        check(
            r#"{"@entity":["e"],"end":true}"#,
            r#"{["@entity"]={"e"},["end"]=true}"#,
        );
        check(r#"[null,"two",null,"four"]"#, r#"{[2]="two",[4]="four"}"#);
        check(r#"["one",null,"three"]"#, r#"{"one",[3]="three"}"#);
        check("[null]", "{}");
    }

    #[test]
    fn strings_are_quoted_as_lua_does() {
        check(r#""say \"hi\" \\""#, r#""say \"hi\" \\""#);
        check(r#""a\nb""#, "[[a\nb]]");
        check(r#""in ']'""#, r#""in ']'""#);
        check(r#""[[x]]""#, "[=[[[x]]]=]");
    }
}
