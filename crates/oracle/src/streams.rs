//! Compares stream routers with the reference, for random routes and connections.

use crate::cases::{Tally, numbered};
use crate::engine::Engines;
use crate::facts::Facts;
use crate::print::print;
use crate::random::Random;
use crate::routes::{Drawn, ends, id, shape, sni, some};
use crate::term::Trail;
use crate::world::World;
use expr::Block;
use model::entities::{Endpoint, Protocol, Route};
use router::{Calculation, Flavor, Options, RouteIndex, StreamRequest, StreamRouter};
use std::cmp::Reverse;
use std::net::SocketAddr;

const PROTOCOLS: &[&[Protocol]] = &[
    &[Protocol::Tcp],
    &[Protocol::Tls],
    &[Protocol::TlsPassthrough],
    &[Protocol::Udp],
    &[Protocol::Tcp, Protocol::Tls, Protocol::Udp],
];

/// Checks that a router of random routes and the reference choose the same routes for random connections.
pub fn streams_alike(random: &mut Random, options: Options, most: usize, requests: usize) -> Tally {
    let world = World::of_streams(random);
    let routes: Vec<_> = (0..random.between(1, most))
        .map(|_| route(random, &world, options.flavor))
        .collect();
    let settings = numbered(&routes).map(|(index, drawn)| (index, &drawn.route));
    let (router, errors) = StreamRouter::build(settings, options);
    assert!(errors.is_empty(), "{errors:?}");
    let mut engines = Engines::new(Flavor::Expressions);
    let mut tally = Tally::default();
    for _ in 0..requests {
        let name = random.one(&world.hosts).to_lowercase();
        let end =
            |random: &mut Random| SocketAddr::new(world.address(random), *random.one(&world.ports));
        let request = StreamRequest {
            source: end(random),
            destination: end(random),
            sni: (random.below(4) > 0).then_some(&*name),
            datagrams: random.below(4) == 0,
        };
        let wanted = best(&routes, &request, options, &mut engines);
        let found = router.matches(&request);
        assert_eq!(found, wanted, "{options:?} {request:?} {routes:#?}");
        tally.requests += 1;
        tally.hits += u64::from(found.is_some());
    }
    tally
}

fn route(random: &mut Random, world: &World, flavor: Flavor) -> Drawn {
    let mut route = Route::blank(id(random));
    route.created_at = i64::try_from(random.below(3)).unwrap_or(0);
    route.protocols = random.one(PROTOCOLS).to_vec();
    if flavor == Flavor::Expressions && random.below(2) == 0 {
        let term = shape(random, world);
        route.expression = Some(print(&term, random));
        route.priority = Some(random.below(4) as u64);
        let term = Some(term);
        return Drawn { route, term };
    }
    route.snis = some(random, |random| sni(random, world, flavor));
    route.sources = ends(random, world);
    route.destinations = ends(random, world);
    if route.snis.is_empty() && route.sources.is_empty() && route.destinations.is_empty() {
        route.snis.push(world.hosts[0].as_str().into());
    }
    route.into()
}

/// Returns the route that the reference chooses for a connection.
fn best(
    routes: &[Drawn],
    request: &StreamRequest<'_>,
    options: Options,
    engines: &mut Engines,
) -> Option<RouteIndex> {
    let facts = Facts::of_stream(request);
    let accepting = numbered(routes).filter(|(_, drawn)| match &drawn.term {
        Some(term) => {
            is_served(&drawn.route, request) && term.holds(&facts, engines, &mut Trail::default())
        }
        None => accepts(&drawn.route, request, options),
    });
    let accepting = accepting.map(|(index, drawn)| (index, &drawn.route));
    let best = match options.flavor {
        Flavor::Traditional => accepting.min_by_key(|(index, route)| {
            (
                kinds(route),
                closeness(route, request),
                route.created_at,
                *index,
            )
        }),
        Flavor::TraditionalCompatible | Flavor::Expressions => {
            accepting.max_by_key(|(_, route)| (word(route), route.id.0))
        }
    };
    best.map(|(index, _)| index)
}

/// The category of a route in the flavor `traditional` (section 4.1): the number of its attribute types, then the types
/// themselves.
fn kinds(route: &Route) -> Reverse<(u32, u8)> {
    let used = [
        !route.snis.is_empty(),
        !route.sources.is_empty(),
        !route.destinations.is_empty(),
    ];
    let bits = used
        .iter()
        .fold(0, |bits, used| bits << 1 | u8::from(*used));
    Reverse((bits.count_ones(), bits))
}

/// The exactness with which a route's entries match a connection in the flavor `traditional`; smaller is better.
/// Entries are ordered as follows:
///
/// - an exact address with a port
/// - an exact address
/// - a block with a port
/// - a port alone
/// - a block
///
/// If several entries match, the first in this order counts. The source is compared before the destination.
fn closeness(route: &Route, request: &StreamRequest<'_>) -> (u8, u8) {
    let of_end = |entries: &[Endpoint], address: SocketAddr| {
        let fitting = entries.iter().filter(|entry| entry_accepts(entry, address));
        let ranks = fitting.map(|entry| {
            let is_block = entry.ip.as_deref().map(|ip| ip.contains('/'));
            match (is_block, entry.port) {
                (Some(false), Some(_)) => 0,
                (Some(false), None) => 1,
                (Some(true), Some(_)) => 2,
                (None, _) => 3,
                (Some(true), None) => 4,
            }
        });
        ranks.min().unwrap_or(0)
    };
    (
        of_end(&route.sources, request.source),
        of_end(&route.destinations, request.destination),
    )
}

/// The priority of a route in the flavors other than `traditional` (sections 5.5 and 6).
fn word(route: &Route) -> u64 {
    if route.expression.is_some() {
        return 0xFF << 56 | route.priority.unwrap_or(0);
    }
    let weight = |entries: &[Endpoint]| {
        let weights = entries.iter().map(|entry| {
            let address = match &entry.ip {
                Some(text) if text.contains('/') => 1,
                Some(_) => 8,
                None => 0,
            };
            address | if entry.port.is_some() { 4 } else { 0 }
        });
        weights.fold(0, |all, weight| all | weight)
    };
    let both = !route.sources.is_empty() && !route.destinations.is_empty();
    let closely = u64::from(!route.snis.is_empty() || both);
    closely << 61 | weight(&route.sources) << 4 | weight(&route.destinations)
}

fn accepts(route: &Route, request: &StreamRequest<'_>, options: Options) -> bool {
    let end = |entries: &[Endpoint], address: SocketAddr| {
        let mut entries_left = entries.iter();
        entries.is_empty() || entries_left.any(|entry| entry_accepts(entry, address))
    };
    name(route, request, options)
        && (options.flavor != Flavor::Expressions || is_served(route, request))
        && end(&route.sources, request.source)
        && end(&route.destinations, request.destination)
}

fn name(route: &Route, request: &StreamRequest<'_>, options: Options) -> bool {
    let plain = [Protocol::Tcp, Protocol::Udp];
    let passes_nameless = match (options.flavor, options.calculation) {
        (Flavor::Traditional, _) => false,
        (_, Calculation::Original) => true,
        (_, Calculation::Strict) => plain.iter().any(|own| route.protocols.contains(own)),
    };
    if route.snis.is_empty() || passes_nameless && protocol(request) != "tls" {
        return true;
    }
    route.snis.iter().any(|sni| {
        let sni = sni.strip_suffix('.').unwrap_or(sni).to_ascii_lowercase();
        request.sni.is_some_and(
            |name| match (sni.strip_prefix('*'), sni.strip_suffix('*')) {
                (Some(end), _) => name.ends_with(end),
                (None, Some(start)) => name.starts_with(start),
                (None, None) => name == sni,
            },
        )
    })
}

fn protocol(request: &StreamRequest<'_>) -> &'static str {
    match request.sni {
        _ if request.datagrams => "udp",
        Some(_) => "tls",
        None => "tcp",
    }
}

/// Section 8.6: a route whose only protocol is `tls` or `tls_passthrough` also gets connections without TLS.
fn is_served(route: &Route, request: &StreamRequest<'_>) -> bool {
    if matches!(
        route.protocols[..],
        [Protocol::Tls | Protocol::TlsPassthrough]
    ) {
        return true;
    }
    route.protocols.iter().any(|own| match own {
        Protocol::Tls => protocol(request) == "tls",
        Protocol::Udp => protocol(request) == "udp",
        _ => protocol(request) == "tcp",
    })
}

fn entry_accepts(entry: &Endpoint, address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let block = entry
        .ip
        .as_deref()
        .and_then(|text| text.parse::<Block>().ok());
    let is_in = block.is_none_or(|block| block.contains(ip));
    is_in && entry.port.is_none_or(|port| port == address.port())
}
