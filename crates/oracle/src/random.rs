//! Random choices, either from a seeded generator or from the bytes of a fuzzer.

pub struct Random {
    source: Source,
    /// The last serial number that was returned.
    serial: u64,
}

enum Source {
    /// SplitMix64.
    Seed(u64),
    /// Bytes of a fuzzer, read from the front. When all are used, every choice is the first option.
    Bytes { bytes: Vec<u8>, at: usize },
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self {
            source: Source::Seed(seed),
            serial: 0,
        }
    }

    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self {
            source: Source::Bytes {
                bytes: bytes.to_vec(),
                at: 0,
            },
            serial: 0,
        }
    }

    /// Whether all bytes of the fuzzer are used. Always false for a seed.
    pub fn is_spent(&self) -> bool {
        match &self.source {
            Source::Seed(_) => false,
            Source::Bytes { bytes, at } => *at >= bytes.len(),
        }
    }

    /// Returns a new number each time, even if no bytes are left.
    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Returns a number less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let width = match end {
            0..=1 => return 0,
            2..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        usize::try_from(self.number(width) % end as u64).unwrap_or(0)
    }

    /// Returns a random number. It is made of `width` bytes of the fuzzer, or of 63 bits of the generator.
    fn number(&mut self, width: usize) -> u64 {
        match &mut self.source {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (mixed ^ (mixed >> 31)) >> 1
            }
            Source::Bytes { bytes, at } => {
                let start = (*at).min(bytes.len());
                let taken = bytes[start..].iter().take(width);
                *at = start + width;
                taken.fold(0, |number, byte| number << 8 | u64::from(*byte))
            }
        }
    }

    /// Returns true once in `times` calls on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        // When all bytes of the fuzzer are used, `below` returns 0. The result must then be the common case, false.
        self.below(times) == times - 1
    }

    pub fn one<'o, T>(&mut self, of: &'o [T]) -> &'o T {
        &of[self.below(of.len())]
    }

    pub(crate) fn word(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    /// Returns a number from `least` to `most`, both included.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }
}
