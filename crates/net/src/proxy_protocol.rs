//! The PROXY protocol, versions 1 and 2: what a load balancer in front says of the connection that it passes on
//! (<https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>). A pure function of bytes: reading them off a connection is
//! [`crate::peek`]'s work. Strict: whatever is not exactly a header is refused, since guessing would give a client the address it
//! likes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header that is read. Version 1 takes at most 107 bytes; version 2 grows by its extensions, of which nginx takes as many.
pub const MAX_HEADER: usize = 4096;

/// "a 108-byte buffer is always enough", including the end of the line and a terminator.
const MAX_V1: usize = 107;
const V1: &[u8] = b"PROXY ";
const V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family and length.
const V2_FIXED: usize = 16;
const TYPE_CRC32C: u8 = 3;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Absent when the sender speaks for itself (`LOCAL`) or of something that has no address here (`UNKNOWN`, Unix sockets).
    pub addresses: Option<Addresses>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// What the client connected to.
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

/// Reads a header from the beginning of what a connection sent, with its length. `None`: more bytes are needed, and all that are
/// there belong to it.
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

/// `<source> <destination> <source port> <destination port>`, with single spaces.
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

/// Digits without sign and without leading zeros.
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
    // Told by the first bytes, so that nobody waits for the rest of what is refused anyway.
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
        // Datagrams cannot have come by this connection, and Unix sockets have no address that means anything here.
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

/// Walks the extensions, of which only the checksum matters here.
fn check_extensions(header: &[u8], extensions: &[u8]) -> Result<(), Malformed> {
    let mut rest = extensions;
    // The sum is over the whole header: many of them would cost the square of its length.
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

/// The checksum of a header whose checksum, four bytes at `hole`, counts as zero.
fn crc32c_without(header: &[u8], hole: usize) -> u32 {
    let crc = crc32c::crc32c(&header[..hole]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &header[hole + 4..])
}

#[cfg(test)]
mod tests;
