//! Random numbers for tests, the same for the same seed, so that a failure can be had again; and the environment variables
//! by which a test is told its seed, or to try more.

use fastrand::Rng;

#[derive(Debug)]
pub struct Random(Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// A number less than `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// A place in a list of this length, which is not empty.
    pub fn index(&mut self, length: usize) -> usize {
        self.0.usize(..length)
    }

    /// Whether one of so many chances is the one.
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

/// The number in an environment variable, if it is set.
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}
