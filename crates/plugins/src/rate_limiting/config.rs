//! The configuration of rate-limiting, after its schema has set the defaults.

use crate::redis::Redis;
use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// Requests that one identifier may make in a calendar second (UTC). At least one period has a limit. A limit may
    /// have a fraction: 1.5 lets two requests pass, as in Kong.
    pub(super) second: Option<f64>,
    pub(super) minute: Option<f64>,
    pub(super) hour: Option<f64>,
    pub(super) day: Option<f64>,
    pub(super) month: Option<f64>,
    pub(super) year: Option<f64>,
    /// The property that identifies whoever makes a request. Default: `consumer`. Requests without the property are
    /// identified by the client's address.
    pub(super) limit_by: Option<LimitBy>,
    /// Name of the header that identifies, for `limit_by = header`.
    pub(super) header_name: Option<CompactString>,
    /// Path whose requests share counters, for `limit_by = path`.
    pub(super) path: Option<CompactString>,
    /// The place of the counters. Default: `local`.
    pub(super) policy: Option<Policy>,
    /// Whether requests pass while the counters cannot be reached. Default: true. Counters of the node can always be
    /// reached, so that this matters only for `redis`.
    pub(super) fault_tolerant: bool,
    /// Where the counters are, for `policy = redis`.
    pub(super) redis: Redis,
    /// Whether responses do not show limits and remaining requests. Default: false.
    pub(super) hide_client_headers: bool,
    /// Status of refusals. Default: 429. Kong answers 500 for a status that is not one of an error.
    pub(super) error_code: Option<f64>,
    /// Message of refusals. Default: "API rate limit exceeded".
    pub(super) error_message: Option<CompactString>,
    /// Seconds between two exchanges with Redis, or -1 to ask it at each request. Default: -1.
    pub(super) sync_rate: f64,
    /// How a window follows another one. A field of ours. Default: `fixed`.
    pub(super) window_type: Option<WindowType>,
    /// Whether nodes take slices of the limits from Redis ahead of use. A field of ours. Default: false.
    pub(super) leases: Option<bool>,
    /// What becomes of requests without a lease while Redis cannot be reached. A field of ours. Default: `open` or
    /// `closed`, as `fault_tolerant` says.
    pub(super) on_unreachable: Option<OnUnreachable>,
    /// Number of bits of an IPv6 address that identify a client. A field of ours. Default: 128.
    pub(super) ipv6_prefix: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LimitBy {
    Consumer,
    Credential,
    Ip,
    Service,
    Header,
    Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WindowType {
    /// A window begins with each calendar minute, hour and so on.
    Fixed,
    /// A window ends now, and begins a minute, an hour and so on ago.
    Sliding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnUnreachable {
    /// They pass.
    Open,
    /// They fail with status 500.
    Closed,
    /// The node counts alone, with the limits divided by the number of nodes.
    Local,
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
