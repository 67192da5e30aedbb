//! A series: labels, and the cells that count under them.

use super::buckets::Buckets;
use super::cells::{Cells, Pool, View};
use super::exemplar::Exemplars;
use super::group::Placement;
use slab::Slab;
use std::hint;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Number of attempts to get at a series that a scrape is reading. Most series are read in less time.
const ATTEMPTS: usize = 100;

pub(super) struct Series {
    pub(super) labels: Arc<str>,
    /// The buckets of a histogram.
    pub(super) buckets: Option<Arc<Buckets>>,
    pub(super) exemplars: Exemplars,
    sources: Mutex<Sources>,
}

/// The cells whose sum is the series. Several groups may count under the same labels, for example a deleted route and the
/// one that has its name now, or all routes beyond the maximum number of series.
#[derive(Default)]
struct Sources {
    /// The cells that handles of the series increment.
    own: Option<Cells>,
    /// Cells of groups.
    parts: Slab<Part>,
    /// What groups have counted that no longer exist.
    former: Vec<u64>,
}

/// The cells of a series in a group.
pub(super) struct Part {
    pub(super) view: View,
    pub(super) place: Place,
}

/// Positions of the cells of a series in a group.
#[derive(Clone)]
pub(super) enum Place {
    Counter(u16),
    Histogram(Arc<Placement>),
}

impl Series {
    pub(super) fn new(labels: Arc<str>, buckets: Option<Arc<Buckets>>) -> Self {
        Self {
            labels,
            buckets,
            exemplars: Exemplars::default(),
            sources: Mutex::default(),
        }
    }

    /// Returns the cells for handles of the series. They exist as long as the series.
    pub(super) fn own_cells(&self, pool: &Arc<Pool>) -> View {
        let mut sources = self.sources();
        let own = sources.own.get_or_insert_with(|| pool.take());
        own.view.clone()
    }

    /// Adds cells of a group, until [`Self::detach`]. Returns a key for it, or `None` if a scrape is reading the series: a
    /// worker must not wait for one that reads thousands of parts.
    pub(super) fn try_attach(&self, part: Part) -> Option<usize> {
        for _ in 0..ATTEMPTS {
            match self.sources.try_lock() {
                Ok(mut sources) => return Some(sources.parts.insert(part)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Some(poisoned.into_inner().parts.insert(part));
                }
                Err(TryLockError::WouldBlock) => hint::spin_loop(),
            }
        }
        None
    }

    /// Removes the cells of a group. What they have counted stays in the series.
    pub(super) fn detach(&self, key: usize) {
        let mut sources = self.sources();
        let Some(part) = sources.parts.try_remove(key) else {
            return;
        };
        let width = part.place.cells().len();
        sources.former.resize(width, 0);
        part.add_to(&mut sources.former);
    }

    /// Returns the sum of the cells of a series with one cell.
    pub(super) fn value(&self) -> u64 {
        let mut cells = [0];
        self.add_up(&mut cells);
        cells[0]
    }

    /// Adds up the cells of the buckets, and returns the sum of the values. A series without buckets has one cell.
    pub(super) fn read(&self, cells: &mut Vec<u64>) -> f64 {
        let Some(buckets) = &self.buckets else {
            cells.clear();
            cells.push(self.value());
            return 0.0;
        };
        cells.clear();
        cells.resize(buckets.cells() + 1, 0);
        let sum_of_floats = self.add_up(cells);
        let sum = cells.pop().unwrap_or_default();
        match buckets.whole {
            true => sum as f64,
            false => sum_of_floats,
        }
    }

    /// Adds up all cells. Sums wrap, so that cells that were decremented count too. Returns the sum of the last cells, read
    /// as floating-point numbers.
    fn add_up(&self, cells: &mut [u64]) -> f64 {
        let sources = self.sources();
        let mut floats = 0.0;
        if let Some(own) = &sources.own {
            for shard in own.view.shards() {
                let mut last = 0;
                for (position, cell) in cells.iter_mut().enumerate() {
                    last = shard.value(position);
                    *cell = cell.wrapping_add(last);
                }
                floats += f64::from_bits(last);
            }
        }
        for (_, part) in &sources.parts {
            part.add_to(cells);
        }
        for (cell, former) in cells.iter_mut().zip(&sources.former) {
            *cell = cell.wrapping_add(*former);
        }
        floats
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    fn add_to(&self, cells: &mut [u64]) {
        for shard in self.view.shards() {
            for (cell, place) in cells.iter_mut().zip(self.place.cells()) {
                *cell = cell.wrapping_add(shard.value(usize::from(*place)));
            }
        }
    }
}

impl Place {
    /// Returns the positions of the cells. The last one of a histogram is that of the sum.
    pub(super) fn cells(&self) -> &[u16] {
        match self {
            Self::Counter(cell) => slice::from_ref(cell),
            Self::Histogram(placement) => &placement.cells,
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.cells() == other.cells()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_does_not_wait_for_a_scrape_that_reads_the_series() {
        let series = Series::new("a=\"b\"".into(), None);
        let cells = Pool::new(1, 1).take();
        let part = || Part {
            view: cells.view.clone(),
            place: Place::Counter(0),
        };
        let scrape = series.sources();
        assert_eq!(series.try_attach(part()), None);
        drop(scrape);
        assert!(series.try_attach(part()).is_some());
    }
}
