//! Memory of series: numbers per worker, laid out so that workers never write the same cache line.
//!
//! A chunk has the cells of several series. For each worker it has lines of its own, so a series needs no padding. Cells
//! of a series go back to the pool when the last holder of the series is gone, so nobody can increment the next owner's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CELLS_PER_LINE: usize = 16;

/// Two cache lines, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; CELLS_PER_LINE]);

#[derive(Debug)]
struct Chunk(Box<[Line]>);

/// Cells for the series of one metric.
#[derive(Debug)]
pub(super) struct Pool {
    /// Number of shards: one per worker, and one that all other threads share.
    shards: usize,
    /// Number of cells of a series, per shard.
    width: usize,
    free: Mutex<Vec<(Arc<Chunk>, usize)>>,
}

/// The cells of a series.
#[derive(Debug)]
pub(super) struct Cells {
    chunk: Arc<Chunk>,
    /// Position of the series in its chunk.
    slot: usize,
    pool: Arc<Pool>,
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
            let chunk = Arc::new(self.chunk());
            // The last slot comes first out of the list, so that series are filled in from the front.
            free.extend((0..self.slots()).rev().map(|slot| (chunk.clone(), slot)));
        }
        let (chunk, slot) = free.pop().expect("the list was filled above");
        drop(free);
        let cells = Cells {
            chunk,
            slot,
            pool: self.clone(),
        };
        for shard in 0..self.shards {
            for cell in 0..self.width {
                cells.cell(shard, cell).store(0, Ordering::Relaxed);
            }
        }
        cells
    }

    fn chunk(&self) -> Chunk {
        let lines = self.shards * self.lines_per_shard();
        Chunk((0..lines).map(|_| Line::default()).collect())
    }

    /// Number of series in a chunk.
    fn slots(&self) -> usize {
        (CELLS_PER_LINE / self.width).max(1)
    }

    fn lines_per_shard(&self) -> usize {
        (self.slots() * self.width).div_ceil(CELLS_PER_LINE)
    }

    fn free(&self) -> MutexGuard<'_, Vec<(Arc<Chunk>, usize)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cells {
    /// Returns a cell of a worker. All numbers that are not those of workers share one cell.
    #[inline]
    pub(super) fn cell(&self, worker: usize, cell: usize) -> &AtomicU64 {
        let pool = &*self.pool;
        let shard = worker.min(pool.shards - 1);
        let index = self.slot * pool.width + cell;
        let line = shard * pool.lines_per_shard() + index / CELLS_PER_LINE;
        &self.chunk.0[line].0[index % CELLS_PER_LINE]
    }

    /// Returns the sum of a cell over all shards. It wraps, so that cells that were decremented count too.
    pub(super) fn sum(&self, cell: usize) -> u64 {
        self.shards(cell).fold(0, u64::wrapping_add)
    }

    /// Returns the values of a cell in all shards.
    pub(super) fn shards(&self, cell: usize) -> impl Iterator<Item = u64> {
        let shards = 0..self.pool.shards;
        shards.map(move |shard| self.cell(shard, cell).load(Ordering::Relaxed))
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        self.pool.free().push((self.chunk.clone(), self.slot));
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
            let series: Vec<Cells> = (0..40).map(|_| pool.take()).collect();
            let mut places = HashSet::new();
            let mut lines: Vec<HashSet<usize>> = vec![HashSet::new(); 4];
            for cells in &series {
                for (shard, lines) in lines.iter_mut().enumerate() {
                    for cell in 0..width {
                        let place = std::ptr::from_ref(cells.cell(shard, cell)).addr();
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
        first.cell(0, 0).store(7, Ordering::Relaxed);
        let place = std::ptr::from_ref(first.cell(0, 0)).addr();
        drop(first);
        let second = pool.take();
        assert_eq!(std::ptr::from_ref(second.cell(0, 0)).addr(), place);
        assert_eq!(second.sum(0), 0);
    }
}
