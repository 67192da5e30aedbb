//! The head of a request: its lines scanned by `scan`, then held to the stricter reading of RFC 9112. A refused request is
//! answered and its connection closed, since what follows on it cannot be trusted to start where we think.

use super::field::Known;
use super::head::{Head, Line, Options, Store, parse_number};
use super::scan::{self, BadLine, RequestLine};
use super::{Framing, Limits, Version};

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
    #[error("repeated Authorization, or Content-Type lines that differ")]
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

/// The head of a request. Owns its bytes, so it can live across waits and be shared with plugins; one pointer wide, since
/// it moves through every phase.
#[derive(Debug)]
pub struct RequestHead {
    head: Head,
}

/// How long a host is without its port, and whether it has upper-case letters.
pub(super) type HostName = (u16, bool);

/// A domain name has at most 253 bytes, a port 6 with its colon; longer hosts are checked each time.
const LONGEST_KEPT_HOST: usize = 260;

/// What was found out about a request when its head was read. Kept beside the bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Facts {
    method: (u32, u16),
    target: (u32, u32),
    /// Where the path starts in the target (after the authority of an absolute form) and its length.
    path: (u32, u32),
    host: Option<u16>,
    host_name: HostName,
    version: Version,
    framing: Framing,
    options: Options,
    expects_continue: bool,
}

impl RequestHead {
    /// Reads a head from the front of `data`; `None` when it is not complete. The number is the head's length.
    pub fn parse(data: &[u8], limits: &Limits) -> Result<Option<(Self, usize)>, BadRequest> {
        let Some(line) = scan::request_line(data)? else {
            return incomplete(data, limits);
        };
        if line.end - line.start > limits.line {
            return Err(match line.method_end - line.start > limits.line {
                true => BadRequest::Malformed,
                false => BadRequest::TargetTooLong,
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
        let (mut content_type, mut authorized) = (None, false);
        let mut options = Options::default();
        for (index, field) in self.head.store().fields.iter().enumerate() {
            if field.known == Known::Other {
                continue;
            }
            let value = self.head.value(field);
            match field.known {
                Known::Host if host.is_some() => return Err(BadRequest::Host),
                Known::Host => host = Some(index as u16),
                // Further blanks are to be ignored, which not everybody does to the same ones.
                Known::ContentLength if length.is_some() || !self.head.is_plain(field) => {
                    return Err(BadRequest::Length);
                }
                Known::ContentLength => {
                    length = Some(parse_length(value).ok_or(BadRequest::Length)?);
                }
                Known::LengthLookalike => return Err(BadRequest::Length),
                Known::TransferEncoding if chunked || !value.eq_ignore_ascii_case(b"chunked") => {
                    return Err(self.refuse_coding());
                }
                Known::TransferEncoding => chunked = true,
                // The gateway would look at one line, and the upstream may take the other (RFC 9110 section 8.3). nginx refuses
                // repeated credentials too.
                Known::ContentType if content_type.is_some_and(|other| other != value) => {
                    return Err(BadRequest::Repeated);
                }
                Known::ContentType => content_type = Some(value),
                Known::Authorization if authorized => return Err(BadRequest::Repeated),
                Known::Authorization => authorized = true,
                Known::Connection => options.add(value),
                Known::Expect if !value.eq_ignore_ascii_case(b"100-continue") => {
                    return Err(BadRequest::Expectation);
                }
                Known::Expect => expects = true,
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
        Ok(())
    }

    /// A request whose body ends where its chunks end, but has other codings before, is understood and not served (RFC 9112
    /// section 6.1). Of any other list of codings nobody can tell where the body ends.
    #[cold]
    fn refuse_coding(&self) -> BadRequest {
        let has_length = self.known(Known::ContentLength).next().is_some();
        let values = self.known(Known::TransferEncoding);
        let codings = values.flat_map(|value| value.split(|&byte| byte == b','));
        let (mut before, mut last) = (0, false);
        for coding in codings.map(<[u8]>::trim_ascii) {
            if last || !scan::is_token(coding) {
                return BadRequest::Length;
            }
            last = coding.eq_ignore_ascii_case(b"chunked");
            before += usize::from(!last);
        }
        match last && before > 0 && !has_length && self.facts().version == Version::Http11 {
            true => BadRequest::Coding,
            false => BadRequest::Length,
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
        // None is valid that is empty.
        let name = match host == valid && !host.is_empty() {
            true => *name,
            false => self.check_new_host()?,
        };
        self.facts_mut().host_name = name;
        Ok(())
    }

    fn check_new_host(&mut self) -> Result<HostName, BadRequest> {
        let Store {
            bytes,
            fields,
            request,
            valid_host,
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

    /// Origin form, `*` for OPTIONS, or an absolute form that names the same authority as Host (two different ones are
    /// what request smuggling is made of). Finds the path within it.
    fn check_target(&mut self) -> Result<(), BadRequest> {
        let (method, target) = (self.method_bytes(), self.target_bytes());
        if matches!(method, b"CONNECT" | b"TRACE") {
            return Err(BadRequest::Method);
        }
        let skipped = match target.first() {
            Some(b'/') => 0,
            Some(b'*') if target.len() == 1 && method == b"OPTIONS" => 0,
            _ => self.absolute_prefix(target)?,
        };
        let rest = &target[skipped..];
        let length = memchr::memchr2(b'?', b'#', rest).unwrap_or(rest.len());
        // Which would come first, or hide in the query.
        let has_fragment = memchr::memchr(b'#', &rest[length..]).is_some();
        if has_fragment || hides_something(&rest[..length]) {
            return Err(BadRequest::Target);
        }
        self.facts_mut().path = (self.facts().target.0 + skipped as u32, length as u32);
        Ok(())
    }

    /// How long `http://authority` is, at the front of an absolute form.
    fn absolute_prefix(&self, target: &[u8]) -> Result<usize, BadRequest> {
        let scheme = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| {
                target
                    .get(..scheme.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            })
            .ok_or(BadRequest::Target)?;
        let rest = &target[scheme.len()..];
        let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
        let named = self.host_bytes();
        if named.is_some_and(|host| host.eq_ignore_ascii_case(&rest[..end])) {
            Ok(scheme.len() + end)
        } else {
            Err(BadRequest::Target)
        }
    }

    pub fn method(&self) -> &str {
        match self.method_bytes() {
            b"GET" => "GET",
            b"POST" => "POST",
            other => ascii(other),
        }
    }

    /// As bytes, which spares the proof that they are text: it costs as much as copying them.
    #[inline]
    pub fn method_bytes(&self) -> &[u8] {
        self.head
            .slice(self.facts().method.0, self.facts().method.1.into())
    }

    /// The request target as it came.
    pub fn target(&self) -> &str {
        ascii(self.target_bytes())
    }

    #[inline]
    fn target_bytes(&self) -> &[u8] {
        self.head
            .slice(self.facts().target.0, self.facts().target.1 as usize)
    }

    /// The path as it came, without the query. `/` for an absolute form without one.
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

    /// What follows the first `?`, if there is one.
    pub fn query(&self) -> Option<&str> {
        self.query_bytes().map(ascii)
    }

    #[inline]
    pub fn query_bytes(&self) -> Option<&[u8]> {
        let after = self.facts().path.0 + self.facts().path.1;
        let left = (self.facts().target.0 + self.facts().target.1 - after) as usize;
        (left > 0).then(|| self.head.slice(after + 1, left - 1))
    }

    pub fn version(&self) -> Version {
        self.facts().version
    }

    /// How the body ends; never [`Framing::Close`], and `None` also for a length of zero.
    pub fn framing(&self) -> Framing {
        self.facts().framing
    }

    /// The value of `Host`, port included. Always there in HTTP/1.1.
    pub fn host(&self) -> Option<&str> {
        self.host_bytes().map(ascii)
    }

    /// The host without its port, as it was sent, and whether it has upper-case letters.
    pub fn host_name(&self) -> Option<(&str, bool)> {
        let (length, upper) = self.facts().host_name;
        let host = self.host_bytes()?;
        Some((ascii(&host[..usize::from(length)]), upper))
    }

    #[inline]
    pub fn host_bytes(&self) -> Option<&[u8]> {
        let field = &self.head.store().fields[usize::from(self.facts().host?)];
        Some(self.head.value(field))
    }

    /// Header lines in the order received.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.head
            .fields()
            .map(|(_, name, value)| (ascii(name), value))
    }

    /// Header lines with what the gateway knows of each name; for rewriting a head without comparing names again.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        self.head.fields()
    }

    /// Copies whole lines that `keep` wants.
    #[inline]
    pub fn copy_lines(&self, out: &mut Vec<u8>, keep: impl FnMut(Line<'_>) -> bool) {
        self.head.copy_lines(out, keep);
    }

    /// What the gateway knows of each name, the name, and the whole line with its end, for copying.
    #[inline]
    pub fn lines(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        self.head.lines()
    }

    /// The value of the first header line of that name, compared without case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_values(name).next()
    }

    pub fn header_values<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a, 'n> {
        self.header_values_among(usize::MAX, name)
    }

    /// The same of the first so many lines.
    #[inline]
    pub fn header_values_among<'a, 'n>(
        &'a self,
        lines: usize,
        name: &'n str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a, 'n> {
        self.head.values(lines, name.as_bytes())
    }

    pub fn header_count(&self, name: &str) -> usize {
        self.header_values(name).count()
    }

    /// The values of a header that the gateway knows by itself.
    pub fn known(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.head.known(known)
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.facts().expects_continue
    }

    /// Whether the client lets the connection live on after this request.
    pub fn keep_alive(&self) -> bool {
        match self.facts().version {
            Version::Http11 => !self.facts().options.close,
            Version::Http10 => self.facts().options.keep_alive && !self.facts().options.close,
        }
    }

    /// The protocol that the client asks to switch to, when it asks properly (RFC 9110 section 7.8).
    pub fn upgrade(&self) -> Option<&[u8]> {
        (self.facts().options.upgrade && self.facts().version == Version::Http11)
            .then(|| self.known(Known::Upgrade).next())
            .flatten()
    }

    /// Whether the client asks for a WebSocket and for nothing else (RFC 6455 section 4.1): the only upgrade that is
    /// passed on.
    #[inline]
    pub fn asks_for_websocket(&self) -> bool {
        self.facts().options.upgrade && self.names_websocket()
    }

    #[cold]
    fn names_websocket(&self) -> bool {
        let mut named = self.known(Known::Upgrade);
        self.facts().version == Version::Http11
            && named
                .next()
                .is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
            && named.next().is_none()
    }
}

/// What was accepted as text: by the scanner, or as a valid host.
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

/// Whether a path has what upstreams disagree about: a backslash, which some take for a slash; an encoded NUL or line end,
/// which end a path for some when they decode it; a percent sign that encodes nothing.
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

/// A `Content-Length`. Without leading zeros, which make a number octal to some.
fn parse_length(value: &[u8]) -> Option<u64> {
    match value {
        [b'0', _, ..] => None,
        digits => parse_number(digits),
    }
}

/// An incomplete head is refused as soon as no completion could be accepted.
fn incomplete<T>(data: &[u8], limits: &Limits) -> Result<Option<T>, BadRequest> {
    if data.len() > limits.line && memchr::memchr2(b'\n', b' ', &data[..limits.line]).is_none() {
        // No method is that long.
        Err(BadRequest::Malformed)
    } else if data.len() > limits.line && memchr::memchr(b'\n', &data[..limits.line]).is_none() {
        Err(BadRequest::TargetTooLong)
    } else if data.len() > limits.head {
        Err(BadRequest::HeadTooLarge)
    } else {
        Ok(None)
    }
}

/// `host [":" port]` (RFC 3986 section 3.2.2), without user information: how long the host is, and whether it has
/// upper-case letters. `None` if it is anything else.
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

/// An address in brackets.
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

/// What a registered name or an IPv4 address is made of (RFC 3986 section 3.2.2), by kinds; 0: nothing of it.
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
