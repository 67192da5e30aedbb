//! The spans of a finished request, written for OTLP one after the other into the buffer of the worker. Spans of tries and
//! of name resolution are made from the times that the log phase has anyway.

use super::custom;
use super::protobuf::{self, Attribute, TextKey, attribute, text_attribute};
use crate::exporter::Texts;
use crate::propagation::{RandomIds, SpanIds};
use plugin::trace::{FailedLookup, PluginPhase, Span, SpanKind, is_name};
use plugin::{Instrumentations, LogCx, Request, Try, TryEnd, redact};
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Fields of `Span`.
mod field {
    pub(super) const TRACE_ID: u8 = 1;
    pub(super) const SPAN_ID: u8 = 2;
    pub(super) const PARENT_SPAN_ID: u8 = 4;
    pub(super) const NAME: u8 = 5;
    pub(super) const KIND: u8 = 6;
    pub(super) const START: u8 = 7;
    pub(super) const END: u8 = 8;
    pub(super) const ATTRIBUTES: u8 = 9;
    pub(super) const EVENTS: u8 = 11;
    pub(super) const STATUS: u8 = 15;
}

/// The keys of attributes that are texts.
mod key {
    use super::{TextKey, field};

    const fn of(name: &str) -> TextKey {
        TextKey::new(field::ATTRIBUTES, name)
    }

    pub(super) static METHOD: TextKey = of("http.method");
    pub(super) static HOST: TextKey = of("http.host");
    pub(super) static SCHEME: TextKey = of("http.scheme");
    pub(super) static FLAVOR: TextKey = of("http.flavor");
    pub(super) static REQUEST_ID: TextKey = of("kong.request.id");
    pub(super) static ROUTE: TextKey = of("http.route");
    pub(super) static CLIENT_IP: TextKey = of("http.client_ip");
    pub(super) static PEER_IP: TextKey = of("net.peer.ip");
    pub(super) static PEER_NAME: TextKey = of("net.peer.name");
    pub(super) static DNS_NAME: TextKey = of("dns.record.domain");
    pub(super) static DNS_IP: TextKey = of("dns.record.ip");
    pub(super) static DB_SYSTEM: TextKey = of("db.system");
    pub(super) static STATEMENT: TextKey = of("db.statement");
}

/// The trace context of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    pub(super) trace: u128,
    pub(super) root: u64,
    /// The client's span.
    pub(super) parent: Option<u64>,
    /// The span of the last try, whose id the upstream has got.
    pub(super) last_try: u64,
}

/// The kinds of spans in `trace.proto`.
#[derive(Clone, Copy)]
enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// A span without its ids and attributes.
struct Base<'n> {
    /// The name in two parts.
    name: (&'n str, &'n str),
    kind: Kind,
    /// Nanoseconds since 1970.
    start: u64,
    end: u64,
}

/// The writer of a request's spans.
struct Writer<'a, 'q> {
    texts: &'a mut Texts<'q>,
    ids: Ids,
    /// Ids of the spans below the root.
    more_ids: SpanIds,
    /// The beginning of each span below the root, with the id of the root in place of its own.
    head: [u8; HEAD],
    /// When the request has begun, in nanoseconds since 1970 and on the clock of the spans.
    started_at: u64,
    started: Instant,
    /// The last time of a span on both clocks. Most spans begin where the one before has ended.
    last: (Instant, u64),
}

/// What is in front of the name of a span: its tag and its length, the ids of the trace, of the span and of its parent, each
/// after its tag and its length, and the tag and the length of the name.
const HEAD: usize = 42;
const TRACE: Range<usize> = 4..20;
const SPAN: Range<usize> = 22..30;
const PARENT: Range<usize> = 32..40;

/// The kind and the times of a span.
const TIMES: [u8; 20] = {
    let mut times = [0; 20];
    times[0] = protobuf::tag_of_integer(field::KIND);
    times[2] = protobuf::tag_of_fixed(field::START);
    times[11] = protobuf::tag_of_fixed(field::END);
    times
};

/// Number of bytes that the length of a span with attributes has, mostly.
pub(super) const WITH_ATTRIBUTES: usize = 2;

/// Writes the spans of a request.
pub(super) fn write(cx: &LogCx<'_, '_>, ids: Ids, kinds: Instrumentations, texts: &mut Texts<'_>) {
    let started_at = cx.entry.started_at.duration_since(UNIX_EPOCH);
    let started_at = nanoseconds(started_at.unwrap_or_default());
    let mut writer = Writer {
        texts,
        ids,
        more_ids: RandomIds::draw(RandomIds::spans),
        head: head(&ids),
        started_at,
        started: cx.request.started,
        last: (cx.request.started, started_at),
    };
    writer.root(cx);
    let trace = &cx.state.trace;
    for span in trace.spans() {
        writer.recorded(span, kinds);
    }
    if kinds.intersects(Instrumentations::DNS_QUERY.with(Instrumentations::BALANCER)) {
        let tries = cx.entry.tries;
        for (at, one) in tries.iter().enumerate() {
            let server = trace.server_of_try(at).unwrap_or_default();
            if kinds.intersects(Instrumentations::DNS_QUERY) {
                writer.resolution(one, server);
            }
            if kinds.intersects(Instrumentations::BALANCER) {
                writer.attempt(at + 1, one, server, at + 1 == tries.len());
            }
        }
    }
    if kinds.intersects(Instrumentations::DNS_QUERY)
        && let Some(lookup) = trace.failed_lookup()
    {
        writer.failed_resolution(lookup);
    }
}

fn head(ids: &Ids) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = protobuf::tag_of_bytes(protobuf::ENTRY);
    for (field, place) in [
        (field::TRACE_ID, TRACE),
        (field::SPAN_ID, SPAN),
        (field::PARENT_SPAN_ID, PARENT),
    ] {
        head[place.start - 2] = protobuf::tag_of_bytes(field);
        head[place.start - 1] = place.len() as u8;
    }
    head[TRACE].copy_from_slice(&ids.trace.to_be_bytes());
    head[SPAN].copy_from_slice(&ids.root.to_be_bytes());
    head[PARENT].copy_from_slice(&ids.root.to_be_bytes());
    head[PARENT.end] = protobuf::tag_of_bytes(field::NAME);
    head
}

fn nanoseconds(time: Duration) -> u64 {
    let whole = time.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(time.subsec_nanos().into())
}

impl Base<'_> {
    fn name_length(&self) -> usize {
        self.name.0.len() + self.name.1.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        protobuf::begin_bytes(field::NAME, self.name_length(), out);
        self.write_rest(out);
    }

    /// Writes what comes after the length of the name.
    #[inline]
    fn write_rest(&self, out: &mut Vec<u8>) {
        let (first, second) = self.name;
        out.extend_from_slice(first.as_bytes());
        out.extend_from_slice(second.as_bytes());
        out.extend_from_slice(&TIMES);
        if let Some(times) = out.last_chunk_mut::<{ TIMES.len() }>() {
            times[1] = self.kind as u8;
            times[3..11].copy_from_slice(&self.start.to_le_bytes());
            times[12..].copy_from_slice(&self.end.max(self.start).to_le_bytes());
        }
    }
}

impl Writer<'_, '_> {
    /// Nanoseconds since 1970 of a time since the start of the request.
    #[inline]
    fn at(&self, after: Duration) -> u64 {
        self.started_at.saturating_add(nanoseconds(after))
    }

    #[inline]
    fn instant(&mut self, at: Instant) -> u64 {
        if at != self.last.0 {
            self.last = (at, self.at(at.saturating_duration_since(self.started)));
        }
        self.last.1
    }

    /// Writes a span below the root that has no attributes, as most have.
    fn bare(&mut self, id: u64, base: &Base<'_>) {
        let name = base.name_length();
        let length = HEAD - 2 + name + TIMES.len();
        if length >= protobuf::SHORT {
            return self.child(id, base, |_| {});
        }
        let out = &mut self.texts.out;
        out.extend_from_slice(&self.head);
        if let Some(head) = out.last_chunk_mut::<HEAD>() {
            head[1] = length as u8;
            head[SPAN].copy_from_slice(&id.to_be_bytes());
            head[HEAD - 1] = name as u8;
        }
        base.write_rest(out);
        self.texts.end();
    }

    /// Writes a span below the root. `rest` writes its attributes.
    #[inline]
    fn child(&mut self, id: u64, base: &Base<'_>, rest: impl FnOnce(&mut Vec<u8>)) {
        let head = &self.head;
        protobuf::message(
            protobuf::ENTRY,
            WITH_ATTRIBUTES,
            &mut self.texts.out,
            |out| {
                out.extend_from_slice(&head[2..SPAN.start]);
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(&head[SPAN.end..PARENT.end]);
                base.write(out);
                rest(out);
            },
        );
        self.texts.end();
    }

    fn root(&mut self, cx: &LogCx<'_, '_>) {
        let LogCx {
            request,
            entry,
            node,
            state,
            ..
        } = cx;
        let base = Base {
            name: ("kong", ""),
            kind: Kind::Server,
            start: self.started_at,
            end: self.at(entry.latencies.request),
        };
        let (head, parent) = (&self.head, self.ids.parent);
        protobuf::message(
            protobuf::ENTRY,
            WITH_ATTRIBUTES,
            &mut self.texts.out,
            |out| {
                out.extend_from_slice(&head[2..SPAN.end]);
                if let Some(parent) = parent {
                    protobuf::bytes(field::PARENT_SPAN_ID, &parent.to_be_bytes(), out);
                }
                base.write(out);
                key::METHOD.write(protobuf::text(request.method_bytes()).as_bytes(), out);
                key::HOST.write(request.host.as_bytes(), out);
                key::SCHEME.write(request.scheme.name().as_bytes(), out);
                key::FLAVOR.write(flavor(request).as_bytes(), out);
                key::REQUEST_ID.write(request.request_id.as_bytes(), out);
                key::ROUTE.write(request.route_path.as_bytes(), out);
                show_url(request, node.redacts_records, out);
                show_client(request.client.ip, request.peer.ip(), out);
                show_status(entry.status, out);
                custom::write_root(&state.trace, out);
            },
        );
        self.texts.end();
    }

    /// Writes a span that the data plane has recorded.
    fn recorded(&mut self, span: &Span, kinds: Instrumentations) {
        let (name, of) = match &span.kind {
            SpanKind::Router => (("kong.router", ""), Instrumentations::ROUTER),
            SpanKind::Query { .. } => (("kong.database.query", ""), Instrumentations::DB_QUERY),
            SpanKind::Plugin { phase, name, .. } => {
                let prefix = match phase {
                    PluginPhase::Rewrite => "kong.rewrite.plugin.",
                    PluginPhase::Access => "kong.access.plugin.",
                    PluginPhase::HeaderFilter => "kong.header_filter.plugin.",
                };
                ((prefix, &**name), phase.instrumentation())
            }
        };
        if !kinds.intersects(of) {
            return;
        }
        let base = Base {
            name,
            kind: Kind::Internal,
            start: self.instant(span.start),
            end: self.instant(span.end),
        };
        let id = self.more_ids.next_id();
        if span.error.is_none() && !matches!(span.kind, SpanKind::Query { .. }) {
            return self.bare(id, &base);
        }
        self.child(id, &base, |out| {
            if let SpanKind::Query { statement } = &span.kind {
                key::DB_SYSTEM.write(b"lmdb", out);
                key::STATEMENT.write(statement.as_bytes(), out);
            }
            if let Some(error) = &span.error {
                show_failure(error, base.end, out);
            }
        });
    }

    /// Writes the span of a try, whose number is counted from 1.
    fn attempt(&mut self, number: usize, one: &Try, server: &str, is_last: bool) {
        let base = Base {
            name: ("kong.balancer", ""),
            kind: Kind::Client,
            start: self.at(one.after),
            end: self.at(one.after + one.took),
        };
        let id = match is_last {
            true => self.ids.last_try,
            false => self.more_ids.next_id(),
        };
        self.child(id, &base, |out| {
            show_number("try_count", number as f64, out);
            if let Some(socket) = one.address {
                key::PEER_IP.write(Address::of(socket.ip()).text(), out);
                show_number("net.peer.port", socket.port().into(), out);
            }
            if !server.is_empty() {
                key::PEER_NAME.write(server.as_bytes(), out);
            }
            if let TryEnd::Failed(status) = one.end {
                show_status(status, out);
                status_of_error(out);
            }
        });
    }

    /// Writes the time in which the server of a try was found, if it has a name.
    fn resolution(&mut self, one: &Try, server: &str) {
        let Some(found) = one.address else {
            return;
        };
        if server.is_empty() || !is_name(server) {
            return;
        }
        let base = Base {
            name: ("kong.dns", ""),
            kind: Kind::Client,
            start: self.at(one.after),
            end: self.at(one.after + one.choosing),
        };
        let id = self.more_ids.next_id();
        self.child(id, &base, |out| {
            key::DNS_NAME.write(server.as_bytes(), out);
            show_number("dns.record.port", found.port().into(), out);
            key::DNS_IP.write(Address::of(found.ip()).text(), out);
        });
    }

    fn failed_resolution(&mut self, lookup: &FailedLookup) {
        let base = Base {
            name: ("kong.dns", ""),
            kind: Kind::Client,
            start: self.instant(lookup.start),
            end: self.instant(lookup.end),
        };
        let id = self.more_ids.next_id();
        self.child(id, &base, |out| {
            key::DNS_NAME.write(lookup.name.as_bytes(), out);
            show_number("dns.record.port", lookup.port.into(), out);
            show_failure(&lookup.error, base.end, out);
        });
    }
}

fn show_number(key: &str, number: f64, out: &mut Vec<u8>) {
    attribute(field::ATTRIBUTES, key, Attribute::Number(number), out);
}

fn show_status(status: u16, out: &mut Vec<u8>) {
    let status = Attribute::Integer(status.into());
    attribute(field::ATTRIBUTES, "http.status_code", status, out);
}

fn flavor(request: &Request<'_>) -> &'static str {
    match request.head.version() {
        _ if request.http2 => "2.0",
        net::http1::Version::Http11 => "1.1",
        net::http1::Version::Http10 => "1.0",
    }
}

/// Shows scheme, host, path and query. With `redacts`, credentials in the query are hidden.
fn show_url(request: &Request<'_>, redacts: bool, out: &mut Vec<u8>) {
    const KEY: &str = "http.url";
    let (scheme, path) = (request.scheme.name(), request.head.path_bytes());
    let query = request.head.query_bytes();
    let query_length = query.map_or(0, |query| query.len() + 1);
    let length = scheme.len() + "://".len() + request.host.len() + path.len() + query_length;
    let write = |redacts: bool, out: &mut Vec<u8>| {
        out.extend_from_slice(scheme.as_bytes());
        out.extend_from_slice(b"://");
        out.extend_from_slice(request.host.as_bytes());
        out.extend_from_slice(path);
        if let Some(query) = query {
            out.push(b'?');
            match redacts {
                true => redact::query(query, |piece| out.extend_from_slice(piece)),
                false => out.extend_from_slice(query),
            }
        }
    };
    let changes = redacts && query.is_some();
    if !changes && path.is_ascii() && query.is_none_or(<[u8]>::is_ascii) {
        text_attribute(field::ATTRIBUTES, KEY, length, out, |out| write(false, out));
    } else {
        let mut url = Vec::with_capacity(length);
        write(redacts, &mut url);
        let url = protobuf::text(&url);
        attribute(field::ATTRIBUTES, KEY, Attribute::Text(&url), out);
    }
}

/// Shows the address of the client, and that of the peer, which is mostly the same.
fn show_client(client: IpAddr, peer: IpAddr, out: &mut Vec<u8>) {
    let address = Address::of(client);
    key::CLIENT_IP.write(address.text(), out);
    if peer == client {
        key::PEER_IP.write(address.text(), out);
    } else {
        key::PEER_IP.write(Address::of(peer).text(), out);
    }
}

/// The text of an address. Those of IPv4 are written here: the standard library takes several times as long.
enum Address {
    V4 { digits: [u8; 16], length: usize },
    V6(String),
}

impl Address {
    fn of(ip: IpAddr) -> Self {
        let octets = match ip.to_canonical() {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(ip) => return Self::V6(ip.to_string()),
        };
        let (mut digits, mut end) = ([0; 16], 0);
        for octet in octets {
            for (unit, least) in [(100, 100), (10, 10), (1, 0)] {
                if octet >= least {
                    digits[end] = b'0' + octet / unit % 10;
                    end += 1;
                }
            }
            digits[end] = b'.';
            end += 1;
        }
        let length = end - 1;
        Self::V4 { digits, length }
    }

    fn text(&self) -> &[u8] {
        match self {
            Self::V4 { digits, length } => &digits[..*length],
            Self::V6(text) => text.as_bytes(),
        }
    }
}

/// Writes the event `exception` and the status of an error.
fn show_failure(error: &str, at: u64, out: &mut Vec<u8>) {
    protobuf::message(field::EVENTS, 1, out, |out| {
        protobuf::fixed(1, at, out);
        protobuf::bytes(2, b"exception", out);
        attribute(3, "exception.message", Attribute::Text(error), out);
    });
    status_of_error(out);
}

fn status_of_error(out: &mut Vec<u8>) {
    protobuf::bytes(field::STATUS, &[3 << 3, 2], out);
}
