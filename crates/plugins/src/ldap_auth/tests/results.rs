//! Tests of the results that are kept.

use super::super::results::Results;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_result_lasts_for_its_time() {
    let results = Results::new().unwrap();
    let (good, bad) = (results.key(&[b"good"]), results.key(&[b"bad"]));
    assert_eq!(results.get(&good, at(0)), None);
    results.insert(good, true, at(0), TTL);
    results.insert(bad, false, at(0), TTL);
    for (seconds, wanted) in [(0, Some(true)), (59, Some(true)), (60, None)] {
        assert_eq!(results.get(&good, at(seconds)), wanted);
        assert_eq!(
            results.get(&bad, at(seconds)),
            wanted.map(|is_good| !is_good)
        );
    }
}

#[test]
fn the_newest_result_counts() {
    let results = Results::new().unwrap();
    let key = results.key(&[b"a"]);
    results.insert(key, true, at(0), TTL);
    results.insert(key, false, at(1), TTL);
    assert_eq!(results.get(&key, at(2)), Some(false));
    results.insert(key, true, at(3), TTL);
    assert_eq!(results.get(&key, at(62)), Some(true));
    results.insert(key, true, at(63), Duration::ZERO);
    assert_eq!(results.get(&key, at(64)), None);
}

#[test]
fn fields_do_not_run_into_each_other_and_keys_are_of_the_process() {
    let results = Results::new().unwrap();
    let fields: [&[&[u8]]; 5] = [
        &[b"ab", b"c"],
        &[b"a", b"bc"],
        &[b"abc"],
        &[b"abc", b""],
        &[b"", b"abc"],
    ];
    let mut keys: Vec<_> = fields.iter().map(|fields| results.key(fields)).collect();
    assert_eq!(keys[0], results.key(fields[0]));
    keys.push(Results::new().unwrap().key(fields[0]));
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 6);
}

#[test]
fn refused_credentials_push_out_only_each_other() {
    let results = Results::with_room(2, 3).unwrap();
    let key = |number: u64| results.key(&[&number.to_le_bytes()]);
    results.insert(key(0), true, at(0), TTL);
    for number in 1..1000 {
        results.insert(key(number), false, at(0), TTL);
    }
    assert_eq!(results.get(&key(0), at(1)), Some(true));
    let known = (1..1000).filter(|&number| results.get(&key(number), at(1)).is_some());
    assert_eq!(known.collect::<Vec<_>>(), [997, 998, 999]);
}

#[test]
fn a_result_that_came_again_keeps_its_new_time() {
    let results = Results::with_room(2, 2).unwrap();
    let key = |number: u64| results.key(&[&number.to_le_bytes()]);
    results.insert(key(1), true, at(0), TTL);
    results.insert(key(1), true, at(50), TTL);
    // The first entry of the list has ended, but not the result.
    results.insert(key(2), true, at(70), TTL);
    assert_eq!(results.get(&key(1), at(80)), Some(true));
    assert_eq!(results.get(&key(2), at(80)), Some(true));
}

#[tokio::test]
async fn equal_checks_at_the_same_time_are_one() {
    let results = Results::new().unwrap();
    let key = results.key(&[b"a"]);
    let (first, second) = (results.check(key), results.check(key));
    let other = results.check(results.key(&[b"b"]));
    assert!(std::ptr::eq(first.check(), second.check()));
    // A request that ends early leaves the check to the others.
    drop(first);
    assert_eq!(results.running_checks(), 2);
    let result = second.check().get_or_init(async || Ok(true)).await;
    assert_eq!(result, &Ok(true));
    drop((second, other));
    assert_eq!(results.running_checks(), 0);
}
