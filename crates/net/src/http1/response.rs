//! Parses the head of an upstream's response. An ambiguous response gives the client a 502 and closes the upstream
//! connection. Two habits of old servers are unambiguous and accepted: lines that all end in a bare LF, and chunks in
//! an HTTP/1.0 response.

use super::field::KnownHeader;
use super::head::{Head, Line, Options, parse_number};
use super::scan::{self, BadLine, StatusLine};
use super::{Framing, Limits, Version};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    #[error("malformed response head")]
    Malformed,
    #[error("response head too large")]
    HeadTooLarge,
    #[error("ambiguous or malformed message length")]
    Length,
}

/// The head of a response. It owns its bytes, like the head of a request.
#[derive(Debug)]
pub struct ResponseHead {
    head: Head,
    reason: (u32, u32),
    status: u16,
    version: Version,
    framing: Framing,
    options: Options,
}

impl ResponseHead {
    /// Parses a head at the start of `data`, and returns it with its length, or `None` if it is incomplete. `to_head`
    /// says whether the method of the request was HEAD.
    pub fn parse(
        data: &[u8],
        to_head: bool,
        limits: &Limits,
    ) -> Result<Option<(Self, usize)>, BadResponse> {
        let line = match scan::status_line(data) {
            Ok(Some(line)) => line,
            Ok(None) => return incomplete(data, limits),
            Err(_) if ends_lines_in_lf(data) => return Self::parse_lf(data, to_head, limits),
            Err(bad) => return Err(bad.into()),
        };
        let mut response = Self::begin(&line);
        let Some(end) = response
            .head
            .read(data, line.end, limits.head, limits.lines)?
        else {
            return incomplete(data, limits);
        };
        if end > limits.head {
            return Err(BadResponse::HeadTooLarge);
        }
        response.read_fields(to_head)?;
        Ok(Some((response, end)))
    }

    /// Parses a head whose lines all end in a bare LF, which RFC 9112 section 2.2 allows. A head with both kinds of
    /// line ends is refused as ambiguous: some recipients replace a bare LF by a blank.
    #[cold]
    fn parse_lf(
        data: &[u8],
        to_head: bool,
        limits: &Limits,
    ) -> Result<Option<(Self, usize)>, BadResponse> {
        let end = memchr::memmem::find(data, b"\n\n").map(|at| at + 2);
        if memchr::memchr(b'\r', &data[..end.unwrap_or(data.len())]).is_some() {
            return Err(BadResponse::Malformed);
        }
        let Some(end) = end else {
            return incomplete(data, limits);
        };
        if end > limits.head {
            return Err(BadResponse::HeadTooLarge);
        }
        let lines = data[..end - 1].split_inclusive(|&byte| byte == b'\n');
        let mut text = Vec::with_capacity(2 * end);
        for line in lines.chain([&b"\n"[..]]) {
            text.extend_from_slice(&line[..line.len() - 1]);
            text.extend_from_slice(b"\r\n");
        }
        // The head was checked against the limit above. The carriage returns added here do not count.
        let limits = Limits {
            head: text.len(),
            ..*limits
        };
        match Self::parse(&text, to_head, &limits)? {
            Some((head, length)) if length == text.len() => Ok(Some((head, end))),
            _ => Err(BadResponse::Malformed),
        }
    }

    fn begin(line: &StatusLine) -> Self {
        let reason_len = line.reason_end - line.reason_start;
        Self {
            head: Head::new(),
            reason: (line.reason_start as u32, reason_len as u32),
            status: line.status,
            version: line.version,
            framing: Framing::None,
            options: Options::default(),
        }
    }

    fn read_fields(&mut self, to_head: bool) -> Result<(), BadResponse> {
        let (mut length, mut chunked) = (None, false);
        let mut options = Options::default();
        for field in &self.head.store().fields {
            if field.known == KnownHeader::Other {
                continue;
            }
            let value = self.head.value(field);
            match field.known {
                KnownHeader::ContentLength if length.is_some() => return Err(BadResponse::Length),
                KnownHeader::ContentLength => {
                    length = Some(parse_number(value).ok_or(BadResponse::Length)?);
                }
                KnownHeader::TransferEncoding
                    if chunked || !value.eq_ignore_ascii_case(b"chunked") =>
                {
                    return Err(BadResponse::Length);
                }
                KnownHeader::TransferEncoding => chunked = true,
                KnownHeader::Connection => options.add(value),
                _ => {}
            }
        }
        self.options = options;
        if options.names {
            self.head.mark_hops();
        }
        let bodiless = to_head || self.is_interim() || matches!(self.status, 204 | 304);
        self.framing = match (length, chunked) {
            (Some(_), true) => return Err(BadResponse::Length),
            _ if bodiless => Framing::None,
            (None, true) => Framing::Chunked,
            (Some(0), false) => Framing::None,
            (Some(length), false) => Framing::Length(length),
            (None, false) => Framing::Close,
        };
        Ok(())
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the status line with a CRLF at its end.
    #[inline]
    pub fn status_line(&self) -> &[u8] {
        let length = (self.reason.0 + self.reason.1) as usize + b"\r\n".len();
        self.head.slice(0, length)
    }

    /// Returns the reason phrase, which may be empty.
    pub fn reason(&self) -> &[u8] {
        self.head.slice(self.reason.0, self.reason.1 as usize)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether this is a 1xx response. A final response follows, except after `101`.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// Whether this is a `101`, after which the connection is no longer HTTP.
    #[inline]
    pub fn switches(&self) -> bool {
        self.status == 101
    }

    /// Whether `Upgrade` names WebSocket and nothing else.
    pub fn offers_websocket(&self) -> bool {
        let mut named = self.known(KnownHeader::Upgrade);
        named
            .next()
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
            && named.next().is_none()
    }

    /// Whether the upstream keeps the connection open after this response.
    pub fn keep_alive(&self) -> bool {
        let said = match self.version {
            Version::Http11 => !self.options.close,
            // HTTP/1.0 has no chunks, so the framing may be faulty and the connection must be closed (RFC 9112 section
            // 6.1).
            Version::Http10 => {
                self.options.keep_alive && !self.options.close && self.framing != Framing::Chunked
            }
        };
        said && self.framing != Framing::Close
    }

    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.head.fields().map(|(_, name, value)| {
            let name = std::str::from_utf8(name).expect("scanned as a token");
            (name, value)
        })
    }

    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = (KnownHeader, &[u8], &[u8])> {
        self.head.fields()
    }

    /// Copies the whole lines that `keep` selects.
    #[inline]
    pub fn copy_lines(&self, out: &mut Vec<u8>, keep: impl FnMut(Line<'_>) -> bool) {
        self.head.copy_lines(out, keep);
    }

    /// Returns the class, the name and the whole line of each header, for copying.
    #[inline]
    pub fn lines(&self) -> impl Iterator<Item = (KnownHeader, &[u8], &[u8])> {
        self.head.lines()
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_values(name).next()
    }

    pub fn header_values<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.head.values(usize::MAX, name.as_bytes())
    }

    pub fn known(&self, known: KnownHeader) -> impl Iterator<Item = &[u8]> {
        self.head.known(known)
    }
}

impl From<BadLine> for BadResponse {
    fn from(bad: BadLine) -> Self {
        match bad {
            BadLine::Malformed | BadLine::Version => Self::Malformed,
            BadLine::TooLong => Self::HeadTooLarge,
        }
    }
}

/// Whether the first line is complete and ends in a bare LF.
fn ends_lines_in_lf(data: &[u8]) -> bool {
    memchr::memchr(b'\n', data).is_some_and(|at| !data[..at].ends_with(b"\r"))
}

fn incomplete<T>(data: &[u8], limits: &Limits) -> Result<Option<T>, BadResponse> {
    if data.len() > limits.head {
        Err(BadResponse::HeadTooLarge)
    } else {
        Ok(None)
    }
}
