//! Messages as JSON, in the form that Kong gives them: fields by their names in the `.proto` file, fields without
//! presence always there, enum values by name, 64-bit integers as numbers, bytes as they are. Only timestamps have a
//! special form; other well-known types are ordinary messages.

use model::{Object, Value as Json};
use prost::Message;
use prost::bytes::Bytes;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};
use std::collections::HashMap;
use std::io::Write;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// A value that does not fit its field, or a message that cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonError {
    #[error("{field}: {reason}")]
    Field { field: String, reason: String },
    #[error("the message is not of type {0}")]
    Decode(String),
    #[error("a message is larger than {0} bytes in JSON")]
    TooLarge(usize),
}

/// Encodes a JSON object as a message. Fields that the message does not have are ignored, as in Kong.
pub(crate) fn from_json(descriptor: &MessageDescriptor, json: &Json) -> Result<Vec<u8>, JsonError> {
    let message = read_message(descriptor, json).map_err(|problem| JsonError::Field {
        field: match problem.path.is_empty() {
            true => descriptor.full_name().to_owned(),
            false => problem.path.into_iter().rev().collect::<Vec<_>>().join("."),
        },
        reason: problem.reason,
    })?;
    Ok(message.encode_to_vec())
}

/// Writes a message as JSON. The text is UTF-8 unless a `bytes` field is not. An empty message of two bytes becomes a
/// text with all its fields, so that the text has a limit of its own.
pub(crate) fn to_json(
    descriptor: &MessageDescriptor,
    message: &[u8],
    limit: usize,
) -> Result<Vec<u8>, JsonError> {
    let message = DynamicMessage::decode(descriptor.clone(), message)
        .map_err(|_| JsonError::Decode(descriptor.full_name().to_owned()))?;
    let mut text = Text {
        out: Vec::new(),
        limit,
    };
    write_message(&mut text, descriptor, &message)?;
    text.check()?;
    Ok(text.out)
}

/// A text that is being written.
struct Text {
    out: Vec<u8>,
    limit: usize,
}

impl Text {
    /// Whether the limit is kept. Called before each field, so that the text exceeds it by one field at most.
    fn check(&self) -> Result<(), JsonError> {
        if self.out.len() > self.limit {
            return Err(JsonError::TooLarge(self.limit));
        }
        Ok(())
    }
}

/// What is wrong, and the names of the fields that lead there, the innermost first.
struct Problem {
    path: Vec<String>,
    reason: String,
}

impl Problem {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            reason: reason.into(),
        }
    }

    fn within(mut self, name: impl Into<String>) -> Self {
        self.path.push(name.into());
        self
    }
}

fn read_message(descriptor: &MessageDescriptor, json: &Json) -> Result<DynamicMessage, Problem> {
    if let (TIMESTAMP, Json::String(text)) = (descriptor.full_name(), json) {
        return read_timestamp(descriptor, text);
    }
    let Json::Object(object) = json else {
        return Err(Problem::new("expected an object"));
    };
    let mut message = DynamicMessage::new(descriptor.clone());
    for (name, value) in object.iter() {
        let field = descriptor
            .get_field_by_name(name)
            .or_else(|| descriptor.get_field_by_json_name(name));
        let Some(field) = field.filter(|_| !value.is_null()) else {
            continue;
        };
        let value = read_field(&field, value).map_err(|problem| problem.within(name))?;
        message.set_field(&field, value);
    }
    Ok(message)
}

fn read_field(field: &FieldDescriptor, json: &Json) -> Result<Value, Problem> {
    if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
        let Json::Object(object) = json else {
            return Err(Problem::new("expected an object"));
        };
        return read_map(&entry, object);
    }
    if !field.is_list() {
        return read_value(&field.kind(), json);
    }
    let Json::Array(values) = json else {
        return Err(Problem::new("expected an array"));
    };
    let values = values.iter().map(|value| read_value(&field.kind(), value));
    Ok(Value::List(values.collect::<Result<_, _>>()?))
}

fn read_map(entry: &MessageDescriptor, object: &Object) -> Result<Value, Problem> {
    let key_kind = entry.map_entry_key_field().kind();
    let value_kind = entry.map_entry_value_field().kind();
    let mut map = HashMap::with_capacity(object.len());
    for (name, value) in object.iter() {
        let key = read_value(&key_kind, &Json::from(name))
            .ok()
            .and_then(into_key)
            .ok_or_else(|| Problem::new("not a key of this map").within(name))?;
        let value = read_value(&value_kind, value).map_err(|problem| problem.within(name))?;
        map.insert(key, value);
    }
    Ok(Value::Map(map))
}

fn into_key(value: Value) -> Option<MapKey> {
    match value {
        Value::Bool(value) => Some(MapKey::Bool(value)),
        Value::I32(value) => Some(MapKey::I32(value)),
        Value::I64(value) => Some(MapKey::I64(value)),
        Value::U32(value) => Some(MapKey::U32(value)),
        Value::U64(value) => Some(MapKey::U64(value)),
        Value::String(value) => Some(MapKey::String(value)),
        _ => None,
    }
}

fn read_value(kind: &Kind, json: &Json) -> Result<Value, Problem> {
    match kind {
        Kind::Double => number(json).map(Value::F64),
        Kind::Float => number(json).map(|number| Value::F32(number as f32)),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => integer(json).map(Value::I32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => integer(json).map(Value::I64),
        Kind::Uint32 | Kind::Fixed32 => integer(json).map(Value::U32),
        Kind::Uint64 | Kind::Fixed64 => integer(json).map(Value::U64),
        Kind::Bool => match json {
            Json::Bool(value) => Ok(Value::Bool(*value)),
            Json::String(text) if text == "true" => Ok(Value::Bool(true)),
            Json::String(text) if text == "false" => Ok(Value::Bool(false)),
            _ => Err(Problem::new("expected a boolean")),
        },
        Kind::String => text(json).map(Value::String),
        Kind::Bytes => text(json).map(|text| Value::Bytes(Bytes::from(text))),
        Kind::Enum(descriptor) => read_enum(descriptor, json),
        Kind::Message(descriptor) => read_message(descriptor, json).map(Value::Message),
    }
}

fn number(json: &Json) -> Result<f64, Problem> {
    match json {
        Json::Int(number) => Some(*number as f64),
        Json::Float(number) => Some(*number),
        Json::String(text) => text.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| Problem::new("expected a number"))
}

fn integer<T: TryFrom<i128>>(json: &Json) -> Result<T, Problem> {
    // Every float in this range is an `i128`.
    const LIMIT: f64 = 18_446_744_073_709_551_616.0;
    let number: Option<i128> = match json {
        Json::Int(number) => Some((*number).into()),
        Json::Float(number) if number.fract() == 0.0 && number.abs() <= LIMIT => {
            Some(*number as i128)
        }
        Json::String(text) => text.parse().ok(),
        _ => None,
    };
    let number = number.ok_or_else(|| Problem::new("expected an integer"))?;
    T::try_from(number).map_err(|_| Problem::new("the integer is out of range"))
}

/// Returns the text of a string, or of a number, as Lua does.
fn text(json: &Json) -> Result<String, Problem> {
    match json {
        Json::String(text) => Ok(text.to_string()),
        Json::Int(number) => Ok(number.to_string()),
        Json::Float(number) => Ok(number.to_string()),
        _ => Err(Problem::new("expected a string")),
    }
}

fn read_enum(descriptor: &EnumDescriptor, json: &Json) -> Result<Value, Problem> {
    match json {
        Json::String(name) => descriptor
            .get_value_by_name(name)
            .map(|value| Value::EnumNumber(value.number()))
            .ok_or_else(|| Problem::new(format!("unknown value of {}", descriptor.full_name()))),
        _ => integer(json).map(Value::EnumNumber),
    }
}

fn read_timestamp(descriptor: &MessageDescriptor, text: &str) -> Result<DynamicMessage, Problem> {
    // Kong's times have no zone and are in UTC.
    let time = OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(&format!("{text}Z"), &Rfc3339))
        .map_err(|_| Problem::new("expected a time such as 2006-01-02T15:04:05Z"))?;
    let mut message = DynamicMessage::new(descriptor.clone());
    // The fields of this message are fixed, but a file may define another one of this name.
    let nanos = Value::I32(i32::try_from(time.nanosecond()).unwrap_or(0));
    message
        .try_set_field_by_name("seconds", Value::I64(time.unix_timestamp()))
        .and_then(|()| message.try_set_field_by_name("nanos", nanos))
        .map_err(|_| Problem::new("not the timestamp of google.protobuf"))?;
    Ok(message)
}

/// Writes to a vector, which cannot fail.
macro_rules! put {
    ($out:expr, $($arguments:tt)*) => {{ let _ = write!($out, $($arguments)*); }};
}

fn write_message(
    text: &mut Text,
    descriptor: &MessageDescriptor,
    message: &DynamicMessage,
) -> Result<(), JsonError> {
    if descriptor.full_name() == TIMESTAMP
        && let Some(time) = timestamp(message)
    {
        write_text(&mut text.out, time.as_bytes());
        return Ok(());
    }
    text.out.push(b'{');
    let mut first = true;
    for field in descriptor.fields() {
        if field.supports_presence() && !message.has_field(&field) {
            continue;
        }
        if !std::mem::take(&mut first) {
            text.out.push(b',');
        }
        write_text(&mut text.out, field.name().as_bytes());
        text.out.push(b':');
        write_value(text, &field.kind(), &message.get_field(&field))?;
    }
    text.out.push(b'}');
    Ok(())
}

fn timestamp(message: &DynamicMessage) -> Option<String> {
    let seconds = message.get_field_by_name("seconds")?.as_i64()?;
    let nanos = message.get_field_by_name("nanos")?.as_i32()?;
    let whole = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let time = OffsetDateTime::from_unix_timestamp_nanos(whole).ok()?;
    time.format(&Rfc3339).ok()
}

fn write_value(text: &mut Text, kind: &Kind, value: &Value) -> Result<(), JsonError> {
    text.check()?;
    let out = &mut text.out;
    match value {
        Value::Bool(value) => put!(out, "{value}"),
        Value::I32(value) => put!(out, "{value}"),
        Value::I64(value) => put!(out, "{value}"),
        Value::U32(value) => put!(out, "{value}"),
        Value::U64(value) => put!(out, "{value}"),
        Value::F32(value) if value.is_finite() => put!(out, "{value}"),
        Value::F64(value) if value.is_finite() => put!(out, "{value}"),
        Value::F32(value) => write_special(out, f64::from(*value)),
        Value::F64(value) => write_special(out, *value),
        Value::String(string) => write_text(out, string.as_bytes()),
        Value::Bytes(bytes) => write_text(out, bytes),
        Value::EnumNumber(number) => {
            let name = kind.as_enum().and_then(|kind| kind.get_value(*number));
            match name {
                Some(value) => write_text(out, value.name().as_bytes()),
                None => put!(out, "{number}"),
            }
        }
        Value::Message(message) => {
            use prost_reflect::ReflectMessage;
            write_message(text, &message.descriptor(), message)?;
        }
        Value::List(values) => {
            out.push(b'[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    text.out.push(b',');
                }
                write_value(text, kind, value)?;
            }
            text.out.push(b']');
        }
        Value::Map(map) => write_map(text, kind, map)?,
    }
    Ok(())
}

/// JSON has no text for these numbers. Protobuf's mapping writes them as strings.
fn write_special(out: &mut Vec<u8>, number: f64) {
    let text: &[u8] = match number {
        _ if number.is_nan() => b"NaN",
        _ if number > 0.0 => b"Infinity",
        _ => b"-Infinity",
    };
    write_text(out, text);
}

fn write_map(text: &mut Text, kind: &Kind, map: &HashMap<MapKey, Value>) -> Result<(), JsonError> {
    let value_kind = kind
        .as_message()
        .map(|entry| entry.map_entry_value_field().kind());
    // Sorted, so that equal messages give equal texts.
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    text.out.push(b'{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            text.out.push(b',');
        }
        write_text(&mut text.out, key_text(key).as_bytes());
        text.out.push(b':');
        write_value(text, value_kind.as_ref().unwrap_or(kind), value)?;
    }
    text.out.push(b'}');
    Ok(())
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(value) => value.to_string(),
        MapKey::I32(value) => value.to_string(),
        MapKey::I64(value) => value.to_string(),
        MapKey::U32(value) => value.to_string(),
        MapKey::U64(value) => value.to_string(),
        MapKey::String(value) => value.clone(),
    }
}

/// Writes a JSON string. Bytes that are not UTF-8 stay as they are, as in Kong.
fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f | 0x7f => put!(out, "\\u{byte:04x}"),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
