//! The memory limit for the bodies of all requests together.
//!
//! A body may hold at most as much memory as remains free. So a single body may hold at most half of the budget, and
//! two bodies at most a third each. This always leaves room for a small body, no matter how many large bodies there are
//! and how slowly they arrive.

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

    /// Size of the largest body that there is room for now.
    pub(crate) fn room(&self) -> usize {
        let held = self.0.held.load(Ordering::Relaxed);
        self.0.total.saturating_sub(held) / 2
    }

    /// Size of the largest body that an empty budget has room for.
    pub(crate) fn largest(&self) -> usize {
        self.0.total / 2
    }

    /// Returns an empty share for one body.
    pub(crate) fn share(&self) -> Share {
        Share {
            account: Arc::clone(&self.0),
            held: 0,
        }
    }
}

/// The part of the budget that one body holds, until the share is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Account>,
    held: usize,
}

impl Share {
    /// Reserves this many more bytes. Returns `false`, and reserves nothing, if there is no room.
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

    /// Lets all shares grow in turns until no share can grow.
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
    fn greedy_bodies_leave_as_much_room_as_each_of_them_holds() {
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
    fn a_dropped_body_releases_its_room() {
        let budget = Budget::new(1000);
        let first = greedy(&budget, 1);
        assert_eq!(budget.room(), 250);
        assert!(!budget.share().grow(251));
        drop(first);
        assert_eq!(budget.room(), budget.largest());
        assert!(budget.share().grow(500));
    }
}
