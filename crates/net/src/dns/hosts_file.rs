//! The hosts file (hosts(5)): names that are resolved without a name server.

use super::name::normal;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses by name, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostsFile(HashMap<Box<str>, Vec<IpAddr>>);

impl HostsFile {
    /// Parses the file and skips invalid lines. If the file does not contain `localhost`, the loopback addresses are
    /// added for it, as in Kong.
    pub(super) fn parse(text: &str) -> Self {
        let mut hosts: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(address) = words.next().and_then(address) else {
                continue;
            };
            for name in words {
                hosts.entry(normal(name)).or_default().push(address);
            }
        }
        for addresses in hosts.values_mut() {
            let mut seen = HashSet::with_capacity(addresses.len());
            addresses.retain(|address| seen.insert(*address));
        }
        hosts
            .entry("localhost".into())
            .or_insert_with(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        Self(hosts)
    }

    /// Returns the addresses of a normalised name. A final dot is ignored.
    pub(super) fn find(&self, name: &str) -> &[IpAddr] {
        let bare = name.strip_suffix('.').unwrap_or(name);
        self.0.get(bare).map_or(&[], Vec::as_slice)
    }
}

/// Parses an address. Returns `None` for an address with a zone (`fe80::1%eth0`), because a connection to it would need
/// to be bound to that network interface.
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_with_all_their_addresses() {
        let hosts = HostsFile::parse(
            "10.0.0.1 Db.Test db # the first\n10.0.0.2 db\n10.0.0.1 db\nfd00::1 db\n\nnonsense db\n10.0.0.3\n",
        );
        let expected: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2", "fd00::1"]
            .map(|text| text.parse().unwrap())
            .into();
        assert_eq!(hosts.find("db"), expected);
        assert_eq!(hosts.find("db.test."), &expected[..1]);
        assert!(hosts.find("test").is_empty());
    }

    #[test]
    fn a_hosts_file_costs_as_much_as_it_is_long() {
        let address = |number: usize| format!("10.0.{}.{}", number / 256, number % 256);
        let shapes: [fn(&str, usize) -> String; 4] = [
            |address, _| format!("{address} a\n"),
            |address, number| format!("{address} a{number}\n"),
            |_, _| "10.0.0.1 a a.b A\n".to_owned(),
            |_, _| "# \t".to_owned(),
        ];
        testkit::cost::assert_linear(
            800,
            |size| {
                let lines = |shape: fn(&str, usize) -> String| {
                    let lines = (0..size).map(|number| shape(&address(number), number));
                    lines.collect::<String>()
                };
                shapes.map(lines)
            },
            |files| {
                for file in &files {
                    drop(HostsFile::parse(file));
                }
            },
        );
    }

    #[test]
    fn localhost_is_known_unless_the_file_says_otherwise() {
        assert_eq!(HostsFile::parse("").find("localhost").len(), 2);
        let hosts = HostsFile::parse("127.0.0.2 localhost");
        assert_eq!(
            hosts.find("localhost"),
            ["127.0.0.2".parse::<IpAddr>().unwrap()]
        );
    }
}
