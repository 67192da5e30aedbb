//! Converts heads between HTTP/2 and HTTP/1.1 text. The `h2` crate checks that names are lower-case tokens, that values
//! have no control characters, and that no connection headers occur. This module checks the rest, so that
//! no client can smuggle an additional line or another body length into the text.

use bytes::Bytes;
use h2::ext::Protocol;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, request};
use std::io::Write;

/// The way in which the HTTP/1.1 text marks the end of a message's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// The body has this many bytes.
    Known(u64),
    Chunked,
    /// The body ends when the connection closes. Some responses use this, and tunnels use it in both directions.
    Open,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Whether a request satisfies the parts of RFC 9113 section 8 that `h2` does not check: values without surrounding
/// white space (8.2.1), exactly one authority (8.3.1), and a valid path (8.3.1).
pub(super) fn is_well_formed(parts: &request::Parts) -> bool {
    let connects = parts.method == Method::CONNECT;
    let path = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let has_path = path.starts_with('/');
    let tunnels = parts.extensions.get::<Protocol>().is_some();
    if !has_path && (!connects || tunnels) {
        return false;
    }
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    let authority = parts.uri.authority().map(Authority::as_str);
    let agrees = match (host, authority) {
        (Some(host), Some(authority)) => host.as_bytes().eq_ignore_ascii_case(authority.as_bytes()),
        (None, None) => !connects,
        _ => true,
    };
    agrees && second.is_none() && parts.headers.values().all(is_trimmed)
}

fn is_trimmed(value: &HeaderValue) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let value = value.as_bytes();
    !blank(value.first()) && !blank(value.last())
}

/// Whether the request is a WebSocket handshake, an extended CONNECT (RFC 8441).
pub(super) fn is_websocket(parts: &request::Parts) -> bool {
    parts
        .extensions
        .get::<Protocol>()
        .is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket"))
}

/// Appends the head of a request; returns how the text marks the end of its body. With `bodiless`, the HEADERS frame
/// ended the stream, so the request has no body.
pub(super) fn write_request(parts: &request::Parts, bodiless: bool, out: &mut Vec<u8>) -> Length {
    let websocket = is_websocket(parts);
    let method = if websocket {
        &Method::GET
    } else {
        &parts.method
    };
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    let authority = parts.uri.authority().map(Authority::as_str);
    // The target of a CONNECT request is its authority; every other request has a path.
    let target = parts.uri.path_and_query().map(PathAndQuery::as_str);
    let target = target
        .filter(|_| websocket || *method != Method::CONNECT)
        .or(authority);
    out.extend_from_slice(target.unwrap_or("/").as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authority) = authority {
        write_line(b"host", authority.as_bytes(), out);
    }
    let mut length = None;
    let mut cookies = false;
    for (name, value) in &parts.headers {
        if *name == header::HOST && authority.is_some() {
            continue;
        }
        if *name == header::COOKIE {
            cookies = true;
            continue;
        }
        if *name == header::CONTENT_LENGTH {
            length = parse_number(value.as_bytes());
        }
        write_line(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    if cookies {
        write_cookies(&parts.headers, out);
    }
    let length = if websocket {
        write_upgrade(&parts.headers, out);
        Length::Open
    } else if bodiless || parts.headers.contains_key(header::CONTENT_LENGTH) {
        Length::Known(length.unwrap_or(0))
    } else {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        Length::Chunked
    };
    out.extend_from_slice(b"\r\n");
    length
}

/// Joins the `Cookie` fields. HTTP/2 clients split them for better compression, but HTTP/1.1 requires one line (RFC
/// 9113 section 8.2.3).
fn write_cookies(headers: &HeaderMap, out: &mut Vec<u8>) {
    out.extend_from_slice(b"cookie: ");
    for (index, crumb) in headers.get_all(header::COOKIE).iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(crumb.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// Adds the fields of RFC 6455's handshake that RFC 8441 omits. The key can be a constant, because no client checks the
/// response to it: [`read_answer`] drops `Sec-WebSocket-Accept`.
fn write_upgrade(headers: &HeaderMap, out: &mut Vec<u8>) {
    out.extend_from_slice(b"connection: Upgrade\r\nupgrade: websocket\r\n");
    if !headers.contains_key(header::SEC_WEBSOCKET_KEY) {
        out.extend_from_slice(b"sec-websocket-key: c2lsdmVyYmFjayBwcm94eQ==\r\n");
    }
    if !headers.contains_key(header::SEC_WEBSOCKET_VERSION) {
        out.extend_from_slice(b"sec-websocket-version: 13\r\n");
    }
}

/// Appends the head of an upstream's response; returns how the text marks the end of its body. With `ended`, nothing
/// follows the head on the stream. With `to_head`, the request was HEAD, so `Content-Length` describes a body that is
/// not sent.
pub(super) fn write_response(
    response: &Response<()>,
    ended: bool,
    to_head: bool,
    out: &mut Vec<u8>,
) -> Length {
    let status = response.status();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    let bodiless = to_head || matches!(status.as_u16(), 100..=199 | 204 | 304);
    // gRPC sends its status in trailers. In HTTP/1.1 only a chunked body can have trailers.
    let with_trailers = !ended && is_grpc(response.headers());
    let mut length = None;
    for (name, value) in response.headers() {
        if *name == header::CONTENT_LENGTH {
            if with_trailers {
                continue;
            }
            length = parse_number(value.as_bytes());
        }
        write_line(name.as_str().as_bytes(), value.as_bytes(), out);
    }
    let known = length.is_some() || bodiless;
    if !known && ended {
        out.extend_from_slice(b"content-length: 0\r\n");
    } else if !known {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    match length {
        _ if bodiless || ended => Length::Known(0),
        Some(length) => Length::Known(length),
        None => Length::Chunked,
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn write_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a stream's trailers as lines of a chunked body's trailer section. Omits fields about framing or routing (RFC
/// 9110 section 6.5.1).
pub(super) fn write_trailers(trailers: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in trailers {
        let fields = [
            header::CONTENT_LENGTH,
            header::HOST,
            header::TE,
            header::TRAILER,
        ];
        if !is_of_connection(name) && !fields.contains(name) {
            write_line(name.as_str().as_bytes(), value.as_bytes(), out);
        }
    }
}

/// Appends the line that starts a chunk, at most 18 bytes.
pub(super) fn write_chunk_size(size: usize, out: &mut Vec<u8>) {
    write!(out, "{size:x}\r\n").expect("a write to a vector never fails");
}

/// The parsed head of a request or a response that the engine wrote.
#[derive(Debug)]
struct Head {
    /// The whole text; header values are slices of it.
    text: Bytes,
    /// Length of the first line.
    line: usize,
    headers: HeaderMap,
    host: Option<HeaderValue>,
    length: Option<u64>,
    chunked: bool,
    upgrades: bool,
}

impl Head {
    /// Parses a head that ends in an empty line.
    fn read(text: &[u8]) -> Result<Self, Malformed> {
        let text = Bytes::copy_from_slice(text);
        let line = memchr::memchr(b'\r', &text).ok_or(Malformed)?;
        let mut head = Self {
            line,
            headers: HeaderMap::with_capacity(24),
            host: None,
            length: None,
            chunked: false,
            upgrades: false,
            text: Bytes::new(),
        };
        let mut at = line + 2;
        while let Some(end) = memchr::memchr(b'\r', text.get(at..).ok_or(Malformed)?) {
            if end == 0 {
                head.text = text;
                return Ok(head);
            }
            head.add(&text, at, at + end)?;
            at += end + 2;
        }
        Err(Malformed)
    }

    fn add(&mut self, text: &Bytes, start: usize, end: usize) -> Result<(), Malformed> {
        let (name, value) = split_line(&text[start..end]).ok_or(Malformed)?;
        let value = value.trim_ascii();
        let name = header_name(name).ok_or(Malformed)?;
        if name == header::TRANSFER_ENCODING {
            self.chunked = true;
        }
        if name == header::UPGRADE {
            self.upgrades = true;
        }
        if is_of_connection(&name) || (name == header::TE && value != b"trailers") {
            return Ok(());
        }
        let shared = text.slice_ref(value);
        let Ok(mut value) = HeaderValue::from_maybe_shared(shared) else {
            // Drop the field. HTTP/1.1 upstreams may send values that the `http` crate rejects.
            return Ok(());
        };
        if name == header::HOST {
            self.host = Some(value);
            return Ok(());
        }
        if name == header::CONTENT_LENGTH {
            self.length = parse_number(value.as_bytes());
        }
        // Mark it as never indexed: every request id is different, so it would only evict useful entries from the HPACK
        // table.
        if name.as_str() == "x-kong-request-id" {
            value.set_sensitive(true);
        }
        self.headers.append(name, value);
        Ok(())
    }

    fn first_line(&self) -> &[u8] {
        &self.text[..self.line]
    }
}

/// The parsed head of the engine's response to a client.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    /// `Length::Known(0)` if the response has no body, for example a response to HEAD.
    pub(super) length: Length,
    /// Whether the stream becomes a tunnel.
    pub(super) switches: bool,
}

/// Parses the head of a response, which ends in an empty line.
pub(super) fn read_answer(text: &[u8], to_head: bool) -> Result<ResponseHead, Malformed> {
    let mut head = Head::read(text)?;
    let code = head.first_line().get(9..12).ok_or(Malformed)?;
    let mut status = StatusCode::from_bytes(code).map_err(|_| Malformed)?;
    let bodiless = to_head || matches!(status.as_u16(), 100..=199 | 204 | 304);
    let switches = status == StatusCode::SWITCHING_PROTOCOLS;
    let length = if switches {
        // With HTTP/2, the response to a WebSocket request has status 200 (RFC 8441 section 5).
        status = StatusCode::OK;
        head.headers.remove("sec-websocket-accept");
        Length::Open
    } else if bodiless {
        Length::Known(0)
    } else if head.chunked {
        Length::Chunked
    } else {
        head.length.map_or(Length::Open, Length::Known)
    };
    if length == Length::Known(0) && !to_head && is_grpc(&head.headers) {
        // A gRPC response without messages is a single HEADERS frame, without `content-length`.
        head.headers.remove(header::CONTENT_LENGTH);
    }
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = head.headers;
    Ok(ResponseHead {
        response,
        length,
        switches,
    })
}

/// The parsed head of the engine's request to an upstream.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request<()>,
    pub(super) length: Length,
}

/// Parses the head of a request, which ends in an empty line.
pub(super) fn read_request(text: &[u8], tls: bool) -> Result<Call, Malformed> {
    let head = Head::read(text)?;
    if head.upgrades {
        return Err(Malformed);
    }
    let mut words = head.first_line().split(|&byte| byte == b' ');
    let (method, target) = (words.next(), words.next());
    let (Some(method), Some(target)) = (method, target) else {
        return Err(Malformed);
    };
    let method = Method::from_bytes(method).map_err(|_| Malformed)?;
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    let host = head.host.as_ref().ok_or(Malformed)?;
    parts.authority = Some(Authority::try_from(host.as_bytes()).map_err(|_| Malformed)?);
    parts.path_and_query = Some(path_and_query(&head.text, target)?);
    let mut request = Request::new(());
    *request.version_mut() = http::Version::HTTP_2;
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Malformed)?;
    let length = match (head.chunked, head.length) {
        (true, _) => Length::Chunked,
        (false, length) => Length::Known(length.unwrap_or(0)),
    };
    *request.headers_mut() = head.headers;
    Ok(Call { request, length })
}

/// Returns the request target as a path. If the `http` crate rejects the target, the offending bytes are
/// percent-encoded.
fn path_and_query(text: &Bytes, target: &[u8]) -> Result<PathAndQuery, Malformed> {
    if let Ok(path) = PathAndQuery::from_maybe_shared(text.slice_ref(target))
        && path.as_str().len() == target.len()
    {
        return Ok(path);
    }
    let mut encoded = Vec::with_capacity(target.len() + 16);
    for &byte in target {
        if byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%[]".contains(&byte) {
            encoded.push(byte);
        } else {
            write!(encoded, "%{byte:02X}").expect("a write to a vector never fails");
        }
    }
    PathAndQuery::try_from(encoded).map_err(|_| Malformed)
}

/// Converts the trailer lines of a chunked body to those of a stream.
pub(super) fn trailers(lines: &[u8]) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some((name, value)) = split_line(line) else {
            continue;
        };
        let value = HeaderValue::from_bytes(value.trim_ascii());
        if let (Some(name), Ok(value)) = (header_name(name), value)
            && !is_of_connection(&name)
            && name != header::CONTENT_LENGTH
        {
            trailers.append(name, value);
        }
    }
    trailers
}

/// Returns the end of the head in `data`, if the head is complete.
pub(super) fn head_end(data: &[u8]) -> Option<usize> {
    memchr::memmem::find(data, b"\r\n\r\n").map(|at| at + 4)
}

fn split_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    Some((&line[..colon], &line[colon + 1..]))
}

/// Whether the field is forbidden in HTTP/2 because it describes the connection (RFC 9113 section 8.2.2).
fn is_of_connection(name: &HeaderName) -> bool {
    *name == header::CONNECTION
        || *name == header::TRANSFER_ENCODING
        || *name == header::UPGRADE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

static READY_NAMES: [HeaderName; 4] = [
    HeaderName::from_static("x-kong-request-id"),
    HeaderName::from_static("x-kong-upstream-latency"),
    HeaderName::from_static("x-kong-proxy-latency"),
    HeaderName::from_static("x-kong-response-latency"),
];

/// Converts a field name. For Kong's fields, which nearly every response has, it clones a prepared name: the `http`
/// crate would allocate for names that it does not know.
fn header_name(name: &[u8]) -> Option<HeaderName> {
    if name.len() > 16 && name.starts_with(b"X-Kong-") {
        let ready = READY_NAMES
            .iter()
            .find(|ready| name.eq_ignore_ascii_case(ready.as_str().as_bytes()));
        if let Some(ready) = ready {
            return Some(ready.clone());
        }
    }
    HeaderName::from_bytes(name).ok()
}

fn parse_number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
