//! The interface between the Admin API and the gateway. The program implements it (and a fake in tests), so that this
//! crate does not depend on workers, snapshots or signals.

use crate::endpoints::Extensions;
use crate::explain::{Conflicts, Explanation, Question, Search};
pub use crate::health::{AddressHealth, TargetHealth, UpstreamHealth, Weight};
pub use crate::metrics::{Metric, Reading, Timed};
pub use crate::profiles::{ProfileFormat, ProfileOrder};
pub use crate::proposal::{Preview, Proposal, Refusal};
pub use crate::reload::{LoadedConfiguration, Reload, Reloading};
pub use crate::respond::Failure;
use crate::tokens::{self, Tokens};
use ::tokens::TokenStore;
use axum::http::HeaderMap;
use futures_util::future::BoxFuture;
use model::{EntityKind, Object};
use schemars::JsonSchema;
use serde::Serialize;
use services::metrics::Page;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// Name under which the store keeps the hash of the configuration.
pub const CONFIGURATION_HASH: &str = "configuration_hash";

/// The running node, as the Admin API sees it. Methods that return futures may take long. All other methods return
/// immediately: they read at most a small local file, for example in `/proc`.
pub trait Control: Send + Sync + 'static {
    /// Validates a declarative configuration, stores it and makes it live in every worker; resolves when it is live. On
    /// any error the running configuration stays. Validation is expensive: the implementation moves it off the caller's
    /// thread.
    fn load_declarative(&self, load: Load) -> BoxFuture<'_, Result<Loaded, LoadError>>;

    /// Carries out a proposal; resolves with its revision when it is live. Proposals that wait at the same time become
    /// durable in one transaction, each as its own revision.
    fn commit(&self, _proposal: Proposal) -> BoxFuture<'_, Result<store::Revision, LoadError>> {
        Box::pin(async { Err(LoadError::Unavailable) })
    }

    /// Health of an upstream's targets on this node; `None` if the node does not serve the upstream.
    fn upstream_health(&self, _upstream: Uuid) -> Option<UpstreamHealth> {
        None
    }

    /// Marks a target (`host:port`) healthy or unhealthy. Without an address, this affects all addresses of the target.
    /// Otherwise it affects those with this port and this IP address, or this name from an SRV record. The client
    /// receives the text of an error.
    fn set_target_health(
        &self,
        upstream: Uuid,
        _target: &str,
        _address: Option<(&str, u16)>,
        _healthy: bool,
    ) -> Result<(), String> {
        Err(format!("Upstream {upstream} has no balancer"))
    }

    /// Explains how the live configuration would handle a request. This is expensive: the implementation moves it off
    /// the caller's thread and limits how many run at a time.
    fn explain(&self, _question: Question) -> BoxFuture<'_, Result<Explanation, Failure>> {
        Box::pin(async { Err(Failure::not_found()) })
    }

    /// Finds conflicts between routes; the default finds none. Expensive, like [`Control::explain`].
    fn conflicts(&self, _search: Search) -> BoxFuture<'_, Result<Conflicts, Failure>> {
        Box::pin(async { Ok(Conflicts::default()) })
    }

    /// Returns notices for the user about written plugins that do not do what is configured.
    fn notices(&self, _plugins: &[model::entities::Plugin]) -> Vec<String> {
        Vec::new()
    }

    /// Reads the settings again. With `database = off`, also reads the declarative file again. Resolves with the effects.
    /// If nothing was changed, resolves with the reason as an error.
    fn reload(&self, _reload: Reload) -> BoxFuture<'_, Result<Reloading, String>> {
        Box::pin(async { Err("reloading is not available".to_owned()) })
    }

    /// Takes a profile of the CPU time of this process, which lasts for seconds; resolves with it in the wanted format.
    /// Dropping the future ends the profile.
    fn profile(&self, order: ProfileOrder) -> BoxFuture<'_, Result<Vec<u8>, Failure>>;

    /// The store with the entities at the newest revision.
    fn store(&self) -> &store::Store;

    /// The store of OAuth2 tokens, if the node has one.
    fn oauth2_tokens(&self) -> Option<Arc<dyn TokenStore>> {
        None
    }

    /// Data that schemas need for validation, such as the router flavor, the enabled plugins and the current time.
    fn context(&self) -> model::schema::Context;

    fn database(&self) -> Database;

    fn node(&self) -> &Node;

    /// Names of the enabled plugins, resolved from the `plugins` setting.
    fn enabled_plugins(&self) -> Vec<String>;

    /// The endpoints of the enabled plugins, if there are any. The API asks for them once, when it is built.
    fn extensions(&self) -> Option<Extensions> {
        None
    }

    /// Effective values of all settings by their Kong names, with secrets already masked.
    fn settings(&self) -> serde_json::Value;

    /// Process ids of master and workers. The gateway is one process with threads, so both are the same.
    fn pids(&self) -> Pids;

    fn connections(&self) -> Connections;

    fn memory(&self) -> Memory;

    /// Counters of the resolver, named as in Kong's newer DNS client; `None` with the legacy client, which has no
    /// counters.
    fn dns_statistics(&self) -> Option<DnsStatistics> {
        None
    }

    /// Metrics for `GET /metrics`, sorted by name.
    fn metrics(&self) -> Vec<Metric>;

    /// Writes further metrics: Kong's, and those of plugins and of what the node does for them. They follow the others.
    fn write_metrics(&self, _page: &mut Page) {}

    /// Whether `GET /metrics` offers the format OpenMetrics.
    fn offers_openmetrics(&self) -> bool {
        false
    }

    /// MD5 hash of the running declarative configuration; all zeros if the configuration is empty.
    fn configuration_hash(&self) -> [u8; 16];

    /// Whether the node serves requests with the stored configuration.
    fn readiness(&self) -> Readiness;

    /// Reports the node as draining from now on, so that load balancers stop using it. It still serves requests.
    fn announce_drain(&self);

    /// Whether exchanges of this API are to be passed to [`Control::log_access`].
    fn logs_access(&self, _api: Api) -> bool {
        false
    }

    /// Logs a completed exchange. Does not block.
    fn log_access(&self, _api: Api, _access: &Access) {}

    /// The credentials that are valid now. The implementation may check whether the token file has changed.
    fn credentials(&self) -> Credentials {
        Credentials::default()
    }

    /// Logs an attempted write over the Admin API. Does not block.
    fn audit(&self, _audit: &Audit) {}

    fn log_level(&self) -> LogLevel;

    /// Sets the log level. Restores the previous level after `timeout`, unless `timeout` is zero.
    fn set_log_level(&self, level: LogLevel, timeout: Duration);
}

/// The credentials that clients can use over the network.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    pub tokens: Arc<Tokens>,
    /// Role of clients whose certificate a listener has verified; `None` if certificates are not accepted as
    /// credentials.
    pub certificates: Option<tokens::Role>,
    /// Whether every listener admits clients while no credentials are configured. Otherwise only listeners on loopback
    /// addresses admit them.
    pub unauthenticated: bool,
}

impl Credentials {
    /// Whether neither tokens nor client certificates are configured.
    pub fn are_none(&self) -> bool {
        self.tokens.is_empty() && self.certificates.is_none()
    }
}

/// Statistics of the resolver that all workers share.
#[derive(Debug, Clone, Default)]
pub struct DnsStatistics {
    pub workers: usize,
    pub counters: net::dns::Counters,
}

/// A declarative configuration to load.
#[derive(Debug)]
pub struct Load {
    pub body: DeclarativeBody,
    /// Return [`Loaded::Unchanged`] if the text has the hash of the running configuration. This affects only
    /// [`DeclarativeBody::Text`], because only a text has a comparable hash.
    pub check_hash: bool,
    /// Report errors as `flattened_errors` too.
    pub flatten_errors: bool,
    pub origin: store::Origin,
}

#[derive(Debug)]
pub enum DeclarativeBody {
    /// A JSON body that is itself the configuration, still encoded ([`model::declarative::Source::JsonBody`]).
    Json(bytes::Bytes),
    /// A body in another encoding that is itself the configuration, already decoded
    /// ([`model::declarative::Source::Object`]).
    Structured(Object),
    /// JSON or YAML text, tried in that order; its MD5 hash is the configuration hash
    /// ([`model::declarative::Source::Text`] with `Format::Auto`).
    Text(bytes::Bytes),
}

#[derive(Debug)]
pub enum Loaded {
    Unchanged,
    Live {
        revision: store::Revision,
        /// Entities that storing has changed, for example by hashing a password. Here they are as the client sent them,
        /// because the response to `POST /config` shows this form. The list is short and unsorted.
        untransformed: Vec<(EntityKind, Uuid, Object)>,
        /// Sentences about input that is probably a mistake, about plugins that are not implemented, and about vault
        /// references.
        warnings: Vec<String>,
    },
}

#[derive(Debug)]
pub enum LoadError {
    /// The configuration or entity is invalid; the client gets the error unchanged.
    Invalid(Box<model::Error>),
    /// Another load is in progress.
    Busy,
    Exiting,
    TimedOut,
    /// The store has no room for the configuration.
    TooLarge,
    /// Writing failed because space or permission is missing.
    Disk(std::io::Error),
    /// The newest revision is not the expected one.
    Conflict {
        expected: store::Revision,
        head: store::Revision,
    },
    /// The proposal was refused with this response.
    Refused(Failure),
    /// Not supported in this mode.
    Unavailable,
    /// Details for the log; the client gets "An unexpected error occurred".
    Internal(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// Declarative configuration only: single entities cannot be written.
    Off,
    /// The embedded store, writable.
    Lmdb,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub id: Uuid,
    pub hostname: String,
    /// Silverback's own version, for example `0.1.0`.
    pub version: String,
    /// The Kong version reported to clients, for example `3.9.1`.
    pub kong_version: String,
    pub role: Role,
    /// Whether responses have Kong's `Server` header (setting `headers`).
    pub server_header: bool,
    /// Whether responses have Kong's latency headers (setting `headers`).
    pub latency_header: bool,
    /// Origins of `admin_gui_url`, the CORS allow-list. If empty, every origin is allowed.
    pub gui_origins: Vec<String>,
    /// Maximum size of a request body in bytes (setting `nginx_admin_client_max_body_size`); `None` for no limit. Some
    /// paths have the limit [`Node::max_config_size`] instead.
    pub max_body_size: Option<usize>,
    /// Maximum size of the bodies of `POST /config`, `/changes` and `/import` in bytes; `None` for no limit.
    pub max_config_size: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Traditional,
    ControlPlane,
    DataPlane,
}

/// The process ids in the response to `GET /`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Pids {
    pub master: u32,
    pub workers: Vec<u32>,
}

/// The connection counts in the response to `GET /status`.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct Connections {
    #[serde(rename = "connections_active")]
    pub active: u64,
    #[serde(rename = "connections_reading")]
    pub reading: u64,
    #[serde(rename = "connections_writing")]
    pub writing: u64,
    #[serde(rename = "connections_waiting")]
    pub waiting: u64,
    #[serde(rename = "connections_accepted")]
    pub accepted: u64,
    #[serde(rename = "connections_handled")]
    pub handled: u64,
    pub total_requests: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Resident memory of the process, in bytes.
    pub resident: u64,
    /// Bytes used in the store's memory map.
    pub store_used: u64,
    /// Size of the store's memory map, in bytes.
    pub store_capacity: u64,
}

/// The APIs that a listener can serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Admin,
    Status,
}

/// A completed exchange, for the access log.
#[derive(Debug)]
pub struct Access {
    pub peer: SocketAddr,
    pub method: String,
    pub target: String,
    /// Protocol version, `HTTP/1.1`.
    pub version: &'static str,
    pub headers: HeaderMap,
    /// Status of the response; 499 if the client disconnected before it.
    pub status: u16,
    pub body_size: u64,
    pub took: Duration,
}

impl Access {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(|value| value.as_bytes())
    }
}

/// An attempted write, for the audit log.
#[derive(Debug, Clone)]
pub struct Audit {
    pub time: SystemTime,
    pub source: String,
    pub actor: Option<String>,
    pub request_id: String,
    pub method: String,
    pub path: String,
    /// `None` if the client disconnected before the response, or if the write panicked. The write may have taken
    /// effect.
    pub status: Option<u16>,
    pub took: Duration,
    /// The newest revision after a successful write.
    pub revision: Option<store::Revision>,
    /// The message of the revision; without a revision, that of the request's header.
    pub message: Option<String>,
}

/// The states that `GET /status/ready` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The node is shutting down, or [`Control::announce_drain`] was called.
    Draining,
    /// `database = off`, and no configuration is loaded.
    Empty,
    /// Only `ready` of the `workers` serve the stored configuration so far.
    Building {
        ready: usize,
        workers: usize,
    },
}

/// Kong's log levels, the same as nginx's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warn,
    Error,
    Crit,
    Alert,
    Emerg,
}

impl LogLevel {
    pub const ALL: [LogLevel; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warn,
        Self::Error,
        Self::Crit,
        Self::Alert,
        Self::Emerg,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Crit => "crit",
            Self::Alert => "alert",
            Self::Emerg => "emerg",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
