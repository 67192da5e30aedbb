//! Writes the messages of OTLP. They are written by hand, in one pass: a message that is built in memory first would
//! cost more than the request spends on the rest of its trace. Source: opentelemetry-proto, `trace.proto`,
//! `logs.proto`, `common.proto`, `resource.proto`.

use std::borrow::Cow;

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attribute<'a> {
    Text(&'a [u8]),
    Integer(u64),
    /// Kong's numbers are of this type.
    Number(f64),
}

/// Wire types.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;

/// Maximum number of bytes of a length.
const MOST_LENGTH: usize = 5;

const fn tag(field: u8, wire: u8) -> u8 {
    field << 3 | wire
}

/// The tag of an entry of `ScopeSpans.spans` and of `ScopeLogs.log_records`.
pub(super) const ENTRY: u8 = tag(2, BYTES);

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
    let bits = (usize::BITS - (number | 1).leading_zeros()) as usize;
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
    const FIXED_32: u8 = 5;
    out.push(tag(field, FIXED_32));
    out.extend_from_slice(&number.to_le_bytes());
}

#[inline]
pub(super) fn bytes(field: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(tag(field, BYTES));
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Replaces what is not UTF-8. Collectors refuse a whole batch for one such text.
#[inline]
pub(super) fn text(value: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(value) {
        Ok(_) => Cow::Borrowed(value),
        Err(_) => Cow::Owned(String::from_utf8_lossy(value).into_owned().into_bytes()),
    }
}

/// Writes a `KeyValue`.
#[inline]
pub(super) fn attribute(field: u8, key: &str, value: Attribute<'_>, out: &mut Vec<u8>) {
    match value {
        Attribute::Text(value) => {
            let value = text(value);
            let any = 1 + size(value.len()) + value.len();
            begin_attribute(field, key, any, out);
            bytes(1, &value, out);
        }
        Attribute::Integer(number) => {
            let digits = size(usize::try_from(number).unwrap_or(usize::MAX));
            begin_attribute(field, key, 1 + digits, out);
            integer(3, number, out);
        }
        Attribute::Number(number) => {
            begin_attribute(field, key, 1 + 8, out);
            fixed(4, number.to_bits(), out);
        }
    }
}

/// Writes what comes before the `AnyValue` of this size.
#[inline]
fn begin_attribute(field: u8, key: &str, any: usize, out: &mut Vec<u8>) {
    let length = 1 + size(key.len()) + key.len() + 1 + size(any) + any;
    out.push(tag(field, BYTES));
    varint(length as u64, out);
    bytes(1, key.as_bytes(), out);
    out.push(tag(2, BYTES));
    varint(any as u64, out);
}

/// Writes a message with its length in front of it, and returns where it begins in `out`, whose content is replaced.
/// The message is written once and not moved.
#[inline]
pub(super) fn delimited(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> usize {
    out.clear();
    out.extend_from_slice(&[0; MOST_LENGTH]);
    write(out);
    let length = out.len() - MOST_LENGTH;
    let start = MOST_LENGTH - size(length);
    let mut rest = length;
    for at in start..MOST_LENGTH {
        let more = if at + 1 < MOST_LENGTH { 0x80 } else { 0 };
        if let Some(byte) = out.get_mut(at) {
            *byte = (rest & 0x7f) as u8 | more;
        }
        rest >>= 7;
    }
    start
}

/// Writes a message into a field of another one.
pub(super) fn message(field: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(field, &inner, out);
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
        message(1, &mut resource, |out| {
            for (key, value) in attributes {
                attribute(1, key, Attribute::Text(value.as_bytes()), out);
            }
        });
        message(1, &mut scope, |out| {
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
