//! State that the connections of one worker thread share: buffers, upstream pool, request ids, and the current
//! snapshot. It is borrowed within one poll and never across an `.await`, so a plain `RefCell` is enough.

use super::counts::{ConnectionTimes, Counters};
use super::date::HttpDate;
use super::going_on::Tasks;
use super::multiplex::link_settings;
use super::plane::DataPlane;
use crate::access_log::{AccessLog, Facts, HAND_OVER_AFTER, LogBuffer, RequestLine, Written};
use crate::plugins::ChainMemory;
use crate::redirect::Places;
use crate::snapshot::Snapshot;
use arc_swap::{ArcSwap, Cache};
use net::http2::Links;
use net::id::RequestIds;
use net::pool::{self, Pool};
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Waker;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Maximum bytes per read: enough for a response of 64 KiB with its head. There is one buffer per thread, so that idle
/// connections own none.
const READ_BYTES: usize = 128 * 1024;
/// Maximum spare buffers kept for connections that have bytes waiting.
const SPARE_BUFFERS: usize = 64;
/// Maximum capacity of a spare buffer; larger ones are freed.
const SPARE_BYTES: usize = 16 * 1024;

pub(crate) struct Worker {
    pub(super) read: Box<[u8]>,
    pub(super) out: Vec<u8>,
    /// Payload of a body whose framing is not forwarded.
    pub(super) decoded: Vec<u8>,
    pub(super) ids: RequestIds,
    pub(super) pool: Pool,
    /// Connections to upstreams that speak HTTP/2.
    pub(super) links: Links,
    /// Where plugins have lately led requests.
    pub(super) places: Places,
    pub(super) router: router::Scratch,
    pub(super) date: HttpDate,
    journal: Option<LogBuffer>,
    stream_journal: Option<LogBuffer>,
    /// Whether every connection is closed after its next response.
    pub(super) draining: bool,
    /// Whether the time of a drain is over, so that all connections are aborted.
    pub(super) is_ending: bool,
    /// Whether connections that wait for a request are closed.
    pub(super) ends_waiting: bool,
    /// The running connections, by number.
    pub(super) connections: Connections,
    spare: Vec<Vec<u8>>,
    /// Boxed, because a request moves one around.
    #[expect(clippy::vec_box)]
    chains: Vec<Box<ChainMemory>>,
    drained: Arc<Notify>,
    /// Number of running tunnels.
    pub(super) tunnels: usize,
    pub(super) tunnels_end: Arc<Notify>,
    /// Cached current snapshot of the worker's plane.
    live: Option<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    view: Option<Arc<View>>,
    pub(super) connection_times: Arc<ConnectionTimes>,
    /// Requests that go on without their clients.
    pub(super) going_on: Tasks,
    pub(super) number: usize,
}

/// A worker's own handle of the snapshot. Each request clones an `Arc<View>`, whose reference count only this thread
/// changes. If requests cloned the snapshot's `Arc`, all cores would compete for the cache line of its count.
pub(super) struct View {
    pub(super) snapshot: Arc<Snapshot>,
}

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::new(Worker::new());
}

/// Borrows the worker. `body` must not call this function again.
#[inline]
pub(super) fn with<T>(body: impl FnOnce(&mut Worker) -> T) -> T {
    WORKER.with_borrow_mut(body)
}

impl Worker {
    fn new() -> Self {
        Self {
            read: vec![0; READ_BYTES].into(),
            out: Vec::with_capacity(8 * 1024),
            decoded: Vec::new(),
            ids: RequestIds::default(),
            pool: Pool::default(),
            links: Links::default(),
            places: Places::default(),
            router: router::Scratch::default(),
            date: HttpDate::default(),
            journal: None,
            stream_journal: None,
            draining: false,
            is_ending: false,
            ends_waiting: false,
            connections: Connections::default(),
            spare: Vec::new(),
            chains: Vec::new(),
            drained: Arc::default(),
            tunnels: 0,
            tunnels_end: Arc::default(),
            live: None,
            view: None,
            connection_times: Arc::default(),
            going_on: Tasks::default(),
            number: 0,
        }
    }

    /// Makes the thread a worker of a plane. Returns a signal that fires when the last connection closes during a
    /// drain.
    pub(super) fn set_up(&mut self, plane: &DataPlane, number: usize) -> Arc<Notify> {
        self.pool = Pool::new(plane.settings.pool);
        self.number = number;
        self.connection_times = plane.counters(number).connections.clone();
        let journal = |log: &Option<AccessLog>| {
            let log = log.as_ref()?;
            Some(LogBuffer::new(log, number))
        };
        self.journal = journal(&plane.settings.access_log);
        self.stream_journal = journal(&plane.settings.stream_log);
        self.draining = false;
        self.is_ending = false;
        self.ends_waiting = false;
        self.live = None;
        self.view = None;
        self.drained.clone()
    }

    /// The current snapshot.
    #[inline]
    pub(super) fn view(&mut self, plane: &DataPlane) -> Arc<View> {
        let live = self
            .live
            .get_or_insert_with(|| Cache::new(plane.snapshot.shared()));
        let current = live.load();
        match &self.view {
            Some(view) if Arc::ptr_eq(&view.snapshot, current) => view.clone(),
            _ => {
                let view = Arc::new(View {
                    snapshot: Arc::clone(current),
                });
                self.view = Some(view.clone());
                self.going_on.end_all();
                plugin::free_ended_parts();
                plane.counters(self.number).saw(view.snapshot.revision);
                view
            }
        }
    }

    /// Switches to a newer snapshot without waiting for a request, so that an idle worker frees the old one and reports
    /// that it has seen the new one.
    pub(super) fn look(&mut self, plane: &DataPlane) {
        self.view(plane);
    }

    /// Regular cleanup: closes upstream connections that have been idle too long, and switches to the current snapshot.
    pub(super) fn tidy(&mut self, plane: &DataPlane) {
        let now = Instant::now();
        self.pool.sweep(now);
        self.links.sweep(now, &link_settings(&plane.settings));
        self.places.tidy(now);
        let counters = self.counters(plane);
        let idle = self.pool.idle_connections();
        let busy = pool::open_connections().saturating_sub(idle);
        counters.idle_upstreams.set(idle as u64);
        counters.busy_upstreams.set(busy as u64);
        counters.shared_upstreams.set(self.links.len() as u64);
        self.look(plane);
        plugin::free_ended_parts();
    }

    /// Closes all idle upstream connections, to free file descriptors.
    pub(super) fn close_idle(&mut self) {
        self.pool.clear();
        self.links.clear();
    }

    /// Writes a line to the access log of requests or streams, if there is one.
    pub(super) fn log_access(&mut self, facts: &Facts<'_>) {
        let journal = match facts.request {
            RequestLine::Stream { .. } => &mut self.stream_journal,
            RequestLine::Parsed { .. } | RequestLine::Raw(_) => &mut self.journal,
        };
        let Some(journal) = journal else {
            return;
        };
        if journal.write(facts) == Written::First {
            tokio::spawn(hand_over_later());
        }
    }

    /// Gives the remaining log lines to the writer when the worker ends. Tries again while the writer holds the lock.
    pub(super) fn end_journals(&mut self) {
        for mut journal in [self.journal.take(), self.stream_journal.take()]
            .into_iter()
            .flatten()
        {
            while journal.has_lines() {
                journal.hand_over();
                std::thread::yield_now();
            }
        }
    }

    /// Gives the waiting log lines to the writer; returns false if some remain.
    fn hand_over_lines(&mut self) -> bool {
        let mut done = true;
        for journal in [&mut self.journal, &mut self.stream_journal]
            .into_iter()
            .flatten()
        {
            journal.hand_over();
            done &= !journal.has_lines();
        }
        done
    }

    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        let fits = (1..=SPARE_BYTES).contains(&buffer.capacity());
        if fits && self.spare.len() < SPARE_BUFFERS {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    pub(super) fn chain_memory(&mut self) -> Box<ChainMemory> {
        self.chains.pop().unwrap_or_default()
    }

    pub(super) fn give_chain_memory(&mut self, memory: Box<ChainMemory>) {
        if self.chains.len() < SPARE_BUFFERS {
            self.chains.push(memory);
        }
    }

    pub(super) fn begin_connection(&mut self, plane: &DataPlane) -> usize {
        self.counters(plane).accepted.add();
        self.connections.add()
    }

    pub(super) fn end_connection(&mut self, number: usize, plane: &DataPlane) {
        self.counters(plane).closed.add();
        self.connections.remove(number);
        if self.draining && self.connections.count() == 0 {
            self.drained.notify_one();
        }
    }

    /// Updates the node's counters when a connection changes its phase.
    pub(super) fn count_phase(&mut self, plane: &DataPlane, phase: &mut Phase, next: Phase) {
        if *phase == next {
            return;
        }
        let counters = self.counters(plane);
        match phase {
            Phase::Waiting => counters.waiting.subtract(),
            Phase::Reading => counters.reading.subtract(),
            Phase::Starting => {}
        }
        match next {
            Phase::Waiting => counters.waiting.add(),
            Phase::Reading => counters.reading.add(),
            Phase::Starting => {}
        }
        *phase = next;
    }

    pub(super) fn end_tunnels(&self) {
        self.tunnels_end.notify_waiters();
    }

    #[inline]
    pub(super) fn counters<'a>(&self, plane: &'a DataPlane) -> &'a Counters {
        plane.counters(self.number)
    }
}

/// Gives log lines to the writer after a delay, so that several lines are handed over together.
async fn hand_over_later() {
    loop {
        tokio::time::sleep(HAND_OVER_AFTER).await;
        let done = with(Worker::hand_over_lines);
        if done {
            return;
        }
    }
}

/// The connections of a worker, so that a drain can close those that wait for a request.
#[derive(Default)]
pub(super) struct Connections {
    entries: Vec<Entry>,
    free: Vec<usize>,
}

enum Entry {
    Free,
    Running {
        /// Set once the task is spawned.
        abort: Option<AbortHandle>,
        state: ConnectionState,
        /// Set if the connection is to be polled when a drain begins.
        waker: Option<Waker>,
    },
}

/// The kind of request that a connection waits for, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Busy,
    /// Waiting for its first request.
    New,
    /// Waiting for another request.
    Idle,
}

/// The phase of a connection, for the node's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    /// Waiting for a request.
    Waiting,
    /// A part of a request head has arrived.
    Reading,
}

/// A selection of a worker's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    All,
    /// Connections that wait for a request, first or later.
    Waiting,
    /// Connections that wait for another request.
    Idle,
}

impl Connections {
    pub(super) fn add(&mut self) -> usize {
        let entry = Entry::Running {
            abort: None,
            state: ConnectionState::Busy,
            waker: None,
        };
        match self.free.pop() {
            Some(number) => {
                self.entries[number] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        }
    }

    pub(super) fn set_abort(&mut self, number: usize, handle: AbortHandle) {
        if let Some(Entry::Running { abort, .. }) = self.entries.get_mut(number) {
            *abort = Some(handle);
        }
    }

    #[inline]
    pub(super) fn set_state(&mut self, number: usize, now: ConnectionState) {
        if let Some(Entry::Running { state, .. }) = self.entries.get_mut(number) {
            *state = now;
        }
    }

    /// Registers a waker, so that the connection is polled when a drain begins.
    pub(super) fn set_waker(&mut self, number: usize, new: &Waker) {
        if let Some(Entry::Running { waker, .. }) = self.entries.get_mut(number)
            && !waker.as_ref().is_some_and(|waker| waker.will_wake(new))
        {
            *waker = Some(new.clone());
        }
    }

    /// Wakes the connections that have registered a waker with [`Self::set_waker`].
    pub(super) fn wake(&self) {
        for entry in &self.entries {
            if let Entry::Running {
                waker: Some(waker), ..
            } = entry
            {
                waker.wake_by_ref();
            }
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.entries[number] = Entry::Free;
        self.free.push(number);
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn handles(&self, which: Which) -> Vec<AbortHandle> {
        let wanted = |state: ConnectionState| match which {
            Which::All => true,
            Which::Waiting => state != ConnectionState::Busy,
            Which::Idle => state == ConnectionState::Idle,
        };
        let running = self.entries.iter().filter_map(|entry| match entry {
            Entry::Running { abort, state, .. } if wanted(*state) => abort.clone(),
            _ => None,
        });
        running.collect()
    }
}
