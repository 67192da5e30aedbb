//! The work limit of a search for conflicts.

use std::cell::Cell;

/// Maximum number of steps, which take about a second. A step is at most one comparison of two values.
const STEPS: usize = 80_000_000;

/// Additional steps per candidate, for large routers.
const STEPS_PER_CANDIDATE: usize = 2_000;

/// Number of steps between two checks for cancellation.
const INTERVAL: usize = 100_000;

/// Approximate number of steps for creating an example request, without and with regexes.
pub(super) const STEPS_OF_TEXTS: usize = 100;
pub(super) const STEPS_OF_AUTOMATA: usize = 1_000;

/// The steps that are left.
pub(super) struct Steps<'e> {
    /// Called from time to time; returns true if the result is no longer needed.
    is_cancelled: &'e dyn Fn() -> bool,
    left: Cell<usize>,
    /// Number of steps until the next check for cancellation.
    until_asked: Cell<usize>,
    /// Also true after a cancellation.
    are_used_up: Cell<bool>,
}

impl<'e> Steps<'e> {
    pub(super) fn new(is_cancelled: &'e dyn Fn() -> bool) -> Self {
        Self {
            is_cancelled,
            left: Cell::new(STEPS),
            until_asked: Cell::new(0),
            are_used_up: Cell::new(false),
        }
    }

    /// Adds steps for the candidates of one more router.
    pub(super) fn add(&self, candidates: usize) {
        let more = STEPS_PER_CANDIDATE * candidates;
        self.left.set(self.left.get() + more);
    }

    /// Spends steps. Returns false if too few are left or the search was cancelled. All later calls then return false
    /// too.
    pub(super) fn spend(&self, steps: usize) -> bool {
        if self.are_used_up.get() {
            return false;
        }
        let is_cancelled = match self.until_asked.get().checked_sub(steps) {
            Some(until) => {
                self.until_asked.set(until);
                false
            }
            None => {
                self.until_asked.set(INTERVAL);
                (self.is_cancelled)()
            }
        };
        match self.left.get().checked_sub(steps).filter(|_| !is_cancelled) {
            Some(left) => self.left.set(left),
            None => self.are_used_up.set(true),
        }
        !self.are_used_up.get()
    }

    pub(super) fn are_used_up(&self) -> bool {
        self.are_used_up.get()
    }
}
