//! The log record of a request: the JSON object of Kong's `kong.log.serialize`, written in one pass. Source:
//! kong/pdk/log.lua.

use super::json::milliseconds;
use super::{LogCx, LogEntry, Reason, RecordError, Try, TryEnd, entity, fields, headers, json};
use crate::args::{self, Arg, MAX_ARGS};
use crate::node::Node;
use crate::redact;
use crate::request::{Consumer, EntityRef, Request, RequestState};
use crate::response::Origin;
use crate::stream::TlsInfo;
use crate::trace::Trace;
use bytes::Bytes;
use model::EntityKind;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Capacity above which the buffer of a worker is freed.
const KEPT_CAPACITY: usize = 64 * 1024;

thread_local! {
    /// The record that is being written. Its memory is reused, so that it is in the cache.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl LogCx<'_, '_> {
    /// Returns the log record of the request, with the fields that plugins have set.
    pub fn record(&self) -> Result<Bytes, RecordError> {
        self.with_record(Bytes::copy_from_slice)
    }

    /// Writes the log record of the request as [`Self::record`] does, and passes it to `take` without a copy.
    pub fn with_record<T>(&self, take: impl FnOnce(&[u8]) -> T) -> Result<T, RecordError> {
        written(take, |out| {
            write(self, out);
            fields::finish(&self.state.log_fields, out)
        })
    }
}

pub(super) fn written<T>(
    take: impl FnOnce(&[u8]) -> T,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), RecordError>,
) -> Result<T, RecordError> {
    // The buffer is taken out and put back, so that nothing is borrowed while the record is written.
    let mut buffer = BUFFER.take();
    buffer.clear();
    let result = write(&mut buffer).map(|()| take(&buffer));
    if buffer.capacity() <= KEPT_CAPACITY {
        BUFFER.set(buffer);
    }
    result
}

/// Writes the record without its last bracket.
fn write(cx: &LogCx<'_, '_>, out: &mut Vec<u8>) {
    let LogCx {
        request,
        state,
        node,
        entry,
        ..
    } = cx;
    let entities = &*node.entities;
    let redacts = node.redacts_records;
    let started_at = since_epoch(entry.started_at);
    out.push(b'{');
    write_request(request, entry, redacts, out);
    out.extend_from_slice(br#","upstream_uri":""#);
    write_upstream_uri(request, entry, redacts, out);
    out.extend_from_slice(br#"","upstream_status":""#);
    write_upstream_status(entry.tries, out);
    out.extend_from_slice(br#"","response":{"status":"#);
    json::number(entry.status, out);
    out.extend_from_slice(br#","headers":"#);
    headers::write_response(entry.response_head, redacts, out);
    out.extend_from_slice(br#","size":"#);
    json::number(entry.response_size, out);
    out.push(b'}');
    write_latencies(entry, out);
    if request.route.is_some() {
        write_tries(entry.tries, started_at, None, out);
    }
    write_credential(state, out);
    write_entities(
        entities,
        (request.route, request.service),
        state.consumer.as_deref(),
        out,
    );
    out.extend_from_slice(br#","client_ip":"#);
    json::address(request.client.ip, out);
    write_started_at(started_at, out);
    out.extend_from_slice(match entry.origin {
        Origin::Upstream => br#","source":"upstream""#,
        Origin::Gateway | Origin::Plugin => br#","source":"kong""#,
    });
    write_reason(node, entry.reason, out);
    write_workspace(entities, out);
    if state.trace.is_shown() {
        write_trace_id(&state.trace, out);
    }
}

fn write_trace_id(trace: &Trace, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","trace_id":{"#);
    for (at, (name, id)) in trace.forms().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::string(name.as_bytes(), out);
        out.push(b':');
        json::string(id.as_bytes(), out);
    }
    out.push(b'}');
}

fn write_request(request: &Request<'_>, entry: &LogEntry<'_>, redacts: bool, out: &mut Vec<u8>) {
    let (head, _) = request.head.located();
    let is_plain = json::is_plain_head(head);
    out.extend_from_slice(br#""request":{"id":"#);
    json::string(request.request_id.as_bytes(), out);
    out.extend_from_slice(br#","uri":""#);
    let start = out.len();
    write_text(request.head.path_bytes(), is_plain, out);
    if let Some(query) = request.head.query_bytes() {
        write_raw_query(query, is_plain, redacts, out);
    }
    let uri = start..out.len();
    out.extend_from_slice(br#"","url":""#);
    out.extend_from_slice(request.scheme.name().as_bytes());
    out.extend_from_slice(b"://");
    json::escaped(request.host.as_bytes(), out);
    out.push(b':');
    json::number(request.port, out);
    out.extend_from_within(uri);
    out.extend_from_slice(br#"","querystring":"#);
    match &request.upstream.query {
        Some(query) => write_query(query, false, redacts, out),
        None => write_query(
            request.head.query_bytes().unwrap_or_default(),
            is_plain,
            redacts,
            out,
        ),
    }
    out.extend_from_slice(br#","method":""#);
    // A method of the client is a token.
    write_text(
        request.method_bytes(),
        request.upstream.method.is_none(),
        out,
    );
    out.extend_from_slice(br#"","headers":"#);
    headers::write_request(request, is_plain, redacts, out);
    out.extend_from_slice(br#","size":"#);
    json::number(entry.request_size, out);
    write_tls(request.tls, out);
    out.push(b'}');
}

/// Writes a part of a string, which may be known to need no escapes.
#[inline]
fn write_text(text: &[u8], is_plain: bool, out: &mut Vec<u8>) {
    match is_plain {
        true => out.extend_from_slice(text),
        false => json::escaped(text, out),
    }
}

/// Writes a query as it is in a URI.
fn write_raw_query(query: &[u8], is_plain: bool, redacts: bool, out: &mut Vec<u8>) {
    out.push(b'?');
    match redacts {
        false => write_text(query, is_plain, out),
        true => redact::query(query, |piece| write_text(piece, is_plain, out)),
    }
}

/// Writes the path and the query for the upstream. A request without a route has none.
fn write_upstream_uri(
    request: &Request<'_>,
    entry: &LogEntry<'_>,
    redacts: bool,
    out: &mut Vec<u8>,
) {
    if entry.upstream_path.is_empty() {
        return;
    }
    json::escaped(entry.upstream_path, out);
    if let Some(query) = request.upstream_query() {
        write_raw_query(query, false, redacts, out);
    }
}

/// Writes the status of each try, as nginx's `$upstream_status`.
fn write_upstream_status(tries: &[Try], out: &mut Vec<u8>) {
    for (at, one) in contacted(tries).enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        match one.end {
            TryEnd::Answered(status) | TryEnd::Failed(status) => json::number(status, out),
            TryEnd::Abandoned => out.push(b'-'),
        }
    }
}

/// The tries that had an address. Kong does not count the others.
fn contacted(tries: &[Try]) -> impl Iterator<Item = &Try> {
    tries.iter().filter(|one| one.address.is_some())
}

fn write_latencies(entry: &LogEntry<'_>, out: &mut Vec<u8>) {
    let latencies = &entry.latencies;
    out.extend_from_slice(br#","latencies":{"kong":"#);
    json::number(milliseconds(latencies.gateway), out);
    out.extend_from_slice(br#","proxy":"#);
    match latencies.upstream {
        Some(upstream) => json::number(milliseconds(upstream), out),
        None => out.extend_from_slice(b"-1"),
    }
    out.extend_from_slice(br#","request":"#);
    json::number(milliseconds(latencies.request), out);
    out.extend_from_slice(br#","receive":"#);
    let receive = latencies
        .upstream
        .map_or(Duration::ZERO, |_| latencies.receive);
    json::number(milliseconds(receive), out);
    out.push(b'}');
}

/// Writes the tries. `failed` is the code of a failed try, if it is not the status.
pub(super) fn write_tries(
    tries: &[Try],
    started_at: Duration,
    failed: Option<u16>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(br#","tries":["#);
    let mut is_first = true;
    for one in tries {
        let Some(address) = one.address else {
            continue;
        };
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        let began = started_at.saturating_add(one.after);
        out.extend_from_slice(br#"{"balancer_start":"#);
        json::time(began, br#","balancer_start_ns":"#, out);
        out.extend_from_slice(br#","ip":"#);
        json::address(address.ip(), out);
        out.extend_from_slice(br#","port":"#);
        json::number(address.port(), out);
        out.extend_from_slice(br#","balancer_latency":"#);
        json::time(one.choosing, br#","balancer_latency_ns":"#, out);
        if let TryEnd::Failed(status) = one.end {
            out.extend_from_slice(br#","state":"failed","code":"#);
            json::number(failed.unwrap_or(status), out);
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_credential(state: &RequestState, out: &mut Vec<u8>) {
    let Some(credential) = &state.credential else {
        return;
    };
    out.extend_from_slice(br#","authenticated_entity":{"#);
    let told = state.told_credential();
    match told.map(|told| told.text.as_deref()) {
        None => {
            out.extend_from_slice(br#""id":"#);
            json::id(credential.id, out);
        }
        Some(Some(text)) => {
            out.extend_from_slice(br#""id":"#);
            json::string(text.as_bytes(), out);
        }
        Some(None) => {}
    }
    if let Some((told, consumer)) = told.and_then(|told| Some((told, told.consumer?))) {
        if told.text.is_some() {
            out.push(b',');
        }
        out.extend_from_slice(br#""consumer_id":"#);
        json::id(consumer, out);
    }
    out.push(b'}');
}

pub(super) fn write_entities(
    entities: &dyn crate::Entities,
    (route, service): (Option<EntityRef<'_>>, Option<EntityRef<'_>>),
    consumer: Option<&Consumer>,
    out: &mut Vec<u8>,
) {
    if let Some(route) = route {
        out.extend_from_slice(br#","route":"#);
        entity::write_reference(entities, EntityKind::Routes, route, out);
    }
    if let Some(service) = service {
        out.extend_from_slice(br#","service":"#);
        entity::write_reference(entities, EntityKind::Services, service, out);
    }
    if let Some(consumer) = consumer {
        out.extend_from_slice(br#","consumer":"#);
        entity::write_consumer(entities, consumer, out);
    }
}

pub(super) fn write_tls(tls: Option<&TlsInfo>, out: &mut Vec<u8>) {
    let Some(tls) = tls else {
        return;
    };
    out.extend_from_slice(br#","tls":{"version":"#);
    json::string(tls.version.as_bytes(), out);
    out.extend_from_slice(br#","cipher":"#);
    json::string(tls.cipher.as_bytes(), out);
    out.extend_from_slice(br#","client_verify":"#);
    json::string(tls.client_verify.as_bytes(), out);
    out.push(b'}');
}

/// Writes the reason if that is wanted (`log_record_reason`).
pub(super) fn write_reason(node: &Node, reason: Option<Reason>, out: &mut Vec<u8>) {
    if let Some(reason) = reason.filter(|_| node.records_reason) {
        out.extend_from_slice(br#","reason":"#);
        json::string(reason.name().as_bytes(), out);
    }
}

pub(super) fn write_started_at(started_at: Duration, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","started_at":"#);
    json::number(milliseconds(started_at), out);
}

pub(super) fn write_workspace(entities: &dyn crate::Entities, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","workspace":"#);
    json::id(entities.workspace(), out);
    out.extend_from_slice(br#","workspace_name":"default""#);
}

/// Writes the arguments of a query, which may be known to need no escapes before it is decoded.
fn write_query(query: &[u8], is_plain: bool, redacts: bool, out: &mut Vec<u8>) {
    if query.is_empty() {
        return out.extend_from_slice(b"{}");
    }
    let is_plain = is_plain && memchr::memchr2(b'%', b'+', query).is_none();
    if !query.contains(&b'&') {
        return write_only_arg(args::parse(query).next(), is_plain, redacts, out);
    }
    let args: SmallVec<[Arg<'_>; 8]> = args::parse(query).collect();
    debug_assert!(args.len() <= MAX_ARGS, "which limits the comparisons");
    write_grouped(
        args.len(),
        |one, other| args[one].name == args[other].name,
        |at, out| write_string(&args[at].name, is_plain, out),
        |at, out| write_arg_value(&args[at], is_plain, redacts, out),
        out,
    );
}

fn write_only_arg(arg: Option<Arg<'_>>, is_plain: bool, redacts: bool, out: &mut Vec<u8>) {
    out.push(b'{');
    if let Some(arg) = arg {
        write_string(&arg.name, is_plain, out);
        out.push(b':');
        write_arg_value(&arg, is_plain, redacts, out);
    }
    out.push(b'}');
}

fn write_arg_value(arg: &Arg<'_>, is_plain: bool, redacts: bool, out: &mut Vec<u8>) {
    match &arg.value {
        Some(_) if redacts && redact::is_secret_field(&arg.name) => {
            json::string(redact::REDACTED, out);
        }
        Some(value) => write_string(value, is_plain, out),
        None => out.extend_from_slice(b"true"),
    }
}

fn write_string(text: &[u8], is_plain: bool, out: &mut Vec<u8>) {
    out.push(b'"');
    write_text(text, is_plain, out);
    out.push(b'"');
}

/// Writes at most 128 names with their values as an object. A name that occurs several times gets a list.
pub(super) fn write_grouped(
    count: usize,
    is_same: impl Fn(usize, usize) -> bool,
    write_name: impl Fn(usize, &mut Vec<u8>),
    write_value: impl Fn(usize, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let mut written = 0_u128;
    for at in 0..count {
        if written >> at & 1 == 1 {
            continue;
        }
        if at > 0 {
            out.push(b',');
        }
        write_name(at, out);
        out.push(b':');
        let mut is_list = false;
        for other in at + 1..count {
            // Most names differ, so that this is asked first.
            if is_same(at, other) && written >> other & 1 == 0 {
                written |= 1 << other;
                if !std::mem::replace(&mut is_list, true) {
                    out.push(b'[');
                    write_value(at, out);
                }
                out.push(b',');
                write_value(other, out);
            }
        }
        match is_list {
            true => out.push(b']'),
            false => write_value(at, out),
        }
    }
    out.push(b'}');
}

pub(super) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
