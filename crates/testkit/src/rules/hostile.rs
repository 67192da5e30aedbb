//! Adversarial rule sets and requests: each one tries to make a match as expensive as possible in a different way.

use super::{Rule, Sample, repeated};

/// Length in bytes of the long paths, which is about the most that a request head can contain.
const LONG: usize = 8 << 10;

/// A rule set that is expensive for a router, with one request.
#[derive(Debug, Clone)]
pub struct Hostile {
    pub name: &'static str,
    pub about: &'static str,
    pub rules: Vec<Rule>,
    /// A request that matches no rule, so that a router must try every possible candidate.
    pub sample: Sample,
}

/// Returns all adversarial sets. Their rules use attributes only, which every router flavor supports.
pub fn hostile() -> Vec<Hostile> {
    vec![
        Hostile {
            name: "nested-regexes",
            about: "100 regexes with nested repetitions, on which backtracking would never finish; 8 KB path",
            rules: (0..100)
                .map(|number| path(format!("~/((a+)+)+b{number}$")))
                .collect(),
            sample: Sample::get(repeated_path("a")),
        },
        Hostile {
            name: "searching-regexes",
            about: "1,000 regexes that begin with `.*`, so that no prefix excludes them; 8 KB path",
            rules: (0..1000)
                .map(|number| path(format!("~/.*x{number}$")))
                .collect(),
            sample: Sample::get(repeated_path("ax")),
        },
        Hostile {
            name: "indexed-texts",
            about: "40 regexes, each indexed by a literal text; 8 KB path that repeats some of the texts",
            rules: (0..40)
                .map(|number| path(format!("~/f/.*/name{number:02}/.*x$")))
                .collect(),
            sample: Sample::get(format!("/f/{}", repeated("name07/name11/", LONG - 3))),
        },
        Hostile {
            name: "many-indexed-texts",
            about: "1,000 regexes, each indexed by a literal text; 8 KB path that contains all of the texts",
            rules: (0..1000)
                .map(|number| path(format!("~/f/.*/name{number:03}/.*x$")))
                .collect(),
            sample: Sample::get({
                let texts = (0..1000).map(|number| format!("name{number:03}/"));
                let mut path = format!("/f/{}", texts.collect::<String>());
                path.truncate(LONG);
                path.extend(std::iter::repeat_n('/', LONG - path.len()));
                path
            }),
        },
        Hostile {
            name: "user-agents",
            about: "1,000 regexes of the User-Agent with a literal text each; a User-Agent of 8,000 bytes with all of the texts",
            rules: (0..1000)
                .map(|number| Rule {
                    headers: vec![("user-agent".to_owned(), format!("~*bot-{number:03}.*x$"))],
                    ..path("/".to_owned())
                })
                .collect(),
            sample: {
                let texts = (0..1000).map(|number| format!("bot-{number:03} "));
                Sample::get("/users/42").with_header("User-Agent", texts.collect::<String>())
            },
        },
        Hostile {
            name: "overlapping-prefixes",
            about: "4,000 prefixes, each the start of the next, with a header that is missing; 8 KB path",
            rules: (1..=4000)
                .map(|length| with_header(path(repeated_path("a")[..=length].to_owned())))
                .collect(),
            sample: Sample::get(repeated_path("a")),
        },
        Hostile {
            name: "overlapping-segments",
            about: "2,000 prefixes of whole segments, each the start of the next, with a header that is missing; 8 KB path",
            rules: (1..=2000)
                .map(|count| with_header(path("/a".repeat(count))))
                .collect(),
            sample: Sample::get(repeated_path("a/")),
        },
        Hostile {
            name: "wildcards",
            about: "1,000 overlapping wildcard hosts with a header that is missing; a host of 1,000 labels",
            rules: (1..=1000)
                .map(|count| Rule {
                    hosts: vec![format!("*.{}", "a.".repeat(count).trim_end_matches('.'))],
                    ..with_header(path("/".to_owned()))
                })
                .collect(),
            sample: Sample::get("/users/42").with_host(format!("{}a", "a.".repeat(1000))),
        },
        Hostile {
            name: "headers",
            about: "10,000 rules, each with its own header; a request with 90 other headers",
            rules: (0..10_000)
                .map(|number| Rule {
                    headers: vec![(format!("x-{number}"), "yes".to_owned())],
                    ..path("/".to_owned())
                })
                .collect(),
            sample: (0..90).fold(Sample::get("/users/42"), |sample, number| {
                sample.with_header(&format!("y-{number}"), "yes")
            }),
        },
        Hostile {
            name: "header-flood",
            about: "10,000 rules for different values of one header; a request with 90 other values of it",
            rules: (0..10_000)
                .map(|number| Rule {
                    headers: vec![("x-version".to_owned(), format!("v{number}"))],
                    ..path("/".to_owned())
                })
                .collect(),
            sample: (0..90).fold(Sample::get("/users/42"), |sample, number| {
                sample.with_header("x-version", format!("w{number}"))
            }),
        },
        Hostile {
            name: "long-path",
            about: "10,000 ordinary prefixes; a path of 8 KB that must be normalised: dots, escapes and doubled slashes",
            rules: (0..10_000)
                .map(|number| path(format!("/service-{number}")))
                .collect(),
            sample: Sample::get(repeated_path("a/../%61//./")),
        },
    ]
}

fn path(path: String) -> Rule {
    Rule {
        path: Some(path),
        ..Rule::default()
    }
}

/// Adds a header condition that no request fulfils. The other parts of the rule may match, but the rule never does, and
/// the router must try the next candidate.
fn with_header(rule: Rule) -> Rule {
    Rule {
        headers: vec![("x-none".to_owned(), "~*^yes$".to_owned())],
        ..rule
    }
}

fn repeated_path(part: &str) -> String {
    format!("/{}", repeated(part, LONG - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_as_long_as_they_can_be() {
        for set in hostile() {
            assert!(!set.rules.is_empty() && !set.about.is_empty());
            assert!(set.sample.path.len() <= LONG);
            let is_hard_by_its_path = set.about.contains("8 KB");
            assert_eq!(set.sample.path.len() == LONG, is_hard_by_its_path);
        }
    }
}
