//! A digest of a plugin's configuration, by which the next snapshot sees that it has not changed: keeping the values of ten
//! thousand plugins to compare them would cost more memory than the plugins.

use model::Value;
use std::hash::{DefaultHasher, Hasher};

/// 128 bits: two keyed runs over the same walk.
pub(super) fn digest(value: &Value) -> u128 {
    let mut one = DefaultHasher::new();
    let mut two = DefaultHasher::new();
    two.write_u8(1);
    walk(value, &mut |bytes| {
        one.write(bytes);
        two.write(bytes);
    });
    u128::from(one.finish()) << 64 | u128::from(two.finish())
}

/// Every value begins with its kind and, where it can vary, its length: no two values walk alike.
fn walk(value: &Value, write: &mut dyn FnMut(&[u8])) {
    match value {
        Value::Null => write(&[0]),
        Value::Bool(value) => write(&[1, u8::from(*value)]),
        Value::Int(value) => {
            write(&[2]);
            write(&value.to_le_bytes());
        }
        Value::Float(value) => {
            write(&[3]);
            write(&value.to_bits().to_le_bytes());
        }
        Value::String(text) => walk_text(4, text, write),
        Value::Array(values) => {
            write_length(5, values.len(), write);
            values.iter().for_each(|value| walk(value, write));
        }
        Value::Object(object) => {
            write_length(6, object.len(), write);
            for (name, value) in object.iter() {
                walk_text(4, name, write);
                walk(value, write);
            }
        }
    }
}

fn walk_text(kind: u8, text: &str, write: &mut dyn FnMut(&[u8])) {
    write_length(kind, text.len(), write);
    write(text.as_bytes());
}

fn write_length(kind: u8, length: usize, write: &mut dyn FnMut(&[u8])) {
    write(&[kind]);
    write(&(length as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_have_different_digests() {
        let texts = [
            "null",
            "false",
            "0",
            "0.5",
            "\"\"",
            "[]",
            "{}",
            "[[],[]]",
            "[[[]]]",
            "\"ab\"",
            "[\"a\",\"b\"]",
            "{\"a\":\"b\"}",
            "{\"a\":null}",
            "[\"ab\"]",
        ];
        let digests: std::collections::HashSet<u128> = texts
            .iter()
            .map(|text| digest(&serde_json::from_str(text).expect("the text is JSON")))
            .collect();
        assert_eq!(digests.len(), texts.len());
    }
}
