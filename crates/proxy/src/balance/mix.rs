//! The mixing function of the balancers: inputs that differ in any bit give unrelated outputs. It is not cryptographic.

/// The finalizer of SplitMix64. It determines the target of each hash, so it must not change between versions.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Returns the output of SplitMix64 for a counter.
pub(super) fn random(counter: u64) -> u64 {
    mix(counter.wrapping_add(0x9e37_79b9_7f4a_7c15))
}
