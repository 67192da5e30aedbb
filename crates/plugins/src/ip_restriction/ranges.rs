//! A set of address blocks: sorted ranges that do not overlap. A search is a binary search, so thousands of blocks cost
//! as little as some.

use expr::Block;
use plugin::BuildError;
use std::net::{IpAddr, Ipv4Addr};

#[derive(Debug, Default)]
pub(super) struct Ranges {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

impl Ranges {
    pub(super) fn compile(field: &'static str, entries: &[String]) -> Result<Self, BuildError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for entry in entries {
            let block: Block = (entry.parse()).map_err(|error| BuildError::field(field, error))?;
            match block.aligned().address() {
                IpAddr::V4(first) => {
                    let behind = u32::MAX.checked_shr(block.bits().into()).unwrap_or(0);
                    v4.push((first.to_bits(), first.to_bits() | behind));
                }
                IpAddr::V6(first) => {
                    let behind = u128::MAX.checked_shr(block.bits().into()).unwrap_or(0);
                    v6.push((first.to_bits(), first.to_bits() | behind));
                }
            }
        }
        Ok(Self {
            v4: merged(v4),
            v6: merged(v6),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether the address is in one of the blocks. An IPv4 address that is written as an IPv6 one (`::ffff:192.0.2.1`)
    /// is both, so that no spelling passes by a block.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let is_in_v4 = |v4: Ipv4Addr| is_within(&self.v4, v4.to_bits());
        match address {
            IpAddr::V4(v4) => is_in_v4(v4),
            IpAddr::V6(v6) => {
                is_within(&self.v6, v6.to_bits()) || v6.to_ipv4_mapped().is_some_and(is_in_v4)
            }
        }
    }
}

/// Sorts ranges, and joins those that overlap.
fn merged<N: Ord + Copy>(mut ranges: Vec<(N, N)>) -> Box<[(N, N)]> {
    ranges.sort_unstable();
    let mut merged: Vec<(N, N)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged.into()
}

fn is_within<N: Ord + Copy>(ranges: &[(N, N)], number: N) -> bool {
    let at = ranges.partition_point(|(_, last)| *last < number);
    ranges.get(at).is_some_and(|(first, _)| *first <= number)
}
