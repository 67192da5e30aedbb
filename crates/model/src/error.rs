//! Kong's error objects: `code`, `name`, `message` and `fields`, and the status each is answered with.
//! Source: kong/db/errors.lua.

use crate::value::{Object, Value};
use std::fmt::{self, Write};

/// An error as the Admin API shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    pub code: ErrorCode,
    pub message: String,
    /// `fields`; for [`ErrorCode::InvalidOptions`] it is shown as `options`.
    pub fields: Option<Object>,
    /// `flattened_errors` of a declarative configuration, when asked for.
    pub flattened_errors: Option<Value>,
}

/// The numbers are part of the Admin API.
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
    /// The name is completed by the field: `invalid unique <field>`; the message starts with it.
    InvalidUnique = 10,
    InvalidOptions = 11,
    OperationUnsupported = 12,
    ForeignKeysUnresolved = 13,
    DeclarativeConfig = 14,
    ReferencedByOthers = 19,
}

impl ErrorCode {
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
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Prints a value as Kong does in messages: `{id="…"}`, keys sorted, strings quoted, tables in braces.
/// Source: kong/db/errors.lua (pl.pretty.write without spacing).
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
        Value::String(text) => {
            let _ = write!(
                out,
                "\"{}\"",
                text.replace('\\', "\\\\").replace('"', "\\\"")
            );
        }
        Value::Array(values) => {
            out.push('{');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_brace(out, value);
            }
            out.push('}');
        }
        Value::Object(object) => {
            let mut fields: Vec<_> = object.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{key}=");
                write_brace(out, value);
            }
            out.push('}');
        }
    }
}
