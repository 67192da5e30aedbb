//! Fuzz target for request bodies of the Admin API. Every form, multipart or JSON body must be refused or become fields
//! of limited number and depth.

use bytes::Bytes;
use model::value::MAX_DEPTH;
use model::{Object, Value};

/// Maximum number of arguments in a form. Kong has the same limit.
const MAX_FIELDS: usize = 1000;
/// Maximum nesting of fields. A JSON value has up to 128 levels. In a multipart body, it can belong to a key that has
/// `MAX_DEPTH` levels itself. Schemas later refuse values with more levels than an entity can have.
const DEEPEST: usize = 128 + MAX_DEPTH;

/// Checks a body. The first byte of the input chooses the content type, and the rest is the body.
pub fn body(data: &[u8]) {
    plugins::install();
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
        assert!(fields.len() <= MAX_FIELDS);
    }
    assert!(depth_of(&fields) <= DEEPEST);
    // Every accepted field can be stored and read again.
    let bytes = model::codec::encode(&fields);
    let again: Object = model::codec::decode(&bytes).expect("encoded fields must be decodable");
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
