//! statsd sends statistics of requests and sessions to a StatsD server. Source: kong/plugins/statsd/log.lua.

mod config;
mod lines;
#[cfg(test)]
mod tests;

use crate::queue_config::{NO_TIMEOUT, keepalive, queue_params, warn_of_deprecated};
use crate::statistics::{Facts, push_name, with_lines};
use config::Config;
use lines::{Lines, Names};
use model::schema::PluginSource;
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use services::queue::{Queue, QueueParams, Text};
use services::sinks::{Tcp, Udp};
use std::sync::{Arc, OnceLock};

const NAME: &str = "statsd";

pub(crate) const SOURCE: PluginSource = PluginSource::plain(NAME, include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Statsd>(NAME, 11, Phases::LOG_WITHOUT_HEAD, Scopes::ALL)
}

struct Statsd {
    server: Server,
    params: QueueParams,
    deprecated: Vec<&'static str>,
    lines: Lines,
    queue: OnceLock<Arc<Queue<Text>>>,
}

enum Server {
    Tcp(Tcp),
    Udp(Udp),
}

impl Plugin for Statsd {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let (params, deprecated) = queue_params(&config.queue, config.deprecated());
        let host = config
            .host
            .clone()
            .unwrap_or_else(|| "localhost".to_owned());
        let port = config.port.unwrap_or(8125);
        let server = match config.use_tcp {
            Some(true) => Server::Tcp(Tcp {
                host,
                port,
                tls: None,
                verify: false,
                timeout: NO_TIMEOUT,
                keepalive: keepalive(None),
            }),
            _ => Server::Udp(Udp {
                host,
                port,
                timeout: NO_TIMEOUT,
                // The schema has checked the range.
                packet_size: config.udp_packet_size.unwrap_or_default() as usize,
            }),
        };
        Ok(Self {
            server,
            params: params.collecting(),
            deprecated,
            lines: Lines::new(&config, names(&config, cx))?,
            queue: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        warn_of_deprecated(NAME, &self.deprecated);
        self.queue.get_or_init(|| {
            let (name, sender) = match &self.server {
                Server::Tcp(server) => (
                    format!("tcp:{}:{}", server.host, server.port),
                    node.sinks.tcp(server.clone()),
                ),
                Server::Udp(server) => (
                    format!("udp:{}:{}:{}", server.host, server.port, server.packet_size),
                    node.sinks.udp(server),
                ),
            };
            node.queues.get(NAME, &name, self.params.clone(), sender)
        });
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        self.send(&Facts::of_request(cx));
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        self.send(&Facts::of_stream(cx));
    }
}

impl Statsd {
    fn send(&self, facts: &Facts<'_>) {
        if let Some(queue) = self.queue.get() {
            with_lines(
                |out| self.lines.write(facts, out),
                |lines| queue.push_lines(b"", lines.as_bytes()),
            );
        }
    }
}

/// Returns what the names of all statistics have in common.
fn names(config: &Config, cx: &BuildCx<'_>) -> Names {
    let host = &cx.identity.hostname;
    let mut dashed = String::new();
    push_name(&host.replace('.', "_"), &mut dashed);
    let mut prefix = String::new();
    push_name(config.prefix.as_deref().unwrap_or("kong"), &mut prefix);
    let in_prefix = config.hostname_in_prefix == Some(true) && config.tag_style.is_none();
    if in_prefix {
        prefix.push_str(".node.");
        prefix.push_str(&dashed);
    }
    let mut node = String::new();
    push_name(host, &mut node);
    Names {
        prefix,
        node,
        // The prefix has the host already.
        dictionaries: match in_prefix {
            true => "shdict".to_owned(),
            false => format!("node.{dashed}.shdict"),
        },
    }
}
