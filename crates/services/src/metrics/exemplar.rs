//! Exemplars: for each bucket of a histogram the trace of a request whose value is in it. They lead from a slow bucket to
//! what was slow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The id of a trace.
pub type TraceId = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Exemplar {
    pub(super) trace: TraceId,
    pub(super) value: f64,
    /// When it was counted, since 1970.
    pub(super) at: Duration,
}

/// The exemplars of a series. Without traced requests they take no memory.
#[derive(Debug, Default)]
pub(super) struct Exemplars {
    kept: Mutex<Box<[Option<Exemplar>]>>,
}

/// The buckets of a histogram that have got an exemplar in a period, as bits, and the last bits of the number of this
/// period. Its owner keeps it next to what every request needs: most requests need nothing else for their exemplars.
#[derive(Debug, Default)]
pub struct Noted(AtomicU64);

/// Seconds of a period. Scrapes are seldomer.
const PERIOD: u64 = 4;

/// Number of bits for buckets in [`Noted`]. Cells of buckets that are as far apart share a bit.
const NOTED_CELLS: usize = 56;

impl Noted {
    /// Whether the bucket with this cell has got no exemplar in this period. From now on it has one. With two threads a bit
    /// can be lost: then the bucket gets another exemplar.
    #[inline]
    pub(super) fn is_first(&self, cell: u16, at: Duration) -> bool {
        let period = (at.as_secs() / PERIOD) << NOTED_CELLS;
        let bit = 1 << (usize::from(cell) % NOTED_CELLS);
        let mut noted = self.0.load(Ordering::Relaxed);
        if noted >> NOTED_CELLS != period >> NOTED_CELLS {
            noted = period;
        }
        if noted & bit != 0 {
            return false;
        }
        self.0.store(noted | bit, Ordering::Relaxed);
        true
    }
}

impl Exemplars {
    /// Keeps an exemplar of a bucket. `buckets` is the number of buckets. It does not wait: an exemplar is left out if
    /// another thread is at work here.
    pub(super) fn note(
        &self,
        bucket: usize,
        buckets: usize,
        trace: TraceId,
        value: f64,
        at: Duration,
    ) {
        let Ok(mut exemplars) = self.kept.try_lock() else {
            return;
        };
        if exemplars.is_empty() {
            *exemplars = vec![None; buckets].into();
        }
        if let Some(exemplar) = exemplars.get_mut(bucket) {
            *exemplar = Some(Exemplar { trace, value, at });
        }
    }

    /// Returns the exemplars by bucket.
    pub(super) fn read(&self) -> Vec<Option<Exemplar>> {
        let exemplars: MutexGuard<'_, _> = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        exemplars.to_vec()
    }
}

impl Exemplar {
    /// Returns the trace id as 32 hex digits.
    pub(super) fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gets_an_exemplar_in_each_period() {
        let noted = Noted::default();
        let is_first = |cell, at| noted.is_first(cell, Duration::from_millis(at));
        // The number of the period has more bits than are kept.
        assert!(is_first(0, 65_536_000) && is_first(3, 65_538_950));
        assert!(!is_first(0, 65_539_900) && !is_first(3, 65_539_999));
        // Cells that are 56 apart share a place.
        assert!(is_first(55, 65_539_950) && !is_first(56, 65_539_950));
        assert!(is_first(0, 65_540_000) && !is_first(0, 65_543_999));
    }
}
