//! The clock of spans. Requests with many spans read it often, and [`Instant`] does not tell its number: each use would take
//! the difference of two, which costs more than reading the clock.

use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A time on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    nanoseconds: u64,
}

impl Moment {
    #[inline]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // The clock begins with the system, so that neither number is negative.
        Self {
            nanoseconds: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        }
    }

    /// Returns the moment of an instant. Times long before the first call are that of the call.
    pub fn of(instant: Instant) -> Self {
        static FIRST: OnceLock<(Instant, Moment)> = OnceLock::new();
        let (first, moment) = FIRST.get_or_init(Self::pair);
        let nanoseconds = match instant.checked_duration_since(*first) {
            Some(after) => moment.nanoseconds.saturating_add(nanoseconds(after)),
            None => {
                let before = nanoseconds(first.duration_since(instant));
                moment.nanoseconds.saturating_sub(before)
            }
        };
        Self { nanoseconds }
    }

    /// Reads both clocks at nearly the same time. The thread can be interrupted between two reads, so several are compared.
    fn pair() -> (Instant, Self) {
        let read = || {
            let (before, instant, after) = (Self::now(), Instant::now(), Self::now());
            (after.nanoseconds_since(before), instant, before)
        };
        let pairs = (0..16).map(|_| read());
        let closest = pairs.min_by_key(|(apart, ..)| *apart);
        let (_, instant, moment) = closest.unwrap_or_else(read);
        (instant, moment)
    }

    /// Returns the nanoseconds since an earlier moment, and 0 since a later one.
    #[inline]
    pub fn nanoseconds_since(self, earlier: Self) -> u64 {
        self.nanoseconds.saturating_sub(earlier.nanoseconds)
    }

    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }
}

/// Returns the nanoseconds of a duration; the largest number for those of more than 584 years.
#[inline]
pub fn nanoseconds(time: Duration) -> u64 {
    let whole = time.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(time.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_the_distances_of_their_instants() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let moment = Moment::of(now);
        assert_eq!(Moment::of(now + hour).since(moment), hour);
        let short = Duration::from_nanos(1);
        assert_eq!(moment.since(Moment::of(now - short)), short);
        assert_eq!(moment.since(Moment::of(now + hour)), Duration::ZERO);
    }

    #[test]
    fn both_clocks_are_the_same() {
        let before = Moment::of(Instant::now());
        let now = Moment::now();
        let after = Moment::of(Instant::now());
        // The first pair was read one after the other.
        let apart = Duration::from_millis(1);
        assert!(before.since(now) < apart && now.since(after) < apart);
    }
}
