//! Request ids. An id has 32 hex digits. It is practically unique among all nodes, but it is not a secret.

use fastrand::Rng;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Generator of request ids. It combines two random sequences with independent seeds. Each worker thread has one
/// generator.
#[derive(Debug)]
pub struct RequestIds {
    high: Rng,
    low: Rng,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self {
            high: Rng::with_seed(random_seed()),
            low: Rng::with_seed(random_seed()),
        }
    }
}

impl RequestIds {
    #[inline]
    pub fn next_id(&mut self) -> [u8; 32] {
        hex(u128::from(self.high.u64(..)) << 64 | u128::from(self.low.u64(..)))
    }
}

/// Returns the hex digits of a number.
#[inline]
pub fn hex(number: u128) -> [u8; 32] {
    hex_of(&number.to_be_bytes())
}

/// Returns the hex digits of bytes, which the compiler does with vector instructions. Not inlined, so that ids of all kinds
/// share the code, which is then in the processor's cache.
#[inline(never)]
fn hex_of(bytes: &[u8; 16]) -> [u8; 32] {
    let mut digits = [0; 32];
    for (at, byte) in bytes.iter().enumerate() {
        digits[2 * at] = digit(byte >> 4);
        digits[2 * at + 1] = digit(byte & 15);
    }
    digits
}

#[inline(always)]
fn digit(value: u8) -> u8 {
    const LETTERS: u8 = b'a' - 10 - b'0';
    b'0' + value + if value > 9 { LETTERS } else { 0 }
}

/// Returns the 16 hex digits of a number.
#[inline]
pub fn short_hex(number: u64) -> [u8; 16] {
    let [_, digits] = *hex(number.into()).as_chunks().0 else {
        return [b'0'; 16];
    };
    digits
}

/// Returns a seed for a random generator. It hashes the time and the process id with the random keys of the standard
/// library's hash maps, so it differs between calls and nodes.
pub fn random_seed() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |elapsed| elapsed.as_nanos()));
    hasher.write_u32(std::process::id());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_32_hex_digits_and_differ() {
        let (mut one, mut other) = (RequestIds::default(), RequestIds::default());
        let ids: HashSet<[u8; 32]> = (0..1000)
            .flat_map(|_| [one.next_id(), other.next_id()])
            .collect();
        assert_eq!(ids.len(), 2000);
        assert!(
            ids.iter()
                .flatten()
                .all(|digit| b"0123456789abcdef".contains(digit))
        );
    }

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 9, 10, 0x0123_4567_89ab_cdef, u64::MAX] {
            let wide = u128::from(number) << 64 | u128::from(!number);
            assert_eq!(hex(wide), *format!("{wide:032x}").as_bytes());
            assert_eq!(short_hex(number), *format!("{number:016x}").as_bytes());
        }
    }
}
