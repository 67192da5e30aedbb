//! Builds the access-log entries of finished requests and streams.

use super::Connection;
use super::plane::DataPlane;
use super::worker;
use crate::access_log::{Facts, Headers, RequestLine};
use model::entities::Consumer;
use net::http1::{RequestHead, Version};
use plugin::{Client, EntityRef, Latencies, LogEntry, Reason, Request, RequestState, Try};
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum bytes logged of a request line that could not be parsed.
pub(super) const MAX_LINE_BYTES: usize = 2048;

impl Connection {
    /// Logs a finished request. `plugin` is the plugin that responded in the access phase or failed there, if there is
    /// one.
    pub(super) fn log_access(
        &self,
        request: &Request<'_>,
        state: Option<&RequestState>,
        entry: &LogEntry<'_>,
        plugin: Option<&str>,
    ) {
        if self.plane.settings.access_log.is_none() {
            return;
        }
        let Client { ip, port } = request.client;
        let (mut route, mut service, mut consumer) = ([0; 36], [0; 36], [0; 36]);
        let facts = Facts {
            client: SocketAddr::new(ip, port),
            host: request.host,
            request: line_of(request.head, request.http2),
            headers: request.head,
            upstream_status: entry.upstream_status,
            tries: entry.tries,
            latencies: entry.latencies,
            request_size: entry.request_size,
            route: name_of(request.route, &mut route),
            service: name_of(request.service, &mut service),
            consumer: name_of_consumer(
                state.and_then(|state| state.consumer.as_deref()),
                &mut consumer,
            ),
            sent_head: entry.response_head,
            trace_id: state.and_then(|state| state.trace.id),
            local: request.local,
            tls: request.tls,
            sni: request.sni.unwrap_or_default(),
            connection_requests: request.connection_requests.into(),
            plugin: plugin.unwrap_or_default(),
            reason: entry.reason,
            ..self.facts(&(), request.request_id, entry.status)
        };
        worker::with(|worker| worker.log_access(&facts));
    }

    /// Logs a request that was refused before it was routed. `sent` begins with its request line.
    pub(super) fn log_refused(&self, sent: &[u8], status: u16, reason: Reason, request_id: &str) {
        if self.plane.settings.access_log.is_none() {
            return;
        }
        let facts = Facts {
            request: RequestLine::Raw(first_line(sent)),
            reason: Some(reason),
            ..self.facts(&(), request_id, status)
        };
        worker::with(|worker| worker.log_access(&facts));
    }

    /// The facts that are known about every request.
    fn facts<'a>(
        &'a self,
        headers: &'a dyn Headers,
        request_id: &'a str,
        status: u16,
    ) -> Facts<'a> {
        let arrival = &*self.arrival;
        Facts {
            client: arrival.peer,
            peer: arrival.peer,
            scheme: arrival.scheme.name(),
            port: arrival.port,
            headers,
            request_id,
            status,
            request_size: self.received,
            response_size: self.out.sent(),
            response_head: self.head_size,
            ..Facts::default()
        }
    }
}

/// A finished TCP or UDP session, for the log.
pub(super) struct EndedStream<'s> {
    /// `TCP` or `UDP`.
    pub(super) protocol: &'static str,
    pub(super) client: SocketAddr,
    /// Port of the listener, mapped by `port_maps`.
    pub(super) port: u16,
    /// Status that Kong logs for this outcome.
    pub(super) status: u16,
    /// Bytes received from the client.
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) took: Duration,
    pub(super) route: Option<EntityRef<'s>>,
    pub(super) service: Option<EntityRef<'s>>,
    pub(super) sni: &'s str,
    pub(super) tries: &'s [Try],
    /// The plugin that has ended the session, or has failed.
    pub(super) plugin: &'s str,
    /// Why the gateway has ended the session.
    pub(super) reason: Option<Reason>,
}

pub(super) fn log_stream(plane: &DataPlane, stream: &EndedStream<'_>) {
    if plane.settings.stream_log.is_none() {
        return;
    }
    let (mut route, mut service) = ([0; 36], [0; 36]);
    let facts = Facts {
        client: stream.client,
        peer: stream.client,
        port: stream.port,
        request: RequestLine::Stream {
            protocol: stream.protocol,
        },
        status: stream.status,
        latencies: Latencies {
            request: stream.took,
            ..Latencies::default()
        },
        request_size: stream.received,
        response_size: stream.sent,
        route: name_of(stream.route, &mut route),
        service: name_of(stream.service, &mut service),
        sni: stream.sni,
        tries: stream.tries,
        plugin: stream.plugin,
        reason: stream.reason,
        ..Facts::default()
    };
    worker::with(|worker| worker.log_access(&facts));
}

fn line_of(head: &RequestHead, http2: bool) -> RequestLine<'_> {
    RequestLine::Parsed {
        method: head.method_bytes(),
        target: head.target_bytes(),
        version: match http2 {
            true => "HTTP/2.0",
            false => version_of(head),
        },
    }
}

pub(super) fn version_of(head: &RequestHead) -> &'static str {
    match head.version() {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
    }
}

/// Returns the entity's name, or its id (written to `id`) if it has no name.
fn name_of<'a>(entity: Option<EntityRef<'a>>, id: &'a mut [u8; 36]) -> &'a str {
    match entity {
        None => "",
        Some(EntityRef {
            name: Some(name), ..
        }) => name,
        Some(EntityRef { id: number, .. }) => number.hyphenated().encode_lower(id),
    }
}

/// Returns the consumer's username, or its id (written to `id`) if it has no username.
fn name_of_consumer<'a>(consumer: Option<&'a Consumer>, id: &'a mut [u8; 36]) -> &'a str {
    match consumer {
        None => "",
        Some(Consumer {
            username: Some(name),
            ..
        }) => name,
        Some(Consumer { id: number, .. }) => number.0.hyphenated().encode_lower(id),
    }
}

fn first_line(sent: &[u8]) -> &[u8] {
    let end = memchr::memchr2(b'\r', b'\n', sent).unwrap_or(sent.len());
    &sent[..end.min(MAX_LINE_BYTES)]
}
