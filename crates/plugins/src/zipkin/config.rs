//! The configuration of zipkin, after its schema has set the defaults.

use crate::propagation;
use compact_str::CompactString;
use serde::Deserialize;
use services::queue::QueueParams;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Name of the gateway in its spans.
    pub(super) local_service_name: CompactString,
    /// URL to which spans are sent. Without it only the headers of requests are changed.
    pub(super) http_endpoint: Option<CompactString>,
    /// Share of the requests that are traced, if the client has not decided.
    pub(super) sample_ratio: Option<f64>,
    /// Name of the upstream in spans if the service has none.
    pub(super) default_service_name: Option<CompactString>,
    /// Whether spans show the id of the credential.
    pub(super) include_credential: bool,
    /// 8 or 16: the length of new trace ids.
    pub(super) traceid_byte_count: u8,
    /// Deprecated: see `propagation`.
    pub(super) header_type: Option<propagation::HeaderType>,
    /// Deprecated: see `propagation`.
    pub(super) default_header_type: Option<propagation::Format>,
    /// Name of a request header with further tags.
    pub(super) tags_header: CompactString,
    pub(super) static_tags: Option<Vec<StaticTag>>,
    pub(super) http_span_name: SpanName,
    /// Milliseconds.
    pub(super) connect_timeout: Option<u64>,
    pub(super) send_timeout: Option<u64>,
    pub(super) read_timeout: Option<u64>,
    /// Name of a response header that shows the trace id.
    pub(super) http_response_header_for_traceid: Option<CompactString>,
    pub(super) phase_duration_flavor: Flavor,
    pub(super) queue: QueueParams,
    pub(super) propagation: propagation::Config,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StaticTag {
    pub(super) name: CompactString,
    pub(super) value: CompactString,
}

/// How the spans of requests are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SpanName {
    Method,
    MethodPath,
}

/// How spans show the times of phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Flavor {
    Annotations,
    Tags,
}
