//! Exemplars: for each bucket of a histogram the trace of a request whose value is in it. They lead from a slow bucket to
//! what was slow.

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
pub(super) struct Exemplars(Mutex<Box<[Option<Exemplar>]>>);

impl Exemplars {
    /// Keeps the newest exemplar of a bucket. `buckets` is the number of buckets. It does not wait: an exemplar is left
    /// out if another thread is at work here.
    pub(super) fn note(
        &self,
        bucket: usize,
        buckets: usize,
        trace: TraceId,
        value: f64,
        at: Duration,
    ) {
        let Ok(mut exemplars) = self.0.try_lock() else {
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
        let exemplars: MutexGuard<'_, _> = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exemplars.to_vec()
    }
}

impl Exemplar {
    /// Returns the trace id as 32 hex digits.
    pub(super) fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace))
    }
}
