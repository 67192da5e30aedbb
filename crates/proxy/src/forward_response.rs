//! Writes the response head for the client, based on the upstream's head. [`crate::respond`] writes responses that the
//! gateway itself produces.
//! Source: kong/runloop/handler.lua header_filter.

use crate::forward::{VIA, write_header, write_line, write_number};
use crate::respond::{HeaderSet, SERVER, may_have_charset, with_charset};
use net::http1::{Framing, KnownHeader, RequestHead, ResponseHead, Version};
use plugin::HeaderEdits;

/// The parts of a response head from an upstream.
pub struct Inbound<'a> {
    pub head: &'a ResponseHead,
    pub request: &'a RequestHead,
    /// Whether the upstream spoke HTTP/2.
    pub http2: bool,
    pub edits: &'a HeaderEdits,
    /// Extra headers: debug headers for a client that asked for them, and the cookie for consistent hashing.
    pub debug: Option<&'a HeaderEdits>,
    /// Status after the header filters.
    pub status: u16,
    pub framing: ClientFraming,
    /// Length of the body for [`ClientFraming::Sized`].
    pub length: Option<u64>,
    pub keep_alive: bool,
    pub upstream_latency: u64,
    pub proxy_latency: u64,
    pub request_id: &'a [u8],
    pub headers: HeaderSet,
}

impl Inbound<'_> {
    /// Whether the client gets the upstream's protocol switch. A header filter may have put another response in its
    /// place.
    fn switches(&self) -> bool {
        self.status == 101 && self.head.switches()
    }
}

/// Framing of the body for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFraming {
    /// The upstream's framing: the same length, the same chunks, or no body.
    AsReceived,
    /// The payload without chunks, for HTTP/1.0 clients. Closing the connection ends it.
    Unchunked,
    /// Chunks that the gateway writes. They are needed if filters may change the body's length. They are also used if
    /// the upstream ends the body by closing, so that the client can distinguish a complete body from a broken one.
    Chunked,
    /// The payload with a length that the gateway writes, of a body that filters may have changed.
    Sized,
    /// Chunks that the gateway writes instead of the upstream's, which may be very many. Trailers are forwarded.
    Rechunked,
}

impl ClientFraming {
    /// Chooses the framing of an unfiltered body. With `streams`, pieces are forwarded as they arrive.
    pub fn choose(framing: Framing, client: Version, streams: bool) -> Self {
        match (framing, client) {
            (Framing::Chunked, Version::Http10) => Self::Unchunked,
            (Framing::Chunked, Version::Http11) if !streams => Self::Rechunked,
            (Framing::Close, Version::Http11) => Self::Chunked,
            _ => Self::AsReceived,
        }
    }

    /// Chooses the framing of a body that filters may change.
    pub fn choose_filtered(client: Version) -> Self {
        match client {
            Version::Http10 => Self::Unchunked,
            Version::Http11 => Self::Chunked,
        }
    }

    /// Whether closing the connection ends the body.
    pub fn ends_by_closing(self, framing: Framing) -> bool {
        self == Self::Unchunked || (self == Self::AsReceived && framing == Framing::Close)
    }
}

/// Appends the response head. `write_date` appends a `Date` line, if the upstream sent none (RFC 9110 section 6.6.1).
pub fn write_response(
    answer: &Inbound<'_>,
    out: &mut Vec<u8>,
    write_date: impl FnOnce(&mut Vec<u8>),
) {
    write_status_line(answer.status, answer.head, out);
    let mut seen = copy_lines(answer, out);
    if !answer.edits.is_empty() {
        seen.date |= answer.edits.known_value(KnownHeader::Date).is_some();
        seen.server |= answer.edits.known_value(KnownHeader::Server).is_some();
    }
    if !seen.date {
        write_date(out);
    }
    if !seen.server && answer.headers.server {
        write_line(out, b"Server: ", SERVER.as_bytes());
    }
    match answer.framing {
        ClientFraming::Chunked | ClientFraming::Rechunked => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        // A 204 (RFC 9112 section 6.1) and a protocol switch must not have this header.
        ClientFraming::AsReceived if seen.chunked && answer.status != 204 && !answer.switches() => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        ClientFraming::Sized => {
            write_number(out, b"Content-Length: ", answer.length.unwrap_or(0));
        }
        ClientFraming::AsReceived | ClientFraming::Unchunked => {}
    }
    let connection: &[u8] = if answer.switches() {
        b"Connection: upgrade\r\n"
    } else if answer.keep_alive {
        b"Connection: keep-alive\r\n"
    } else {
        b"Connection: close\r\n"
    };
    out.extend_from_slice(connection);
    write_kong_headers(answer, seen, out);
    if !answer.edits.is_empty() {
        let content_type = answer.edits.known_value(KnownHeader::ContentType);
        let adds_charset = answer.headers.charset && may_have_charset(answer.status);
        match content_type.filter(|_| adds_charset) {
            None => answer.edits.write_added(is_free, out),
            Some(_) => write_added_with_charset(answer.edits, out),
        }
    }
    if let Some(debug) = answer.debug {
        debug.write_added(|_| true, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the lines that plugins have added, with a charset in the type of the content.
fn write_added_with_charset(edits: &HeaderEdits, out: &mut Vec<u8>) {
    for (name, value) in edits.added() {
        match KnownHeader::classify(name.as_bytes()) {
            KnownHeader::ContentType => write_header(out, name.as_bytes(), &with_charset(value)),
            known if is_free(known) => write_header(out, name.as_bytes(), value),
            _ => {}
        }
    }
}

/// Whether a plugin may set a header. The gateway decides about the framing of the message and about the connection.
fn is_free(known: KnownHeader) -> bool {
    !is_ours(known) && known != KnownHeader::ContentLength
}

/// Appends the head of an interim (1xx) response, without headers of the gateway.
pub fn write_interim(head: &ResponseHead, out: &mut Vec<u8>) {
    write_status_line(head.status(), head, out);
    head.copy_lines(out, |line| {
        let known = line.known();
        // A 1xx response must not have a length (RFC 9110 section 8.6).
        !is_ours(known) && known != KnownHeader::ContentLength && !line.is_hop()
    });
    out.extend_from_slice(b"\r\n");
}

fn write_status_line(status: u16, head: &ResponseHead, out: &mut Vec<u8>) {
    let line = head.status_line();
    // An upstream may use a later minor version, but the client gets the gateway's.
    let is_usual = line.starts_with(b"HTTP/1.1 ") && !head.reason().is_empty();
    if status == head.status() && is_usual {
        return out.extend_from_slice(line);
    }
    let digit = |unit| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    if status == head.status() {
        out.extend_from_slice(head.reason());
    } else {
        out.extend_from_slice(crate::respond::status::reason(status).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

#[derive(Default, Clone, Copy)]
struct Seen {
    chunked: bool,
    date: bool,
    server: bool,
    via: bool,
}

fn copy_lines(answer: &Inbound<'_>, out: &mut Vec<u8>) -> Seen {
    let (head, edits) = (answer.head, answer.edits);
    let edited = !edits.is_empty();
    let mut seen = Seen::default();
    let mut text = false;
    if edited {
        edits.write_before(is_free, out);
    }
    head.copy_lines(out, |line| {
        let known = line.known();
        let passes = match known {
            KnownHeader::Other => true,
            // This header is meant for the gateway.
            KnownHeader::XAccelBuffering => false,
            KnownHeader::Date => {
                seen.date = true;
                true
            }
            KnownHeader::Server => {
                seen.server = true;
                true
            }
            KnownHeader::ContentType => {
                text = answer.headers.charset
                    && may_have_charset(answer.status)
                    && head.known(known).next().is_some_and(may_want_charset);
                !text
            }
            // A 101 or 204 must not have a length (RFC 9110 section 8.6), and a length would contradict the gateway's
            // chunks.
            KnownHeader::ContentLength => {
                !matches!(answer.status, 101 | 204) && answer.framing == ClientFraming::AsReceived
            }
            KnownHeader::Upgrade => {
                let asked = answer.request.asks_for_websocket() && head.offers_websocket();
                asked && (answer.switches() || !head.switches())
            }
            KnownHeader::TransferEncoding => {
                seen.chunked = true;
                false
            }
            // Only a client that accepts trailers may get their announcement.
            KnownHeader::Trailer => crate::forward::asks_for_trailers(answer.request),
            KnownHeader::Via => {
                seen.via = true;
                !answer.headers.via
            }
            // The gateway's own id replaces it.
            KnownHeader::XKongRequestId => !answer.headers.request_id,
            _ => !is_ours(known),
        };
        // The length is kept even if `Connection` names it, because the body still has it.
        let is_hop = line.is_hop() && known != KnownHeader::ContentLength;
        passes && !is_hop && !(edited && edits.drops_known(known, line.name()))
    });
    if text && !edits.drops("content-type") {
        for value in head.known(KnownHeader::ContentType) {
            write_header(out, b"Content-Type", &with_charset(value));
        }
    }
    seen
}

/// A quick check before [`with_charset`]: whether the type may be one to which nginx adds a charset (`text/…`,
/// `application/javascript` and `application/rss+xml`). nginx also does this in an upstream's response.
fn may_want_charset(content_type: &[u8]) -> bool {
    matches!(content_type.first(), Some(b't' | b'T'))
        || matches!(content_type.get(12), Some(b'j' | b'J' | b'r' | b'R'))
            && !content_type.starts_with(b"application/json")
}

fn is_ours(known: KnownHeader) -> bool {
    matches!(
        known,
        KnownHeader::Connection
            | KnownHeader::KeepAlive
            | KnownHeader::ProxyConnection
            | KnownHeader::TransferEncoding
            | KnownHeader::Upgrade
    )
}

fn write_kong_headers(answer: &Inbound<'_>, seen: Seen, out: &mut Vec<u8>) {
    let set = answer.headers;
    if set.via {
        write_via(answer, seen.via, out);
    }
    if set.upstream_latency {
        write_number(out, b"X-Kong-Upstream-Latency: ", answer.upstream_latency);
    }
    if set.proxy_latency {
        write_number(out, b"X-Kong-Proxy-Latency: ", answer.proxy_latency);
    }
    if set.upstream_status {
        write_number(
            out,
            b"X-Kong-Upstream-Status: ",
            answer.head.status().into(),
        );
    }
    if set.request_id {
        write_line(out, b"X-Kong-Request-Id: ", answer.request_id);
    }
}

fn write_via(answer: &Inbound<'_>, seen: bool, out: &mut Vec<u8>) {
    let head = answer.head;
    if !seen && !answer.http2 && head.version() == Version::Http11 {
        return write_line(out, b"Via: 1.1 ", VIA.as_bytes());
    }
    out.extend_from_slice(b"Via: ");
    if seen {
        for value in head.known(KnownHeader::Via) {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
    }
    out.extend_from_slice(match head.version() {
        _ if answer.http2 => b"2 ",
        Version::Http10 => b"1.0 ",
        Version::Http11 => b"1.1 ",
    });
    out.extend_from_slice(VIA.as_bytes());
    out.extend_from_slice(b"\r\n");
}
