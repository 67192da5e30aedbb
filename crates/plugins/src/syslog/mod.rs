//! syslog sends log records of requests and sessions to the system's log. Source: kong/plugins/syslog/handler.lua.

pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::line_log::{FieldTexts, LineLog, Severities};
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use serde::Deserialize;
use services::sinks::{Facility, SYSLOG};
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
struct Config {
    #[serde(flatten)]
    severities: Severities,
    facility: Facility,
    custom_fields_by_lua: FieldTexts,
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
            severities: config.severities,
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
