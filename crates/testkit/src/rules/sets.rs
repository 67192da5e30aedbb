//! Generated rule sets of any size, one for each usual kind of gateway configuration.

use super::{Api, Endpoint, Rule, RuleSet, Sample, named, spread};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of conditions in a rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Plain path prefixes.
    Prefixes,
    /// Ten plain paths on each of many hosts.
    Hosts,
    /// Rules with the same path that differ in method and one header.
    Headers,
    /// The endpoints of all public APIs, with parameters as regexes. Larger sets repeat them below other prefixes.
    Regexes,
    /// The rules of [`Kind::Regexes`] as expressions with a regex.
    Expressions,
    /// The rules of [`Kind::Regexes`] as expressions over path segments.
    Segments,
    /// Expressions over ranges of addresses, ports and numbers of segments.
    Ranges,
}

const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::Prefixes,
        Self::Hosts,
        Self::Headers,
        Self::Regexes,
        Self::Expressions,
        Self::Segments,
        Self::Ranges,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Prefixes => "prefixes",
            Self::Hosts => "hosts",
            Self::Headers => "headers",
            Self::Regexes => "api-regexes",
            Self::Expressions => "api-expressions",
            Self::Segments => "api-segments",
            Self::Ranges => "ranges",
        }
    }

    /// Whether the rules are expressions, which not every router flavor supports.
    pub fn is_of_expressions(self) -> bool {
        matches!(self, Self::Expressions | Self::Segments | Self::Ranges)
    }

    /// Returns a set of `count` rules with `requests` hits and as many misses.
    pub fn set(self, count: usize, requests: usize) -> RuleSet {
        match self {
            Self::Prefixes => prefixes(count, requests),
            Self::Hosts => hosts(count, requests),
            Self::Headers => headers(count, requests),
            Self::Regexes => of_apis(count, requests, |prefix, endpoint| Rule {
                methods: endpoint.methods.clone(),
                path: Some(format!("~{prefix}{}", endpoint.template.regex())),
                ..Rule::default()
            }),
            Self::Expressions => of_apis(count, requests, |prefix, endpoint| Rule {
                expression: Some(endpoint.regex_expression(prefix)),
                ..Rule::default()
            }),
            Self::Segments => of_apis(count, requests, |prefix, endpoint| Rule {
                expression: Some(endpoint.segments_expression(prefix)),
                ..Rule::default()
            }),
            Self::Ranges => ranges(count, requests),
        }
    }
}

/// Returns rules like those in the benchmark's configurations.
fn prefixes(count: usize, requests: usize) -> RuleSet {
    let path = |number: usize| format!("/service-{}/route-{number}", number % 100);
    let rule = |number| Rule {
        path: Some(path(number)),
        ..Rule::default()
    };
    RuleSet {
        rules: (0..count).map(rule).collect(),
        hits: turns(requests, count)
            .map(|(turn, number)| {
                let sample = Sample::get(format!("{}/users/{turn}", path(number)));
                (sample, number)
            })
            .collect(),
        misses: spread(requests, 100)
            .map(|number| Sample::get(format!("/service-{number}/other/users/42")))
            .collect(),
    }
}

fn hosts(count: usize, requests: usize) -> RuleSet {
    let host = |number: usize| format!("host-{}.test", number / 10);
    let path = |number: usize| format!("/api/v{}", number % 10);
    let rule = |number| Rule {
        hosts: vec![host(number)],
        path: Some(path(number)),
        ..Rule::default()
    };
    let sample = |turn, number| {
        let sample = Sample::get(format!("{}/users/{turn}", path(number)));
        sample.with_host(host(number))
    };
    let miss = |number| Sample::get("/api/latest/users/42").with_host(host(number));
    RuleSet {
        rules: (0..count).map(rule).collect(),
        hits: turns(requests, count)
            .map(|(turn, number)| (sample(turn, number), number))
            .collect(),
        misses: spread(requests, count).map(miss).collect(),
    }
}

fn headers(count: usize, requests: usize) -> RuleSet {
    let version = |number: usize| named("v", number / METHODS.len());
    let method = |number: usize| METHODS[number % METHODS.len()];
    let rule = |number| Rule {
        methods: vec![method(number)],
        path: Some("/api".to_owned()),
        headers: vec![("x-version".to_owned(), version(number))],
        ..Rule::default()
    };
    let sample = |turn, number, version: String| {
        let sample = Sample::get(format!("/api/users/{turn}")).with_method(method(number));
        sample.with_header("X-Version", version)
    };
    RuleSet {
        rules: (0..count).map(rule).collect(),
        hits: turns(requests, count)
            .map(|(turn, number)| (sample(turn, number, version(number)), number))
            .collect(),
        misses: turns(requests, count)
            .map(|(turn, number)| sample(turn, number, named("none", number)))
            .collect(),
    }
}

/// Returns rules from the endpoints of all APIs. If there are fewer rules than endpoints, the rules are spread over all
/// endpoints. If there are more, the endpoints are repeated, each time below another service prefix.
fn of_apis(count: usize, requests: usize, rule: impl Fn(&str, &Endpoint) -> Rule) -> RuleSet {
    let endpoints: Vec<_> = Api::ALL.into_iter().flat_map(Api::endpoints).collect();
    let all = endpoints.len();
    let endpoint = |number: usize| {
        let at = if count < all {
            number * all / count
        } else {
            number % all
        };
        &endpoints[at]
    };
    let prefix = |number: usize| format!("/service-{}", number / all);
    let rules = (0..count).map(|number| Rule {
        priority: endpoint(number).template.priority(),
        ..rule(&prefix(number), endpoint(number))
    });
    let path = |turn: usize, number: usize| {
        let path = endpoint(number).template.path(turn);
        format!("{}{path}", prefix(number))
    };
    let hits = turns(requests, count).map(|(turn, number)| {
        let methods = &endpoint(number).methods;
        let sample = Sample::get(path(turn, number));
        (sample.with_method(methods[turn % methods.len()]), number)
    });
    // A miss has more segments than any endpoint. An endpoint that ends in `{path}` would match these segments too, so
    // below such an endpoint the miss is the path of a hit after `/none`, where no service prefix is.
    let open: Vec<_> = endpoints
        .iter()
        .filter_map(|endpoint| endpoint.template.text.strip_suffix("{path}"))
        .collect();
    let misses = turns(requests, count).map(|(turn, number)| {
        let path = path(turn, number);
        let text = format!("{}/", endpoint(number).template.text);
        if open.iter().any(|start| text.starts_with(start)) {
            Sample::get(format!("/none{path}"))
        } else {
            let path = path.trim_end_matches('/');
            Sample::get(format!("{path}/none/of/these/has/so/many/segments"))
        }
    });
    RuleSet {
        rules: rules.collect(),
        hits: hits.collect(),
        misses: misses.collect(),
    }
}

/// Returns rules of four kinds, a quarter each:
///
/// - an IPv4 block and a port
/// - a path prefix and a range of ports
/// - a path prefix and a range of segment counts
/// - an IPv6 block and a minimum segment count
fn ranges(count: usize, requests: usize) -> RuleSet {
    let rule = |number: usize| Rule {
        expression: Some(range_expression(number)),
        ..Rule::default()
    };
    let miss = |number: usize| {
        let sample = Sample::get(format!("/ports-{number}/users/42"));
        let mut sample = sample.with_host("gateway.test".to_owned());
        sample.port = 7999;
        sample
    };
    RuleSet {
        rules: (0..count).map(rule).collect(),
        hits: spread(requests, count)
            .map(|number| (range_sample(number), number))
            .collect(),
        misses: spread(requests, count).map(miss).collect(),
    }
}

/// Numbers the requests and pairs each with the index of its rule.
fn turns(requests: usize, rules: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..).zip(spread(requests, rules))
}

fn range_expression(number: usize) -> String {
    let (high, low) = (number / 4 / 256, number / 4 % 256);
    let port = 8000 + number % 1000;
    let segments = 2 + number / 4 % 3;
    match number % 4 {
        0 => format!("net.src.ip in 10.{high}.{low}.0/24 && net.dst.port == 8000"),
        1 => format!(
            r#"http.path ^= "/ports-{number}/" && net.dst.port >= {port} && net.dst.port < {}"#,
            port + 10
        ),
        2 => format!(
            r#"http.path ^= "/tree-{number}/" && http.path.segments.len >= {segments} && http.path.segments.len <= {}"#,
            segments + 2
        ),
        _ => format!(
            "net.src.ip in 2001:db8:{:x}::/48 && http.path.segments.len > 2",
            number / 4
        ),
    }
}

fn range_sample(number: usize) -> Sample {
    let group = u16::try_from(number / 4).expect("fewer than 65,536 blocks");
    let port = 8000 + u16::try_from(number % 1000).expect("a number below 1000");
    let [high, low] = group.to_be_bytes();
    let mut sample = Sample::get(match number % 4 {
        1 => format!("/ports-{number}/users/42"),
        2 => format!("/tree-{number}/users/42/orders"),
        _ => "/api/users/42/orders".to_owned(),
    });
    // This host has no port, because a port in the Host header would override the listener's port.
    sample = sample.with_host("gateway.test".to_owned());
    match number % 4 {
        0 => sample
            .source
            .set_ip(IpAddr::V4(Ipv4Addr::new(10, high, low, 77))),
        1 => sample.port = port + 5,
        2 => {}
        _ => sample.source.set_ip(IpAddr::V6(Ipv6Addr::new(
            0x2001, 0xdb8, group, 0, 0, 0, 0, 7,
        ))),
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_as_many_rules_and_requests_as_are_asked_for() {
        for kind in Kind::ALL {
            for count in [1, 10, 1000, 2000] {
                let set = kind.set(count, 100);
                assert_eq!(set.rules.len(), count);
                assert_eq!((set.hits.len(), set.misses.len()), (100, 100));
                assert!(set.hits.iter().all(|&(_, number)| number < count));
                let by_expression = set.rules.iter().all(|rule| rule.expression.is_some());
                assert_eq!(by_expression, kind.is_of_expressions());
            }
        }
    }

    #[test]
    fn rules_have_a_text_each() {
        let text = |kind: Kind| kind.set(1, 1).rules[0].text();
        assert_eq!(text(Kind::Prefixes), r#"http.path ^= "/service-0/route-0""#);
        assert_eq!(
            text(Kind::Hosts),
            r#"http.host == "host-0.test" && http.path ^= "/api/v0""#
        );
        assert_eq!(
            text(Kind::Headers),
            r#"http.method == "GET" && http.path ^= "/api" && any(lower(http.headers.x_version)) == "v-0""#
        );
        assert_eq!(
            text(Kind::Regexes),
            r##"http.method == "GET" && http.path ~ r#"^/service-0/$"#"##
        );
    }
}
