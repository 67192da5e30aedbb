//! prometheus: counts requests and sessions by route, service, status and consumer, and their latencies and sizes.
//! `/metrics` shows the series; what it shows without this plugin, the gateway adds.
//! Source: kong/plugins/prometheus/exporter.lua.

mod counted;
mod families;
mod series;
mod sweep;
#[cfg(test)]
mod tests;

use counted::Amounts;
use model::schema::PluginSource;
use plugin::{
    BuildCx, BuildError, EndedStreamCx, Instrumentations, LogCx, LogEntry, Node, Origin, Phases,
    Plugin, PluginDef, Scopes, Trace, TryEnd,
};
use serde::Deserialize;
use series::{Kong, RouteSeries};
use services::metrics::TraceId;
use services::workers::this_worker;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

pub(crate) const SOURCE: PluginSource =
    PluginSource::plain("prometheus", include_str!("schema.json"));

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Prometheus>("prometheus", 13, Phases::LOG_WITHOUT_HEAD, Scopes::ALL)
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
        let (config, entry, here) = (&self.config, cx.entry, this_worker());
        if config.status_code_metrics || config.bandwidth_metrics {
            let consumer = match config.per_consumer {
                true => cx.state.consumer.as_deref(),
                false => None,
            };
            let answer = (entry.status, entry.origin == Origin::Upstream);
            let bytes = (entry.request_size, entry.response_size);
            let amounts = Amounts {
                answer: config.status_code_metrics.then_some(answer),
                bytes: config.bandwidth_metrics.then_some(bytes),
            };
            series.count(kong, here, consumer, amounts);
        }
        if config.latency_metrics {
            let trace = traced(&cx.state.trace, entry);
            series.observe(kong, here, &entry.latencies, trace);
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
        let (config, entry, here) = (&self.config, cx.entry, this_worker());
        if config.status_code_metrics {
            let last = entry.tries.last().map(|last| last.end);
            let by_upstream = matches!(last, Some(TryEnd::Answered(_)));
            series.add_session(kong, here, entry.status, by_upstream);
        }
        if config.bandwidth_metrics {
            let amounts = Amounts {
                answer: None,
                bytes: Some((entry.received, entry.sent)),
            };
            series.count(kong, here, None, amounts);
        }
        if config.latency_metrics {
            series.observe_session(kong, here, &entry.latencies);
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

/// The id of the request's trace for exemplars, and the end of the request since 1970. `None` if the trace is not recorded:
/// then there is nothing that the exemplar could lead to.
#[inline]
fn traced(trace: &Trace, entry: &LogEntry<'_>) -> Option<(TraceId, Duration)> {
    let id = trace
        .id
        .filter(|_| trace.records(Instrumentations::REQUEST))?;
    let started = entry.started_at.duration_since(UNIX_EPOCH).ok()?;
    Some((id.number.to_be_bytes(), started + entry.latencies.request))
}
