//! Spans of Lua code, written for OTLP. They are rare and of any form, so that they are messages of prost.

use super::protobuf;
use super::spans::{Ids, WITH_ATTRIBUTES};
use crate::exporter::Texts;
use plugin::Trace;
use plugin::trace::custom::{Additions, CustomSpan};
use prost::{Message, Oneof};
use serde_json::{Map, Value as Json};

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
}

/// The other fields of a span.
#[derive(Clone, PartialEq, Message)]
struct Rest {
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    time: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 4, 5, 6")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// Kong's numbers are of this type.
    #[prost(double, tag = "4")]
    Number(f64),
    #[prost(message, tag = "5")]
    List(Values),
    #[prost(message, tag = "6")]
    Map(Pairs),
}

#[derive(Clone, PartialEq, Message)]
struct Values {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Pairs {
    #[prost(message, repeated, tag = "1")]
    pairs: Vec<KeyValue>,
}

/// Writes the spans that Lua code has made for a request.
pub(super) fn write(trace: &Trace, ids: Ids, texts: &mut Texts<'_>) {
    let Some(custom) = trace.custom() else {
        return;
    };
    for span in custom.spans() {
        protobuf::message(protobuf::ENTRY, WITH_ATTRIBUTES, &mut texts.out, |out| {
            write_span(span, ids, out);
        });
        texts.end();
    }
}

/// Appends to the root span what Lua code has added.
pub(super) fn write_root(trace: &Trace, out: &mut Vec<u8>) {
    if let Some(custom) = trace.custom() {
        append(&rest(custom.root()), out);
    }
}

fn write_span(span: &CustomSpan, ids: Ids, out: &mut Vec<u8>) {
    let message = Span {
        trace: ids.trace.to_be_bytes().to_vec(),
        id: span.id.to_be_bytes().to_vec(),
        parent: span.parent.unwrap_or(ids.root).to_be_bytes().to_vec(),
        name: span.name.clone(),
        kind: span.kind,
        start: span.start,
        end: span.end.max(span.start),
    };
    append(&message, out);
    append(&rest(&span.more), out);
}

/// Messages that follow each other are one.
fn append(message: &impl Message, out: &mut Vec<u8>) {
    out.extend_from_slice(&message.encode_to_vec());
}

fn rest(more: &Additions) -> Rest {
    let events = more.events.iter().map(|event| Event {
        time: event.time,
        name: event.name.clone(),
        attributes: pairs(&event.attributes),
    });
    Rest {
        attributes: pairs(&more.attributes),
        events: events.collect(),
        status: more.status.map(|code| Status { code }),
    }
}

fn pairs<'a>(attributes: impl IntoIterator<Item = (&'a String, &'a Json)>) -> Vec<KeyValue> {
    let pairs = attributes.into_iter().map(|(key, value)| KeyValue {
        key: key.clone(),
        value: Some(any(value)),
    });
    pairs.collect()
}

/// The depth is limited, because the text of the value was read with a limit.
fn any(value: &Json) -> AnyValue {
    let of_map = |map: &Map<String, Json>| Pairs { pairs: pairs(map) };
    let value = match value {
        Json::Null => None,
        Json::Bool(is_true) => Some(Value::Bool(*is_true)),
        Json::Number(number) => number.as_f64().map(Value::Number),
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Array(values) => Some(Value::List(Values {
            values: values.iter().map(any).collect(),
        })),
        Json::Object(map) => Some(Value::Map(of_map(map))),
    };
    AnyValue { value }
}
