//! prometheus: counts requests and sessions by route, service, status and consumer, and their latencies and sizes.
//! `/metrics` shows the series; what it shows without this plugin, the gateway adds.
//! Source: kong/plugins/prometheus/exporter.lua.

mod counted;
mod series;
mod sweep;
#[cfg(test)]
mod tests;

use model::schema::PluginSource;
use plugin::{
    BuildCx, BuildError, EndedStreamCx, LogCx, Node, Origin, Phases, Plugin, PluginDef, Scopes,
    TryEnd,
};
use serde::Deserialize;
use series::{Kong, RouteSeries};
use services::workers::this_worker;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("prometheus", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Prometheus>("prometheus", 13, Phases::LOG, Scopes::ALL)
}

/// Whether a plugin has asked for the health of upstreams in `/metrics`. It is one switch for the whole node: the plugin
/// that logged last sets it. Source: kong/plugins/prometheus/handler.lua.
pub fn shows_upstream_health(node: &Node) -> bool {
    series::find(node).is_some_and(|kong| kong.shows_upstream_health())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    per_consumer: bool,
    status_code_metrics: bool,
    /// The metrics of the plugins for language models. No such plugin works yet, so nothing is counted.
    #[serde(rename = "ai_metrics")]
    _ai_metrics: bool,
    latency_metrics: bool,
    bandwidth_metrics: bool,
    upstream_health_metrics: bool,
}

struct Prometheus {
    config: Config,
    kong: OnceLock<Arc<Kong>>,
}

impl Plugin for Prometheus {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self {
            config,
            kong: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.kong.get_or_init(|| {
            let kong = series::get(node);
            kong.add_instance();
            kong
        });
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        let Some(kong) = self.kong.get() else {
            return;
        };
        kong.show_upstream_health(self.config.upstream_health_metrics);
        let request = cx.request;
        // Requests without a route are not counted, as in Kong.
        let (Some(route), Some(slot)) = (request.route, request.slot) else {
            return;
        };
        let found = || kong.of_route(cx.node, route, request.service);
        let Some(series) = slot.get_or_init::<RouteSeries>(found) else {
            return;
        };
        let (config, entry, worker) = (&self.config, cx.entry, this_worker());
        if config.status_code_metrics || config.bandwidth_metrics {
            let consumer = cx.state.consumer.as_deref();
            let consumer = consumer.filter(|_| config.per_consumer);
            series.count(kong, consumer, |counted, owner| {
                if config.status_code_metrics {
                    let answer = (entry.status, entry.origin == Origin::Upstream);
                    counted.add_request(worker, answer, kong, owner);
                }
                if config.bandwidth_metrics {
                    let bytes = (entry.request_size, entry.response_size);
                    counted.add_bytes(worker, bytes, kong, owner);
                }
            });
        }
        if config.latency_metrics {
            let [of_kong, whole] = series.latencies(kong);
            let latencies = &entry.latencies;
            of_kong.observe(worker, milliseconds(latencies.gateway));
            if let Some(upstream) = latencies.upstream {
                let of_upstream = series.upstream_latency(kong);
                of_upstream.observe(worker, milliseconds(upstream));
            }
            whole.observe(worker, milliseconds(latencies.request));
        }
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        let Some(kong) = self.kong.get() else {
            return;
        };
        kong.show_upstream_health(self.config.upstream_health_metrics);
        let session = cx.session;
        let (Some(route), Some(slot)) = (session.route, session.slot) else {
            return;
        };
        let found = || kong.of_route(cx.node, route, session.service);
        let Some(series) = slot.get_or_init::<RouteSeries>(found) else {
            return;
        };
        let (config, entry, worker) = (&self.config, cx.entry, this_worker());
        if config.status_code_metrics {
            let last = entry.tries.last().map(|last| last.end);
            let by_upstream = matches!(last, Some(TryEnd::Answered(_)));
            series.add_session(worker, entry.status, by_upstream, kong);
        }
        if config.bandwidth_metrics {
            series.count(kong, None, |counted, owner| {
                counted.add_bytes(worker, (entry.received, entry.sent), kong, owner);
            });
        }
        if config.latency_metrics {
            let [of_kong, duration] = series.session_latencies(kong);
            of_kong.observe(worker, milliseconds(entry.latencies.gateway));
            duration.observe(worker, milliseconds(entry.latencies.request));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        if let Some(kong) = self.kong.get() {
            kong.remove_instance();
        }
    }
}

/// Kong counts whole milliseconds.
#[inline]
fn milliseconds(time: Duration) -> f64 {
    time.as_millis() as f64
}
