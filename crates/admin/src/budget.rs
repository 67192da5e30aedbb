//! The memory that the bodies of all requests may take together.
//!
//! One body may hold as much as it leaves free: a single one at most half of the budget, two at most a third each. However
//! many large bodies there are, and however slowly they come, a small one still finds room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Account>);

#[derive(Debug)]
struct Account {
    total: usize,
    held: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        let held = AtomicUsize::new(0);
        Self(Arc::new(Account { total, held }))
    }

    /// The largest body that there is room for now.
    pub(crate) fn room(&self) -> usize {
        let held = self.0.held.load(Ordering::Relaxed);
        self.0.total.saturating_sub(held) / 2
    }

    /// The largest body that there is ever room for.
    pub(crate) fn largest(&self) -> usize {
        self.0.total / 2
    }

    /// An empty share, for one body.
    pub(crate) fn share(&self) -> Share {
        Share {
            account: Arc::clone(&self.0),
            held: 0,
        }
    }
}

/// The part of the budget that one body holds until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Account>,
    held: usize,
}

impl Share {
    /// Takes room for so many more bytes; `false` leaves everything as it was.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let own = self.held.saturating_add(bytes);
        let total = self.account.total;
        let take = |held: usize| {
            let held = held.checked_add(bytes)?;
            let free = total.checked_sub(held)?;
            (own <= free).then_some(held)
        };
        let held = &self.account.held;
        let taken = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_ok() {
            self.held = own;
        }
        taken.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares that grow in turns until none of them can.
    fn greedy(budget: &Budget, count: usize) -> Vec<Share> {
        let mut shares: Vec<Share> = (0..count).map(|_| budget.share()).collect();
        while shares
            .iter_mut()
            .filter_map(|one| one.grow(1).then_some(()))
            .count()
            > 0
        {}
        shares
    }

    #[test]
    fn greedy_bodies_leave_as_much_as_each_of_them_holds() {
        for (count, held) in [(1, 500), (2, 333), (9, 100), (99, 10)] {
            let budget = Budget::new(1000);
            let shares = greedy(&budget, count);
            assert!(
                shares.iter().all(|one| one.held.abs_diff(held) <= 1),
                "{count}"
            );
            assert!(budget.share().grow(held / 2), "{count}");
        }
    }

    #[test]
    fn a_body_that_is_dropped_gives_its_room_back() {
        let budget = Budget::new(1000);
        let first = greedy(&budget, 1);
        assert_eq!(budget.room(), 250);
        assert!(!budget.share().grow(251));
        drop(first);
        assert_eq!(budget.room(), budget.largest());
        assert!(budget.share().grow(500));
    }
}
