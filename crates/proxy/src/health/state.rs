//! The health state machine of one address, without clock or I/O.
//! Source: lua-resty-healthcheck 3.1.0, incr_counter() and set_target_status().

/// The health of an address. In an intermediate state, an address is treated as in the state that it had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthState {
    Healthy,
    /// Healthy, with some failures.
    MostlyHealthy,
    Unhealthy,
    /// Unhealthy, with some successes.
    MostlyUnhealthy,
}

/// An event that changes the health of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthEvent {
    Success,
    HttpFailure,
    TcpFailure,
    Timeout,
}

/// State and counters of one address. They fit into one atomic number ([`Health::pack`]), so that all workers and the
/// probes share them without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    state: HealthState,
    successes: u8,
    /// Counters of the failures, in the order of [`HealthEvent`].
    failures: [u8; 3],
}

impl Health {
    /// The initial health of an address.
    pub const NEW: Self = Self::forced(true);

    /// Returns a settled health with all counters at zero, as when an administrator sets it.
    pub const fn forced(healthy: bool) -> Self {
        Self {
            state: if healthy {
                HealthState::Healthy
            } else {
                HealthState::Unhealthy
            },
            successes: 0,
            failures: [0; 3],
        }
    }

    pub fn state(self) -> HealthState {
        self.state
    }

    /// Whether requests may be sent to the address.
    pub fn is_available(self) -> bool {
        matches!(
            self.state,
            HealthState::Healthy | HealthState::MostlyHealthy
        )
    }

    /// Returns the health after an event. `limit` successes, or `limit` failures of one type, change the state if no
    /// opposite event comes between them. An event with limit 0, or one that confirms a settled state, does not count.
    #[must_use]
    pub fn after(self, event: HealthEvent, limit: u8) -> Self {
        let settled = match event {
            HealthEvent::Success => HealthState::Healthy,
            _ => HealthState::Unhealthy,
        };
        if limit == 0 || self.state == settled {
            return self;
        }
        let mut next = self.counted(event);
        if next.count(event) >= limit {
            return Self::forced(event == HealthEvent::Success);
        }
        next.state = match self.state {
            HealthState::Healthy => HealthState::MostlyHealthy,
            HealthState::Unhealthy => HealthState::MostlyUnhealthy,
            middle => middle,
        };
        next
    }

    /// Counts an event. A success resets the failures, and a failure resets the successes.
    fn counted(self, event: HealthEvent) -> Self {
        let mut next = self;
        match event {
            HealthEvent::Success => {
                next.failures = [0; 3];
                next.successes = next.successes.saturating_add(1);
            }
            failure => {
                next.successes = 0;
                let count = &mut next.failures[failure as usize - 1];
                *count = count.saturating_add(1);
            }
        }
        next
    }

    fn count(self, event: HealthEvent) -> u8 {
        match event {
            HealthEvent::Success => self.successes,
            failure => self.failures[failure as usize - 1],
        }
    }

    pub fn pack(self) -> u64 {
        let [http, tcp, timeouts] = self.failures;
        u64::from_le_bytes([
            self.state as u8,
            self.successes,
            http,
            tcp,
            timeouts,
            0,
            0,
            0,
        ])
    }

    pub fn unpack(packed: u64) -> Self {
        let [state, successes, http, tcp, timeouts, ..] = packed.to_le_bytes();
        Self {
            state: match state {
                0 => HealthState::Healthy,
                1 => HealthState::MostlyHealthy,
                2 => HealthState::Unhealthy,
                _ => HealthState::MostlyUnhealthy,
            },
            successes,
            failures: [http, tcp, timeouts],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HealthEvent::{HttpFailure, Success, TcpFailure, Timeout};
    use HealthState::{Healthy, MostlyHealthy, MostlyUnhealthy, Unhealthy};

    /// Checks the states that an address goes through. Each event comes with its limit.
    fn check(start: Health, events: &[(HealthEvent, u8)], expected: &[HealthState]) {
        let mut health = start;
        let states = events.iter().map(|(event, limit)| {
            health = health.after(*event, *limit);
            assert_eq!(Health::unpack(health.pack()), health);
            health.state()
        });
        assert_eq!(states.collect::<Vec<_>>(), expected, "{events:?}");
    }

    #[test]
    fn failures_in_a_row_make_an_address_unhealthy() {
        for failure in [HttpFailure, TcpFailure, Timeout] {
            check(
                Health::NEW,
                &[(failure, 3), (failure, 3), (failure, 3)],
                &[MostlyHealthy, MostlyHealthy, Unhealthy],
            );
        }
        check(Health::NEW, &[(TcpFailure, 1)], &[Unhealthy]);
    }

    #[test]
    fn successes_in_a_row_make_it_healthy_again() {
        check(
            Health::forced(false),
            &[(Success, 2), (Success, 2)],
            &[MostlyUnhealthy, Healthy],
        );
    }

    #[test]
    fn kinds_of_failures_are_counted_apart() {
        check(
            Health::NEW,
            &[
                (HttpFailure, 2),
                (TcpFailure, 2),
                (Timeout, 2),
                (TcpFailure, 2),
            ],
            &[MostlyHealthy, MostlyHealthy, MostlyHealthy, Unhealthy],
        );
    }

    #[test]
    fn a_success_forgets_failures_and_a_failure_successes() {
        check(
            Health::NEW,
            &[
                (HttpFailure, 2),
                (Success, 2),
                (HttpFailure, 2),
                (HttpFailure, 2),
            ],
            &[MostlyHealthy, MostlyHealthy, MostlyHealthy, Unhealthy],
        );
        check(
            Health::forced(false),
            &[(Success, 2), (TcpFailure, 2), (Success, 2), (Success, 2)],
            &[MostlyUnhealthy, MostlyUnhealthy, MostlyUnhealthy, Healthy],
        );
    }

    #[test]
    fn enough_successes_settle_an_address_that_had_failures() {
        check(
            Health::NEW,
            &[(HttpFailure, 3), (Success, 2), (Success, 2), (Success, 2)],
            &[MostlyHealthy, MostlyHealthy, Healthy, Healthy],
        );
    }

    #[test]
    fn enough_failures_settle_an_address_that_had_successes() {
        check(
            Health::forced(false),
            &[(Success, 3), (TcpFailure, 2), (TcpFailure, 2)],
            &[MostlyUnhealthy, MostlyUnhealthy, Unhealthy],
        );
    }

    #[test]
    fn a_limit_of_zero_counts_nothing() {
        for event in [Success, HttpFailure, TcpFailure, Timeout] {
            for start in [Health::NEW, Health::forced(false)] {
                assert_eq!(start.after(event, 0), start);
            }
        }
        // Such an event does not reset other counters either.
        let failing = Health::NEW.after(HttpFailure, 2);
        assert_eq!(failing.after(Success, 0), failing);
    }

    #[test]
    fn events_that_confirm_a_settled_state_are_not_counted() {
        assert_eq!(Health::NEW.after(Success, 5), Health::NEW);
        let unhealthy = Health::forced(false);
        assert_eq!(unhealthy.after(Timeout, 5), unhealthy);
    }

    #[test]
    fn intermediate_states_are_treated_as_the_state_before_them() {
        let failing = Health::NEW.after(HttpFailure, 2);
        assert!(Health::NEW.is_available() && failing.is_available());
        let recovering = Health::forced(false).after(Success, 2);
        assert!(!Health::forced(false).is_available() && !recovering.is_available());
    }

    #[test]
    fn setting_the_health_resets_all_counters() {
        let failing = Health::NEW.after(HttpFailure, 2);
        assert_ne!(failing, Health::NEW);
        check(Health::forced(true), &[(HttpFailure, 2)], &[MostlyHealthy]);
    }

    #[test]
    fn limits_of_255_are_reached() {
        let mut health = Health::NEW;
        for _ in 0..254 {
            health = health.after(Timeout, 255);
        }
        assert_eq!(health.state(), MostlyHealthy);
        assert_eq!(health.after(Timeout, 255).state(), Unhealthy);
    }
}
