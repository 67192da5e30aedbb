//! Parses responses while they arrive. Finds the exact end of each response, and does not store the response.

use crate::upstream::Pattern;
use memchr::memmem;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

const LONGEST_HEAD: usize = 64 * 1024;

/// The reason why a response counts as failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    Status(u16),
    NotHttp,
    HeadTooLong,
    NoLength,
    BadChunk,
    LongerThanAnnounced,
    /// The body differs from the one that the upstream sends for this request.
    WrongBody,
    BrokenOff,
    Connection(ErrorKind),
    Tls(String),
    TooLate,
}

impl Failure {
    pub fn subject_is_gone(&self) -> bool {
        *self == Self::Connection(ErrorKind::ConnectionRefused)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Status(status) => return write!(formatter, "a response had status {status}"),
            Self::Connection(kind) => return write!(formatter, "a connection failed: {kind}"),
            Self::Tls(error) => return write!(formatter, "TLS failed: {error}"),
            Self::NotHttp => "a response was not HTTP/1.1",
            Self::HeadTooLong => "the head of a response was too long",
            Self::NoLength => "a response had neither Content-Length nor chunks",
            Self::BadChunk => "a response had an invalid chunk",
            Self::LongerThanAnnounced => "a server sent more bytes after the end of a response",
            Self::WrongBody => "a response had a different body than the upstream sends",
            Self::BrokenOff => "a connection was closed before the end of a response",
            Self::TooLate => "a response did not arrive in time",
        };
        formatter.write_str(text)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // An error of rustls is wrapped in an I/O error.
        match error.get_ref() {
            Some(cause) if error.kind() == ErrorKind::InvalidData => Self::Tls(cause.to_string()),
            _ => Self::Connection(error.kind()),
        }
    }
}

/// The state of reading one response.
pub struct ResponseReader {
    state: ReaderState,
    status: u16,
    closes: bool,
    pattern: Arc<Pattern>,
    /// The expected length of the body; `None` if any body is accepted.
    expected: Option<usize>,
    /// Number of body bytes received.
    received: usize,
    /// The received part of a head that arrives in several pieces.
    partial: Vec<u8>,
}

#[derive(Default)]
enum ReaderState {
    /// The response is complete, or none is expected. Further bytes are an error.
    #[default]
    Whole,
    Head,
    Body {
        left: usize,
    },
    Chunked(Chunked),
    Failed(Failure),
}

impl ResponseReader {
    pub fn new(pattern: Arc<Pattern>) -> Self {
        Self {
            state: ReaderState::Whole,
            status: 0,
            closes: false,
            pattern,
            expected: None,
            received: 0,
            partial: Vec::new(),
        }
    }

    /// Resets the state for a new connection, on which no response is expected yet.
    pub fn forget(&mut self) {
        *self = Self::new(Arc::clone(&self.pattern));
    }

    /// Expects a response with an upstream body of this length, or with any body if the length is `None`.
    pub fn begin(&mut self, expected: Option<usize>) {
        self.state = ReaderState::Head;
        self.expected = expected;
        self.received = 0;
        self.closes = false;
        self.partial.clear();
    }

    /// Returns the result, or `None` while the response is incomplete.
    pub fn result(&self) -> Option<Result<(), Failure>> {
        match &self.state {
            ReaderState::Whole if self.status != 200 => Some(Err(Failure::Status(self.status))),
            ReaderState::Whole if self.is_short() => Some(Err(Failure::WrongBody)),
            ReaderState::Whole => Some(Ok(())),
            ReaderState::Failed(failure) => Some(Err(failure.clone())),
            _ => None,
        }
    }

    fn is_short(&self) -> bool {
        self.expected
            .is_some_and(|expected| self.received < expected)
    }

    /// Whether the connection cannot be used for another request.
    pub fn closes(&self) -> bool {
        self.closes || matches!(self.state, ReaderState::Failed(_))
    }

    pub fn take(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while !bytes.is_empty() {
            bytes = match &mut self.state {
                ReaderState::Head => self.take_head(bytes),
                ReaderState::Body { left } => {
                    let (body, rest) = bytes.split_at(bytes.len().min(*left));
                    *left -= body.len();
                    if *left == 0 {
                        self.state = ReaderState::Whole;
                    }
                    self.compare(body);
                    rest
                }
                ReaderState::Chunked(chunked) => {
                    let (body, rest) = chunked.take(bytes);
                    match chunked {
                        Chunked::End => self.state = ReaderState::Whole,
                        Chunked::Bad => self.state = ReaderState::Failed(Failure::BadChunk),
                        _ => {}
                    }
                    self.compare(body);
                    rest
                }
                ReaderState::Whole => {
                    self.state = ReaderState::Failed(Failure::LongerThanAnnounced);
                    return;
                }
                ReaderState::Failed(_) => return,
            }
        }
    }

    /// Marks the response as failed if this piece of its body differs from the upstream's body. Skips responses other
    /// than 200, because they fail by their status.
    fn compare(&mut self, piece: &[u8]) {
        let Some(expected) = self.expected.filter(|_| self.status == 200) else {
            return;
        };
        let end = self.received + piece.len();
        if end > expected || !self.pattern.holds(self.received, piece) {
            self.state = ReaderState::Failed(Failure::WrongBody);
        }
        self.received = end;
    }

    /// Reads bytes of the head and returns the bytes after it. Nearly all heads arrive in one piece; such a head is not
    /// copied.
    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.partial.is_empty()
            && let Some(end) = memmem::find(bytes, b"\r\n\r\n")
        {
            self.state = self.read_head(&bytes[..end + 2]);
            return &bytes[end + 4..];
        }
        let before = self.partial.len();
        self.partial.extend_from_slice(bytes);
        let from = before.saturating_sub(3);
        let Some(end) = memmem::find(&self.partial[from..], b"\r\n\r\n") else {
            if self.partial.len() > LONGEST_HEAD {
                self.state = ReaderState::Failed(Failure::HeadTooLong);
            }
            return &[];
        };
        let end = from + end;
        let head = std::mem::take(&mut self.partial);
        self.state = self.read_head(&head[..end + 2]);
        &bytes[end + 4 - before..]
    }

    /// Parses a head. Each of its lines ends with CR LF.
    fn read_head(&mut self, head: &[u8]) -> ReaderState {
        let Some(status) = head.strip_prefix(b"HTTP/1.1 ").and_then(status) else {
            return ReaderState::Failed(Failure::NotHttp);
        };
        self.status = status;
        let (mut length, mut chunked) = (None, false);
        let mut lines = head;
        while let Some(end) = memchr::memchr(b'\n', lines) {
            let line = &lines[..end];
            lines = &lines[end + 1..];
            // All header names that matter begin with one of these letters.
            match line.first().map(|first| first | 0x20) {
                Some(b'c') => {
                    if let Some(value) = value(line, b"content-length:") {
                        length = std::str::from_utf8(value)
                            .ok()
                            .and_then(|value| value.parse().ok());
                    } else if let Some(value) = value(line, b"connection:") {
                        self.closes = value.eq_ignore_ascii_case(b"close");
                    }
                }
                Some(b't') => {
                    chunked |= value(line, b"transfer-encoding:")
                        .is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"));
                }
                _ => {}
            }
        }
        match length {
            _ if chunked => ReaderState::Chunked(Chunked::default()),
            Some(0) => ReaderState::Whole,
            Some(left) => ReaderState::Body { left },
            None if status != 200 => ReaderState::Failed(Failure::Status(status)),
            None => ReaderState::Failed(Failure::NoLength),
        }
    }
}

fn status(line: &[u8]) -> Option<u16> {
    std::str::from_utf8(line.get(..3)?).ok()?.parse().ok()
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// The part of a chunked body to which the next byte belongs.
enum Chunked {
    /// In the size line before a chunk. `size` is `None` before its first digit.
    Size {
        size: Option<usize>,
        extension: bool,
    },
    Data {
        left: usize,
    },
    /// In the line break after a chunk.
    DataEnd {
        left: usize,
    },
    /// After the last chunk, with this many bytes of the current line read.
    Trailer {
        length: usize,
    },
    End,
    Bad,
}

impl Default for Chunked {
    fn default() -> Self {
        Self::Size {
            size: None,
            extension: false,
        }
    }
}

impl Chunked {
    /// Reads framing up to the next piece of the body. Returns the piece and the bytes after it.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let mut at = 0;
        while at < bytes.len() && !matches!(self, Self::End | Self::Bad) {
            if let Self::Data { left } = self {
                let (body, rest) = bytes[at..].split_at((bytes.len() - at).min(*left));
                *left -= body.len();
                if *left == 0 {
                    *self = Self::DataEnd { left: 2 };
                }
                return (body, rest);
            }
            self.step(bytes[at]);
            at += 1;
        }
        (&[], &bytes[at..])
    }

    fn step(&mut self, byte: u8) {
        match self {
            Self::Size { size, .. } if byte == b'\n' => {
                *self = match *size {
                    None => Self::Bad,
                    Some(0) => Self::Trailer { length: 0 },
                    Some(left) => Self::Data { left },
                };
            }
            Self::Size { size, extension } => match (byte as char).to_digit(16) {
                _ if *extension => {}
                Some(digit) => {
                    *size = size
                        .unwrap_or(0)
                        .checked_mul(16)
                        .map(|size| size + digit as usize);
                    if size.is_none() {
                        *self = Self::Bad;
                    }
                }
                None => *extension = true,
            },
            Self::Trailer { length: 0 } if byte == b'\n' => *self = Self::End,
            Self::Trailer { length } => match byte {
                b'\n' => *length = 0,
                b'\r' => {}
                _ => *length += 1,
            },
            Self::DataEnd { left: 2 } => *self = Self::DataEnd { left: 1 },
            Self::DataEnd { .. } => *self = Self::default(),
            Self::Data { .. } | Self::End | Self::Bad => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH: 5\r\n\r\nhello";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n";

    fn awaited(expected: Option<usize>) -> ResponseReader {
        let mut answer = ResponseReader::new(Arc::new(Pattern::new(1024)));
        answer.begin(expected);
        answer
    }

    fn read(pieces: &[&[u8]]) -> Option<Result<(), Failure>> {
        let mut answer = awaited(None);
        for piece in pieces {
            answer.take(piece);
        }
        answer.result()
    }

    #[test]
    fn an_answer_is_whole_with_its_last_byte_however_it_is_cut() {
        for text in [PLAIN, CHUNKED] {
            let bytes = text.as_bytes();
            for cut in 1..bytes.len() {
                let (start, rest) = bytes.split_at(cut);
                assert_eq!(read(&[start]), None, "{cut}");
                assert_eq!(read(&[start, rest]), Some(Ok(())), "{cut}");
                assert_eq!(
                    read(&[start, rest, b"!"]),
                    Some(Err(Failure::LongerThanAnnounced))
                );
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&single), Some(Ok(())));
            assert_eq!(read(&[bytes]), Some(Ok(())));
        }
    }

    #[test]
    fn an_answer_without_a_body_is_whole_with_its_head() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(read(&[text]), Some(Ok(())));
    }

    #[test]
    fn a_response_other_than_a_200_of_known_length_fails() {
        let check = |text: &str, failure: Failure| {
            assert_eq!(read(&[text.as_bytes()]), Some(Err(failure)), "{text}");
        };
        check(
            "HTTP/1.1 503 No\r\nContent-Length: 1\r\n\r\nx",
            Failure::Status(503),
        );
        check("HTTP/1.1 204 No Content\r\n\r\n", Failure::Status(204));
        check("HTTP/1.1 200 OK\r\n\r\n", Failure::NoLength);
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            Failure::NoLength,
        );
        check("SSH-2.0-x\r\n\r\n", Failure::NotHttp);
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            Failure::BadChunk,
        );
        check(&"x".repeat(LONGEST_HEAD + 1), Failure::HeadTooLong);
    }

    #[test]
    fn an_answer_with_another_body_than_the_upstreams_fails() {
        let body: Vec<u8> = (0..=250).cycle().take(600).collect();
        let plain = |body: &[u8]| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            [head.as_bytes(), body].concat()
        };
        let chunked = |body: &[u8]| {
            let mut text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for piece in body.chunks(70) {
                text.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                text.extend([piece, b"\r\n"].concat());
            }
            [text.as_slice(), b"0\r\n\r\n"].concat()
        };
        let mut moved = body.clone();
        moved.swap(299, 300);
        let long = [body.as_slice(), b"x"].concat();
        for wrap in [&plain as &dyn Fn(&[u8]) -> Vec<u8>, &chunked] {
            for (sent, right) in [
                (&body[..], true),
                (&body[..599], false),
                (&body[1..], false),
                (&moved, false),
                (&long, false),
                (b"", false),
            ] {
                let text = wrap(sent);
                for cut in [1, 60, 300, text.len()] {
                    let mut answer = awaited(Some(600));
                    text.chunks(cut).for_each(|piece| answer.take(piece));
                    let result = if right {
                        Ok(())
                    } else {
                        Err(Failure::WrongBody)
                    };
                    assert_eq!(answer.result(), Some(result), "{} {cut}", sent.len());
                }
            }
        }
    }

    #[test]
    fn an_answer_says_whether_the_connection_ends_with_it() {
        let mut answer = awaited(None);
        for (text, closes) in [
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
                false,
            ),
        ] {
            answer.begin(None);
            answer.take(text.as_bytes());
            assert_eq!(answer.closes(), closes);
        }
    }
}
