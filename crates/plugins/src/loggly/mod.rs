//! loggly sends log records of requests and sessions to Loggly, as syslog messages in datagrams. Source:
//! kong/plugins/loggly/handler.lua.

pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::line_log::{FieldTexts, LineLog, Severities};
use crate::queue_config::time_limit;
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use serde::Deserialize;
use services::sinks::{Facility, Severity, Udp};
use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

const NAME: &str = "loggly";
/// Loggly's number among the enterprises of the IANA.
const ENTERPRISE: u32 = 41058;

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Loggly>(NAME, 6, Phases::LOG, Scopes::ALL)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    host: Option<String>,
    port: Option<u16>,
    /// The customer's token. It is a secret.
    key: String,
    tags: Option<Vec<String>>,
    log_level: Option<Severity>,
    successful_severity: Option<Severity>,
    client_errors_severity: Option<Severity>,
    server_errors_severity: Option<Severity>,
    /// Milliseconds to resolve the name. Default: 10000.
    timeout: Option<f64>,
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

struct Loggly {
    server: Udp,
    severities: Severities,
    /// What is between the time and the record.
    middle: String,
    lines: LineLog,
}

impl Plugin for Loggly {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let severities = config.severities();
        let host = config
            .host
            .unwrap_or_else(|| "logs-01.loggly.com".to_owned());
        let port = config.port.unwrap_or(514);
        let tags = config.tags.unwrap_or_default();
        Ok(Self {
            severities,
            middle: middle(&cx.identity.hostname, &config.key, &tags),
            lines: LineLog::new(
                NAME,
                format!("{host}:{port}"),
                &config.custom_fields_by_lua,
                cx,
            ),
            server: Udp {
                host,
                port,
                timeout: time_limit(config.timeout),
                packet_size: 0,
            },
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.lines.start(node, node.sinks.udp(&self.server));
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        if let Some(severity) = self.severities.of(Some(cx.entry.status)) {
            let prefix = self.prefix(severity, cx.entry.started_at);
            self.lines.log(cx, prefix.as_bytes());
        }
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        if let Some(severity) = self.severities.of(None) {
            let prefix = self.prefix(severity, cx.entry.started_at);
            self.lines.log_stream(cx, prefix.as_bytes());
        }
    }
}

impl Loggly {
    /// Returns what comes before the record: the head of a message as of RFC 5424.
    fn prefix(&self, severity: Severity, at: SystemTime) -> String {
        let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
        let at = OffsetDateTime::from(at).to_offset(UtcOffset::UTC);
        let at = at.format(format).unwrap_or_else(|_| "-".to_owned());
        format!(
            "<{}>1 {at}{}",
            Facility::User.priority(severity),
            self.middle
        )
    }
}

/// Returns the host, the program, and the structured data with the key and the tags. Characters that would end a value
/// are escaped, and control characters are replaced.
fn middle(host: &str, key: &str, tags: &[String]) -> String {
    let word = |text: &str| text.replace(|letter: char| !letter.is_ascii_graphic(), "_");
    let (host, key) = (word(host), word(key).replace(['=', ']', '"'], "_"));
    let mut middle = format!(" {host} kong - - [{key}@{ENTERPRISE}");
    for tag in tags {
        middle.push_str(" tag=\"");
        for letter in tag.chars() {
            match letter {
                '"' | '\\' | ']' => middle.extend(['\\', letter]),
                _ if letter.is_control() => middle.push('_'),
                _ => middle.push(letter),
            }
        }
        middle.push('"');
    }
    let _ = write!(middle, "] ");
    middle
}
