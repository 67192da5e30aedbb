//! The wall-clock time of an instant.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment on both clocks. The time of a request must be the same whenever it is asked for, so it is counted from this
/// moment and not from the time of the call.
pub(super) struct Wall {
    instant: Instant,
    since_epoch: Duration,
}

/// The system clock may be set. After this time, it is read again.
const RENEWED_AFTER: Duration = Duration::from_secs(60);

impl Wall {
    pub(super) fn new() -> Self {
        Self {
            instant: Instant::now(),
            since_epoch: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }

    /// Returns the time since 1970 of an instant.
    pub(super) fn at(&mut self, instant: Instant) -> Duration {
        if instant.saturating_duration_since(self.instant) > RENEWED_AFTER {
            *self = Self::new();
        }
        let later = instant.saturating_duration_since(self.instant);
        let earlier = self.instant.saturating_duration_since(instant);
        (self.since_epoch + later).saturating_sub(earlier)
    }
}
