//! Writes JSON straight into a buffer. A log record is written for every request, so it does without an intermediate
//! value.

use crate::trace::nanoseconds;
use std::net::IpAddr;
use std::time::Duration;
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
        escape(text, |piece| out.extend_from_slice(piece));
    }
}

/// Bytes that are looked at at once.
const CHUNK: usize = 32;

/// A word in which each byte is 1.
const ONES: u64 = u64::MAX / 255;
/// The highest bit of each byte.
const HIGH: u64 = ONES << 7;

/// Whether a text consists of printable ASCII characters that need no escape.
#[inline]
pub(super) fn is_plain(text: &[u8]) -> bool {
    if text.len() >= CHUNK {
        return has_no(is_special, text);
    }
    let (words, rest) = text.as_chunks::<8>();
    let mut special = 0;
    for word in words {
        special |= specials(u64::from_le_bytes(*word));
    }
    match text.last_chunk::<8>() {
        // Bytes that were looked at already do not matter.
        Some(last) => special | specials(u64::from_le_bytes(*last)) == 0,
        None => rest.iter().all(|byte| !is_special(*byte)),
    }
}

/// Returns zero if no byte of the word is a control character, `"`, `\` or not ASCII.
#[inline]
fn specials(word: u64) -> u64 {
    escapes(word) | (word & HIGH)
}

/// Returns zero if no byte of the word is a control character, `"` or `\`. The lowest bit is that of the first such byte.
#[inline]
fn escapes(word: u64) -> u64 {
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is = |byte: u8| is_zero(word ^ (ONES * u64::from(byte)));
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_control | is(b'"') | is(b'\\') | is(0x7f)) & HIGH
}

/// Without short-circuits, so that the compiler looks at many bytes at once.
#[inline(always)]
fn is_special(byte: u8) -> bool {
    // As signed numbers, control characters and those that are not ASCII are the lowest ones.
    (byte.cast_signed() < 0x20) | (byte == 0x7f) | (byte == b'"') | (byte == b'\\')
}

/// Whether a text has no such byte. Chunks of a fixed size become vector instructions. The last chunk overlaps the one
/// before it.
#[inline(always)]
fn has_no(special: impl Fn(u8) -> bool + Copy, text: &[u8]) -> bool {
    let mut any = [0; CHUNK];
    let mut add = |chunk: &[u8; CHUNK]| {
        for (any, byte) in any.iter_mut().zip(chunk) {
            *any |= u8::from(special(*byte));
        }
    };
    let Some(last) = text.last_chunk::<CHUNK>() else {
        return !text.iter().any(|byte| special(*byte));
    };
    for chunk in text.as_chunks::<CHUNK>().0 {
        add(chunk);
    }
    add(last);
    any == [0; CHUNK]
}

/// Passes the pieces of a text with its escapes to `put`.
#[cold]
fn escape(text: &[u8], mut put: impl FnMut(&[u8])) {
    for chunk in text.utf8_chunks() {
        let mut rest = chunk.valid().as_bytes();
        while let Some(at) = first_special(rest) {
            let (plain, from) = rest.split_at(at);
            put(plain);
            match from[0] {
                byte @ (b'"' | b'\\') => put(&[b'\\', byte]),
                byte => {
                    const DIGITS: &[u8; 16] = b"0123456789abcdef";
                    let [high, low] =
                        [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                    put(&[b'\\', b'u', b'0', b'0', high, low]);
                }
            }
            rest = &from[1..];
        }
        put(rest);
        if !chunk.invalid().is_empty() {
            put("\u{fffd}".as_bytes());
        }
    }
}

/// Returns the position of the first ASCII character that needs an escape.
#[inline]
fn first_special(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = escapes(u64::from_le_bytes(*word));
        if found != 0 {
            // The lowest bit is exact; those above it can be false.
            return Some(8 * at + found.trailing_zeros() as usize / 8);
        }
    }
    let at = rest
        .iter()
        .position(|byte| byte.is_ascii() && is_special(*byte))?;
    Some(8 * words.len() + at)
}

/// Writes a number. Most numbers of a record have few digits, for which this is shorter than a general algorithm.
#[inline]
pub(super) fn number(number: impl Into<u64>, out: &mut Vec<u8>) {
    match number.into() {
        number @ 0..10_000 => few_digits(number as u32, out),
        number => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// Writes a number of at most four digits.
#[inline(always)]
fn few_digits(number: u32, out: &mut Vec<u8>) {
    let digits = digits(number);
    // The last digit is written also if it is zero.
    let zeros = (digits | 1 << 24).trailing_zeros() / 8;
    let text = (digits | 0x3030_3030) >> (8 * zeros);
    let end = out.len() + 4 - zeros as usize;
    out.extend_from_slice(&text.to_le_bytes());
    out.truncate(end);
}

/// Returns the digits of a number of at most four digits. The first digit is the lowest byte.
#[inline(always)]
fn digits(number: u32) -> u32 {
    let pairs = (number / 100) | ((number % 100) << 16);
    // A tenth of each pair.
    let tens = (pairs * 103) >> 10 & 0x000f_000f;
    tens | (pairs - tens * 10) << 8
}

/// Writes a time as milliseconds, then `between`, then the same time as nanoseconds, which begin with the same digits.
pub(super) fn time(time: Duration, between: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    number(milliseconds(time), out);
    let end = out.len();
    out.extend_from_slice(between);
    if time < Duration::from_millis(1) || time.as_secs() > u64::MAX / 1_000_000_000 - 1 {
        return number(nanoseconds(time), out);
    }
    out.extend_from_within(start..end);
    let rest = time.subsec_nanos() % 1_000_000;
    let [high, low] = [rest / 10_000, rest % 10_000].map(|number| digits(number) | 0x3030_3030);
    out.extend_from_slice(&high.to_le_bytes()[2..]);
    out.extend_from_slice(&low.to_le_bytes());
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1000);
    seconds.saturating_add(time.subsec_millis().into())
}

pub(super) fn id(id: Uuid, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut text = [0; 36];
    out.extend_from_slice(id.hyphenated().encode_lower(&mut text).as_bytes());
    out.push(b'"');
}

/// Each octet with the dot after it.
const OCTETS: [[u8; 4]; 256] = {
    let (mut octets, mut number) = ([[0; 4]; 256], 0);
    while number < 256 {
        let digits = [digit(number / 100), digit(number / 10), digit(number)];
        octets[number] = match number {
            0..10 => [digits[2], b'.', 0, 0],
            10..100 => [digits[1], digits[2], b'.', 0],
            _ => [digits[0], digits[1], digits[2], b'.'],
        };
        number += 1;
    }
    octets
};

const fn digit(number: usize) -> u8 {
    b'0' + (number % 10) as u8
}

pub(super) fn address(address: IpAddr, out: &mut Vec<u8>) {
    out.push(b'"');
    match address {
        IpAddr::V4(address) => {
            let (mut text, mut length) = ([0; 20], 0);
            for octet in address.octets() {
                let place = text[length..].first_chunk_mut();
                if let Some(place) = place {
                    *place = OCTETS[usize::from(octet)];
                }
                length += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
            }
            let end = out.len() + length - 1;
            out.extend_from_slice(&text);
            out.truncate(end);
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
        for length in 1..=40 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    let is_escaped = !(0x20..0x7f).contains(&byte) || b"\"\\".contains(&byte);
                    assert_eq!(is_plain(&text), !is_escaped, "{byte} at {at} of {length}");
                    if length <= 20 {
                        let mut out = Vec::new();
                        string(&text, &mut out);
                        let read: String = serde_json::from_slice(&out).unwrap();
                        assert_eq!(read, String::from_utf8_lossy(&text));
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_and_times_are_written_as_usual() {
        let written = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).unwrap()
        };
        for value in (0..20_000).chain([u64::MAX - 1, u64::MAX]) {
            assert_eq!(written(&|out| number(value, out)), value.to_string());
        }
        let far = u64::MAX / 1_000_000_000;
        for seconds in [
            0,
            1,
            1_795_472_673,
            far - 2,
            far - 1,
            far,
            far + 1,
            u64::MAX,
        ] {
            for nanos in [0, 1, 999_999, 1_000_000, 20_030_405, 999_999_999] {
                let value = Duration::new(seconds, nanos);
                let limited = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
                let expected = format!(
                    "{}, {}",
                    limited(value.as_millis()),
                    limited(value.as_nanos())
                );
                assert_eq!(written(&|out| time(value, b", ", out)), expected);
            }
        }
    }

    #[test]
    fn addresses_are_written_as_usual() {
        for octet in 0..=u8::MAX {
            let address = IpAddr::from([octet, 0, octet, 1]);
            let mut out = Vec::new();
            super::address(address, &mut out);
            assert_eq!(out, format!("\"{address}\"").as_bytes());
        }
    }
}
