//! Memory of series: numbers per worker, laid out so that workers never write the same cache line.
//!
//! A chunk has the cells of several owners. For each worker it has lines of its own, so an owner needs no padding. Cells
//! go back to the pool when their owner is gone, and start at zero for the next one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CELLS_PER_LINE: usize = 16;

/// Two cache lines, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Line([AtomicU64; CELLS_PER_LINE]);

/// Cells for owners that all have the same number of them: the series of a metric, or groups of series.
#[derive(Debug)]
pub(super) struct Pool {
    /// Number of shards: one per worker, and one that all other threads share.
    shards: usize,
    /// Number of cells of an owner, per shard.
    width: usize,
    free: Mutex<Vec<View>>,
}

/// The cells of an owner. They go back to the pool when this is dropped.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) view: View,
    pool: Arc<Pool>,
}

/// Where cells are. Whoever uses them sees to it that their owner still exists.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The lines of all shards. They are at hand without a further pointer, because each pointer may lead to a cold line.
    lines: Arc<[Line]>,
    shards: u16,
    lines_per_shard: u16,
    /// Position of the first cell in each shard.
    start: u16,
}

/// The cells of one shard.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shard<'v> {
    lines: &'v [Line],
    start: usize,
}

impl Pool {
    pub(super) fn new(workers: usize, width: usize) -> Arc<Self> {
        Arc::new(Self {
            shards: workers + 1,
            width: width.max(1),
            free: Mutex::default(),
        })
    }

    /// Returns cells that are all zero.
    pub(super) fn take(self: &Arc<Self>) -> Cells {
        let mut free = self.free();
        if free.is_empty() {
            let lines = self.shards * self.lines_per_shard();
            let lines: Arc<[Line]> = (0..lines).map(|_| Line::default()).collect();
            // The last place comes first out of the list, so that chunks are filled from the front.
            let starts = (0..self.owners()).rev().map(|owner| owner * self.width);
            free.extend(starts.map(|start| View {
                lines: lines.clone(),
                shards: self.shards as u16,
                lines_per_shard: self.lines_per_shard() as u16,
                start: start as u16,
            }));
        }
        let view = free.pop().expect("the list was filled above");
        drop(free);
        for shard in view.shards() {
            for cell in 0..self.width {
                shard.cell(cell).store(0, Ordering::Relaxed);
            }
        }
        Cells {
            view,
            pool: self.clone(),
        }
    }

    /// Number of owners in a chunk.
    fn owners(&self) -> usize {
        (CELLS_PER_LINE / self.width).max(1)
    }

    fn lines_per_shard(&self) -> usize {
        (self.owners() * self.width).div_ceil(CELLS_PER_LINE)
    }

    fn free(&self) -> MutexGuard<'_, Vec<View>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    /// Returns the cells of a worker, and whether other threads write them too. All numbers that are not those of workers
    /// share the last shard.
    #[inline]
    pub(super) fn shard(&self, worker: usize) -> (Shard<'_>, bool) {
        let last = usize::from(self.shards) - 1;
        let (shard, width) = (worker.min(last), usize::from(self.lines_per_shard));
        let lines = self.lines.get(shard * width..(shard + 1) * width);
        let shard = Shard {
            lines: lines.unwrap_or_default(),
            start: usize::from(self.start),
        };
        (shard, worker >= last)
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = Shard<'_>> {
        let shards = self.lines.chunks_exact(usize::from(self.lines_per_shard));
        shards.map(|lines| Shard {
            lines,
            start: usize::from(self.start),
        })
    }

    /// Returns a cell of a worker.
    #[inline]
    pub(super) fn cell(&self, worker: usize, cell: usize) -> &AtomicU64 {
        self.shard(worker).0.cell(cell)
    }
}

impl<'v> Shard<'v> {
    #[inline]
    pub(super) fn cell(self, cell: usize) -> &'v AtomicU64 {
        let index = self.start + cell;
        &self.lines[index / CELLS_PER_LINE].0[index % CELLS_PER_LINE]
    }

    #[inline]
    pub(super) fn value(self, cell: usize) -> u64 {
        self.cell(cell).load(Ordering::Relaxed)
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        self.pool.free().push(self.view.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_cell_is_a_place_of_its_own_and_workers_share_no_line() {
        for width in [1, 2, 3, 5, 16, 17, 40] {
            let pool = Pool::new(3, width);
            let owners: Vec<Cells> = (0..40).map(|_| pool.take()).collect();
            let mut places = HashSet::new();
            let mut lines: Vec<HashSet<usize>> = vec![HashSet::new(); 4];
            for cells in &owners {
                for (shard, lines) in lines.iter_mut().enumerate() {
                    for cell in 0..width {
                        let place = std::ptr::from_ref(cells.view.cell(shard, cell)).addr();
                        assert!(places.insert(place), "width {width}");
                        lines.insert(place / 128);
                    }
                }
            }
            for (shard, own) in lines.iter().enumerate() {
                let others = lines[shard + 1..].iter().flatten();
                assert!(others.into_iter().all(|line| !own.contains(line)));
            }
        }
    }

    #[test]
    fn cells_are_used_again_after_their_owner_is_gone_and_start_at_zero() {
        let pool = Pool::new(1, 1);
        let first = pool.take();
        first.view.cell(0, 0).store(7, Ordering::Relaxed);
        let place = std::ptr::from_ref(first.view.cell(0, 0)).addr();
        drop(first);
        let second = pool.take();
        assert_eq!(std::ptr::from_ref(second.view.cell(0, 0)).addr(), place);
        assert_eq!(second.view.cell(0, 0).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn only_the_last_shard_is_written_by_several_threads() {
        let cells = Pool::new(2, 1).take();
        let is_shared = [0, 1, 2, usize::MAX].map(|worker| cells.view.shard(worker).1);
        assert_eq!(is_shared, [false, false, true, true]);
    }
}
