//! The configuration of opentelemetry, after its schema has set the defaults.

use crate::propagation;
use compact_str::CompactString;
use serde::Deserialize;
use services::queue::QueueParams;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// URL to which spans are sent.
    pub(super) traces_endpoint: Option<CompactString>,
    /// URL to which log lines are sent.
    pub(super) logs_endpoint: Option<CompactString>,
    /// The URL to which the gateway's metrics are sent. Kong does not have this field.
    pub(super) metrics_endpoint: Option<CompactString>,
    /// Seconds between two exports of the metrics. Default: [`METRICS_INTERVAL`]. Kong does not have this field.
    pub(super) metrics_interval: Option<f64>,
    /// The protocol of the collector. Default: OTLP over HTTP, which is Kong's only one.
    pub(super) protocol: Option<Protocol>,
    /// Further headers of requests to the endpoints.
    pub(super) headers: Option<BTreeMap<CompactString, CompactString>>,
    /// Attributes of the gateway, in addition to `service.name` and others, which they can replace.
    pub(super) resource_attributes: Option<BTreeMap<CompactString, CompactString>>,
    pub(super) queue: QueueParams,
    /// Deprecated. If it is not 200, it replaces `queue.max_batch_size`.
    pub(super) batch_span_count: Option<i64>,
    /// Deprecated. If it is not 3, it replaces `queue.max_coalescing_delay`, in seconds.
    pub(super) batch_flush_delay: Option<i64>,
    /// Milliseconds.
    pub(super) connect_timeout: Option<u64>,
    pub(super) send_timeout: Option<u64>,
    pub(super) read_timeout: Option<u64>,
    /// Name of a response header that shows the trace id.
    pub(super) http_response_header_for_traceid: Option<CompactString>,
    /// Deprecated: see `propagation`.
    pub(super) header_type: Option<propagation::HeaderType>,
    /// Share of the requests that are traced. Default: `tracing_sampling_rate`.
    pub(super) sampling_rate: Option<f64>,
    pub(super) propagation: propagation::Config,
    /// The requests that are traced because of how they ended. Kong does not have this field.
    pub(super) tail_sampling: Option<TailSampling>,
}

/// The default of `OTEL_METRIC_EXPORT_INTERVAL` in OpenTelemetry.
const METRICS_INTERVAL: Duration = Duration::from_secs(60);

/// The transports of OTLP, with the names of `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Protocol {
    #[serde(rename = "http/protobuf")]
    Http,
    #[serde(rename = "grpc")]
    Grpc,
}

/// Selects requests that are traced although the sampling rate leaves them out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TailSampling {
    /// Milliseconds from which on a request is traced.
    pub(super) latency: Option<f64>,
    /// Whether requests with a status of 500 and above are traced.
    pub(super) errors: Option<bool>,
}

impl Config {
    pub(super) fn metrics_interval(&self) -> Duration {
        let seconds = self.metrics_interval.map(Duration::try_from_secs_f64);
        seconds.and_then(Result::ok).unwrap_or(METRICS_INTERVAL)
    }

    /// Returns the parameters of the queues, and the names of the deprecated fields that are set. The defaults of these
    /// fields count as not set, as in Kong. Source: kong/tools/queue.lua, `get_plugin_params`.
    pub(super) fn queue_params(&self) -> (QueueParams, Vec<&'static str>) {
        let mut params = self.queue.clone();
        let mut deprecated = Vec::new();
        if let Some(count) = self.batch_span_count.filter(|count| *count != 200) {
            params.max_batch_size = usize::try_from(count).unwrap_or(1).max(1);
            deprecated.push("batch_span_count");
        }
        if let Some(seconds) = self.batch_flush_delay.filter(|seconds| *seconds != 3) {
            let seconds = u64::try_from(seconds).unwrap_or_default();
            params.max_coalescing_delay = Duration::from_secs(seconds);
            deprecated.push("batch_flush_delay");
        }
        (params, deprecated)
    }
}
