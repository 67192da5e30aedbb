//! Parses headers of the PROXY protocol, versions 1 and 2
//! (<https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>). In such a header, a load balancer reports the
//! addresses of the connection that it forwards. This module does no I/O; [`crate::peek`] reads the bytes from the
//! connection. The parser is strict, because with a lenient one a client might choose its own address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum size of a header, as in nginx. A version 1 header has at most 107 bytes; a version 2 header can be longer,
/// because of its extensions.
pub const MAX_HEADER: usize = 4096;

/// Maximum size of a version 1 header, with the end of the line. The specification says that a buffer of 108 bytes is
/// always enough, which includes a terminating zero.
const MAX_V1: usize = 107;
const V1: &[u8] = b"PROXY ";
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Size of the signature, command, family and length of a version 2 header.
const V2_FIXED: usize = 16;
const TYPE_CRC32C: u8 = 3;

/// A parsed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// `None` if the load balancer connects on its own behalf (`LOCAL`), or if the header has no IP addresses of a TCP
    /// connection (`UNKNOWN`, Unix sockets, datagrams).
    pub addresses: Option<Addresses>,
}

impl Header {
    /// Returns the address of the client. An IPv4-mapped IPv6 address appears as IPv4, because a load balancer with one
    /// socket for both families may send that form.
    pub fn client(&self) -> Option<SocketAddr> {
        let source = self.addresses?.source;
        Some(SocketAddr::new(source.ip().to_canonical(), source.port()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Address of the client.
    pub source: SocketAddr,
    /// Address that the client connected to.
    pub destination: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("not a PROXY protocol header")]
    Signature,
    #[error("PROXY protocol header too long")]
    TooLong,
    #[error("malformed PROXY protocol line")]
    Line,
    #[error("malformed PROXY protocol header")]
    Binary,
    #[error("PROXY protocol header with a wrong checksum")]
    Checksum,
}

/// Reads the header at the start of a connection's bytes and returns it with its length. Returns `None` if more bytes
/// are needed; all bytes so far then belong to the header.
pub fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, Malformed> {
    let begins = |signature: &[u8]| {
        let length = bytes.len().min(signature.len());
        bytes[..length] == signature[..length]
    };
    if begins(V1) {
        parse_line(bytes)
    } else if begins(V2) {
        parse_binary(bytes)
    } else {
        Err(Malformed::Signature)
    }
}

fn parse_line(bytes: &[u8]) -> Result<Option<(Header, usize)>, Malformed> {
    let window = &bytes[..bytes.len().min(MAX_V1)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        let is_full = window.len() == MAX_V1;
        return if is_full {
            Err(Malformed::TooLong)
        } else {
            Ok(None)
        };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(Malformed::Line)?;
    let words = line.strip_prefix(V1).ok_or(Malformed::Line)?;
    let words = std::str::from_utf8(words).map_err(|_| Malformed::Line)?;
    let addresses = match words.split_once(' ') {
        Some(("TCP4", rest)) => Some(line_addresses::<Ipv4Addr>(rest)?),
        Some(("TCP6", rest)) => Some(line_addresses::<Ipv6Addr>(rest)?),
        Some(("UNKNOWN", _)) => None,
        None if words == "UNKNOWN" => None,
        _ => return Err(Malformed::Line),
    };
    Ok(Some((Header { addresses }, end + 1)))
}

/// Reads `<source> <destination> <source port> <destination port>`, with single spaces.
fn line_addresses<A>(words: &str) -> Result<Addresses, Malformed>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut words = words.split(' ');
    let mut next = || words.next().ok_or(Malformed::Line);
    let (source, destination) = (next()?, next()?);
    let (source_port, destination_port) = (next()?, next()?);
    if words.next().is_some() {
        return Err(Malformed::Line);
    }
    let ip = |text: &str| text.parse::<A>().map_err(|_| Malformed::Line);
    Ok(Addresses {
        source: SocketAddr::new(ip(source)?.into(), line_port(source_port)?),
        destination: SocketAddr::new(ip(destination)?.into(), line_port(destination_port)?),
    })
}

/// Reads a port: digits without a sign and without leading zeros.
fn line_port(text: &str) -> Result<u16, Malformed> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zero = text.len() > 1 && text.starts_with('0');
    if !is_plain || has_zero {
        return Err(Malformed::Line);
    }
    text.parse().map_err(|_| Malformed::Line)
}

fn parse_binary(bytes: &[u8]) -> Result<Option<(Header, usize)>, Malformed> {
    let Some((fixed, rest)) = bytes.split_at_checked(V2_FIXED) else {
        return Ok(None);
    };
    let (command, family) = (fixed[12], fixed[13]);
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    // Refuse a wrong header after its fixed part, without waiting for the rest.
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed::Binary),
    };
    if family >> 4 > 3 || family & 0xf > 2 {
        return Err(Malformed::Binary);
    }
    if V2_FIXED + length > MAX_HEADER {
        return Err(Malformed::TooLong);
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let total = V2_FIXED + length;
    if is_local {
        return Ok(Some((Header { addresses: None }, total)));
    }
    let size = match family >> 4 {
        1 => 12,
        2 => 36,
        3 => 216,
        _ => 0,
    };
    let (told, extensions) = body.split_at_checked(size).ok_or(Malformed::Binary)?;
    check_extensions(&bytes[..total], extensions)?;
    let addresses = match family {
        0x11 => Some(binary_addresses::<4>(told)?),
        0x21 => Some(binary_addresses::<16>(told)?),
        // Datagrams cannot arrive on a TCP connection, and the gateway has no use for addresses of Unix sockets.
        _ => None,
    };
    Ok(Some((Header { addresses }, total)))
}

fn binary_addresses<const N: usize>(bytes: &[u8]) -> Result<Addresses, Malformed>
where
    IpAddr: From<[u8; N]>,
{
    let array = |at: usize| -> Result<[u8; N], Malformed> {
        let part = bytes.get(at..at + N).ok_or(Malformed::Binary)?;
        part.try_into().map_err(|_| Malformed::Binary)
    };
    let port = |at: usize| match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Malformed::Binary),
    };
    Ok(Addresses {
        source: SocketAddr::new(array(0)?.into(), port(2 * N)?),
        destination: SocketAddr::new(array(N)?.into(), port(2 * N + 2)?),
    })
}

/// Checks the structure of the extensions, and the checksum if there is one.
fn check_extensions(header: &[u8], extensions: &[u8]) -> Result<(), Malformed> {
    let mut rest = extensions;
    // Only one checksum is allowed. Each covers the whole header, so verifying many would take quadratic time.
    let mut is_checked = false;
    while let [kind, high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, after) = after.split_at_checked(length).ok_or(Malformed::Binary)?;
        if *kind == TYPE_CRC32C {
            if std::mem::replace(&mut is_checked, true) {
                return Err(Malformed::Binary);
            }
            let sent: [u8; 4] = value.try_into().map_err(|_| Malformed::Binary)?;
            let at = header.len() - after.len() - 4;
            if crc32c_without(header, at) != u32::from_be_bytes(sent) {
                return Err(Malformed::Checksum);
            }
        }
        rest = after;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Malformed::Binary)
    }
}

/// Computes the checksum of a header. The four bytes at `hole`, which hold the checksum itself, count as zero.
fn crc32c_without(header: &[u8], hole: usize) -> u32 {
    let crc = crc32c::crc32c(&header[..hole]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &header[hole + 4..])
}

#[cfg(test)]
mod tests;
