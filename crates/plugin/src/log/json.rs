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
    if is_plain(text) {
        out.extend_from_slice(text);
    } else {
        escape(text, out);
    }
}

/// Writes a header name in lower case as a string.
#[inline]
pub(super) fn lower_case(name: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let start = out.len();
    // Names of headers are tokens, which need no escapes.
    out.extend_from_slice(name);
    let (words, rest) = out[start..].as_chunks_mut::<8>();
    for word in words {
        *word = lower(u64::from_le_bytes(*word)).to_le_bytes();
    }
    rest.make_ascii_lowercase();
    out.push(b'"');
}

/// A word in which each byte is 1.
const ONES: u64 = u64::MAX / 255;
/// The highest bit of each byte.
const HIGH: u64 = ONES << 7;

/// Whether a text consists of printable ASCII characters that need no escape. It looks at eight bytes at a time.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let mut special = 0;
    for word in words {
        special |= specials(u64::from_le_bytes(*word));
    }
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && *byte != b'"' && *byte != b'\\';
    match text.last_chunk::<8>() {
        // Bytes that were looked at already do not matter.
        Some(last) => special | specials(u64::from_le_bytes(*last)) == 0,
        None => rest.iter().all(is_plain),
    }
}

/// Returns zero if no byte of the word is a control character, `"`, `\` or not ASCII.
#[inline]
fn specials(word: u64) -> u64 {
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is = |byte: u8| is_zero(word ^ (ONES * u64::from(byte)));
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_control | is(b'"') | is(b'\\') | is(0x7f) | word) & HIGH
}

/// Returns the word with its ASCII letters in lower case.
#[inline]
fn lower(word: u64) -> u64 {
    let low = word & !HIGH;
    let from_a = low + ONES * u64::from(0x80 - b'A');
    let after_z = low + ONES * u64::from(0x7f - b'Z');
    let is_upper = (from_a ^ after_z) & !word & HIGH;
    word | is_upper >> 2
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place_is_escaped_if_it_must_be() {
        for length in 1..=20 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    let mut out = Vec::new();
                    string(&text, &mut out);
                    let read: String = serde_json::from_slice(&out).unwrap();
                    assert_eq!(read, String::from_utf8_lossy(&text));
                    let is_escaped = !(0x20..0x7f).contains(&byte) || b"\"\\".contains(&byte);
                    assert_eq!(is_plain(&text), !is_escaped, "{byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn every_letter_at_every_place_is_lowered() {
        for length in 1..=20 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut name = vec![b'Z'; length];
                    name[at] = byte;
                    let mut out = Vec::new();
                    lower_case(&name, &mut out);
                    name.make_ascii_lowercase();
                    assert_eq!(out[1..=length], name);
                }
            }
        }
    }
}
