//! What a node knows about one key: its leases, and an estimate of the requests that come.

use super::super::counters::Allowance;
use super::lease::{Lease, Need, Offer};
use super::message::Digest;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Ticks without a request after which the node returns what it has not used.
pub(super) const IDLE_TICKS: u32 = 2;

/// Time without a request after which a key is forgotten. Redis keeps its totals.
pub(super) const FORGET: Duration = Duration::from_secs(60);

/// The leases of one key.
pub(super) struct Entry {
    pub(super) digest: Digest,
    pub(super) leases: SmallVec<[Lease; 2]>,
    /// Requests since the last tick.
    pub(super) recent: u64,
    /// Requests that are expected until the next tick.
    pub(super) expected: u64,
    pub(super) idle_ticks: u32,
    pub(super) waiting: u64,
    pub(super) is_queued: bool,
    pub(super) is_active: bool,
    pub(super) last_use: Duration,
    pub(super) changed: Arc<Notify>,
}

impl Entry {
    pub(super) fn new(digest: Digest) -> Self {
        Self {
            digest,
            leases: SmallVec::new(),
            recent: 0,
            expected: 0,
            idle_ticks: 0,
            waiting: 0,
            is_queued: false,
            is_active: false,
            last_use: Duration::ZERO,
            changed: Arc::default(),
        }
    }

    /// Makes the leases those of these allowances, in the same order, and replaces those whose windows are over.
    pub(super) fn fit(
        &mut self,
        allowances: &[Allowance],
        now: Duration,
        numbers: &mut Numbers<'_>,
    ) {
        let periods = |lease: &Lease| lease.period;
        let wanted = allowances.iter().map(|allowance| allowance.period);
        if !self.leases.iter().map(periods).eq(wanted) {
            let mut former = std::mem::take(&mut self.leases);
            for allowance in allowances {
                let known = former
                    .iter()
                    .position(|lease| lease.period == allowance.period);
                self.leases.push(match known {
                    Some(at) => former.swap_remove(at),
                    None => Lease::new(allowance.period, allowance.requests, numbers.next()),
                });
            }
        }
        for (lease, allowance) in self.leases.iter_mut().zip(allowances) {
            lease.limit = allowance.requests;
        }
        self.replace_over(now, numbers);
    }

    pub(super) fn replace_over(&mut self, now: Duration, numbers: &mut Numbers<'_>) {
        for lease in &mut self.leases {
            if lease.is_over(now) {
                *lease = Lease::new(lease.period, lease.limit, numbers.next());
            }
        }
    }

    pub(super) fn need(&self, id: u128) -> Need {
        let is_idle = self.is_idle();
        Need {
            id,
            digest: self.digest,
            waiting: self.waiting,
            ahead: if is_idle { 0 } else { self.expected },
            keep: if is_idle {
                0
            } else {
                (2 * self.expected).max(1)
            },
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle_ticks >= IDLE_TICKS
    }

    /// Whether the unused permits will not last for half a tick.
    pub(super) fn runs_short(&self, now: Duration) -> bool {
        let enough = self.expected.div_ceil(2);
        let mut leases = self.leases.iter();
        leases.any(|lease| lease.unused() < enough && lease.may_get_more(now))
    }

    /// Estimates the next tick. Returns whether there is something to send.
    pub(super) fn tick(&mut self, now: Duration, is_certain: bool) -> bool {
        let had_requests = self.recent > 0;
        self.idle_ticks = if had_requests { 0 } else { self.idle_ticks + 1 };
        self.expected = self.recent.max((self.expected + self.recent) / 2);
        self.recent = 0;
        let is_idle = self.is_idle();
        if is_idle {
            self.expected = 0;
        }
        let most = if is_idle { 0 } else { 2 * self.expected };
        // News that could not be sent for long are given up, so that they do not pile up while Redis is away.
        let is_fresh = now < self.last_use + FORGET;
        let wants = |lease: &Lease| {
            let has_too_many = lease.unused() > most.max(u64::from(!is_idle));
            let is_late = is_idle && is_fresh && lease.has_news() && !lease.is_over(now);
            let asks_again = had_requests
                && lease.offer(is_certain, now) == Offer::Refusal
                && lease.may_get_more(now);
            (lease.is_live(now) && has_too_many) || is_late || asks_again
        };
        self.waiting > 0 || self.leases.iter().any(wants)
    }

    /// Whether the entry must not be forgotten.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting > 0 || self.is_active || self.is_queued
    }
}

/// The numbers of new leases.
pub(super) struct Numbers<'n>(pub(super) &'n mut u64, pub(super) u64);

impl Numbers<'_> {
    pub(super) fn next(&mut self) -> u64 {
        let number = *self.0;
        *self.0 += self.1;
        number
    }
}
