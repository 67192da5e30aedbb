//! The configuration of rate-limiting, after its schema has set the defaults.

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
    #[expect(
        dead_code,
        reason = "it is read so that the schema and this struct agree; the policy redis needs it"
    )]
    pub(super) fault_tolerant: bool,
    /// Where the counters are, for `policy = redis`.
    #[expect(
        dead_code,
        reason = "it is read so that the schema and this struct agree; the policy redis needs it"
    )]
    pub(super) redis: Redis,
    /// Whether responses do not show limits and remaining requests. Default: false.
    pub(super) hide_client_headers: bool,
    /// Status of refusals. Default: 429. Kong answers 500 for a status that is not one of an error.
    pub(super) error_code: Option<f64>,
    /// Message of refusals. Default: "API rate limit exceeded".
    pub(super) error_message: Option<CompactString>,
    /// Seconds between two exchanges with Redis, or -1 to ask it at each request. Default: -1.
    #[expect(
        dead_code,
        reason = "it is read so that the schema and this struct agree; the policy redis needs it"
    )]
    pub(super) sync_rate: f64,
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
pub(super) enum Policy {
    /// Each node has its own counters.
    Local,
    /// The counters of all nodes of a database.
    Cluster,
    Redis,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "the fields are read so that an unknown one is an error; the policy redis is refused"
)]
pub(super) struct Redis {
    pub(super) host: Option<CompactString>,
    /// Default: 6379.
    pub(super) port: Option<u16>,
    /// Milliseconds for connecting, sending and receiving. Default: 2000.
    pub(super) timeout: Option<u32>,
    pub(super) username: Option<CompactString>,
    pub(super) password: Option<CompactString>,
    /// Number of the database. Default: 0.
    pub(super) database: Option<i64>,
    pub(super) ssl: Option<bool>,
    pub(super) ssl_verify: Option<bool>,
    pub(super) server_name: Option<CompactString>,
}
