//! Writes the messages of OTLP. They are written by hand, in one pass and in one place: a message that is built in memory
//! first would cost more than the request spends on the rest of its trace. Source: opentelemetry-proto, `trace.proto`,
//! `logs.proto`, `common.proto`, `resource.proto`.

use std::borrow::Cow;
use std::ops::Range;

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attribute<'a> {
    Text(&'a str),
    /// Kong's numbers are of this type.
    Number(f64),
}

/// Wire types.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;

/// Below this, a number has one byte.
pub(super) const SHORT: usize = 128;

pub(super) const fn tag_of_bytes(field: u8) -> u8 {
    tag(field, BYTES)
}

pub(super) const fn tag_of_fixed(field: u8) -> u8 {
    tag(field, FIXED_64)
}

pub(super) const fn tag_of_integer(field: u8) -> u8 {
    tag(field, VARINT)
}

const fn tag(field: u8, wire: u8) -> u8 {
    field << 3 | wire
}

/// The field of an entry in `ScopeSpans.spans` and in `ScopeLogs.log_records`.
pub(super) const ENTRY: u8 = 2;

#[inline]
pub(super) fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Number of bytes of a number.
#[inline]
fn size(number: usize) -> usize {
    if number < SHORT {
        return 1;
    }
    let bits = (usize::BITS - number.leading_zeros()) as usize;
    bits.div_ceil(7)
}

#[inline]
pub(super) fn integer(field: u8, number: u64, out: &mut Vec<u8>) {
    out.push(tag(field, VARINT));
    varint(number, out);
}

#[inline]
pub(super) fn fixed(field: u8, number: u64, out: &mut Vec<u8>) {
    out.push(tag(field, FIXED_64));
    out.extend_from_slice(&number.to_le_bytes());
}

/// Writes a field of 32 bits.
#[inline]
pub(super) fn fixed_32(field: u8, number: u32, out: &mut Vec<u8>) {
    out.push(tag(field, FIXED_32));
    out.extend_from_slice(&number.to_le_bytes());
}

#[inline]
pub(super) fn bytes(field: u8, value: &[u8], out: &mut Vec<u8>) {
    begin_bytes(field, value.len(), out);
    out.extend_from_slice(value);
}

/// Writes what comes before bytes of this length.
#[inline]
pub(super) fn begin_bytes(field: u8, length: usize, out: &mut Vec<u8>) {
    if length < SHORT {
        return out.extend_from_slice(&[tag(field, BYTES), length as u8]);
    }
    out.push(tag(field, BYTES));
    varint(length as u64, out);
}

/// Replaces what is not UTF-8. Collectors refuse a whole batch for one such text.
#[inline]
pub(super) fn text(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(value) => Cow::Borrowed(value),
        Err(_) => Cow::Owned(String::from_utf8_lossy(value).into_owned()),
    }
}

/// Writes a `KeyValue`. It is always inlined, because keys are known and their copies then need no calls.
#[inline(always)]
pub(super) fn attribute(field: u8, key: &str, value: Attribute<'_>, out: &mut Vec<u8>) {
    match value {
        Attribute::Text(value) => {
            text_attribute(field, key, value.len(), out, |out| {
                out.extend_from_slice(value.as_bytes());
            });
        }
        Attribute::Number(number) => {
            begin_attribute(field, key, 1 + 8, out);
            fixed(4, number.to_bits(), out);
        }
    }
}

/// The key of attributes whose values are texts: the bytes of a `KeyValue` up to its text, with gaps for the lengths. All
/// attributes share the code that writes them, so that it takes little of the processor's cache of instructions.
pub(super) struct TextKey {
    bytes: [u8; TEXT_KEY],
    length: usize,
}

/// The space of a [`TextKey`]. All of it is copied, because a copy of a known length takes few steps.
const TEXT_KEY: usize = 32;
/// The bytes of a [`TextKey`] around the name: before it, and after it.
const BEFORE_NAME: usize = 4;
const AFTER_NAME: usize = 4;

impl TextKey {
    pub(super) const fn new(field: u8, name: &str) -> Self {
        let name = name.as_bytes();
        let mut bytes = [0; TEXT_KEY];
        (bytes[0], bytes[2]) = (tag(field, BYTES), tag(1, BYTES));
        bytes[3] = name.len() as u8;
        let mut end = BEFORE_NAME;
        while end < BEFORE_NAME + name.len() {
            bytes[end] = name[end - BEFORE_NAME];
            end += 1;
        }
        (bytes[end], bytes[end + 2]) = (tag(2, BYTES), tag(1, BYTES));
        let length = end + AFTER_NAME;
        Self { bytes, length }
    }

    /// Writes an attribute. The value must be UTF-8.
    #[inline(never)]
    pub(super) fn write(&self, value: &[u8], out: &mut Vec<u8>) {
        let length = self.length - 2 + value.len();
        if length >= SHORT {
            return self.write_long(value, out);
        }
        // All lengths have one byte.
        out.extend_from_slice(&self.bytes);
        if let Some(bytes) = out.last_chunk_mut::<TEXT_KEY>() {
            bytes[1] = length as u8;
            if let Some([any, _, text]) = bytes[..self.length].last_chunk_mut() {
                (*any, *text) = (2 + value.len() as u8, value.len() as u8);
            }
        }
        out.truncate(out.len() - (TEXT_KEY - self.length));
        out.extend_from_slice(value);
    }

    #[inline(never)]
    fn write_long(&self, value: &[u8], out: &mut Vec<u8>) {
        let [field, _, _, name_length, ..] = self.bytes;
        let name = &self.bytes[BEFORE_NAME..][..usize::from(name_length)];
        let any = 1 + size(value.len()) + value.len();
        begin_long_attribute(field >> 3, name, any, out);
        bytes(1, value, out);
    }
}

/// Writes a `KeyValue` whose text has this length and is written by `write`.
#[inline(always)]
pub(super) fn text_attribute(
    field: u8,
    key: &str,
    length: usize,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    begin_attribute(field, key, 1 + size(length) + length, out);
    begin_bytes(1, length, out);
    write(out);
}

/// Writes what comes before the `AnyValue` of this size.
#[inline(always)]
fn begin_attribute(field: u8, key: &str, any: usize, out: &mut Vec<u8>) {
    let length = 4 + key.len() + any;
    if length >= SHORT {
        return begin_long_attribute(field, key.as_bytes(), any, out);
    }
    // All lengths have one byte.
    let key_length = key.len() as u8;
    out.extend_from_slice(&[tag(field, BYTES), length as u8, tag(1, BYTES), key_length]);
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(&[tag(2, BYTES), any as u8]);
}

#[inline(never)]
fn begin_long_attribute(field: u8, key: &[u8], any: usize, out: &mut Vec<u8>) {
    let length = 1 + size(key.len()) + key.len() + 1 + size(any) + any;
    begin_bytes(field, length, out);
    bytes(1, key, out);
    begin_bytes(2, any, out);
}

/// Writes a message into a field. Its length is written after it: `expected` is the number of bytes that the length
/// probably has (one or two), and if it has another one, the message is moved.
#[inline]
pub(super) fn message(
    field: u8,
    expected: usize,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len() + 1;
    match expected {
        1 => out.extend_from_slice(&[tag(field, BYTES), 0]),
        _ => out.extend_from_slice(&[tag(field, BYTES), 0, 0]),
    }
    let place = start..out.len();
    write(out);
    let length = out.len() - place.end;
    match &mut out[place.clone()] {
        [only] if length < SHORT => *only = length as u8,
        [low, high] if (SHORT..SHORT * SHORT).contains(&length) => {
            (*low, *high) = (length as u8 | 0x80, (length / SHORT) as u8);
        }
        _ => set_length(place, length, out),
    }
}

#[cold]
fn set_length(place: Range<usize>, length: usize, out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    varint(length as u64, &mut bytes);
    out.splice(place, bytes);
}

/// What comes before the entries of an export: `resource_spans` (or `resource_logs`) with the resource and the scope.
#[derive(Debug, Clone)]
pub(super) struct Envelope {
    /// The field `resource`.
    resource: Vec<u8>,
    /// The field `scope`.
    scope: Vec<u8>,
}

impl Envelope {
    pub(super) fn new<'a>(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let (mut resource, mut scope) = (Vec::new(), Vec::new());
        message(1, 2, &mut resource, |out| {
            for (key, value) in attributes {
                attribute(1, key, Attribute::Text(value), out);
            }
        });
        message(1, 1, &mut scope, |out| {
            bytes(1, b"kong-internal", out);
            bytes(2, b"0.1.0", out);
        });
        Self { resource, scope }
    }

    /// Returns the bytes in front of entries that have this size together.
    pub(super) fn around(&self, entries: usize) -> Vec<u8> {
        let scoped = self.scope.len() + entries;
        let resource = self.resource.len() + 1 + size(scoped) + scoped;
        let mut out = Vec::with_capacity(self.resource.len() + self.scope.len() + 16);
        out.push(tag(1, BYTES));
        varint(resource as u64, &mut out);
        out.extend_from_slice(&self.resource);
        out.push(tag(2, BYTES));
        varint(scoped as u64, &mut out);
        out.extend_from_slice(&self.scope);
        out
    }
}
