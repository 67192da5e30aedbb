//! What the Admin API asks of the gateway it administers. Implemented by the program (and by a fake in tests), so that
//! this crate knows nothing of workers, snapshots or signals.

use crate::explain::{Conflicts, Explanation, Question, Search};
pub use crate::health::{AddressHealth, TargetHealth, UpstreamHealth, Weight};
pub use crate::metrics::{Metric, Reading, Timed};
pub use crate::proposal::{Preview, Proposal, Refusal};
pub use crate::respond::Failure;
use crate::tokens::{self, Tokens};
use axum::http::HeaderMap;
use futures_util::future::BoxFuture;
use model::{EntityKind, Object};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// The running node, seen from its Admin API. Every method but the futures returns at once and does no I/O.
pub trait Control: Send + Sync + 'static {
    /// Validates a declarative configuration, stores it and makes it live in every worker; answers when it is.
    /// On any error the running configuration stays. Heavy: the implementation moves it off the caller's thread.
    fn load_declarative(&self, load: Load) -> BoxFuture<'_, Result<Loaded, LoadError>>;

    /// Carries out a proposal and answers when it is live, with its revision. Proposals that wait at the same time become durable
    /// together, each as a revision of its own.
    fn commit(&self, _proposal: Proposal) -> BoxFuture<'_, Result<store::Revision, LoadError>> {
        Box::pin(async { Err(LoadError::Unavailable) })
    }

    /// What is known of an upstream's targets on this node; none when it does not serve the upstream.
    fn upstream_health(&self, _upstream: Uuid) -> Option<UpstreamHealth> {
        None
    }

    /// Makes a target (`host:port`) healthy or unhealthy: all its addresses, or those of one IP, or name of an SRV
    /// record, and port. What cannot be done is said to the client.
    fn set_target_health(
        &self,
        upstream: Uuid,
        _target: &str,
        _address: Option<(&str, u16)>,
        _healthy: bool,
    ) -> Result<(), String> {
        Err(format!("Upstream {upstream} has no balancer"))
    }

    /// What becomes of a request by the live configuration, and why. Heavy: the implementation moves it off the caller's thread,
    /// and lets few be answered at a time.
    fn explain(&self, _question: Question) -> BoxFuture<'_, Result<Explanation, Failure>> {
        Box::pin(async { Err(Failure::not_found()) })
    }

    /// How routes get in each other's way; not at all where none are served. Heavy, too.
    fn conflicts(&self, _search: Search) -> BoxFuture<'_, Result<Conflicts, Failure>> {
        Box::pin(async { Ok(Conflicts::default()) })
    }

    /// What users are to know about plugins that they have written: those that are not implemented.
    fn notices(&self, _plugins: &[model::entities::Plugin]) -> Vec<String> {
        Vec::new()
    }

    /// The entities at the newest revision.
    fn store(&self) -> &store::Store;

    /// What schemas need to validate with: router flavour, enabled plugins and the time now.
    fn context(&self) -> model::schema::Context;

    fn database(&self) -> Database;

    fn node(&self) -> &Node;

    /// Names of the enabled plugins, as `plugins` resolves them.
    fn enabled_plugins(&self) -> Vec<String>;

    /// Every setting under its Kong name with its effective value; sensitive ones already masked.
    fn settings(&self) -> serde_json::Value;

    /// Process ids, master first. One process with threads: both are the same.
    fn pids(&self) -> Pids;

    fn connections(&self) -> Connections;

    fn memory(&self) -> Memory;

    /// What the resolver did, in the words of Kong's newer DNS client; `None` with the legacy one, which does not tell.
    fn dns_statistics(&self) -> Option<DnsStatistics> {
        None
    }

    /// What `GET /metrics` shows, sorted by name.
    fn metrics(&self) -> Vec<Metric>;

    /// MD5 of the running declarative configuration; zeros while it is empty.
    fn configuration_hash(&self) -> [u8; 16];

    /// Whether requests are served by the stored configuration now.
    fn readiness(&self) -> Readiness;

    /// From now on the node says that it is draining, so that load balancers leave it out; it serves all the same.
    fn announce_drain(&self);

    /// Whether exchanges of an API are to be told to [`Control::log_access`].
    fn logs_access(&self, _api: Api) -> bool {
        false
    }

    /// An exchange has ended. Does not wait.
    fn log_access(&self, _api: Api, _access: &Access) {}

    /// How clients show who they are, as it is now. May look whether the file of the tokens is still the same.
    fn credentials(&self) -> Credentials {
        Credentials::default()
    }

    /// A write was tried over the Admin API. Does not wait.
    fn audit(&self, _audit: &Audit) {}

    fn log_level(&self) -> LogLevel;

    /// Sets the level now, and the former one again after `timeout` (never when it is zero).
    fn set_log_level(&self, level: LogLevel, timeout: Duration);
}

/// Who may ask over the network.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    pub tokens: Arc<Tokens>,
    /// The role of clients whose certificate a listener has verified; none where certificates show nothing.
    pub certificates: Option<tokens::Role>,
    /// Where there are no credentials at all, everybody may ask over every listener, not only over those on a loopback address.
    pub unauthenticated: bool,
}

impl Credentials {
    /// There is nothing by which a client could show who it is.
    pub fn are_none(&self) -> bool {
        self.tokens.is_empty() && self.certificates.is_none()
    }
}

/// One resolver for all workers.
#[derive(Debug, Clone, Default)]
pub struct DnsStatistics {
    pub workers: usize,
    pub counters: net::dns::Counters,
}

/// A declarative configuration to load.
#[derive(Debug)]
pub struct Load {
    pub body: DeclarativeBody,
    /// Answer [`Loaded::Unchanged`] when the text has the hash of what runs. Only a text has one that can
    /// be equal: for the other bodies this is to be ignored.
    pub check_hash: bool,
    /// Give errors also as `flattened_errors`.
    pub flatten_errors: bool,
    pub origin: store::Origin,
}

#[derive(Debug)]
pub enum DeclarativeBody {
    /// A JSON body that is itself the configuration, not decoded yet ([`model::declarative::Source::JsonBody`]).
    Json(bytes::Bytes),
    /// The same from another encoding, already decoded ([`model::declarative::Source::Object`]).
    Structured(Object),
    /// JSON or YAML, to be found out in that order; its MD5 is the configuration hash
    /// ([`model::declarative::Source::Text`] with `Format::Auto`).
    Text(bytes::Bytes),
}

#[derive(Debug)]
pub enum Loaded {
    Unchanged,
    Live {
        revision: store::Revision,
        /// Entities whose stored form differs from the given one by a write transformation (a hashed password): the
        /// answer to `POST /config` shows them as given. Sorted by nothing; few.
        untransformed: Vec<(EntityKind, Uuid, Object)>,
    },
}

#[derive(Debug)]
pub enum LoadError {
    /// The configuration or entity is wrong; shown to the client as it is.
    Invalid(Box<model::Error>),
    /// Another load is under way.
    Busy,
    Exiting,
    TimedOut,
    /// The store has no room for it.
    TooLarge,
    /// It cannot be written, for want of room or of permission.
    Disk(std::io::Error),
    /// The newest revision is not the one that was expected.
    Conflict {
        expected: store::Revision,
        head: store::Revision,
    },
    /// The proposal itself says why.
    Refused(Failure),
    /// This mode does not do that.
    Unavailable,
    /// Details for the log; the client gets "An unexpected error occurred".
    Internal(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// Declarative configuration only: writes of single entities are refused.
    Off,
    /// The embedded store, writable.
    Lmdb,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub id: Uuid,
    pub hostname: String,
    /// Our own version, `0.1.0`.
    pub version: String,
    /// The version of Kong that clients are told, `3.9.1`.
    pub kong_version: String,
    pub role: Role,
    /// Which of Kong's headers responses carry (`headers` setting).
    pub server_header: bool,
    pub latency_header: bool,
    /// `admin_gui_url`'s origins, the CORS allow-list; empty: any.
    pub gui_origins: Vec<String>,
    /// `nginx_admin_client_max_body_size`, in bytes; `None` for no limit. `POST /config` has [`Node::max_config_size`].
    pub max_body_size: Option<usize>,
    pub max_config_size: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Traditional,
    ControlPlane,
    DataPlane,
}

/// The answer to `GET /` has them as they are here.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Pids {
    pub master: u32,
    pub workers: Vec<u32>,
}

/// The answer to `GET /status` has them under these names.
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
    /// Bytes used in the store's map, and the map's size.
    pub store_used: u64,
    pub store_capacity: u64,
}

/// One of the APIs that a listener may be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Admin,
    Status,
}

/// An exchange that has ended, for the access log.
#[derive(Debug)]
pub struct Access {
    pub peer: SocketAddr,
    pub method: String,
    pub target: String,
    /// `HTTP/1.1`
    pub version: &'static str,
    pub headers: HeaderMap,
    pub status: u16,
    pub body_size: u64,
    pub took: Duration,
}

impl Access {
    /// The first line of a header.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(|value| value.as_bytes())
    }
}

/// A write, for the audit log.
#[derive(Debug, Clone)]
pub struct Audit {
    pub time: SystemTime,
    pub source: String,
    pub actor: Option<String>,
    pub request_id: String,
    pub method: String,
    pub path: String,
    /// None when the client has gone before there was one; it may have taken effect.
    pub status: Option<u16>,
    pub took: Duration,
    /// The newest revision after it, where it was carried out.
    pub revision: Option<store::Revision>,
    pub message: Option<String>,
}

/// What `GET /status/ready` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The node is about to end, or was told to say so.
    Draining,
    /// DB-less, and nothing was loaded.
    Empty,
    /// So many of the workers serve by the stored configuration.
    Building {
        ready: usize,
        workers: usize,
    },
}

/// Kong's log levels (nginx's, without `alert`'s neighbours that Kong does not name).
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
