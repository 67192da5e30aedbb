//! The head that goes back to the client, made from the upstream's. Answers that the gateway produces itself are written
//! by [`crate::respond`]. Source: kong/runloop/handler.lua header_filter.

use crate::forward::{VIA, write_header, write_line, write_number};
use crate::respond::{HeaderSet, SERVER, with_charset};
use net::http1::{Framing, Known, RequestHead, ResponseHead, Version};
use plugin::HeaderEdits;

/// An answer on its way back.
pub struct Inbound<'a> {
    pub head: &'a ResponseHead,
    pub request: &'a RequestHead,
    /// The upstream spoke HTTP/2.
    pub http2: bool,
    pub edits: &'a HeaderEdits,
    /// Headers for who asked which route it was.
    pub debug: Option<&'a HeaderEdits>,
    /// What the filters made of the status.
    pub status: u16,
    pub framing: ClientFraming,
    pub keep_alive: bool,
    pub upstream_latency: u64,
    pub proxy_latency: u64,
    pub request_id: &'a [u8],
    pub headers: HeaderSet,
}

/// How the body travels on to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFraming {
    /// As it comes: same length, or chunks as they are, or no body.
    AsReceived,
    /// An HTTP/1.0 client knows no chunks: the payload alone, ended by closing.
    Unchunked,
    /// In chunks of ours. The upstream ends the body by closing, and chunks let the client tell an end from a break; or
    /// filters may change its length.
    Chunked,
    /// In chunks of ours instead of the upstream's, which may be any number. Trailers go on.
    Rechunked,
}

impl ClientFraming {
    /// `streams`: pieces go on as they come.
    pub fn choose(framing: Framing, client: Version, streams: bool) -> Self {
        match (framing, client) {
            (Framing::Chunked, Version::Http10) => Self::Unchunked,
            (Framing::Chunked, Version::Http11) if !streams => Self::Rechunked,
            (Framing::Close, Version::Http11) => Self::Chunked,
            _ => Self::AsReceived,
        }
    }

    /// The same for a body that filters may change.
    pub fn choose_filtered(client: Version) -> Self {
        match client {
            Version::Http10 => Self::Unchunked,
            Version::Http11 => Self::Chunked,
        }
    }

    /// Whether the end of the connection is the end of the body.
    pub fn ends_by_closing(self, framing: Framing) -> bool {
        self == Self::Unchunked || (self == Self::AsReceived && framing == Framing::Close)
    }
}

/// Appends the head. `write_date` appends a `Date` line, for an answer that comes without one (RFC 9110 section 6.6.1).
pub fn write_response(
    answer: &Inbound<'_>,
    out: &mut Vec<u8>,
    write_date: impl FnOnce(&mut Vec<u8>),
) {
    write_status_line(answer.status, answer.head, out);
    let seen = copy_lines(answer, out);
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
        // Neither a 204 (RFC 9112 section 6.1) nor an answer that becomes a tunnel has it.
        ClientFraming::AsReceived
            if seen.chunked && answer.status != 204 && !answer.head.switches() =>
        {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        ClientFraming::AsReceived | ClientFraming::Unchunked => {}
    }
    let connection: &[u8] = match answer.keep_alive {
        _ if answer.head.switches() => b"Connection: upgrade\r\n",
        true => b"Connection: keep-alive\r\n",
        false => b"Connection: close\r\n",
    };
    out.extend_from_slice(connection);
    write_kong_headers(answer, seen, out);
    let debug = answer.debug.into_iter().flat_map(HeaderEdits::added);
    for (name, value) in answer.edits.added().chain(debug) {
        write_header(out, name.as_bytes(), value);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of a 1xx answer, which carries nothing of ours.
pub fn write_interim(head: &ResponseHead, out: &mut Vec<u8>) {
    write_status_line(head.status(), head, out);
    head.copy_lines(out, |line| {
        let known = line.known();
        // A 1xx must not have a length (RFC 9110 section 8.6).
        !is_ours(known) && known != Known::ContentLength && !line.is_hop()
    });
    out.extend_from_slice(b"\r\n");
}

fn write_status_line(status: u16, head: &ResponseHead, out: &mut Vec<u8>) {
    let line = head.status_line();
    // An upstream may speak a later minor version; what is sent on is ours.
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
    head.copy_lines(out, |line| {
        let known = line.known();
        let passes = match known {
            Known::Other => true,
            // It is meant for the gateway.
            Known::XAccelBuffering => false,
            Known::Date => {
                seen.date = true;
                true
            }
            Known::Server => {
                seen.server = true;
                true
            }
            Known::ContentType => {
                text = answer.headers.charset
                    && head.known(known).next().is_some_and(may_want_charset);
                !text
            }
            // Of a 101 or 204, a length is not allowed (RFC 9110 section 8.6); chunked by us, it would contradict.
            Known::ContentLength => {
                !matches!(answer.status, 101 | 204) && answer.framing == ClientFraming::AsReceived
            }
            Known::Upgrade => answer.request.asks_for_websocket() && head.offers_websocket(),
            Known::TransferEncoding => {
                seen.chunked = true;
                false
            }
            // A trailer may be announced only to who asked for it.
            Known::Trailer => crate::forward::asks_for_trailers(answer.request),
            Known::Via => {
                seen.via = true;
                !answer.headers.via
            }
            // Ours takes its place.
            Known::XKongRequestId => !answer.headers.request_id,
            _ => !is_ours(known),
        };
        // A length stays even where `Connection` names it: the body has it all the same.
        let is_hop = line.is_hop() && known != Known::ContentLength;
        passes && !is_hop && !(edited && edits.drops(line.name()))
    });
    if text && !edits.drops("content-type") {
        for value in head.known(Known::ContentType) {
            write_header(out, b"Content-Type", &with_charset(value));
        }
    }
    seen
}

/// The web server under Kong names the charset of texts, an upstream's too: `text/…`, `application/javascript` and
/// `application/rss+xml`.
fn may_want_charset(content_type: &[u8]) -> bool {
    matches!(content_type.first(), Some(b't' | b'T'))
        || matches!(content_type.get(12), Some(b'j' | b'J' | b'r' | b'R'))
            && !content_type.starts_with(b"application/json")
}

fn is_ours(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade
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
        for value in head.known(Known::Via) {
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
