//! The log record of a request: the JSON object of Kong's `kong.log.serialize`, written in one pass. Source:
//! kong/pdk/log.lua.

use super::draft::{Draft, Frame, Part};
use super::json::milliseconds;
use super::{Latencies, LogCx, Reason, RecordError, Try, TryEnd, fields, headers, json};
use crate::args::{self, Arg, MAX_ARGS};
use crate::redact;
use crate::request::RequestState;
use crate::response::Origin;
use crate::stream::TlsInfo;
use crate::trace::Trace;
use bytes::Bytes;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

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
    pub(super) fn with_record<T>(&self, take: impl FnOnce(&[u8]) -> T) -> Result<T, RecordError> {
        written(take, |out| {
            write(&Draft::new(self, Frame::Line(b"")), out);
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
pub(super) fn write(draft: &Draft, out: &mut Vec<u8>) {
    out.push(b'{');
    write_request(draft, out);
    out.extend_from_slice(br#","upstream_uri":""#);
    write_upstream_uri(draft, out);
    out.extend_from_slice(br#"","upstream_status":""#);
    write_upstream_status(&draft.tries, out);
    out.extend_from_slice(br#"","response":{"status":"#);
    json::number(draft.status, out);
    out.extend_from_slice(br#","headers":"#);
    headers::write_response(draft.text(Part::ResponseHead), draft.redacts, out);
    out.extend_from_slice(br#","size":"#);
    json::number(draft.response_size, out);
    out.push(b'}');
    write_latencies(&draft.latencies, out);
    if draft.has_route {
        write_tries(&draft.tries, draft.started_at, None, out);
    }
    out.extend_from_slice(draft.text(Part::Credential));
    write_entity(br#","route":"#, draft.route.as_deref(), out);
    write_entity(br#","service":"#, draft.service.as_deref(), out);
    write_entity(br#","consumer":"#, draft.consumer.as_deref(), out);
    out.extend_from_slice(br#","client_ip":"#);
    json::address(draft.client_ip, out);
    write_started_at(draft.started_at, out);
    out.extend_from_slice(match draft.origin {
        Origin::Upstream => br#","source":"upstream""#,
        Origin::Gateway | Origin::Plugin => br#","source":"kong""#,
    });
    write_reason(draft.reason, out);
    write_workspace(draft.workspace, out);
    out.extend_from_slice(draft.text(Part::TraceId));
}

pub(super) fn write_trace_id(trace: &Trace, out: &mut Vec<u8>) {
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

fn write_request(draft: &Draft, out: &mut Vec<u8>) {
    let query = draft.text(Part::Query);
    out.extend_from_slice(br#""request":{"id":"#);
    json::string(draft.text(Part::RequestId), out);
    out.extend_from_slice(br#","uri":""#);
    let start = out.len();
    json::escaped(draft.text(Part::Path), out);
    if draft.has_query {
        write_raw_query(query, draft.redacts, out);
    }
    let uri = start..out.len();
    out.extend_from_slice(br#"","url":""#);
    out.extend_from_slice(draft.scheme.name().as_bytes());
    out.extend_from_slice(b"://");
    json::escaped(draft.text(Part::Host), out);
    out.push(b':');
    json::number(draft.port, out);
    out.extend_from_within(uri);
    out.extend_from_slice(br#"","querystring":"#);
    let query = match draft.has_new_query {
        true => draft.text(Part::NewQuery),
        false => query,
    };
    write_query(query, draft.redacts, out);
    out.extend_from_slice(br#","method":"#);
    json::string(draft.text(Part::Method), out);
    out.extend_from_slice(br#","headers":"#);
    headers::write_request(
        draft.text(Part::RequestHead),
        draft.has_new_headers,
        draft.redacts,
        out,
    );
    out.extend_from_slice(br#","size":"#);
    json::number(draft.request_size, out);
    write_tls(draft.tls.as_ref(), out);
    out.push(b'}');
}

/// Writes a query as it is in a URI.
fn write_raw_query(query: &[u8], redacts: bool, out: &mut Vec<u8>) {
    out.push(b'?');
    match redacts {
        false => json::escaped(query, out),
        true => redact::query(query, |piece| json::escaped(piece, out)),
    }
}

/// Writes the path and the query for the upstream. A request without a route has none.
fn write_upstream_uri(draft: &Draft, out: &mut Vec<u8>) {
    let path = draft.text(Part::UpstreamPath);
    if path.is_empty() {
        return;
    }
    json::escaped(path, out);
    let query = draft.text(Part::NewQuery);
    if draft.has_new_query && !query.is_empty() {
        write_raw_query(query, draft.redacts, out);
    } else if !draft.has_new_query && draft.has_query {
        write_raw_query(draft.text(Part::Query), draft.redacts, out);
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

fn write_latencies(latencies: &Latencies, out: &mut Vec<u8>) {
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

pub(super) fn write_credential(state: &RequestState, out: &mut Vec<u8>) {
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

/// Writes an entity after its name.
pub(super) fn write_entity(name: &[u8], entity: Option<&[u8]>, out: &mut Vec<u8>) {
    if let Some(entity) = entity {
        out.extend_from_slice(name);
        out.extend_from_slice(entity);
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

pub(super) fn write_reason(reason: Option<Reason>, out: &mut Vec<u8>) {
    if let Some(reason) = reason {
        out.extend_from_slice(br#","reason":"#);
        json::string(reason.name().as_bytes(), out);
    }
}

pub(super) fn write_started_at(started_at: Duration, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","started_at":"#);
    json::number(milliseconds(started_at), out);
}

pub(super) fn write_workspace(workspace: Uuid, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","workspace":"#);
    json::id(workspace, out);
    out.extend_from_slice(br#","workspace_name":"default""#);
}

/// Writes the arguments of a query.
fn write_query(query: &[u8], redacts: bool, out: &mut Vec<u8>) {
    let args: SmallVec<[Arg<'_>; 8]> = args::parse(query).collect();
    debug_assert!(args.len() <= MAX_ARGS, "which limits the comparisons");
    write_grouped(
        args.len(),
        |one, other| args[one].name == args[other].name,
        |at, out| json::string(&args[at].name, out),
        |at, out| match &args[at].value {
            Some(_) if redacts && redact::is_secret_field(&args[at].name) => {
                json::string(redact::REDACTED, out);
            }
            Some(value) => json::string(value, out),
            None => out.extend_from_slice(b"true"),
        },
        out,
    );
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
