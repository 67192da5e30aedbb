//! Settings of the resolver: Kong's `dns_*` settings, or its `resolver_*` ones with `new_dns_client`.

use super::parse_ip;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A record type to query, named as in Kong's `dns_order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupKind {
    /// The type of the previous answer.
    Last,
    Srv,
    A,
    Aaaa,
    /// An alias, whose target is resolved next. Needed only for name servers that return a CNAME record to no other
    /// query.
    Cname,
}

impl LookupKind {
    /// Parses Kong's name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let kinds = [Self::Last, Self::Srv, Self::A, Self::Aaaa, Self::Cname];
        kinds
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "LAST",
            Self::Srv => "SRV",
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Cname => "CNAME",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    /// `dns_resolver`: the name servers; if empty, those of resolv.conf.
    pub servers: Vec<SocketAddr>,
    /// Path of resolv.conf, for the search list, the options and the default name servers.
    pub resolv_conf: PathBuf,
    /// `dns_hostsfile`: the path of the hosts file.
    pub hosts_file: PathBuf,
    /// `dns_order`: the record types to query, in order.
    pub order: Vec<LookupKind>,
    /// `dns_valid_ttl`: the TTL to use instead of the TTLs of records.
    pub valid_ttl: Option<Duration>,
    /// `dns_stale_ttl`: how long an expired answer is used while the name servers fail.
    pub stale_ttl: Duration,
    /// `dns_not_found_ttl`: how long a name counts as missing.
    pub not_found_ttl: Duration,
    /// `dns_error_ttl`: the minimum interval between retries after an error.
    pub error_ttl: Duration,
    /// `dns_cache_size`: the number of responses to keep, in addition to the answers of names in use.
    pub cache_size: usize,
}

impl Default for DnsSettings {
    /// Returns Kong's defaults.
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            hosts_file: "/etc/hosts".into(),
            order: vec![
                LookupKind::Last,
                LookupKind::Srv,
                LookupKind::A,
                LookupKind::Cname,
            ],
            valid_ttl: None,
            stale_ttl: Duration::from_secs(3600),
            not_found_ttl: Duration::from_secs(30),
            error_ttl: Duration::from_secs(1),
            cache_size: 10_000,
        }
    }
}

const DNS_PORT: u16 = 53;

/// Parses a name server as in `dns_resolver`: an address with an optional port; the default is 53.
pub fn parse_server(text: &str) -> Option<SocketAddr> {
    if let Some(ip) = parse_ip(text) {
        return Some(SocketAddr::new(ip, DNS_PORT));
    }
    let address: SocketAddr = text.parse().ok()?;
    (address.port() != 0).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_have_a_port_or_53() {
        let server = |text| parse_server(text).map(|server| server.to_string());
        assert_eq!(server("10.0.0.1").as_deref(), Some("10.0.0.1:53"));
        assert_eq!(server("10.0.0.1:5353").as_deref(), Some("10.0.0.1:5353"));
        assert_eq!(server("::1").as_deref(), Some("[::1]:53"));
        assert_eq!(server("[::1]").as_deref(), Some("[::1]:53"));
        assert_eq!(server("[::1]:5353").as_deref(), Some("[::1]:5353"));
        for wrong in ["", "name", "10.0.0.1:0", "10.0.0.1:", "10.0.0.1:65536"] {
            assert_eq!(server(wrong), None, "{wrong}");
        }
    }
}
