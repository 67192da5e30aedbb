//! Decides for the `traditional` flavor from the routes alone, by section 4 of the reference. Every route that accepts
//! a request is ranked for that request, and the best one wins. Nothing is compiled, indexed or sorted in advance.
//!
//! In each category, Kong first searches a smaller set of routes, chosen by an attribute that matches the request. This
//! module and the router reproduce that only for hosts that are listed with the port of the request.

use crate::engine::Engines;
use crate::judge::Decision;
use crate::requests::Sample;
use crate::routes::Drawn;
use model::entities::Route;
use model::uri::{Slashes, normalize};
use router::{Options, RouteIndex, Scheme};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use uuid::Uuid;

pub struct Traditional {
    options: Options,
    routes: Vec<(RouteIndex, Route)>,
}

/// The smallest rank wins. [`rank`] shows the meaning of each part.
type Rank = (
    (Reverse<u32>, Reverse<u8>, Reverse<bool>),
    (Reverse<u8>, Reverse<usize>, Reverse<i64>, Reverse<usize>),
    (i64, Uuid, usize),
);

/// The parts of a request as Kong extracts them.
struct Asked<'s> {
    sample: &'s Sample,
    path: Vec<u8>,
    host: Option<Host>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The `Host` header in the three forms that are compared.
struct Host {
    sent: Vec<u8>,
    without_port: Vec<u8>,
    with_port: Vec<u8>,
    has_port: bool,
}

/// The part of a request's path that a route's path matched.
#[derive(Default)]
struct Taken {
    range: Option<Range<usize>>,
    captures: BTreeMap<String, Vec<u8>>,
}

impl Traditional {
    pub fn new<'r>(
        routes: impl IntoIterator<Item = (RouteIndex, &'r Drawn)>,
        options: Options,
    ) -> Self {
        let routes = routes.into_iter();
        let routes = routes.map(|(index, drawn)| (index, drawn.route.clone()));
        let of_http = |(_, route): &(_, Route)| route.protocols.iter().any(|own| own.is_http());
        Self {
            options,
            routes: routes.filter(of_http).collect(),
        }
    }

    pub fn decide(&self, sample: &Sample, engines: &mut Engines) -> Option<Decision> {
        let asked = Asked::new(sample, self.options);
        let mut best: Option<(Rank, Decision)> = None;
        for (index, route) in &self.routes {
            if !asked.passes_all_but_paths(route, engines) {
                continue;
            }
            for (number, path) in split_by_path(route).into_iter().enumerate() {
                let Some(taken) = asked.path(path, engines) else {
                    continue;
                };
                let rank = rank(route, path, number, asked.has_listed_port(route));
                if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                    best = Some((rank, asked.answer(*index, route, taken)));
                }
            }
        }
        best.map(|(_, answer)| answer)
    }
}

/// Splits a route with several paths into as many routes, which share everything else.
fn split_by_path(route: &Route) -> Vec<Option<&str>> {
    if route.paths.is_empty() {
        vec![None]
    } else {
        route.paths.iter().map(|path| Some(path.as_str())).collect()
    }
}

/// Returns the rank of one path of a route, by sections 4.1 and 4.2 of the reference. In Kong, the order of routes of
/// the same age is random. The router prefers the smaller id, and within a route the earlier path.
fn rank(route: &Route, path: Option<&str>, number: usize, listed_port: bool) -> Rank {
    let headers = counted(route).count();
    let regex = path.is_some_and(|path| path.starts_with('~'));
    let kinds = [
        !route.hosts.is_empty(),
        headers > 0,
        path.is_some(),
        !route.methods.is_empty(),
        !route.snis.is_empty(),
    ];
    let category = kinds
        .iter()
        .fold(0, |bits, used| bits << 1 | u8::from(*used))
        << 2;
    let wildcards = || route.hosts.iter().filter(|host| host.contains('*'));
    let plain_only = !route.hosts.is_empty() && wildcards().next().is_none();
    let wildcard_with_port = wildcards().any(|host| has_port(host));
    let refinement = u8::from(wildcard_with_port) * 4 + u8::from(plain_only) * 2 + u8::from(regex);
    let (priority, length) = match path {
        Some(_) if regex => (route.regex_priority.unwrap_or(0), 0),
        Some(path) => (0, path.len()),
        None => (0, 0),
    };
    (
        (
            Reverse(category.count_ones()),
            Reverse(category),
            Reverse(listed_port),
        ),
        (
            Reverse(refinement),
            Reverse(headers),
            Reverse(priority),
            Reverse(length),
        ),
        (route.created_at, route.id.0, number),
    )
}

/// Returns the conditions on headers. The header `host` is skipped, because routes have a separate list of hosts.
fn counted(route: &Route) -> impl Iterator<Item = (String, Vec<&str>)> {
    let named = route.headers.iter().map(|(name, values)| {
        let values = values.iter().map(|value| value.as_str()).collect();
        (name.as_str().to_ascii_lowercase(), values)
    });
    named.filter(|(name, _)| name != "host")
}

fn has_port(host: &str) -> bool {
    Host::new(host.as_bytes(), "80").has_port
}

impl<'s> Asked<'s> {
    fn new(sample: &'s Sample, options: Options) -> Self {
        let port = match sample.scheme {
            Scheme::Http => "80",
            Scheme::Https => "443",
        };
        let headers = sample.headers.iter().take(options.max_headers);
        let lowered = |text: &Vec<u8>| text.to_ascii_lowercase();
        Self {
            path: normalize(&sample.path, Slashes::Merge).into_owned(),
            host: sample.host.as_deref().map(|sent| Host::new(sent, port)),
            headers: headers
                .map(|(name, value)| (lowered(name), lowered(value)))
                .collect(),
            sample,
        }
    }

    fn passes_all_but_paths(&self, route: &Route, engines: &mut Engines) -> bool {
        let method = |own: &str| own.to_ascii_uppercase() == self.sample.method;
        (route.methods.is_empty() || route.methods.iter().any(|own| method(own)))
            && (route.snis.is_empty() || self.sni(route))
            && (route.hosts.is_empty() || self.host(route, engines))
            && counted(route).all(|(name, values)| self.header(&name, &values, engines))
    }

    /// Whether the route lists the SNI of the request. A request without TLS always passes.
    fn sni(&self, route: &Route) -> bool {
        let listed = |name: &str| {
            let mut own = route.snis.iter().map(|own| match own.len() {
                0 | 1 => own.as_str(),
                _ => own.strip_suffix('.').unwrap_or(own),
            });
            own.any(|own| own == name)
        };
        self.sample.scheme == Scheme::Http || self.sample.sni.as_deref().is_some_and(listed)
    }

    fn host(&self, route: &Route, engines: &mut Engines) -> bool {
        let Some(host) = &self.host else {
            return false;
        };
        route.hosts.iter().any(|own| {
            if own.contains('*') {
                let regex = wildcard_regex(own);
                engines.search(&regex, &host.with_port).is_some()
            } else {
                host.sent == own.as_bytes() || host.without_port == own.as_bytes()
            }
        })
    }

    /// Whether the host of the request, including the port, is listed in the route.
    fn has_listed_port(&self, route: &Route) -> bool {
        let Some(host) = &self.host else {
            return false;
        };
        let mut plain = route.hosts.iter().filter(|own| !own.contains('*'));
        plain.any(|own| host.sent == own.as_bytes() && has_port(own))
    }

    /// Whether a value of the header is listed. A list of exactly one value may be a regex, which is searched in the
    /// lower-case value of the request.
    fn header(&self, name: &str, values: &[&str], engines: &mut Engines) -> bool {
        let own = self
            .headers
            .iter()
            .filter(|(own, _)| own == name.as_bytes());
        let mut sent = own.map(|(_, value)| value);
        let pattern = match values {
            [only] => only.strip_prefix("~*"),
            _ => None,
        };
        sent.any(|sent| match pattern {
            Some(pattern) => engines.search(pattern, sent).is_some(),
            None => values
                .iter()
                .any(|value| value.to_ascii_lowercase().as_bytes() == sent),
        })
    }

    fn path(&self, path: Option<&str>, engines: &mut Engines) -> Option<Taken> {
        let Some(path) = path else {
            return Some(Taken::default());
        };
        let Some(pattern) = path.strip_prefix('~') else {
            let range = Some(0..path.len());
            let captures = BTreeMap::new();
            return self
                .path
                .starts_with(path.as_bytes())
                .then_some(Taken { range, captures });
        };
        let found = engines.search(&format!(r"\A(?:{pattern})"), &self.path)?;
        Some(Taken {
            range: Some(found.range),
            captures: found.groups,
        })
    }

    fn answer(&self, index: RouteIndex, route: &Route, taken: Taken) -> Decision {
        // Like Kong, the router strips nothing if the path's match is empty.
        let range = taken
            .range
            .filter(|range| route.strip_path && !range.is_empty());
        Decision {
            route: index,
            prefix: range.map(|range| self.path[range].to_vec()),
            captures: taken.captures,
        }
    }
}

/// Returns the regex for a wildcard host, by section 4.4 of the reference. A dot matches itself, and an asterisk
/// matches one or more characters. A host without a port matches any port.
fn wildcard_regex(host: &str) -> String {
    let name = host.replace('.', r"\.").replace('*', ".+");
    let port = if has_port(host) { "" } else { r"(?::\d+)?" };
    format!(r"\A{name}{port}\z")
}

impl Host {
    /// Splits a host as Kong does. Brackets are removed if only a port, or nothing, follows them. A host without
    /// brackets has a port only if it contains a single colon and a number follows it.
    fn new(sent: &[u8], default_port: &str) -> Self {
        let with_default = |start: &[u8]| [start, b":", default_port.as_bytes()].concat();
        let bare = sent.strip_suffix(b":").unwrap_or(sent);
        let of = |without_port: &[u8], with_port: Option<Vec<u8>>| Self {
            sent: sent.to_vec(),
            without_port: without_port.to_vec(),
            has_port: with_port.is_none(),
            with_port: with_port.unwrap_or_else(|| sent.to_vec()),
        };
        if sent.first() == Some(&b'[') {
            let end = sent.windows(2).skip(1).position(|pair| pair == b"]:");
            return match end.map(|end| (&sent[1..=end], &sent[end + 3..])) {
                _ if sent.last() == Some(&b']') => {
                    let inner = sent.get(1..sent.len() - 1).unwrap_or(b"");
                    of(inner, Some(with_default(sent)))
                }
                Some((inner, b"")) => of(inner, Some(with_default(bare))),
                Some((inner, digits)) if is_number(digits) => of(inner, None),
                _ => of(sent, Some(with_default(sent))),
            };
        }
        match sent.iter().position(|byte| *byte == b':') {
            None => of(sent, Some(with_default(sent))),
            Some(colon) if colon + 1 == sent.len() => of(bare, Some(with_default(bare))),
            Some(colon) if is_number(&sent[colon + 1..]) => of(&sent[..colon], None),
            Some(_) => {
                let bracketed = [b"[", sent, b"]"].concat();
                of(sent, Some(with_default(&bracketed)))
            }
        }
    }
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}
