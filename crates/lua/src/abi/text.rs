//! Single values of the request, the response and the node.

use super::{Cx, FOUND, NO_REQUEST, NONE, length};
use crate::target::Raw;
use model::EntityKind;
use net::http1::{Framing, Version};
use plugin::{EntityRef, Origin, Request, RequestBody};
use std::io::Write;
use std::time::UNIX_EPOCH;

super::numbered! {
    /// A value that [`get`] returns.
    pub(super) enum Value {
        Method = "method",
        Scheme = "scheme",
        Host = "host",
        Port = "port",
        HttpVersion = "http_version",
        Path = "path",
        RawQuery = "raw_query",
        Target = "target",
        UpstreamPath = "upstream_path",
        UpstreamQuery = "upstream_query",
        RequestId = "request_id",
        ClientIp = "client_ip",
        ClientPort = "client_port",
        PeerIp = "peer_ip",
        PeerPort = "peer_port",
        Sni = "sni",
        Body = "body",
        BodyState = "body_state",
        RouteId = "route_id",
        RouteName = "route_name",
        ServiceId = "service_id",
        ServiceName = "service_name",
        PluginId = "plugin_id",
        Consumer = "consumer",
        Credential = "credential",
        Status = "status",
        Source = "source",
        UpstreamStatus = "upstream_status",
        UpstreamBody = "upstream_body",
        Chunk = "chunk",
        IsLast = "is_last",
        StartTime = "start_time",
        Now = "now",
        NodeId = "node_id",
        Hostname = "hostname",
        IsGrpc = "is_grpc",
        Stripped = "stripped",
        ReceivedMethod = "received_method",
        Http2 = "http2",
        Route = "route",
        Service = "service",
        TlsVersion = "tls_version",
        WorkerPid = "worker_pid",
        ReceivedQuery = "received_query",
        TrustedPeer = "trusted_peer",
        ConsumerId = "consumer_id",
        IsTls = "is_tls",
        VmMemory = "vm_memory",
        Workspace = "workspace",
        ConnectionsActive = "connections_active",
        ConnectionsReading = "connections_reading",
        ConnectionsWriting = "connections_writing",
        ConnectionsWaiting = "connections_waiting",
        ConnectionsAccepted = "connections_accepted",
        TotalRequests = "total_requests",
        WorkerId = "worker_id",
        WorkerCount = "worker_count",
        Configuration = "configuration",
        IsInternal = "is_internal",
    }
}

/// Returns the value with this number. A text goes to `ptr`, a number to `number`; what is true or false is the result.
pub(super) fn get(cx: &mut Cx, number: i32) -> i32 {
    let Some(value) = Value::numbered(number) else {
        return NONE;
    };
    let target = cx.target;
    let Some(request) = target.request() else {
        return without_request(cx, &target, value);
    };
    match value {
        Value::Method => cx.text(request.method_bytes()),
        Value::ReceivedMethod => cx.text(request.head.method_bytes()),
        Value::Scheme => cx.text(request.scheme.name().as_bytes()),
        // The name of Kong's server, which nginx uses in place of an absent host.
        Value::Host if request.host.is_empty() => cx.text(b"kong"),
        Value::Host => cx.text(request.host.as_bytes()),
        Value::Port => cx.number(request.port.into()),
        Value::HttpVersion if request.http2 => cx.number(2.0),
        Value::HttpVersion => cx.number(match request.head.version() {
            Version::Http11 => 1.1,
            Version::Http10 => 1.0,
        }),
        Value::Http2 => i32::from(request.http2),
        Value::Path => cx.text(request.head.path_bytes()),
        Value::Target => cx.text(request.head.target_bytes()),
        Value::RawQuery => cx.text(request.query()),
        Value::TrustedPeer => {
            let trusts = target
                .node()
                .is_some_and(|node| node.trusts(request.peer.ip()));
            i32::from(trusts)
        }
        Value::ConsumerId => {
            let consumer = target.state().and_then(|state| state.consumer.as_ref());
            id(cx, consumer.map(|consumer| consumer.id.0))
        }
        Value::IsTls => i32::from(request.tls.is_some()),
        Value::StartTime => {
            let started = cx.wall.at(request.started);
            cx.number((started.as_secs_f64() * 1000.0).floor() / 1000.0)
        }
        Value::ReceivedQuery => cx.text(request.head.query_bytes().unwrap_or_default()),
        Value::UpstreamPath => cx.text(request.upstream_path()),
        Value::UpstreamQuery => cx.text_or_none(request.upstream_query()),
        Value::RequestId => cx.text(request.request_id.as_bytes()),
        Value::ClientIp => shown(cx, request.client.ip),
        Value::ClientPort => cx.number(request.client.port.into()),
        Value::PeerIp => shown(cx, request.peer.ip()),
        Value::PeerPort => cx.number(request.peer.port().into()),
        Value::Sni => cx.text_or_none(request.sni.map(str::as_bytes)),
        Value::TlsVersion => cx.text_or_none(request.tls.map(|tls| tls.version.as_bytes())),
        Value::Stripped => cx.text_or_none(request.routed.stripped()),
        Value::IsGrpc => i32::from(request.is_grpc),
        Value::IsInternal => {
            let state = target.state();
            i32::from(state.is_some_and(|state| state.internal_path.is_some()))
        }
        Value::Body => cx.text_or_none(request.body_bytes().map(|body| &**body)),
        Value::BodyState => match (&request.upstream.body, &request.body) {
            (None, RequestBody::Whole(body)) if is_on_disk(&target, request, body.len()) => 4,
            (Some(_), _) | (None, RequestBody::Whole(_)) => 1,
            (None, RequestBody::Unread) => 0,
            (None, RequestBody::TooLarge) => 2,
            (None, RequestBody::Streamed) => 3,
        },
        Value::RouteId => id(cx, request.route.map(|route| route.id)),
        Value::ServiceId => id(cx, request.service.map(|service| service.id)),
        Value::RouteName => {
            let name = request.route.and_then(|route| route.name);
            cx.text_or_none(name.map(str::as_bytes))
        }
        Value::ServiceName => {
            let name = request.service.and_then(|service| service.name);
            cx.text_or_none(name.map(str::as_bytes))
        }
        Value::Route => entity(cx, &target, EntityKind::Routes, request.route),
        Value::Service => entity(cx, &target, EntityKind::Services, request.service),
        Value::PluginId => {
            let name = target
                .configured()
                .and_then(|configured| configured.name(request));
            id(cx, name.map(|name| name.id.0))
        }
        Value::Credential => {
            let credential = target.state().and_then(|state| state.credential.as_ref());
            id(cx, credential.map(|credential| credential.id))
        }
        Value::Consumer => consumer(cx, &target),
        _ => match of_node(cx, &target, value) {
            Some(code) => code,
            None => of_response(cx, &target, value),
        },
    }
}

/// Whether nginx would have written a body of this size to disk, because it does not fit into its buffer
/// (`client_body_buffer_size`). If the length is known, the buffer may be a quarter larger.
/// Source: nginx, ngx_http_read_client_request_body().
fn is_on_disk(target: &Raw, request: &Request<'_>, size: usize) -> bool {
    let buffer = target.node().map_or(usize::MAX, |node| node.body_buffer);
    match request.head.framing() {
        Framing::Length(_) if !request.http2 => size >= buffer.saturating_add(buffer / 4),
        _ => size > buffer,
    }
}

/// Returns a value of a handshake or of the node.
fn without_request(cx: &mut Cx, target: &Raw, value: Value) -> i32 {
    let Some(handshake) = target.certificate() else {
        return of_node(cx, target, value).unwrap_or(NO_REQUEST);
    };
    match value {
        Value::Sni => cx.text_or_none(handshake.sni.map(str::as_bytes)),
        Value::ClientIp => shown(cx, handshake.client.ip),
        Value::PeerIp => shown(cx, handshake.peer.ip()),
        Value::ClientPort => cx.number(handshake.client.port.into()),
        Value::PeerPort => cx.number(handshake.peer.port().into()),
        Value::PluginId => {
            let name = handshake.configured.global_name();
            id(cx, name.map(|name| name.id.0))
        }
        _ => of_node(cx, target, value).unwrap_or(NO_REQUEST),
    }
}

fn of_node(cx: &mut Cx, target: &Raw, value: Value) -> Option<i32> {
    Some(match value {
        Value::NodeId => match target.node() {
            Some(node) => cx.text(node.identity.id.as_bytes()),
            None => NONE,
        },
        Value::Hostname => match target.node() {
            Some(node) => cx.text(node.identity.hostname.as_bytes()),
            None => NONE,
        },
        Value::Now => {
            let now = match target.node() {
                Some(node) => node.clock.since_epoch(),
                None => std::time::SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap_or_default(),
            };
            cx.number(now.as_secs_f64())
        }
        Value::ConnectionsActive
        | Value::ConnectionsReading
        | Value::ConnectionsWriting
        | Value::ConnectionsWaiting
        | Value::ConnectionsAccepted
        | Value::TotalRequests => {
            let counts = target
                .node()
                .map(|node| node.count_connections())
                .unwrap_or_default();
            let count = match value {
                Value::ConnectionsActive => counts.active,
                Value::ConnectionsReading => counts.reading,
                Value::ConnectionsWriting => counts.writing,
                Value::ConnectionsWaiting => counts.waiting,
                Value::ConnectionsAccepted => counts.accepted,
                _ => counts.requests,
            };
            cx.number(count as f64)
        }
        Value::VmMemory => cx.number(cx.memory_used as f64),
        Value::Workspace => match target.node() {
            Some(node) => shown(cx, node.entities.workspace().hyphenated()),
            None => NONE,
        },
        Value::WorkerId => match target.node().and_then(|node| node.workers.here()) {
            Some(worker) => cx.number(worker as f64),
            None => NONE,
        },
        Value::WorkerCount => match target.node() {
            Some(node) => cx.number(node.workers.running().len() as f64),
            None => NONE,
        },
        Value::Configuration => match target.node() {
            Some(node) => cx.text(node.configuration.as_bytes()),
            None => NONE,
        },
        Value::WorkerPid => cx.number(std::process::id().into()),
        _ => return None,
    })
}

fn of_response(cx: &mut Cx, target: &Raw, value: Value) -> i32 {
    match value {
        Value::Status => match (target.answer(), target.entry()) {
            (Some(answer), _) => cx.number(answer.status.into()),
            (None, Some(entry)) => cx.number(entry.status.into()),
            (None, None) => NONE,
        },
        Value::Source => {
            let origin = target.answer().map(|answer| answer.origin);
            match origin.or(target.entry().map(|entry| entry.origin)) {
                Some(Origin::Upstream) => cx.text(b"service"),
                Some(Origin::Plugin) => cx.text(b"exit"),
                Some(Origin::Gateway) => cx.text(b"error"),
                None => NONE,
            }
        }
        Value::UpstreamStatus => {
            let head = target.upstream().map(|head| head.status());
            let logged = target.entry().and_then(|entry| entry.upstream_status);
            let failed = target
                .answer()
                .filter(|answer| answer.origin == Origin::Gateway);
            match (head.or(logged), failed.map(|answer| answer.status)) {
                (Some(status), _) => cx.number(status.into()),
                // nginx notes these for an upstream that does not answer.
                (None, Some(status @ (502 | 504))) => cx.number(status.into()),
                (None, _) => NONE,
            }
        }
        Value::UpstreamBody => {
            let logged = target.entry().and_then(|entry| entry.upstream_body);
            cx.text_or_none(target.upstream_body().or(logged).map(|body| &**body))
        }
        Value::Chunk => match target.chunk() {
            Some(chunk) => cx.text(&chunk.data),
            None => NONE,
        },
        Value::IsLast => match target.chunk() {
            Some(chunk) => i32::from(chunk.last),
            None => NONE,
        },
        _ => NONE,
    }
}

fn shown(cx: &mut Cx, value: impl std::fmt::Display) -> i32 {
    cx.made(|out| {
        let _ = write!(out, "{value}");
    })
}

fn id(cx: &mut Cx, id: Option<uuid::Uuid>) -> i32 {
    id.map_or(NONE, |id| shown(cx, id.hyphenated()))
}

/// Returns an entity as JSON, without fields that have no value.
fn entity(cx: &mut Cx, target: &Raw, kind: EntityKind, entity: Option<EntityRef<'_>>) -> i32 {
    let (Some(entity), Some(node)) = (entity, target.node()) else {
        return NONE;
    };
    match node.entities.logged(kind, entity.id) {
        Ok(Some(text)) => cx.made(|out| out.extend_from_slice(&text)),
        Ok(None) | Err(_) => NONE,
    }
}

/// Returns the consumer as JSON.
fn consumer(cx: &mut Cx, target: &Raw) -> i32 {
    let consumer = target.state().and_then(|state| state.consumer.as_deref());
    let (Some(consumer), Some(node)) = (consumer, target.node()) else {
        return NONE;
    };
    match node.entities.logged(EntityKind::Consumers, consumer.id.0) {
        Ok(Some(text)) => cx.made(|out| out.extend_from_slice(&text)),
        Ok(None) | Err(_) => NONE,
    }
}

/// Returns the first value of a header: 0 is the request's, 1 the response's, 2 the upstream's.
pub(super) fn header(cx: &mut Cx, of: i32, name: &[u8]) -> i32 {
    // Most calls end here, before the target is copied.
    if of == 0
        && let Some(request) = cx.target.request()
        && let Some(value) = plain_line(request, name)
    {
        (cx.ptr, cx.len) = (value.as_ptr(), length(value));
        return FOUND;
    }
    let target = cx.target;
    if of == 0 {
        return match target.request() {
            Some(request) => request_header(cx, request, name),
            None => NO_REQUEST,
        };
    }
    let Ok(name) = std::str::from_utf8(name) else {
        return NONE;
    };
    match of {
        1 => super::list::response_header(cx, &target, name),
        _ => match target.upstream() {
            Some(head) => cx.text_or_none(head.header(name)),
            None => NONE,
        },
    }
}

/// Returns the first line of a header by its own name, unless the value is not that of one line.
fn plain_line<'r>(request: &'r Request<'_>, name: &[u8]) -> Option<&'r [u8]> {
    let is_made =
        name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"cookie");
    if is_made {
        return None;
    }
    request.every_header_line(name).next()
}

/// Returns the value of a header of the request that [`plain_line`] does not have, as nginx's variables do: cookies are
/// joined, and underscores are like dashes if no header has the name itself.
fn request_header(cx: &mut Cx, request: &Request<'_>, name: &[u8]) -> i32 {
    if name.eq_ignore_ascii_case(b"content-length")
        && let Some(body) = &request.upstream.body
    {
        return shown(cx, body.len());
    }
    if name.eq_ignore_ascii_case(b"cookie") {
        let lines: Vec<&[u8]> = request.every_header_line(name).collect();
        return match lines.is_empty() {
            true => NONE,
            false => cx.made(|out| out.extend_from_slice(&lines.join(&b"; "[..]))),
        };
    }
    if !name.iter().any(|byte| matches!(byte, b'-' | b'_')) {
        return NONE;
    }
    let edits = &request.upstream.headers;
    let mut read = request.head.fields();
    let read = read.find(|(_, other, _)| is_same_with_dashes(other, name) && !edits.drops(other));
    let mut added = edits.added();
    let mut added = || added.find(|(other, _)| is_same_with_dashes(other.as_bytes(), name));
    let found = read.map(|(_, _, value)| value);
    cx.text_or_none(found.or_else(|| added().map(|(_, value)| value)))
}

/// Whether two names are equal if underscores are dashes.
fn is_same_with_dashes(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let dashed = |byte: u8| match byte {
        b'_' => b'-',
        _ => byte.to_ascii_lowercase(),
    };
    let mut pairs = one.iter().zip(other);
    pairs.all(|(a, b)| dashed(*a) == dashed(*b))
}
