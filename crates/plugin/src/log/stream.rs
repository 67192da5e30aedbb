//! The log record of a TCP, TLS or UDP session.

use super::json::milliseconds;
use super::record::{
    since_epoch, write_entity, write_reason, write_started_at, write_tls, write_tries,
    write_workspace, written,
};
use super::{RecordError, entity, fields, json};
use crate::request::{EntityRef, LogField};
use crate::stream::{EndedStreamCx, StreamEntry, StreamProtocol};
use model::EntityKind;

impl EndedStreamCx<'_> {
    /// Writes the log record of the session with these fields, and passes it to `take` without a copy.
    pub fn with_record<T>(
        &self,
        fields: &[LogField],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, RecordError> {
        written(take, |out| {
            write(self, out);
            fields::finish(fields, out)
        })
    }
}

/// Writes the record without its last bracket.
fn write(cx: &EndedStreamCx<'_>, out: &mut Vec<u8>) {
    let (session, entry) = (cx.session, cx.entry);
    let entities = &*cx.node.entities;
    out.extend_from_slice(br#"{"session":{"received":"#);
    json::number(entry.received, out);
    out.extend_from_slice(br#","sent":"#);
    json::number(entry.sent, out);
    out.extend_from_slice(br#","status":"#);
    json::number(entry.status, out);
    write_tls(session.tls, out);
    // Kong relays TLS sessions inside, where they have no port.
    if matches!(session.protocol, StreamProtocol::Tcp | StreamProtocol::Udp) {
        out.extend_from_slice(br#","server_port":"#);
        json::number(session.port, out);
    }
    out.push(b'}');
    write_upstream(entry, out);
    out.extend_from_slice(br#","latencies":{"kong":"#);
    json::number(milliseconds(entry.latencies.gateway), out);
    out.extend_from_slice(br#","session":"#);
    json::number(milliseconds(entry.latencies.request), out);
    out.push(b'}');
    if session.route.is_some() {
        // Kong does not know why a try of a session has failed.
        write_tries(entry.tries, since_epoch(entry.started_at), Some(0), out);
    }
    let reference = |kind, found: Option<EntityRef<'_>>| {
        found.map(|found| entity::reference(entities, kind, found))
    };
    let route = reference(EntityKind::Routes, session.route);
    let service = reference(EntityKind::Services, session.service);
    write_entity(br#","route":"#, route.as_deref(), out);
    write_entity(br#","service":"#, service.as_deref(), out);
    out.extend_from_slice(br#","client_ip":"#);
    json::address(session.client.ip, out);
    write_started_at(since_epoch(entry.started_at), out);
    write_reason(entry.reason.filter(|_| cx.node.records_reason), out);
    write_workspace(entities.workspace(), out);
}

/// Writes the bytes of the upstream. As in Kong, they are a text with a number for each try if there are several.
fn write_upstream(entry: &StreamEntry<'_>, out: &mut Vec<u8>) {
    let tries = entry.tries.iter();
    let tries = tries.filter(|one| one.address.is_some()).count();
    let bytes = |bytes: u64, out: &mut Vec<u8>| {
        if tries == 1 {
            return json::number(bytes, out);
        }
        out.push(b'"');
        for _ in 1..tries {
            out.extend_from_slice(b"0, ");
        }
        json::number(bytes, out);
        out.push(b'"');
    };
    out.extend_from_slice(br#","upstream":{"#);
    if tries > 0 {
        out.extend_from_slice(br#""received":"#);
        bytes(entry.upstream_received, out);
        out.extend_from_slice(br#","sent":"#);
        bytes(entry.upstream_sent, out);
    }
    out.push(b'}');
}
