//! tcp-log sends log records of requests and sessions to a TCP server, one in each line. Source:
//! kong/plugins/tcp-log/handler.lua.

pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::line_log::{FieldTexts, LineLog};
use crate::queue_config::{keepalive, time_limit};
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use serde::Deserialize;
use services::sinks::Tcp;
use std::sync::Arc;

const NAME: &str = "tcp-log";

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<TcpLog>(NAME, 7, Phases::LOG, Scopes::ALL)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    host: String,
    port: u16,
    /// Milliseconds to connect and to send. Default: 10000.
    timeout: Option<f64>,
    /// Milliseconds after which an unused connection is closed. Default: 60000.
    keepalive: Option<f64>,
    tls: bool,
    /// The name that TLS asks for. Default: the host, if it is a name.
    tls_sni: Option<String>,
    /// Whether the server's certificate is verified. Kong never does.
    tls_verify: Option<bool>,
    custom_fields_by_lua: FieldTexts,
}

struct TcpLog {
    server: Tcp,
    lines: LineLog,
}

impl Plugin for TcpLog {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let tls = config
            .tls
            .then(|| config.tls_sni.unwrap_or_else(|| config.host.clone()));
        let server = Tcp {
            host: config.host,
            port: config.port,
            tls,
            verify: config.tls_verify == Some(true),
            timeout: time_limit(config.timeout),
            keepalive: keepalive(config.keepalive),
        };
        Ok(Self {
            lines: LineLog::new(NAME, queue_name(&server), &config.custom_fields_by_lua, cx),
            server,
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.lines.start(node, node.sinks.tcp(self.server.clone()));
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        self.lines.log(cx, b"");
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        self.lines.log_stream(cx, b"");
    }
}

fn queue_name(server: &Tcp) -> String {
    let Tcp { host, port, .. } = server;
    let tls = match (&server.tls, server.verify) {
        (None, _) => String::new(),
        (Some(name), false) => format!(":tls:{name}"),
        (Some(name), true) => format!(":tls:{name}:verified"),
    };
    let (timeout, keepalive) = (server.timeout.as_millis(), server.keepalive.as_millis());
    format!("{host}:{port}{tls}:{timeout}:{keepalive}")
}
