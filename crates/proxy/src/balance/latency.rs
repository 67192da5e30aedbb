//! Latency: compares two random targets and picks the one with the lower average response time, relative to its weight.
//! The average decays within seconds.
//! Source: kong/runloop/balancer/latency.lua.

use super::mix;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time after which the weight of a value has fallen to 1/e, in seconds.
const DECAY: f32 = 10.0;
/// Resolution of the time stored with the average. 2^32 ticks are more than a year.
const TICK: Duration = Duration::from_millis(10);
/// Number of random tries to find a usable target before all are checked in order.
const TRIES: u64 = 16;

/// Average response time in seconds and the time of its last change, packed into one atomic number, so that no lock is
/// needed.
#[derive(Debug, Default)]
pub(super) struct Average(AtomicU64);

impl Average {
    pub(super) fn starting_at(seconds: f32, now: Duration) -> Self {
        Self(AtomicU64::new(pack(seconds, ticks(now))))
    }

    /// Adds a response time. `now` is the time since the start of the process, as in all functions of this module.
    pub(super) fn add(&self, took: Duration, now: Duration) {
        let now = ticks(now);
        let update = |packed| {
            let (average, since) = unpack(packed);
            Some(pack(decay(average, since, took.as_secs_f32(), now), now))
        };
        // This fails only if the closure returns `None`.
        let _ = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    }

    /// Returns the average at the time `now`. Without responses it falls, so that a slow target is tried again.
    pub(super) fn now(&self, now: Duration) -> f32 {
        let (average, since) = unpack(self.0.load(Ordering::Relaxed));
        decay(average, since, 0.0, ticks(now))
    }

    /// Returns the average at its last change.
    pub(super) fn last(&self) -> f32 {
        unpack(self.0.load(Ordering::Relaxed)).0
    }
}

fn decay(average: f32, since: u32, value: f32, now: u32) -> f32 {
    // Another worker's clock may be a little ahead, so that `since` lies in the future.
    let ticks = now.wrapping_sub(since);
    let passed = if ticks > u32::MAX / 2 { 0 } else { ticks };
    let weight = (-(passed as f32 * TICK.as_secs_f32()) / DECAY).exp();
    average * weight + value * (1.0 - weight)
}

fn ticks(now: Duration) -> u32 {
    (now.as_millis() / TICK.as_millis()) as u32
}

fn pack(average: f32, since: u32) -> u64 {
    u64::from(average.to_bits()) << 32 | u64::from(since)
}

fn unpack(packed: u64) -> (f32, u32) {
    (f32::from_bits((packed >> 32) as u32), packed as u32)
}

/// Returns the better of two random usable targets. A lower `score` is better; it is `None` for unusable targets.
pub(super) fn pick(
    peers: usize,
    random: u64,
    score: impl Fn(usize) -> Option<f32>,
) -> Option<usize> {
    let first = find(peers, random, &score, None)?;
    let second = find(peers, mix::random(random), &score, Some(first.0));
    Some(match second {
        Some(second) if second.1 < first.1 => second.0,
        _ => first.0,
    })
}

fn find(
    peers: usize,
    random: u64,
    score: impl Fn(usize) -> Option<f32>,
    except: Option<usize>,
) -> Option<(usize, f32)> {
    let usable = |peer: usize| {
        let score = (Some(peer) != except).then(|| score(peer)).flatten();
        score.map(|score| (peer, score))
    };
    let at = |number: u64| ((u128::from(mix::random(number)) * peers as u128) >> 64) as usize;
    let random_ones = (0..TRIES).map(|tried| at(random.wrapping_add(tried)));
    let start = if peers == 0 { return None } else { at(random) };
    let all = (start..peers).chain(0..start);
    random_ones.chain(all).find_map(usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn an_average_forgets_within_the_decay() {
        let average = Average::starting_at(1.0, seconds(0));
        assert!((average.now(seconds(10)) - (-1_f32).exp()).abs() < 0.001);
        average.add(seconds(3), seconds(10));
        let expected = (-1_f32).exp() + 3.0 * (1.0 - (-1_f32).exp());
        assert!((average.last() - expected).abs() < 0.001, "{average:?}");
        assert!(average.now(seconds(100)) < 0.001);
    }

    #[test]
    fn a_clock_that_is_behind_changes_little() {
        let average = Average::starting_at(1.0, seconds(100));
        assert!((average.now(seconds(99)) - 1.0).abs() < 0.001);
    }

    #[test]
    fn the_faster_of_two_is_picked_and_the_slowest_of_all_never() {
        let scores = [0.3, 0.1, 0.2];
        let mut counts = [0; 3];
        for turn in 0..3000 {
            counts[pick(3, turn, |peer| Some(scores[peer])).unwrap()] += 1;
        }
        assert_eq!(counts[0], 0, "{counts:?}");
        assert!(counts[1] > counts[2] && counts[2] > 500, "{counts:?}");
    }

    #[test]
    fn equal_peers_are_picked_alike() {
        let mut counts = [0; 4];
        for turn in 0..4000 {
            counts[pick(4, turn, |_| Some(0.1)).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn peers_that_cannot_be_used_are_left_out() {
        for turn in 0..100 {
            assert_eq!(pick(1000, turn, |peer| (peer == 7).then_some(9.0)), Some(7));
        }
        assert_eq!(pick(3, 0, |_| None), None);
        assert_eq!(pick(0, 0, |_| Some(0.0)), None);
    }
}
