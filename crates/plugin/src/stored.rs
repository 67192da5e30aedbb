//! A response in memory that is sent many times, in the form in which it is sent. Sending it costs little more than
//! copying it, because nothing about it has to be found out again.

use crate::edits::{HeaderChange, HeaderEdits, HeaderValue};
use bytes::{Bytes, BytesMut};
use compact_str::CompactString;
use std::collections::HashSet;
use std::ops::Range;

/// Names of lines that are not sent as they are. The gateway writes its own, or changes the value.
const LOOKED_AT: [&str; 6] = [
    "connection",
    "content-length",
    "content-type",
    "date",
    "server",
    "transfer-encoding",
];

/// The headers and the body of a response that is kept.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The header lines, each as `Name: value` with its line end. The lines that are sent as they are come last.
    text: Bytes,
    /// Where they begin.
    plain: usize,
    /// The places of all lines in the text, in the order in which the response had them.
    lines: Box<[Line]>,
    content_type: Option<Line>,
    date: Option<Line>,
    first_piece: Bytes,
    more_pieces: Box<[Bytes]>,
    body_length: usize,
}

/// The place of a header line.
#[derive(Debug, Clone, Copy)]
struct Line {
    start: u32,
    name: u32,
    value: u32,
    /// Whether no earlier line has this name.
    is_first: bool,
}

const BETWEEN: &[u8] = b": ";
const END: &[u8] = b"\r\n";

impl Line {
    fn name(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.name as usize
    }

    fn value(&self) -> Range<usize> {
        let start = self.name().end + BETWEEN.len();
        start..start + self.value as usize
    }
}

impl Stored {
    /// Takes over the headers of a response. Its body is empty.
    pub fn new<'l>(lines: impl Iterator<Item = (&'l str, &'l [u8])>) -> Self {
        let length =
            |(name, value): &(&str, &[u8])| name.len() + BETWEEN.len() + value.len() + END.len();
        let mut whole = 0;
        // No head is so large that lines are left out here.
        let lines = lines.take_while(|line| {
            whole += length(line);
            u32::try_from(whole).is_ok()
        });
        let lines: Vec<(&str, &[u8])> = lines.collect();
        let whole: usize = lines.iter().map(length).sum();
        let is_looked_at = |name: &str| {
            LOOKED_AT
                .iter()
                .any(|other| name.eq_ignore_ascii_case(other))
        };
        let looked_at = lines.iter().filter(|(name, _)| is_looked_at(name));
        let plain: usize = looked_at.map(length).sum();
        let (mut ahead, mut behind) = (0, plain);
        let mut names = HashSet::new();
        let places: Vec<Line> = (lines.iter())
            .map(|line| {
                let (name, value) = *line;
                let next = match is_looked_at(name) {
                    true => &mut ahead,
                    false => &mut behind,
                };
                // Neither number is larger than `whole`, which fits.
                let place = Line {
                    start: *next as u32,
                    name: name.len() as u32,
                    value: value.len() as u32,
                    is_first: names.insert(name.to_ascii_lowercase()),
                };
                *next += length(line);
                place
            })
            .collect();
        let mut text = BytesMut::zeroed(whole);
        for (place, (name, value)) in places.iter().zip(&lines) {
            let parts = [name.as_bytes(), BETWEEN, value, END];
            let mut at = place.start as usize;
            for part in parts {
                text[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        let find = |wanted: &str| {
            let mut all = places.iter().zip(&lines);
            all.find(|(_, (name, _))| name.eq_ignore_ascii_case(wanted))
                .map(|(place, _)| *place)
        };
        Self {
            content_type: find("content-type"),
            date: find("date"),
            text: text.freeze(),
            plain,
            lines: places.into_boxed_slice(),
            first_piece: Bytes::new(),
            more_pieces: Box::default(),
            body_length: 0,
        }
    }

    /// Sets the body. Its pieces should keep no larger buffers in memory.
    pub fn with_body(self, pieces: Vec<Bytes>) -> Self {
        let body_length = pieces.iter().map(Bytes::len).sum();
        let mut pieces = pieces.into_iter();
        Self {
            first_piece: pieces.next().unwrap_or_default(),
            more_pieces: pieces.collect(),
            body_length,
            ..self
        }
    }

    /// The names and values of all header lines.
    pub fn header_pairs(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.marked_pairs().map(|(name, value, _)| (name, value))
    }

    /// The names and values of all header lines, and whether each is the first one with its name.
    pub fn marked_pairs(&self) -> impl Iterator<Item = (&str, &[u8], bool)> + Clone {
        self.lines.iter().map(|line| {
            let name = std::str::from_utf8(&self.text[line.name()]).unwrap_or_default();
            (name, &self.text[line.value()], line.is_first)
        })
    }

    /// Returns the first value of a header.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        let mut lines = self.lines.iter();
        let found = lines.find(|line| self.text[line.name()].eq_ignore_ascii_case(name.as_bytes()));
        found.map(|line| &self.text[line.value()])
    }

    /// The lines that are sent as they are: all but those about the connection, the form of the message, its type, its
    /// date and its server.
    pub fn plain_lines(&self) -> &[u8] {
        &self.text[self.plain..]
    }

    pub fn content_type(&self) -> Option<&[u8]> {
        self.content_type.map(|line| &self.text[line.value()])
    }

    pub fn date(&self) -> Option<&[u8]> {
        self.date.map(|line| &self.text[line.value()])
    }

    /// All header lines as changes to the headers of a message. They replace lines with the same names that were there
    /// before.
    pub fn edits(&self) -> HeaderEdits {
        HeaderEdits::from_ordered(self.lines.iter().map(|line| {
            let name = CompactString::from_utf8_lossy(&self.text[line.name()]);
            let value = HeaderValue::Bytes(self.text.slice(line.value()));
            let change = match line.is_first {
                true => HeaderChange::Set(value),
                false => HeaderChange::Add(value),
            };
            (name, change)
        }))
    }

    pub fn first_piece(&self) -> &Bytes {
        &self.first_piece
    }

    pub fn more_pieces(&self) -> &[Bytes] {
        &self.more_pieces
    }

    /// The pieces of the body.
    pub fn pieces(&self) -> Vec<Bytes> {
        let pieces = std::iter::once(&self.first_piece).chain(&self.more_pieces);
        pieces.cloned().collect()
    }

    pub fn body_length(&self) -> usize {
        self.body_length
    }

    /// Bytes of memory that the texts, the body and their places take.
    pub fn weight(&self) -> usize {
        let lines = self.lines.len() * std::mem::size_of::<Line>();
        let pieces = self.more_pieces.len() * std::mem::size_of::<Bytes>();
        self.text.len() + lines + self.body_length + pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        let lines: [(&str, &[u8]); 6] = [
            ("X-A", b"1"),
            ("Content-Type", b"text/plain"),
            ("x-a", b"2"),
            ("Date", b"today"),
            ("Server", b"own"),
            ("X-B", b"\xff"),
        ];
        let pieces = vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")];
        Stored::new(lines.into_iter()).with_body(pieces)
    }

    #[test]
    fn lines_keep_their_order_and_those_to_look_at_are_apart() {
        let stored = stored();
        let names: Vec<_> = stored
            .marked_pairs()
            .map(|(name, _, first)| (name, first))
            .collect();
        let expected = [
            ("X-A", true),
            ("Content-Type", true),
            ("x-a", false),
            ("Date", true),
            ("Server", true),
            ("X-B", true),
        ];
        assert_eq!(names, expected);
        assert_eq!(stored.plain_lines(), b"X-A: 1\r\nx-a: 2\r\nX-B: \xff\r\n");
        assert_eq!(stored.content_type(), Some(&b"text/plain"[..]));
        assert_eq!(stored.date(), Some(&b"today"[..]));
        assert_eq!(stored.header("x-b"), Some(&b"\xff"[..]));
        assert_eq!(stored.header("x-c"), None);
    }

    #[test]
    fn its_edits_replace_lines_of_the_same_name() {
        let mut edits = HeaderEdits::new();
        edits.add("X-A", "0");
        edits.add("X-C", "0");
        edits.apply(stored().edits());
        let values: Vec<&[u8]> = edits.values(b"x-a").collect();
        assert_eq!(values, [b"1", b"2"]);
        assert_eq!(edits.value("x-c"), Some(&b"0"[..]));
    }

    #[test]
    fn the_body_has_the_length_of_its_pieces() {
        let stored = stored();
        assert_eq!(
            (stored.body_length(), stored.pieces().concat()),
            (3, b"abc".to_vec())
        );
        let empty = Stored::new(std::iter::empty());
        assert_eq!((empty.body_length(), empty.plain_lines()), (0, &b""[..]));
    }
}
