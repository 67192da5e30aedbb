//! How fast clients have to be, where the settings say so: a byte a minute passes every limit between two bytes, and holds
//! a connection for as long as it likes.

use std::time::Duration;
use tokio::time::Instant;

/// How fast a client has to send its body and take its answer.
#[derive(Debug, Clone, Copy)]
pub struct MinRate {
    /// Bytes a second on average (`client_min_rate`); zero: any.
    pub bytes: u64,
    /// How long it may be slower (`client_min_rate_grace`).
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

/// A stretch of time in which nobody but the client holds things up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    since: Instant,
    /// The count of bytes at its beginning.
    from: u64,
}

impl Pace {
    pub(super) fn new(since: Instant, count: u64) -> Self {
        Self { since, from: count }
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// When a client whose count of bytes is this would be too slow, if it did nothing more.
    #[inline]
    pub(super) fn due(&self, count: u64, rate: MinRate) -> Option<Instant> {
        (rate.bytes > 0).then(|| {
            let paid = count.saturating_sub(self.from) as f64 / rate.bytes as f64;
            // Bounded, as what comes before it may pay for more than a timer can hold.
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
