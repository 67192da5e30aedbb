//! State that all workers share: the current snapshot, the settings of the data plane, and the node's counters.

use super::admission::{Admission, ConnectionLimits, UpstreamLimits};
use super::counts::{Counter, Counters};
use super::pace::MinRate;
use super::real_ip::RealIp;
use super::watchdog::Pulse;
use crate::access_log::AccessLog;
use crate::plugins::publish;
use crate::respond;
use crate::snapshot::{Live, Snapshot};
use net::http1::Limits;
use net::http2::ServerSettings;
use net::pool::PoolSettings;
use plugin::{Implementation, Node, PluginDef};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::sync::watch;

/// Settings of connections and requests. Defaults are Kong's unless a field says otherwise.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    pub pool: PoolSettings,
    pub limits: Limits,
    /// HTTP/2 settings of client connections. The timeouts below override those in these settings.
    pub http2: ServerSettings,
    pub real_ip: RealIp,
    pub respond: respond::ResponseSettings,
    /// Whether `headers_upstream` contains X-Kong-Request-Id.
    pub request_id_upstream: bool,
    /// Whether clients may ask for debug headers (`allow_debug_header`).
    pub debug_header: bool,
    /// The token with which clients on other machines may ask for the timings of a request. `None` if nobody may
    /// (`request_debug`).
    pub debug_token: Option<Arc<str>>,
    /// Public port numbers of the listeners (`port_maps`).
    pub port_maps: HashMap<u16, u16>,
    /// Maximum time from the first byte of a head to its last (nginx's `client_header_timeout`).
    pub header_timeout: Duration,
    /// Maximum time between two reads of a request body (`client_body_timeout`).
    pub body_timeout: Duration,
    /// Maximum time between two writes to a client (`send_timeout`).
    pub send_timeout: Duration,
    /// Maximum time that a connection stays open without a request (`keepalive_timeout`).
    pub idle_timeout: Duration,
    /// Maximum size of a request body (`nginx_http_client_max_body_size`); 0 means no limit.
    pub max_body: u64,
    /// Maximum size of a request body that plugins can read. Default: [`PLUGIN_BODY`].
    pub plugin_body: usize,
    /// Maximum response bytes that are read ahead of a slow client (`nginx_proxy_proxy_buffers`). Default: 1 MiB. nginx
    /// buffers less in memory, and writes the rest to a temporary file.
    pub read_ahead: usize,
    /// Maximum memory for all request and response bodies together (`body_memory`). On a route that buffers requests,
    /// the body of one request may use a 16th of it, or `plugin_body` if that is more.
    pub body_memory: usize,
    /// Destination of the request log, if requests are logged.
    pub access_log: Option<AccessLog>,
    /// Destination of the log of TCP and UDP streams, if they are logged.
    pub stream_log: Option<AccessLog>,
    /// Whether a client that closes its side while it waits for a response counts as gone
    /// (`nginx_proxy_proxy_ignore_client_abort = off`).
    pub client_may_abort: bool,
    pub min_rate: MinRate,
    pub connections: ConnectionLimits,
    pub upstream: UpstreamLimits,
    /// Maximum requests per client connection (`nginx_http_keepalive_requests`); zero means no limit.
    pub max_requests: u32,
}

/// Size of the request bodies that plugins can read at least. nginx writes bodies larger than its buffer of 8 KiB to
/// disk; this gateway does not.
pub const PLUGIN_BODY: usize = 1024 * 1024;

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            pool: PoolSettings::default(),
            limits: Limits::default(),
            http2: ServerSettings::default(),
            real_ip: RealIp::default(),
            respond: respond::ResponseSettings::default(),
            request_id_upstream: true,
            debug_header: false,
            debug_token: None,
            port_maps: HashMap::new(),
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            max_body: 0,
            plugin_body: PLUGIN_BODY,
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
    pub settings: SessionSettings,
    pub node: Arc<Node>,
    /// The plugins of the node, in execution order.
    plugins: Vec<Arc<PluginDef>>,
    /// Bytes of request and response bodies in memory.
    pub(super) body_memory: AtomicUsize,
    pub(super) admission: Admission,
    counters: Box<[Counters]>,
    /// What the watchdog has found out about each worker.
    pub(super) pulses: Box<[Arc<Pulse>]>,
    /// Revision of the current snapshot. Tasks can wait until it changes.
    published: watch::Sender<u64>,
}

impl DataPlane {
    pub fn new(
        snapshot: Live,
        settings: SessionSettings,
        node: Arc<Node>,
        plugins: Vec<Arc<PluginDef>>,
        workers: usize,
    ) -> Self {
        let admission = Admission::new(settings.connections);
        publish(None, snapshot.peek().instances(), &plugins, &node);
        let counters = (0..workers.max(1)).map(|_| Counters::new(plugins.len()));
        let counters = counters.collect();
        let pulses = (0..workers.max(1)).map(|_| Arc::default()).collect();
        Self {
            published: watch::Sender::new(snapshot.peek().revision),
            snapshot,
            settings,
            node,
            plugins,
            body_memory: AtomicUsize::new(0),
            admission,
            counters,
            pulses,
        }
    }

    /// Starts the new plugins of this snapshot and makes it the current one, which new requests use. Wakes idle workers
    /// so that they load it.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        let previous = self.snapshot.load();
        let previous = Some(previous.instances());
        publish(previous, snapshot.instances(), &self.plugins, &self.node);
        let revision = snapshot.revision;
        self.snapshot.swap(snapshot);
        self.published.send_replace(revision);
    }

    /// Runs what each plugin does on a worker before it serves.
    pub(super) fn init_worker(&self, worker: usize) {
        for def in &self.plugins {
            if let Implementation::Ready(maker) = &def.implementation {
                maker.init_worker(&self.node, worker);
            }
        }
    }

    pub(super) fn published(&self) -> watch::Receiver<u64> {
        self.published.subscribe()
    }

    /// Returns the number of workers that serve this revision or a newer one, and the total number of workers.
    pub fn workers_at(&self, revision: u64) -> (usize, usize) {
        let there = |one: &&Counters| one.has_seen(revision);
        (
            self.counters.iter().filter(there).count(),
            self.counters.len(),
        )
    }

    pub(super) fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// The counters of all workers, in the order of their numbers.
    pub(super) fn all_counters(&self) -> &[Counters] {
        &self.counters
    }

    /// Returns the name of the plugin at this position of the execution order.
    pub(super) fn plugin_name(&self, position: usize) -> Option<&str> {
        Some(&self.plugins.get(position)?.name)
    }

    /// Returns the sums of the counters over all workers.
    pub fn totals(&self) -> Totals {
        let sum =
            |of: fn(&Counters) -> &Counter| self.counters.iter().map(|one| of(one).value()).sum();
        Totals {
            accepted: sum(|counters| &counters.accepted),
            closed: sum(|counters| &counters.closed),
            requests: self.counters.iter().map(Counters::requests).sum(),
            waiting: sum(|counters| &counters.waiting),
            reading: sum(|counters| &counters.reading),
            accept_errors: sum(|counters| &counters.accept_errors),
            refused: sum(|counters| &counters.refused),
        }
    }
}

/// Totals for metrics and for `/status`, which has the same numbers as nginx's status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub accepted: u64,
    pub closed: u64,
    pub requests: u64,
    pub waiting: u64,
    pub reading: u64,
    /// Accepts that failed for lack of descriptors or memory; not in `/status`.
    pub accept_errors: u64,
    /// Connections closed at once because a limit was reached; not in `/status`.
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
