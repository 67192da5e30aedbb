//! A digest of a plugin's configuration, by which the next snapshot detects that it has not changed. Keeping the
//! configuration values of ten thousand plugins for a comparison would take more memory than the plugins themselves.

use model::Value;
use std::hash::{DefaultHasher, Hasher};

/// Returns a digest of 128 bits, which consists of two hashes of the same bytes. The second hash has a prefix. The
/// value is first written to `bytes`, a reusable buffer, because hashing one large piece is three times as fast as
/// hashing many small ones.
pub(super) fn digest(value: &Value, bytes: &mut Vec<u8>) -> [u64; 2] {
    bytes.clear();
    write(value, bytes);
    let mut one = DefaultHasher::new();
    one.write(bytes);
    let mut two = DefaultHasher::new();
    two.write_u8(1);
    two.write(bytes);
    [one.finish(), two.finish()]
}

/// Combines the digest of a configuration with the plugin's position in the execution order.
pub(super) fn mix(config: [u64; 2], order: u16) -> [u64; 2] {
    config.map(|half| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(half);
        hasher.write_u16(order);
        hasher.finish()
    })
}

/// Writes the type of a value, its length if that varies, and its content. Thus different values give different bytes.
fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0),
        Value::Bool(value) => out.extend([1, u8::from(*value)]),
        Value::Int(value) => {
            out.push(2);
            out.extend(value.to_le_bytes());
        }
        Value::Float(value) => {
            out.push(3);
            out.extend(value.to_bits().to_le_bytes());
        }
        Value::String(text) => write_text(text, out),
        Value::Array(values) => {
            write_length(5, values.len(), out);
            values.iter().for_each(|value| write(value, out));
        }
        Value::Object(object) => {
            write_length(6, object.len(), out);
            for (name, value) in object.iter() {
                write_text(name, out);
                write(value, out);
            }
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_length(4, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn write_length(kind: u8, length: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend((length as u32).to_le_bytes());
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
        let digests: std::collections::HashSet<[u64; 2]> = texts
            .iter()
            .map(|text| {
                digest(
                    &serde_json::from_str(text).expect("the text is JSON"),
                    &mut Vec::new(),
                )
            })
            .collect();
        assert_eq!(digests.len(), texts.len());
    }
}
