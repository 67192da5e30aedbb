//! Checksum over the entries of a table. Opening the file compares it with the entries to detect damage.
//!
//! It is a wrapping sum of one hash per entry, so that a change set updates it with only the changed entries instead of
//! reading the table. It does not detect forgery, because anyone who can write the file can also write the sum.

const SEEDS: [u64; 3] = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
];

/// Number of entries of a table, and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    pub(crate) entries: u64,
    pub(crate) hash: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_add(1);
        self.hash = self.hash.wrapping_add(entry_hash(key, value));
    }

    pub(crate) fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_sub(1);
        self.hash = self.hash.wrapping_sub(entry_hash(key, value));
    }
}

fn entry_hash(key: &[u8], value: &[u8]) -> u64 {
    let seed = bytes_hash(SEEDS[0], key);
    bytes_hash(seed, value)
}

/// Hashes sixteen bytes per multiplication and folds the product, like wyhash. Different bytes can have the same hash,
/// but random damage is very unlikely to cause this.
pub(crate) fn bytes_hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = fold(seed ^ SEEDS[1], bytes.len() as u64 ^ SEEDS[2]);
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        let low = word(&chunk[..8]);
        let high = word(&chunk[8..]);
        state = fold(low ^ SEEDS[1] ^ state, high ^ SEEDS[2]).wrapping_add(state.rotate_left(23));
    }
    let rest = chunks.remainder();
    let mut last = [0u8; 16];
    last[..rest.len()].copy_from_slice(rest);
    fold(
        word(&last[..8]) ^ SEEDS[2] ^ state,
        word(&last[8..]) ^ SEEDS[0],
    )
    .wrapping_add(state.rotate_left(23))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the caller slices eight bytes"))
}

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}
