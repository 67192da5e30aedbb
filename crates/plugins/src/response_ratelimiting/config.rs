//! The configuration of response-ratelimiting, after its schema has set the defaults.

use crate::redis::Redis;
use compact_str::CompactString;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Header of the upstream's response that tells what it uses up. Default: `x-kong-limit`.
    pub(super) header_name: Option<CompactString>,
    /// The property that identifies whoever makes a request. Default: `consumer`. Requests without the property are
    /// identified by the client's address.
    pub(super) limit_by: Option<LimitBy>,
    /// The place of the counters. Default: `local`.
    pub(super) policy: Option<Policy>,
    /// Whether requests pass without limits while Redis cannot be reached. Default: true.
    pub(super) fault_tolerant: bool,
    pub(super) redis: Redis,
    /// Whether requests are refused as soon as nothing remains for one of the names. Default: false.
    pub(super) block_on_first_violation: bool,
    /// Whether responses do not show the limits of each period. Default: false.
    pub(super) hide_client_headers: bool,
    /// Number of bits of an IPv6 address that identify a client. A field of ours. Default: 128.
    pub(super) ipv6_prefix: Option<u8>,
    /// The limits by the names that the upstream uses.
    pub(super) limits: BTreeMap<CompactString, Limits>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) second: Option<f64>,
    pub(super) minute: Option<f64>,
    pub(super) hour: Option<f64>,
    pub(super) day: Option<f64>,
    pub(super) month: Option<f64>,
    pub(super) year: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LimitBy {
    Consumer,
    Credential,
    Ip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Policy {
    /// Each node has its own counters.
    Local,
    /// The counters of all nodes of a database.
    Cluster,
    Redis,
}
