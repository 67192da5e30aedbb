//! The stream router finds the route of protocol `tcp`, `tls`, `tls_passthrough` or `udp` that applies to a connection,
//! from its addresses and server name. Source: kong/router/transform.lua (stream_get_priority, get_expression),
//! traditional.lua.
//!
//! It is queried once per connection. Candidates are expressions as in the HTTP router, in the same index, which looks
//! up server names, addresses and ports. As in Kong, only the `expressions` flavor matches the protocols of a route;
//! the other flavors check them after a route was found.

use crate::candidate::{Candidate, Precedence, Problem, RouteError, RouteIndex, sni_name};
use crate::compatible::wildcard_test;
use crate::ends::{self, End, Side};
use crate::table::Table;
use crate::work::Work;
use crate::{Calculation, Flavor, Options, expressions};
use expr::{
    AddressField, Dialect, Expression, Fields, NumberField, Regex, Subsystem, TextField, TextTest,
};
use model::entities::{Protocol, Route};
use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

/// An immutable router of streams.
#[derive(Clone)]
pub struct StreamRouter {
    table: Table,
}

/// A connection, or the first datagram of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRequest<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// The server name in lower case. As in Kong, a TLS connection without a server name is treated as plain TCP.
    pub sni: Option<&'a str>,
    /// Whether the stream is UDP.
    pub datagrams: bool,
}

impl StreamRouter {
    /// Builds a router from the routes that streams can reach. Unusable routes are left out and reported.
    pub fn build<'r>(
        routes: impl IntoIterator<Item = (RouteIndex, &'r Route)>,
        options: Options,
    ) -> (Self, Vec<RouteError>) {
        let mut all = Vec::new();
        let mut errors = Vec::new();
        for (index, route) in routes {
            if route.protocols.iter().all(|protocol| protocol.is_http()) {
                continue;
            }
            match compile((index, route), options) {
                Ok(candidates) => all.extend(candidates),
                Err(problem) => errors.push(RouteError {
                    route: index,
                    id: route.id,
                    problem,
                }),
            }
        }
        all.sort_by(Candidate::cmp_place);
        let mut table = Table::new(options.flavor);
        table.add(all.into_iter());
        (Self { table }, errors)
    }

    /// Returns the routes of all candidates, in the order they are tried.
    pub fn order(&self) -> impl Iterator<Item = RouteIndex> {
        let candidates = self.table.in_order().into_iter();
        candidates.map(|(_, candidate)| candidate.route)
    }

    /// Returns the route of a connection. A connection whose match would take too many steps has none.
    pub fn matches(&self, request: &StreamRequest<'_>) -> Option<RouteIndex> {
        self.candidate_of(request).map(|found| found.route)
    }

    /// Returns the candidate that is chosen for a connection.
    pub(crate) fn candidate_of(&self, request: &StreamRequest<'_>) -> Option<&Candidate> {
        let found = self.table.find(&request.canonical(), &mut Work::default());
        let found = found.ok().flatten()?;
        Some(self.table.get(found.slot()))
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl Default for StreamRouter {
    fn default() -> Self {
        Self {
            table: Table::new(Flavor::Traditional),
        }
    }
}

/// Returns an IPv4-mapped address as IPv4. A listener for both families reports IPv4 clients with mapped addresses.
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

/// Creates the candidates of a route.
fn compile(of: (RouteIndex, &Route), options: Options) -> Result<Vec<Candidate>, Problem> {
    let (index, route) = of;
    if let (Flavor::Expressions, Some(text)) = (options.flavor, &route.expression) {
        let mut regex = |pattern: &str| Regex::new(pattern, Dialect::Rust);
        let expression = expressions::read(route, text, Subsystem::Stream, &mut regex)?;
        let place = compatible_place(route, expressions::word(route));
        return Ok(vec![Candidate::new(of, (place, 0), expression)]);
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
        let place = compatible_place(route, word);
        return Ok(vec![Candidate::new(of, (place, 0), expression)]);
    }
    let mut candidates = Vec::new();
    for (source_class, sources) in by_class(&sources) {
        for (destination_class, destinations) in by_class(&destinations) {
            let category = u8::from(!route.snis.is_empty()) << 2
                | u8::from(!sources.is_empty()) << 1
                | u8::from(!destinations.is_empty());
            let place = Precedence::TraditionalStream {
                kinds: Reverse(category.count_ones()),
                category: Reverse(category),
                ends: (source_class, destination_class),
                created_at: route.created_at,
                route: index,
            };
            let expression = demand(route, &sources, &destinations, options);
            let part = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
            candidates.push(Candidate::new(of, (place, part), expression));
        }
    }
    Ok(candidates)
}

fn compatible_place(route: &Route, word: u64) -> Precedence {
    Precedence::Compatible(Reverse(word), Reverse(route.id.0))
}

/// Returns the condition of a classic route. `sources` and `destinations` are the entries of the route to include.
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

/// Groups the entries by class. Returns one empty group if there are none.
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

/// The order in which Kong's `traditional` flavor checks entries: exact addresses, then blocks with a port, ports and
/// blocks. Exact addresses with a port come before those without.
fn class(end: &End) -> u8 {
    match (end.is_address(), end.has_port()) {
        (true, true) => 0,
        (true, false) => 1,
        (false, true) if end.is_block() => 2,
        (false, true) => 3,
        (false, false) => 4,
    }
}

/// Whether a route with SNIs also matches streams without TLS. In `traditional` it does not. In the other flavors it
/// does, but with `Strict` only if `tcp` or `udp` is one of its protocols.
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

/// The priority in `traditional_compatible`: routes with server names, or with both sources and destinations, rank
/// first. Otherwise the more specific entries rank higher.
fn word(has_snis: bool, sources: &[End], destinations: &[End]) -> u64 {
    let weight = |ends: &[End]| {
        let any = |test: fn(&End) -> bool| u64::from(ends.iter().any(test));
        any(End::is_address) << 3 | any(End::has_port) << 2 | any(End::is_block)
    };
    let closely = has_snis || !sources.is_empty() && !destinations.is_empty();
    u64::from(closely) << 61 | weight(sources) << 4 | weight(destinations)
}
