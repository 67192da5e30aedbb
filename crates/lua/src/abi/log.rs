//! Lines for the error log, and changes to the log record.

use super::{Cx, FOUND, NO_REQUEST, NONE, json};
use model::Value;
use plugin::{LogField, LogFieldMode};
use services::log_lines::{self, LogLine};
use std::time::SystemTime;

/// Writes a line to the error log. `level` is nginx's: 0 is the highest, 8 is `debug`.
/// `line` is that of the code, or 0.
pub(super) fn write(cx: &mut Cx, level: i32, line: i32, text: &[u8]) -> i32 {
    let text = String::from_utf8_lossy(text);
    let plugin = cx.target.plugin_name;
    let request_id = cx.target.request().map(|request| request.request_id);
    let trace_id = cx.target.state().and_then(|state| state.trace.id);
    let trace_id = trace_id.map(|id| format!("{:032x}", id.number));
    let trace_id = trace_id.as_deref();
    match level {
        ..=4 => tracing::error!(plugin, request_id, trace_id, "{text}"),
        5 => tracing::warn!(plugin, request_id, trace_id, "{text}"),
        6 | 7 => tracing::info!(plugin, request_id, trace_id, "{text}"),
        _ => tracing::debug!(plugin, request_id, trace_id, "{text}"),
    }
    let level = u8::try_from(level.max(1)).unwrap_or(u8::MAX);
    if log_lines::is_wanted(level) {
        log_lines::offer(LogLine {
            time: SystemTime::now(),
            level,
            text: log_lines::cut(&text).into(),
            request_id: request_id.map(Into::into),
            source_line: u32::try_from(line).ok().filter(|line| *line != 0),
        });
    }
    FOUND
}

/// Notes a change of the log record. `kind` 0 removes the field; otherwise the value is JSON. Bytes that are not UTF-8 are
/// replaced, because one field must not cost the whole record.
pub(super) fn set_field(cx: &mut Cx, mode: i32, kind: i32, key: &[u8], value: &[u8]) -> i32 {
    cx.keep(key.len() + value.len());
    let value: Option<Value> = match kind {
        0 => None,
        _ => match json::value(String::from_utf8_lossy(value).as_bytes()) {
            Some(value) => Some(value),
            None => return NONE,
        },
    };
    let Some(state) = cx.target.state_mut() else {
        return NO_REQUEST;
    };
    state.log_fields.push(LogField {
        key: String::from_utf8_lossy(key).into(),
        value,
        mode: match mode {
            1 => LogFieldMode::Add,
            2 => LogFieldMode::Replace,
            _ => LogFieldMode::Set,
        },
    });
    FOUND
}

/// Returns the log record of the request as JSON.
pub(super) fn record(cx: &mut Cx) -> i32 {
    let target = cx.target;
    let record = match target.log() {
        None => return NO_REQUEST,
        Some(log) => log.record(),
    };
    match record {
        Ok(record) => cx.made(|out| out.extend_from_slice(&record)),
        Err(error) => cx.refuse(error),
    }
}
