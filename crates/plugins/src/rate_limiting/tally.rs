//! What a node knows about the counters of one client in Redis, and what it has counted itself since. No I/O.
//!
//! # The estimate
//!
//! Redis has the sum of what all nodes have reported. Since then, and since their last reports, the other nodes have let
//! more requests through. A node that ignores them lets too many pass: (nodes − 1) × rate × interval. So this node
//! estimates them from the rate at which the others' part of the count has grown:
//!
//! - Others have reported half an interval before now on average, so the estimate covers the time since the last answer
//!   and half an interval.
//! - The margin covers the interval until this node reports the request, and three standard deviations of the number of
//!   requests in all that time, and ten requests. So a request that is judged here is in Redis before the limit is
//!   reached.
//!
//! A request is judged here only if it certainly passes: the count, the estimate and the margin are below the limit. If
//! Redis has said that the limit is reached, it is refused here. Between the two, Redis is asked, with what the node has
//! not reported yet. All nodes report that often when they are near a limit, so the last requests are counted exactly.

use super::counters::{Allowance, Verdict};
use super::window::{Moment, Period};
use std::time::Duration;

/// Seconds by which the clock reading of one request may be behind that of another.
const SKEW: u64 = 2;
/// Number of requests before a limit that are never judged here. Small limits are reached before a node has learned
/// anything about the others.
const LAST: f64 = 10.0;

/// The counter of the current window of a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Window {
    /// Units of the period since 1970.
    pub(super) begin: u64,
    /// The count in Redis at `known_at`.
    shared: u64,
    /// The part of `shared` that this node has reported.
    reported: u64,
    /// Requests that are being reported.
    sent: u64,
    /// Requests that are not reported.
    own: u64,
    known_at: Duration,
    /// When Redis last answered. `None` if it never has.
    heard_at: Option<Duration>,
    /// Requests per second of the other nodes, and the highest value in this window.
    rate: f64,
    peak: f64,
    /// Number of reports that have ended.
    ended: u32,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    windows: [Window; Period::COUNT],
    /// When a request was last judged.
    pub(super) used_at: Duration,
    /// Whether the entry is in the list of those with something to report.
    pub(super) is_listed: bool,
    /// Whether the entry was removed from the table, so that nothing must be counted in it.
    pub(super) is_removed: bool,
}

/// What can be said about a request without Redis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Judged {
    Known(Verdict),
    /// Redis must be asked.
    Unknown,
}

/// The time of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) moment: Moment,
    /// Time since 1970, with its fraction.
    pub(super) wall: Duration,
    /// A time that never goes back.
    pub(super) steady: Duration,
}

/// Requests of a window that are being reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) period: Period,
    pub(super) begin: u64,
    pub(super) requests: u64,
    /// Number of reports of the window that had ended before this one began.
    pub(super) number: u32,
}

impl Tally {
    /// Judges a request, and counts it if it passes.
    pub(super) fn judge(
        &mut self,
        allowances: &[Allowance],
        now: &Now,
        interval: Duration,
    ) -> Judged {
        self.used_at = now.steady;
        let mut before = [0; Period::COUNT];
        let (mut is_full, mut is_unknown) = (false, false);
        for (before, allowance) in before.iter_mut().zip(allowances) {
            let window = self.window(allowance.period, now);
            let counted = window.counted();
            *before = counted;
            if window.is_stale(now, interval) {
                is_unknown = true;
            } else if counted >= allowance.requests {
                is_full = true;
            } else {
                let (estimate, margin) = window.others(now, interval);
                // The cast keeps within the bounds of the type.
                *before = counted.saturating_add(estimate as u64);
                is_unknown |= counted as f64 + estimate + margin >= allowance.requests as f64;
            }
        }
        if is_full || is_unknown {
            let refused = Verdict {
                passes: false,
                before,
            };
            return if is_full {
                Judged::Known(refused)
            } else {
                Judged::Unknown
            };
        }
        for allowance in allowances {
            self.window(allowance.period, now).own += 1;
        }
        Judged::Known(Verdict {
            passes: true,
            before,
        })
    }

    /// Counts a request that passes although Redis cannot be asked. It is reported later.
    pub(super) fn count(&mut self, allowances: &[Allowance], now: &Now) {
        for allowance in allowances {
            self.window(allowance.period, now).own += 1;
        }
    }

    /// Begins a report of these periods, also of those with nothing to report.
    pub(super) fn report(&mut self, allowances: &[Allowance], now: &Now) -> Vec<Report> {
        let periods = allowances.iter().map(|allowance| allowance.period);
        periods
            .map(|period| self.window(period, now).report(period))
            .collect()
    }

    /// Begins a report of all requests that are not reported.
    pub(super) fn report_all(&mut self) -> Vec<Report> {
        let windows = Period::ALL.into_iter().zip(&mut self.windows);
        let unreported = windows.filter(|(_, window)| window.own > 0);
        unreported
            .map(|(period, window)| window.report(period))
            .collect()
    }

    /// Ends a report with the count in Redis. `taken` tells whether a further request of this node was counted there.
    pub(super) fn end(
        &mut self,
        report: Report,
        total: u64,
        taken: bool,
        steady: Duration,
        interval: Duration,
    ) {
        let window = &mut self.windows[report.period as usize];
        if window.begin == report.begin {
            window.end(report, total, u64::from(taken), steady, interval);
        } else {
            window.heard_at = Some(steady);
        }
    }

    /// Takes a report back that has failed. If only its answer was lost, its requests are counted twice; otherwise they
    /// would not be counted at all.
    pub(super) fn fail(&mut self, report: Report) {
        let window = &mut self.windows[report.period as usize];
        if window.begin == report.begin {
            window.sent = window.sent.saturating_sub(report.requests);
            window.own = window.own.saturating_add(report.requests);
        }
    }

    pub(super) fn has_unreported(&self) -> bool {
        self.windows
            .iter()
            .any(|window| window.own > 0 || window.sent > 0)
    }

    /// Forgets unreported requests of windows that are over: nobody asks for their counts.
    pub(super) fn drop_over(&mut self, wall: Duration) {
        for (period, window) in Period::ALL.into_iter().zip(&mut self.windows) {
            let end = window.begin * period.unit() + period.longest();
            if end + SKEW < wall.as_secs() {
                window.own = 0;
            }
        }
    }

    /// Returns the current window of a period; begins it if it is a new one.
    fn window(&mut self, period: Period, now: &Now) -> &mut Window {
        let window = &mut self.windows[period as usize];
        let begin = now.moment.window(period);
        let is_ahead =
            window.begin > begin && window.begin * period.unit() <= now.moment.now + SKEW;
        if window.begin != begin && !is_ahead {
            let elapsed = now
                .wall
                .saturating_sub(Duration::from_secs(begin * period.unit()));
            // All nodes begin with zero, so that nothing has to be asked for if Redis has answered lately.
            *window = Window {
                begin,
                known_at: now.steady.saturating_sub(elapsed),
                heard_at: window.heard_at,
                rate: window.peak.max(window.rate),
                ..Window::default()
            };
        }
        window
    }
}

impl Window {
    /// The requests that are known: those in Redis and those of this node.
    fn counted(&self) -> u64 {
        self.shared
            .saturating_add(self.sent)
            .saturating_add(self.own)
    }

    /// Whether Redis must be asked before a request is judged. While it is being asked, the former answer may be twice
    /// as old.
    fn is_stale(&self, now: &Now, interval: Duration) -> bool {
        let limit = if self.sent > 0 {
            interval.saturating_mul(2)
        } else {
            interval
        };
        self.heard_at
            .is_none_or(|heard| now.steady.saturating_sub(heard) > limit)
    }

    /// Estimates the requests of the other nodes that are not in `shared`; and the margin of the estimate.
    fn others(&self, now: &Now, interval: Duration) -> (f64, f64) {
        let in_interval = self.rate * interval.as_secs_f64();
        let since = now.steady.saturating_sub(self.known_at).as_secs_f64();
        let estimate = self.rate * since + in_interval / 2.0;
        let deviation = (estimate + in_interval).sqrt();
        (estimate, LAST + in_interval + 3.0 * deviation)
    }

    fn report(&mut self, period: Period) -> Report {
        let requests = std::mem::take(&mut self.own);
        self.sent = self.sent.saturating_add(requests);
        Report {
            period,
            begin: self.begin,
            requests,
            number: self.ended,
        }
    }

    fn end(
        &mut self,
        report: Report,
        total: u64,
        taken: u64,
        steady: Duration,
        interval: Duration,
    ) {
        self.sent = self.sent.saturating_sub(report.requests);
        let added = report.requests.saturating_add(taken);
        let expected = self.shared.saturating_add(added);
        // Answers to reports at the same time can be read in another order than Redis has given them, so that they tell
        // nothing about a loss.
        if report.number == self.ended {
            // A count that has become smaller was lost by Redis: another master, or a restart. Each node reports its own
            // part again, at most what is missing.
            let lost = expected.saturating_sub(total).min(self.reported);
            self.reported -= lost;
            self.own = self.own.saturating_add(lost);
            self.shared = total;
        } else {
            self.shared = self.shared.max(total);
        }
        self.ended = self.ended.wrapping_add(1);
        self.reported = self.reported.saturating_add(added);
        let others = total.saturating_sub(expected);
        let time = steady.saturating_sub(self.known_at).as_secs_f64();
        self.learn(others as f64, time, interval.as_secs_f64());
        self.known_at = steady;
        self.heard_at = Some(steady);
    }

    /// Takes a number of requests of the others in a time into the average rate. Times that are short next to the
    /// interval count less.
    fn learn(&mut self, others: f64, time: f64, interval: f64) {
        if time <= 0.0 {
            // Two answers at the same moment are one.
            self.rate += others / interval;
        } else {
            let weight = 1.0 - (-time / interval).exp();
            self.rate += (others / time - self.rate) * weight;
        }
        self.peak = self.peak.max(self.rate);
    }
}
