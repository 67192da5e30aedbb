//! The configuration of http-log, after its schema has set the defaults.

use crate::queue_config::Deprecated;
use compact_str::CompactString;
use serde::Deserialize;
use services::queue::QueueParams;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// URL to which records are sent. Its query is not sent, as in Kong. Its user information becomes a header.
    pub(super) http_endpoint: CompactString,
    /// Default: POST.
    pub(super) method: Option<Method>,
    /// Default: `application/json`.
    pub(super) content_type: Option<CompactString>,
    /// Milliseconds after which a request to the endpoint has failed. Default: 10000.
    pub(super) timeout: Option<f64>,
    /// Milliseconds that a connection waits for the next request. Default: 60000.
    pub(super) keepalive: Option<f64>,
    /// Deprecated. It has no effect, except that it is a part of the queue's name.
    pub(super) retry_count: Option<i64>,
    /// Deprecated. If it is not 1, it replaces `queue.max_batch_size`.
    pub(super) queue_size: Option<i64>,
    /// Deprecated. If it is not 2, it replaces `queue.max_coalescing_delay`, in seconds.
    pub(super) flush_timeout: Option<f64>,
    /// Further headers of requests to the endpoint.
    pub(super) headers: Option<BTreeMap<CompactString, CompactString>>,
    pub(super) queue: QueueParams,
    /// Fields of the record as Lua code, by their keys.
    pub(super) custom_fields_by_lua: Option<BTreeMap<CompactString, CompactString>>,
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Method {
    #[default]
    Post,
    Put,
    Patch,
}
