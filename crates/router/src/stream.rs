//! The router of streams: from the addresses and the server name of a connection to the route of protocol `tcp`, `tls`,
//! `tls_passthrough` or `udp` that applies. Source: kong/router/transform.lua (stream_get_priority, get_expression), traditional.lua.
//!
//! Asked once per connection. Candidates are tried in order; names that routes ask for exactly are an index in front of them. As
//! in Kong the protocols of a route take no part: what a route is for is looked at when it has been found.

use crate::candidate::{Problem, RouteError, RouteIndex, sni_name};
use crate::{Calculation, Flavor, Options};
use expr::Block;
use model::entities::{Endpoint, Protocol, Route};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;
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
}

#[derive(Debug)]
struct Candidate {
    route: RouteIndex,
    snis: Box<[SniTest]>,
    /// Connections without a name pass whatever the names.
    passes_nameless: bool,
    sources: Box<[End]>,
    destinations: Box<[End]>,
}

#[derive(Debug, PartialEq, Eq)]
enum SniTest {
    Equals(Box<str>),
    StartsWith(Box<str>),
    EndsWith(Box<str>),
}

/// One entry of `sources` or `destinations`.
#[derive(Debug, Clone, Copy)]
struct End {
    block: Option<Block>,
    port: Option<u16>,
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
            match compile(index, route, options) {
                Ok(candidates) => placed.extend(candidates),
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
            let exact = candidate.snis.iter().map(|sni| match sni {
                SniTest::Equals(name) => Some(name),
                _ => None,
            });
            match exact.collect::<Option<Vec<_>>>() {
                Some(names) if !names.is_empty() => {
                    for name in names {
                        let ranks = by_sni.entry(name.clone()).or_default();
                        if ranks.last() != Some(&rank) {
                            ranks.push(rank);
                        }
                    }
                }
                _ => any_sni.push(rank),
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
        let request = StreamRequest {
            source: canonical(request.source),
            destination: canonical(request.destination),
            ..*request
        };
        let first = |ranks: &[u32]| {
            let mut ranks = ranks.iter().copied();
            ranks.find(|rank| self.candidates[*rank as usize].accepts(&request))
        };
        let found = match request.sni {
            None => {
                let mut ranks = 0..self.candidates.len() as u32;
                ranks.find(|rank| self.candidates[*rank as usize].accepts(&request))
            }
            Some(name) => {
                let named = self.by_sni.get(name).and_then(|ranks| first(ranks));
                let others = first(&self.any_sni);
                [named, others].into_iter().flatten().min()
            }
        };
        found.map(|rank| self.candidates[rank as usize].route)
    }

    pub fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }
}

/// A client over IPv4 of a listener for both is one over IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Candidate {
    fn accepts(&self, request: &StreamRequest<'_>) -> bool {
        let accepts = |ends: &[End], address: SocketAddr| {
            ends.is_empty() || ends.iter().any(|end| end.accepts(address))
        };
        self.accepts_name(request.sni)
            && accepts(&self.sources, request.source)
            && accepts(&self.destinations, request.destination)
    }

    fn accepts_name(&self, name: Option<&str>) -> bool {
        match name {
            _ if self.snis.is_empty() => true,
            None => self.passes_nameless,
            Some(name) => self.snis.iter().any(|sni| sni.accepts(name)),
        }
    }
}

impl SniTest {
    /// The dot next to the asterisk stays.
    fn new(sni: &str) -> Self {
        let name = sni_name(sni).to_ascii_lowercase();
        if let Some(end) = name.strip_prefix('*') {
            Self::EndsWith(end.into())
        } else if let Some(start) = name.strip_suffix('*') {
            Self::StartsWith(start.into())
        } else {
            Self::Equals(name.into())
        }
    }

    fn accepts(&self, name: &str) -> bool {
        match self {
            Self::Equals(wanted) => name == &**wanted,
            Self::StartsWith(start) => name.starts_with(&**start),
            Self::EndsWith(end) => name.ends_with(&**end),
        }
    }
}

impl End {
    fn read(entry: &Endpoint) -> Result<Self, Problem> {
        let block = entry.ip.as_deref().map(|text| text.parse::<Block>());
        Ok(Self {
            block: block.transpose()?,
            port: entry.port,
        })
    }

    fn accepts(&self, address: SocketAddr) -> bool {
        self.port.is_none_or(|port| port == address.port())
            && self.block.is_none_or(|block| block.contains(address.ip()))
    }

    fn is_exact_address(&self) -> bool {
        self.block.is_some_and(|block| block.is_single())
    }

    /// In what order Kong's `traditional` looks at entries: exact addresses, ports, blocks; of each first those with both.
    fn class(&self) -> u8 {
        match (self.is_exact_address(), self.port.is_some()) {
            (true, true) => 0,
            (true, false) => 1,
            (false, true) if self.block.is_some() => 2,
            (false, true) => 3,
            (false, false) => 4,
        }
    }
}

fn compile(
    index: RouteIndex,
    route: &Route,
    options: Options,
) -> Result<Vec<(Place, Candidate)>, Problem> {
    let ends = |entries: &[Endpoint]| entries.iter().map(End::read).collect::<Result<Vec<_>, _>>();
    let (sources, destinations) = (ends(&route.sources)?, ends(&route.destinations)?);
    if route.snis.is_empty() && sources.is_empty() && destinations.is_empty() {
        return Err(Problem::NoAttributes);
    }
    let candidate = |sources: &[End], destinations: &[End]| Candidate {
        route: index,
        snis: route.snis.iter().map(|sni| SniTest::new(sni)).collect(),
        passes_nameless: passes_nameless(route, options),
        sources: sources.into(),
        destinations: destinations.into(),
    };
    if options.flavor != Flavor::Traditional {
        let word = word(!route.snis.is_empty(), &sources, &destinations);
        let place = Place::Compatible(Reverse(word), Reverse(route.id.0));
        return Ok(vec![(place, candidate(&sources, &destinations))]);
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
            placed.push((place, candidate(&sources, &destinations)));
        }
    }
    Ok(placed)
}

/// Entries that are looked at together; one empty list if there are none.
fn by_class(ends: &[End]) -> Vec<(u8, Vec<End>)> {
    let of = |class| {
        let own = ends.iter().copied().filter(|end| end.class() == class);
        (class, own.collect::<Vec<_>>())
    };
    let classes = (0..=4).map(of).filter(|(_, ends)| !ends.is_empty());
    let mut classes: Vec<_> = classes.collect();
    if classes.is_empty() {
        classes.push((0, Vec::new()));
    }
    classes
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
        any(End::is_exact_address) << 3
            | any(|end| end.port.is_some()) << 2
            | any(|end| end.block.is_some_and(|block| !block.is_single()))
    };
    let closely = has_snis || !sources.is_empty() && !destinations.is_empty();
    u64::from(closely) << 61 | weight(sources) << 4 | weight(destinations)
}
