//! Writes JSON straight into a buffer. A log record is written for every request, so it does without an intermediate
//! value.

use std::net::IpAddr;
use uuid::Uuid;

/// Writes bytes of the client or the upstream as a string. What is not UTF-8 is replaced, because receivers refuse a
/// whole batch for one byte of it.
#[inline]
pub(super) fn string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    escaped(text, out);
    out.push(b'"');
}

/// Writes a part of a string.
#[inline]
pub(super) fn escaped(text: &[u8], out: &mut Vec<u8>) {
    // Without an early end, the compiler can check many bytes at once.
    let is_plain = text
        .iter()
        .fold(true, |plain, &byte| plain & is_plain(byte));
    if is_plain {
        out.extend_from_slice(text);
    } else {
        escape(text, out);
    }
}

/// Writes a header name in lower case as a string.
pub(super) fn lower_case(name: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    // Names of headers are tokens, which need no escapes.
    out.extend_from_slice(name);
    out[start..].make_ascii_lowercase();
    out.push(b'"');
}

#[inline]
fn is_plain(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\')
}

#[cold]
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                0..0x20 | 0x7f => {
                    const DIGITS: &[u8; 16] = b"0123456789abcdef";
                    let [high, low] =
                        [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
                }
                _ => out.push(byte),
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

#[inline]
pub(super) fn number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

pub(super) fn id(id: Uuid, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut text = [0; 36];
    out.extend_from_slice(id.hyphenated().encode_lower(&mut text).as_bytes());
    out.push(b'"');
}

pub(super) fn address(address: IpAddr, out: &mut Vec<u8>) {
    out.push(b'"');
    match address {
        IpAddr::V4(address) => {
            let [first, rest @ ..] = address.octets();
            number(first, out);
            for octet in rest {
                out.push(b'.');
                number(octet, out);
            }
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
    out.push(b'"');
}
