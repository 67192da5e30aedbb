//! Sliding windows: the sliding window counter, which Cloudflare made known. The requests of the last minute, say, are
//! estimated from two counters: those of the current minute, and those of the previous one in proportion to the part of it
//! that is less than a minute ago.
//!
//! The estimate is exact if the requests of the previous window came evenly. Its error is at most the number of those
//! requests: if all of them came at the end of that window, then up to twice the limit passes in a time as long as a window,
//! but never more than the limit at once; if all came at its beginning, requests are refused that a log of all requests
//! would let pass. A log would need memory for each request.

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
        let moment = Moment::sliding(now.as_secs());
        let carried = |allowance: &Allowance| {
            let period = allowance.period;
            let previous = self.counted(identity, period, &moment.previous(period));
            in_window(previous, period, now)
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
fn in_window(previous: u64, period: Period, now: Duration) -> u64 {
    let length = u128::from(period.seconds()) * 1_000_000_000;
    let rest = length - now.as_nanos() % length;
    let part = (u128::from(previous) * rest).div_ceil(length);
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
    fn counters_of_both_windows_are_removed_later() {
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
        counters.judge_sliding(identity, &allowances, begin + Duration::from_secs(60));
        assert_eq!(
            counters.sweep(1_800_000_000 + 63 + 30),
            0,
            "both windows are needed"
        );
        assert_eq!(counters.sweep(1_800_000_000 + 123), 1);
        assert_eq!(counters.sweep(1_800_000_000 + 183), 1);
    }
}
