//! Sliding windows: the sliding window counter, which Cloudflare made known. The requests of the last minute, say, are
//! estimated from two counters: those of the current minute, and those of the previous one in proportion to the part of it
//! that is less than a minute ago.
//!
//! The estimate is exact if the requests of the previous window came evenly. Its error is at most the number of those
//! requests: if all of them came at the end of that window, then up to twice the limit passes in a time as long as a window,
//! but never more than the limit at once; if all came at its beginning, requests are refused that a log of all requests
//! would let pass. A log would need memory for each request.
//!
//! Both counters are those of fixed windows, so that a plugin that changes from one to the other keeps its counts.

use super::counter::Recent;
use super::counters::{Allowance, Counters, Identity, Verdict};
use super::window::{Moment, Period};
use smallvec::SmallVec;
use std::time::Duration;

impl Counters {
    /// Judges a request by windows that end now, and counts it if it passes. `now` is the time since 1970. The allowances
    /// are ordered by period, the shortest first.
    pub(super) fn judge_sliding(
        &self,
        identity: Identity,
        allowances: &[Allowance],
        now: Duration,
    ) -> (Verdict, Moment) {
        let moment = self.moment(now.as_secs()).sliding();
        let carried = |allowance: &Allowance| {
            let recent = self.recent(identity, allowance.period, &moment);
            recent.map_or(0, |recent| in_window(recent, allowance.period, now))
        };
        let carried: SmallVec<[u64; Period::COUNT]> = allowances.iter().map(carried).collect();
        let rest = |(allowance, carried): (&Allowance, &u64)| Allowance {
            period: allowance.period,
            requests: allowance.requests.saturating_sub(*carried),
        };
        let rest: SmallVec<[Allowance; Period::COUNT]> =
            allowances.iter().zip(&carried).map(rest).collect();
        let mut verdict = self.judge(identity, &rest, &moment);
        for (before, carried) in verdict.before.iter_mut().zip(&carried) {
            *before = before.saturating_add(*carried);
        }
        (verdict, moment)
    }
}

/// Returns how many of the requests of the previous window are in the window that ends now, rounded up.
/// The current window may have begun by the clock reading of another request just now; then all of them are. A window of
/// a month is 30 days long here, so that nothing is left of the previous month on the 31st.
fn in_window(recent: Recent, period: Period, now: Duration) -> u64 {
    let length = Duration::from_secs(period.seconds());
    let elapsed = now.saturating_sub(Duration::from_secs(recent.begin));
    let rest = length.saturating_sub(elapsed).as_nanos();
    let part = (u128::from(recent.previous) * rest).div_ceil(length.as_nanos());
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::def;
    use super::*;
    use crate::testing::case;
    use fastrand::Rng;
    use plugin::testing::Case;
    use serde_json::json;

    /// The clock of the node stands at 20 seconds of a minute.
    fn sliding(limits: serde_json::Value) -> Case {
        let mut config = limits;
        config["window_type"] = "sliding".into();
        case(def(), config)
    }

    fn passing(case: &Case, requests: u32) -> u32 {
        let run = |_: &u32| case.request("GET /").run_now().client.status == 200;
        (0..requests).filter(run).count() as u32
    }

    fn advance(case: &Case, milliseconds: u64) {
        case.node()
            .clock
            .advance(Duration::from_millis(milliseconds));
    }

    #[test]
    fn requests_leave_a_window_evenly() {
        let case = sliding(json!({"minute": 60}));
        assert_eq!(passing(&case, 100), 60);
        // The next minute begins: all 60 requests may be less than a minute ago.
        advance(&case, 40_000);
        assert_eq!(passing(&case, 10), 0);
        for _ in 0..10 {
            advance(&case, 5000);
            assert_eq!(passing(&case, 100), 5);
        }
        // Two minutes later, nothing of it is left.
        advance(&case, 130_000);
        assert_eq!(passing(&case, 100), 60);
    }

    /// The same node after a change of the configuration.
    fn changed(case: &Case, mut limits: serde_json::Value, window_type: &str) -> Case {
        limits["window_type"] = window_type.into();
        Case::new(def(), limits).on(std::sync::Arc::clone(case.node()))
    }

    #[test]
    fn a_change_of_the_window_type_keeps_the_counts() {
        for period in ["second", "minute", "hour", "day", "month", "year"] {
            let limits = json!({period: 10});
            let fixed = case(def(), limits.clone());
            assert_eq!(passing(&fixed, 4), 4);
            let sliding = changed(&fixed, limits.clone(), "sliding");
            assert_eq!(passing(&sliding, 3), 3);
            let fixed = changed(&fixed, limits.clone(), "fixed");
            assert_eq!(passing(&fixed, 10), 3, "{period}");
            let sliding = changed(&fixed, limits, "sliding");
            assert_eq!(passing(&sliding, 10), 0, "{period}");
        }
    }

    #[test]
    fn sliding_windows_begin_with_what_fixed_ones_have_counted_before() {
        let limits = json!({"minute": 60});
        let fixed = case(def(), limits.clone());
        assert_eq!(passing(&fixed, 100), 60);
        advance(&fixed, 40_000 + 30_000);
        assert_eq!(passing(&fixed, 1), 1);
        // Half of the previous minute is in the window that ends now.
        let sliding = changed(&fixed, limits, "sliding");
        assert_eq!(passing(&sliding, 100), 29);
    }

    #[test]
    fn clients_that_share_counters_have_sliding_windows_too() {
        let counters = Counters::new(1);
        let allowances = [Allowance {
            period: Period::Minute,
            requests: 10,
        }];
        let begin = Duration::from_secs(1_800_000_000);
        let passes = |name: &[u8], after: u64| {
            let identifier = super::super::counters::Identifier::Text(name);
            let address = std::net::IpAddr::from([192, 0, 2, 1]);
            let identity = counters.identity(None, None, identifier, address);
            let now = begin + Duration::from_secs(after);
            let judge = |_: &u32| counters.judge_sliding(identity, &allowances, now).0.passes;
            (0..20).filter(judge).count()
        };
        assert_eq!(passes(b"first", 0), 10);
        assert_eq!(passes(b"late", 100), 10);
        // The counter of its own, for which there is room now, continues from the shared one.
        assert_eq!(counters.sweep(begin.as_secs() + 123), 1);
        assert_eq!(passes(b"late", 126), 1);
        assert_eq!((passes(b"late", 150), counters.used()), (4, 1));
    }

    #[test]
    fn a_worker_whose_clock_is_late_lets_nothing_more_pass() {
        let counters = Counters::new(10);
        let identifier = super::super::counters::Identifier::Text(b"a");
        let address = std::net::IpAddr::from([192, 0, 2, 1]);
        let identity = counters.identity(None, None, identifier, address);
        let allowances = [Allowance {
            period: Period::Minute,
            requests: 10,
        }];
        let passes = |milliseconds| {
            let now = Duration::from_secs(1_800_000_000) + Duration::from_millis(milliseconds);
            counters.judge_sliding(identity, &allowances, now).0.passes
        };
        assert!((0..10).all(|_| passes(0)));
        // Another worker has begun the next minute.
        assert!(passes(66_000));
        assert!(!passes(59_999));
    }

    #[test]
    fn headers_show_the_estimate() {
        let case = sliding(json!({"minute": 10}));
        assert_eq!(passing(&case, 10), 10);
        advance(&case, 70_000);
        let outcome = case.request("GET /").run_now();
        let header = |name| outcome.client.header(name);
        assert_eq!(header("X-RateLimit-Remaining-Minute"), Some("4"));
        assert_eq!(header("RateLimit-Reset"), Some("30"));
    }

    #[test]
    fn all_periods_slide() {
        for (name, seconds) in [
            ("second", 1),
            ("hour", 3600),
            ("day", 86_400),
            ("month", 30 * 86_400),
        ] {
            let case = sliding(json!({name: 100}));
            assert_eq!(passing(&case, 150), 100, "{name}");
            advance(&case, 2000 * seconds);
            assert_eq!(passing(&case, 150), 100, "{name}");
        }
    }

    #[test]
    fn an_even_flow_gets_its_limit_and_any_flow_at_most_twice_as_much() {
        let mut random = Rng::with_seed(7);
        for load in [0.5, 1.0, 3.0, 10.0] {
            let counters = Counters::new(10);
            let identifier = super::super::counters::Identifier::Text(b"a");
            let address = std::net::IpAddr::from([192, 0, 2, 1]);
            let identity = counters.identity(None, None, identifier, address);
            let allowances = [Allowance {
                period: Period::Second,
                requests: 100,
            }];
            let mut now = Duration::from_secs(1_800_000_000);
            let mut passed: Vec<Duration> = Vec::new();
            for _ in 0..3000 {
                let gap = -random.f64().ln() / (100.0 * load);
                now += Duration::from_secs_f64(gap);
                if counters.judge_sliding(identity, &allowances, now).0.passes {
                    passed.push(now);
                }
            }
            let second = Duration::from_secs(1);
            let within = |end: &Duration| {
                let recent = |one: &&Duration| **one + second > *end && *one <= end;
                passed.iter().filter(recent).count()
            };
            let most = passed.iter().map(within).max();
            assert!(most <= Some(200), "{most:?} at {load}");
            let seconds = (now - Duration::from_secs(1_800_000_000)).as_secs_f64();
            let rate = passed.len() as f64 / seconds;
            let expected = 100.0 * f64::min(load, 1.0);
            assert!(
                (expected * 0.85..=expected * 1.15).contains(&rate),
                "{rate} at {load}"
            );
        }
    }

    #[test]
    fn a_counter_is_removed_when_its_window_is_out_of_all_sliding_ones() {
        let counters = Counters::new(10);
        let identifier = super::super::counters::Identifier::Text(b"a");
        let address = std::net::IpAddr::from([192, 0, 2, 1]);
        let identity = counters.identity(None, None, identifier, address);
        let allowances = [Allowance {
            period: Period::Minute,
            requests: 100,
        }];
        let begin = Duration::from_secs(1_800_000_000);
        counters.judge_sliding(identity, &allowances, begin);
        let next = begin + Duration::from_secs(60);
        assert_eq!(counters.sweep(next.as_secs() + 40), 0, "it is still needed");
        counters.judge_sliding(identity, &allowances, next);
        assert_eq!(counters.sweep(next.as_secs() + 100), 0);
        assert_eq!(counters.sweep(next.as_secs() + 123), 1);
    }
}
