//! Confidence intervals by drawing samples from the samples again and again.
//!
//! What is drawn are blocks of neighbours (wrapping around, so that the first and the last are drawn as often as any), about
//! the cube root of their number long: a drift that lasts for several samples then shows as the uncertainty that it is. The
//! generator starts from a fixed seed, so the same samples always give the same interval.

use super::{Samples, quantile_of_sorted};

/// For an interval that is only shown.
const RESAMPLES_TO_SHOW: usize = 2_000;
const FEWEST_RESAMPLES: usize = 10_000;
/// A million takes some seconds for each figure; who compares that many figures has a hint of the interval's ends left.
const MOST_RESAMPLES: usize = 1_000_000;
/// How many resamples shall lie beyond each end of the interval: with fewer its ends jump with the seed.
const BEYOND_EACH_END: f64 = 10.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The interval of median(b) / median(a). From nothing to nothing is a ratio of 1, from nothing to something an infinite one.
pub fn bootstrap_ratio(a: &Samples, b: &Samples, confidence: f64, seed: u64) -> Interval {
    bootstrap(a, b, confidence, resamples(confidence), seed, quotient)
}

pub(super) fn quotient(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { b / a }
}

/// The interval of median(b) - median(a), for figures that may be negative.
pub fn bootstrap_difference(a: &Samples, b: &Samples, confidence: f64, seed: u64) -> Interval {
    bootstrap(a, b, confidence, resamples(confidence), seed, |a, b| b - a)
}

/// The interval of the median.
pub(super) fn median(samples: &Samples, confidence: f64) -> Interval {
    let nothing = Samples::from_iter([0.0]);
    bootstrap(
        &nothing,
        samples,
        confidence,
        RESAMPLES_TO_SHOW,
        1,
        |a, b| b - a,
    )
}

fn resamples(confidence: f64) -> usize {
    let wanted = BEYOND_EACH_END / ((1.0 - confidence) / 2.0);
    (wanted as usize).clamp(FEWEST_RESAMPLES, MOST_RESAMPLES)
}

pub(super) fn bootstrap(
    a: &Samples,
    b: &Samples,
    confidence: f64,
    resamples: usize,
    seed: u64,
    combine: fn(f64, f64) -> f64,
) -> Interval {
    let tail = (1.0 - confidence) / 2.0;
    let mut generator = Generator(seed);
    let (Some(mut a), Some(mut b)) = (Resampler::new(a), Resampler::new(b)) else {
        return Interval {
            low: f64::NAN,
            high: f64::NAN,
        };
    };
    let mut drawn: Vec<f64> = (0..resamples)
        .map(|_| combine(a.median(&mut generator), b.median(&mut generator)))
        .collect();
    drawn.sort_by(f64::total_cmp);
    Interval {
        low: quantile_of_sorted(&drawn, tail),
        high: quantile_of_sorted(&drawn, 1.0 - tail),
    }
}

/// Medians of random draws. It counts how often each rank was drawn, which finds the median without sorting every draw.
struct Resampler {
    sorted: Vec<f64>,
    /// The place in `sorted` of each sample, in the order in which they were taken.
    ranks: Vec<usize>,
    block: usize,
    drawn: Vec<u32>,
}

impl Resampler {
    /// None without samples.
    fn new(samples: &Samples) -> Option<Self> {
        let taken: Vec<f64> = samples.finite().collect();
        let mut order: Vec<usize> = (0..taken.len()).collect();
        order.sort_by(|one, other| taken[*one].total_cmp(&taken[*other]));
        let mut ranks = vec![0; taken.len()];
        for (rank, place) in order.iter().enumerate() {
            ranks[*place] = rank;
        }
        (!taken.is_empty()).then(|| Self {
            sorted: order.iter().map(|place| taken[*place]).collect(),
            block: (taken.len() as f64).cbrt().round() as usize,
            drawn: vec![0; taken.len()],
            ranks,
        })
    }

    fn median(&mut self, generator: &mut Generator) -> f64 {
        self.draw(generator);
        let count = self.sorted.len();
        let upper = self.at(count / 2);
        if count % 2 == 1 {
            return upper;
        }
        let lower = self.at(count / 2 - 1);
        lower + (upper - lower) / 2.0
    }

    fn draw(&mut self, generator: &mut Generator) {
        self.drawn.fill(0);
        let count = self.ranks.len();
        let mut left = count;
        while left > 0 {
            let mut place = generator.below(count);
            for _ in 0..self.block.min(left) {
                self.drawn[self.ranks[place]] += 1;
                place = if place + 1 == count { 0 } else { place + 1 };
            }
            left -= self.block.min(left);
        }
    }

    /// The sample at this place of the sorted draw.
    fn at(&self, place: usize) -> f64 {
        let mut passed = 0;
        for (sample, drawn) in self.sorted.iter().zip(&self.drawn) {
            passed += *drawn as usize;
            if passed > place {
                return *sample;
            }
        }
        self.sorted[self.sorted.len() - 1]
    }
}

/// splitmix64.
pub(super) struct Generator(pub u64);

impl Generator {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Any of 0..limit. By multiplication: the bias of 2^-64 times the limit is none that could be seen.
    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}
