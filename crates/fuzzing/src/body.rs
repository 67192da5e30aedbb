//! Bodies of the Admin API: forms, multipart and JSON become fields of bounded number and depth, or are refused.

use bytes::Bytes;
use model::value::MAX_DEPTH;
use model::{Object, Value};

/// The most arguments that a form may have (Kong reads no more).
const MOST_FIELDS: usize = 1000;
/// JSON nests up to 128 levels, and in a multipart body it may be the value of a key of as many levels as keys have. Schemas refuse what is
/// deeper than entities are.
const DEEPEST: usize = 128 + MAX_DEPTH;

/// The first byte chooses the content type; the rest is the body.
pub fn body(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else {
        return;
    };
    let content_type = match first % 4 {
        0 => "application/x-www-form-urlencoded",
        1 => "multipart/form-data; boundary=B",
        2 => "multipart/form-data; boundary=\"a b\"",
        _ => "application/json",
    };
    let Some(fields) = admin::fields(content_type, &Bytes::copy_from_slice(text)) else {
        return;
    };
    if first % 4 != 3 {
        assert!(fields.len() <= MOST_FIELDS);
    }
    assert!(depth_of(&fields) <= DEEPEST);
    // What was read can be stored and shown: its texts are text.
    let bytes = model::codec::encode(&fields);
    let again: Object = model::codec::decode(&bytes).expect("what was encoded is decoded");
    assert_eq!(model::codec::encode(&again), bytes);
}

fn depth_of(fields: &Object) -> usize {
    1 + fields
        .iter()
        .map(|(_, value)| depth(value))
        .max()
        .unwrap_or(0)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => depth_of(fields),
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
