//! Tests of the counters of a node, alone and with many workers at once.

use super::counters::{Allowance, Counters, Identifier, Identity, Verdict};
use super::window::Period;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use uuid::Uuid;

const NOW: u64 = 1_800_000_000;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn allowance(period: Period, requests: u64) -> Allowance {
    Allowance { period, requests }
}

fn identity(counters: &Counters, name: &str) -> Identity {
    counters.identity(None, None, Identifier::Text(name.as_bytes()), CLIENT)
}

fn judge(counters: &Counters, name: &str, allowances: &[Allowance], now: u64) -> Verdict {
    counters.judge(identity(counters, name), allowances, &counters.moment(now))
}

/// Ends the loop of another thread, also if an assertion fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The number of requests that pass if eight workers make 4000 requests each.
fn passed(
    counters: &Counters,
    allowances: &[Allowance],
    now: impl Fn(usize) -> u64 + Sync,
) -> usize {
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in 0..4000 {
                    if judge(counters, "a", allowances, now(number)).passes {
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    passed.into_inner()
}

#[test]
fn a_limit_of_n_lets_n_pass_whatever_the_number_of_workers() {
    for limit in [1, 7, 1000, 31_999, 32_000] {
        let counters = Counters::new(100);
        let allowances = [allowance(Period::Hour, limit)];
        assert_eq!(passed(&counters, &allowances, |_| NOW) as u64, limit);
    }
}

#[test]
fn several_limits_let_exactly_the_lowest_pass_whichever_it_is() {
    for lowest in 0..3 {
        let counters = Counters::new(100);
        let mut allowances = [
            allowance(Period::Minute, 20_000),
            allowance(Period::Day, 20_000),
            allowance(Period::Year, 20_000),
        ];
        allowances[lowest].requests = 500;
        assert_eq!(passed(&counters, &allowances, |_| NOW), 500);
        let verdict = judge(&counters, "a", &allowances, NOW);
        assert_eq!(
            verdict.before[..3],
            [500; 3],
            "refused requests count nowhere"
        );
    }
}

#[test]
fn a_new_window_under_load_lets_its_limit_pass() {
    let counters = Counters::new(100);
    let allowances = [allowance(Period::Second, 10), allowance(Period::Hour, 15)];
    // The workers reach the next second at different times, as with clocks that are read apart.
    let passed = passed(&counters, &allowances, |number| NOW + number as u64 / 2000);
    assert_eq!(passed, 15);
}

#[test]
fn counters_that_are_removed_under_load_forget_no_request() {
    let counters = Counters::new(100);
    let allowances = [allowance(Period::Minute, 300)];
    let clock = AtomicU64::new(NOW);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                counters.sweep(clock.load(Ordering::Relaxed));
            }
        });
        let _guard = SetOnDrop(&is_done);
        for _ in 0..30 {
            // The old counter is over now: the sweep removes it while the workers look for it.
            let now = clock.fetch_add(3600, Ordering::Relaxed) + 3600;
            assert_eq!(passed(&counters, &allowances, |_| now), 300);
        }
    });
    assert_eq!(counters.sweep(clock.into_inner() + 3600), 1);
    assert_eq!(counters.used(), 0);
}

#[test]
fn a_refused_request_counts_in_no_window() {
    let counters = Counters::new(100);
    let allowances = [allowance(Period::Minute, 5), allowance(Period::Hour, 1)];
    assert!(judge(&counters, "a", &allowances, NOW).passes);
    for _ in 0..10 {
        let refused = judge(&counters, "a", &allowances, NOW);
        assert_eq!(
            (refused.passes, refused.before[0], refused.before[1]),
            (false, 1, 1)
        );
    }
}

#[test]
fn a_changed_limit_keeps_the_counts() {
    let counters = Counters::new(100);
    for _ in 0..3 {
        assert!(judge(&counters, "a", &[allowance(Period::Hour, 5)], NOW).passes);
    }
    assert!(!judge(&counters, "a", &[allowance(Period::Hour, 3)], NOW).passes);
    let verdict = judge(&counters, "a", &[allowance(Period::Hour, 4)], NOW);
    assert_eq!((verdict.passes, verdict.before[0]), (true, 3));
}

#[test]
fn keys_differ_by_route_service_identifier_and_period() {
    let counters = Counters::new(100);
    let [one, two] = [Uuid::from_u128(1), Uuid::from_u128(2)];
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let identities = [
        counters.identity(None, None, Identifier::Text(b"a"), CLIENT),
        counters.identity(Some(one), None, Identifier::Text(b"a"), CLIENT),
        counters.identity(None, Some(one), Identifier::Text(b"a"), CLIENT),
        counters.identity(Some(two), None, Identifier::Text(b"a"), CLIENT),
        counters.identity(None, None, Identifier::Text(b"b"), CLIENT),
        counters.identity(None, None, Identifier::Text(b""), CLIENT),
        counters.identity(None, None, Identifier::Text(b"127.0.0.1"), CLIENT),
        counters.identity(None, None, Identifier::Address(address), CLIENT),
        counters.identity(None, None, Identifier::Id(one), CLIENT),
    ];
    for identity in identities {
        let moment = counters.moment(NOW);
        let minute = counters.judge(identity, &[allowance(Period::Minute, 1)], &moment);
        let hour = counters.judge(identity, &[allowance(Period::Hour, 1)], &moment);
        assert!(minute.passes && hour.passes, "{identity:?}");
    }
}

#[test]
fn the_sweep_removes_windows_that_are_over_and_keeps_the_others() {
    let counters = Counters::new(100);
    for name in ["a", "b"] {
        let allowances = [allowance(Period::Second, 1), allowance(Period::Day, 1)];
        assert!(judge(&counters, name, &allowances, NOW).passes);
    }
    assert_eq!(counters.sweep(NOW), 0);
    assert_eq!(counters.sweep(NOW + 60), 2);
    assert_eq!(counters.used(), 2);
    assert!(!judge(&counters, "a", &[allowance(Period::Day, 1)], NOW + 60).passes);
    assert_eq!(counters.sweep(NOW + 2 * 86_400), 2);
    assert_eq!(counters.used(), 0);
}

#[test]
fn a_flood_of_keys_resets_no_counter() {
    let counters = Counters::new(10);
    let allowances = [allowance(Period::Hour, 3)];
    for _ in 0..3 {
        assert!(judge(&counters, "victim", &allowances, NOW).passes);
    }
    for number in 0..1000 {
        judge(&counters, &number.to_string(), &allowances, NOW);
    }
    assert_eq!(counters.used(), 10);
    assert!(!judge(&counters, "victim", &allowances, NOW).passes);
}

#[test]
fn keys_beyond_the_maximum_are_limited_too() {
    let counters = Counters::new(1);
    let allowances = [allowance(Period::Hour, 3)];
    assert!(judge(&counters, "first", &allowances, NOW).passes);
    let passes = |now| judge(&counters, "late", &allowances, now).passes;
    assert_eq!([(); 4].map(|()| passes(NOW)), [true, true, true, false]);
    // The counter of its own, which the key gets when there is room, continues from the shared one.
    counters.sweep(NOW + 3 * 3600);
    let later = NOW + 3 * 3600;
    assert!(passes(later));
}

#[test]
fn a_key_that_gets_a_counter_of_its_own_keeps_its_count() {
    let counters = Counters::new(1);
    let second = [allowance(Period::Second, 3)];
    let day = [allowance(Period::Day, 2)];
    assert!(judge(&counters, "first", &second, NOW).passes);
    assert!(judge(&counters, "late", &day, NOW).passes);
    assert_eq!(counters.sweep(NOW + 60), 1);
    assert!(judge(&counters, "late", &day, NOW + 60).passes);
    assert_eq!(counters.used(), 1);
    assert!(!judge(&counters, "late", &day, NOW + 60).passes);
}

#[test]
fn strangers_cannot_use_up_the_limit_of_a_consumer() {
    let counters = Counters::new(1);
    let allowances = [allowance(Period::Year, 1)];
    // Enough networks that one shares each counter.
    for number in 0..2_000_000_u32 {
        judge_address(&counters, Ipv4Addr::from(number << 8), &allowances);
    }
    let consumer = Identifier::Id(Uuid::from_u128(1));
    let consumer = counters.identity(None, None, consumer, CLIENT);
    let passes = || {
        let verdict = counters.judge(consumer, &allowances, &counters.moment(NOW));
        verdict.passes
    };
    assert_eq!((passes(), passes()), (true, false));
    assert_eq!(counters.used(), 1);
    assert_eq!(counters.sweep(NOW + 400 * 86_400), 2);
    assert!(counters.is_empty());
}

fn judge_address(
    counters: &Counters,
    address: impl Into<IpAddr>,
    allowances: &[Allowance],
) -> bool {
    let address = address.into();
    let identity = counters.identity(None, None, Identifier::Address(address), address);
    let verdict = counters.judge(identity, allowances, &counters.moment(NOW));
    verdict.passes
}

#[test]
fn a_flood_from_one_network_uses_up_no_limit_of_another() {
    let allowances = [allowance(Period::Day, 2)];
    let networks: [fn(u32) -> IpAddr; 2] = [
        |number| IpAddr::from([192, 0, 2, number as u8]),
        |number| {
            IpAddr::from(Ipv6Addr::from(
                (0x2001_0db8 << 96) + (u128::from(number) << 64),
            ))
        },
    ];
    for of_flood in networks {
        let counters = Counters::new(10);
        let flood =
            (0..60_000).filter(|&number| judge_address(&counters, of_flood(number), &allowances));
        // The counters of their own, each with two requests at most, and one that the others share.
        assert!(flood.count() <= 2 * 10 + 2);
        let passes = |last: u8| {
            let other = [
                IpAddr::from([198, 51, last, 1]),
                IpAddr::from([0x2001, 0xdb8, 1, 0, 0, 0, 0, last.into()]),
            ];
            let other = other[usize::from(last % 2)];
            [(); 3].map(|()| judge_address(&counters, other, &allowances)) == [true, true, false]
        };
        // One in 65,536 networks has the counter of the flood.
        assert!((0..2).filter(|&last| passes(last)).count() > 0);
    }
}

#[test]
fn texts_use_up_no_counters_of_addresses() {
    let counters = Counters::new(10);
    let allowances = [allowance(Period::Day, 2)];
    for number in 0..1000 {
        judge(&counters, &number.to_string(), &allowances, NOW);
    }
    for last in 0..10 {
        // All are in the network whose texts share counters.
        let address = IpAddr::from([127, 0, 0, last]);
        let passes = [(); 3].map(|()| judge_address(&counters, address, &allowances));
        assert_eq!(passes, [true, true, false], "{address}");
    }
    assert_eq!(counters.used(), 20);
}

#[test]
fn ids_that_are_alike_have_identities_of_their_own() {
    let counters = Counters::new(10);
    let ids: Vec<Uuid> = (0..128)
        .map(|bit| Uuid::from_u128(1 << bit))
        .chain((0..20).map(Uuid::from_u128))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut all = std::collections::HashSet::new();
    let mut lower = std::collections::HashSet::new();
    for id in &ids {
        for scope in [None, Some(ids[1]), Some(ids[2]), Some(ids[40])] {
            for (route, service) in [(scope, None), (None, scope)] {
                let identity = counters.identity(route, service, Identifier::Id(*id), CLIENT);
                all.insert(identity.hash());
                lower.insert(identity.hash() as u64);
            }
        }
    }
    // Both scopes are the same if there is none.
    assert_eq!(all.len(), ids.len() * 7);
    // The map chooses places by these bits, for which only few of the keys may be equal. Services are in the others.
    let most = ids.len() * 4;
    assert!(lower.len() > most * 9 / 10, "{} of {most}", lower.len());
}
