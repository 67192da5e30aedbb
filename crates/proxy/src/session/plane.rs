//! What all workers share: the current snapshot, the settings of the data plane, and what the node counts.

use super::real_ip::RealIp;
use crate::respond;
use crate::snapshot::Live;
use net::http1::Limits;
use net::pool::PoolSettings;
use plugin::Lookup;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The settings of connections and requests. Those of Kong unless said otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    pub pool: PoolSettings,
    pub limits: Limits,
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
    /// The largest body that is kept in memory for plugins (`nginx_http_client_body_buffer_size`, 8 KiB in Kong; more here,
    /// since nothing is spilled to disk).
    pub plugin_body: usize,
    /// What all bodies kept for plugins may take together.
    pub body_memory: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pool: PoolSettings::default(),
            limits: Limits::default(),
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
            body_memory: 256 * 1024 * 1024,
        }
    }
}

/// The data plane of a node.
pub struct DataPlane {
    pub snapshot: Live,
    pub settings: Settings,
    pub lookup: Arc<dyn Lookup>,
    /// Bytes of bodies kept for plugins right now.
    pub(super) body_memory: AtomicUsize,
    counters: Box<[Counters]>,
}

impl DataPlane {
    pub fn new(
        snapshot: Live,
        settings: Settings,
        lookup: Arc<dyn Lookup>,
        workers: usize,
    ) -> Self {
        Self {
            snapshot,
            settings,
            lookup,
            body_memory: AtomicUsize::new(0),
            counters: (0..workers.max(1)).map(|_| Counters::default()).collect(),
        }
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
}

impl Totals {
    pub fn active(&self) -> u64 {
        self.accepted.saturating_sub(self.closed)
    }

    pub fn writing(&self) -> u64 {
        self.active().saturating_sub(self.waiting + self.reading)
    }
}
