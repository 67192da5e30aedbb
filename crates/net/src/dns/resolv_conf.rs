//! Parses resolv.conf(5): the name servers, the search list and the options. Invalid lines are skipped, as in glibc.

use super::name::absolute_name;
use super::settings::parse_server;
use hickory_resolver::proto::rr::Name;
use std::net::SocketAddr;
use std::time::Duration;

/// Kong's timeout (lua-resty-dns). glibc's default of 5 seconds is longer than most clients wait.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;
const NDOTS: usize = 1;

/// Upper limits of glibc.
const MAX_TIMEOUT: u64 = 30;
const MAX_ATTEMPTS: usize = 5;
const MAX_NDOTS: usize = 15;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvConf {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) search: Vec<Name>,
    pub(super) ndots: usize,
    /// Maximum time for one response of one name server.
    pub(super) timeout: Duration,
    /// Number of rounds over all name servers.
    pub(super) attempts: usize,
    /// Whether each query starts with another name server.
    pub(super) rotate: bool,
}

impl Default for ResolvConf {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: NDOTS,
            timeout: TIMEOUT,
            attempts: ATTEMPTS,
            rotate: false,
        }
    }
}

impl ResolvConf {
    pub(super) fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                // glibc accepts only addresses; Kong also accepts a port.
                Some("nameserver") => conf.servers.extend(words.next().and_then(parse_server)),
                // The last `domain` or `search` line wins.
                Some("domain") => conf.search = words.take(1).filter_map(domain).collect(),
                Some("search") => conf.search = words.filter_map(domain).collect(),
                Some("options") => words.for_each(|option| conf.set(option)),
                _ => {}
            }
        }
        conf
    }

    fn set(&mut self, option: &str) {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        match (name, value.parse::<u64>().ok()) {
            ("ndots", Some(ndots)) => self.ndots = bounded(ndots, MAX_NDOTS),
            ("attempts", Some(attempts)) if attempts > 0 => {
                self.attempts = bounded(attempts, MAX_ATTEMPTS);
            }
            ("timeout", Some(seconds)) if seconds > 0 => {
                self.timeout = Duration::from_secs(seconds.min(MAX_TIMEOUT));
            }
            ("rotate", _) => self.rotate = true,
            _ => {}
        }
    }
}

fn bounded(number: u64, most: usize) -> usize {
    usize::try_from(number).map_or(most, |number| number.min(most))
}

/// Parses a search domain. The root is skipped, because it adds nothing to a name.
fn domain(text: &str) -> Option<Name> {
    let bare = text.strip_suffix('.').unwrap_or(text);
    absolute_name(bare).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_file_is_understood() {
        let conf = ResolvConf::parse(
            "# made by hand\nnameserver 10.96.0.10\nnameserver fd00::1 ; the other\nsearch default.svc.cluster.local \
             svc.cluster.local\noptions ndots:5 timeout:1 attempts:3 rotate edns0\n",
        );
        let servers: Vec<String> = conf.servers.iter().map(SocketAddr::to_string).collect();
        assert_eq!(servers, ["10.96.0.10:53", "[fd00::1]:53"]);
        let search: Vec<String> = conf.search.iter().map(Name::to_ascii).collect();
        assert_eq!(search, ["default.svc.cluster.local.", "svc.cluster.local."]);
        assert_eq!((conf.ndots, conf.attempts, conf.rotate), (5, 3, true));
        assert_eq!(conf.timeout, Duration::from_secs(1));
    }

    #[test]
    fn the_last_of_search_and_domain_counts() {
        let search = |text: &str| {
            let conf = ResolvConf::parse(text);
            conf.search.iter().map(Name::to_ascii).collect::<Vec<_>>()
        };
        assert_eq!(search("search a.test b.test\ndomain c.test"), ["c.test."]);
        assert_eq!(
            search("domain c.test\nsearch a.test b.test\nsearch ."),
            [""; 0]
        );
    }

    #[test]
    fn a_file_costs_as_much_as_it_is_long() {
        let shapes: [fn(usize) -> String; 5] = [
            |number| format!("nameserver 10.0.{}.{}\n", number / 256, number % 256),
            |number| format!("search a{number}.test\n"),
            |_| "options rotate ndots:3 timeout:1\n".to_owned(),
            |_| ";# ".to_owned(),
            |_| "nameserver ".to_owned(),
        ];
        testkit::cost::assert_linear(
            400,
            |size| {
                let lines = |shape: fn(usize) -> String| (0..size).map(shape).collect::<String>();
                let words: String = (0..size).map(|number| format!(" a{number}.test")).collect();
                let mut files = shapes.map(lines).to_vec();
                files.push(format!("search{words}"));
                files
            },
            |files| {
                for file in &files {
                    drop(ResolvConf::parse(file));
                }
            },
        );
    }

    #[test]
    fn nonsense_leaves_the_defaults() {
        let conf = ResolvConf::parse(
            "nameserver\nnameserver nowhere\noptions\noptions ndots: timeout:0 attempts:-1 ndots\nfoo bar\n\u{0}",
        );
        assert_eq!(conf, ResolvConf::default());
        let conf = ResolvConf::parse("options ndots:99999999999 timeout:4000 attempts:77");
        assert_eq!((conf.ndots, conf.attempts), (MAX_NDOTS, MAX_ATTEMPTS));
        assert_eq!(conf.timeout, Duration::from_secs(MAX_TIMEOUT));
    }
}
