//! The changes that plugins make to a log record (`kong.log.set_serialize_value`).

use crate::request::{LogField, LogFieldMode};
use model::{Object, Value};

/// Why a request has no log record. Kong writes none either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("the field {key} of the log record cannot be set, because {part} is not an object")]
    NotAnObject { key: Box<str>, part: Box<str> },
    #[error("the log record cannot be changed: {0}")]
    Unreadable(Box<str>),
}

/// The names that a record can have before plugins add some.
const OWN: [&str; 18] = [
    "request",
    "upstream_uri",
    "upstream_status",
    "response",
    "latencies",
    "tries",
    "authenticated_entity",
    "route",
    "service",
    "consumer",
    "client_ip",
    "started_at",
    "source",
    "workspace",
    "workspace_name",
    "session",
    "upstream",
    "",
];

/// Applies changes to a record, which is a JSON object in `out` without its last bracket, and writes the bracket.
pub(super) fn finish(fields: &[LogField], out: &mut Vec<u8>) -> Result<(), RecordError> {
    if are_new(fields) {
        for field in fields {
            if let (Some(value), LogFieldMode::Set | LogFieldMode::Add) = (&field.value, field.mode)
            {
                out.push(b',');
                super::json::string(field.key.as_bytes(), out);
                out.push(b':');
                write_value(value, out);
            }
        }
        out.push(b'}');
        return Ok(());
    }
    out.push(b'}');
    let unreadable = |error: serde_json::Error| RecordError::Unreadable(error.to_string().into());
    let mut record: Object = serde_json::from_slice(out).map_err(unreadable)?;
    for field in fields {
        apply(&mut record, field)?;
    }
    out.clear();
    write_value(&Value::Object(record), out);
    Ok(())
}

/// Whether each change is about another field at the top of the record that the record does not have. Then they are
/// appended. Most changes are of this kind, such as a correlation id.
fn are_new(fields: &[LogField]) -> bool {
    fields.iter().enumerate().all(|(at, field)| {
        let has_dot = field.key.bytes().skip(1).any(|byte| byte == b'.');
        let is_repeated = fields[..at].iter().any(|other| other.key == field.key);
        !has_dot && !is_repeated && !OWN.contains(&&*field.key)
    })
}

fn apply(record: &mut Object, field: &LogField) -> Result<(), RecordError> {
    let mut node = record;
    let mut rest = &*field.key;
    // A dot at the start of the key is part of the name, as in Kong.
    let mut from = 1;
    while let Some((part, after)) = split(rest, from) {
        if !node.contains(part) {
            match field.mode {
                LogFieldMode::Replace => return Ok(()),
                LogFieldMode::Set | LogFieldMode::Add => {
                    node.insert(part, Value::Object(Object::new()));
                }
            }
        }
        let Some(Value::Object(inner)) = node.get_mut(part) else {
            let (key, part) = (field.key.as_str().into(), part.into());
            return Err(RecordError::NotAnObject { key, part });
        };
        (node, rest, from) = (inner, after, 0);
    }
    let applies = match field.mode {
        LogFieldMode::Set => true,
        LogFieldMode::Add => !node.contains(rest),
        LogFieldMode::Replace => node.contains(rest),
    };
    match &field.value {
        _ if !applies => {}
        Some(value) => {
            node.insert(rest, value.clone());
        }
        None => {
            node.remove(rest);
        }
    }
    Ok(())
}

/// Splits a key at its first dot, which is looked for from this position on.
fn split(key: &str, from: usize) -> Option<(&str, &str)> {
    let mut dots = key.match_indices('.').map(|(at, _)| at);
    let at = dots.find(|at| *at >= from)?;
    Some((&key[..at], &key[at + 1..]))
}

/// Writes a value. Numbers that JSON does not have become null.
pub(super) fn write_value(value: &Value, out: &mut Vec<u8>) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        // A value in memory can always be written.
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}
