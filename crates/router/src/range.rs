//! Ranges of addresses and numbers. A range contains all values whose bits begin with the same prefix. Two ranges
//! therefore overlap only if one contains the other.

use expr::Block;
use std::net::IpAddr;

/// The largest number that ranges distinguish; larger ones count as this one. Ports cannot be larger, and paths hardly
/// have as many segments.
const LARGEST: i64 = u16::MAX as i64;

/// All values with a common prefix of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Range {
    pub(crate) width: Width,
    /// Number of bits in the common prefix.
    pub(crate) length: u8,
    /// The common prefix, followed by zeros.
    bits: u128,
}

/// The number of bits in a value. Ranges of different widths never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Width {
    Number = 16,
    V4 = 32,
    V6 = 128,
}

impl Range {
    fn new(width: Width, bits: u128, length: u8) -> Self {
        let behind = width as u32 - u32::from(length);
        let kept = u128::MAX.checked_shl(behind).unwrap_or(0);
        Self {
            width,
            length,
            bits: bits & kept,
        }
    }

    pub(crate) fn of_block(block: Block) -> Self {
        let of_address = Self::of_address(block.address());
        Self::new(of_address.width, of_address.bits, block.bits())
    }

    pub(crate) fn of_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::new(Width::V4, address.to_bits().into(), 32),
            IpAddr::V6(address) => Self::new(Width::V6, address.to_bits(), 128),
        }
    }

    /// Returns the range of one number. Numbers outside `0..=LARGEST` count as the nearest one inside.
    pub(crate) fn of_number(number: i64) -> Self {
        Self::new(Width::Number, number.clamp(0, LARGEST) as u128, 16)
    }

    /// Returns the fewest ranges that together contain exactly the numbers from `first` to `last`. Numbers outside
    /// `0..=LARGEST` count as in [`Self::of_number`], so the ranges may contain 0 or `LARGEST` in their place.
    pub(crate) fn between(first: i64, last: i64) -> Vec<Self> {
        let mut next = first.clamp(0, LARGEST) as u128;
        let end = last.clamp(0, LARGEST) as u128 + 1;
        let mut ranges = Vec::new();
        while next < end {
            // The largest range that begins at `next` and ends before `end`.
            let aligned = next.trailing_zeros().min(16);
            let fitting = (end - next).ilog2();
            let behind = aligned.min(fitting);
            ranges.push(Self::new(Width::Number, next, 16 - behind as u8));
            next += 1 << behind;
        }
        ranges
    }

    /// Returns the range of all values that share the first `length` bits of this one.
    pub(crate) fn cut(self, length: u8) -> Self {
        Self::new(self.width, self.bits, length)
    }

    /// Returns the intersection of two lists. Two ranges overlap only if one contains the other, so it consists of
    /// ranges from the lists.
    pub(crate) fn in_both(left: &[Self], right: &[Self]) -> Vec<Self> {
        let (left, right) = (Self::apart(left), Self::apart(right));
        let of_left = left.iter().filter(|range| range.is_in_one_of(&right));
        let of_right = right.iter().filter(|range| range.is_in_one_of(&left));
        let mut both: Vec<_> = of_left.chain(of_right).copied().collect();
        both.sort_unstable();
        both.dedup();
        both
    }

    fn position(self) -> (Width, u128, u8) {
        (self.width, self.bits, self.length)
    }

    /// Returns the ranges that no other one contains, sorted by position.
    fn apart(ranges: &[Self]) -> Vec<Self> {
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable_by_key(|range| range.position());
        // Sorting puts the contained ranges directly after the range that contains them.
        sorted.dedup_by(|range, last| range.is_in(*last));
        sorted
    }

    fn is_in(self, large: Self) -> bool {
        self.width == large.width && self.length >= large.length && self.cut(large.length) == large
    }

    /// Whether this range is contained in one of `ranges`, which must not overlap and must be sorted.
    fn is_in_one_of(&self, ranges: &[Self]) -> bool {
        let begins = |range: &Self| (range.width, range.bits) <= (self.width, self.bits);
        let behind = ranges.partition_point(begins);
        behind > 0 && self.is_in(ranges[behind - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_between_two_numbers_contain_each_number_once() {
        for (first, last) in [(80, 80), (8000, 8099), (0, 65_535), (1, 65_534), (-5, 3)] {
            let ranges = Range::between(first, last);
            assert!(ranges.len() <= 30, "{ranges:?}");
            for number in [
                0, 1, 79, 80, 81, 7999, 8000, 8050, 8099, 8100, 65_534, 65_535,
            ] {
                let value = Range::of_number(number);
                let found = ranges
                    .iter()
                    .filter(|range| value.cut(range.length) == **range);
                let expected = usize::from((first..=last).contains(&number));
                assert_eq!(found.count(), expected, "{first} {number} {last}");
            }
        }
        assert!(Range::between(9, 8).is_empty());
    }

    #[test]
    fn the_intersection_consists_of_the_smaller_ranges() {
        let range = |text: &str| Range::of_block(text.parse().expect("the text is a block"));
        let (wide, narrow) = (range("10.0.0.0/8"), range("10.1.0.0/16"));
        let both = |left: &[Range], right: &[Range]| Range::in_both(left, right);
        assert_eq!(both(&[wide], &[narrow]), [narrow]);
        assert_eq!(both(&[narrow], &[wide, wide]), [narrow]);
        assert_eq!(both(&[range("11.0.0.0/8")], &[narrow]), []);
        assert_eq!(both(&[range("::/0")], &[range("0.0.0.0/0")]), []);
        let (low, high) = (range("10.0.0.0/9"), range("10.128.0.0/9"));
        assert_eq!(both(&[wide, high], &[high, low, narrow]), [low, high]);
        assert_eq!(both(&[low, high], &[narrow, high]), [high, narrow]);
    }
}
