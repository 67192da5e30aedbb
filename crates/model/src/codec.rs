//! The stored form of an entity: its completed object without nulls, as MessagePack. Typed structs are read directly
//! from the bytes, so that a lookup builds no [`Value`].
//!
//! This module has its own encoder. It writes the same bytes as `rmp_serde` and needs a third of the instructions.

use crate::value::{Object, Value, from_value};
use serde::de::DeserializeOwned;

#[derive(Debug, thiserror::Error)]
#[error("a stored entity cannot be read: {0}")]
pub struct DecodeError(#[from] rmp_serde::decode::Error);

/// Encodes a completed entity. Encoding a value tree cannot fail.
pub fn encode(entity: &Object) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    encode_into(entity, &mut bytes);
    bytes.shrink_to_fit();
    bytes
}

/// Appends the bytes of [`encode`].
pub fn encode_into(entity: &Object, out: &mut Vec<u8>) {
    header(entity.len(), [0x80, 0xde, 0xdf], out);
    for (name, value) in entity.iter() {
        text(name, out);
        encode_value(value, out);
    }
}

/// Decodes an entity or a part of one.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    rmp_serde::from_slice(bytes).or_else(|error| by_value(bytes).ok_or(DecodeError(error)))
}

/// Decodes through a [`Value`], which accepts floats without a fraction as integers. Earlier versions stored large
/// integers as floats.
#[cold]
fn by_value<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    from_value(&rmp_serde::from_slice(bytes).ok()?).ok()
}

/// Writes a value, with integers in their shortest form. Source of the markers: the MessagePack specification.
fn encode_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(0xc2 + u8::from(*value)),
        Value::Int(number) => integer(*number, out),
        Value::Float(number) => {
            out.push(0xcb);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Value::String(value) => text(value, out),
        Value::Array(values) => {
            header(values.len(), [0x90, 0xdc, 0xdd], out);
            values.iter().for_each(|value| encode_value(value, out));
        }
        Value::Object(object) => encode_into(object, out),
    }
}

fn integer(number: i64, out: &mut Vec<u8>) {
    if let Ok(small) = i8::try_from(number)
        && small >= -32
    {
        out.push(small as u8);
    } else if let Ok(number) = u8::try_from(number) {
        out.extend_from_slice(&[0xcc, number]);
    } else if let Ok(number) = u16::try_from(number) {
        out.push(0xcd);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        out.push(0xce);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = u64::try_from(number) {
        out.push(0xcf);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = i8::try_from(number) {
        out.extend_from_slice(&[0xd0, number as u8]);
    } else if let Ok(number) = i16::try_from(number) {
        out.push(0xd1);
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Ok(number) = i32::try_from(number) {
        out.push(0xd2);
        out.extend_from_slice(&number.to_be_bytes());
    } else {
        out.push(0xd3);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

fn text(text: &str, out: &mut Vec<u8>) {
    match u8::try_from(text.len()) {
        Ok(length) if length < 32 => out.push(0xa0 | length),
        Ok(length) => out.extend_from_slice(&[0xd9, length]),
        Err(_) => long_header(text.len(), [0xda, 0xdb], out),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Writes the marker and length of a list or map. The markers are for a length up to 15, a length of 16 bits, and a
/// length of 32 bits.
fn header(length: usize, [short, medium, long]: [u8; 3], out: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(length) if length < 16 => out.push(short | length),
        _ => long_header(length, [medium, long], out),
    }
}

fn long_header(length: usize, [medium, long]: [u8; 2], out: &mut Vec<u8>) {
    if let Ok(length) = u16::try_from(length) {
        out.push(medium);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        let length = u32::try_from(length).expect("a configuration is smaller than 4 GiB");
        out.push(long);
        out.extend_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: Value) {
        let mut object = Object::new();
        object.push("a", value);
        let encoded = encode(&object);
        let expected = rmp_serde::to_vec_named(&object).expect("it encodes");
        assert_eq!(encoded, expected, "{object:?}");
        let decoded: Object = decode(&encoded).expect("it decodes");
        assert_eq!(decoded, object);
    }

    #[test]
    fn values_are_encoded_as_the_general_encoder_does() {
        check(Value::Null);
        check(Value::Bool(false));
        check(Value::Bool(true));
        check(Value::Float(1_700_000_000.25));
        for power in 0..63 {
            for near in -2..=2 {
                check(Value::Int((1_i64 << power) + near));
                check(Value::Int(-(1_i64 << power) + near));
            }
        }
        check(Value::Int(i64::MIN));
        check(Value::Int(i64::MAX));
    }

    #[test]
    fn integers_that_are_stored_as_floats_are_read() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Entity {
            large: i64,
            small: u16,
            number: f64,
        }
        let fields = [
            ("large", 9.007_199_254_741e15),
            ("small", 80.0),
            ("number", 0.5),
        ];
        let fields = fields.map(|(name, value)| (name, Value::Float(value)));
        let mut stored: Object = fields.into_iter().collect();
        let read: Entity = decode(&encode(&stored)).expect("it decodes");
        let wanted = Entity {
            large: 9_007_199_254_741_000,
            small: 80,
            number: 0.5,
        };
        assert_eq!(read, wanted);
        for bad in [80.5, 65_536.0, f64::NAN, 1e300] {
            stored.insert("small", Value::Float(bad));
            assert!(decode::<Entity>(&encode(&stored)).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths_are_encoded_as_the_general_encoder_does() {
        for length in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
            check("x".repeat(length).into());
            check(Value::Array(vec![Value::Int(1); length]));
        }
        for length in [0, 1, 15, 16, 300] {
            let fields = (0..length).map(|number| (number.to_string(), Value::Bool(true)));
            check(Value::Object(fields.collect()));
        }
    }

    #[test]
    fn an_entity_costs_as_much_as_it_holds() {
        testkit::cost::assert_linear(
            2000,
            |size| {
                let text = || Value::from("a");
                let fields = (0..size).map(|number| (number.to_string(), Value::Bool(true)));
                [
                    Value::Object(fields.collect()),
                    Value::Array((0..size).map(|_| text()).collect()),
                    Value::from("a".repeat(10 * size)),
                ]
                .map(|value| encode(&Object::from_iter([("value", value)])))
            },
            |entities| {
                for bytes in &entities {
                    let entity: Object = decode(bytes).unwrap();
                    assert_eq!(encode(&entity), *bytes);
                }
            },
        );
    }
}
