//! The log record of a request: the JSON object of Kong's `kong.log.serialize`, written in one pass. Source:
//! kong/pdk/log.lua.

use super::{LogCx, LogEntry, RecordError, Try, TryEnd, entity, fields, json};
use crate::args::{self, Arg, MAX_ARGS};
use crate::request::{Consumer, Credential, EntityRef, Request};
use crate::response::Origin;
use crate::stream::TlsInfo;
use bytes::Bytes;
use model::EntityKind;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of headers of a request, and of a response, that a record shows (`lua_max_req_headers` and
/// `lua_max_resp_headers` in Kong).
const MAX_HEADERS: usize = 100;
/// Capacity above which the buffer of a worker is freed.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Headers whose values records do not show.
const REDACTED: [&[u8]; 2] = [b"authorization", b"proxy-authorization"];

thread_local! {
    /// The record that is being written, so that each one needs only an allocation of its own size.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl LogCx<'_, '_> {
    /// Returns the log record of the request, with the fields that plugins have set.
    pub fn record(&self) -> Result<Bytes, RecordError> {
        written(|out| {
            write(self, out);
            fields::finish(&self.state.log_fields, out)
        })
    }
}

pub(super) fn written(
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), RecordError>,
) -> Result<Bytes, RecordError> {
    // The buffer is taken out and put back, so that nothing is borrowed while the record is written.
    let mut buffer = BUFFER.take();
    buffer.clear();
    let result = write(&mut buffer).map(|()| Bytes::copy_from_slice(&buffer));
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
    out.push(b'{');
    write_request(request, entry, out);
    out.extend_from_slice(br#","upstream_uri":""#);
    write_upstream_uri(request, entry, out);
    out.extend_from_slice(br#"","upstream_status":""#);
    write_upstream_status(entry.tries, out);
    out.extend_from_slice(br#"","response":{"status":"#);
    json::number(entry.status, out);
    out.extend_from_slice(br#","headers":"#);
    write_headers(header_lines(entry.response_head), &[], out);
    out.extend_from_slice(br#","size":"#);
    json::number(entry.response_size, out);
    out.push(b'}');
    write_latencies(entry, out);
    if request.route.is_some() {
        write_tries(entry.tries, entry.started_at, None, out);
    }
    write_credential(state.credential.as_ref(), out);
    write_entities(
        entities,
        (request.route, request.service),
        state.consumer.as_deref(),
        out,
    );
    out.extend_from_slice(br#","client_ip":"#);
    json::address(request.client.ip, out);
    write_started_at(entry.started_at, out);
    out.extend_from_slice(match entry.origin {
        Origin::Upstream => br#","source":"upstream""#,
        Origin::Gateway | Origin::Plugin => br#","source":"kong""#,
    });
    write_workspace(entities, out);
}

fn write_request(request: &Request<'_>, entry: &LogEntry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(br#""request":{"id":"#);
    json::string(request.request_id.as_bytes(), out);
    out.extend_from_slice(br#","uri":""#);
    let start = out.len();
    write_uri(request, out);
    let uri = start..out.len();
    out.extend_from_slice(br#"","url":""#);
    out.extend_from_slice(request.scheme.name().as_bytes());
    out.extend_from_slice(b"://");
    json::escaped(request.host.as_bytes(), out);
    out.push(b':');
    json::number(request.port, out);
    out.extend_from_within(uri);
    out.extend_from_slice(br#"","querystring":"#);
    let query = match &request.upstream.query {
        Some(query) => query.as_bytes(),
        None => request.head.query_bytes().unwrap_or_default(),
    };
    write_query(query, out);
    out.extend_from_slice(br#","method":"#);
    json::string(request.method_bytes(), out);
    out.extend_from_slice(br#","headers":"#);
    write_headers(request.header_bytes(), &REDACTED, out);
    out.extend_from_slice(br#","size":"#);
    json::number(entry.request_size, out);
    write_tls(request.tls, out);
    out.push(b'}');
}

/// Writes the path and the query as they were received.
fn write_uri(request: &Request<'_>, out: &mut Vec<u8>) {
    json::escaped(request.head.path_bytes(), out);
    if let Some(query) = request.head.query_bytes() {
        out.push(b'?');
        json::escaped(query, out);
    }
}

/// Writes the path and the query for the upstream. A request without a route has none.
fn write_upstream_uri(request: &Request<'_>, entry: &LogEntry<'_>, out: &mut Vec<u8>) {
    if entry.upstream_path.is_empty() {
        return;
    }
    json::escaped(entry.upstream_path, out);
    if let Some(query) = request.upstream_query() {
        out.push(b'?');
        json::escaped(query, out);
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
    started_at: SystemTime,
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
        let began = since_epoch(started_at).saturating_add(one.after);
        out.extend_from_slice(br#"{"balancer_start":"#);
        json::number(milliseconds(began), out);
        out.extend_from_slice(br#","balancer_start_ns":"#);
        json::number(nanoseconds(began), out);
        out.extend_from_slice(br#","ip":"#);
        json::address(address.ip(), out);
        out.extend_from_slice(br#","port":"#);
        json::number(address.port(), out);
        out.extend_from_slice(br#","balancer_latency":"#);
        json::number(milliseconds(one.choosing), out);
        out.extend_from_slice(br#","balancer_latency_ns":"#);
        json::number(nanoseconds(one.choosing), out);
        if let TryEnd::Failed(status) = one.end {
            out.extend_from_slice(br#","state":"failed","code":"#);
            json::number(failed.unwrap_or(status), out);
        }
        out.push(b'}');
    }
    out.push(b']');
}

fn write_credential(credential: Option<&Credential>, out: &mut Vec<u8>) {
    if let Some(credential) = credential {
        out.extend_from_slice(br#","authenticated_entity":{"id":"#);
        json::id(credential.id, out);
        out.push(b'}');
    }
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

pub(super) fn write_started_at(started_at: SystemTime, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","started_at":"#);
    json::number(milliseconds(since_epoch(started_at)), out);
}

pub(super) fn write_workspace(entities: &dyn crate::Entities, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","workspace":"#);
    json::id(entities.workspace(), out);
    out.extend_from_slice(br#","workspace_name":"default""#);
}

fn write_query(query: &[u8], out: &mut Vec<u8>) {
    if query.is_empty() {
        return out.extend_from_slice(b"{}");
    }
    let args: SmallVec<[Arg<'_>; 8]> = args::parse(query).collect();
    debug_assert!(args.len() <= MAX_ARGS, "which limits the comparisons");
    grouped(
        args.len(),
        |one, other| args[one].name == args[other].name,
        |at, out| json::string(&args[at].name, out),
        |at, out| match &args[at].value {
            Some(value) => json::string(value, out),
            None => out.extend_from_slice(b"true"),
        },
        out,
    );
}

/// Writes headers by name, in lower case. Those in `redacted` are shown without their values.
fn write_headers<'h>(
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    redacted: &[&[u8]],
    out: &mut Vec<u8>,
) {
    let mut shown: SmallVec<[Header<'_>; 24]> = SmallVec::new();
    let mut has_redacted = 0_u8;
    for (name, value) in headers.take(MAX_HEADERS) {
        let mut hidden = redacted.iter();
        let hidden = hidden.position(|one| one.eq_ignore_ascii_case(name));
        let value = match hidden {
            None => value,
            Some(at) if has_redacted >> at & 1 == 0 => {
                has_redacted |= 1 << at;
                b"REDACTED"
            }
            Some(_) => continue,
        };
        shown.push(Header {
            mark: mark(name),
            name,
            value,
        });
    }
    grouped(
        shown.len(),
        |one, other| {
            let (one, other) = (&shown[one], &shown[other]);
            one.mark == other.mark && one.name.eq_ignore_ascii_case(other.name)
        },
        |at, out| json::lower_case(shown[at].name, out),
        |at, out| json::string(shown[at].value, out),
        out,
    );
}

struct Header<'h> {
    mark: u32,
    name: &'h [u8],
    value: &'h [u8],
}

/// Returns a number that is equal for equal names, and mostly different for others: the length, the first and the last
/// letter in lower case.
#[inline]
fn mark(name: &[u8]) -> u32 {
    let letter = |byte: Option<&u8>| u32::from(byte.copied().unwrap_or_default() | 0x20);
    letter(name.first()) | letter(name.last()) << 8 | (name.len() as u32) << 16
}

/// Writes at most 128 names with their values as an object. A name that occurs several times gets a list.
fn grouped(
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

/// Returns the header lines of a response head. Its first line is the status line.
fn header_lines(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let start = memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
    let mut rest = &head[start..];
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest)?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

pub(super) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
