//! The configuration of statsd, after its schema has set the defaults.

use crate::queue_config::Deprecated;
use crate::statistics::{ConsumerIdentifier, StatType};
use serde::Deserialize;
use services::queue::QueueParams;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) prefix: Option<String>,
    pub(super) metrics: Option<Vec<Metric>>,
    /// Ranges of status codes to count, such as `200-299`. `None`: all.
    pub(super) allow_status_codes: Option<Vec<String>>,
    pub(super) udp_packet_size: Option<f64>,
    pub(super) use_tcp: Option<bool>,
    pub(super) hostname_in_prefix: Option<bool>,
    pub(super) consumer_identifier_default: ConsumerIdentifier,
    pub(super) service_identifier_default: ServiceIdentifier,
    pub(super) workspace_identifier_default: WorkspaceIdentifier,
    pub(super) tag_style: Option<TagStyle>,
    pub(super) queue: QueueParams,
    pub(super) retry_count: Option<i64>,
    pub(super) queue_size: Option<i64>,
    pub(super) flush_timeout: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metric {
    pub(super) name: Name,
    pub(super) stat_type: StatType,
    pub(super) sample_rate: Option<f64>,
    pub(super) consumer_identifier: Option<ConsumerIdentifier>,
    pub(super) service_identifier: Option<ServiceIdentifier>,
    pub(super) workspace_identifier: Option<WorkspaceIdentifier>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Name {
    KongLatency,
    Latency,
    RequestCount,
    RequestPerUser,
    RequestSize,
    ResponseSize,
    StatusCount,
    StatusCountPerUser,
    UniqueUsers,
    UpstreamLatency,
    StatusCountPerWorkspace,
    StatusCountPerUserPerRoute,
    ShdictUsage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum ServiceIdentifier {
    #[serde(rename = "service_id")]
    Id,
    #[serde(rename = "service_name")]
    Name,
    #[serde(rename = "service_host")]
    Host,
    #[serde(rename = "service_name_or_host")]
    NameOrHost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkspaceIdentifier {
    WorkspaceId,
    WorkspaceName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TagStyle {
    Dogstatsd,
    Influxdb,
    Librato,
    Signalfx,
}

impl Config {
    pub(super) fn deprecated(&self) -> Deprecated {
        Deprecated {
            retry_count: self.retry_count,
            queue_size: self.queue_size,
            flush_timeout: self.flush_timeout,
        }
    }
}
