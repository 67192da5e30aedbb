//! The headers of a message in a log record.
//!
//! Heads are short and have no repeated names, nearly always. So headers are written in one pass while the names are
//! compared by a set of marks, and the bytes of a head are looked at once for any that needs an escape. If a name is
//! repeated, the headers are written again, by name.

use super::json::{self, Piece};
use super::record::write_grouped;
use crate::redact;
use crate::request::{MAX_HEADERS, Request};
use smallvec::SmallVec;
use std::ops::Range;

/// Headers whose values records do not show.
const REDACTED: [&[u8]; 2] = [b"authorization", b"proxy-authorization"];

#[derive(Clone, Copy)]
struct Header<'h> {
    name: Piece<'h>,
    value: Piece<'h>,
    /// Whether the value is known to need no escapes.
    is_plain: bool,
    is_redacted: bool,
    /// Whether the value is a URL whose credentials are hidden.
    is_url: bool,
}

/// Writes the headers of a request with the changes of plugins. Credentials are shown without their values.
pub(super) fn write_request(request: &Request<'_>, redacts: bool, out: &mut Vec<u8>) {
    let edits = &request.upstream.headers;
    let (bytes, places) = request.head.located();
    let is_plain = json::is_plain_head(bytes);
    let read = places.take(MAX_HEADERS).map(|(name, value)| Header {
        name: Piece::new(bytes, name),
        value: Piece::new(bytes, value),
        is_plain,
        is_redacted: false,
        is_url: false,
    });
    if edits.is_empty() && !redacts {
        return write(read.map(shown), out);
    }
    let kept = read.filter(|header| !edits.drops(header.name.text()));
    let added = edits.added().map(|(name, value)| Header {
        name: name.as_bytes().into(),
        value: value.into(),
        is_plain: false,
        is_redacted: false,
        is_url: false,
    });
    let all = kept.chain(added);
    match redacts {
        false => write(all.map(shown), out),
        true => write(all.map(redacted), out),
    }
}

/// Returns the header as the record of a request shows it.
#[inline]
fn shown(header: Header<'_>) -> Header<'_> {
    let name = header.name.text();
    let is_redacted = REDACTED
        .iter()
        .any(|one| one.len() == name.len() && one.eq_ignore_ascii_case(name));
    match is_redacted {
        true => hidden(header),
        false => header,
    }
}

/// Returns the header as a record shows it that hides all credentials.
fn redacted(header: Header<'_>) -> Header<'_> {
    let name = header.name.text();
    match redact::is_secret_header(name) {
        true => hidden(header),
        false => Header {
            is_url: redact::is_url_header(name),
            ..header
        },
    }
}

#[inline]
fn hidden(header: Header<'_>) -> Header<'_> {
    Header {
        value: redact::REDACTED.into(),
        is_plain: true,
        is_redacted: true,
        ..header
    }
}

/// Writes the headers of a response head. Its first line is the status line, and its last one is empty.
pub(super) fn write_response(head: &[u8], redacts: bool, out: &mut Vec<u8>) {
    let head = head.strip_suffix(b"\r\n").unwrap_or(head);
    let lines = Lines {
        head,
        at: memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1),
        is_plain: json::is_plain_head(head),
    };
    match redacts {
        false => write(lines, out),
        true => write(lines.map(redacted), out),
    }
}

/// The header lines of a response head.
#[derive(Clone)]
struct Lines<'h> {
    head: &'h [u8],
    /// Start of the next line.
    at: usize,
    is_plain: bool,
}

impl<'h> Iterator for Lines<'h> {
    type Item = Header<'h>;

    #[inline(always)]
    fn next(&mut self) -> Option<Header<'h>> {
        let rest = self.head.get(self.at..)?;
        let line = &rest[..json::find_near(b'\n', rest)?];
        let colon = json::find_near(b':', line)?;
        let value = match &line[colon..] {
            // Nearly all lines: one space comes before the value, and none after it.
            [b':', b' ', value @ .., last, b'\r']
                if last.is_ascii_graphic() && value.first() != Some(&b' ') =>
            {
                value.len() + 1
            }
            _ => return Some(self.next_slow(colon, line.len())),
        };
        let start = self.at + colon + 2;
        let header = self.header(colon, start..start + value);
        self.at += line.len() + 1;
        Some(header)
    }
}

impl<'h> Lines<'h> {
    /// Returns the header of a line whose value has other blanks around it, or is empty.
    #[cold]
    fn next_slow(&mut self, colon: usize, length: usize) -> Header<'h> {
        let line = self.at + colon + 1..self.at + length;
        let blank = |at: &usize| self.head[*at].is_ascii_whitespace();
        let start = line.clone().find(|at| !blank(at)).unwrap_or(line.end);
        let last = line.clone().rev().find(|at| !blank(at));
        let header = self.header(colon, start..last.map_or(start, |last| last + 1));
        self.at = line.end + 1;
        header
    }

    #[inline(always)]
    fn header(&self, name: usize, value: Range<usize>) -> Header<'h> {
        Header {
            name: Piece::new(self.head, self.at..self.at + name),
            value: Piece::new(self.head, value),
            is_plain: self.is_plain,
            is_redacted: false,
            is_url: false,
        }
    }
}

/// Writes the first [`MAX_HEADERS`] headers by name, in lower case.
#[inline(always)]
fn write<'h>(headers: impl Iterator<Item = Header<'h>> + Clone, out: &mut Vec<u8>) {
    let headers = headers.take(MAX_HEADERS);
    let start = out.len();
    let mut marks = 0_u64;
    out.extend_from_slice(b"{\"");
    for (at, header) in headers.clone().enumerate() {
        let name = header.name.text();
        let mark = mark(name);
        if marks & mark != 0 && headers.clone().take(at).any(|other| is_same(&other, name)) {
            out.truncate(start);
            return write_repeated(headers, out);
        }
        marks |= mark;
        header.name.write_lower_case(out);
        out.extend_from_slice(b"\":\"");
        header.write_value(out);
        out.extend_from_slice(b"\",\"");
    }
    // The start of a name that does not come.
    out.truncate((out.len() - 2).max(start + 1));
    out.push(b'}');
}

impl Header<'_> {
    #[inline(always)]
    fn write_value(&self, out: &mut Vec<u8>) {
        match self.is_plain {
            _ if self.is_url => redact::url(self.value.text(), |piece| json::escaped(piece, out)),
            true => self.value.write_plain(out),
            false => json::escaped(self.value.text(), out),
        }
    }
}

/// Returns a bit that is the same for equal names, and mostly another one for others. It depends on the length, the
/// first and the last letter.
#[inline]
fn mark(name: &[u8]) -> u64 {
    let letter = |byte: Option<&u8>| u32::from(byte.copied().unwrap_or_default() | 0x20);
    let mixed = letter(name.first()) | letter(name.last()) << 8 | (name.len() as u32) << 16;
    1 << (mixed.wrapping_mul(0x9E37_79B9) >> 26)
}

#[inline]
fn is_same(header: &Header<'_>, name: &[u8]) -> bool {
    header.name.text().eq_ignore_ascii_case(name)
}

/// Writes headers of which some have the same name. Of several equal credentials, one is shown.
#[cold]
fn write_repeated<'h>(headers: impl Iterator<Item = Header<'h>>, out: &mut Vec<u8>) {
    let mut all: SmallVec<[Header<'_>; 24]> = SmallVec::new();
    for header in headers {
        let name = header.name.text();
        if !header.is_redacted || !all.iter().any(|other| is_same(other, name)) {
            all.push(header);
        }
    }
    write_grouped(
        all.len(),
        |one, other| is_same(&all[one], all[other].name.text()),
        |at, out| {
            out.push(b'"');
            all[at].name.write_lower_case(out);
            out.push(b'"');
        },
        |at, out| {
            out.push(b'"');
            all[at].write_value(out);
            out.push(b'"');
        },
        out,
    );
}
