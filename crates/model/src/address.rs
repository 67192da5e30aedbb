//! Parses hosts and targets: names, IPv4 and IPv6 addresses, with or without a port. Also writes the stored form of a
//! target. Source: kong/tools/ip.lua (hostname_type, normalize_ip, normalize_ipv4, normalize_ipv6, check_hostname,
//! format_host).

use std::net::{Ipv4Addr, Ipv6Addr};

/// Port of a target that has none.
pub const DEFAULT_TARGET_PORT: u16 = 8000;

/// A host, with its port if one was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: Host,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Name(String),
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("invalid hostname: {0}")]
    Hostname(String),
    #[error("invalid ipv4 address: {0}")]
    Ipv4(String),
    #[error("invalid ipv6 address: {0}")]
    Ipv6(String),
    #[error("invalid port number")]
    Port,
}

impl Host {
    pub fn is_ip(&self) -> bool {
        !matches!(self, Self::Name(_))
    }
}

impl std::fmt::Display for Host {
    /// Prints IPv6 addresses in full: eight groups of four digits.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Ipv4(address) => address.fmt(formatter),
            Self::Ipv6(address) => {
                for (index, group) in address.segments().into_iter().enumerate() {
                    let separator = if index == 0 { "" } else { ":" };
                    write!(formatter, "{separator}{group:04x}")?;
                }
                Ok(())
            }
        }
    }
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        // More than one colon, or brackets, can only be IPv6.
        if text.bytes().filter(|&byte| byte == b':').count() > 1 || text.starts_with('[') {
            return parse_ipv6(text);
        }
        let (host, port) = split_port(text)?;
        if !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            let address = parse_ipv4(host).ok_or_else(|| AddressError::Ipv4(text.to_owned()))?;
            return Ok(Self {
                host: Host::Ipv4(address),
                port,
            });
        }
        if !is_hostname(host) {
            return Err(AddressError::Hostname(text.to_owned()));
        }
        Ok(Self {
            host: Host::Name(host.to_owned()),
            port,
        })
    }

    /// The stored form of a target: `host:port`, with IPv6 addresses in brackets.
    pub fn as_target(&self) -> String {
        let port = self.port.unwrap_or(DEFAULT_TARGET_PORT);
        match &self.host {
            Host::Ipv6(_) => format!("[{}]:{port}", self.host),
            host => format!("{host}:{port}"),
        }
    }
}

/// Whether the text is an IPv4 or IPv6 address, with or without a prefix length.
pub fn is_ip_or_cidr(text: &str) -> bool {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let most = if address.parse::<Ipv4Addr>().is_ok() {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    bits.is_none_or(|bits| {
        bits.bytes().all(|byte| byte.is_ascii_digit())
            && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}

pub fn is_ip(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), AddressError> {
    let Some((host, digits)) = text.split_once(':') else {
        return Ok((text, None));
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((text, None));
    }
    let port = digits.parse().map_err(|_| AddressError::Port)?;
    Ok((host, Some(port)))
}

/// Parses four decimal numbers. Leading zeros are allowed and ignored.
fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let digits = parts.next()?.trim_start_matches('0');
        *octet = match digits {
            "" => 0,
            digits => digits.parse().ok()?,
        };
    }
    let is_complete = parts.next().is_none() && !text.split('.').any(str::is_empty);
    is_complete.then(|| Ipv4Addr::from(octets))
}

fn parse_ipv6(text: &str) -> Result<Address, AddressError> {
    let invalid = || AddressError::Ipv6(text.to_owned());
    let (inner, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inner, after) = rest.split_once(']').ok_or_else(invalid)?;
            let port = match after.strip_prefix(':') {
                None if after.is_empty() => None,
                None => return Err(invalid()),
                Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Some(digits.parse().map_err(|_| AddressError::Port)?)
                }
                Some(_) => return Err(invalid()),
            };
            (inner, port)
        }
        None => (text, None),
    };
    let address = inner.parse().map_err(|_| invalid())?;
    Ok(Address {
        host: Host::Ipv6(address),
        port,
    })
}

/// Whether the text is a host name: labels of letters, digits, `-` and `_`, separated by single dots. It may end with a
/// dot; no label may end with `-`.
fn is_hostname(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    !name.is_empty()
        && name.split('.').all(|label| {
            !label.is_empty()
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        })
}
