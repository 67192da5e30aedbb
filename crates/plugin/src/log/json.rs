//! Writes JSON straight into a buffer. A log record is written for every request, so it does without an intermediate
//! value.

use std::net::IpAddr;
use std::ops::Range;
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

/// Bytes that [`Piece`] copies at once.
const CHUNK: usize = 32;

/// A text within a larger buffer. Bytes that follow it in the buffer may be read, so that a short text is copied by a
/// few instructions instead of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'b> {
    /// The text and all that follows it in the buffer.
    rest: &'b [u8],
    length: usize,
}

impl<'b> Piece<'b> {
    #[inline]
    pub(super) fn new(buffer: &'b [u8], at: Range<usize>) -> Self {
        let length = at.end - at.start;
        let rest = &buffer[at.start..];
        debug_assert!(length <= rest.len(), "the text is within the buffer");
        Self { rest, length }
    }

    #[inline]
    pub(super) fn text(self) -> &'b [u8] {
        &self.rest[..self.length]
    }

    /// Writes a text that needs no escapes.
    #[inline(always)]
    pub(super) fn write_plain(self, out: &mut Vec<u8>) {
        match self.rest.first_chunk::<CHUNK>() {
            Some(chunk) if self.length <= CHUNK => {
                let end = out.len() + self.length;
                out.extend_from_slice(chunk);
                out.truncate(end);
            }
            _ => out.extend_from_slice(self.text()),
        }
    }

    /// Writes a header name in lower case. Names of headers are tokens, which need no escapes.
    #[inline(always)]
    pub(super) fn write_lower_case(self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.rest.first_chunk::<CHUNK>() {
            Some(chunk) if self.length <= CHUNK => {
                out.extend_from_slice(&chunk.map(|byte| byte.to_ascii_lowercase()));
                out.truncate(start + self.length);
            }
            _ => {
                out.extend_from_slice(self.text());
                out[start..].make_ascii_lowercase();
            }
        }
    }
}

impl<'b> From<&'b [u8]> for Piece<'b> {
    fn from(text: &'b [u8]) -> Self {
        let length = text.len();
        Self { rest: text, length }
    }
}

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
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is = |byte: u8| is_zero(word ^ (ONES * u64::from(byte)));
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_control | is(b'"') | is(b'\\') | is(0x7f) | word) & HIGH
}

/// Whether all lines of a head consist of printable ASCII characters that need no escape. There are line breaks only
/// between them: the parser refuses others, and those in values that plugins set are encoded.
#[inline]
pub(super) fn is_plain_head(head: &[u8]) -> bool {
    has_no(
        |byte| is_special(byte) & (byte != b'\r') & (byte != b'\n'),
        head,
    )
}

/// Without short-circuits, so that the compiler looks at many bytes at once.
#[inline(always)]
fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte >= 0x7f) | (byte == b'"') | (byte == b'\\')
}

/// Whether a text has no such byte. Chunks of a fixed size become vector instructions. The last chunk overlaps the one
/// before it.
#[inline(always)]
fn has_no(special: impl Fn(u8) -> bool + Copy, text: &[u8]) -> bool {
    let any = |bytes: &[u8]| bytes.iter().fold(false, |any, byte| any | special(*byte));
    let (chunks, rest) = text.as_chunks::<CHUNK>();
    for chunk in chunks {
        if any(chunk) {
            return false;
        }
    }
    match text.last_chunk::<CHUNK>() {
        Some(last) => !any(last),
        None => !any(rest),
    }
}

/// Returns the position of a byte that is probably near. A call of `memchr` costs more than a few words.
#[inline(always)]
pub(super) fn find_near(byte: u8, text: &[u8]) -> Option<usize> {
    const NEAR: usize = 64;
    let (near, far) = text.split_at(text.len().min(NEAR));
    let (words, rest) = near.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let differences = u64::from_le_bytes(*word) ^ (ONES * u64::from(byte));
        let zeros = differences.wrapping_sub(ONES) & !differences & HIGH;
        if zeros != 0 {
            // The lowest bit is exact; those above it can be false.
            return Some(8 * at + zeros.trailing_zeros() as usize / 8);
        }
    }
    match rest.iter().position(|other| *other == byte) {
        Some(at) => Some(8 * words.len() + at),
        None => memchr::memchr(byte, far).map(|at| near.len() + at),
    }
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
            octet(first, out);
            for part in rest {
                out.push(b'.');
                octet(part, out);
            }
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
    out.push(b'"');
}

/// Writes a number of at most three digits. Most octets have one or two, for which this is shorter than a general
/// algorithm.
#[inline]
fn octet(number: u8, out: &mut Vec<u8>) {
    let digit = |value: u8| b'0' + value % 10;
    if number >= 100 {
        out.push(digit(number / 100));
    }
    if number >= 10 {
        out.push(digit(number / 10));
    }
    out.push(digit(number));
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
                    let is_break = b"\r\n".contains(&byte);
                    assert_eq!(is_plain_head(&text), !is_escaped || is_break);
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
    fn pieces_of_all_lengths_are_copied_and_lowered() {
        let buffer: Vec<u8> = (0..=u8::MAX).collect();
        for start in (0..buffer.len()).step_by(5) {
            for end in start..buffer.len().min(start + 40) {
                let piece = Piece::new(&buffer, start..end);
                let mut out = b"x".to_vec();
                piece.write_plain(&mut out);
                assert_eq!(out[1..], buffer[start..end]);
                piece.write_lower_case(&mut out);
                let lowered = buffer[start..end].to_ascii_lowercase();
                assert_eq!(out[1 + end - start..], lowered);
            }
        }
    }

    #[test]
    fn the_first_of_several_bytes_is_found() {
        for length in 0..90 {
            for at in 0..length {
                for other in [b';', b':' | 0x80, 0, b'9'] {
                    let mut text = vec![other; length];
                    assert_eq!(find_near(b':', &text), None);
                    text[at..].fill(b':');
                    assert_eq!(find_near(b':', &text), Some(at));
                }
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
