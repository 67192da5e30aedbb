//! Samples of a figure with their statistics: median, spread, distribution, and the difference between two sets of
//! samples.
//!
//! Samples are in the order of the measurements. A machine drifts, so neighbouring samples resemble each other.
//! Therefore intervals come from a bootstrap that draws blocks of neighbours. Samples that are not finite (from a
//! failed round) keep their index, so that the rounds of two figures can be compared. Statistics ignore them.

mod bootstrap;
#[cfg(test)]
pub mod tests;

pub use bootstrap::{Interval, bootstrap_difference, bootstrap_ratio};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Repeated measurements in one unit, in the order of the rounds.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Appends other samples.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// Returns the number of finite samples.
    pub fn count(&self) -> usize {
        self.finite().count()
    }

    pub fn mean(&self) -> f64 {
        self.finite().sum::<f64>() / self.count() as f64
    }

    /// Returns the standard deviation of a sample (n - 1), or NaN for fewer than two samples.
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.finite().map(|sample| (sample - mean).powi(2)).sum();
        match self.count() {
            0 | 1 => f64::NAN,
            count => (squares / (count - 1) as f64).sqrt(),
        }
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns a quantile by linear interpolation between the two nearest samples, or NaN without samples.
    pub fn quantile(&self, at: f64) -> f64 {
        quantile_of_sorted(&self.sorted(), at)
    }

    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Returns a confidence interval for the median of the sampled quantity. `confidence` is a share, for example 0.95.
    pub fn median_interval(&self, confidence: f64) -> Interval {
        bootstrap::median(self, confidence)
    }

    /// Returns the ratio to another figure, sample by sample. Drift between rounds cancels out.
    pub fn ratio(&self, other: &Samples) -> Samples {
        self.0
            .iter()
            .zip(&other.0)
            .map(|(own, other)| own / other)
            .collect()
    }

    /// Returns the range that a plot should show. It omits samples that are farther from the quartiles than six times
    /// the distance between the quartiles. One such sample would compress all others into a line. If the quartiles are
    /// equal, no sample is omitted.
    pub fn bulk(&self) -> (f64, f64) {
        let sorted = self.sorted();
        let quartiles = [0.25, 0.75].map(|at| quantile_of_sorted(&sorted, at));
        let reach = 6.0 * (quartiles[1] - quartiles[0]);
        let near = |sample: &&f64| {
            reach == 0.0 || (quartiles[0] - reach..=quartiles[1] + reach).contains(*sample)
        };
        let ends = (sorted.iter().find(near), sorted.iter().rev().find(near));
        (
            ends.0.copied().unwrap_or(f64::NAN),
            ends.1.copied().unwrap_or(f64::NAN),
        )
    }

    /// Returns the density at `places` points, as a sum of Gaussian kernels with the bandwidth of Silverman's rule. The
    /// points cover the range of [`Self::bulk`] and three bandwidths on each side.
    pub fn density(&self, places: usize) -> Vec<(f64, f64)> {
        let width = self.bandwidth();
        let (low, high) = self.bulk();
        let (low, high) = (low - 3.0 * width, high + 3.0 * width);
        let scale = self.count() as f64 * width * std::f64::consts::TAU.sqrt();
        let density = |at: f64| -> f64 {
            let kernel = |sample: f64| (-((at - sample) / width).powi(2) / 2.0).exp();
            self.finite().map(kernel).sum::<f64>() / scale
        };
        if !low.is_finite() {
            return Vec::new();
        }
        (0..places)
            .map(|place| low + (high - low) * place as f64 / (places - 1).max(1) as f64)
            .map(|at| (at, density(at)))
            .collect()
    }

    /// Returns the cumulative distribution as evenly chosen points. A point is a sample and the share of samples that
    /// are not larger. There are at most `places` points and the last sample.
    pub fn cumulative(&self, places: usize) -> Vec<(f64, f64)> {
        let sorted = self.sorted();
        let step = sorted.len().div_ceil(places.max(1)).max(1);
        let share = |index: usize| (index + 1) as f64 / sorted.len() as f64;
        (0..sorted.len())
            .filter(|index| index % step == 0 || index + 1 == sorted.len())
            .map(|index| (sorted[index], share(index)))
            .collect()
    }

    fn bandwidth(&self) -> f64 {
        let between_quartiles = (self.quantile(0.75) - self.quantile(0.25)) / 1.34;
        let deviation = self.deviation();
        let spread = [deviation, between_quartiles]
            .into_iter()
            .filter(|spread| *spread > 0.0)
            .fold(f64::INFINITY, f64::min);
        if spread.is_finite() {
            return 0.9 * spread * (self.count() as f64).powf(-0.2);
        }
        // All samples are equal, or there is only one. This bandwidth gives a narrow peak.
        (self.median().abs() / 1000.0).max(f64::MIN_POSITIVE)
    }

    fn finite(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied().filter(|sample| sample.is_finite())
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> = self.finite().collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}

/// Samples are written with six digits. Further digits are noise, and would be a third of the file.
impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // JSON represents values that are not finite as null.
        serializer.collect_seq(
            self.0
                .iter()
                .map(|sample| sample.is_finite().then(|| six_digits(*sample))),
        )
    }
}

impl<'de> Deserialize<'de> for Samples {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let samples = Vec::<Option<f64>>::deserialize(deserializer)?;
        Ok(samples
            .into_iter()
            .map(|sample| sample.unwrap_or(f64::NAN))
            .collect())
    }
}

/// Writes pairs of numbers. Like [`Samples`], measurements are rounded to six digits; counts are exact.
pub fn rounded_pairs<S: Serializer, T: Copy + Into<Digits>>(
    pairs: &[(f64, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        pairs
            .iter()
            .map(|(first, second)| (six_digits(*first), (*second).into())),
    )
}

/// A count, which is written exactly, or a measurement, which is rounded.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Digits {
    Whole(u64),
    Rounded(f64),
}

impl From<u64> for Digits {
    fn from(count: u64) -> Self {
        Self::Whole(count)
    }
}

impl From<f64> for Digits {
    fn from(value: f64) -> Self {
        Self::Rounded(six_digits(value))
    }
}

/// Rounds to six significant digits.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Returns a quantile of sorted values, or NaN for an empty slice.
fn quantile_of_sorted(sorted: &[f64], at: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = at * last as f64;
    let (low, high) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    // Interpolation between infinite neighbours is impossible.
    if low == high || place.fract() == 0.0 {
        return low;
    }
    low + (high - low) * place.fract()
}
