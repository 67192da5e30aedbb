//! Decides from the routes alone. The conditions of the routes and their order follow the reference. This module is for
//! the flavors other than `traditional`; [`Traditional`](crate::Traditional) is for that one.

use crate::engine::Engines;
use crate::facts::Facts;
use crate::judge::{Decision, Judged};
use crate::requests::Sample;
use crate::routes::Drawn;
use crate::term::{AddressOperator, Lower, Operator, Taken, Term};
use expr::{AddressField, Block, Comparison, NumberField, TextField};
use model::entities::{Endpoint, Protocol, Route};
use router::{Calculation, Flavor, Options, RouteIndex};
use uuid::Uuid;

/// Kong's UUID namespace for the parts of a split route. A route is split if its paths have different priorities.
const NAMESPACE: Uuid = Uuid::from_u128(0x7f14_5bf9_0dce_4f91_98eb_debb_ce4b_9f6b);

pub struct Naive {
    options: Options,
    candidates: Vec<Judged>,
}

impl Naive {
    pub fn new<'r>(
        routes: impl IntoIterator<Item = (RouteIndex, &'r Drawn)>,
        options: Options,
    ) -> Self {
        let mut ranked = Vec::new();
        for (index, drawn) in routes {
            let route = &drawn.route;
            if !route.protocols.iter().any(|protocol| protocol.is_http()) {
                continue;
            }
            for (word, id, term) in candidates(drawn, options) {
                let judged = Judged {
                    route: index,
                    term,
                    strips: route.strip_path,
                };
                ranked.push((word, id, judged));
            }
        }
        ranked.sort_by_key(|(word, id, _)| std::cmp::Reverse((*word, *id)));
        Self {
            options,
            candidates: ranked.into_iter().map(|(_, _, judged)| judged).collect(),
        }
    }

    pub fn decide(&self, sample: &Sample, engines: &mut Engines) -> Option<Decision> {
        let facts = Facts::new(sample, self.options);
        let mut candidates = self.candidates.iter();
        candidates.find_map(|candidate| candidate.ask(&facts, engines))
    }

    pub fn order(&self) -> impl Iterator<Item = RouteIndex> {
        self.candidates.iter().map(|candidate| candidate.route)
    }
}

/// Returns priority word, id and condition of each candidate of a route.
fn candidates(drawn: &Drawn, options: Options) -> Vec<(u64, Uuid, Term)> {
    let route = &drawn.route;
    if let Some(term) = &drawn.term {
        let word = 0xFF << 56 | route.priority.unwrap_or(0);
        let term = with_protocols(term.clone(), route);
        return vec![(word, route.id.0, term)];
    }
    let groups = groups(route);
    let numbered = groups.iter().enumerate();
    let each = numbered.map(|(number, paths)| {
        let id = match groups.len() {
            1 => route.id.0,
            _ => {
                let name = format!("{}#{}", route.id.0, number + 1);
                Uuid::new_v5(&NAMESPACE, name.as_bytes())
            }
        };
        let mut term = Term::And(parts(route, paths, options));
        if options.flavor == Flavor::Expressions {
            term = with_protocols(term, route);
        }
        (word(route, paths, options.calculation), id, term)
    });
    each.collect()
}

/// Groups paths: all regexes together, plain paths by length.
fn groups(route: &Route) -> Vec<Vec<&str>> {
    let kind = |path: &str| {
        if path.starts_with('~') {
            None
        } else {
            Some(path.len())
        }
    };
    let mut groups: Vec<(Option<usize>, Vec<&str>)> = Vec::new();
    for path in route.paths.iter().map(|path| path.as_str()) {
        match groups.iter_mut().find(|(known, _)| *known == kind(path)) {
            Some((_, paths)) => paths.push(path),
            None => groups.push((kind(path), vec![path])),
        }
    }
    if groups.is_empty() {
        vec![Vec::new()]
    } else {
        groups.into_iter().map(|(_, paths)| paths).collect()
    }
}

/// Returns the conditions of a route, all of which must hold (section 5.1 of the reference).
fn parts(route: &Route, paths: &[&str], options: Options) -> Vec<Term> {
    let mut parts = Vec::new();
    if !route.snis.is_empty() {
        parts.push(snis(route, options));
    }
    if options.flavor == Flavor::Expressions {
        for (list, field, port) in [
            (
                &route.sources,
                AddressField::Source,
                NumberField::SourcePort,
            ),
            (
                &route.destinations,
                AddressField::Destination,
                NumberField::DestinationPort,
            ),
        ] {
            if !list.is_empty() {
                parts.push(Term::Or(
                    list.iter().map(|entry| end(entry, field, port)).collect(),
                ));
            }
        }
    }
    let lists = [
        route
            .methods
            .iter()
            .map(|method| method_is(method))
            .collect(),
        route.hosts.iter().map(|host| host_is(host)).collect(),
        paths.iter().map(|path| path_is(path)).collect::<Vec<_>>(),
    ];
    parts.extend(
        lists
            .into_iter()
            .filter(|list| !list.is_empty())
            .map(Term::Or),
    );
    for (name, values) in &route.headers {
        let values = values.iter().map(|value| header_is(name, value));
        parts.push(Term::Or(values.collect()));
    }
    parts
}

fn snis(route: &Route, options: Options) -> Term {
    let snis = route.snis.iter().map(|sni| {
        let name = sni.strip_suffix('.').filter(|name| !name.is_empty());
        wildcard(TextField::Sni, name.unwrap_or(sni))
    });
    let listed = Term::Or(snis.collect());
    let plain = |protocol: &Protocol| matches!(protocol, Protocol::Http | Protocol::Grpc);
    if options.calculation == Calculation::Strict && !route.protocols.iter().any(plain) {
        return listed;
    }
    let without_tls = Term::text(TextField::Protocol, Operator::Differs, "https");
    Term::Or(vec![without_tls, listed])
}

fn wildcard(field: TextField, name: &str) -> Term {
    if let Some(end) = name.strip_prefix('*') {
        Term::text(field, Operator::EndsWith, end)
    } else if let Some(start) = name.strip_suffix('*') {
        Term::text(field, Operator::StartsWith, start)
    } else {
        Term::text(field, Operator::Equal, name)
    }
}

fn end(entry: &Endpoint, field: AddressField, port: NumberField) -> Term {
    let mut parts = Vec::new();
    if let Some(Ok(block)) = entry.ip.as_deref().map(str::parse::<Block>) {
        parts.push(Term::Address(field, AddressOperator::In(block)));
    }
    if let Some(number) = entry.port {
        parts.push(Term::Number(port, Comparison::Equal, number.into()));
    }
    Term::And(parts)
}

fn method_is(method: &str) -> Term {
    Term::text(TextField::Method, Operator::Equal, method)
}

fn host_is(host: &str) -> Term {
    let split = host.split_once(':');
    let port = split.and_then(|(name, port)| Some((name, port.parse::<i64>().ok()?)));
    match port {
        None => wildcard(TextField::Host, host),
        Some((name, port)) => Term::And(vec![
            wildcard(TextField::Host, name),
            Term::Number(NumberField::DestinationPort, Comparison::Equal, port),
        ]),
    }
}

fn path_is(path: &str) -> Term {
    match path.strip_prefix('~') {
        Some(pattern) => Term::text(TextField::Path, Operator::Matches, &format!("^{pattern}")),
        None => Term::text(TextField::Path, Operator::StartsWith, path),
    }
}

fn header_is(name: &str, value: &str) -> Term {
    let field = TextField::Header(name.to_ascii_lowercase().replace('-', "_").into());
    let taken = Taken {
        any: true,
        lower: Lower::Unicode,
    };
    let value = value.to_ascii_lowercase();
    match value.strip_prefix("~*") {
        Some(pattern) => Term::Text(field, taken, Operator::Matches, pattern.to_owned()),
        None => Term::Text(field, taken, Operator::Equal, value),
    }
}

/// Adds the condition on the protocol (section 8.6 of the reference). A route for https alone has no such condition,
/// because it answers http requests with a redirect.
fn with_protocols(term: Term, route: &Route) -> Term {
    if route.protocols == [Protocol::Https] {
        return term;
    }
    let own = route.protocols.iter().map(|protocol| match protocol {
        Protocol::Https | Protocol::Grpcs => "https",
        _ => "http",
    });
    let own = own.map(|name| Term::text(TextField::Protocol, Operator::Equal, name));
    Term::And(vec![term, Term::Or(own.collect())])
}

/// Returns the priority of a route with these paths as one number (sections 5.3 and 5.4 of the reference).
fn word(route: &Route, paths: &[&str], calculation: Calculation) -> u64 {
    let kinds = [
        route.methods.len(),
        route.hosts.len(),
        route.headers.len(),
        route.snis.len(),
        route.sources.len(),
        route.destinations.len(),
        paths.len(),
    ];
    let kinds = kinds.iter().filter(|length| **length > 0).count() as u64;
    let plain = !route.hosts.is_empty() && !route.hosts.iter().any(|host| host.contains('*'));
    let regex = paths.first().is_some_and(|path| path.starts_with('~'));
    let headers = route.headers.len().min(255) as u64;
    let priority = if regex {
        route.regex_priority.unwrap_or(0)
    } else {
        0
    };
    let length = if regex {
        0
    } else {
        paths.first().map_or(0, |path| path.len()) as u64
    };
    let flags = u64::from(plain) << 60 | u64::from(regex) << 51;
    if calculation == Calculation::Strict {
        let priority = u32::try_from(priority.max(0)).unwrap_or(u32::MAX);
        return kinds << 61 | flags | headers << 52 | u64::from(priority) << 19 | length & 0x7_FFFF;
    }
    // Kong shifts these numbers in 32 bits, by the distance modulo 32. If the result is negative, Kong widens it to the
    // top bit of 64 bits alone.
    let shifted = |number: u64, by: u32| (number as u32).wrapping_shl(by) as i32;
    let widened = |number: i32| if number < 0 { 1 << 63 } else { number as u64 };
    let (kinds, headers) = (shifted(kinds, 61), shifted(headers, 52));
    if flags == 0 {
        return widened(kinds | headers | (length & 0x7_FFFF) as i32);
    }
    let priority = widened(shifted(priority as u64, 19));
    flags | widened(kinds) | widened(headers) | priority | length & 0x7_FFFF
}
