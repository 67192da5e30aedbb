//! Creates random routes: classic routes and routes with expressions.

use crate::pattern::Pattern;
use crate::print::print;
use crate::random::Random;
use crate::term::{AddressOperator, Lower, Operator, Taken, Term};
use crate::world::{HEADERS, QUERIES, World};
use expr::{AddressField, Comparison, NumberField, TextField};
use model::entities::{Endpoint, PathHandling, Protocol, Route, RouteId};
use router::Flavor;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A route, and the meaning of its expression if it has one.
#[derive(Debug, Clone)]
pub struct Drawn {
    pub route: Route,
    pub(crate) term: Option<Term>,
}

const PROTOCOLS: &[&[Protocol]] = &[
    &[Protocol::Http, Protocol::Https],
    &[Protocol::Https],
    &[Protocol::Http],
    &[Protocol::Grpc],
    &[Protocol::Grpcs],
    &[Protocol::Grpc, Protocol::Grpcs],
];
const PRIORITIES: &[u64] = &[0, 1, 2, 3, 100, (1 << 46) - 1];

impl From<Route> for Drawn {
    /// Wraps a classic route.
    fn from(route: Route) -> Self {
        Self { route, term: None }
    }
}

impl Drawn {
    /// Returns a random route that the flavor supports.
    pub fn random(random: &mut Random, world: &World, flavor: Flavor) -> Self {
        let mut route = Route::blank(id(random));
        route.created_at = i64::try_from(random.below(3)).unwrap_or(0);
        route.strip_path = random.below(2) == 0;
        route.path_handling = *random.one(&[Some(PathHandling::V0), Some(PathHandling::V1), None]);
        if flavor == Flavor::Expressions && random.below(3) > 0 {
            route.protocols = random.one(PROTOCOLS).to_vec();
            let term = shape(random, world);
            route.expression = Some(print(&term, random));
            route.priority = Some(*random.one(PRIORITIES));
            return Self {
                route,
                term: Some(term),
            };
        }
        classic(random, world, flavor, &mut route);
        route.into()
    }
}

/// Returns a unique id; later ids are not necessarily greater.
pub(crate) fn id(random: &mut Random) -> RouteId {
    let half = random.below(usize::MAX) as u64;
    RouteId(Uuid::from_u64_pair(half, random.serial()))
}

fn classic(random: &mut Random, world: &World, flavor: Flavor, route: &mut Route) {
    if flavor != Flavor::Traditional || random.once_in(3) {
        route.protocols = random.one(PROTOCOLS).to_vec();
    }
    route.hosts = some(random, |random| host(random, world));
    route.paths = some(random, |random| path(random, world));
    route.methods = some(random, |random| random.one(&world.methods).as_str());
    route.regex_priority = Some(*random.one(&[0, 0, 1, 2, 5, -1, 4096]));
    if random.once_in(3) {
        route.headers = headers(random, world);
    }
    if random.once_in(4) {
        route.snis = some(random, |random| sni(random, world, flavor));
    }
    if flavor == Flavor::Expressions && random.once_in(4) {
        route.sources = ends(random, world);
        route.destinations = ends(random, world);
    }
    if random.once_in(40) {
        // These are more combinations of host and path than the index stores for one candidate.
        route.hosts = (0..10).map(|_| host(random, world).into()).collect();
        route.paths = (0..10).map(|_| path(random, world).into()).collect();
    }
    if random.below(10) < world.crowd {
        route.hosts = vec![world.hosts[0].as_str().into()];
        route.paths = vec![world.paths[0].as_str().into()];
    }
    // A classic route must have at least one condition. A header named `host` does not count.
    let bare = route.hosts.is_empty() && route.paths.is_empty() && route.methods.is_empty();
    let counted = route.headers.iter().any(|(name, _)| name != "host");
    if bare && !counted && route.snis.is_empty() {
        route.paths.push(path(random, world).into());
    }
}

/// Returns an empty list in half of the cases, else up to three elements.
pub(crate) fn some<T: Into<F>, F>(
    random: &mut Random,
    mut one: impl FnMut(&mut Random) -> T,
) -> Vec<F> {
    let count = random.below(6).saturating_sub(2);
    (0..count).map(|_| one(random).into()).collect()
}

fn host(random: &mut Random, world: &World) -> String {
    let host = random.one(&world.hosts).clone();
    let mut host = match (random.below(6), host.find('.'), host.rfind('.')) {
        (0, Some(dot), _) => format!("*{}", &host[dot..]),
        (1, _, Some(dot)) => format!("{}*", &host[..=dot]),
        (2, ..) if random.once_in(3) => "[::1]".to_owned(),
        _ => host,
    };
    if random.once_in(4) {
        host.push_str(&format!(":{}", random.one(&world.ports)));
    }
    host
}

fn path(random: &mut Random, world: &World) -> String {
    match random.below(3) {
        0 => format!("~{}", random.one(&world.patterns).text),
        _ => random.one(&world.paths).clone(),
    }
}

pub(crate) fn sni(random: &mut Random, world: &World, flavor: Flavor) -> String {
    let host = random.one(&world.hosts);
    let wildcards = flavor != Flavor::Traditional;
    match (random.below(5), host.find('.'), host.rfind('.')) {
        (0, Some(dot), _) if wildcards => format!("*{}", &host[dot..]),
        (1, _, Some(dot)) if wildcards => format!("{}*", &host[..=dot]),
        (2, ..) => format!("{host}."),
        _ => host.clone(),
    }
}

fn headers<N: From<String> + Ord + Clone>(random: &mut Random, world: &World) -> Vec<(N, Vec<N>)> {
    let mut headers = BTreeMap::new();
    for _ in 0..random.between(1, 2) {
        let mut name = (*random.one(HEADERS)).to_owned();
        if random.once_in(5) {
            name.make_ascii_uppercase();
        }
        let values = (0..random.between(1, 3)).map(|_| match random.below(6) {
            0 => format!("~*{}", lowered_pattern(random, world)),
            _ => random.one(&world.values).clone(),
        });
        let values = values.map(N::from).collect();
        headers.insert(N::from(name), values);
    }
    headers.into_iter().collect()
}

/// Returns a pattern that is a valid regex in lower case too, because the flavors other than `traditional` compile it
/// in lower case.
fn lowered_pattern<'w>(random: &mut Random, world: &'w World) -> &'w str {
    let pattern: &Pattern = random.one(&world.patterns);
    let lowered = pattern.text.to_ascii_lowercase();
    match regex::bytes::Regex::new(&lowered) {
        Ok(_) => &pattern.text,
        Err(_) => "^t",
    }
}

pub(crate) fn ends(random: &mut Random, world: &World) -> Vec<Endpoint> {
    let mut ends = Vec::new();
    for _ in 0..random.below(3) {
        let ip = match random.below(3) {
            0 => None,
            1 => Some(world.address(random).to_canonical().to_string()),
            _ => Some(random.one(&world.blocks).to_string()),
        };
        let port = (ip.is_none() || random.below(2) == 0).then(|| *random.one(&world.ports));
        ends.push(Endpoint {
            ip: ip.map(Into::into),
            port,
        });
    }
    ends
}

/// Returns a typical expression or a completely random one.
pub(crate) fn shape(random: &mut Random, world: &World) -> Term {
    if world.streams || random.below(2) == 0 {
        return term(random, world, 4);
    }
    let mut parts = Vec::new();
    let crowded = random.below(10) < world.crowd;
    let host = if crowded {
        &world.hosts[0]
    } else {
        random.one(&world.hosts)
    };
    let path = if crowded {
        &world.paths[0]
    } else {
        random.one(&world.paths)
    };
    if crowded || random.below(2) == 0 {
        parts.push(Term::text(TextField::Host, Operator::Equal, host));
    }
    let operator = *random.one(&[Operator::StartsWith, Operator::Equal]);
    parts.push(Term::text(TextField::Path, operator, path));
    for _ in 0..random.below(3) {
        parts.push(term(random, world, 1));
    }
    Term::And(parts)
}

fn term(random: &mut Random, world: &World, depth: usize) -> Term {
    let several = |random: &mut Random| {
        let count = random.between(2, 4);
        (0..count).map(|_| term(random, world, depth - 1)).collect()
    };
    match random.below(if depth == 0 { 5 } else { 10 }) {
        0..=3 => text_test(random, world),
        4 => other_test(random, world),
        5 | 6 => Term::And(several(random)),
        7 | 8 => Term::Or(several(random)),
        _ => Term::Not(Box::new(term(random, world, depth - 1))),
    }
}

fn text_test(random: &mut Random, world: &World) -> Term {
    let (field, literal) = text_field(random, world);
    let operator = *random.one(&[
        Operator::Equal,
        Operator::StartsWith,
        Operator::EndsWith,
        Operator::Contains,
        Operator::Differs,
        Operator::Matches,
        Operator::Equal,
        Operator::StartsWith,
    ]);
    let mut literal = match operator {
        Operator::Matches => regex_of(random, world, &field, &literal),
        Operator::Equal | Operator::Differs => literal,
        Operator::StartsWith => beginning(random, &literal).to_owned(),
        Operator::EndsWith => literal[beginning(random, &literal).len()..].to_owned(),
        Operator::Contains => {
            let rest = &literal[beginning(random, &literal).len()..];
            beginning(random, rest).to_owned()
        }
    };
    let several = field.has_several_values();
    let taken = Taken {
        any: several && random.below(2) == 0,
        lower: if random.once_in(5) {
            Lower::Unicode
        } else {
            Lower::No
        },
    };
    if taken.lower == Lower::Unicode && operator != Operator::Matches && random.below(3) > 0 {
        literal = literal.to_lowercase();
    }
    Term::Text(field, taken, operator, literal)
}

/// Returns the start of the text, often all of it.
fn beginning<'t>(random: &mut Random, text: &'t str) -> &'t str {
    let ends: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
    match random.below(3) {
        0 if !ends.is_empty() => &text[..*random.one(&ends)],
        _ => text,
    }
}

fn regex_of(random: &mut Random, world: &World, field: &TextField, literal: &str) -> String {
    let escaped = regex::escape(literal);
    match (random.below(6), field) {
        (0, _) => format!("^{escaped}"),
        (1, _) => format!("{escaped}$"),
        (2, TextField::Host | TextField::Sni) => r"^[a-z]+\.test$".to_owned(),
        (3, _) => format!("^(?<whole>{escaped})$|x"),
        (4, _) => format!("^{}", random.one(&world.patterns).text),
        _ => random.one(&world.patterns).text.clone(),
    }
}

/// Returns a field and a value of it that requests may have.
fn text_field(random: &mut Random, world: &World) -> (TextField, String) {
    let path = random.one(&world.paths).clone();
    if world.streams {
        return match random.below(3) {
            0 => (
                TextField::Protocol,
                random.word(&["tcp", "tls", "udp"]).to_owned(),
            ),
            _ => (TextField::Sni, random.one(&world.hosts).to_lowercase()),
        };
    }
    match random.below(16) {
        0..=4 => (TextField::Path, path),
        5..=7 => (TextField::Host, random.one(&world.hosts).clone()),
        8 => (TextField::Method, random.one(&world.methods).clone()),
        9 => (TextField::Sni, random.one(&world.hosts).clone()),
        10 => (
            TextField::Protocol,
            (*random.one(&["https", "http"])).to_owned(),
        ),
        11 => segments(random, &path),
        12 | 13 => {
            let name = random.one(HEADERS).replace('-', "_");
            (
                TextField::Header(name.into()),
                random.one(&world.values).clone(),
            )
        }
        _ => {
            let name = (*random.one(QUERIES)).into();
            (TextField::Query(name), random.one(&world.values).clone())
        }
    }
}

fn segments(random: &mut Random, path: &str) -> (TextField, String) {
    let all: Vec<_> = path.split('/').skip(1).collect();
    let first = random.below(all.len());
    let last = first + random.below(3);
    let value = all
        .get(first..=last)
        .map_or_else(String::new, |some| some.join("/"));
    let narrow = |number: usize| u32::try_from(number).unwrap_or(0);
    let field = TextField::Segments {
        first: narrow(first),
        last: narrow(last),
    };
    (field, value)
}

fn other_test(random: &mut Random, world: &World) -> Term {
    let comparison = *random.one(&[
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ]);
    match random.below(5) {
        0 if !world.streams => {
            let value = i64::try_from(random.below(6)).unwrap_or(0);
            Term::Number(NumberField::SegmentCount, comparison, value)
        }
        0..=2 => {
            let field = *random.one(&[NumberField::DestinationPort, NumberField::SourcePort]);
            let near = *random.one(&[0, 0, 1, -1, 100_000, i64::MIN, -80]);
            let value = i64::from(*random.one(&world.ports)).saturating_add(near);
            Term::Number(field, comparison, value)
        }
        _ => {
            let field = *random.one(&[AddressField::Source, AddressField::Destination]);
            let address = world.address(random).to_canonical();
            let block = *random.one(&world.blocks);
            let operator = match random.below(6) {
                0 | 1 => AddressOperator::Equal(address),
                2 => AddressOperator::Differs(address),
                3 | 4 => AddressOperator::In(block),
                _ => AddressOperator::NotIn(block),
            };
            Term::Address(field, operator)
        }
    }
}
