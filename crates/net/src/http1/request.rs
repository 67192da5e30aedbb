//! Parses the head of a request: `scan` finds its lines, and this module applies the stricter rules of RFC 9112. After
//! the response to a refused request the connection is closed, because the start of the next request is uncertain.

use super::field::KnownHeader;
use super::head::{Head, HeadBuffer, Line, Options, parse_number};
use super::scan::{self, BadLine, RequestLine};
use super::{Framing, Limits, Version};
use std::ops::Range;

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("malformed request head")]
    Malformed,
    #[error("request line too long")]
    TargetTooLong,
    #[error("request head too large")]
    HeadTooLarge,
    #[error("HTTP version not supported")]
    Version,
    #[error("ambiguous or malformed message length")]
    Length,
    #[error("transfer coding not supported")]
    Coding,
    #[error("repeated Authorization")]
    Repeated,
    #[error("missing, repeated or invalid Host")]
    Host,
    #[error("invalid request target")]
    Target,
    #[error("method not allowed")]
    Method,
    #[error("unknown expectation")]
    Expectation,
}

/// The head of a request. It owns its bytes, so that it can live across waits and be shared with plugins. It is one
/// pointer wide, because it moves through every phase.
#[derive(Debug)]
pub struct RequestHead {
    head: Head,
}

/// Length of a host without its port, and whether it has upper-case letters.
pub(super) type HostName = (u16, bool);

/// Maximum length of a host whose check is remembered. A domain name has at most 253 bytes, and a port with its colon
/// 6.
const LONGEST_KEPT_HOST: usize = 260;

/// Facts about a request, found while its head was parsed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Facts {
    method: (u32, u16),
    target: (u32, u32),
    /// Start of the path in the target (after the authority of an absolute form) and its length.
    path: (u32, u32),
    /// Start of the host of an absolute form, if its authority is not that of `Host`.
    authority: Option<(u32, HostName)>,
    host: Option<u16>,
    host_name: HostName,
    version: Version,
    framing: Framing,
    options: Options,
    expects_continue: bool,
}

impl RequestHead {
    /// Parses a head at the start of `data` and returns it with its length, or `None` if it is incomplete.
    pub fn parse(data: &[u8], limits: &Limits) -> Result<Option<(Self, usize)>, BadRequest> {
        let Some(line) = scan::request_line(data)? else {
            return incomplete(data, limits);
        };
        if line.end - line.start > limits.line {
            return Err(if line.method_end - line.start > limits.line {
                BadRequest::Malformed
            } else {
                BadRequest::TargetTooLong
            });
        }
        let mut request = Self::begin(&line);
        let Some(end) = request
            .head
            .read(data, line.end, limits.line, limits.lines)?
        else {
            return incomplete(data, limits);
        };
        if end > limits.head {
            return Err(BadRequest::HeadTooLarge);
        }
        request.read_fields()?;
        request.check_host()?;
        request.check_target()?;
        Ok(Some((request, end)))
    }

    fn begin(line: &RequestLine) -> Self {
        let target_start = line.method_end + 1;
        let target = (target_start as u32, (line.target_end - target_start) as u32);
        let mut head = Head::new();
        head.store_mut().request = Facts {
            method: (line.start as u32, (line.method_end - line.start) as u16),
            target,
            path: target,
            version: line.version,
            ..Facts::default()
        };
        Self { head }
    }

    #[inline]
    fn facts(&self) -> &Facts {
        &self.head.store().request
    }

    #[inline]
    fn facts_mut(&mut self) -> &mut Facts {
        &mut self.head.store_mut().request
    }

    fn read_fields(&mut self) -> Result<(), BadRequest> {
        let (mut length, mut chunked) = (None, false);
        let (mut host, mut expects) = (None, false);
        let (mut content_type, mut types_differ) = (None, false);
        let mut authorized = false;
        let mut options = Options::default();
        for (index, field) in self.head.store().fields.iter().enumerate() {
            if field.known == KnownHeader::Other {
                continue;
            }
            let value = self.head.value(field);
            match field.known {
                KnownHeader::Host if host.is_some() => return Err(BadRequest::Host),
                KnownHeader::Host => host = Some(index as u16),
                // Recipients must ignore blanks around a value, but they do not agree which bytes are blanks.
                KnownHeader::ContentLength if length.is_some() || !self.head.is_plain(field) => {
                    return Err(BadRequest::Length);
                }
                KnownHeader::ContentLength => {
                    length = Some(parse_length(value).ok_or(BadRequest::Length)?);
                }
                KnownHeader::LengthLookalike => return Err(BadRequest::Length),
                KnownHeader::TransferEncoding
                    if chunked || !value.eq_ignore_ascii_case(b"chunked") =>
                {
                    return Err(self.refuse_coding());
                }
                KnownHeader::TransferEncoding => chunked = true,
                KnownHeader::ContentType => {
                    types_differ |= *content_type.get_or_insert(value) != value;
                }
                // nginx refuses repeated credentials too.
                KnownHeader::Authorization if authorized => return Err(BadRequest::Repeated),
                KnownHeader::Authorization => authorized = true,
                KnownHeader::Connection => options.add(value),
                KnownHeader::XKongRequestDebug => options.asks_for_timings = true,
                KnownHeader::Expect if !value.eq_ignore_ascii_case(b"100-continue") => {
                    return Err(BadRequest::Expectation);
                }
                KnownHeader::Expect => expects = true,
                _ => {}
            }
        }
        let version = self.facts().version;
        let framing = match (length, chunked) {
            (Some(_), true) => return Err(BadRequest::Length),
            (None, true) if version == Version::Http10 => return Err(BadRequest::Length),
            (None, true) => Framing::Chunked,
            (None | Some(0), false) => Framing::None,
            (Some(length), false) => Framing::Length(length),
        };
        let facts = self.facts_mut();
        facts.framing = framing;
        facts.host = host;
        facts.options = options;
        facts.expects_continue = expects && version == Version::Http11;
        if options.names {
            self.head.mark_hops();
        }
        if types_differ {
            self.head.end_later_types();
        }
        Ok(())
    }

    /// Returns why the transfer coding is refused. If further codings precede a final `chunked`, the body's end is
    /// clear, but the codings are not supported (RFC 9112 section 6.1). With any other list the body's end is unknown.
    #[cold]
    fn refuse_coding(&self) -> BadRequest {
        let has_length = self.known(KnownHeader::ContentLength).next().is_some();
        let values = self.known(KnownHeader::TransferEncoding);
        let codings = values.flat_map(|value| value.split(|&byte| byte == b','));
        let (mut before, mut last) = (0, false);
        for coding in codings.map(<[u8]>::trim_ascii) {
            if last || !scan::is_token(coding) {
                return BadRequest::Length;
            }
            last = coding.eq_ignore_ascii_case(b"chunked");
            before += usize::from(!last);
        }
        if last && before > 0 && !has_length && self.facts().version == Version::Http11 {
            BadRequest::Coding
        } else {
            BadRequest::Length
        }
    }

    fn check_host(&mut self) -> Result<(), BadRequest> {
        let Some(host) = self.host_bytes() else {
            return match self.facts().version {
                Version::Http11 => Err(BadRequest::Host),
                Version::Http10 => Ok(()),
            };
        };
        let (valid, name) = &self.head.store().valid_host;
        // An empty host is invalid, and also the initial value of the remembered host.
        let name = if host == valid && !host.is_empty() {
            *name
        } else {
            self.check_new_host()?
        };
        self.facts_mut().host_name = name;
        Ok(())
    }

    fn check_new_host(&mut self) -> Result<HostName, BadRequest> {
        let HeadBuffer {
            bytes,
            fields,
            request,
            valid_host,
            ..
        } = self.head.store_mut();
        let host = request
            .host
            .map(|at| fields[usize::from(at)].value_of(bytes));
        let host = host.ok_or(BadRequest::Host)?;
        let name = check_authority(host).ok_or(BadRequest::Host)?;
        if host.len() <= LONGEST_KEPT_HOST {
            host.clone_into(&mut valid_host.0);
            valid_host.1 = name;
        }
        Ok(name)
    }

    /// Checks the target and finds the path in it. It must be in origin form or an absolute form. nginx refuses `*`.
    /// Only the query may contain bytes that are not ASCII (RFC 3986 section 2 allows them nowhere): clients send them,
    /// and servers pass them on. About such bytes in a path, implementations disagree.
    fn check_target(&mut self) -> Result<(), BadRequest> {
        let (method, target) = (self.method_bytes(), self.target_bytes());
        if matches!(method, b"CONNECT" | b"TRACE") {
            return Err(BadRequest::Method);
        }
        let skipped = match target.first() {
            Some(b'/') => 0,
            _ => absolute_prefix(target)?,
        };
        let authority = &target[..skipped];
        let authority = match memchr::memrchr(b'/', authority) {
            None => None,
            Some(slash) if self.host_bytes() == Some(&authority[slash + 1..]) => None,
            Some(slash) => {
                let name = check_authority(&authority[slash + 1..]).ok_or(BadRequest::Target)?;
                Some((slash as u32 + 1, name))
            }
        };
        let rest = &target[skipped..];
        let length = memchr::memchr2(b'?', b'#', rest).unwrap_or(rest.len());
        // A target must not have a fragment (RFC 9112 section 3.2).
        let has_fragment = memchr::memchr(b'#', &rest[length..]).is_some();
        let path = &rest[..length];
        if has_fragment || !path.is_ascii() || hides_something(path) {
            return Err(BadRequest::Target);
        }
        let start = self.facts().target.0;
        let facts = self.facts_mut();
        facts.path = (start + skipped as u32, length as u32);
        facts.authority = authority.map(|(at, name)| (start + at, name));
        Ok(())
    }

    pub fn method(&self) -> &str {
        match self.method_bytes() {
            b"GET" => "GET",
            b"POST" => "POST",
            other => ascii(other),
        }
    }

    /// Returns the method as bytes. This saves the UTF-8 check, which costs as much as copying the method.
    #[inline]
    pub fn method_bytes(&self) -> &[u8] {
        self.head
            .slice(self.facts().method.0, self.facts().method.1.into())
    }

    /// Returns the request target as received. Only its query may contain bytes that are not ASCII.
    #[inline]
    pub fn target_bytes(&self) -> &[u8] {
        self.head
            .slice(self.facts().target.0, self.facts().target.1 as usize)
    }

    /// Returns the path as received, without the query; `/` for an absolute form without a path.
    pub fn path(&self) -> &str {
        ascii(self.path_bytes())
    }

    #[inline]
    pub fn path_bytes(&self) -> &[u8] {
        match self
            .head
            .slice(self.facts().path.0, self.facts().path.1 as usize)
        {
            b"" => b"/",
            path => path,
        }
    }

    /// Returns what follows the first `?`, if there is one.
    #[inline]
    pub fn query_bytes(&self) -> Option<&[u8]> {
        let after = self.facts().path.0 + self.facts().path.1;
        let left = (self.facts().target.0 + self.facts().target.1 - after) as usize;
        (left > 0).then(|| self.head.slice(after + 1, left - 1))
    }

    pub fn version(&self) -> Version {
        self.facts().version
    }

    /// Returns how the end of the body is found. This is never [`Framing::Close`]. For a `Content-Length` of zero it is
    /// [`Framing::None`].
    pub fn framing(&self) -> Framing {
        self.facts().framing
    }

    /// Returns the value of `Host` with its port. It is always present in HTTP/1.1. Routes match this host, as in Kong,
    /// also if the target is an absolute form with another one.
    pub fn host(&self) -> Option<&str> {
        self.host_bytes().map(ascii)
    }

    /// Returns the host as received, without its port, and whether it has upper-case letters. The host of an absolute
    /// form precedes that in `Host`, as in nginx's `$host`.
    pub fn host_name(&self) -> Option<(&str, bool)> {
        if let Some((start, (length, upper))) = self.facts().authority {
            return Some((ascii(self.head.slice(start, length.into())), upper));
        }
        let (length, upper) = self.facts().host_name;
        let host = self.host_bytes()?;
        Some((ascii(&host[..usize::from(length)]), upper))
    }

    #[inline]
    pub fn host_bytes(&self) -> Option<&[u8]> {
        let field = &self.head.store().fields[usize::from(self.facts().host?)];
        Some(self.head.value(field))
    }

    /// Returns the header lines in the order received.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.head
            .fields()
            .map(|(_, name, value)| (ascii(name), value))
    }

    /// Returns the class, name and value of each header, for rewriting a head without comparing names again.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = (KnownHeader, &[u8], &[u8])> {
        self.head.fields()
    }

    /// Whether there is a header that is not classified, whose name has one of these lengths (modulo 64) and is meant.
    #[inline]
    pub fn has_other(&self, lengths: u64, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        self.head.has_other(lengths, is_meant)
    }

    /// Returns all bytes of the head, and the positions of each header's name and value in them.
    #[inline]
    pub fn located(
        &self,
    ) -> (
        &[u8],
        impl Iterator<Item = (Range<usize>, Range<usize>)> + Clone,
    ) {
        self.head.located()
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

    /// Returns the value of the first header with this name, compared without case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_values(name).next()
    }

    pub fn header_values<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a, 'n> {
        self.header_values_among(usize::MAX, name.as_bytes())
    }

    /// Returns the values of a header among the first `lines` header lines.
    #[inline]
    pub fn header_values_among<'a, 'n>(
        &'a self,
        lines: usize,
        name: &'n [u8],
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a, 'n> {
        self.head.values(lines, name)
    }

    pub fn header_count(&self, name: &str) -> usize {
        self.header_values(name).count()
    }

    /// Returns the values of a header that the gateway handles itself.
    pub fn known(&self, known: KnownHeader) -> impl Iterator<Item = &[u8]> {
        self.head.known(known)
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.facts().expects_continue
    }

    /// Whether a header `X-Kong-Request-Debug…` is present.
    #[inline]
    pub fn asks_for_timings(&self) -> bool {
        self.facts().options.asks_for_timings
    }

    /// Whether the client allows further requests on the connection.
    pub fn keep_alive(&self) -> bool {
        match self.facts().version {
            Version::Http11 => !self.facts().options.close,
            Version::Http10 => self.facts().options.keep_alive && !self.facts().options.close,
        }
    }

    /// Returns the requested upgrade protocol if the request is valid for an upgrade (RFC 9110 section 7.8).
    pub fn upgrade(&self) -> Option<&[u8]> {
        (self.facts().options.upgrade && self.facts().version == Version::Http11)
            .then(|| self.known(KnownHeader::Upgrade).next())
            .flatten()
    }

    /// Whether the request asks for WebSocket and no other protocol (RFC 6455 section 4.1). The gateway forwards no
    /// other upgrade.
    #[inline]
    pub fn asks_for_websocket(&self) -> bool {
        self.facts().options.upgrade && self.names_websocket()
    }

    #[cold]
    fn names_websocket(&self) -> bool {
        let mut named = self.known(KnownHeader::Upgrade);
        self.facts().version == Version::Http11
            && named
                .next()
                .is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
            && named.next().is_none()
    }
}

/// Returns the length of the scheme and the authority at the start of an absolute form, such as `http://a.test:80`.
fn absolute_prefix(target: &[u8]) -> Result<usize, BadRequest> {
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .ok_or(BadRequest::Target)?;
    let rest = &target[scheme.len()..];
    let end = memchr::memchr3(b'/', b'?', b'#', rest).unwrap_or(rest.len());
    Ok(scheme.len() + end)
}

/// Converts bytes that were checked when the head was parsed.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("checked when the head was read")
}

impl From<BadLine> for BadRequest {
    fn from(bad: BadLine) -> Self {
        match bad {
            BadLine::Malformed => Self::Malformed,
            BadLine::TooLong => Self::HeadTooLarge,
            BadLine::Version => Self::Version,
        }
    }
}

/// Whether upstreams could understand the path differently. Some treat a backslash as a slash. Some end a path at a
/// decoded NUL or line end. They also disagree about a percent sign without two hex digits after it.
#[inline]
fn hides_something(path: &[u8]) -> bool {
    match memchr::memchr2(b'%', b'\\', path) {
        None => false,
        Some(at) => hides_in(&path[at..]),
    }
}

#[cold]
fn hides_in(path: &[u8]) -> bool {
    let is_bad = |at: usize| match &path[at..] {
        [b'\\', ..] | [_, b'0', b'0' | b'a' | b'A' | b'd' | b'D', ..] => true,
        [_, high, low, ..] => !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit(),
        _ => true,
    };
    memchr::memchr2_iter(b'%', b'\\', path).any(is_bad)
}

/// Parses a `Content-Length`. Leading zeros are refused, because some programs would read such a value as an octal
/// number.
fn parse_length(value: &[u8]) -> Option<u64> {
    match value {
        [b'0', _, ..] => None,
        digits => parse_number(digits),
    }
}

/// Refuses an incomplete head as soon as no continuation could make it acceptable.
fn incomplete<T>(data: &[u8], limits: &Limits) -> Result<Option<T>, BadRequest> {
    if data.len() > limits.line && memchr::memchr2(b'\n', b' ', &data[..limits.line]).is_none() {
        // A valid method is never that long.
        Err(BadRequest::Malformed)
    } else if data.len() > limits.line && memchr::memchr(b'\n', &data[..limits.line]).is_none() {
        Err(BadRequest::TargetTooLong)
    } else if data.len() > limits.head {
        Err(BadRequest::HeadTooLarge)
    } else {
        Ok(None)
    }
}

/// Checks `host [":" port]` (RFC 3986 section 3.2.2), without user information. Returns the length of the host and
/// whether it has upper-case letters, or `None` if it is invalid.
fn check_authority(authority: &[u8]) -> Option<(u16, bool)> {
    if authority.first() == Some(&b'[') {
        return check_literal(authority);
    }
    let (mut end, mut seen, mut last, mut twice) = (0, 0, 0, 0);
    for &byte in authority {
        let kind = HOST_BYTES[usize::from(byte)];
        if kind == 0 {
            break;
        }
        end += 1;
        seen |= kind;
        twice |= last & kind;
        last = kind;
    }
    let empty_label = twice & DOT != 0;
    let known = end > 0 && !empty_label && is_port(&authority[end..]);
    known.then_some((u16::try_from(end).ok()?, seen & UPPER != 0))
}

/// Checks an authority whose host is an IP address in brackets.
fn check_literal(authority: &[u8]) -> Option<(u16, bool)> {
    let end = memchr::memchr(b']', authority)? + 1;
    let address = &authority[1..end - 1];
    let known = address.len() >= 2
        && address
            .iter()
            .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
        && is_port(&authority[end..]);
    let upper = address.iter().any(u8::is_ascii_uppercase);
    known.then_some((u16::try_from(end).ok()?, upper))
}

fn is_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] if digits.len() <= 5 => {
            parse_number(digits).is_some_and(|port| port <= 65535)
        }
        _ => false,
    }
}

const NAME: u8 = 1;
const UPPER: u8 = 2;
const DOT: u8 = 4;

/// Class of each byte in a registered name or an IPv4 address (RFC 3986 section 3.2.2); 0 for bytes that are invalid
/// there.
static HOST_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'0'..=b'9' | b'a'..=b'z' => NAME,
            b'A'..=b'Z' => UPPER,
            _ => 0,
        };
        byte += 1;
    }
    table[b'.' as usize] = DOT;
    let others = b"-_~!$&'()*+,;=%";
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = NAME;
        at += 1;
    }
    table
};
