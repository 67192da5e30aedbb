//! datadog sends statistics of requests and sessions to an agent of Datadog, each as a datagram. Source:
//! kong/plugins/datadog/handler.lua.

mod config;
#[cfg(test)]
mod tests;

use crate::queue_config::{NO_TIMEOUT, queue_params, warn_of_deprecated};
use crate::statistics::{
    ConsumerIdentifier, Facts, push_name, push_number, rate, with_lines, within_line,
};
use config::{Config, Metric, Name};
use model::schema::PluginSource;
use plugin::{BuildCx, BuildError, EndedStreamCx, LogCx, Node, Phases, Plugin, PluginDef, Scopes};
use services::queue::{Queue, QueueParams, Text};
use services::sinks::Udp;
use std::sync::{Arc, OnceLock};

const NAME: &str = "datadog";

pub(crate) const SOURCE: PluginSource = PluginSource::plain(NAME, include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Datadog>(NAME, 10, Phases::LOG_WITHOUT_HEAD, Scopes::ALL)
}

struct Datadog {
    server: Udp,
    params: QueueParams,
    deprecated: Vec<&'static str>,
    metrics: Vec<Statistic>,
    /// Tags with `:` after them.
    service_tag: String,
    status_tag: String,
    consumer_tag: String,
    queue: OnceLock<Arc<Queue<Text>>>,
}

/// A metric, of which everything that requests do not change is text.
struct Statistic {
    name: Name,
    /// Up to the value.
    start: String,
    /// Between the value and the tags.
    kind: String,
    /// The configured tags, each after a comma.
    tags: String,
    consumer: Option<ConsumerIdentifier>,
}

impl Plugin for Datadog {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let host = config.host.as_deref().unwrap_or("localhost");
        if host.starts_with("{vault://") {
            let reason = "it is a vault reference, which is not resolved yet";
            return Err(BuildError::field("host", reason));
        }
        let (params, deprecated) = queue_params(&config.queue, config.deprecated());
        let prefix = config.prefix.as_deref().unwrap_or("kong");
        let tag = |name: &Option<String>, default: &str| {
            format!("{}:", within_line(name.as_deref().unwrap_or(default)))
        };
        Ok(Self {
            server: Udp {
                host: host.to_owned(),
                port: config.port.unwrap_or(8125),
                timeout: NO_TIMEOUT,
                packet_size: 0,
            },
            params: params.collecting(),
            deprecated,
            metrics: config
                .metrics
                .iter()
                .map(|metric| Statistic::new(metric, prefix))
                .collect(),
            service_tag: tag(&config.service_name_tag, "name"),
            status_tag: tag(&config.status_tag, "status"),
            consumer_tag: tag(&config.consumer_tag, "consumer"),
            queue: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        warn_of_deprecated(NAME, &self.deprecated);
        self.queue.get_or_init(|| {
            let name = format!("{}:{}", self.server.host, self.server.port);
            let sender = node.sinks.udp(&self.server);
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

impl Datadog {
    fn send(&self, facts: &Facts<'_>) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        with_lines(
            |out| self.write(facts, out),
            |lines| queue.push_lines(b"", lines.as_bytes()),
        );
    }

    fn write(&self, facts: &Facts<'_>, out: &mut String) {
        let service = match facts.service {
            Some(service) => match service.name {
                Some(name) => name.replace('.', "_"),
                None => facts.service_host().unwrap_or_default().replace('.', "_"),
            },
            None => String::new(),
        };
        for metric in &self.metrics {
            out.push_str(&metric.start);
            match metric.name {
                Name::RequestCount => out.push('1'),
                Name::RequestSize => push_number(facts.request_size, out),
                Name::ResponseSize => push_number(facts.response_size, out),
                Name::Latency => push_number(facts.latency, out),
                Name::KongLatency => push_number(facts.kong_latency, out),
                Name::UpstreamLatency => match facts.upstream_latency {
                    Some(latency) => push_number(latency, out),
                    None => out.push_str("-1"),
                },
            }
            out.push_str(&metric.kind);
            out.push_str(&self.service_tag);
            push_name(&service, out);
            out.push(',');
            out.push_str(&self.status_tag);
            push_number(facts.status, out);
            let consumer = metric
                .consumer
                .and_then(|identifier| identifier.of(facts.consumer));
            if let Some(consumer) = consumer {
                out.push(',');
                out.push_str(&self.consumer_tag);
                match metric.consumer {
                    Some(ConsumerIdentifier::ConsumerId) => {
                        out.push_str(&consumer.replace('-', "_"))
                    }
                    _ => push_name(&consumer, out),
                }
            }
            out.push_str(&metric.tags);
            out.push('\n');
        }
    }
}

impl Statistic {
    fn new(metric: &Metric, prefix: &str) -> Self {
        let name = match metric.name {
            Name::KongLatency => "kong_latency",
            Name::Latency => "latency",
            Name::RequestCount => "request.count",
            Name::RequestSize => "request.size",
            Name::ResponseSize => "response.size",
            Name::UpstreamLatency => "upstream_latency",
        };
        let mut start = String::new();
        push_name(prefix, &mut start);
        let tags = metric.tags.iter().flatten();
        Self {
            name: metric.name,
            start: format!("{start}.{name}:"),
            kind: format!(
                "|{}{}|#",
                metric.stat_type.letter(),
                rate(metric.sample_rate)
            ),
            tags: tags.map(|tag| format!(",{}", within_line(tag))).collect(),
            consumer: metric.consumer_identifier,
        }
    }
}
