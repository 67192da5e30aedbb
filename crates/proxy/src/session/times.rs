//! Histograms of durations that a worker fills at the cost of a few instructions.

use super::counts::Counter;
use std::time::Duration;

/// Upper bounds of the buckets in nanoseconds, from 5 µs to 60 s. Each is at least twice the one before, so that there is
/// at most one between two powers of two.
const BOUNDS: [u64; 22] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];
const BUCKETS: usize = BOUNDS.len() + 1;

/// For each number of significant bits, the first bucket of the numbers with so many bits.
const FIRST: [u8; 65] = first_buckets();

const fn first_buckets() -> [u8; 65] {
    let mut first = [0; 65];
    let mut bits = 1;
    while bits < 65 {
        let smallest = 1_u64 << (bits - 1);
        let mut bucket = 0;
        while bucket < BOUNDS.len() && BOUNDS[bucket] < smallest {
            bucket += 1;
        }
        first[bits] = bucket as u8;
        bits += 1;
    }
    first
}

/// Durations that one thread counts and any thread reads.
#[derive(Debug)]
pub(super) struct Times {
    buckets: [Counter; BUCKETS],
    nanoseconds: Counter,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            nanoseconds: Counter::default(),
        }
    }
}

impl Times {
    #[inline]
    pub(super) fn observe(&self, took: Duration) {
        let took = took.as_secs() * 1_000_000_000 + u64::from(took.subsec_nanos());
        self.buckets[bucket(took)].add();
        self.nanoseconds.add_count(took);
    }
}

/// Returns the bucket of a duration in nanoseconds.
#[inline]
fn bucket(took: u64) -> usize {
    let first = usize::from(FIRST[(u64::BITS - took.leading_zeros()) as usize]);
    match BOUNDS.get(first) {
        Some(bound) if took > *bound => first + 1,
        _ => first,
    }
}

/// The sum of several [`Times`], for metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TimesTotal {
    /// Number of durations in each bucket.
    buckets: [u64; BUCKETS],
    nanoseconds: u64,
}

impl TimesTotal {
    pub(super) fn of<'t>(all: impl IntoIterator<Item = &'t Times>) -> Self {
        let mut total = Self::default();
        for times in all {
            for (sum, bucket) in total.buckets.iter_mut().zip(&times.buckets) {
                *sum += bucket.value();
            }
            total.nanoseconds += times.nanoseconds.value();
        }
        total
    }

    pub(super) fn bounds() -> [f64; BOUNDS.len()] {
        BOUNDS.map(|bound| bound as f64 / 1e9)
    }

    pub(super) fn buckets(&self) -> &[u64] {
        &self.buckets
    }

    pub(super) fn seconds(&self) -> f64 {
        self.nanoseconds as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_of_the_least_bound_that_is_not_less() {
        let around = BOUNDS.into_iter().flat_map(|bound| bound - 1..=bound + 1);
        let powers = (0..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for took in around.chain(powers).chain([u64::MAX]) {
            let expected = BOUNDS.partition_point(|bound| *bound < took);
            assert_eq!(bucket(took), expected, "{took}");
        }
    }

    #[test]
    fn totals_are_the_sums_of_all_workers() {
        let (one, other) = (Times::default(), Times::default());
        one.observe(Duration::from_micros(5));
        one.observe(Duration::from_micros(6));
        other.observe(Duration::from_secs(61));
        let total = TimesTotal::of([&one, &other]);
        assert_eq!(total.buckets()[..2], [1, 1]);
        assert_eq!(total.buckets()[BUCKETS - 1], 1);
        assert!((total.seconds() - 61.000_011).abs() < 1e-9);
    }
}
