//! From a host name to addresses. Asks the system's resolver; a resolver of our own, with SRV records and Kong's order of
//! record types, takes the place of [`lookup`] when balancing comes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// The system's resolver tells no TTL. Short enough to follow a deployment, long enough to cost nothing.
const VALID: Duration = Duration::from_secs(10);
/// How long other requests go on with the old addresses while one asks again.
const REFRESH: Duration = Duration::from_secs(1);
/// How long a failure is remembered, so that requests for a dead name do not queue up at the resolver.
const FAILED: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("name has no address")]
    NotFound,
    #[error("name server failed")]
    Failed,
}

/// The addresses of one host, as one worker knows them, and whose turn it is.
#[derive(Debug, Default)]
pub struct Addresses {
    addresses: Vec<SocketAddr>,
    next: usize,
    /// `None`: for ever, it was an address to begin with.
    fresh_until: Option<Instant>,
    error: Option<ResolveError>,
}

/// What is known of a host right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    Address(SocketAddr),
    Error(ResolveError),
    /// [`lookup`], then [`Addresses::learn`].
    Ask,
}

impl Addresses {
    /// A host that needs no resolving, or one of which nothing is known yet.
    pub fn new(host: &str, port: u16, now: Instant) -> Self {
        match parse_ip(host) {
            Some(ip) => Self {
                addresses: vec![SocketAddr::new(ip, port)],
                ..Self::default()
            },
            None => Self {
                fresh_until: Some(now),
                ..Self::default()
            },
        }
    }

    /// The next address in turn. Once what is known gets old, one caller is told to ask; the others go on with it.
    #[inline]
    pub fn next(&mut self, now: Instant) -> Known {
        if let Some(until) = self.fresh_until
            && until <= now
        {
            if !self.addresses.is_empty() {
                self.fresh_until = Some(now + REFRESH);
            }
            return Known::Ask;
        }
        if let Some(error) = self.error {
            return Known::Error(error);
        }
        self.next = if self.next + 1 < self.addresses.len() {
            self.next + 1
        } else {
            0
        };
        self.addresses
            .get(self.next)
            .map_or(Known::Ask, |address| Known::Address(*address))
    }

    /// Takes over what a lookup gave. Old addresses outlive a failing name server.
    pub fn learn(&mut self, found: Result<Vec<SocketAddr>, ResolveError>, now: Instant) {
        match found {
            Ok(addresses) => {
                self.addresses = addresses;
                self.error = None;
                self.fresh_until = Some(now + VALID);
            }
            Err(ResolveError::Failed) if !self.addresses.is_empty() => {
                self.fresh_until = Some(now + FAILED);
            }
            Err(error) => {
                self.addresses.clear();
                self.error = Some(error);
                self.fresh_until = Some(now + FAILED);
            }
        }
    }
}

/// Asks for the addresses of a name; IPv4 first, as Kong's default order has it.
pub async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let mut addresses: Vec<SocketAddr> = found.map_err(|error| classify(&error))?.collect();
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses.dedup();
    if addresses.is_empty() {
        return Err(ResolveError::NotFound);
    }
    Ok(addresses)
}

/// The system's resolver has no error codes in Rust; only a temporary failure says so in its text.
fn classify(error: &io::Error) -> ResolveError {
    if error.to_string().contains("emporary failure") {
        ResolveError::Failed
    } else {
        ResolveError::NotFound
    }
}

/// An address as it stands in a service's host: IPv6 with or without brackets.
pub fn parse_ip(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn an_address_is_its_own_answer_for_ever() {
        let now = Instant::now();
        let mut addresses = Addresses::new("[::1]", 80, now);
        let later = now + Duration::from_secs(100_000);
        let expected = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 80));
        assert_eq!(addresses.next(later), Known::Address(expected));
    }

    #[test]
    fn addresses_take_turns_and_one_caller_refreshes_them() {
        let now = Instant::now();
        let mut addresses = Addresses::new("name", 80, now);
        assert_eq!(addresses.next(now), Known::Ask);
        addresses.learn(Ok(vec![address(1), address(2)]), now);
        assert_eq!(addresses.next(now), Known::Address(address(2)));
        assert_eq!(addresses.next(now), Known::Address(address(1)));
        let old = now + VALID;
        assert_eq!(addresses.next(old), Known::Ask);
        assert_eq!(addresses.next(old), Known::Address(address(2)));
    }

    #[test]
    fn a_failing_name_server_leaves_old_addresses_and_a_missing_name_does_not() {
        let now = Instant::now();
        let mut addresses = Addresses::new("name", 80, now);
        addresses.learn(Ok(vec![address(1)]), now);
        addresses.learn(Err(ResolveError::Failed), now);
        assert_eq!(addresses.next(now), Known::Address(address(1)));
        addresses.learn(Err(ResolveError::NotFound), now);
        assert_eq!(addresses.next(now), Known::Error(ResolveError::NotFound));
        assert_eq!(addresses.next(now + FAILED), Known::Ask);
    }
}
