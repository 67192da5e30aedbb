//! The wall clock of a node. Tests replace it by a clock that stands still until it is advanced.
//!
//! Plugins read the time here, not from the operating system, so that a test can decide what time it is. Durations that
//! code waits for are measured by tokio's clock, which tests can pause.

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When the process first asked for a time that never goes back.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the current wall time. Clones of a fixed clock show the same time.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Fixed(Arc<Mutex<Fixed>>),
}

#[derive(Debug)]
struct Fixed {
    at: SystemTime,
    since_beginning: Duration,
}

impl Clock {
    /// Returns the clock of the operating system.
    pub fn system() -> Self {
        Self::default()
    }

    /// Returns a clock that stands still at this time until [`Clock::advance`] is called.
    pub fn fixed(at: SystemTime) -> Self {
        let since_beginning = Duration::ZERO;
        let fixed = Fixed {
            at,
            since_beginning,
        };
        Self(Source::Fixed(Arc::new(Mutex::new(fixed))))
    }

    pub fn now(&self) -> SystemTime {
        match &self.0 {
            Source::System => SystemTime::now(),
            Source::Fixed(fixed) => lock(fixed).at,
        }
    }

    /// Returns the time since a moment in the past. It goes on evenly when the wall clock is set.
    pub fn since_beginning(&self) -> Duration {
        match &self.0 {
            Source::System => BEGINNING.elapsed(),
            Source::Fixed(fixed) => lock(fixed).since_beginning,
        }
    }

    /// Returns the time since the computer was started, with the time in which it was suspended. It goes on evenly when the
    /// wall clock is set.
    pub fn since_boot(&self) -> Duration {
        match &self.0 {
            Source::System => {
                let time = clock_gettime(ClockId::Boottime);
                Duration::try_from(time).unwrap_or_default()
            }
            Source::Fixed(fixed) => lock(fixed).since_beginning,
        }
    }

    /// Returns the time since the Unix epoch in milliseconds. A time before the epoch is 0.
    pub fn unix_millis(&self) -> u64 {
        u64::try_from(self.since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the time since the Unix epoch. A time before the epoch is zero.
    pub fn since_epoch(&self) -> Duration {
        self.now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    /// Moves a fixed clock and all its clones forward. The clock of the operating system stays as it is.
    pub fn advance(&self, by: Duration) {
        if let Source::Fixed(fixed) = &self.0 {
            let mut fixed = lock(fixed);
            fixed.at = fixed.at.checked_add(by).unwrap_or(fixed.at);
            fixed.since_beginning = fixed.since_beginning.saturating_add(by);
        }
    }

    /// Sets the wall time of a fixed clock and all its clones, as an operator may set the clock of a computer.
    pub fn set(&self, at: SystemTime) {
        if let Source::Fixed(fixed) = &self.0 {
            lock(fixed).at = at;
        }
    }
}

fn lock(fixed: &Mutex<Fixed>) -> MutexGuard<'_, Fixed> {
    fixed.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_clock_and_its_clones_move_only_when_advanced() {
        let clock = Clock::fixed(UNIX_EPOCH + Duration::from_millis(1500));
        let clone = clock.clone();
        assert_eq!(clone.unix_millis(), 1500);
        clock.advance(Duration::from_secs(2));
        assert_eq!(clone.unix_millis(), 3500);
        assert_eq!(clone.now(), UNIX_EPOCH + Duration::from_millis(3500));
    }

    #[test]
    fn setting_the_wall_time_changes_nothing_else() {
        let clock = Clock::fixed(UNIX_EPOCH + Duration::from_secs(100));
        clock.advance(Duration::from_secs(5));
        clock.set(UNIX_EPOCH);
        assert_eq!(clock.since_epoch(), Duration::ZERO);
        assert_eq!(clock.since_beginning(), Duration::from_secs(5));
        let system = Clock::system();
        let first = system.since_beginning();
        system.set(UNIX_EPOCH);
        assert!(system.since_beginning() >= first && system.since_epoch() > Duration::ZERO);
        let booted = system.since_boot();
        assert!(booted > Duration::ZERO && system.since_boot() >= booted);
    }

    #[test]
    fn times_before_the_epoch_are_zero_and_overflow_changes_nothing() {
        let clock = Clock::fixed(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(clock.unix_millis(), 0);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), UNIX_EPOCH - Duration::from_secs(1));
    }

    #[test]
    fn the_system_clock_cannot_be_advanced() {
        let clock = Clock::system();
        clock.advance(Duration::from_secs(1_000_000));
        let difference = clock.now().duration_since(SystemTime::now());
        assert!(difference.unwrap_or_default() < Duration::from_secs(500_000));
    }
}
