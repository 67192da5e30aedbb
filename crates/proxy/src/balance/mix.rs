//! The one mixer of balancing: numbers that differ in any bit come out unrelated. It spreads, and protects nothing.

/// The finalizer of SplitMix64. Which target a hash leads to depends on it: it must stay the same in all versions.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The output of SplitMix64 for a counter.
pub(super) fn random(counter: u64) -> u64 {
    mix(counter.wrapping_add(0x9e37_79b9_7f4a_7c15))
}
