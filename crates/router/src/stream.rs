//! The router of streams: from the addresses and the server name of a connection to the route of protocol `tcp`, `tls`,
//! `tls_passthrough` or `udp` that applies. Source: kong/router/transform.lua (stream_get_priority, get_expression), traditional.lua.
//!
//! Asked once per connection. Candidates are expressions as those of HTTP, tried in order; names that they ask for exactly are
//! an index in front of them. As in Kong the protocols of a route take no part but in the `expressions` flavour: what a route
//! is for is looked at when it has been found.

use crate::candidate::{Problem, RouteError, RouteIndex, sni_name};
use crate::compatible::wildcard_test;
use crate::ends::{self, End, Side};
use crate::{Calculation, Flavor, Options, expressions};
use expr::{
    AddressField, Dialect, Expression, Fields, NoObserver, NumberField, Regex, Subsystem,
    TextField, TextTest, Transform,
};
use model::entities::{Protocol, Route};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use uuid::Uuid;

/// An immutable router of streams.
#[derive(Debug, Default)]
pub struct StreamRouter {
    /// In the order they are tried.
    candidates: Vec<Candidate>,
    /// For each name that is asked for exactly, who asks for it.
    by_sni: HashMap<Box<str>, Vec<u32>>,
    /// Those that a connection of any name can reach.
    any_sni: Vec<u32>,
}

/// A connection, or the first datagram of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRequest<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// In lower case. A client that names none counts as one without TLS, as in Kong.
    pub sni: Option<&'a str>,
    /// Of UDP.
    pub datagrams: bool,
}

#[derive(Debug)]
struct Candidate {
    route: RouteIndex,
    expression: Expression,
}

/// Smaller ones are tried first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Compatible(Reverse<u64>, Reverse<Uuid>),
    Traditional {
        kinds: Reverse<u32>,
        category: Reverse<u8>,
        /// Kong looks among the candidates of the very address first, then of the port, then among all.
        ends: (u8, u8),
        created_at: i64,
    },
}

impl StreamRouter {
    /// A router of those routes that streams can reach. Routes that cannot be used are left out and reported.
    pub fn build<'r>(
        routes: impl IntoIterator<Item = (RouteIndex, &'r Route)>,
        options: Options,
    ) -> (Self, Vec<RouteError>) {
        let mut placed = Vec::new();
        let mut errors = Vec::new();
        for (index, route) in routes {
            if route.protocols.iter().all(|protocol| protocol.is_http()) {
                continue;
            }
            match compile(route, options) {
                Ok(candidates) => {
                    let route = index;
                    placed.extend(
                        candidates
                            .into_iter()
                            .map(|(place, expression)| (place, Candidate { route, expression })),
                    );
                }
                Err(problem) => errors.push(RouteError {
                    route: index,
                    id: route.id,
                    problem,
                }),
            }
        }
        placed.sort_by(|(left, _), (right, _)| left.cmp(right));
        let candidates = placed.into_iter().map(|(_, candidate)| candidate);
        (Self::index(candidates.collect()), errors)
    }

    /// The routes of all candidates, in the order they are tried.
    pub fn order(&self) -> impl Iterator<Item = RouteIndex> {
        self.candidates.iter().map(|candidate| candidate.route)
    }

    fn index(candidates: Vec<Candidate>) -> Self {
        let mut by_sni: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut any_sni = Vec::new();
        for (rank, candidate) in (0..).zip(&candidates) {
            let Some(names) = demanded_names(&candidate.expression) else {
                any_sni.push(rank);
                continue;
            };
            for name in names {
                let ranks = by_sni.entry(name.into()).or_default();
                if ranks.last() != Some(&rank) {
                    ranks.push(rank);
                }
            }
        }
        Self {
            candidates,
            by_sni,
            any_sni,
        }
    }

    /// The route of a connection.
    pub fn matches(&self, request: &StreamRequest<'_>) -> Option<RouteIndex> {
        let found = self.find(&request.canonical());
        found.map(|rank| self.candidates[rank as usize].route)
    }

    /// All candidates in the order they are tried.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = (RouteIndex, &Expression)> {
        let candidates = self.candidates.iter();
        candidates.map(|candidate| (candidate.route, &candidate.expression))
    }

    /// The candidates that the names lead to.
    pub(crate) fn reachable(&self, request: &StreamRequest<'_>) -> Vec<u32> {
        match request.sni {
            Some(name) if !request.datagrams => {
                let named = self.by_sni.get(name).into_iter().flatten();
                named.chain(&self.any_sni).copied().collect()
            }
            _ => (0..self.candidates.len() as u32).collect(),
        }
    }

    /// The first candidate that accepts a connection.
    pub(crate) fn find(&self, request: &StreamRequest<'_>) -> Option<u32> {
        match request.sni {
            Some(name) if !request.datagrams => {
                let named = self.by_sni.get(name).map_or(&[][..], Vec::as_slice);
                let named = self.first(named.iter().copied(), request);
                let others = self.first(self.any_sni.iter().copied(), request);
                [named, others].into_iter().flatten().min()
            }
            _ => self.first(0..self.candidates.len() as u32, request),
        }
    }

    /// The first of these candidates that accepts the connection.
    fn first(
        &self,
        mut ranks: impl Iterator<Item = u32>,
        request: &StreamRequest<'_>,
    ) -> Option<u32> {
        let mut buffer = Vec::new();
        ranks.find(|&rank| {
            let expression = &self.candidates[rank as usize].expression;
            expression.evaluate(request, &mut buffer, &mut NoObserver)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }
}

/// A client over IPv4 of a listener for both is one over IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl StreamRequest<'_> {
    pub(crate) fn canonical(&self) -> Self {
        Self {
            source: canonical(self.source),
            destination: canonical(self.destination),
            ..*self
        }
    }
}

impl Fields for StreamRequest<'_> {
    fn text(&self, field: &TextField) -> Option<&[u8]> {
        match field {
            TextField::Protocol => Some(match self.sni {
                _ if self.datagrams => b"udp",
                Some(_) => b"tls",
                None => b"tcp",
            }),
            TextField::Sni => self.sni.map(str::as_bytes),
            _ => None,
        }
    }

    fn texts(&self, _: &TextField, _: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) {}

    fn number(&self, field: NumberField) -> Option<i64> {
        match field {
            NumberField::SourcePort => Some(self.source.port().into()),
            NumberField::DestinationPort => Some(self.destination.port().into()),
            NumberField::SegmentCount => None,
        }
    }

    fn address(&self, field: AddressField) -> Option<IpAddr> {
        Some(match field {
            AddressField::Source => self.source.ip(),
            AddressField::Destination => self.destination.ip(),
        })
    }
}

/// Names of which a connection of TLS that tells its name must tell one to match. None: it need not.
fn demanded_names(expression: &Expression) -> Option<Vec<&str>> {
    match expression {
        Expression::All(parts) => parts.iter().find_map(demanded_names),
        Expression::Any(parts) => {
            let each: Option<Vec<_>> = parts.iter().map(demanded_names).collect();
            each.map(|each| each.concat())
        }
        Expression::Text(predicate) if predicate.transform == Transform::None => {
            match (&predicate.field, &predicate.test) {
                (TextField::Sni, TextTest::Equals(name)) => Some(vec![name]),
                // That lets others pass alone.
                (TextField::Protocol, TextTest::Differs(protocol)) => {
                    (**protocol == *"tls").then(Vec::new)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The candidates of a route, with their places.
fn compile(route: &Route, options: Options) -> Result<Vec<(Place, Expression)>, Problem> {
    if let (Flavor::Expressions, Some(text)) = (options.flavor, &route.expression) {
        let mut regex = |pattern: &str| Regex::new(pattern, Dialect::Rust);
        let expression = expressions::read(route, text, Subsystem::Stream, &mut regex)?;
        let word = expressions::word(route);
        return Ok(vec![(compatible_place(route, word), expression)]);
    }
    let (sources, destinations) = (
        End::read_all(&route.sources)?,
        End::read_all(&route.destinations)?,
    );
    if route.snis.is_empty() && sources.is_empty() && destinations.is_empty() {
        return Err(Problem::NoAttributes);
    }
    if options.flavor != Flavor::Traditional {
        let word = word(!route.snis.is_empty(), &sources, &destinations);
        let expression = demand(route, &sources, &destinations, options);
        return Ok(vec![(compatible_place(route, word), expression)]);
    }
    let mut placed = Vec::new();
    for (source_class, sources) in by_class(&sources) {
        for (destination_class, destinations) in by_class(&destinations) {
            let category = u8::from(!route.snis.is_empty()) << 2
                | u8::from(!sources.is_empty()) << 1
                | u8::from(!destinations.is_empty());
            let place = Place::Traditional {
                kinds: Reverse(category.count_ones()),
                category: Reverse(category),
                ends: (source_class, destination_class),
                created_at: route.created_at,
            };
            placed.push((place, demand(route, &sources, &destinations, options)));
        }
    }
    Ok(placed)
}

fn compatible_place(route: &Route, word: u64) -> Place {
    Place::Compatible(Reverse(word), Reverse(route.id.0))
}

/// What a classic route with these of its entries demands.
fn demand(route: &Route, sources: &[End], destinations: &[End], options: Options) -> Expression {
    let mut parts = Vec::new();
    if !route.snis.is_empty() {
        parts.push(names(route, options));
    }
    for (ends, side) in [(sources, Side::Source), (destinations, Side::Destination)] {
        if !ends.is_empty() {
            parts.push(ends::any_of(ends, side));
        }
    }
    if options.flavor == Flavor::Expressions {
        parts.extend(expressions::serves(route, Subsystem::Stream));
    }
    Expression::all(parts)
}

fn names(route: &Route, options: Options) -> Expression {
    let names = route
        .snis
        .iter()
        .map(|sni| sni_name(sni).to_ascii_lowercase());
    let is = |name: String| Expression::text(TextField::Sni, wildcard_test(&name));
    let named = Expression::any(names.map(is).collect());
    if !passes_nameless(route, options) {
        return named;
    }
    let without_tls = Expression::text(TextField::Protocol, TextTest::Differs("tls".into()));
    Expression::any(vec![without_tls, named])
}

/// Entries that are looked at together; one empty list if there are none.
fn by_class(ends: &[End]) -> Vec<(u8, Vec<End>)> {
    let of = |class| {
        let own = ends.iter().copied().filter(|end| self::class(end) == class);
        (class, own.collect::<Vec<_>>())
    };
    let classes = (0..=4).map(of).filter(|(_, ends)| !ends.is_empty());
    let mut classes: Vec<_> = classes.collect();
    if classes.is_empty() {
        classes.push((0, Vec::new()));
    }
    classes
}

/// In what order Kong's `traditional` looks at entries: exact addresses, ports, blocks; of each first those with both.
fn class(end: &End) -> u8 {
    match (end.is_address(), end.has_port()) {
        (true, true) => 0,
        (true, false) => 1,
        (false, true) if end.is_block() => 2,
        (false, true) => 3,
        (false, false) => 4,
    }
}

/// `traditional` wants the name; the other flavour lets connections without TLS pass, strictly only where the route serves such.
fn passes_nameless(route: &Route, options: Options) -> bool {
    let plain = [Protocol::Tcp, Protocol::Udp];
    match (options.flavor, options.calculation) {
        (Flavor::Traditional, _) => false,
        (Flavor::TraditionalCompatible | Flavor::Expressions, Calculation::Original) => true,
        (Flavor::TraditionalCompatible | Flavor::Expressions, Calculation::Strict) => {
            route.protocols.iter().any(|own| plain.contains(own))
        }
    }
}

/// The priority of `traditional_compatible`: names, or both ends, before all; then how closely ends are told.
fn word(has_snis: bool, sources: &[End], destinations: &[End]) -> u64 {
    let weight = |ends: &[End]| {
        let any = |test: fn(&End) -> bool| u64::from(ends.iter().any(test));
        any(End::is_address) << 3 | any(End::has_port) << 2 | any(End::is_block)
    };
    let closely = has_snis || !sources.is_empty() && !destinations.is_empty();
    u64::from(closely) << 61 | weight(sources) << 4 | weight(destinations)
}
