//! The configuration of datadog, after its schema has set the defaults.

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
    pub(super) service_name_tag: Option<String>,
    pub(super) status_tag: Option<String>,
    pub(super) consumer_tag: Option<String>,
    pub(super) metrics: Vec<Metric>,
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
    pub(super) tags: Option<Vec<String>>,
    pub(super) sample_rate: Option<f64>,
    pub(super) consumer_identifier: Option<ConsumerIdentifier>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Name {
    KongLatency,
    Latency,
    RequestCount,
    RequestSize,
    ResponseSize,
    UpstreamLatency,
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
