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
    /// The buckets that have got an exemplar in a second, as bits, and the last bits of the number of this second.
    noted: AtomicU64,
    kept: Mutex<Box<[Option<Exemplar>]>>,
}

/// Number of bits for buckets in [`Exemplars::noted`]. The last one stands for all further buckets.
const NOTED_BUCKETS: usize = 48;

impl Exemplars {
    /// Keeps an exemplar of a bucket, the first one in each second. Scrapes are seldomer, and most calls end after a look
    /// at one word, which is next to the counts. `buckets` is the number of buckets. It does not wait: an exemplar is left
    /// out if another thread is at work here.
    pub(super) fn note(
        &self,
        bucket: usize,
        buckets: usize,
        trace: TraceId,
        value: f64,
        at: Duration,
    ) {
        let second = at.as_secs() << NOTED_BUCKETS;
        let bit = 1 << bucket.min(NOTED_BUCKETS - 1);
        let mut noted = self.noted.load(Ordering::Relaxed);
        if noted >> NOTED_BUCKETS != second >> NOTED_BUCKETS {
            noted = second;
        }
        if noted & bit != 0 {
            return;
        }
        let Ok(mut exemplars) = self.kept.try_lock() else {
            return;
        };
        // With two threads a bit can be lost. Then the bucket gets another exemplar.
        self.noted.store(noted | bit, Ordering::Relaxed);
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
    fn a_bucket_gets_an_exemplar_in_each_second() {
        let exemplars = Exemplars::default();
        let note = |bucket, value, at| {
            exemplars.note(bucket, 60, [7; 16], value, Duration::from_millis(at));
        };
        note(0, 1.0, 65_536_000);
        note(0, 2.0, 65_536_900);
        note(3, 3.0, 65_536_950);
        // All buckets from the 48th on share one place.
        note(50, 4.0, 65_536_950);
        note(59, 5.0, 65_536_960);
        let values = |kept: Vec<Option<Exemplar>>| -> Vec<f64> {
            kept.iter().flatten().map(|one| one.value).collect()
        };
        assert_eq!(values(exemplars.read()), [1.0, 3.0, 4.0]);
        note(0, 6.0, 65_537_000);
        assert_eq!(values(exemplars.read()), [6.0, 3.0, 4.0]);
    }
}
