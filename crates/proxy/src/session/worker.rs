//! What the connections of one worker thread share: read buffer, output buffer, upstream pool, request ids, the current
//! snapshot. Borrowed for the length of one poll and never across a wait, so a plain `RefCell` does.

use super::date::HttpDate;
use super::plane::{Counters, DataPlane};
use crate::plan::Picked;
use crate::snapshot::Snapshot;
use arc_swap::{ArcSwap, Cache};
use net::id::RequestIds;
use net::pool::Pool;
use plugin::UpstreamEdits;
use std::cell::RefCell;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// As much as one read takes. One per thread, not per connection: idle connections own no buffer.
const READ_BYTES: usize = 64 * 1024;
/// Spare buffers kept for connections that have bytes waiting.
const SPARE_BUFFERS: usize = 64;
/// A buffer that grew past this is not kept.
const SPARE_BYTES: usize = 16 * 1024;

pub(crate) struct Worker {
    pub(super) read: Box<[u8]>,
    pub(super) out: Vec<u8>,
    pub(super) ids: RequestIds,
    pub(super) pool: Pool,
    pub(super) router: router::Scratch,
    pub(super) date: HttpDate,
    pub(super) draining: bool,
    /// Of the running connections, by number.
    pub(super) connections: Connections,
    spare: Vec<Vec<u8>>,
    reusable: Vec<Reusable>,
    drained: Arc<Notify>,
    /// Of the plane that this is a worker of.
    live: Option<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    view: Option<Arc<View>>,
    pub(super) number: usize,
}

/// The lists that a request fills; kept from one to the next.
#[derive(Default)]
pub(super) struct Reusable {
    pub(super) edits: UpstreamEdits,
    pub(super) picked: Picked,
}

/// A snapshot as one worker holds it. The count of this `Arc` is only ever touched by its own thread, while that of the
/// snapshot itself would travel between all of them with every request.
pub(super) struct View {
    pub(super) snapshot: Arc<Snapshot>,
}

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::new(Worker::new());
}

/// Borrows the worker; `body` must not do so again.
#[inline]
pub(super) fn with<T>(body: impl FnOnce(&mut Worker) -> T) -> T {
    WORKER.with_borrow_mut(body)
}

impl Worker {
    fn new() -> Self {
        Self {
            read: vec![0; READ_BYTES].into(),
            out: Vec::with_capacity(8 * 1024),
            ids: RequestIds::default(),
            pool: Pool::default(),
            router: router::Scratch::default(),
            date: HttpDate::default(),
            draining: false,
            connections: Connections::default(),
            spare: Vec::new(),
            reusable: Vec::new(),
            drained: Arc::default(),
            live: None,
            view: None,
            number: 0,
        }
    }

    /// Makes the thread a worker of a plane.
    pub(super) fn set_up(&mut self, plane: &DataPlane, number: usize) {
        self.pool = Pool::new(plane.settings.pool);
        self.number = number;
        self.draining = false;
        self.live = None;
        self.view = None;
    }

    /// The snapshot that is current now.
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
                view
            }
        }
    }

    /// Regular upkeep: idle connections that are too old, and an old snapshot that an idle worker would keep in memory.
    pub(super) fn tidy(&mut self, plane: &DataPlane) {
        self.pool.sweep(Instant::now());
        if self.view.is_some() {
            self.view(plane);
        }
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

    pub(super) fn reusable(&mut self) -> Reusable {
        self.reusable.pop().unwrap_or_default()
    }

    pub(super) fn give_reusable(&mut self, mut memory: Reusable) {
        memory.edits.clear();
        if self.reusable.len() < SPARE_BUFFERS {
            self.reusable.push(memory);
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

    /// From now on connections close after their answer. Those that wait for a request are given to the caller, and
    /// the bell that rings when none is left.
    pub(super) fn start_draining(&mut self) -> (Vec<AbortHandle>, Arc<Notify>) {
        self.draining = true;
        (self.connections.handles(true), self.drained.clone())
    }

    #[inline]
    pub(super) fn counters<'a>(&self, plane: &'a DataPlane) -> &'a Counters {
        plane.counters(self.number)
    }
}

/// The connections of a worker, so that a drain can end those that wait for a request.
#[derive(Default)]
pub(super) struct Connections {
    entries: Vec<Entry>,
    free: Vec<usize>,
}

enum Entry {
    Free,
    Running {
        /// Known once the task is spawned.
        abort: Option<AbortHandle>,
        idle: bool,
    },
}

impl Connections {
    pub(super) fn add(&mut self) -> usize {
        let entry = Entry::Running {
            abort: None,
            idle: false,
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
    pub(super) fn set_idle(&mut self, number: usize, now_idle: bool) {
        if let Some(Entry::Running { idle, .. }) = self.entries.get_mut(number) {
            *idle = now_idle;
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.entries[number] = Entry::Free;
        self.free.push(number);
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Handles of all that run, or of those that only wait for a request.
    pub(super) fn handles(&self, only_idle: bool) -> Vec<AbortHandle> {
        let running = self.entries.iter().filter_map(|entry| match entry {
            Entry::Running { abort, idle } if *idle || !only_idle => abort.clone(),
            _ => None,
        });
        running.collect()
    }
}
