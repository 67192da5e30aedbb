//! The headers of a message in a log record.
//!
//! Heads are short and have no repeated names, nearly always. So headers are written in one pass while the names are
//! compared by a set of marks. The lines of a response are found in the same pass, with those that need an escape. If a
//! name is repeated, or there are very many escapes, the headers are written again, by name.

use super::json::{self, Piece, Room};
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

impl<'h> Header<'h> {
    #[inline(always)]
    fn new(name: Piece<'h>, value: Piece<'h>, is_plain: bool) -> Self {
        Self {
            name,
            value,
            is_plain,
            is_redacted: false,
            is_url: false,
        }
    }
}

/// Writes the headers of a request with the changes of plugins. Credentials are shown without their values. `is_plain`
/// says whether [`json::is_plain_head`] is true of the head.
pub(super) fn write_request(
    request: &Request<'_>,
    is_plain: bool,
    redacts: bool,
    out: &mut Vec<u8>,
) {
    let edits = &request.upstream.headers;
    let (bytes, places) = request.head.located();
    let read = places.take(MAX_HEADERS).filter_map(|(name, value)| {
        let (name, value) = (Piece::new(bytes, name)?, Piece::new(bytes, value)?);
        Some(Header::new(name, value, is_plain))
    });
    if edits.is_empty() && !redacts {
        return write(read.map(shown), bytes.len(), out);
    }
    let kept = read.filter(|header| !edits.drops(header.name.text()));
    let added = edits
        .added()
        .map(|(name, value)| Header::new(name.as_bytes().into(), value.into(), false));
    let size = bytes.len() + added.clone().map(|header| header.size()).sum::<usize>();
    let all = kept.chain(added).take(MAX_HEADERS);
    match redacts {
        false => write(all.map(shown), size, out),
        true => write(all.map(redacted), size, out),
    }
}

/// Writes headers by name, in lower case. `size` is the size of their lines.
#[inline(always)]
fn write<'h>(headers: impl Iterator<Item = Header<'h>> + Clone, size: usize, out: &mut Vec<u8>) {
    let written = write_once(size, out, |object| {
        headers.clone().try_for_each(|header| object.add(header))
    });
    if written.is_none() {
        write_repeated(headers, out);
    }
}

/// Returns the header as the record of a request shows it.
#[inline(always)]
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

/// Writes the headers of a response head. Its first line is the status line, and the last one is empty.
pub(super) fn write_response(head: &[u8], redacts: bool, out: &mut Vec<u8>) {
    let written = write_once(head.len(), out, |object| {
        let (mut count, mut fits) = (0, Some(()));
        json::lines(head, |line, is_plain| {
            if line.start == 0 {
                return Some(());
            }
            let header = header(head, line, is_plain)?;
            let header = if redacts { redacted(header) } else { header };
            fits = object.add(header);
            count += 1;
            fits.filter(|()| count < MAX_HEADERS)
        });
        // Lines of so short a head are not found.
        fits.filter(|()| head.len() >= json::CHUNK)
    });
    if written.is_none() {
        write_lines(head, redacts, out);
    }
}

/// Writes the headers of a response head that is short or has repeated names.
#[cold]
fn write_lines(head: &[u8], redacts: bool, out: &mut Vec<u8>) {
    let ends = memchr::memchr_iter(b'\n', head);
    let starts = ends.clone().map(|end| end + 1);
    let lines = starts.zip(ends.skip(1)).take(MAX_HEADERS);
    let headers = lines.map_while(|(start, end)| header(head, start..end, false));
    write_repeated(
        headers.map(|header| if redacts { redacted(header) } else { header }),
        out,
    );
}

/// Finds the name and the value in a header line, which is given without its line feed.
#[inline(always)]
fn header(head: &[u8], line: Range<usize>, is_plain: bool) -> Option<Header<'_>> {
    let colon = line.start + json::find_near(b':', head.get(line.start..)?)?;
    let text = head.get(colon + 1..line.end)?;
    let value = match text {
        // Nearly all lines: one space comes before the value, and none after it.
        [b' ', first, .., last, b'\r'] if *first > b' ' && *last > b' ' => colon + 2..line.end - 1,
        _ => {
            let end = line.end - (text.len() - text.trim_ascii_end().len());
            let start = line.end - text.trim_ascii_start().len();
            start.min(end)..end
        }
    };
    let (name, value) = (
        Piece::new(head, line.start..colon)?,
        Piece::new(head, value)?,
    );
    Some(Header::new(name, value, is_plain))
}

/// Writes an object to which `add` adds the headers. `size` is the size of their lines. Returns `None`, and writes
/// nothing, if a name is repeated or there is too little room.
#[inline(always)]
fn write_once(
    size: usize,
    out: &mut Vec<u8>,
    add: impl FnOnce(&mut Written<'_>) -> Option<()>,
) -> Option<()> {
    let start = out.len();
    // More than the lines have, for quotes and some escapes.
    out.resize(start + 2 * size + 128, 0);
    let mut object = Written {
        room: Room::new(&mut out[start..]),
        marks: 0,
    };
    let length = object.room.put(*b"{\"", 2).and_then(|()| {
        add(&mut object)?;
        object.end()
    });
    out.truncate(start + length.unwrap_or_default());
    length.map(drop)
}

/// An object of headers whose names all differ.
struct Written<'o> {
    room: Room<'o>,
    /// The [`mark`] of each name.
    marks: u64,
}

impl Written<'_> {
    #[inline(always)]
    fn add(&mut self, header: Header<'_>) -> Option<()> {
        let mark = mark(header.name.text());
        if self.marks & mark != 0 && self.has(header.name.text()) {
            return None;
        }
        self.marks |= mark;
        self.room.lower_case(header.name)?;
        self.room.put(*b"\":\" ", 3)?;
        header.write_value(&mut self.room)?;
        self.room.put(*b"\",\" ", 3)
    }

    /// Whether there is a header of this name. Quotes in values have a backslash before them, so only a name follows a
    /// quote and precedes these bytes.
    #[cold]
    fn has(&self, name: &[u8]) -> bool {
        let key = [b"\"", name, b"\":\""].concat().to_ascii_lowercase();
        memchr::memmem::find(self.room.written(), &key).is_some()
    }

    /// Returns the length of the text.
    #[inline(always)]
    fn end(&mut self) -> Option<usize> {
        // The start of a name that does not come.
        self.room.at = (self.room.at - 2).max(1);
        self.room.put(*b"}", 1)?;
        Some(self.room.at)
    }
}

impl Header<'_> {
    /// Returns the size of the header's line.
    fn size(&self) -> usize {
        self.name.text().len() + self.value.text().len() + 4
    }

    #[inline(always)]
    fn write_value(&self, room: &mut Room<'_>) -> Option<()> {
        match self.is_plain {
            _ if self.is_url => self.write_url(room),
            true => room.plain(self.value),
            false => room.escaped(self.value),
        }
    }

    fn write_url(&self, room: &mut Room<'_>) -> Option<()> {
        let mut written = Some(());
        redact::url(self.value.text(), |piece| {
            written = written.and_then(|()| room.escaped(piece.into()));
        });
        written
    }

    fn append_value(&self, out: &mut Vec<u8>) {
        match self.is_url {
            true => redact::url(self.value.text(), |piece| json::escaped(piece, out)),
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

/// Writes headers of which some may have the same name. Of several equal credentials, one is shown.
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
            out.extend(all[at].name.text().iter().map(u8::to_ascii_lowercase));
            out.push(b'"');
        },
        |at, out| {
            out.push(b'"');
            all[at].append_value(out);
            out.push(b'"');
        },
        out,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::random::Random;

    /// Names, values, and what is around values, of which heads are made.
    const NAMES: [&str; 8] = [
        "A",
        "b",
        "Host",
        "hosT",
        "Content-Type",
        "X-Name-Of-More-Than-Thirty-Two-Bytes",
        "Location",
        "Authorization",
    ];
    const VALUES: [&[u8]; 8] = [
        b"",
        b"1",
        b"a \"quoted\" \\ text",
        b"caf\xc3\xa9 \xe9",
        b"a, b:c",
        b"\x01\x7f",
        b"a value that is longer than what is copied at once",
        b"https://u:p@a/?code=1&\"",
    ];
    const AROUND: [(&[u8], &[u8]); 4] = [(b" ", b""), (b"", b""), (b"  ", b" "), (b"\t", b"\t ")];

    #[test]
    fn headers_are_the_same_whether_written_at_once_or_by_name() {
        let mut random = Random::new(7);
        let mut escaped = 0;
        for round in 0..5000 {
            let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
            for _ in 0..round % 7 {
                let (before, after) = *random.pick(&AROUND);
                head.extend_from_slice(random.text(&NAMES).as_bytes());
                head.push(b':');
                head.extend_from_slice(before);
                head.extend_from_slice(random.pick::<&[u8]>(&VALUES));
                head.extend_from_slice(after);
                head.extend_from_slice(b"\r\n");
            }
            head.extend_from_slice(b"\r\n");
            for redacts in [false, true] {
                let mut out = b"x".to_vec();
                write_response(&head, redacts, &mut out);
                let mut expected = b"x".to_vec();
                write_lines(&head, redacts, &mut expected);
                assert_eq!(
                    out.escape_ascii().to_string(),
                    expected.escape_ascii().to_string()
                );
                escaped += usize::from(out.contains(&b'\\'));
            }
        }
        assert!(escaped > 1000);
    }
}
