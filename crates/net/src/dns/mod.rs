//! Names to addresses, for the whole process: one resolver, whose answers all workers share.
//!
//! A snapshot holds a [`Host`] for every name it may connect to. What is known of it is read without a lock; asking the name
//! servers happens on a thread of its own ([`Background`]), ahead of the expiry of what is known, so that no request waits
//! for a name that was known before. Transport and message format are hickory's; what to ask in which order, and for how
//! long an answer is good, is here, as Kong has it (kong/resty/dns/client.lua, and kong/dns/client.lua with
//! `new_dns_client`).

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

pub use answer::{Answer, Record, ResolveError};
pub use background::Background;
pub use host::{Host, Next, Resolver};
pub use settings::{Kind, Settings, parse_server};
pub use statistics::{Counters, Totals};

use std::net::IpAddr;

/// An address as it stands in a service's host: IPv6 with or without brackets.
pub fn parse_ip(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse().ok()
}
