//! Addresses to which the gateway's own connections go only by permission.
//!
//! Link-local addresses are those of the machine's own network, where clouds serve credentials and other metadata. Whoever
//! may configure a log server or a key set could otherwise make the gateway fetch them. The rule is for connections that
//! plugins open, by HTTP or otherwise; it is not for upstreams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether these addresses are permitted (`egress_link_local`). One value for the process, because a permission that
/// depends on who connects would be easy to get around.
static PERMITTED: AtomicBool = AtomicBool::new(false);

/// Metadata services that are not at link-local addresses: of Google Cloud, of Oracle Cloud (two), of Scaleway, of Alibaba
/// Cloud and of Azure.
const METADATA: [IpAddr; 6] = [
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// Permits or forbids link-local addresses, once when the process starts.
pub fn permit_link_local(permitted: bool) {
    PERMITTED.store(permitted, Ordering::Relaxed);
}

/// An address that needs the permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is a link-local or metadata address, which only `egress_link_local = on` permits")]
pub struct Forbidden(IpAddr);

/// Checks an address before a connection is opened.
pub(crate) fn check(address: IpAddr) -> Result<(), Forbidden> {
    if is_special(address) && !PERMITTED.load(Ordering::Relaxed) {
        return Err(Forbidden(address));
    }
    Ok(())
}

fn is_special(address: IpAddr) -> bool {
    let address = address.to_canonical();
    if METADATA.contains(&address) {
        return true;
    }
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            let parts = address.segments();
            let embedded = embedded(parts).map(IpAddr::V4);
            // AWS has several services with credentials at fd00:ec2::/32.
            address.is_unicast_link_local()
                || parts[..2] == [0xfd00, 0xec2]
                || embedded.is_some_and(is_special)
        }
    }
}

/// Returns the IPv4 address to which routers pass on what is sent to an IPv6 address: by NAT64, by 6to4, or in an
/// IPv4-compatible address.
fn embedded(parts: [u16; 8]) -> Option<Ipv4Addr> {
    let (high, low) = match parts {
        [0x64, 0xff9b, .., high, low] => (high, low),
        [0x2002, high, low, ..] => (high, low),
        [0, 0, 0, 0, 0, 0, high, low] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_and_metadata_addresses_need_permission() {
        for special in [
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b::168.63.129.16",
            "2002:a9fe:a9fe::1",
            "::169.254.169.254",
            "192.0.0.192",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            let address = special.parse().unwrap();
            assert!(is_special(address), "{special}");
            assert_eq!(check(address), Err(Forbidden(address)), "{special}");
        }
        for plain in [
            "127.0.0.1",
            "169.255.0.1",
            "10.0.0.1",
            "::1",
            "fd00::1",
            "fec0::1",
            "fd00:ec3::254",
            "64:ff9b::10.0.0.1",
            "2002:a00:1::1",
            "::",
        ] {
            assert_eq!(check(plain.parse().unwrap()), Ok(()), "{plain}");
        }
    }
}
