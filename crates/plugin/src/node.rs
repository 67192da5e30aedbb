//! What a node offers to its plugins.

use crate::def::NodeIdentity;
use crate::entities::{Entities, NoEntities};
use expr::Block;
use net::dns::Resolver;
use net::tls::{CertificateError, Trust};
use services::metrics::Page;
use services::{
    Background, Clock, Dicts, Metrics, Queues, Shared, Sinks, Workers, http, ldap, redis,
};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use tokens::TokenStore;
use tokens::sessions::SessionStore;

/// The node, as plugins use it. There is one per process. It outlives every configuration, so state that must survive
/// a change of the configuration is kept here and not in plugins. Nothing here makes a worker wait.
pub struct Node {
    pub identity: NodeIdentity,
    /// Consumers, credentials and other entities that are not part of the snapshot.
    pub entities: Arc<dyn Entities>,
    /// OAuth2 tokens and authorization codes. A node of tests or measurements may have none.
    pub tokens: Option<Arc<dyn TokenStore>>,
    /// Sessions of the plugin session. A node of tests or measurements may have no store of them.
    pub sessions: Option<Arc<dyn SessionStore>>,
    /// State of plugins by plugin and key, which lives as long as something uses it.
    pub shared: Shared,
    pub clock: Clock,
    /// Runs tasks and timers on a given worker.
    pub workers: Workers,
    /// Runs tasks on a thread of its own.
    pub background: Background,
    /// Queues to slow receivers, such as log servers.
    pub queues: Queues,
    /// Receivers of the lines in queues: TCP and UDP servers, files, the system's log.
    pub sinks: Sinks,
    pub http: http::Client,
    pub ldap: ldap::Client,
    pub redis: redis::Client,
    pub metrics: Metrics,
    /// The shared dictionaries of Lua code (`ngx.shared`).
    pub dicts: Dicts,
    /// Maximum bytes of what plugins cache (`mem_cache_size`, the size of Kong's zone `kong_db_cache`).
    pub cache_size: usize,
    /// The peers whose forwarding headers are believed.
    pub trusted_ips: Vec<Block>,
    /// The settings as a JSON object, with sensitive values masked (`kong.configuration`).
    pub configuration: String,
    /// Maximum size of a request body that Lua code gets without asking for a larger one
    /// (`nginx_http_client_body_buffer_size`).
    pub body_buffer: usize,
    /// Whether log records hide credentials in queries, cookies and headers (`log_redact`). Kong's records hide only
    /// `Authorization` and `Proxy-Authorization`.
    pub redacts_records: bool,
    /// Whether log records have the reason of an incomplete response (`log_record_reason`).
    pub records_reason: bool,
    /// Counts the connections. It is set once the node serves.
    pub connections: OnceLock<CountConnections>,
    /// Writes the metrics of the node that are not in [`Self::metrics`] too. It is set once the node serves.
    pub all_metrics: OnceLock<WriteMetrics>,
}

/// Writes all that `/metrics` shows.
pub type WriteMetrics = Box<dyn Fn(&mut Page) + Send + Sync>;

/// Returns the numbers of connections and requests at this moment.
pub type CountConnections = Box<dyn Fn() -> Connections + Send + Sync>;

/// The numbers of connections and requests of a node, as on nginx's status page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    pub active: u64,
    pub reading: u64,
    pub writing: u64,
    pub waiting: u64,
    pub accepted: u64,
    pub requests: u64,
}

/// What a node is made of.
pub struct NodeParts {
    pub identity: NodeIdentity,
    pub entities: Arc<dyn Entities>,
    pub tokens: Option<Arc<dyn TokenStore>>,
    pub sessions: Option<Arc<dyn SessionStore>>,
    pub metrics: Metrics,
    /// The certificates that the HTTP client, the LDAP client and the Redis client trust.
    pub trust: Trust,
    pub resolver: Resolver,
    pub background: Background,
    pub cache_size: usize,
    /// The addresses of `trusted_ips`.
    pub trusted_ips: Vec<Block>,
    /// The settings as a JSON object, with sensitive values masked (`kong.configuration`).
    pub configuration: String,
    /// Maximum size of a request body that Lua code gets without asking for a larger one
    /// (`nginx_http_client_body_buffer_size`).
    pub body_buffer: usize,
    /// Whether log records hide credentials (`log_redact`).
    pub redacts_records: bool,
}

/// The default of `mem_cache_size`.
pub const CACHE_SIZE: usize = 128 * 1024 * 1024;

/// The default of `nginx_http_client_body_buffer_size`.
pub const BODY_BUFFER: usize = 8 * 1024;

impl Node {
    pub fn new(parts: NodeParts) -> Result<Self, CertificateError> {
        let NodeParts {
            identity,
            entities,
            tokens,
            sessions,
            metrics,
            trust,
            resolver,
            background,
            cache_size,
            trusted_ips,
            configuration,
            body_buffer,
            redacts_records,
        } = parts;
        let queues = Queues::new(background.clone());
        queues.expose(&metrics);
        let redis = redis::Client::new(trust.clone(), resolver.clone(), background.clone())?;
        redis.expose(&metrics);
        Ok(Self {
            identity,
            entities,
            tokens,
            sessions,
            shared: Shared::default(),
            clock: Clock::system(),
            workers: Workers::default(),
            ldap: ldap::Client::new(trust.clone(), resolver.clone(), background.clone())?,
            redis,
            sinks: Sinks::new(trust.clone(), resolver.clone())?,
            http: http::Client::new(trust, resolver, background.clone())?,
            background,
            queues,
            metrics,
            dicts: Dicts::new(cache_size),
            cache_size,
            trusted_ips,
            configuration,
            body_buffer,
            redacts_records,
            records_reason: false,
            connections: OnceLock::new(),
            all_metrics: OnceLock::new(),
        })
    }

    /// Returns the numbers of connections, which are 0 before the node serves.
    pub fn count_connections(&self) -> Connections {
        self.connections
            .get()
            .map(|count| count())
            .unwrap_or_default()
    }

    /// Writes all metrics of the node. Before it serves, these are only those of [`Self::metrics`].
    pub fn write_metrics(&self, page: &mut Page) {
        match self.all_metrics.get() {
            Some(write) => write(page),
            None => self.metrics.write(page),
        }
    }

    /// Whether this address is one of `trusted_ips`.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_ips.iter().any(|block| block.contains(address))
    }

    /// A node with these entities and nothing else, for tests and measurements.
    pub fn with_entities(entities: Arc<dyn Entities>) -> io::Result<Arc<Self>> {
        let node = Self::new(NodeParts {
            identity: NodeIdentity::default(),
            entities,
            tokens: None,
            sessions: None,
            metrics: Metrics::new(1),
            trust: Trust::Anyone,
            resolver: Resolver::default(),
            background: Background::start()?,
            cache_size: CACHE_SIZE,
            trusted_ips: Vec::new(),
            configuration: "{}".to_owned(),
            body_buffer: BODY_BUFFER,
            redacts_records: false,
        });
        Ok(Arc::new(node.map_err(io::Error::other)?))
    }

    /// A node without entities, for tests and measurements.
    pub fn bare() -> io::Result<Arc<Self>> {
        Self::with_entities(Arc::new(NoEntities))
    }
}
