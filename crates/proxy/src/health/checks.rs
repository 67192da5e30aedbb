//! The `healthchecks` of an upstream, compiled: which outcome counts as a success or a failure.

use super::state::HealthEvent;
use model::entities::{
    ActiveChecks, CheckType, Healthchecks, HealthyChecks, PassiveChecks, UnhealthyChecks,
};
use std::time::Duration;

/// The outcome of a request or a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A response with this status, or 0 for an invalid response.
    Status(u16),
    /// A connection was established, and this type of probe needs nothing else.
    Connected,
    /// Connecting, TLS, sending or receiving failed.
    TcpFailure,
    Timeout,
}

/// Number of consecutive events that change the state, and the statuses that count as healthy and unhealthy.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    successes: u8,
    http_failures: u8,
    tcp_failures: u8,
    timeouts: u8,
    healthy: StatusSet,
    unhealthy: StatusSet,
}

/// The health checks of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Checks {
    pub passive: Limits,
    pub active: Limits,
    /// Interval between probes of healthy addresses. `None` if they are not probed.
    pub healthy_interval: Option<Duration>,
    pub unhealthy_interval: Option<Duration>,
    /// Timeout of each step of a probe.
    pub timeout: Duration,
    /// Maximum number of concurrent probes.
    pub concurrency: usize,
    pub kind: CheckType,
    /// Percentage of the weight that must be exceeded for the upstream to be usable.
    pub threshold: f64,
}

/// A set of HTTP statuses below 1000.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatusSet(Box<[u64]>);

impl StatusSet {
    pub fn contains(&self, status: u16) -> bool {
        let word = self.0.get(usize::from(status / 64));
        word.is_some_and(|word| word >> (status % 64) & 1 == 1)
    }
}

impl FromIterator<u16> for StatusSet {
    fn from_iter<I: IntoIterator<Item = u16>>(statuses: I) -> Self {
        let mut words = vec![0; 1000_usize.div_ceil(64)];
        for status in statuses {
            if let Some(word) = words.get_mut(usize::from(status / 64)) {
                *word |= 1_u64 << (status % 64);
            }
        }
        Self(words.into())
    }
}

impl Limits {
    fn new(healthy: &HealthyChecks, unhealthy: &UnhealthyChecks) -> Self {
        Self {
            successes: healthy.successes,
            http_failures: unhealthy.http_failures,
            tcp_failures: unhealthy.tcp_failures,
            timeouts: unhealthy.timeouts,
            healthy: healthy.http_statuses.iter().copied().collect(),
            unhealthy: unhealthy.http_statuses.iter().copied().collect(),
        }
    }

    /// Returns the event that an outcome counts as, and its limit. Returns `None` if the outcome does not count.
    /// Source: lua-resty-healthcheck report_http_status(), report_tcp_failure(), report_timeout().
    pub fn judge(&self, outcome: Outcome) -> Option<(HealthEvent, u8)> {
        match outcome {
            Outcome::Status(status) if self.healthy.contains(status) => {
                Some((HealthEvent::Success, self.successes))
            }
            Outcome::Status(status) if status == 0 || self.unhealthy.contains(status) => {
                Some((HealthEvent::HttpFailure, self.http_failures))
            }
            Outcome::Status(_) => None,
            Outcome::Connected => Some((HealthEvent::Success, self.successes)),
            Outcome::TcpFailure => Some((HealthEvent::TcpFailure, self.tcp_failures)),
            Outcome::Timeout => Some((HealthEvent::Timeout, self.timeouts)),
        }
    }
}

impl Checks {
    /// Compiles the checks, or returns `None` if none are enabled.
    /// Source: kong/runloop/balancer/healthcheckers.lua is_upstream_using_healthcheck().
    pub fn new(given: &Healthchecks) -> Option<Self> {
        let Healthchecks {
            active,
            passive,
            threshold,
        } = given;
        is_used(active, passive).then(|| Self {
            passive: Limits::new(&passive.healthy, &passive.unhealthy),
            active: Limits::new(&active.healthy, &active.unhealthy),
            healthy_interval: interval(active.healthy.interval),
            unhealthy_interval: interval(active.unhealthy.interval),
            timeout: seconds(active.timeout),
            concurrency: usize::try_from(active.concurrency)
                .unwrap_or(usize::MAX)
                .max(1),
            kind: active.kind,
            threshold: *threshold,
        })
    }

    /// Whether addresses are probed.
    pub fn is_active(&self) -> bool {
        self.healthy_interval.is_some() || self.unhealthy_interval.is_some()
    }
}

fn is_used(active: &ActiveChecks, passive: &PassiveChecks) -> bool {
    let UnhealthyChecks {
        tcp_failures,
        timeouts,
        http_failures,
        ..
    } = passive.unhealthy;
    active.healthy.interval > 0.0
        || active.unhealthy.interval > 0.0
        || [tcp_failures, timeouts, http_failures] != [0; 3]
}

fn interval(given: f64) -> Option<Duration> {
    Some(seconds(given)).filter(|interval| !interval.is_zero())
}

fn seconds(given: f64) -> Duration {
    Duration::try_from_secs_f64(given).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(change: impl FnOnce(&mut Healthchecks)) -> Option<Checks> {
        let mut given = Healthchecks::default();
        change(&mut given);
        Checks::new(&given)
    }

    #[test]
    fn a_checker_exists_only_where_something_can_make_an_address_unhealthy() {
        assert_eq!(checks(|_| ()), None);
        assert_eq!(checks(|given| given.passive.healthy.successes = 1), None);
        assert_eq!(
            checks(|given| given.active.unhealthy.http_failures = 1),
            None
        );
        let changes: [fn(&mut Healthchecks); 5] = [
            |given| given.active.healthy.interval = 0.5,
            |given| given.active.unhealthy.interval = 1.0,
            |given| given.passive.unhealthy.tcp_failures = 1,
            |given| given.passive.unhealthy.timeouts = 1,
            |given| given.passive.unhealthy.http_failures = 1,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let made = checks(change).unwrap_or_else(|| panic!("change {number}"));
            assert_eq!(made.is_active(), number < 2, "change {number}");
        }
    }

    #[test]
    fn outcomes_are_counted_by_kind_each_up_to_its_own_limit() {
        let made = checks(|given| {
            given.passive.healthy.successes = 1;
            given.passive.unhealthy.http_failures = 2;
            given.passive.unhealthy.tcp_failures = 3;
            given.passive.unhealthy.timeouts = 4;
            given.active.healthy.successes = 5;
            given.active.unhealthy.http_failures = 6;
        });
        let Checks {
            passive, active, ..
        } = made.unwrap();
        for (outcome, expected) in [
            (Outcome::Status(200), Some((HealthEvent::Success, 1))),
            (Outcome::Status(308), Some((HealthEvent::Success, 1))),
            (Outcome::Status(429), Some((HealthEvent::HttpFailure, 2))),
            (Outcome::Status(500), Some((HealthEvent::HttpFailure, 2))),
            (Outcome::Status(0), Some((HealthEvent::HttpFailure, 2))),
            // These statuses are in neither list.
            (Outcome::Status(404), None),
            (Outcome::Status(502), None),
            (Outcome::Status(999), None),
            (Outcome::Status(u16::MAX), None),
            (Outcome::Connected, Some((HealthEvent::Success, 1))),
            (Outcome::TcpFailure, Some((HealthEvent::TcpFailure, 3))),
            (Outcome::Timeout, Some((HealthEvent::Timeout, 4))),
        ] {
            assert_eq!(passive.judge(outcome), expected, "{outcome:?}");
        }
        assert_eq!(
            active.judge(Outcome::Status(302)),
            Some((HealthEvent::Success, 5))
        );
        assert_eq!(active.judge(Outcome::Status(201)), None);
        assert_eq!(
            active.judge(Outcome::Status(404)),
            Some((HealthEvent::HttpFailure, 6))
        );
    }

    #[test]
    fn a_status_in_both_lists_is_a_success() {
        let made = checks(|given| {
            given.passive.unhealthy.http_failures = 1;
            given.passive.healthy.http_statuses = vec![500];
        });
        let passive = made.unwrap().passive;
        assert_eq!(
            passive.judge(Outcome::Status(500)),
            Some((HealthEvent::Success, 0))
        );
    }
}
