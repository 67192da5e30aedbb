//! The words that the routes and requests of one test case share.

use crate::pattern::Pattern;
use crate::random::Random;
use expr::Block;
use std::net::IpAddr;

const METHODS: &[&str] = &["GET", "POST", "PUT", "PURGE", "PATCH"];
pub(crate) const HEADERS: &[&str] = &["x-a", "x-b", "x_c", "accept", "x-version"];
/// Names of query arguments that an expression can contain.
pub(crate) const QUERIES: &[&str] = &["a", "b", "Mode", "v_x", "a_b"];

const LABELS: &[&str] = &["a", "b", "ab", "api", "x-1", "exämple"];
const SEGMENTS: &[&str] = &[
    "a", "b", "ab", "api", "v1", "users", "7", "é", "A", "~x", "日本",
];
const VALUES: &[&str] = &[
    "1",
    "two",
    "Three",
    "a b",
    "",
    "É",
    "text/html",
    "17",
    "v1.2",
    "tw",
];
const ADDRESSES: &[&str] = &[
    "10.0.0.1",
    "10.0.0.2",
    "10.1.2.3",
    "192.168.7.9",
    "::1",
    "fd00::1",
    "fd00::ff",
    "2001:db8::7",
    "::ffff:10.0.0.1",
    "0.0.0.0",
    "255.255.255.255",
];
const BLOCKS: &[&str] = &[
    "10.0.0.0/8",
    "10.0.0.0/24",
    "10.0.0.0/31",
    "10.0.0.1/32",
    "0.0.0.0/0",
    "192.168.0.0/16",
    "fd00::/8",
    "fd00::/64",
    "::/0",
    "::1/128",
    "2001:db8::/33",
    "128.0.0.0/1",
];
const PORTS: &[u16] = &[80, 443, 8080, 1, 65535, 8000];

/// The words that routes and requests consist of.
pub struct World {
    pub(crate) hosts: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) methods: Vec<String>,
    pub(crate) values: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) ports: Vec<u16>,
    /// Whether expressions are for streams instead of requests.
    pub(crate) streams: bool,
    /// Number of routes out of 10 that have the first host and the first path. A high number makes the router's lists
    /// long and its trees deep.
    pub(crate) crowd: usize,
}

impl World {
    pub fn random(random: &mut Random) -> Self {
        let host_count = *random.one(&[3, 1, 8, 100]);
        let path_count = *random.one(&[6, 2, 20, 150]);
        let pattern_count = *random.one(&[5, 1, 20]);
        let prefix = path(random);
        let flat = random.once_in(4);
        let paths = (0..path_count).map(|number| {
            if flat {
                // One node of the router's tree then has many children.
                format!("{}/{number:02}", prefix.trim_end_matches('/'))
            } else {
                path(random)
            }
        });
        Self {
            paths: paths.collect(),
            hosts: (0..host_count).map(|number| host(random, number)).collect(),
            patterns: (0..pattern_count)
                .map(|_| Pattern::random(random))
                .collect(),
            methods: methods(random),
            values: values(random),
            addresses: parsed(ADDRESSES),
            blocks: parsed(BLOCKS),
            // With few ports, routes and requests often have the same one.
            ports: PORTS[..*random.one(&[PORTS.len(), 2, 1])].to_vec(),
            streams: false,
            crowd: *random.one(&[0, 0, 3, 9]),
        }
    }

    pub(crate) fn of_streams(random: &mut Random) -> Self {
        Self {
            streams: true,
            ..Self::random(random)
        }
    }

    /// Returns one of the addresses, sometimes with one bit changed.
    pub(crate) fn address(&self, random: &mut Random) -> IpAddr {
        let mut address = *random.one(&self.addresses);
        if random.once_in(3) {
            address = match address {
                IpAddr::V4(own) => IpAddr::V4((own.to_bits() ^ (1 << random.below(32))).into()),
                IpAddr::V6(own) => IpAddr::V6((own.to_bits() ^ (1 << random.below(128))).into()),
            };
        }
        address
    }
}

fn parsed<T: std::str::FromStr>(texts: &[&str]) -> Vec<T> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

fn host(random: &mut Random, number: usize) -> String {
    let count = random.between(1, 3);
    let labels: Vec<_> = (0..count).map(|_| *random.one(LABELS)).collect();
    match random.below(4) {
        0 => format!("{}.h{number}.test", labels.join(".")),
        1 => "a.test".to_owned(),
        _ => format!("{}.test", labels.join(".")),
    }
}

/// Returns a path in normal form.
fn path(random: &mut Random) -> String {
    let mut path = String::new();
    for _ in 0..random.below(5) {
        path.push('/');
        let segment = *random.one(SEGMENTS);
        path.push_str(segment);
    }
    if path.is_empty() || random.once_in(4) {
        path.push('/');
    }
    path
}

/// Sometimes returns more methods than the bits of the router's method sets can represent.
fn methods(random: &mut Random) -> Vec<String> {
    let many = random.once_in(6);
    let numbered = (0..if many { 60 } else { 0 }).map(|number| format!("M{number}"));
    let methods = METHODS.iter().map(|method| (*method).to_owned());
    methods.chain(numbered).collect()
}

fn values(random: &mut Random) -> Vec<String> {
    let many = random.once_in(4);
    let numbered = (0..if many { 100 } else { 0 }).map(|number| format!("v{number}"));
    let values = VALUES.iter().map(|value| (*value).to_owned());
    values.chain(numbered).collect()
}
