//! Pools of connections, one per server and settings. Their number is bounded: the pool that was not used for the longest
//! time makes room for a new one.

use super::body::Body;
use super::connect::{ConnectError, Connector};
use super::meter::Metered;
use super::url::HttpScheme;
use super::{Options, Url};
use crate::background::Background;
use ::http::Uri;
use futures_util::future::BoxFuture;
use hyper::rt::Executor;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioIo, TokioTimer};
use net::dns::Resolver;
use net::tls::{ClientTls, Offer};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tower::Service;

/// Maximum number of pools.
pub(super) const MAX_POOLS: usize = 256;
/// Maximum number of idle connections of a pool.
const MAX_IDLE: usize = 64;
/// Maximum size of a response head.
const MAX_HEAD: usize = 64 * 1024;
/// Time after which a connection of HTTP/2 with requests, but without an answer, is asked whether it is alive. All requests
/// share it, so a dead one must not stay.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// A longer keepalive time is cut.
const LONGEST_KEEPALIVE: Duration = Duration::from_secs(24 * 3600);

pub(super) struct Pools {
    resolver: Resolver,
    /// TLS that verifies certificates.
    verifying: ClientTls,
    /// TLS that accepts any certificate.
    trusting: ClientTls,
    background: Background,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    pools: HashMap<Arc<PoolKey>, Used>,
    /// Number of requests so far. It orders the pools by their last use.
    requests: u64,
}

struct Used {
    pool: Pool,
    last: u64,
}

/// Requests with equal keys share connections.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    scheme: HttpScheme,
    host: Arc<str>,
    port: u16,
    /// Whether certificates are verified, and the name that TLS asks for; `None` without TLS.
    tls: Option<(bool, Arc<str>)>,
    connect_timeout: Duration,
    keepalive: Duration,
    http2: bool,
}

/// Connections to a server.
#[derive(Clone)]
pub(super) struct Pool(Client<Connect, Body>);

impl PoolKey {
    pub(super) fn new(url: &Url, options: &Options) -> Self {
        let named = || options.server_name.as_deref().map(Arc::from);
        let tls = match url.scheme {
            HttpScheme::Http => None,
            HttpScheme::Https => {
                let name = named().unwrap_or_else(|| url.host.clone());
                Some((options.verify, name))
            }
        };
        Self {
            scheme: url.scheme,
            host: url.host.clone(),
            port: url.port,
            tls,
            connect_timeout: options.connect_timeout,
            keepalive: options.keepalive.min(LONGEST_KEEPALIVE),
            http2: options.http2,
        }
    }
}

impl Pools {
    pub(super) fn new(
        resolver: Resolver,
        verifying: ClientTls,
        trusting: ClientTls,
        background: Background,
    ) -> Self {
        Self {
            resolver,
            verifying,
            trusting,
            background,
            known: Mutex::default(),
        }
    }

    pub(super) fn of(&self, key: PoolKey) -> Pool {
        // What is replaced is dropped after the lock: it closes connections.
        let _evicted;
        let mut known = self.known();
        known.requests += 1;
        let now = known.requests;
        if let Some(used) = known.pools.get_mut(&key) {
            used.last = now;
            return used.pool.clone();
        }
        _evicted = known.evict();
        let key = Arc::new(key);
        let pool = self.make(&key);
        let used = Used {
            pool: pool.clone(),
            last: now,
        };
        known.pools.insert(key, used);
        pool
    }

    fn make(&self, key: &PoolKey) -> Pool {
        let (verify, server_name) = match &key.tls {
            Some((verify, name)) => (*verify, name.clone()),
            None => (true, key.host.clone()),
        };
        let tls = if verify {
            &self.verifying
        } else {
            &self.trusting
        };
        let connector = Connector {
            host: self.resolver.host(&key.host, key.port),
            scheme: key.scheme,
            tls: tls.clone(),
            server_name,
            timeout: key.connect_timeout,
            offer: if key.http2 {
                Offer::Http2
            } else {
                Offer::Nothing
            },
        };
        let idle = if key.keepalive.is_zero() { 0 } else { MAX_IDLE };
        let client = Client::builder(InBackground(self.background.clone()))
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(key.keepalive)
            .pool_max_idle_per_host(idle)
            .http1_max_buf_size(MAX_HEAD)
            .http2_only(key.http2)
            .http2_max_header_list_size(MAX_HEAD as u32)
            .http2_keep_alive_interval(PING_INTERVAL)
            .timer(TokioTimer::new())
            .build(Connect(connector));
        Pool(client)
    }

    pub(super) fn len(&self) -> usize {
        self.known().pools.len()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Removes the pool that was not used for the longest time if there is no room for another one. Its requests in
    /// flight go on.
    fn evict(&mut self) -> Option<Used> {
        if self.pools.len() < MAX_POOLS {
            return None;
        }
        let oldest = self.pools.iter().min_by_key(|(_, used)| used.last);
        let key = oldest.map(|(key, _)| key.clone())?;
        self.pools.remove(&key)
    }
}

impl Pool {
    pub(super) fn request(&self, message: ::http::Request<Body>) -> ResponseFuture {
        self.0.request(message)
    }
}

/// Runs the tasks of connections in the background.
#[derive(Clone)]
struct InBackground(Background);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for InBackground {
    fn execute(&self, task: F) {
        self.0.spawn_service(task);
    }
}

/// The connector in the form that hyper-util calls.
#[derive(Clone)]
struct Connect(Connector);

impl Service<Uri> for Connect {
    type Response = TokioIo<Metered>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.0.clone().connect())
    }
}
