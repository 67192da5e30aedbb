//! The minimum transfer rate of clients, if the settings require one. Idle timeouts alone do not stop a client that
//! sends one byte just before each timeout expires.

use std::time::Duration;
use tokio::time::Instant;

/// Minimum rate at which a client must send its body and receive its response.
#[derive(Debug, Clone, Copy)]
pub struct MinRate {
    /// Average bytes per second (`client_min_rate`); zero means no minimum.
    pub bytes: u64,
    /// Time that a client may lag behind that rate (`client_min_rate_grace`).
    pub grace: Duration,
}

impl Default for MinRate {
    fn default() -> Self {
        Self {
            bytes: 0,
            grace: Duration::from_secs(10),
        }
    }
}

/// A period in which only the client can delay the transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    since: Instant,
    /// Byte count at the start of the period.
    from: u64,
}

impl Pace {
    pub(super) fn new(since: Instant, count: u64) -> Self {
        Self { since, from: count }
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Returns when a client with this byte count becomes too slow if it transfers nothing more. Returns `None` if
    /// there is no minimum rate.
    #[inline]
    pub(super) fn due(&self, count: u64, rate: MinRate) -> Option<Instant> {
        (rate.bytes > 0).then(|| {
            let paid = count.saturating_sub(self.from) as f64 / rate.bytes as f64;
            // The time is bounded because a large byte count may give more time than a timer can hold.
            self.since + rate.grace + Duration::from_secs_f64(paid.min(1e6))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pay_for_time_after_the_grace() {
        let start = Instant::now();
        let pace = Pace::new(start, 500);
        let rate = |bytes| MinRate {
            bytes,
            grace: Duration::from_secs(10),
        };
        assert_eq!(pace.due(10_000, rate(0)), None);
        for (count, seconds) in [(500, 10), (400, 10), (1500, 20), (100_500, 1010)] {
            let due = pace.due(count, rate(100)).unwrap();
            assert_eq!((due - start).as_secs(), seconds, "{count}");
        }
    }
}
