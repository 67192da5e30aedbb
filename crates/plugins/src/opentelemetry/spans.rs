//! The spans of a finished request, written for OTLP one after the other into the buffer of the worker. Spans of tries and
//! of name resolution are made from the times that the log phase has anyway.

use super::custom;
use super::protobuf::{self, Attribute, TextKey, attribute, text_attribute};
use crate::exporter::Texts;
use crate::propagation::{RandomIds, SpanIds};
use plugin::trace::{
    Decision, FailedLookup, Moment, PluginPhase, Span, SpanKind, is_name, nanoseconds,
};
use plugin::{Instrumentations, LogCx, Request, Try, TryEnd, redact};
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

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

impl Ids {
    pub(super) fn of(decision: &Decision) -> Self {
        Self {
            trace: decision.trace.number,
            root: decision.root,
            parent: decision.parent,
            last_try: decision.last_try,
        }
    }
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
    name: &'n str,
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
    head: [u8; BARE],
    /// When the request has begun, in nanoseconds since 1970 and on the clock of the spans.
    started_at: u64,
    started: Moment,
}

/// The name of a span, or its beginning.
struct Prefix {
    text: &'static str,
    bytes: [u8; PREFIX],
}

/// The space of a [`Prefix`]. All of it is copied, because a copy of a known length takes few steps.
const PREFIX: usize = 32;

impl Prefix {
    const fn new(text: &'static str) -> Self {
        let mut bytes = [0; PREFIX];
        bytes
            .split_at_mut(text.len())
            .0
            .copy_from_slice(text.as_bytes());
        Self { text, bytes }
    }
}

static ROUTER: Prefix = Prefix::new("kong.router");
static QUERY: Prefix = Prefix::new("kong.database.query");
static REWRITE: Prefix = Prefix::new("kong.rewrite.plugin.");
static ACCESS: Prefix = Prefix::new("kong.access.plugin.");
static HEADER_FILTER: Prefix = Prefix::new("kong.header_filter.plugin.");

/// What is in front of the name of a span: its tag and its length, the ids of the trace, of the span and of its parent, each
/// after its tag and its length, and the tag and the length of the name.
const HEAD: usize = 42;
const TRACE: Range<usize> = 4..20;
const SPAN: Range<usize> = 22..30;
const PARENT: Range<usize> = 32..40;

/// The space of a span without attributes. All of it is copied. The length of such a span has one byte.
const BARE: usize = 128;

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
    root(cx, &ids, started_at, texts);
    if kinds != Instrumentations::REQUEST {
        below_root(cx, ids, kinds, started_at, texts);
    }
}

#[inline(never)]
fn below_root(
    cx: &LogCx<'_, '_>,
    ids: Ids,
    kinds: Instrumentations,
    started_at: u64,
    texts: &mut Texts<'_>,
) {
    let mut writer = Writer {
        texts,
        ids,
        more_ids: RandomIds::draw(RandomIds::spans),
        head: bare_head(&ids),
        started_at,
        started: Moment::of(cx.request.started),
    };
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

/// Writes the root span of a request that has begun at `started_at`, in nanoseconds since 1970.
fn root(cx: &LogCx<'_, '_>, ids: &Ids, started_at: u64, texts: &mut Texts<'_>) {
    let LogCx {
        request,
        entry,
        node,
        state,
        ..
    } = cx;
    let base = Base {
        name: "kong",
        kind: Kind::Server,
        start: started_at,
        end: started_at.saturating_add(nanoseconds(entry.latencies.request)),
    };
    let head = head(ids);
    protobuf::message(protobuf::ENTRY, WITH_ATTRIBUTES, &mut texts.out, |out| {
        out.extend_from_slice(&head[2..SPAN.end]);
        if let Some(parent) = ids.parent {
            protobuf::bytes(field::PARENT_SPAN_ID, &parent.to_be_bytes(), out);
        }
        base.write(out);
        // A method is ASCII.
        key::METHOD.write(request.method_bytes(), out);
        key::HOST.write(request.host.as_bytes(), out);
        key::SCHEME.write(request.scheme.name().as_bytes(), out);
        key::FLAVOR.write(flavor(request).as_bytes(), out);
        key::REQUEST_ID.write(request.request_id.as_bytes(), out);
        key::ROUTE.write(request.route_path.as_bytes(), out);
        show_url(request, node.redacts_records, out);
        show_client(request.client.ip, request.peer.ip(), out);
        show_status(entry.status, out);
        custom::write_root(&state.trace, out);
    });
    texts.end();
}

#[inline]
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

/// Returns the beginning of a span below the root, in the space of a whole one.
fn bare_head(ids: &Ids) -> [u8; BARE] {
    let mut bare = [0; BARE];
    bare[..HEAD].copy_from_slice(&head(ids));
    bare
}

impl Base<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        protobuf::bytes(field::NAME, self.name.as_bytes(), out);
        out.extend_from_slice(&times(self.kind, self.start, self.end));
    }
}

/// Returns kind and times of a span, with their tags.
#[inline]
fn times(kind: Kind, start: u64, end: u64) -> [u8; TIMES.len()] {
    let mut times = TIMES;
    times[1] = kind as u8;
    times[3..11].copy_from_slice(&start.to_le_bytes());
    times[12..].copy_from_slice(&end.max(start).to_le_bytes());
    times
}

impl Writer<'_, '_> {
    /// Nanoseconds since 1970 of a time since the start of the request.
    #[inline]
    fn at(&self, after: Duration) -> u64 {
        self.started_at.saturating_add(nanoseconds(after))
    }

    /// Nanoseconds since 1970 of a moment.
    #[inline]
    fn moment(&self, moment: Moment) -> u64 {
        let after = moment.nanoseconds_since(self.started);
        self.started_at.saturating_add(after)
    }

    /// Writes a span below the root that has no attributes, as most have. Returns `false` if it is too long for that.
    #[inline]
    fn bare(
        &mut self,
        id: u64,
        (prefix, name): (&Prefix, &[u8]),
        times: &[u8; TIMES.len()],
    ) -> bool {
        let name_end = HEAD + prefix.text.len() + name.len();
        let end = name_end + TIMES.len();
        if end > BARE {
            return false;
        }
        let out = &mut self.texts.out;
        out.extend_from_slice(&self.head);
        let Some(span) = out.last_chunk_mut::<BARE>() else {
            return false;
        };
        span[1] = (end - 2) as u8;
        span[SPAN].copy_from_slice(&id.to_be_bytes());
        span[HEAD - 1] = (name_end - HEAD) as u8;
        span[HEAD..HEAD + PREFIX].copy_from_slice(&prefix.bytes);
        span[HEAD + prefix.text.len()..name_end].copy_from_slice(name);
        span[name_end..end].copy_from_slice(times);
        out.truncate(out.len() - (BARE - end));
        self.texts.end();
        true
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

    /// Writes a span that the data plane has recorded.
    fn recorded(&mut self, span: &Span, kinds: Instrumentations) {
        let (prefix, name, of) = match &span.kind {
            SpanKind::Router => (&ROUTER, "", Instrumentations::ROUTER),
            SpanKind::Query => (&QUERY, "", Instrumentations::DB_QUERY),
            SpanKind::Plugin { phase, name } => {
                let prefix = match phase {
                    PluginPhase::Rewrite => &REWRITE,
                    PluginPhase::Access => &ACCESS,
                    PluginPhase::HeaderFilter => &HEADER_FILTER,
                };
                (prefix, &**name, phase.instrumentation())
            }
        };
        if !kinds.intersects(of) {
            return;
        }
        let (start, end) = (self.moment(span.start), self.moment(span.end));
        let id = self.more_ids.next_id();
        let times = times(Kind::Internal, start, end);
        if span.details.is_none() && self.bare(id, (prefix, name.as_bytes()), &times) {
            return;
        }
        self.detailed(id, &[prefix.text, name].concat(), (start, end), span);
    }

    /// Writes a span that the data plane has recorded, and that has details or a long name.
    #[cold]
    fn detailed(&mut self, id: u64, name: &str, (start, end): (u64, u64), span: &Span) {
        let base = Base {
            name,
            kind: Kind::Internal,
            start,
            end,
        };
        let details = span.details.as_deref();
        self.child(id, &base, |out| {
            if let Some(statement) = details.and_then(|details| details.statement.as_deref()) {
                key::DB_SYSTEM.write(b"lmdb", out);
                key::STATEMENT.write(statement.as_bytes(), out);
            }
            if let Some(error) = details.and_then(|details| details.error.as_deref()) {
                show_failure(error, base.end, out);
            }
        });
    }

    /// Writes the span of a try, whose number is counted from 1.
    fn attempt(&mut self, number: usize, one: &Try, server: &str, is_last: bool) {
        let base = Base {
            name: "kong.balancer",
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
            name: "kong.dns",
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
            name: "kong.dns",
            kind: Kind::Client,
            start: self.moment(lookup.start),
            end: self.moment(lookup.end),
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

/// The attribute `http.status_code`, with room for a number of two bytes. In front of each text and message are its tag and
/// its length: a `KeyValue` has the key and an `AnyValue`, which has the number.
const STATUS: [u8; 25] = *b"\x4a\x17\x0a\x10http.status_code\x12\x03\x18\0\0";

/// A status has at least three digits, so that its number has two bytes, except for those below 128 in one that is longer
/// than necessary.
#[inline]
pub(super) fn show_status(status: u16, out: &mut Vec<u8>) {
    let mut bytes = STATUS;
    (bytes[23], bytes[24]) = (status as u8 | 0x80, (status >> 7) as u8);
    out.extend_from_slice(&bytes);
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
pub(super) enum Address {
    V4 { digits: [u8; 16], length: usize },
    V6(String),
}

impl Address {
    pub(super) fn of(ip: IpAddr) -> Self {
        let octets = match ip.to_canonical() {
            IpAddr::V4(ip) => ip.octets(),
            IpAddr::V6(ip) => return Self::V6(ip.to_string()),
        };
        let (mut digits, mut end) = ([0; 16], 0);
        for octet in octets {
            let (text, length) = OCTETS[usize::from(octet)];
            digits[end..end + text.len()].copy_from_slice(&text);
            end += usize::from(length);
        }
        let length = end - 1;
        Self::V4 { digits, length }
    }

    pub(super) fn text(&self) -> &[u8] {
        match self {
            Self::V4 { digits, length } => &digits[..*length],
            Self::V6(text) => text.as_bytes(),
        }
    }
}

/// The text of each octet of an address with a dot, and its length.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([0; 4], 0); 256];
    let mut octet = 0;
    while octet < octets.len() {
        let (text, length) = &mut octets[octet];
        let mut unit = 100;
        while unit > 0 {
            if octet >= unit || unit == 1 {
                text[*length as usize] = b'0' + (octet / unit % 10) as u8;
                *length += 1;
            }
            unit /= 10;
        }
        text[*length as usize] = b'.';
        *length += 1;
        octet += 1;
    }
    octets
};

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
