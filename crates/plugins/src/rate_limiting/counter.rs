//! One counter: the number of requests in the current window of one key. The window and the number are one atomic
//! value, so that a new window and its first request are one step, and no request is counted in the wrong window.
//!
//! A counter also keeps the number of the window before, for sliding windows. Fixed windows do not need it, but one counter
//! serves both, so that a plugin that changes from one to the other keeps its counts.

use super::window::{Moment, Period};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of a counter that is being removed. No request is counted in it any more.
const REMOVED: u64 = u64::MAX;

/// Maximum time in seconds by which the clock reading of one request may be behind that of another. A window that began
/// later than that in the future is from a clock that was set back since.
const SKEW: u64 = 2;

/// Seconds by which a window must lie in the future so that its counter is removed: the clock was set back. The time is
/// long because the thread that removes counters may be halted after it read the clock.
const FAR_AHEAD: u64 = 86_400;

#[derive(Debug)]
pub(super) struct Counter {
    period: Period,
    /// Whether the requests are needed for another window after their own one.
    is_sliding: AtomicBool,
    /// The beginning of the window in the high bits, the number of requests in the low bits. Every step replaces the
    /// whole state and depends on nothing else but `previous`, which is written before.
    state: AtomicU64,
    /// The last state of the window before, in the same form. It is written before the state begins a new window.
    previous: AtomicU64,
}

/// What a counter knows of the windows that a sliding window consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recent {
    /// The beginning of the current window, in seconds since 1970.
    pub(super) begin: u64,
    /// The requests in the window before.
    pub(super) previous: u64,
}

/// A request that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// Requests in the window before this one.
    pub(super) before: u64,
    window: u64,
}

/// The reason why a request was not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uncounted {
    /// The window has as many requests as are allowed, or more after the limit was lowered.
    Full,
    /// The counter is being removed. The caller must look for another one.
    Removed,
}

impl Counter {
    /// Creates a counter in whose current window this number of requests was counted.
    pub(super) fn new(period: Period, moment: &Moment, requests: u64) -> Self {
        let state = pack(period, moment.window(period), requests);
        Self {
            period,
            is_sliding: AtomicBool::new(moment.is_sliding()),
            state: AtomicU64::new(state),
            previous: AtomicU64::new(0),
        }
    }

    /// Creates a counter that continues from what this one has counted.
    pub(super) fn continued(&self, moment: &Moment) -> Self {
        let state = self.state.load(Ordering::Acquire);
        let (window, requests) = self.current(state, moment);
        let previous = match self.unpack(state).0 == window {
            true => self.previous.load(Ordering::Relaxed),
            false => state,
        };
        Self {
            period: self.period,
            is_sliding: AtomicBool::new(moment.is_sliding()),
            state: AtomicU64::new(pack(self.period, window, requests)),
            previous: AtomicU64::new(previous),
        }
    }

    /// Returns the requests in the current window.
    pub(super) fn requests(&self, moment: &Moment) -> u64 {
        self.current(self.state.load(Ordering::Relaxed), moment).1
    }

    /// Returns what a sliding window needs of the windows before, and keeps the counter as long as it is needed for them.
    pub(super) fn recent(&self, moment: &Moment) -> Recent {
        // The acquiring load sees the previous window of the state that it reads.
        let state = self.state.load(Ordering::Acquire);
        if !self.is_sliding.load(Ordering::Relaxed) {
            self.is_sliding.store(true, Ordering::Relaxed);
        }
        let (window, _) = self.current(state, moment);
        let (newest, requests) = match self.unpack(state) {
            counted if counted.0 != window => counted,
            _ => self.unpack(self.previous.load(Ordering::Relaxed)),
        };
        let unit = self.period.unit();
        // Windows of a month or a year differ in length. Two windows before is always further away than the longest one.
        let is_next = newest < window && (window - newest) * unit <= self.period.longest();
        Recent {
            begin: window * unit,
            previous: if is_next { requests } else { 0 },
        }
    }

    /// Counts a request unless the window has `allowed` requests.
    pub(super) fn count(&self, moment: &Moment, allowed: u64) -> Result<Counted, Uncounted> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state == REMOVED {
                return Err(Uncounted::Removed);
            }
            let (window, before) = self.current(state, moment);
            if before >= allowed {
                return Err(Uncounted::Full);
            }
            if window != self.unpack(state).0 {
                self.keep_previous(state, moment);
            }
            let next = pack(self.period, window, before + 1);
            match self.replace(state, next) {
                Ok(_) => return Ok(Counted { before, window }),
                Err(newer) => state = newer,
            }
        }
    }

    /// Adds to the current window, whether or not it is full; nothing if the moment is in an older window. Returns false
    /// if the counter is being removed.
    pub(super) fn add(&self, moment: &Moment, by: i64) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state == REMOVED {
                return false;
            }
            let (window, before) = self.current(state, moment);
            let begin = self.unpack(state).0 * self.period.unit();
            // A window that is further ahead is from a clock that was set back since.
            if begin > moment.now
                && begin <= moment.now + FAR_AHEAD
                && window < self.unpack(state).0
            {
                return true;
            }
            let next = pack(self.period, window, before.saturating_add_signed(by));
            match self.replace(state, next) {
                Ok(_) => return true,
                Err(newer) => state = newer,
            }
        }
    }

    /// Undoes the counting of a request, unless its window is over.
    pub(super) fn give_back(&self, counted: Counted) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let (window, requests) = self.unpack(state);
            if state == REMOVED || window != counted.window || requests == 0 {
                return;
            }
            match self.replace(state, pack(self.period, window, requests - 1)) {
                Ok(_) => return,
                Err(newer) => state = newer,
            }
        }
    }

    /// Marks the counter as removed if its window is over. Returns whether it is removed.
    pub(super) fn remove_if_over(&self, now: u64) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        if state == REMOVED {
            return true;
        }
        let begin = self.unpack(state).0 * self.period.unit();
        let windows = match self.is_sliding.load(Ordering::Relaxed) {
            true => 2,
            false => 1,
        };
        let is_over =
            begin + windows * self.period.longest() + SKEW < now || begin > now + FAR_AHEAD;
        is_over && self.replace(state, REMOVED).is_ok()
    }

    pub(super) fn is_removed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == REMOVED
    }

    /// Keeps a state whose window is over. A later state of the same window is a larger number, and so is one of a later
    /// window: whatever the order of several workers, the last state of the newest window stays.
    #[cold]
    fn keep_previous(&self, state: u64, moment: &Moment) {
        // A window that is ahead is from a clock that was set back since.
        let is_ahead = |state| self.unpack(state).0 * self.period.unit() > moment.now + SKEW;
        if is_ahead(state) {
            return;
        }
        let newer = |known: u64| (known < state || is_ahead(known)).then_some(state);
        let _ = (self.previous).fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer);
    }

    /// Replaces the state. Whoever reads the new one also sees the previous window that was kept before.
    fn replace(&self, from: u64, to: u64) -> Result<u64, u64> {
        self.state
            .compare_exchange_weak(from, to, Ordering::Release, Ordering::Relaxed)
    }

    /// Returns the window in which a request counts, and its requests. A request that read the clock just before the
    /// newest window began counts in the newest window: going back to the older one would forget the newer requests.
    fn current(&self, state: u64, moment: &Moment) -> (u64, u64) {
        let own = moment.window(self.period);
        if state == REMOVED {
            return (own, 0);
        }
        let (window, requests) = self.unpack(state);
        let is_ahead = window > own && window * self.period.unit() <= moment.now + SKEW;
        if window == own || is_ahead {
            (window, requests)
        } else {
            (own, 0)
        }
    }

    fn unpack(&self, state: u64) -> (u64, u64) {
        let bits = count_bits(self.period);
        (state >> bits, state & max_count(self.period))
    }
}

const fn count_bits(period: Period) -> u32 {
    64 - period.window_bits()
}

/// The number at which a counter stops.
const fn max_count(period: Period) -> u64 {
    (1 << count_bits(period)) - 1
}

fn pack(period: Period, window: u64, requests: u64) -> u64 {
    window << count_bits(period) | requests.min(max_count(period))
}

#[cfg(test)]
mod tests {
    use super::super::window::Calendar;
    use super::*;

    fn at(now: u64) -> Moment {
        Calendar::default().moment(now)
    }

    fn counter(period: Period) -> Counter {
        Counter::new(period, &at(0), 0)
    }

    fn count(counter: &Counter, now: u64) -> Result<u64, Uncounted> {
        counter.count(&at(now), 2).map(|counted| counted.before)
    }

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_limit_of_two_lets_two_pass_in_each_window() {
        for period in Period::ALL {
            let counter = counter(period);
            assert_eq!(count(&counter, NOW), Ok(0));
            assert_eq!(count(&counter, NOW), Ok(1));
            assert_eq!(count(&counter, NOW), Err(Uncounted::Full));
            assert_eq!(counter.requests(&at(NOW)), 2);
            let next = NOW + period.longest();
            assert_eq!(counter.requests(&at(next)), 0);
            assert_eq!(count(&counter, next), Ok(0), "{period:?}");
        }
    }

    #[test]
    fn a_request_with_an_older_clock_counts_in_the_newest_window() {
        let counter = counter(Period::Second);
        assert_eq!(count(&counter, NOW), Ok(0));
        assert_eq!(count(&counter, NOW - 1), Ok(1));
        assert_eq!(count(&counter, NOW - 1), Err(Uncounted::Full));
        assert_eq!(count(&counter, NOW), Err(Uncounted::Full));
    }

    #[test]
    fn a_clock_that_was_set_back_begins_a_new_window() {
        let counter = counter(Period::Minute);
        assert_eq!(count(&counter, NOW), Ok(0));
        assert_eq!(count(&counter, NOW - 3600), Ok(0));
    }

    #[test]
    fn a_request_is_given_back_to_its_own_window_only() {
        let counter = counter(Period::Second);
        let first = counter.count(&at(NOW), 2).unwrap();
        counter.give_back(first);
        assert_eq!(counter.requests(&at(NOW)), 0);
        assert_eq!(count(&counter, NOW + 1), Ok(0));
        counter.give_back(first);
        assert_eq!(counter.requests(&at(NOW + 1)), 1);
    }

    #[test]
    fn nothing_is_counted_after_the_removal() {
        let counter = counter(Period::Minute);
        assert_eq!(count(&counter, NOW), Ok(0));
        assert!(!counter.remove_if_over(NOW + 60));
        assert!(counter.remove_if_over(NOW + 60 + SKEW + 60));
        assert!(counter.is_removed());
        assert_eq!(count(&counter, NOW), Err(Uncounted::Removed));
        assert_eq!(counter.requests(&at(NOW)), 0);
    }

    #[test]
    fn a_counter_stops_at_the_largest_number_that_fits() {
        let largest = max_count(Period::Second);
        let counter = Counter::new(Period::Second, &at(NOW), largest);
        assert!(counter.count(&at(NOW), u64::MAX).is_ok());
        assert_eq!(counter.requests(&at(NOW)), largest);
    }
}
