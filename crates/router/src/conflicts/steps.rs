//! How much of a search for conflicts is done.

use std::cell::Cell;

/// A step is at most a comparison of two values. This many take about a second.
const STEPS: usize = 80_000_000;

/// A router with more candidates may take more.
const STEPS_PER_CANDIDATE: usize = 2_000;

/// For every so many steps the search asks whether it is cancelled.
const INTERVAL: usize = 100_000;

/// The steps that making a request takes, about.
pub(super) const STEPS_OF_TEXTS: usize = 100;
pub(super) const STEPS_OF_AUTOMATA: usize = 1_000;

/// The steps that may still be taken.
pub(super) struct Steps<'e> {
    /// Asked now and then whether nobody wants to know any more.
    is_cancelled: &'e dyn Fn() -> bool,
    left: Cell<usize>,
    until_asked: Cell<usize>,
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

    /// For the candidates of one more router.
    pub(super) fn add(&self, candidates: usize) {
        let more = STEPS_PER_CANDIDATE * candidates;
        self.left.set(self.left.get() + more);
    }

    /// Takes so many; says no when there are none left, and from then on.
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
