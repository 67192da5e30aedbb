//! The order in which candidates are tried.

mod words;

pub(crate) use words::Word;

use crate::Calculation;
use crate::bucket::Rank;
use crate::host::Host;
use model::entities::Route;
use std::cmp::Reverse;

const PLAIN_HOSTS: u64 = 1 << 60;
const REGEX_PATH: u64 = 1 << 51;
const MAX_HEADERS: usize = 255;
const PATH_LENGTH: u64 = 0x7_FFFF;

/// The criteria by which the `traditional_compatible` flavor orders candidates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weight {
    kinds: u32,
    plain_hosts: bool,
    headers: u32,
    /// `Some` if the path is a regex.
    regex_priority: Option<i64>,
    path_length: usize,
}

impl Weight {
    /// Returns the weight of a candidate with these paths, which are either all regexes or all plain and of the same
    /// length.
    pub(crate) fn new(route: &Route, paths: &[&str]) -> Self {
        let used = [
            !route.methods.is_empty(),
            !route.hosts.is_empty(),
            !route.headers.is_empty(),
            !route.snis.is_empty(),
            !paths.is_empty(),
            !route.sources.is_empty(),
            !route.destinations.is_empty(),
        ];
        let first = paths.first().copied().unwrap_or("");
        let regex = first.starts_with('~');
        Self {
            kinds: used.iter().map(|&used| u32::from(used)).sum(),
            plain_hosts: !route.hosts.is_empty() && !has_wildcard(route),
            headers: u32::try_from(route.headers.len().min(MAX_HEADERS)).unwrap_or(u32::MAX),
            regex_priority: regex.then_some(route.regex_priority.unwrap_or(0)),
            path_length: if regex { 0 } else { first.len() },
        }
    }

    pub(crate) fn word(&self, calculation: Calculation) -> u64 {
        match calculation {
            Calculation::Original => self.original_word(),
            Calculation::Strict => self.strict_word(),
        }
    }

    fn strict_word(&self) -> u64 {
        // The layout has no room for a negative regex_priority; it counts as zero.
        let regex_priority = self.regex_priority.unwrap_or(0).max(0);
        let regex_priority = u64::from(u32::try_from(regex_priority).unwrap_or(u32::MAX));
        u64::from(self.kinds.min(7)) << 61
            | self.flags()
            | u64::from(self.headers) << 52
            | regex_priority << 19
            | self.length()
    }

    /// Computes the word as Kong 3.9.1 does. Kong shifts three of the parts as 32-bit numbers, by the distance modulo
    /// 32. If the result is negative, only the top bit of the word is set for this part. If no flag is set, Kong first
    /// combines all parts in 32 bits.
    fn original_word(&self) -> u64 {
        let kinds = self.kinds << 29;
        let headers = self.headers << 20;
        let length = u32::try_from(self.length()).unwrap_or(u32::MAX);
        if self.flags() == 0 {
            return widen(kinds | headers | length);
        }
        // Kong truncates the number to its lower 32 bits.
        let regex_priority = (self.regex_priority.unwrap_or(0) as u32) << 19;
        self.flags() | widen(kinds) | widen(headers) | widen(regex_priority) | self.length()
    }

    fn flags(&self) -> u64 {
        let plain_hosts = if self.plain_hosts { PLAIN_HOSTS } else { 0 };
        let regex = self.regex_priority.map_or(0, |_| REGEX_PATH);
        plain_hosts | regex
    }

    fn length(&self) -> u64 {
        self.path_length as u64 & PATH_LENGTH
    }
}

fn widen(number: u32) -> u64 {
    if number >> 31 == 1 {
        1 << 63
    } else {
        u64::from(number)
    }
}

/// The criteria by which the `traditional` flavor orders candidates, the most important first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Traditional {
    kinds: Reverse<u32>,
    /// The attribute types as bits: hosts rank before headers, then paths, methods and SNIs.
    category: Reverse<u8>,
    /// Whether the hosts of the candidate are written with a port. Kong searches such hosts first.
    hosts_with_port: Reverse<bool>,
    /// Flags for a wildcard host with a port, plain hosts and a regex path, in this order of importance.
    refinement: Reverse<u8>,
    headers: Reverse<usize>,
    regex_priority: Reverse<i64>,
    path_length: Reverse<usize>,
    created_at: i64,
}

impl Traditional {
    /// Whether the two differ at most in age.
    pub(crate) fn ranks_as(&self, other: &Self) -> bool {
        let created_at = self.created_at;
        let other = Self {
            created_at,
            ..other.clone()
        };
        *self == other
    }

    /// Returns the priority of a candidate with this path. `headers` is the number of headers that are matched.
    pub(crate) fn new(
        route: &Route,
        path: Option<&str>,
        headers: usize,
        hosts_with_port: bool,
    ) -> Self {
        let regex = path.is_some_and(|path| path.starts_with('~'));
        let length = path.filter(|_| !regex).map_or(0, str::len);
        let category = bit(64, !route.hosts.is_empty())
            | bit(32, headers > 0)
            | bit(16, path.is_some())
            | bit(8, !route.methods.is_empty())
            | bit(4, !route.snis.is_empty())
            | bit(2, !route.sources.is_empty())
            | bit(1, !route.destinations.is_empty());
        let wildcard_port = route.hosts.iter().any(|host| is_wildcard_with_port(host));
        let plain_hosts = !route.hosts.is_empty() && !has_wildcard(route);
        let regex_priority = route.regex_priority.unwrap_or(0);
        Self {
            kinds: Reverse(category.count_ones()),
            category: Reverse(category),
            hosts_with_port: Reverse(hosts_with_port),
            refinement: Reverse(bit(4, wildcard_port) | bit(2, plain_hosts) | bit(1, regex)),
            headers: Reverse(headers),
            regex_priority: Reverse(if regex { regex_priority } else { 0 }),
            path_length: Reverse(length),
            created_at: route.created_at,
        }
    }
}

impl Traditional {
    /// Returns the most significant part of the priority in 64 bits.
    pub(crate) fn rank(&self) -> Rank {
        // The largest values that fit into their bits. Candidates with at least `HEADERS` headers get equal ranks, even
        // if their paths differ. Otherwise a path could outweigh a larger number of headers.
        const HEADERS: usize = (1 << 9) - 1;
        const REST: i64 = (1 << 38) - 1;

        let kinds = u64::from(7 - self.kinds.0.min(7));
        let category = u64::from(!self.category.0);
        let hosts_with_port = u64::from(!self.hosts_with_port.0);
        let refinement = u64::from(7 - self.refinement.0.min(7));
        let headers = HEADERS - self.headers.0.min(HEADERS);
        // One of the two summands is always zero: only regexes have a priority, and only plain paths have a length. A
        // regex is never compared with a plain path here, because their refinement differs.
        let length = i64::try_from(self.path_length.0).unwrap_or(REST);
        let more = match headers {
            0 => 0,
            _ => self
                .regex_priority
                .0
                .saturating_add(length)
                .clamp(-REST, REST),
        };
        let front = kinds << 12 | category << 4 | hosts_with_port << 3 | refinement;
        Rank(front << 48 | (headers as u64) << 39 | (REST - more) as u64)
    }
}

fn bit(value: u8, set: bool) -> u8 {
    if set { value } else { 0 }
}

fn has_wildcard(route: &Route) -> bool {
    route.hosts.iter().any(|host| host.contains('*'))
}

fn is_wildcard_with_port(host: &str) -> bool {
    host.contains('*') && Host::parse(host.as_bytes()).port.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(kinds: u32, plain_hosts: bool, headers: u32, regex: Option<i64>, length: usize) -> u64 {
        Weight {
            kinds,
            plain_hosts,
            headers,
            regex_priority: regex,
            path_length: length,
        }
        .word(Calculation::Original)
    }

    #[test]
    fn original_words_equal_those_recorded_from_kong() {
        assert_eq!(word(1, true, 0, None, 0), 0x1000_0000_2000_0000);
        assert_eq!(word(1, false, 0, None, 6), 0x0000_0000_2000_0006);
        assert_eq!(word(2, false, 0, None, 6), 0x0000_0000_4000_0006);
        assert_eq!(word(3, false, 1, None, 6), 0x0000_0000_6010_0006);
        assert_eq!(word(4, true, 1, None, 6), 0x9000_0000_0010_0006);
        assert_eq!(word(4, false, 1, None, 6), 0x8000_0000_0000_0000);
        assert_eq!(word(1, false, 0, Some(0), 0), 0x0008_0000_2000_0000);
        assert_eq!(word(1, false, 0, Some(2), 0), 0x0008_0000_2010_0000);
        assert_eq!(word(2, false, 1, Some(0), 0), 0x0008_0000_4010_0000);
    }

    #[test]
    fn a_regex_priority_out_of_range_sets_the_top_bit_of_the_original_word() {
        for priority in [-1, 4096] {
            assert_eq!(word(1, false, 0, Some(priority), 0) >> 63, 1);
        }
    }

    #[test]
    fn strict_words_rank_the_number_of_attribute_types_first() {
        let strict = |weight: Weight| weight.word(Calculation::Strict);
        let two_kinds = Weight {
            kinds: 2,
            plain_hosts: false,
            headers: 0,
            regex_priority: None,
            path_length: 1,
        };
        let all_of_one = Weight {
            kinds: 1,
            plain_hosts: true,
            headers: 255,
            regex_priority: Some(i64::MAX),
            path_length: 0x7_FFFF,
        };
        assert!(strict(two_kinds) > strict(all_of_one));
        let negative = Weight {
            regex_priority: Some(-5),
            ..all_of_one
        };
        assert!(strict(negative) < strict(all_of_one));
    }
}
