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

/// Bytes that parsers of HTTP, URLs, numbers and expressions treat specially.
const SPECIAL: &[u8] = b"\r\n\0 \t:;,=/\\%#?\"0159afFxX+-@[]\x0b\x7f\x80\xa0\xff";

/// Returns a mutated input: one with at most `most` bytes replaced, removed or inserted. One in four is the start of an
/// input joined to the end of another. Half of the new bytes are special to parsers.
pub fn mutated(random: &mut Random, inputs: &[impl AsRef<[u8]>], most: usize) -> Vec<u8> {
    let mut input = random.pick(inputs).as_ref().to_vec();
    if random.one_in(4) {
        let other = random.pick(inputs).as_ref();
        input.truncate(random.index(input.len() + 1));
        input.extend_from_slice(&other[random.index(other.len() + 1)..]);
    }
    for _ in 0..random.index(most + 1) {
        let at = random.index(input.len() + 1);
        let byte = if random.one_in(2) {
            *random.pick(SPECIAL)
        } else {
            random.below(256) as u8
        };
        match random.index(3) {
            0 => input.insert(at, byte),
            1 if at < input.len() => input[at] = byte,
            _ if at < input.len() => {
                input.remove(at);
            }
            _ => {}
        }
    }
    input
}

/// Returns the number in an environment variable, if the variable is set.
pub fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("the variable contains a number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn mutations_differ_in_few_bytes_and_can_be_repeated() {
        let inputs = ["GET / HTTP/1.1"];
        let run = || {
            let mut random = Random::new(1);
            let mutated = |_| mutated(&mut random, &inputs, 2);
            (0..200).map(mutated).collect::<Vec<_>>()
        };
        let found = run();
        assert_eq!(found, run());
        assert!(found.iter().collect::<HashSet<_>>().len() > 100);
        // A joined input has up to twice the length.
        let most = 2 * inputs[0].len() + 2;
        assert!(found.iter().all(|input| input.len() <= most));
    }

    #[test]
    fn without_changes_an_input_only_gets_the_end_of_another() {
        let mut random = Random::new(1);
        for _ in 0..100 {
            let input = mutated(&mut random, &["aaaa", "bbbb"], 0);
            let is_sorted = input.is_sorted() || input.iter().rev().is_sorted();
            assert!(is_sorted, "{input:?}");
        }
    }

    #[test]
    fn empty_inputs_can_be_mutated() {
        let mut random = Random::new(1);
        let longest = (0..100)
            .map(|_| mutated(&mut random, &[b""], 3).len())
            .max();
        assert_eq!(longest, Some(3));
    }
}
