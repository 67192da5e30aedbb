//! Random numbers for tests. The same seed gives the same numbers, so that a failure can be reproduced. Environment
//! variables can set a test's seed and its number of attempts.

use fastrand::Rng;

#[derive(Debug)]
pub struct Random(Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// Returns a number less than `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// Returns an index into a list of this length, which must not be 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.0.usize(..length)
    }

    /// Returns true with a probability of 1 in `chances`.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[self.index(list.len())]
    }

    pub fn text<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.index(texts.len())]
    }
}

/// Returns the number in an environment variable, if the variable is set.
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("the variable contains a number"))
}
