//! A simulation of ten nodes: however messages, clocks and nodes behave, at most the limit is let through.

use super::super::super::counters::Allowance;
use super::super::super::window::Period;
use super::world::{MS, Outcomes, SECOND, Scenario, World};

const NODES: usize = 10;

/// 20 seconds before a minute ends.
const BEGIN: u64 = 1_800_000_040 * SECOND;

fn calm(period: Period, limit: u64, load: f64) -> Scenario {
    let seconds = period.seconds() as f64;
    Scenario {
        seed: fastrand::u64(..),
        nodes: NODES,
        allowances: vec![Allowance {
            period,
            requests: limit,
        }],
        rate: limit as f64 / seconds * load,
        begin: BEGIN,
        length: 3 * SECOND,
        delay: (50, 500),
        lost: 0.0,
        repeated: 0.0,
        suspensions: 0.0,
        losses: 0.0,
        failover: None,
    }
}

/// A network and nodes that fail as often as they can without being useless.
fn stormy(period: Period, limit: u64, load: f64) -> Scenario {
    Scenario {
        delay: (50, 60 * MS),
        lost: 0.05,
        repeated: 0.1,
        suspensions: 0.1,
        losses: 0.05,
        ..calm(period, limit, load)
    }
}

fn run(scenario: &Scenario) -> Outcomes {
    let outcomes = World::run(scenario.clone());
    for allowance in &scenario.allowances {
        for windows in [&outcomes.by_lease, &outcomes.by_time] {
            let own = windows.iter().filter(|(key, _)| key.0 == allowance.period);
            for (window, passed) in own {
                let limit = allowance.requests;
                assert!(*passed <= limit, "{passed} in {window:?}: {scenario:?}");
            }
        }
    }
    outcomes
}

/// The loads as multiples of the limit, and the limits.
const LOADS: [f64; 3] = [1.0, 3.0, 10.0];
const LIMITS: [u64; 3] = [10, 100, 1000];

#[test]
fn a_limit_is_used_up_and_no_more_in_calm_weather() {
    for load in LOADS {
        for limit in LIMITS {
            let scenario = calm(Period::Second, limit, load);
            let outcomes = run(&scenario);
            let bound = (NODES as u64).max(limit / 50);
            let context = format!("{outcomes:?} {scenario:?}");
            assert!(outcomes.hasty <= 100 * MS, "{context}");
            assert!(outcomes.unused <= bound, "{context}");
            assert!(outcomes.longest_unused <= 100 * MS, "{context}");
            // The first window has the time in which Redis grants nothing, the last one is not whole.
            let whole = outcomes.by_time.values().nth(1).copied().unwrap_or(0);
            if load >= 3.0 {
                assert_eq!(whole, limit, "{context}");
            }
        }
    }
}

#[test]
fn a_limit_of_a_hundred_thousand_a_minute_holds_and_is_used_up() {
    let mut scenario = calm(Period::Minute, 100_000, 10.0);
    scenario.length = 21 * SECOND;
    let outcomes = run(&scenario);
    let passed = outcomes.by_time.values().next().copied();
    assert_eq!(passed, Some(100_000), "{outcomes:?} {scenario:?}");
    assert!(outcomes.hasty <= 100 * MS, "{outcomes:?}");
    assert!(outcomes.unused <= 2000, "{outcomes:?}");
    assert!(outcomes.longest_unused <= 100 * MS, "{outcomes:?}");
    let share = outcomes.waited as f64 / (outcomes.passed + outcomes.refused) as f64;
    assert!(share < 0.05, "{share} of the requests waited: {outcomes:?}");
}

#[test]
fn a_limit_holds_in_stormy_weather() {
    let mut passed = 0;
    for load in LOADS {
        for limit in LIMITS {
            for _ in 0..4 {
                passed += run(&stormy(Period::Second, limit, load)).passed;
            }
        }
    }
    assert!(passed > 10_000, "{passed}");
}

#[test]
fn two_limits_hold_at_once() {
    let mut scenario = stormy(Period::Minute, 600, 10.0);
    scenario.allowances.insert(
        0,
        Allowance {
            period: Period::Second,
            requests: 30,
        },
    );
    scenario.length = 25 * SECOND;
    let outcomes = run(&scenario);
    assert!(outcomes.passed > 300, "{outcomes:?}");
}

/// The limit is used up at about the time at which the master changes, so that whatever the new master grants in
/// ignorance is too much.
#[test]
fn a_limit_holds_when_the_master_changes() {
    for limit in [10, 100, 1000] {
        for behind in [0, 50 * MS, 400 * MS] {
            for clock in [-300_000, 0, 300_000] {
                for load in [60.0, 200.0] {
                    let mut scenario = calm(Period::Minute, limit, load);
                    scenario.delay = (50, 5 * MS);
                    scenario.length = 5 * SECOND;
                    let time = fastrand::u64(600 * MS..2500 * MS);
                    scenario.failover = Some((time, behind, clock));
                    run(&scenario);
                }
            }
        }
    }
}
