//! Whose word about earlier hops is believed (`trusted_ips`), and which address the client has then (`real_ip_header`,
//! `real_ip_recursive`).

use net::http1::RequestHead;
use std::net::IpAddr;
use std::str::FromStr;

/// An address block, `10.0.0.0/8` or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    address: IpAddr,
    bits: u8,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address or address block")]
pub struct BadBlock(String);

impl FromStr for Block {
    type Err = BadBlock;

    fn from_str(text: &str) -> Result<Self, BadBlock> {
        let bad = || BadBlock(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| bad())?;
        if bits > most {
            return Err(bad());
        }
        Ok(Self { address, bits })
    }
}

impl Block {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(block), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                (block.to_bits() ^ address.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(block), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                (block.to_bits() ^ address.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct RealIp {
    pub trusted: Vec<Block>,
    /// `X-Real-IP` unless set.
    pub header: String,
    pub recursive: bool,
}

impl Default for RealIp {
    fn default() -> Self {
        Self {
            trusted: Vec::new(),
            header: "X-Real-IP".to_owned(),
            recursive: false,
        }
    }
}

impl RealIp {
    #[inline]
    pub fn trusts(&self, address: IpAddr) -> bool {
        !self.trusted.is_empty()
            && (self.trusted.iter()).any(|block| block.contains(address.to_canonical()))
    }

    /// The client's address as a trusted peer tells it: the last one of the header, or with `recursive` the last that is
    /// not itself trusted.
    pub fn client(&self, peer: IpAddr, head: &RequestHead) -> IpAddr {
        let mut client = peer;
        let Some(value) = head.header_values(&self.header).last() else {
            return client;
        };
        for item in value.rsplit(|&byte| byte == b',') {
            let address = std::str::from_utf8(item).ok().and_then(parse_address);
            let Some(address) = address else {
                break;
            };
            client = address;
            if !self.recursive || !self.trusts(address) {
                break;
            }
        }
        client
    }
}

/// An address, maybe with a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        text.parse()
            .map(|address: std::net::SocketAddr| address.ip())
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::http1::Limits;

    fn client(trusted: &[&str], recursive: bool, header: &str) -> String {
        let real_ip = RealIp {
            trusted: trusted.iter().map(|text| text.parse().unwrap()).collect(),
            header: "X-Forwarded-For".into(),
            recursive,
        };
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {header}\r\n\r\n");
        let (head, _) = RequestHead::parse(text.as_bytes(), &Limits::default())
            .unwrap()
            .unwrap();
        real_ip.client([10, 0, 0, 1].into(), &head).to_string()
    }

    #[test]
    fn blocks_contain_their_addresses() {
        let all: Block = "0.0.0.0/0".parse().unwrap();
        let some: Block = "10.1.0.0/16".parse().unwrap();
        let six: Block = "fd00::/8".parse().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(all.contains(address("255.1.2.3")) && !all.contains(address("::1")));
        assert!(some.contains(address("10.1.255.1")) && !some.contains(address("10.2.0.1")));
        assert!(six.contains(address("fdff::1")) && !six.contains(address("fe00::1")));
        for bad in ["", "10.0.0.0/33", "x/8", "::/129", "10.0.0.0/-1"] {
            assert!(bad.parse::<Block>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_address_counts_and_recursively_the_last_untrusted() {
        assert_eq!(
            client(&["10.0.0.0/8"], false, "1.1.1.1, 10.0.0.2"),
            "10.0.0.2"
        );
        assert_eq!(
            client(&["10.0.0.0/8"], true, "1.1.1.1, 10.0.0.2"),
            "1.1.1.1"
        );
        assert_eq!(
            client(&["10.0.0.0/8"], true, "10.0.0.3, 10.0.0.2"),
            "10.0.0.3"
        );
        assert_eq!(client(&["10.0.0.0/8"], false, "nonsense"), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], false, "[::2]:80"), "::2");
    }
}
