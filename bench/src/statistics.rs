//! Samples of a figure and what is said of them.

use serde::{Deserialize, Serialize};

/// What was measured again and again, in one unit and in the order of the rounds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    pub fn values(&self) -> &[f64] {
        &self.0
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// By linear interpolation between the two nearest samples; NaN without samples.
    pub fn quantile(&self, at: f64) -> f64 {
        if self.0.is_empty() {
            return f64::NAN;
        }
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = at * (sorted.len() - 1) as f64;
        let (low, high) = (
            sorted[place.floor() as usize],
            sorted[place.ceil() as usize],
        );
        low + (high - low) * place.fract()
    }

    /// The sample-by-sample ratio to another figure of the same rounds: what drifts between rounds cancels out.
    pub fn ratio(&self, other: &Samples) -> Samples {
        Samples(
            self.0
                .iter()
                .zip(&other.0)
                .map(|(own, other)| own / other)
                .collect(),
        )
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        Self(samples.into_iter().collect())
    }
}
