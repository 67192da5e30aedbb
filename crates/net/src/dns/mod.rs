//! Name resolution for the whole process: one resolver, whose answers all workers share.
//!
//! A snapshot holds a [`Host`] for every name that it may connect to. Answers are read without a lock. The
//! [`Background`] queries the name servers on its own thread before answers expire, so that a request waits only for a
//! name without an answer, or whose answer has TTL 0 and is too old. The hickory crates provide the transport and the
//! message format. The order of queries and the lifetime of answers are implemented here, as in Kong
//! (kong/resty/dns/client.lua, and kong/dns/client.lua with `new_dns_client`).

mod answer;
mod background;
mod host;
mod hosts_file;
mod lookup;
mod name;
mod records;
mod resolv_conf;
mod settings;
mod statistics;
mod system;
mod transport;

#[cfg(test)]
mod tests;

pub use answer::{DnsAnswer, Record, ResolveError};
pub use background::Background;
pub use host::{Host, Next, Resolver};
pub use settings::{DnsSettings, LookupKind, parse_server};
pub use statistics::{Counters, Totals};

use std::net::IpAddr;

/// Parses an address as in a service's host: IPv6 with or without brackets.
pub fn parse_ip(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse().ok()
}
