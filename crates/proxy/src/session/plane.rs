//! What all workers share: the current snapshot, the settings of the data plane, and what the node counts.

use super::admission::{Admission, ConnectionLimits, UpstreamLimits};
use super::pace::MinRate;
use super::real_ip::RealIp;
use crate::access_log::AccessLog;
use crate::respond;
use crate::snapshot::{Live, Snapshot};
use net::http1::Limits;
use net::http2::ServerSettings;
use net::pool::PoolSettings;
use plugin::Lookup;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The settings of connections and requests. Those of Kong unless said otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    pub pool: PoolSettings,
    pub limits: Limits,
    /// Of connections that speak HTTP/2; their timeouts are those below.
    pub http2: ServerSettings,
    pub real_ip: RealIp,
    pub respond: respond::Settings,
    /// `headers_upstream` has X-Kong-Request-Id.
    pub request_id_upstream: bool,
    /// `allow_debug_header`.
    pub debug_header: bool,
    /// `port_maps`: what a listener's port is called to the outside.
    pub port_maps: HashMap<u16, u16>,
    /// From the first byte of a head to its last (the web server's `client_header_timeout`).
    pub header_timeout: Duration,
    /// Between two reads of a request body (`client_body_timeout`).
    pub body_timeout: Duration,
    /// Between two writes to a client (`send_timeout`).
    pub send_timeout: Duration,
    /// Without a request (`keepalive_timeout`).
    pub idle_timeout: Duration,
    /// `nginx_http_client_max_body_size`; 0: no limit.
    pub max_body: u64,
    /// The largest request body that plugins can look into (`nginx_http_client_body_buffer_size`, 8 KiB in Kong; more here,
    /// since nothing is spilled to disk).
    pub plugin_body: usize,
    /// How much of an answer is read ahead of a slow client, in bytes (`nginx_proxy_proxy_buffers`).
    pub read_ahead: usize,
    /// What all bodies, requests' and answers', may take together (`body_memory`). A request's body may take a 16th of it where
    /// the route buffers requests.
    pub body_memory: usize,
    /// Where each request is logged, if it is.
    pub access_log: Option<AccessLog>,
    /// The same for streams of connections.
    pub stream_log: Option<AccessLog>,
    /// A client that ends its side while it waits for an answer has gone (`nginx_proxy_proxy_ignore_client_abort = off`).
    pub client_may_abort: bool,
    pub min_rate: MinRate,
    pub connections: ConnectionLimits,
    pub upstream: UpstreamLimits,
    /// Requests per client connection; zero: no limit (`nginx_http_keepalive_requests`).
    pub max_requests: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool: PoolSettings::default(),
            limits: Limits::default(),
            http2: ServerSettings::default(),
            real_ip: RealIp::default(),
            respond: respond::Settings::default(),
            request_id_upstream: true,
            debug_header: false,
            port_maps: HashMap::new(),
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            max_body: 0,
            plugin_body: 1024 * 1024,
            read_ahead: 1024 * 1024,
            body_memory: 256 * 1024 * 1024,
            access_log: None,
            stream_log: None,
            client_may_abort: true,
            min_rate: MinRate::default(),
            connections: ConnectionLimits::default(),
            upstream: UpstreamLimits::default(),
            max_requests: 10_000,
        }
    }
}

/// The data plane of a node.
pub struct DataPlane {
    pub snapshot: Live,
    pub settings: Settings,
    pub lookup: Arc<dyn Lookup>,
    /// Bytes of bodies that are kept right now.
    pub(super) body_memory: AtomicUsize,
    pub(super) admission: Admission,
    counters: Box<[Counters]>,
    /// The revision of the snapshot, for those who wait for it to change.
    published: watch::Sender<u64>,
}

impl DataPlane {
    pub fn new(
        snapshot: Live,
        settings: Settings,
        lookup: Arc<dyn Lookup>,
        workers: usize,
    ) -> Self {
        let admission = Admission::new(settings.connections);
        Self {
            published: watch::Sender::new(snapshot.peek().revision),
            snapshot,
            settings,
            lookup,
            body_memory: AtomicUsize::new(0),
            admission,
            counters: (0..workers.max(1)).map(|_| Counters::default()).collect(),
        }
    }

    /// From here on requests are served by this snapshot. Idle workers are woken up to see it.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        let revision = snapshot.revision;
        self.snapshot.swap(snapshot);
        self.published.send_replace(revision);
    }

    pub(super) fn published(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// How many workers serve by this revision or a newer one, and how many there are to be.
    pub fn workers_at(&self, revision: u64) -> (usize, usize) {
        let there = |one: &&Counters| one.seen.load(Ordering::Acquire) > revision;
        (
            self.counters.iter().filter(there).count(),
            self.counters.len(),
        )
    }

    pub(super) fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// The sum over all workers.
    pub fn totals(&self) -> Totals {
        let sum =
            |of: fn(&Counters) -> &Counter| self.counters.iter().map(|one| of(one).value()).sum();
        Totals {
            accepted: sum(|counters| &counters.accepted),
            closed: sum(|counters| &counters.closed),
            requests: sum(|counters| &counters.requests),
            waiting: sum(|counters| &counters.waiting),
            reading: sum(|counters| &counters.reading),
            accept_errors: sum(|counters| &counters.accept_errors),
            refused: sum(|counters| &counters.refused),
        }
    }
}

/// What one worker counts. On cache lines of its own: a shared one would travel between cores with every request.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) accepted: Counter,
    pub(super) closed: Counter,
    pub(super) requests: Counter,
    /// Connections between requests.
    pub(super) waiting: Counter,
    /// Connections in the middle of a head.
    pub(super) reading: Counter,
    /// Accepts that failed for want of descriptors or memory.
    pub(super) accept_errors: Counter,
    /// Connections beyond the limits on their number.
    pub(super) refused: Counter,
    /// One more than the revision that the worker has seen; 0 while it does not serve.
    seen: AtomicU64,
}

impl Counters {
    pub(super) fn saw(&self, revision: u64) {
        self.seen.store(revision + 1, Ordering::Release);
    }

    /// Until it is dropped the worker counts as serving.
    pub(super) fn serving(&self) -> Serving<'_> {
        Serving(self)
    }
}

pub(super) struct Serving<'a>(&'a Counters);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.seen.store(0, Ordering::Release);
    }
}

/// Written by one thread, read by any.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self) {
        self.0
            .store(self.value().wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn subtract(&self) {
        self.0
            .store(self.value().wrapping_sub(1), Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// For `/status`, which names the same numbers as the web server under Kong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub accepted: u64,
    pub closed: u64,
    pub requests: u64,
    pub waiting: u64,
    pub reading: u64,
    /// Not in `/status`: accepts that failed for want of descriptors or memory.
    pub accept_errors: u64,
    /// Connections that were closed at once, for being too many.
    pub refused: u64,
}

impl Totals {
    pub fn active(&self) -> u64 {
        self.accepted.saturating_sub(self.closed)
    }

    pub fn writing(&self) -> u64 {
        self.active().saturating_sub(self.waiting + self.reading)
    }
}
