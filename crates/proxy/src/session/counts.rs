//! What each worker counts: connections, requests and their outcomes, and the times of upstreams and of handshakes.

use super::times::Times;
use crate::plugins::Doing;
use plugin::Reason;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Counters of one worker. They have cache lines of their own, because a shared line would move between cores with
/// every request.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) accepted: Counter,
    pub(super) closed: Counter,
    /// Open connections that wait for a request.
    pub(super) waiting: Counter,
    /// Connections in the middle of a request head.
    pub(super) reading: Counter,
    /// Accepts that failed for lack of descriptors or memory.
    pub(super) accept_errors: Counter,
    /// Connections refused by the limits on their number.
    pub(super) refused: Counter,
    /// Requests by the first digit of their status. The first cell has those with any other status.
    pub(super) requests: [Counter; STATUS_CLASSES],
    /// Time from the first byte of a request to the last time that the clock was read for it: when its log phase or its
    /// line in the access log began, or without both, when its response was complete, up to what waited for the client.
    pub(super) request_times: Times,
    /// Responses that are not an upstream's complete one, by reason.
    pub(super) answers: [Counter; Reason::COUNT],
    /// Sessions of streams that the gateway has ended, by reason.
    pub(super) stream_ends: [Counter; Reason::COUNT],
    /// By position of the plugin in the execution order. The cells of a plugin are there once it has answered.
    plugin_answers: Box<[OnceLock<StatusCells>]>,
    pub(super) retries: Counter,
    pub(super) connections: Arc<ConnectionTimes>,
    /// Time from contacting an upstream to the head of its response.
    pub(super) first_byte_times: Times,
    pub(super) handshakes: [Counter; Handshake::ALL.len()],
    pub(super) handshake_times: Times,
    /// Connections to upstreams, as they were when the worker last tidied up.
    pub(super) idle_upstreams: Counter,
    pub(super) busy_upstreams: Counter,
    pub(super) shared_upstreams: Counter,
    /// Delay of the event loop: how long a new task waits until the worker gets to it.
    pub(super) loop_delays: Times,
    pub(super) doing: Doing,
    /// Latest revision that the worker has seen, plus one; 0 while the worker does not serve.
    seen: AtomicU64,
}

/// Times of new connections to upstreams. The worker has a handle of its own, because connections are opened where no
/// data plane is at hand.
#[derive(Debug, Default)]
pub(super) struct ConnectionTimes {
    pub(super) connect: Times,
    pub(super) tls: Times,
}

pub(super) const STATUS_CLASSES: usize = 6;
/// Statuses that are counted one by one for each plugin; others count as 0.
const STATUSES: usize = 500;
const LEAST_STATUS: u16 = 100;

type StatusCells = Box<[Counter]>;

/// The outcome of a TLS handshake with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handshake {
    Completed,
    Failed,
    TimedOut,
    /// A plugin has ended it.
    Refused,
}

impl Handshake {
    pub(super) const ALL: [Self; 4] =
        [Self::Completed, Self::Failed, Self::TimedOut, Self::Refused];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
        }
    }
}

impl Counters {
    pub(super) fn new(plugins: usize) -> Self {
        Self {
            accepted: Counter::default(),
            closed: Counter::default(),
            waiting: Counter::default(),
            reading: Counter::default(),
            accept_errors: Counter::default(),
            refused: Counter::default(),
            requests: Default::default(),
            request_times: Times::default(),
            answers: std::array::from_fn(|_| Counter::default()),
            stream_ends: std::array::from_fn(|_| Counter::default()),
            plugin_answers: (0..plugins).map(|_| OnceLock::new()).collect(),
            retries: Counter::default(),
            connections: Arc::default(),
            first_byte_times: Times::default(),
            handshakes: Default::default(),
            handshake_times: Times::default(),
            idle_upstreams: Counter::default(),
            busy_upstreams: Counter::default(),
            shared_upstreams: Counter::default(),
            loop_delays: Times::default(),
            doing: Doing::default(),
            seen: AtomicU64::new(0),
        }
    }

    /// Counts a request that has ended.
    #[inline]
    pub(super) fn count_request(&self, status: u16, took: Duration, reason: Option<Reason>) {
        let class = usize::from(status / 100);
        let class = if class < STATUS_CLASSES { class } else { 0 };
        self.requests[class].add();
        self.request_times.observe(took);
        if let Some(reason) = reason {
            self.answers[reason as usize].add();
        }
    }

    /// Counts a response of a plugin, which is at this position in the execution order.
    pub(super) fn count_plugin_answer(&self, plugin: u16, status: u16) {
        let Some(cells) = self.plugin_answers.get(usize::from(plugin)) else {
            return;
        };
        let cells = cells.get_or_init(|| (0..=STATUSES).map(|_| Counter::default()).collect());
        let other = &cells[STATUSES];
        let place = usize::from(status.wrapping_sub(LEAST_STATUS));
        cells.get(place).unwrap_or(other).add();
    }

    /// Returns the statuses that a plugin has answered with, and how often. Status 0 stands for all that are not between
    /// 100 and 599.
    pub(super) fn plugin_answers(&self, plugin: usize) -> impl Iterator<Item = (u16, u64)> {
        let cells = self.plugin_answers.get(plugin).and_then(OnceLock::get);
        let cells = cells.map(|cells| &**cells).unwrap_or_default();
        let statuses = (LEAST_STATUS..).take(STATUSES).chain([0]);
        let counts = cells.iter().map(Counter::value);
        statuses.zip(counts).filter(|(_, count)| *count > 0)
    }

    pub(super) fn count_handshake(&self, outcome: Handshake, took: Duration) {
        self.handshakes[outcome as usize].add();
        if outcome == Handshake::Completed {
            self.handshake_times.observe(took);
        }
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.iter().map(Counter::value).sum()
    }

    pub(super) fn saw(&self, revision: u64) {
        self.seen.store(revision + 1, Ordering::Release);
    }

    /// Whether the worker serves this revision or a newer one.
    pub(super) fn has_seen(&self, revision: u64) -> bool {
        self.seen.load(Ordering::Acquire) > revision
    }

    /// Marks the worker as serving until the returned guard is dropped.
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

/// A counter that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self) {
        self.add_count(1);
    }

    #[inline]
    pub(super) fn add_count(&self, count: u64) {
        self.0
            .store(self.value().wrapping_add(count), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn subtract(&self) {
        self.0
            .store(self.value().wrapping_sub(1), Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
