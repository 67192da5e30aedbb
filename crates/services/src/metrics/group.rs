//! Groups: cells of several series side by side, for what one event increments together.
//!
//! A request that is counted in ten series with cells of their own touches ten cold cache lines and as many that lead to
//! them. In a group it touches two or three: counters and sums are next to each other, and so are the buckets of all
//! histograms that small values fall into.
//!
//! A group only counts. Its cells are shown once they are attached to the series of a family.

use super::buckets::Buckets;
use super::cells::{Cells, Pool, Shard};
use super::exemplar::{Noted, TraceId};
use super::family::{Counter, Family, Milliseconds};
use super::series::{Part, Place, Series};
use crate::workers::ThisWorker;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Values below this find their bucket in a table.
const SMALL: usize = 128;

/// Makes groups that have the same cells.
#[derive(Clone)]
pub struct Groups(Arc<Pool>);

/// Cells of several series, for each worker.
pub struct Group {
    cells: Cells,
    /// On the heap, so that what each event needs of a group is in few bytes.
    attached: Box<Mutex<Vec<Attached>>>,
}

/// A series that cells of the group count in.
struct Attached {
    series: Arc<Series>,
    key: usize,
    place: Place,
}

/// The cells of a group that this thread increments.
#[derive(Clone, Copy)]
pub struct GroupCells<'g> {
    shard: Shard<'g>,
    /// Whether other threads increment them too.
    is_shared: bool,
    /// It stays on the thread of the worker.
    stays: PhantomData<*const ()>,
}

/// Where the cells of a histogram are in a group.
pub struct Placement {
    buckets: Arc<Buckets>,
    /// Positions of the buckets, and of the sum at the end.
    pub(super) cells: Box<[u16]>,
    sum: u16,
    /// Position of the bucket of each small value.
    small: [u16; SMALL],
}

impl Groups {
    /// Lays out groups with this number of counters, and with histograms that have these buckets. Counters come first, then
    /// the sums of the histograms, and then their buckets in turn, those of the smallest values first.
    pub(super) fn new<const N: usize>(
        workers: usize,
        counters: usize,
        histograms: [Arc<Buckets>; N],
    ) -> (Self, [Arc<Placement>; N]) {
        let mut cells: [Vec<u16>; N] = [const { Vec::new() }; N];
        let widest = histograms.iter().map(|buckets| buckets.cells()).max();
        let mut next = counters + N;
        for bucket in 0..widest.unwrap_or_default() {
            for (buckets, cells) in histograms.iter().zip(&mut cells) {
                if bucket < buckets.cells() {
                    cells.push(next as u16);
                    next += 1;
                }
            }
        }
        let mut all = histograms.into_iter().zip(cells).enumerate();
        let placements = std::array::from_fn(|_| {
            let (position, (buckets, cells)) = all.next().expect("there are N of each");
            Arc::new(Placement::new(buckets, cells, (counters + position) as u16))
        });
        (Self(Pool::new(workers, next)), placements)
    }

    /// Returns a group whose cells are all zero.
    pub fn make(&self) -> Group {
        Group {
            cells: self.0.take(),
            attached: Box::default(),
        }
    }
}

impl Group {
    /// Returns the cells of a worker, for that worker. Other threads share one more set of cells.
    #[inline]
    pub fn cells(&self, worker: ThisWorker) -> GroupCells<'_> {
        let (shard, is_shared) = self.cells.view.shard(worker.number());
        GroupCells {
            shard,
            is_shared,
            stays: PhantomData,
        }
    }

    /// Counts cells in a series. If that would have to wait for a scrape, does nothing and returns `false`.
    fn attach(&self, place: Place, find: impl FnOnce() -> Arc<Series>) -> bool {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if attached.iter().any(|known| known.place.is_same(&place)) {
            return true;
        }
        let series = find();
        let part = Part {
            view: self.cells.view.clone(),
            place: place.clone(),
        };
        let Some(key) = series.try_attach(part) else {
            return false;
        };
        attached.push(Attached { series, key, place });
        true
    }

    /// Keeps the trace of a request as an exemplar of a histogram, the first one of each bucket in four seconds: scrapes
    /// are seldomer. `noted` belongs to this histogram of the group. `now` is the time since 1970. It does not wait: an
    /// exemplar is left out if another thread is at work here.
    #[inline]
    pub fn note_trace(
        &self,
        placement: &Placement,
        noted: &Noted,
        value: u64,
        trace: TraceId,
        now: Duration,
    ) {
        if noted.is_first(placement.bucket(value), now) {
            self.keep_trace(placement, value, trace, now);
        }
    }

    #[cold]
    fn keep_trace(&self, placement: &Placement, value: u64, trace: TraceId, now: Duration) {
        let Ok(attached) = self.attached.try_lock() else {
            return;
        };
        let known = attached
            .iter()
            .find(|known| known.place.cells() == &*placement.cells);
        let series = known.map(|known| known.series.clone());
        drop(attached);
        if let Some(series) = series {
            let (buckets, value) = (&placement.buckets, value as f64);
            let (bucket, all) = (buckets.bucket(value), buckets.bounds.len() + 1);
            series.exemplars.note(bucket, all, trace, value, now);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let attached = self.attached.get_mut();
        for Attached { series, key, .. } in attached.unwrap_or_else(PoisonError::into_inner) {
            series.detach(*key);
        }
    }
}

impl Family<Counter> {
    /// Counts a cell of a group under these label values, as long as the group exists. Returns whether it does: it does not
    /// if a scrape reads the series right now. Nothing is lost if this is tried again later, because the cell has counted.
    pub fn attach(&self, labels: &[&str], group: &Group, cell: usize) -> bool {
        group.attach(Place::Counter(cell as u16), || self.find(labels))
    }
}

impl Family<Milliseconds> {
    /// Counts a histogram of a group under these label values. Returns whether it does, as for counters.
    pub fn attach(&self, labels: &[&str], group: &Group, placement: &Arc<Placement>) -> bool {
        let place = Place::Histogram(placement.clone());
        group.attach(place, || self.find(labels))
    }
}

impl GroupCells<'_> {
    #[inline]
    pub fn add(self, cell: usize, count: u64) {
        let cell = self.shard.cell(cell);
        if self.is_shared {
            cell.fetch_add(count, Ordering::Relaxed);
        } else {
            // Nobody else writes the cell, so it needs no locked instruction, which takes as long as ten others.
            let sum = cell.load(Ordering::Relaxed).wrapping_add(count);
            cell.store(sum, Ordering::Relaxed);
        }
    }

    /// Counts a value of a histogram. Not inlined, because a request has three of them, and three copies would take more of
    /// the processor's cache.
    #[inline(never)]
    pub fn observe(self, placement: &Placement, value: u64) {
        self.add(usize::from(placement.bucket(value)), 1);
        self.add(usize::from(placement.sum), value);
    }
}

impl Placement {
    fn new(buckets: Arc<Buckets>, mut cells: Vec<u16>, sum: u16) -> Self {
        let small = std::array::from_fn(|value| {
            let cell = cells.get(buckets.cell(value as f64));
            cell.copied().unwrap_or(sum)
        });
        cells.push(sum);
        Self {
            buckets,
            cells: cells.into(),
            sum,
            small,
        }
    }

    /// Returns the position of the bucket of a value.
    #[inline]
    fn bucket(&self, value: u64) -> u16 {
        let small = usize::try_from(value).ok();
        match small.and_then(|value| self.small.get(value)) {
            Some(cell) => *cell,
            None => self.cells[self.buckets.cell(value as f64)],
        }
    }
}
