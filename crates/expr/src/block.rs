//! Address blocks in CIDR form.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address block such as `10.0.0.0/8`, or a single address. [`Block::contains`] ignores the bits behind the prefix,
/// but `==` compares them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    address: IpAddr,
    bits: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an address nor a block of addresses")]
pub struct BadBlock(String);

impl Block {
    /// Returns `None` if the prefix is longer than the address.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        (bits <= width(address)).then_some(Self { address, bits })
    }

    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The prefix length.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether the block contains a single address.
    pub fn is_single(self) -> bool {
        self.bits == width(self.address)
    }

    /// Whether all bits behind the prefix are zero.
    pub fn is_aligned(self) -> bool {
        self.aligned() == self
    }

    /// Returns the block with the bits behind the prefix cleared.
    #[must_use]
    pub fn aligned(self) -> Self {
        let behind = u32::from(width(self.address) - self.bits);
        let address = match self.address {
            IpAddr::V4(address) => {
                let kept = u32::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V4((address.to_bits() & kept).into())
            }
            IpAddr::V6(address) => {
                let kept = u128::MAX.checked_shl(behind).unwrap_or(0);
                IpAddr::V6((address.to_bits() & kept).into())
            }
        };
        Self { address, ..self }
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let behind = u32::from(width(self.address) - self.bits);
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(behind).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(behind).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl FromStr for Block {
    type Err = BadBlock;

    fn from_str(text: &str) -> Result<Self, BadBlock> {
        let bad = || BadBlock(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let bits = bits.map_or(Ok(width(address)), str::parse);
        let bits = bits.map_err(|_| bad())?;
        Self::new(address, bits).ok_or_else(bad)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        text.parse().expect("a valid block")
    }

    #[test]
    fn an_address_is_in_the_blocks_whose_prefix_it_shares() {
        for (text, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/0", "255.1.1.1", "::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::/0", "::ffff:1.2.3.4", "1.2.3.4"),
        ] {
            assert!(block(text).contains(inside.parse().unwrap()), "{text}");
            assert!(!block(text).contains(outside.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn bits_behind_the_prefix_can_be_seen_and_cleared() {
        assert!(!block("10.0.0.1/8").is_aligned());
        assert_eq!(block("10.0.0.1/8").aligned(), block("10.0.0.0/8"));
        assert_eq!(block("fd00::1/0").aligned().to_string(), "::/0");
        assert!(block("::1").is_aligned() && block("::1").is_single());
    }

    #[test]
    fn text_that_is_not_a_block_is_refused() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/-1", "x"] {
            assert!(text.parse::<Block>().is_err(), "{text}");
        }
    }
}
