//! syslog sends log records of requests and sessions to the system's log. Source: kong/plugins/syslog/handler.lua.

pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::line_log::{FieldTexts, LineLog, Severities};
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use serde::Deserialize;
use services::sinks::{Facility, SYSLOG, Severity};
use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

const NAME: &str = "syslog";
/// Larger than each prefix of a message.
const PREFIX: usize = 64;

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Syslog>(NAME, 4, Phases::LOG, Scopes::ALL)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    log_level: Option<Severity>,
    successful_severity: Option<Severity>,
    client_errors_severity: Option<Severity>,
    server_errors_severity: Option<Severity>,
    facility: Facility,
    custom_fields_by_lua: FieldTexts,
}

impl Config {
    // Not a flattened struct, because fields that nobody knows would then go unnoticed.
    fn severities(&self) -> Severities {
        Severities {
            log_level: self.log_level,
            successful_severity: self.successful_severity,
            client_errors_severity: self.client_errors_severity,
            server_errors_severity: self.server_errors_severity,
        }
    }
}

struct Syslog {
    severities: Severities,
    facility: Facility,
    lines: LineLog,
}

impl Plugin for Syslog {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let fields = &config.custom_fields_by_lua;
        Ok(Self {
            severities: config.severities(),
            facility: config.facility,
            lines: LineLog::new(NAME, SYSLOG.to_owned(), fields, cx),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.lines.start(node, node.sinks.syslog(SYSLOG.into()));
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        if let Some(severity) = self.severities.of(Some(cx.entry.status)) {
            let (buffer, length) = prefix(self.facility.priority(severity), cx.entry.started_at);
            self.lines.log(cx, &buffer[..length]);
        }
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        if let Some(severity) = self.severities.of(None) {
            let (buffer, length) = prefix(self.facility.priority(severity), cx.entry.started_at);
            self.lines.log_stream(cx, &buffer[..length]);
        }
    }
}

/// Returns what comes before the record, as syslog(3) writes it, and its length. Times are UTC.
fn prefix(priority: u8, at: SystemTime) -> ([u8; PREFIX], usize) {
    let mut buffer = [0; PREFIX];
    let mut rest = &mut buffer[..];
    let at = OffsetDateTime::from(at).to_offset(UtcOffset::UTC);
    let format =
        format_description!("[month repr:short] [day padding:space] [hour]:[minute]:[second]");
    // The buffer is large enough for all of it.
    let _ = write!(rest, "<{priority}>");
    let _ = at.format_into(&mut rest, format);
    let _ = write!(rest, " kong[{}]: ", std::process::id());
    let length = PREFIX - rest.len();
    (buffer, length)
}
