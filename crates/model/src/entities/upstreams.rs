//! Upstreams with their load balancing and health checks, and their targets. A field that is null in the entity has the
//! default of Kong's schema here.

use super::{CertificateId, TargetId, UpstreamId, string_lists};
use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Upstream {
    pub id: UpstreamId,
    pub name: CompactString,
    #[serde(default)]
    pub algorithm: Algorithm,
    #[serde(default)]
    pub hash_on: HashOn,
    #[serde(default)]
    pub hash_fallback: HashOn,
    pub hash_on_header: Option<CompactString>,
    pub hash_fallback_header: Option<CompactString>,
    /// Name of the cookie for `hash_on` and for `hash_fallback`.
    pub hash_on_cookie: Option<CompactString>,
    /// Path of the cookie. The default is `/`.
    pub hash_on_cookie_path: Option<CompactString>,
    pub hash_on_query_arg: Option<CompactString>,
    pub hash_fallback_query_arg: Option<CompactString>,
    pub hash_on_uri_capture: Option<CompactString>,
    pub hash_fallback_uri_capture: Option<CompactString>,
    #[serde(default = "default_slots")]
    pub slots: u32,
    #[serde(default)]
    pub healthchecks: Healthchecks,
    pub host_header: Option<CompactString>,
    pub client_certificate: Option<CertificateId>,
    #[serde(default)]
    pub use_srv_name: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Target {
    pub id: TargetId,
    pub upstream: UpstreamId,
    /// The target as given; [`crate::address`] parses it.
    pub target: CompactString,
    #[serde(default = "default_weight")]
    pub weight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    #[default]
    RoundRobin,
    ConsistentHashing,
    LeastConnections,
    Latency,
}

/// The part of a request whose hash selects the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HashOn {
    #[default]
    None,
    Consumer,
    Ip,
    Header,
    Cookie,
    Path,
    QueryArg,
    UriCapture,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Healthchecks {
    pub active: ActiveChecks,
    pub passive: PassiveChecks,
    /// Minimum percentage of the weight that must be available for the upstream to be used.
    pub threshold: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct ActiveChecks {
    #[serde(rename = "type")]
    pub kind: CheckType,
    /// Timeout of a probe in seconds.
    pub timeout: f64,
    /// Maximum number of concurrent probes of one upstream.
    pub concurrency: u32,
    pub http_path: CompactString,
    pub https_sni: Option<CompactString>,
    pub https_verify_certificate: bool,
    #[serde(deserialize_with = "string_lists")]
    pub headers: Vec<(CompactString, Vec<CompactString>)>,
    pub healthy: HealthyChecks,
    pub unhealthy: UnhealthyChecks,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct PassiveChecks {
    #[serde(rename = "type")]
    pub kind: CheckType,
    #[serde(deserialize_with = "passive_healthy")]
    pub healthy: HealthyChecks,
    #[serde(deserialize_with = "passive_unhealthy")]
    pub unhealthy: UnhealthyChecks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckType {
    Tcp,
    #[default]
    Http,
    Https,
    Grpc,
    Grpcs,
}

/// Conditions that make a target healthy.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct HealthyChecks {
    /// Seconds between probes of healthy targets; 0 disables them. Active checks only.
    pub interval: f64,
    /// Number of successes that make a target healthy; 0 disables counting.
    pub successes: u8,
    pub http_statuses: Vec<u16>,
}

/// Conditions that make a target unhealthy. A number of failures or timeouts of 0 means that they are not counted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct UnhealthyChecks {
    /// Seconds between probes of unhealthy targets; 0 disables them. Active checks only.
    pub interval: f64,
    pub http_failures: u8,
    pub tcp_failures: u8,
    pub timeouts: u8,
    pub http_statuses: Vec<u16>,
}

impl Default for ActiveChecks {
    fn default() -> Self {
        Self {
            kind: CheckType::Http,
            timeout: 1.0,
            concurrency: 10,
            http_path: CompactString::const_new("/"),
            https_sni: None,
            https_verify_certificate: true,
            headers: Vec::new(),
            healthy: HealthyChecks::default(),
            unhealthy: UnhealthyChecks::default(),
        }
    }
}

impl Default for PassiveChecks {
    fn default() -> Self {
        Self {
            kind: CheckType::Http,
            healthy: HealthyChecks {
                http_statuses: PASSIVE_HEALTHY.into(),
                ..HealthyChecks::default()
            },
            unhealthy: UnhealthyChecks {
                http_statuses: PASSIVE_UNHEALTHY.into(),
                ..UnhealthyChecks::default()
            },
        }
    }
}

impl Default for HealthyChecks {
    fn default() -> Self {
        Self {
            interval: 0.0,
            successes: 0,
            http_statuses: ACTIVE_HEALTHY.into(),
        }
    }
}

impl Default for UnhealthyChecks {
    fn default() -> Self {
        Self {
            interval: 0.0,
            http_failures: 0,
            tcp_failures: 0,
            timeouts: 0,
            http_statuses: ACTIVE_UNHEALTHY.into(),
        }
    }
}

const ACTIVE_HEALTHY: [u16; 2] = [200, 302];
const ACTIVE_UNHEALTHY: [u16; 8] = [429, 404, 500, 501, 502, 503, 504, 505];
const PASSIVE_HEALTHY: [u16; 19] = [
    200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 306, 307, 308,
];
const PASSIVE_UNHEALTHY: [u16; 3] = [429, 500, 503];

/// The `healthy` or `unhealthy` part of passive checks. Its statuses may be null.
#[derive(Deserialize)]
struct Passive {
    #[serde(default)]
    successes: u8,
    #[serde(default)]
    http_failures: u8,
    #[serde(default)]
    tcp_failures: u8,
    #[serde(default)]
    timeouts: u8,
    http_statuses: Option<Vec<u16>>,
}

fn passive_healthy<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<HealthyChecks, D::Error> {
    let given = Passive::deserialize(deserializer)?;
    Ok(HealthyChecks {
        interval: 0.0,
        successes: given.successes,
        http_statuses: (given.http_statuses).unwrap_or_else(|| PASSIVE_HEALTHY.into()),
    })
}

fn passive_unhealthy<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<UnhealthyChecks, D::Error> {
    let given = Passive::deserialize(deserializer)?;
    Ok(UnhealthyChecks {
        interval: 0.0,
        http_failures: given.http_failures,
        tcp_failures: given.tcp_failures,
        timeouts: given.timeouts,
        http_statuses: (given.http_statuses).unwrap_or_else(|| PASSIVE_UNHEALTHY.into()),
    })
}

fn default_slots() -> u32 {
    10_000
}

fn default_weight() -> u32 {
    100
}
