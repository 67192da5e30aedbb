//! The work limit and the buffers of one match.

use crate::keys::Gram;
use std::cell::Cell;

/// Maximum number of steps for a match. A step is about one examined byte of the request. A typical match takes a few
/// hundred steps. The limit corresponds to a few milliseconds.
pub const MAX_STEPS: usize = 4 << 20;

/// The message for a client whose request is [`TooCostly`].
pub const TOO_COSTLY: &str = "the request takes too much work to route";

/// No route was found within [`MAX_STEPS`]. It is unknown whether the request matches a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("finding a route for the request takes more than {MAX_STEPS} steps")]
pub struct TooCostly;

/// The number of steps that a match may still take.
pub(crate) struct Budget {
    /// Negative once more steps were requested than were left.
    left: Cell<isize>,
}

impl Budget {
    /// Consumes `steps` steps. Returns false if fewer are left; then the budget is exhausted.
    #[inline]
    pub(crate) fn spend(&self, steps: usize) -> bool {
        // This cannot overflow, because `steps` is about a number of bytes of one request.
        let left = self.left.get() - steps as isize;
        self.left.set(left);
        left >= 0
    }

    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left.get() < 0
    }

    pub(crate) fn spent(&self) -> usize {
        MAX_STEPS.saturating_sub_signed(self.left.get().max(0))
    }

    pub(crate) fn refill(&self) {
        self.left.set(MAX_STEPS as isize);
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: Cell::new(MAX_STEPS as isize),
        }
    }
}

/// A set of small numbers. The cost of clearing it depends on the number of elements, not on the capacity.
#[derive(Default)]
pub(crate) struct Marks {
    words: Vec<u64>,
    /// The indexes of the words that are not zero.
    touched: Vec<u32>,
}

impl Marks {
    /// Returns whether the number was not yet in the set.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let (at, bit) = (number / 64, 1 << (number % 64));
        let Some(word) = self.words.get_mut(at as usize) else {
            return self.insert_beyond(at, bit);
        };
        let before = *word;
        *word |= bit;
        if before == 0 {
            self.touched.push(at);
        }
        before & bit == 0
    }

    #[cold]
    fn insert_beyond(&mut self, at: u32, bit: u64) -> bool {
        self.words.resize(at as usize + 1, 0);
        self.words[at as usize] = bit;
        self.touched.push(at);
        true
    }

    pub(crate) fn clear(&mut self) {
        for word in self.touched.drain(..) {
            self.words[word as usize] = 0;
        }
    }
}

/// Buffers for matching. They are reused for the next request.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) budget: Budget,
    pub(crate) lowered: Vec<u8>,
    /// The grams of a value that occur as keys in a split.
    pub(crate) grams: Vec<Gram>,
    /// The candidates whose expressions were already evaluated.
    pub(crate) asked: Marks,
}

impl Work {
    pub(crate) fn begin(&mut self) {
        self.budget.refill();
        self.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spent_steps_are_available_again_after_a_refill() {
        let budget = Budget::default();
        assert!(budget.spend(MAX_STEPS - 1) && budget.spend(1));
        assert!(!budget.is_exhausted());
        assert!(!budget.spend(1) && budget.is_exhausted());
        assert_eq!(budget.spent(), MAX_STEPS);
        budget.refill();
        assert!(!budget.is_exhausted() && budget.spent() == 0);
    }

    #[test]
    fn marks_are_kept_until_they_are_cleared() {
        let mut marks = Marks::default();
        assert!(marks.insert(3) && marks.insert(64) && marks.insert(1000));
        assert!(!marks.insert(3) && !marks.insert(1000));
        marks.clear();
        assert!(marks.insert(64) && marks.insert(3));
    }
}
