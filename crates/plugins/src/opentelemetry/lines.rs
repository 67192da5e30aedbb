//! The lines of the error log as OTLP's log records. Source: kong/plugins/opentelemetry/logs.lua.

use super::protobuf::{self, Attribute};
use super::spans::Ids;
use services::log_lines::{self, LogLine, Tap};
use services::queue::{Queue, Text};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Fields of `LogRecord`.
mod field {
    pub(super) const TIME: u8 = 1;
    pub(super) const SEVERITY_NUMBER: u8 = 2;
    pub(super) const SEVERITY_TEXT: u8 = 3;
    pub(super) const BODY: u8 = 5;
    pub(super) const ATTRIBUTES: u8 = 6;
    pub(super) const FLAGS: u8 = 8;
    pub(super) const TRACE_ID: u8 = 9;
    pub(super) const SPAN_ID: u8 = 10;
    pub(super) const OBSERVED_TIME: u8 = 11;
}

/// Sends the lines about a request.
pub(super) fn of_request(request_id: &str, ids: Option<(Ids, bool)>, queue: &Queue<Text>) {
    log_lines::visit(request_id, |line| push(line, ids, queue));
}

/// Sends the lines that are about no request.
pub(super) fn tap(queue: Arc<Queue<Text>>) -> Arc<dyn Tap> {
    Arc::new(Others(queue))
}

struct Others(Arc<Queue<Text>>);

impl Tap for Others {
    fn take(&self, line: &LogLine) {
        push(line, None, &self.0);
    }
}

fn push(line: &LogLine, ids: Option<(Ids, bool)>, queue: &Queue<Text>) {
    let mut out = Vec::new();
    write(line, ids, &mut out);
    queue.push_texts(1, &out);
}

/// Writes a record as an entry of an export.
pub(super) fn write(line: &LogLine, ids: Option<(Ids, bool)>, out: &mut Vec<u8>) {
    let time = line.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (number, name) = severity(line.level);
    protobuf::message(protobuf::ENTRY, 2, out, |out| {
        protobuf::fixed(field::TIME, time, out);
        protobuf::integer(field::SEVERITY_NUMBER, number, out);
        protobuf::bytes(field::SEVERITY_TEXT, name.as_bytes(), out);
        protobuf::message(field::BODY, 1, out, |out| {
            protobuf::bytes(1, line.text.as_bytes(), out);
        });
        if let Some(id) = &line.request_id {
            let id = Attribute::Text(id);
            protobuf::attribute(field::ATTRIBUTES, "request.id", id, out);
        }
        if let Some(number) = line.source_line {
            let number = Attribute::Number(number.into());
            let key = "introspection.current.line";
            protobuf::attribute(field::ATTRIBUTES, key, number, out);
        }
        if let Some((ids, sampled)) = ids {
            protobuf::fixed_32(field::FLAGS, sampled.into(), out);
            protobuf::bytes(field::TRACE_ID, &ids.trace.to_be_bytes(), out);
            protobuf::bytes(field::SPAN_ID, &ids.root.to_be_bytes(), out);
        }
        protobuf::fixed(field::OBSERVED_TIME, time, out);
    });
}

/// Returns the number and the name of nginx's level.
fn severity(level: u8) -> (u64, &'static str) {
    match level {
        0 | 1 => (23, "EMERG"),
        2 => (21, "ALERT"),
        3 => (19, "CRIT"),
        4 => (17, "ERR"),
        5 => (13, "WARN"),
        6 => (11, "NOTICE"),
        7 => (9, "INFO"),
        _ => (5, "DEBUG"),
    }
}
