//! Writes the request head for the upstream. It is the client's head without hop-by-hop headers, plus forwarding
//! headers and the changes of plugins. This module writes to a buffer and sends nothing. [`crate::forward_response`]
//! does the same for responses.
//! Source: kong/runloop/handler.lua access.before and access.after.

use net::http1::{Framing, KnownHeader, RequestHead, Version, list_contains};
use plugin::{HeaderEdits, Scheme};
use std::io::Write;
use std::net::IpAddr;

/// The gateway's name in `Via`.
pub const VIA: &str = "kong/3.9.1";

/// The parts of an outgoing request head.
pub struct Outbound<'a> {
    pub head: &'a RequestHead,
    pub method: &'a [u8],
    pub edits: &'a HeaderEdits,
    pub path: &'a [u8],
    /// Query without the `?`. If it is `None`, the target is sent without a `?`.
    pub query: Option<&'a [u8]>,
    /// Value of Host, unless a plugin changed it.
    pub host: &'a [u8],
    pub body: BodyLength,
    pub hop: Hop<'a>,
    /// Value of `X-Kong-Request-Id`. `None` if the setting `headers_upstream` does not contain this header.
    pub request_id: Option<&'a [u8]>,
}

/// The client and its connection, for the forwarding headers.
#[derive(Clone, Copy)]
pub struct Hop<'a> {
    /// Address of the peer that opened the connection.
    pub peer: IpAddr,
    /// Address of the client after real-IP processing.
    pub client: IpAddr,
    /// Whether the peer is in `trusted_ips`, so that its forwarding headers are kept.
    pub trusted: bool,
    pub scheme: Scheme,
    /// Whether the client speaks HTTP/2.
    pub http2: bool,
    /// Name in the Host header: lower case, without port.
    pub host: &'a str,
    pub port: u16,
    /// Result of [`usual_forwarded`] for the connection.
    pub usual: &'a [u8],
    /// Prefix that `strip_path` removed from the path.
    pub stripped: Option<&'a [u8]>,
}

/// The framing of the body for the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// The client's framing: a length, chunks, or no body.
    AsReceived,
    /// The length of a body that was read into memory.
    Read(u64),
    /// The length of a body that a plugin has set. It is sent also if it is zero, as in Kong.
    Set(u64),
    /// Chunks that the gateway writes, because plugins filter the body as it arrives.
    Chunked,
}

/// Appends the request head to `out`.
pub fn write_request(request: &Outbound<'_>, out: &mut Vec<u8>) {
    let head = request.head;
    out.extend_from_slice(request.method);
    out.push(b' ');
    out.extend_from_slice(request.path);
    if let Some(query) = request.query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(
        request
            .edits
            .known_value(KnownHeader::Host)
            .unwrap_or(request.host),
    );
    out.extend_from_slice(if head.asks_for_websocket() {
        b"\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    } else {
        b"\r\nConnection: keep-alive\r\n"
    });
    let seen = copy_lines(request, out);
    write_length(request, seen, out);
    let te = match request.edits.known_value(KnownHeader::Te) {
        Some(value) => list_contains(value, b"trailers"),
        None => seen.te && asks_for_trailers(head) && !request.edits.drops("te"),
    };
    if te {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    if seen.forwarded || request.hop.client != request.hop.peer || head.version() != Version::Http11
    {
        write_forwarded(head, &request.hop, seen, out);
        write_via(head, request.hop.http2, out);
    } else {
        write_forwarded_fast(head, &request.hop, out);
    }
    if let Some(id) = request.request_id {
        write_line(out, b"X-Kong-Request-Id: ", id);
    }
    request.edits.write_added(|known| !is_ours(known), out);
    out.extend_from_slice(b"\r\n");
}

/// The headers found while copying that the gateway writes itself. The gateway does not search for the absent ones
/// again.
#[derive(Default, Clone, Copy)]
struct Seen {
    content_length: bool,
    forwarded: bool,
    te: bool,
}

/// Copies the lines that pass unchanged.
fn copy_lines(request: &Outbound<'_>, out: &mut Vec<u8>) -> Seen {
    let (head, edits) = (request.head, request.edits);
    let edited = !edits.is_empty();
    let mut seen = Seen::default();
    head.copy_lines(out, |line| {
        let known = line.known();
        match known {
            KnownHeader::Other => {}
            KnownHeader::ContentLength => seen.content_length = true,
            KnownHeader::Te => seen.te = true,
            KnownHeader::Via
            | KnownHeader::XForwardedFor
            | KnownHeader::XForwardedHost
            | KnownHeader::XForwardedPath
            | KnownHeader::XForwardedPort
            | KnownHeader::XForwardedPrefix
            | KnownHeader::XForwardedProto => seen.forwarded = true,
            _ => {}
        }
        // A client must not choose the id under which it is logged.
        let replaced = known == KnownHeader::XKongRequestId && request.request_id.is_some();
        !(replaced
            || is_ours(known)
            || line.is_hop()
            || edited && edits.drops_known(known, line.name()))
    });
    seen
}

/// Whether a header is not copied, because it belongs to this hop only or because the gateway writes it itself.
fn is_ours(known: KnownHeader) -> bool {
    matches!(
        known,
        KnownHeader::Connection
            | KnownHeader::ContentLength
            | KnownHeader::Expect
            | KnownHeader::Host
            | KnownHeader::KeepAlive
            | KnownHeader::Proxy
            | KnownHeader::ProxyConnection
            | KnownHeader::Te
            | KnownHeader::TransferEncoding
            | KnownHeader::Upgrade
            | KnownHeader::Via
            | KnownHeader::XForwardedFor
            | KnownHeader::XForwardedHost
            | KnownHeader::XForwardedPath
            | KnownHeader::XForwardedPort
            | KnownHeader::XForwardedPrefix
            | KnownHeader::XForwardedProto
            | KnownHeader::XRealIp
    )
}

fn write_length(request: &Outbound<'_>, seen: Seen, out: &mut Vec<u8>) {
    match (request.body, request.head.framing()) {
        (BodyLength::Read(0), Framing::None) if !seen.content_length => {}
        (BodyLength::Read(length) | BodyLength::Set(length), _)
        | (BodyLength::AsReceived, Framing::Length(length)) => {
            write_number(out, b"Content-Length: ", length);
        }
        (BodyLength::Chunked, _) | (BodyLength::AsReceived, Framing::Chunked) => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        (BodyLength::AsReceived, _) if seen.content_length => {
            out.extend_from_slice(b"Content-Length: 0\r\n");
        }
        (BodyLength::AsReceived, _) => {}
    }
}

pub(crate) fn asks_for_trailers(head: &RequestHead) -> bool {
    head.known(KnownHeader::Te)
        .any(|value| list_contains(value, b"trailers"))
}

/// Returns the forwarding headers that are the same for all requests of a connection, for requests that have none. The
/// text ends with the name of `X-Forwarded-Host`, so that the caller can append the host.
pub fn usual_forwarded(peer: IpAddr, scheme: Scheme, port: u16, http2: bool) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(b"X-Real-IP: ");
    write_address(&mut out, peer);
    out.extend_from_slice(b"\r\nX-Forwarded-For: ");
    write_address(&mut out, peer);
    out.extend_from_slice(b"\r\n");
    write_line(&mut out, b"X-Forwarded-Proto: ", scheme.name().as_bytes());
    write_number(&mut out, b"X-Forwarded-Port: ", port.into());
    let via: &[u8] = if http2 { b"Via: 2 " } else { b"Via: 1.1 " };
    write_line(&mut out, via, VIA.as_bytes());
    out.extend_from_slice(b"X-Forwarded-Host: ");
    out
}

/// Does the work of [`write_forwarded`] and [`write_via`] for requests without forwarding headers. Halves the cost of
/// the whole head.
fn write_forwarded_fast(head: &RequestHead, hop: &Hop<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(hop.usual);
    out.extend_from_slice(hop.host.as_bytes());
    out.extend_from_slice(b"\r\nX-Forwarded-Path: ");
    out.extend_from_slice(head.path_bytes());
    out.extend_from_slice(b"\r\n");
    write_prefix(head, hop, false, out);
}

fn write_forwarded(head: &RequestHead, hop: &Hop<'_>, seen: Seen, out: &mut Vec<u8>) {
    out.extend_from_slice(b"X-Real-IP: ");
    write_address(out, hop.client);
    out.extend_from_slice(b"\r\nX-Forwarded-For: ");
    let mut before = seen.forwarded && write_joined(head, KnownHeader::XForwardedFor, out);
    if before {
        out.extend_from_slice(b", ");
    }
    write_address(out, if before { hop.peer } else { hop.client });
    out.extend_from_slice(b"\r\n");
    before = seen.forwarded && hop.trusted;
    let mut said = |known: KnownHeader, name: &[u8], ours: &[u8]| {
        let theirs = before.then(|| head.known(known).next()).flatten();
        write_line(out, name, theirs.unwrap_or(ours));
    };
    said(
        KnownHeader::XForwardedProto,
        b"X-Forwarded-Proto: ",
        hop.scheme.name().as_bytes(),
    );
    said(
        KnownHeader::XForwardedHost,
        b"X-Forwarded-Host: ",
        hop.host.as_bytes(),
    );
    said(
        KnownHeader::XForwardedPort,
        b"X-Forwarded-Port: ",
        itoa::Buffer::new().format(hop.port).as_bytes(),
    );
    said(
        KnownHeader::XForwardedPath,
        b"X-Forwarded-Path: ",
        head.path_bytes(),
    );
    write_prefix(head, hop, before, out);
}

/// Writes `X-Forwarded-Prefix`: the value from a trusted peer, or else the prefix that `strip_path` removed. Prefixes
/// that are empty or only a slash are not written.
fn write_prefix(head: &RequestHead, hop: &Hop<'_>, believed: bool, out: &mut Vec<u8>) {
    let theirs = believed
        .then(|| head.known(KnownHeader::XForwardedPrefix).next())
        .flatten();
    let ours = hop.stripped.filter(|prefix| !matches!(*prefix, b"" | b"/"));
    if let Some(prefix) = theirs.or(ours) {
        write_line(out, b"X-Forwarded-Prefix: ", prefix);
    }
}

fn write_via(head: &RequestHead, http2: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Via: ");
    if write_joined(head, KnownHeader::Via, out) {
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(match head.version() {
        _ if http2 => b"2 ",
        Version::Http10 => b"1.0 ",
        Version::Http11 => b"1.1 ",
    });
    out.extend_from_slice(VIA.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes all lines of a header as one list. Returns whether there were any.
fn write_joined(head: &RequestHead, known: KnownHeader, out: &mut Vec<u8>) -> bool {
    let mut any = false;
    for value in head.known(known) {
        if any {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        any = true;
    }
    any
}

fn write_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        // The digits are written by hand, because formatting would cost more than the rest of the line.
        IpAddr::V4(address) => {
            let mut text = [0; 16];
            let mut end = 0;
            for octet in address.octets() {
                for (unit, least) in [(100, 100), (10, 10), (1, 0)] {
                    if octet >= least {
                        text[end] = b'0' + octet / unit % 10;
                        end += 1;
                    }
                }
                text[end] = b'.';
                end += 1;
            }
            out.extend_from_slice(&text[..end - 1]);
        }
        IpAddr::V6(address) => write!(out, "{address}").expect("a vector takes everything"),
    }
}

/// Writes a line. `name` includes its colon, which saves a copy a dozen times per request.
#[inline]
pub(crate) fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn write_header(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn write_number(out: &mut Vec<u8>, name: &[u8], value: u64) {
    // Most numbers are latencies below ten milliseconds.
    if let digit @ 0..=9 = value {
        out.extend_from_slice(name);
        return out.extend_from_slice(&[b'0' + digit as u8, b'\r', b'\n']);
    }
    write_line(out, name, itoa::Buffer::new().format(value).as_bytes());
}
