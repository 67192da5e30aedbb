//! A client of Redis for plugins, over the crate `redis`, which encodes commands and shares a connection between calls.
//!
//! The contract:
//!
//! - A call can be made from any thread. It waits at most [`Settings::timeout`] in all, also for a connection that is
//!   being opened.
//! - All calls to a server share one connection. It is opened by the first call and served in the background.
//! - A server that fails is not asked by each call: while there is no connection, calls fail at once, and the background
//!   tries again with growing pauses (`link`).
//! - A call is sent once. If its answer is lost, the caller cannot know whether it took effect.
//! - With Sentinel, the connection leads to the master. It is replaced if the sentinels name another one.
//! - In a Cluster, each call goes to the node that has the slot of its first key; redirections are followed. All keys of
//!   a call must have the same slot: give them the same hash tag.
//! - Plugins with equal settings share a server. Names are resolved by the gateway's resolver, and TLS is the gateway's.
//! - Neither errors nor logs nor `Debug` contain passwords.
//!
//! The crate's own client for clusters is not used: it connects by itself, so that neither the resolver nor the trusted
//! certificates nor a server name could be given to it, and a pipeline of it has keys of one slot only.

mod call;
mod cluster;
mod link;
mod opener;
mod statistics;
#[cfg(test)]
mod tests;

pub use call::{Call, Script};
pub use redis::Value;

use crate::background::Background;
use crate::http::ConnectError;
use crate::metrics::Metrics;
use cluster::Cluster;
use link::Link;
use net::dns::Resolver;
use net::tls::{CertificateError, ClientTls, Trust};
use opener::{Openers, Place};
use redis::ServerError;
use statistics::{Registry, Statistics};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Makes [`Server`]s. Clones share them.
#[derive(Clone)]
pub struct Client {
    resolver: Resolver,
    /// TLS that verifies certificates.
    verifying: ClientTls,
    /// TLS that accepts any certificate.
    trusting: ClientTls,
    background: Background,
    registry: Arc<Registry>,
}

/// Where Redis is and how to talk to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    pub topology: Topology,
    /// Maximum time of a call.
    pub timeout: Duration,
    pub username: Option<Box<str>>,
    pub password: Option<Secret>,
    pub database: i64,
    pub tls: Option<Tls>,
}

/// Name or address of a server, and its port.
pub type Address = (Box<str>, u16);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topology {
    Single(Address),
    Sentinel {
        sentinels: Vec<Address>,
        /// The name by which the sentinels know the master.
        master: Box<str>,
        username: Option<Box<str>>,
        password: Option<Secret>,
    },
    Cluster {
        /// Some nodes of the cluster. They name the others.
        nodes: Vec<Address>,
        /// Maximum number of redirections that a call follows.
        redirections: u16,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Whether certificates are verified.
    pub verify: bool,
    /// The server name to ask for and to verify. Default: the host.
    pub server_name: Option<Box<str>>,
}

/// A password. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Secret(pub Box<str>);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

/// A Redis server, or several that serve as one. Its connections are closed when the last clone is dropped.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// The name in errors, logs and metrics.
    name: Arc<str>,
    shape: Shape,
    statistics: Statistics,
}

enum Shape {
    /// One server at a time, with or without sentinels.
    Single(Link),
    Cluster(Cluster),
}

/// Why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[error("Redis {server}: {kind}")]
pub struct RedisError {
    server: Arc<str>,
    #[source]
    pub kind: RedisErrorKind,
}

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RedisErrorKind {
    /// The name cannot be resolved, or there is no connection.
    #[error(transparent)]
    Connect(ConnectError),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server was not asked, because it failed before. The background tries to reach it.
    #[error("it is not asked for now, after this failure: {0}")]
    Down(Box<RedisErrorKind>),
    #[error("the connection failed: {0}")]
    Failed(redis::RedisError),
    #[error("it answered with an error: {0}")]
    Refused(ServerError),
    #[error("it sent something that it was not asked for")]
    Unexpected,
    #[error("it closed the connection without an answer")]
    Closed,
    #[error("no sentinel knows a master \"{0}\"")]
    NoMaster(Box<str>),
    #[error("the sentinels name a server that is not a master")]
    NotMaster,
    #[error("no node of the cluster has this slot")]
    NoNode,
    #[error("more redirections than are followed")]
    Redirections,
    #[error("the gateway is shutting down")]
    Stopped,
}

impl Client {
    /// Makes a client that trusts the certificates of these authorities. Fails if they cannot be read.
    pub fn new(
        trust: Trust,
        resolver: Resolver,
        background: Background,
    ) -> Result<Self, CertificateError> {
        Ok(Self {
            resolver,
            verifying: ClientTls::new(trust, None)?,
            trusting: ClientTls::new(Trust::Anyone, None)?,
            background,
            registry: Arc::default(),
        })
    }

    /// Shows the servers in the metrics.
    pub fn expose(&self, metrics: &Metrics) {
        let source: Weak<Registry> = Arc::downgrade(&self.registry);
        metrics.add_source(source);
    }

    /// Returns the server with these settings. There is no connection until it is called.
    pub fn server(&self, settings: Settings) -> Server {
        self.registry
            .server(settings, |settings| self.make(settings))
    }

    fn make(&self, settings: Settings) -> Server {
        let verify = settings.tls.as_ref().is_some_and(|tls| tls.verify);
        let tls = match verify {
            true => &self.verifying,
            false => &self.trusting,
        };
        let name: Arc<str> = name(&settings).into();
        let openers = Openers {
            resolver: self.resolver.clone(),
            tls: tls.clone(),
            background: self.background.clone(),
            settings: Arc::new(settings.clone()),
            name: name.clone(),
        };
        let shape = match &settings.topology {
            Topology::Single(address) => Shape::Single(openers.link(openers.fixed(address))),
            Topology::Sentinel {
                sentinels, master, ..
            } => {
                let sentinels = sentinels.iter().map(|address| openers.host(address));
                Shape::Single(openers.link(Place::Sentinel {
                    sentinels: sentinels.collect(),
                    master: master.clone(),
                }))
            }
            Topology::Cluster {
                nodes,
                redirections,
            } => Shape::Cluster(Cluster::new(openers, nodes, *redirections)),
        };
        Server(Arc::new(Inner {
            settings,
            name,
            shape,
            statistics: Statistics::default(),
        }))
    }
}

/// Names a server by its first address.
fn name(settings: &Settings) -> String {
    let (kind, addresses) = match &settings.topology {
        Topology::Single(address) => ("", std::slice::from_ref(address)),
        Topology::Sentinel { sentinels, .. } => ("sentinel ", sentinels.as_slice()),
        Topology::Cluster { nodes, .. } => ("cluster ", nodes.as_slice()),
    };
    match addresses.first() {
        Some((host, port)) => format!("{kind}{host}:{port}"),
        None => kind.to_owned(),
    }
}

impl Server {
    /// Makes a call.
    pub async fn run(&self, call: Call) -> Result<Value, RedisError> {
        let mut results = self.run_all(&[call]).await;
        let stopped = || self.error(RedisErrorKind::Stopped);
        results.pop().unwrap_or_else(|| Err(stopped()))
    }

    /// Makes calls in one round trip, in a Cluster in one for each node. The results are in the order of the calls. Each
    /// call takes effect on its own.
    pub async fn run_all(&self, calls: &[Call]) -> Vec<Result<Value, RedisError>> {
        let begin = Instant::now();
        let deadline = begin + self.0.settings.timeout;
        let results = match &self.0.shape {
            Shape::Single(link) => {
                let all: Vec<&Call> = calls.iter().collect();
                link.run(&all, false, deadline).await
            }
            Shape::Cluster(cluster) => cluster.run(calls, deadline).await,
        };
        self.0.statistics.record(&results, begin.elapsed());
        let named = |result: Result<Value, RedisErrorKind>| result.map_err(|kind| self.error(kind));
        results.into_iter().map(named).collect()
    }

    /// Whether the keys of a call must have the same slot.
    pub fn is_cluster(&self) -> bool {
        matches!(self.0.shape, Shape::Cluster(_))
    }

    /// Whether two servers share their connections, so that they have the same keys.
    pub fn is_same(&self, other: &Server) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn error(&self, kind: RedisErrorKind) -> RedisError {
        RedisError {
            server: self.0.name.clone(),
            kind,
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.0.settings;
        formatter.debug_tuple("Server").field(settings).finish()
    }
}
