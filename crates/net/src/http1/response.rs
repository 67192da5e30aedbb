//! The head of an upstream's answer. Held to the same strictness as requests: an answer that could be read in two ways is
//! a 502 for the client and the end of that upstream connection.

use super::field::{Known, list_contains};
use super::head::{Head, Options, collect_fields, parse_length};
use super::{Framing, Limits, MAX_HEADERS, Version};
use std::mem::MaybeUninit;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    #[error("malformed response head")]
    Malformed,
    #[error("response head too large")]
    HeadTooLarge,
    #[error("ambiguous or malformed message length")]
    Length,
}

/// The head of a response; owns its bytes as a request's head does.
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
    /// Reads a head from the front of `data`, the answer to a HEAD request or another; `None` when it is not complete.
    pub fn parse(
        data: &[u8],
        to_head: bool,
        limits: &Limits,
    ) -> Result<Option<(Self, usize)>, BadResponse> {
        let mut headers = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; MAX_HEADERS];
        let mut scanned = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let end = match config.parse_response_with_uninit_headers(&mut scanned, data, &mut headers)
        {
            Ok(httparse::Status::Complete(end)) => end,
            Ok(httparse::Status::Partial) if data.len() > limits.head => {
                return Err(BadResponse::HeadTooLarge);
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(BadResponse::HeadTooLarge),
            Err(_) => return Err(BadResponse::Malformed),
        };
        if end > limits.head {
            return Err(BadResponse::HeadTooLarge);
        }
        let (mut response, first) = Self::read_line(data, &scanned)?;
        let no_line_limit = Limits {
            line: limits.head,
            ..*limits
        };
        let head = &mut response.head;
        collect_fields(head, data, scanned.headers, first, end, &no_line_limit)
            .map_err(|_| BadResponse::Malformed)?;
        response.read_fields(to_head)?;
        Ok(Some((response, end)))
    }

    /// The status line, which starts the data and is `version SP code [SP reason] CRLF`; and where it ends.
    fn read_line(
        data: &[u8],
        scanned: &httparse::Response<'_, '_>,
    ) -> Result<(Self, usize), BadResponse> {
        let status = scanned.code.ok_or(BadResponse::Malformed)?;
        let line_end = memchr::memchr(b'\n', data).ok_or(BadResponse::Malformed)?;
        let after_code = b"HTTP/1.1 200".len();
        let exact = data.starts_with(b"HTTP/1.")
            && line_end > after_code
            && data[line_end - 1] == b'\r'
            && matches!(data[after_code], b' ' | b'\r')
            && (100..=999).contains(&status);
        if !exact {
            return Err(BadResponse::Malformed);
        }
        let reason_start = (after_code + 1).min(line_end - 1);
        let response = Self {
            head: Head::new(),
            reason: (reason_start as u32, (line_end - 1 - reason_start) as u32),
            status,
            version: if scanned.version == Some(0) {
                Version::Http10
            } else {
                Version::Http11
            },
            framing: Framing::None,
            options: Options::default(),
        };
        Ok((response, line_end + 1))
    }

    fn read_fields(&mut self, to_head: bool) -> Result<(), BadResponse> {
        let (mut length, mut chunked) = (None, false);
        let mut options = Options::default();
        for (known, _, value) in self.head.fields() {
            match known {
                Known::ContentLength if length.is_some() => return Err(BadResponse::Length),
                Known::ContentLength => {
                    length = Some(parse_length(value).ok_or(BadResponse::Length)?);
                }
                Known::TransferEncoding if chunked || !value.eq_ignore_ascii_case(b"chunked") => {
                    return Err(BadResponse::Length);
                }
                Known::TransferEncoding => chunked = true,
                Known::Connection => options.add(value),
                _ => {}
            }
        }
        self.options = options;
        let bodiless = to_head || self.is_interim() || matches!(self.status, 204 | 304);
        self.framing = match (length, chunked) {
            (Some(_), true) => return Err(BadResponse::Length),
            (None, true) if self.version == Version::Http10 => return Err(BadResponse::Length),
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

    /// The reason phrase, possibly empty.
    pub fn reason(&self) -> &[u8] {
        self.head.slice(self.reason.0, self.reason.1 as usize)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// A 1xx answer, after which the real one follows.
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// Whether the upstream keeps the connection open after this answer.
    pub fn keep_alive(&self) -> bool {
        let said = match self.version {
            Version::Http11 => !self.options.close,
            Version::Http10 => self.options.keep_alive && !self.options.close,
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
    pub fn fields(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        self.head.fields()
    }

    /// Copies whole lines that `keep` wants, told what the gateway knows of each name, and the name.
    #[inline]
    pub fn copy_lines(&self, out: &mut Vec<u8>, keep: impl FnMut(Known, &[u8]) -> bool) {
        self.head.copy_lines(out, keep);
    }

    /// What the gateway knows of each name, the name, and the whole line with its end, for copying.
    #[inline]
    pub fn lines(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        self.head.lines()
    }

    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.values(name.as_bytes()).next()
    }

    pub fn known(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.head.known(known)
    }

    /// Whether `Connection` names other headers, which are then for this hop only.
    #[inline]
    pub fn names_hop_headers(&self) -> bool {
        self.options.names
    }

    /// Whether `Connection` names this header, which is then for this hop only.
    #[inline]
    pub fn is_hop_header(&self, name: &[u8]) -> bool {
        self.options.names
            && self
                .known(Known::Connection)
                .any(|value| list_contains(value, name))
    }
}
