//! Tests of the statistics with samples whose results are known, and of the bootstrap with samples drawn from known
//! distributions.

use super::bootstrap::Generator;
use super::*;

/// Returns roughly normal noise around `level`. With `memory` above 0, neighbours resemble each other.
pub fn noisy(seed: u64, count: usize, level: f64, deviation: f64, memory: f64) -> Samples {
    let mut generator = Generator(seed);
    let mut uniform = || generator.next() as f64 / u64::MAX as f64;
    let mut state = 0.0;
    (0..count)
        .map(|_| {
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            state = memory * state + (1.0 - memory * memory).sqrt() * normal;
            level + deviation * state
        })
        .collect()
}

fn close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn middle_and_spread_of_known_samples() {
    let samples = Samples::from_iter([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
    close(samples.mean(), 5.0);
    close(samples.deviation(), (32.0_f64 / 7.0).sqrt());
    close(samples.median(), 4.5);
    close(samples.quantile(0.25), 4.0);
    close(samples.min(), 2.0);
    close(samples.max(), 9.0);
}

#[test]
fn no_samples_and_one_sample_have_no_spread() {
    let none = Samples::default();
    assert!(none.median().is_nan() && none.mean().is_nan() && none.deviation().is_nan());
    assert!(none.density(50).is_empty() && none.cumulative(50).is_empty());
    assert!(none.median_interval(0.95).low.is_nan());
    let one = Samples::from_iter([3.0]);
    assert!(one.deviation().is_nan());
    close(one.median_interval(0.95).low, 3.0);
}

#[test]
fn samples_that_are_not_finite_keep_their_place_and_count_for_nothing() {
    let a = Samples::from_iter([1.0, f64::NAN, 3.0]);
    let b = Samples::from_iter([2.0, 2.0, 0.0]);
    close(a.median(), 2.0);
    assert_eq!(a.count(), 2);
    close(b.ratio(&a).values()[0], 2.0);
    assert_eq!(a.ratio(&b).count(), 1);
}

#[test]
fn json_keeps_six_digits_and_the_gaps() {
    let samples = Samples::from_iter([1.0 / 3.0, 1234567.8, f64::NAN, 2.0]);
    let text = serde_json::to_string(&samples).unwrap();
    assert_eq!(text, "[0.333333,1234570.0,null,2.0]");
    let back: Samples = serde_json::from_str(&text).unwrap();
    assert_eq!(back.count(), 3);
    assert!(back.values()[2].is_nan());
}

#[test]
fn density_integrates_to_one_and_peaks_where_the_samples_are() {
    let density = noisy(1, 500, 10.0, 1.0, 0.0).density(200);
    let area: f64 = density
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0)
        .sum();
    assert!((area - 1.0).abs() < 0.01, "{area}");
    let peak = density.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!((peak.0 - 10.0).abs() < 0.5, "{peak:?}");
}

#[test]
fn density_of_equal_samples_is_finite() {
    let density = Samples::from_iter([5.0; 10]).density(20);
    assert!(
        density
            .iter()
            .all(|(at, value)| at.is_finite() && value.is_finite())
    );
}

#[test]
fn an_outlier_is_no_part_of_the_bulk() {
    let mut samples = noisy(2, 100, 10.0, 1.0, 0.0);
    let (low, high) = samples.bulk();
    close(low, samples.min());
    close(high, samples.max());
    samples.push(1000.0);
    assert!(samples.bulk().1 < 20.0);
}

#[test]
fn cumulative_ends_at_one_with_few_points() {
    let curve = noisy(3, 1000, 1.0, 0.1, 0.0).cumulative(100);
    assert!(curve.len() <= 102);
    close(curve[curve.len() - 1].1, 1.0);
    assert!(
        curve
            .windows(2)
            .all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1)
    );
}

#[test]
fn interval_of_the_median_is_as_wide_as_theory_says() {
    let interval = noisy(4, 400, 100.0, 10.0, 0.0).median_interval(0.95);
    assert!(interval.contains(100.0), "{interval:?}");
    // The standard deviation of the median is 1.2533 / sqrt(n) times that of the samples.
    let expected = 2.0 * 1.96 * 1.2533 * 10.0 / 20.0;
    let width = interval.high - interval.low;
    assert!(
        (0.6..1.5).contains(&(width / expected)),
        "{width} {expected}"
    );
}

#[test]
fn bootstrap_finds_a_shift_of_five_percent_in_noise_of_five() {
    let found = (0..12)
        .filter(|seed| {
            let a = noisy(*seed, 100, 100.0, 5.0, 0.3);
            let b = noisy(seed + 1000, 100, 105.0, 5.0, 0.3);
            bootstrap_ratio(&a, &b, 0.99, 7).low > 1.0
        })
        .count();
    assert_eq!(found, 12);
}

/// Draws pairs of figures from one distribution, and returns for how many of the pairs the interval reports a
/// difference.
fn false_alarms(draws: u64, count: usize, confidence: f64, memory: f64) -> usize {
    (0..draws)
        .filter(|seed| {
            let a = noisy(seed * 2 + 5000, count, 100.0, 5.0, memory);
            let b = noisy(seed * 2 + 5001, count, 100.0, 5.0, memory);
            !bootstrap_ratio(&a, &b, confidence, 7).contains(1.0)
        })
        .count()
}

#[test]
fn bootstrap_does_not_cry_wolf_over_draws_of_one_distribution() {
    let alarms = false_alarms(40, 50, 0.95, 0.0);
    assert!(alarms <= 5, "{alarms} of 40 at 95 %");
}

#[test]
fn bootstrap_allows_for_neighbours_that_resemble_each_other() {
    let alarms = false_alarms(30, 60, 0.99, 0.4);
    assert!(alarms <= 2, "{alarms} of 30 at 99 %");
}

#[test]
fn few_samples_do_not_make_the_bootstrap_rash() {
    assert_eq!(false_alarms(60, 9, 0.999, 0.0), 0);
}

#[test]
fn bootstrap_says_the_same_each_time() {
    let (a, b) = (noisy(1, 50, 10.0, 1.0, 0.0), noisy(2, 50, 11.0, 1.0, 0.0));
    assert_eq!(
        bootstrap_ratio(&a, &b, 0.95, 3),
        bootstrap_ratio(&a, &b, 0.95, 3)
    );
}

#[test]
fn ratios_of_nothing_have_an_interval() {
    let nothing = Samples::from_iter([0.0; 20]);
    let something = Samples::from_iter([3.0; 20]);
    assert!(bootstrap_ratio(&nothing, &nothing, 0.95, 1).contains(1.0));
    assert!(
        bootstrap_ratio(&nothing, &something, 0.95, 1)
            .low
            .is_infinite()
    );
    close(bootstrap_ratio(&something, &nothing, 0.95, 1).high, 0.0);
}
