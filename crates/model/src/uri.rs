//! URI paths: computes the normal form that routing compares, and escapes a path before it is sent upstream. Both
//! results equal those of Kong (`kong/tools/uri.lua`) byte for byte. Query strings are not handled here, because the
//! gateway does not change them.

use std::borrow::Cow;

/// The treatment of adjacent slashes by [`normalize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slashes {
    /// Merges adjacent slashes, as routing does.
    Merge,
    Keep,
}

/// Returns the normal form of a path. Percent-encoded bytes are decoded unless they are reserved, dot segments are
/// resolved as in RFC 3986 section 5.2.4, and adjacent slashes are merged if requested. Borrows the path if no step
/// applies to it.
///
/// ```
/// use model::uri::{Slashes, normalize};
/// assert_eq!(&*normalize(b"/a/%2e%2e//b%2f", Slashes::Merge), b"/b%2F");
/// ```
pub fn normalize(path: &[u8], slashes: Slashes) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    if normalize_into(path, slashes, &mut out) {
        Cow::Owned(out)
    } else {
        Cow::Borrowed(path)
    }
}

/// Normalises as [`normalize`] does, but into a buffer that the caller reuses. Returns false and writes nothing if no
/// step applies to the path. If it returns true, the result may still equal the path.
pub fn normalize_into(path: &[u8], slashes: Slashes, out: &mut Vec<u8>) -> bool {
    if !may_change(path, slashes) {
        return false;
    }
    out.clear();
    decode(path, out);
    if has_segments_to_resolve(out, slashes) {
        resolve_segments(out, slashes);
    }
    true
}

/// Appends the path as it is sent upstream. Bytes that are not allowed in a path become `%XX`. An existing `%` stays,
/// so that nothing is escaped twice.
pub fn escape_into(path: &[u8], out: &mut Vec<u8>) {
    if path.iter().all(|&byte| is_sent_as_is(byte)) {
        return out.extend_from_slice(path);
    }
    for &byte in path {
        if is_sent_as_is(byte) {
            out.push(byte);
        } else {
            push_encoded(byte, out);
        }
    }
}

/// Whether the path may contain a `%`, a `.` or, if slashes are merged, two adjacent slashes. A result of false is
/// always correct, but true may be wrong. The function reads eight bytes at a time, because it runs for every request
/// and most paths contain none of these.
fn may_change(path: &[u8], slashes: Slashes) -> bool {
    let mut slash_before = 0;
    let mut may_change = |word: u64| {
        let slash = marks(word, b'/');
        let adjacent = slash & (slash << 8 | slash_before);
        slash_before = slash >> 56;
        marks(word, b'%') | marks(word, b'.') != 0 || slashes == Slashes::Merge && adjacent != 0
    };
    let mut words = path.chunks_exact(8);
    let found = words.by_ref().any(|eight| {
        let eight = eight.first_chunk().expect("chunks of eight bytes");
        may_change(u64::from_le_bytes(*eight))
    });
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    found || may_change(u64::from_le_bytes(last))
}

/// Sets the highest bit of each byte of the word that equals `byte`. It may also set the highest bit of bytes directly
/// after such a byte, so a mark can be wrong but is never missing.
fn marks(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let others = word ^ (ONES * u64::from(byte));
    others.wrapping_sub(ONES) & !others & (ONES << 7)
}

fn has_segments_to_resolve(path: &[u8], slashes: Slashes) -> bool {
    path.contains(&b'.') || (slashes == Slashes::Merge && has_adjacent_slashes(path))
}

fn has_adjacent_slashes(path: &[u8]) -> bool {
    let shifted = path.get(1..).unwrap_or_default();
    let pairs = path.iter().zip(shifted);
    pairs.fold(false, |found, (&first, &second)| {
        found | ((first == b'/') & (second == b'/'))
    })
}

fn decode(path: &[u8], out: &mut Vec<u8>) {
    out.reserve(path.len());
    let mut rest = path;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        match encoded_byte(rest) {
            Some(byte) if is_reserved(byte) => push_encoded(byte, out),
            Some(byte) => out.push(byte),
            None => {
                out.push(b'%');
                rest = &rest[1..];
                continue;
            }
        }
        rest = &rest[3..];
    }
    out.extend_from_slice(rest);
}

/// Decodes the `%XX` at the beginning of a text that begins with `%`. Returns `None` if these are not two hexadecimal
/// digits.
fn encoded_byte(text: &[u8]) -> Option<u8> {
    let high = char::from(*text.get(1)?).to_digit(16)?;
    let low = char::from(*text.get(2)?).to_digit(16)?;
    u8::try_from(high << 4 | low).ok()
}

/// Resolves dot segments in place, as in RFC 3986 section 5.2.4, and merges adjacent slashes if requested. The write
/// position never passes the read position.
fn resolve_segments(path: &mut Vec<u8>, slashes: Slashes) {
    let (mut read, mut written) = (0, 0);
    while read < path.len() {
        let rest = &path[read..];
        match rest {
            b"." | b".." => break,
            b"/." | b"/.." => {
                if rest.len() == 3 {
                    written = parent(&path[..written]);
                }
                path[written] = b'/';
                written += 1;
                break;
            }
            [b'.', b'.', b'/', ..] => read += 3,
            [b'.', b'/', ..] | [b'/', b'.', b'/', ..] => read += 2,
            [b'/', b'.', b'.', b'/', ..] => {
                written = parent(&path[..written]);
                read += 3;
            }
            [b'/', b'/', ..] if slashes == Slashes::Merge => read += 1,
            _ => {
                let slash = rest.iter().skip(1).position(|&byte| byte == b'/');
                let length = slash.map_or(rest.len(), |at| at + 1);
                path.copy_within(read..read + length, written);
                read += length;
                written += length;
            }
        }
    }
    path.truncate(written);
}

/// Returns the position of the slash before the last segment of a path.
fn parent(path: &[u8]) -> usize {
    path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)
}

fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[
        b'%',
        HEX[usize::from(byte >> 4)],
        HEX[usize::from(byte & 15)],
    ]);
}

/// Whether a byte is reserved: its encoded form has a different meaning from the byte itself. Reserved bytes are never
/// decoded.
fn is_reserved(byte: u8) -> bool {
    b"!*'();:@&=+$,/?%#[]".contains(&byte)
}

fn is_sent_as_is(byte: u8) -> bool {
    const SENT: [bool; 256] = {
        let mut table = [false; 256];
        let plain = b"!#$&'()*+,/:;=?@[]-_.~%";
        let mut at = 0;
        while at < plain.len() {
            table[plain[at] as usize] = true;
            at += 1;
        }
        let mut byte = 0;
        while byte < 128 {
            if (byte as u8).is_ascii_alphanumeric() {
                table[byte] = true;
            }
            byte += 1;
        }
        table
    };
    SENT[usize::from(byte)]
}
