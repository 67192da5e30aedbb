//! The headers of a message in a log record.
//!
//! Heads are short and have no repeated names, nearly always. So the lines of a head are found in one pass that also
//! looks for bytes that need an escape. The headers are then written in one pass, while the names are compared by a set
//! of marks. If a name is repeated, or there are very many escapes, they are written by name.

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

/// Where the name and the value of a header are in a head.
type Place = (Range<usize>, Range<usize>);

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
    let read = places.take(MAX_HEADERS).map(|(name, value)| {
        Header::new(Piece::new(bytes, name), Piece::new(bytes, value), is_plain)
    });
    if edits.is_empty() && !redacts {
        return write(read.map(shown), bytes.len(), out);
    }
    let kept = read.filter(|header| !edits.drops(header.name.text()));
    let added = edits
        .added()
        .map(|(name, value)| Header::new(name.as_bytes().into(), value.into(), false));
    let size = bytes.len() + added.clone().map(|header| header.size()).sum::<usize>();
    let all = kept.chain(added);
    match redacts {
        false => write(all.map(shown), size, out),
        true => write(all.map(redacted), size, out),
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
    let mut places: SmallVec<[Place; 24]> = SmallVec::new();
    let mut add = |line: Range<usize>| {
        if line.start == 0 {
            return true;
        }
        let Some(place) = place(head, line) else {
            return false;
        };
        places.push(place);
        places.len() < MAX_HEADERS
    };
    let is_plain = json::plain_lines(head, &mut add);
    if !is_plain {
        places.clear();
        add_lines(head, &mut places);
    }
    let read = places.iter().cloned();
    let read = read.map(|(name, value)| {
        Header::new(Piece::new(head, name), Piece::new(head, value), is_plain)
    });
    match redacts {
        false => write(read, head.len(), out),
        true => write(read.map(redacted), head.len(), out),
    }
}

/// Finds the headers of a head whose lines cannot be found together with its bytes that need an escape.
#[cold]
fn add_lines(head: &[u8], places: &mut SmallVec<[Place; 24]>) {
    let ends = memchr::memchr_iter(b'\n', head);
    let starts = ends.clone().map(|end| end + 1);
    let lines = starts.zip(ends.skip(1)).take(MAX_HEADERS);
    places.extend(lines.map_while(|(start, end)| place(head, start..end)));
}

/// Finds the name and the value in a header line.
#[inline(always)]
fn place(head: &[u8], line: Range<usize>) -> Option<Place> {
    let colon = line.start + json::find_near(b':', head.get(line.start..)?)?;
    let text = head.get(colon + 1..line.end)?;
    let blank = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
    let value = match text {
        // Nearly all lines: one space comes before the value, and none after it.
        [b' ', value @ ..] if !blank(value.first()) && !blank(value.last()) => colon + 2..line.end,
        _ => {
            let end = line.end - (text.len() - text.trim_ascii_end().len());
            let start = line.end - text.trim_ascii_start().len();
            start.min(end)..end
        }
    };
    Some((line.start..colon, value))
}

/// Writes the first [`MAX_HEADERS`] headers by name, in lower case. `size` is the size of the head.
#[inline(always)]
fn write<'h>(headers: impl Iterator<Item = Header<'h>> + Clone, size: usize, out: &mut Vec<u8>) {
    let headers = headers.take(MAX_HEADERS);
    let start = out.len();
    // The names and values of a head get more room than its text has, for quotes and some escapes.
    out.resize(start + 2 * size + 128, 0);
    let written = write_once(headers.clone(), Room::new(&mut out[start..]));
    out.truncate(start + written.unwrap_or_default());
    if written.is_none() {
        write_repeated(headers, out);
    }
}

/// Writes headers if no name occurs twice and there is room for them. Returns the length of the text.
#[inline(always)]
fn write_once<'h>(
    headers: impl Iterator<Item = Header<'h>> + Clone,
    mut room: Room<'_>,
) -> Option<usize> {
    let mut marks = 0_u64;
    room.put(*b"{\"", 2)?;
    for (at, header) in headers.clone().enumerate() {
        let name = header.name.text();
        let mark = mark(name);
        if marks & mark != 0 && headers.clone().take(at).any(|other| is_same(&other, name)) {
            return None;
        }
        marks |= mark;
        room.lower_case(header.name)?;
        room.put(*b"\":\" ", 3)?;
        header.write_value(&mut room)?;
        room.put(*b"\",\" ", 3)?;
    }
    // The start of a name that does not come.
    room.at = (room.at - 2).max(1);
    room.put(*b"}", 1)?;
    Some(room.at)
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
                let mut places = SmallVec::new();
                add_lines(&head, &mut places);
                let all = places.iter().map(|(name, value)| {
                    let header =
                        Header::new(head[name.clone()].into(), head[value.clone()].into(), false);
                    if redacts { redacted(header) } else { header }
                });
                let mut expected = b"x".to_vec();
                write_repeated(all, &mut expected);
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
