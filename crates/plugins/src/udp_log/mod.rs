//! udp-log sends log records of requests and sessions to a UDP server, each as a datagram. Source:
//! kong/plugins/udp-log/handler.lua.

pub(crate) mod source;
#[cfg(test)]
mod tests;

use crate::line_log::{FieldTexts, LineLog};
use crate::queue_config::time_limit;
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use serde::Deserialize;
use services::sinks::Udp;
use std::sync::Arc;

const NAME: &str = "udp-log";

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<UdpLog>(NAME, 8, Phases::LOG, Scopes::ALL)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    host: String,
    port: u16,
    /// Milliseconds to resolve the name. Default: 10000.
    timeout: Option<f64>,
    custom_fields_by_lua: FieldTexts,
}

struct UdpLog {
    server: Udp,
    lines: LineLog,
}

impl Plugin for UdpLog {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let queue = format!("{}:{}", config.host, config.port);
        Ok(Self {
            lines: LineLog::new(NAME, queue, &config.custom_fields_by_lua, cx),
            server: Udp {
                host: config.host,
                port: config.port,
                timeout: time_limit(config.timeout),
                packet_size: 0,
            },
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.lines.start(node, node.sinks.udp(&self.server));
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        self.lines.log(cx, b"");
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        self.lines.log_stream(cx, b"");
    }
}
