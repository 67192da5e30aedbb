//! The spans of a finished request, written for OTLP. Spans of tries and of name resolution are made from the times that
//! the log phase has anyway.

use super::custom;
use super::protobuf::{self, Attribute, attribute};
use model::EntityKind;
use plugin::trace::{PluginPhase, SpanKind, is_name};
use plugin::{Entity, Instrumentations, LogCx, Request, Try, TryEnd, redact};
use serde::Deserialize;
use std::net::IpAddr;
use std::time::{Duration, Instant, UNIX_EPOCH};

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

/// A span without its attributes.
struct Base<'a> {
    id: u64,
    parent: Option<u64>,
    name: (&'a str, &'a str),
    kind: Kind,
    /// Nanoseconds since 1970.
    start: u64,
    end: u64,
}

/// The part of a route that the root span shows.
#[derive(Debug, Deserialize)]
struct RoutePaths {
    paths: Option<Vec<Box<str>>>,
}

impl Entity for RoutePaths {
    const KIND: EntityKind = EntityKind::Routes;
}

/// The writer of a request's spans.
pub(super) struct Writer<'a, 'c, 'r> {
    pub(super) cx: &'a LogCx<'c, 'r>,
    pub(super) ids: Ids,
    pub(super) kinds: Instrumentations,
    /// The buffer for one span.
    pub(super) out: &'a mut Vec<u8>,
}

impl Writer<'_, '_, '_> {
    /// Passes each span to `push`, with its length in front of it.
    pub(super) fn write(mut self, mut push: impl FnMut(&[u8])) {
        self.root(&mut push);
        self.recorded(&mut push);
        let tries = self.cx.entry.tries;
        for (at, one) in tries.iter().enumerate() {
            if self.kinds.intersects(Instrumentations::DNS_QUERY) {
                self.resolution(at, one, &mut push);
            }
            if self.kinds.intersects(Instrumentations::BALANCER) {
                self.attempt(at, one, at + 1 == tries.len(), &mut push);
            }
        }
        if self.kinds.intersects(Instrumentations::DNS_QUERY) {
            self.failed_resolution(&mut push);
        }
    }

    /// Nanoseconds since 1970 of a time since the start of the request.
    fn at(&self, after: Duration) -> u64 {
        let started = self.cx.entry.started_at.duration_since(UNIX_EPOCH);
        let started = started.unwrap_or_default();
        u64::try_from((started + after).as_nanos()).unwrap_or(u64::MAX)
    }

    fn instant(&self, at: Instant) -> u64 {
        self.at(at.saturating_duration_since(self.cx.request.started))
    }

    fn child<'n>(
        &self,
        name: (&'n str, &'n str),
        kind: Kind,
        (start, end): (u64, u64),
    ) -> Base<'n> {
        Base {
            id: crate::propagation::random_span(),
            parent: Some(self.ids.root),
            name,
            kind,
            start,
            end,
        }
    }

    fn span(
        &mut self,
        base: &Base<'_>,
        push: &mut impl FnMut(&[u8]),
        rest: impl FnOnce(&mut Vec<u8>),
    ) {
        let trace = self.ids.trace;
        let start = protobuf::delimited(self.out, |out| {
            protobuf::bytes(1, &trace.to_be_bytes(), out);
            protobuf::bytes(2, &base.id.to_be_bytes(), out);
            if let Some(parent) = base.parent {
                protobuf::bytes(4, &parent.to_be_bytes(), out);
            }
            let (first, second) = base.name;
            out.push(5 << 3 | 2);
            protobuf::varint((first.len() + second.len()) as u64, out);
            out.extend_from_slice(first.as_bytes());
            out.extend_from_slice(second.as_bytes());
            protobuf::integer(6, base.kind as u64, out);
            protobuf::fixed(7, base.start, out);
            protobuf::fixed(8, base.end.max(base.start), out);
            rest(out);
        });
        push(self.out.get(start..).unwrap_or_default());
    }

    fn root(&mut self, push: &mut impl FnMut(&[u8])) {
        let LogCx {
            request,
            entry,
            node,
            state,
            ..
        } = self.cx;
        let base = Base {
            id: self.ids.root,
            parent: self.ids.parent,
            name: ("kong", ""),
            kind: Kind::Server,
            start: self.at(Duration::ZERO),
            end: self.at(entry.latencies.request),
        };
        // A store that cannot be read is reported by those that need it.
        let route = request.route.and_then(|route| {
            let found = node.entities.by_id::<RoutePaths>(route.id);
            found.ok().flatten()
        });
        let paths = route.as_deref().and_then(|route| route.paths.as_deref());
        let path = paths
            .and_then(|paths| paths.first())
            .map_or("", |path| path);
        self.span(&base, push, |out| {
            let mut text = |key, value: &[u8]| attribute(9, key, Attribute::Text(value), out);
            text("http.method", request.method_bytes());
            text("http.host", request.host.as_bytes());
            text("http.scheme", request.scheme.name().as_bytes());
            text("http.flavor", flavor(request).as_bytes());
            text("kong.request.id", request.request_id.as_bytes());
            text("http.route", path.as_bytes());
            url(request, node.redacts_records, &mut text);
            address("http.client_ip", request.client.ip, &mut text);
            address("net.peer.ip", request.peer.ip(), &mut text);
            attribute(
                9,
                "http.status_code",
                Attribute::Integer(entry.status.into()),
                out,
            );
            custom::write_root(&state.trace, out);
        });
    }

    fn recorded(&mut self, push: &mut impl FnMut(&[u8])) {
        for span in self.cx.state.trace.spans() {
            let (name, kinds) = match &span.kind {
                SpanKind::Router => (("kong.router", ""), Instrumentations::ROUTER),
                SpanKind::Query { .. } => (("kong.database.query", ""), Instrumentations::DB_QUERY),
                SpanKind::Plugin { phase, name, .. } => {
                    let prefix = match phase {
                        PluginPhase::Rewrite => "kong.rewrite.plugin.",
                        PluginPhase::Access => "kong.access.plugin.",
                        PluginPhase::HeaderFilter => "kong.header_filter.plugin.",
                    };
                    ((prefix, name.as_str()), phase.instrumentation())
                }
            };
            if !self.kinds.intersects(kinds) {
                continue;
            }
            let times = (self.instant(span.start), self.instant(span.end));
            let base = self.child(name, Kind::Internal, times);
            self.span(&base, push, |out| {
                if let SpanKind::Query { statement } = &span.kind {
                    attribute(9, "db.system", Attribute::Text(b"lmdb"), out);
                    attribute(
                        9,
                        "db.statement",
                        Attribute::Text(statement.as_bytes()),
                        out,
                    );
                }
                if let Some(error) = &span.error {
                    failure(error, times.1, out);
                }
            });
        }
    }

    fn attempt(&mut self, at: usize, one: &Try, is_last: bool, push: &mut impl FnMut(&[u8])) {
        let server = self.cx.state.trace.server_of_try(at).unwrap_or_default();
        let times = (self.at(one.after), self.at(one.after + one.took));
        let mut base = self.child(("kong.balancer", ""), Kind::Client, times);
        if is_last {
            base.id = self.ids.last_try;
        }
        self.span(&base, push, |out| {
            attribute(9, "try_count", Attribute::Number((at + 1) as f64), out);
            if let Some(socket) = one.address {
                address("net.peer.ip", socket.ip(), |key, value| {
                    attribute(9, key, Attribute::Text(value), out);
                });
                let port = Attribute::Number(socket.port().into());
                attribute(9, "net.peer.port", port, out);
            }
            if !server.is_empty() {
                attribute(9, "net.peer.name", Attribute::Text(server.as_bytes()), out);
            }
            if let TryEnd::Failed(status) = one.end {
                attribute(
                    9,
                    "http.status_code",
                    Attribute::Integer(status.into()),
                    out,
                );
                status_of_error(out);
            }
        });
    }

    /// The time in which the server of a try was found, if it has a name.
    fn resolution(&mut self, at: usize, one: &Try, push: &mut impl FnMut(&[u8])) {
        let server = self.cx.state.trace.server_of_try(at);
        let (Some(server), Some(found)) = (server.filter(|name| is_name(name)), one.address) else {
            return;
        };
        let times = (self.at(one.after), self.at(one.after + one.choosing));
        let base = self.child(("kong.dns", ""), Kind::Client, times);
        self.span(&base, push, |out| {
            attribute(
                9,
                "dns.record.domain",
                Attribute::Text(server.as_bytes()),
                out,
            );
            attribute(
                9,
                "dns.record.port",
                Attribute::Number(found.port().into()),
                out,
            );
            address("dns.record.ip", found.ip(), |key, value| {
                attribute(9, key, Attribute::Text(value), out);
            });
        });
    }

    fn failed_resolution(&mut self, push: &mut impl FnMut(&[u8])) {
        let Some(lookup) = self.cx.state.trace.failed_lookup() else {
            return;
        };
        let times = (self.instant(lookup.start), self.instant(lookup.end));
        let base = self.child(("kong.dns", ""), Kind::Client, times);
        self.span(&base, push, |out| {
            let name = Attribute::Text(lookup.name.as_bytes());
            attribute(9, "dns.record.domain", name, out);
            attribute(
                9,
                "dns.record.port",
                Attribute::Number(lookup.port.into()),
                out,
            );
            failure(&lookup.error, times.1, out);
        });
    }
}

fn flavor(request: &Request<'_>) -> &'static str {
    match request.head.version() {
        _ if request.http2 => "2.0",
        net::http1::Version::Http11 => "1.1",
        net::http1::Version::Http10 => "1.0",
    }
}

/// Passes scheme, host, path and query without a copy on the heap, as long as they are short. With `redacts`, credentials
/// in the query are hidden.
fn url(request: &Request<'_>, redacts: bool, text: &mut impl FnMut(&'static str, &[u8])) {
    let mut url = smallvec::SmallVec::<[u8; 256]>::new();
    url.extend_from_slice(request.scheme.name().as_bytes());
    url.extend_from_slice(b"://");
    url.extend_from_slice(request.host.as_bytes());
    url.extend_from_slice(request.head.path_bytes());
    if let Some(query) = request.head.query_bytes() {
        url.push(b'?');
        match redacts {
            true => redact::query(query, |piece| url.extend_from_slice(piece)),
            false => url.extend_from_slice(query),
        }
    }
    text("http.url", &url);
}

/// Passes an address as a text.
fn address(key: &'static str, ip: IpAddr, mut text: impl FnMut(&'static str, &[u8])) {
    let mut out = smallvec::SmallVec::<[u8; 48]>::new();
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            // The standard library's form is the same, but takes several times as long.
            for (at, part) in ip.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(part).as_bytes());
            }
        }
        IpAddr::V6(ip) => out.extend_from_slice(ip.to_string().as_bytes()),
    }
    text(key, &out);
}

/// Writes the event `exception` and the status of an error.
fn failure(error: &str, at: u64, out: &mut Vec<u8>) {
    protobuf::message(11, out, |out| {
        protobuf::fixed(1, at, out);
        protobuf::bytes(2, b"exception", out);
        attribute(
            3,
            "exception.message",
            Attribute::Text(error.as_bytes()),
            out,
        );
    });
    status_of_error(out);
}

fn status_of_error(out: &mut Vec<u8>) {
    protobuf::bytes(15, &[3 << 3, 2], out);
}
