//! Request ids. An id has 32 hex digits. It is practically unique among all nodes, but it is not a secret.

use fastrand::Rng;
use std::hash::{BuildHasher, Hasher, RandomState};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The two hex digits of every byte. The table saves one lookup per byte, and its lookup needs no bounds check.
static PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [HEX[byte >> 4], HEX[byte & 15]];
        byte += 1;
    }
    pairs
};

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
        let number = u128::from(self.high.u64(..)) << 64 | u128::from(self.low.u64(..));
        let mut text = [0; 32];
        write_hex(&number.to_be_bytes(), &mut text);
        text
    }
}

/// Writes each byte as two hex digits. `digits` has twice the length of `bytes`.
#[inline]
pub fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    let (pairs, _) = digits.as_chunks_mut();
    for (pair, byte) in pairs.iter_mut().zip(bytes) {
        *pair = PAIRS[usize::from(*byte)];
    }
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
        assert!(ids.iter().flatten().all(|digit| HEX.contains(digit)));
    }
}
