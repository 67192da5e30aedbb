//! The search for conflicts works without streams. These tests check its results with random streams.

use super::fixtures::{ALL_OPTIONS, assert_ties_are_reported, numbered, route, search};
use super::stream::{EXPRESSIONS, end, expression, stream};
use crate::{Conflicts, Flavor, Options, Reason, RouteIndex, Search, StreamRouter, StreamWitness};
use expr::NoObserver;
use model::entities::{Endpoint, Protocol, Route};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use testkit::random::Random;

const EVERY_OPTIONS: [Options; 4] = [ALL_OPTIONS[0], ALL_OPTIONS[1], ALL_OPTIONS[2], EXPRESSIONS];

const PROTOCOLS: &[&[Protocol]] = &[
    &[Protocol::Tcp],
    &[Protocol::Tls],
    &[Protocol::TlsPassthrough],
    &[Protocol::Udp],
    &[Protocol::Tcp, Protocol::Tls, Protocol::Udp],
];
const SNIS: &[&str] = &[
    "a.test", "b.a.test", "*.test", "*.a.test", "a.*", "b.*", "b.test.",
];
const NAMES: &[&str] = &[
    "a.test", "b.a.test", "x.a.test", "a.other", "b.test", "other",
];
const ENDS: &[(&str, u16)] = &[
    ("10.0.0.0/8", 0),
    ("10.1.0.0/16", 0),
    ("10.1.2.3", 0),
    ("10.1.2.3", 9000),
    ("10.1.0.0/16", 9000),
    ("", 9000),
    ("", 9001),
    ("fd00::/8", 0),
    ("fd00::1", 9001),
    ("0.0.0.0/0", 0),
    ("::/0", 0),
];
const ADDRESSES: &[&str] = &[
    "10.1.2.3",
    "10.1.9.9",
    "10.9.9.9",
    "192.0.2.1",
    "::ffff:10.1.2.3",
    "fd00::1",
    "fd01::1",
    "2001:db8::1",
];
const TEXTS: &[&str] = &[
    "net.dst.port == 9000",
    "net.dst.port >= 9000 && net.src.ip in 10.0.0.0/8",
    "net.dst.ip in fd00::/8 || net.dst.ip in 10.0.0.0/8",
    "net.dst.ip not in 10.0.0.0/8",
    r#"tls.sni =^ ".test""#,
    r#"!(tls.sni == "a.test")"#,
    r#"net.protocol != "tls" || lower(tls.sni) == "b.test""#,
    r#"net.protocol == "udp" && net.dst.port == 9001"#,
    r##"tls.sni ~ r#"^[ab]\.test$"#"##,
];

fn router(routes: &[Route], options: Options) -> StreamRouter {
    let (router, errors) = StreamRouter::build(numbered(routes), options);
    assert!(errors.is_empty(), "{errors:?}");
    router
}

fn ends(random: &mut Random) -> Vec<Endpoint> {
    let count = random.index(5).saturating_sub(2);
    let one = |_| *random.pick(ENDS);
    (0..count)
        .map(one)
        .map(|(ip, port)| end(ip, port))
        .collect()
}

/// Returns random routes. Every third is a copy of another.
fn routes(random: &mut Random, count: usize, flavor: Flavor) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for number in 0..count as u32 {
        let mut own = Route {
            created_at: i64::try_from(random.index(3)).unwrap(),
            protocols: random.pick(PROTOCOLS).to_vec(),
            ..route(number)
        };
        if number % 3 == 2 {
            own = Route {
                id: own.id,
                created_at: own.created_at,
                ..routes[random.index(routes.len())].clone()
            };
        } else if flavor == Flavor::Expressions && random.index(2) == 0 {
            own.expression = Some(random.text(TEXTS).into());
            own.priority = Some(random.below(3));
        } else {
            let snis = random.index(4).saturating_sub(1);
            own.snis = (0..snis).map(|_| random.text(SNIS).into()).collect();
            own.sources = ends(random);
            own.destinations = ends(random);
            if own.snis.is_empty() && own.sources.is_empty() {
                own.destinations.push(end("", 9000));
            }
        }
        routes.push(own);
    }
    routes
}

fn sample(random: &mut Random) -> StreamWitness {
    let end = |random: &mut Random| {
        let address = random.text(ADDRESSES).parse().unwrap();
        SocketAddr::new(address, *random.pick(&[9000, 9001, 1]))
    };
    let is_ipv4 = |end: SocketAddr| end.ip().to_canonical().is_ipv4();
    let source = end(random);
    let mut destination = end(random);
    // Both ends of a stream have addresses of one family.
    while is_ipv4(destination) != is_ipv4(source) {
        destination = end(random);
    }
    let datagrams = random.index(4) == 0;
    let named = !datagrams && random.index(3) > 0;
    StreamWitness {
        source,
        destination,
        sni: named.then(|| random.text(NAMES).to_owned()),
        datagrams,
    }
}

/// Returns the expressions of the parts that are reported as unreachable.
fn never(conflicts: &Conflicts<StreamWitness>) -> HashSet<*const expr::Expression> {
    let parts = conflicts.never.iter();
    parts.map(|never| Arc::as_ptr(&never.part)).collect()
}

#[test]
fn no_stream_reaches_a_part_reported_as_unreachable() {
    for options in EVERY_OPTIONS {
        let mut random = Random::new(23);
        let (mut parts, mut claimed, mut undecided) = (0, 0, 0);
        for round in 0..40 {
            let count = 2 + random.index(30);
            let routes = routes(&mut random, count, options.flavor);
            let router = router(&routes, options);
            let conflicts = router.conflicts(&search(usize::MAX));
            let never = never(&conflicts);
            parts += router.order().count();
            claimed += never.len();
            undecided += conflicts.undecided;
            for _ in 0..200 {
                let sample = sample(&mut random);
                if let Some(found) = router.candidate_of(&sample.request()) {
                    assert!(
                        !never.contains(&Arc::as_ptr(&found.expression)),
                        "{options:?} {round} {sample:?} {routes:#?}"
                    );
                }
            }
        }
        assert!(
            claimed > parts / 20,
            "too few conflicts: {claimed} in {parts} parts"
        );
        assert!(undecided < parts / 20, "{undecided} of {parts} undecided");
    }
}

/// Checks that clients and listeners can create such a stream.
fn assert_is_possible(witness: &StreamWitness) {
    for address in [witness.source.ip(), witness.destination.ip()] {
        assert_eq!(address.to_canonical(), address, "{witness:?}");
    }
    if let Some(name) = &witness.sni {
        let is_sent = !name.is_empty() && *name == name.to_lowercase();
        assert!(is_sent && !witness.datagrams, "{witness:?}");
    }
}

#[test]
fn every_example_of_a_tie_satisfies_both_routes() {
    for options in EVERY_OPTIONS {
        let mut random = Random::new(29);
        let mut ties = 0;
        for _ in 0..15 {
            let count = 2 + random.index(30);
            let routes = routes(&mut random, count, options.flavor);
            let conflicts = router(&routes, options).conflicts(&search(usize::MAX));
            for tie in &conflicts.ties {
                ties += 1;
                assert_ne!(tie.first, tie.second);
                let witness = &tie.witness;
                assert_is_possible(witness);
                for index in [tie.first, tie.second] {
                    let only = &routes[index.0 as usize..][..1];
                    let found = router(only, options).matches(&witness.request());
                    assert!(found.is_some(), "{options:?} {witness:?} {only:#?}");
                }
            }
        }
        assert!(ties > 100, "too few ties: {ties}");
    }
}

#[test]
fn pairs_that_are_tied_for_a_stream_are_reported() {
    for options in EVERY_OPTIONS {
        let mut random = Random::new(31);
        let mut common = 0;
        for round in 0..40 {
            let count = 2 + random.index(10);
            let routes = routes(&mut random, count, options.flavor);
            let all = router(&routes, options);
            let conflicts = all.conflicts(&search(usize::MAX));
            let ranked = all.table().in_order();
            for _ in 0..100 {
                let sample = sample(&mut random);
                let request = sample.request().canonical();
                let matches = |expression: &expr::Expression| {
                    expression.evaluate(&request, &mut Vec::new(), &mut NoObserver)
                };
                let matching: Vec<_> = (ranked.iter().map(|(_, candidate)| *candidate))
                    .filter(|candidate| matches(&candidate.expression))
                    .collect();
                let what = (options, round, sample);
                common += assert_ties_are_reported(&matching, &conflicts, &what);
            }
        }
        assert!(common > 200, "too few tied pairs: {common}");
    }
}

#[test]
fn conflicts_of_one_route_are_among_those_of_all() {
    for options in EVERY_OPTIONS {
        let mut random = Random::new(37);
        for _ in 0..5 {
            let routes = routes(&mut random, 20, options.flavor);
            let router = router(&routes, options);
            let all = router.conflicts(&search(usize::MAX));
            for number in 0..20 {
                let own = RouteIndex(number);
                let of_one = router.conflicts_of(&[own], &search(usize::MAX));
                let never = |conflicts: &Conflicts<StreamWitness>| {
                    let parts = conflicts.never.iter();
                    let parts = parts.filter(|never| never.route == own);
                    parts.map(|never| format!("{never:?}")).collect::<Vec<_>>()
                };
                assert_eq!(never(&of_one), never(&all), "{options:?} {number}");
                let ties = |conflicts: &Conflicts<StreamWitness>| {
                    let ties = conflicts.ties.iter().map(|tie| (tie.first, tie.second));
                    let own = ties.filter(|(first, second)| own == *first || own == *second);
                    own.collect::<HashSet<_>>()
                };
                assert_eq!(ties(&of_one), ties(&all), "{options:?} {number}");
            }
        }
    }
}

#[test]
fn a_copy_of_a_route_never_matches_and_is_tied_with_it() {
    for options in EVERY_OPTIONS {
        let copies = [1, 2].map(|number| Route {
            snis: vec!["a.test".into(), "*.b.test".into()],
            sources: vec![end("10.0.0.0/8", 0), end("fd00::/8", 0)],
            destinations: vec![end("", 9000), end("192.0.2.1", 9001)],
            ..stream(number, Protocol::Tls)
        });
        let router = router(&copies, options);
        let conflicts = router.conflicts(&search(10));
        let (first, second) = match options.flavor {
            Flavor::Traditional => (RouteIndex(0), RouteIndex(1)),
            _ => (RouteIndex(1), RouteIndex(0)),
        };
        assert!(!conflicts.never.is_empty());
        for never in &conflicts.never {
            assert_eq!((never.route, never.whole), (second, true), "{options:?}");
            assert_eq!(never.reason, Reason::Shadowed { by: vec![first] });
        }
        assert_eq!(conflicts.ties.len(), 1);
        assert_eq!(conflicts.ties[0].first, first);
        assert_eq!(conflicts.ties[0].second, second);
        assert_eq!(conflicts.undecided, 0);
        for written in [&[first][..], &[second], &[first, second]] {
            let of_these = router.conflicts_of(written, &search(10));
            assert_eq!(of_these.never.len(), conflicts.never.len());
            assert_eq!(of_these.ties.len(), 1);
        }
    }
}

/// Checks that the only unreachable route is the expected one, and which routes shadow it.
#[track_caller]
fn check_shadowed(routes: &[Route], options: Options, expected: Option<(u32, &[u32])>) {
    let conflicts = router(routes, options).conflicts(&search(10));
    let found: Vec<_> = (conflicts.never.iter())
        .map(|never| match &never.reason {
            Reason::Shadowed { by } => (never.route.0, by.iter().map(|by| by.0).collect()),
            Reason::Contradiction => (never.route.0, vec![]),
        })
        .collect();
    let expected = expected.map(|(route, by)| (route, by.to_vec()));
    assert_eq!(found, Vec::from_iter(expected), "{options:?}");
    assert_eq!(conflicts.undecided, 0);
}

fn to(number: u32, destinations: &[(&str, u16)]) -> Route {
    Route {
        destinations: (destinations.iter())
            .map(|(ip, port)| end(ip, *port))
            .collect(),
        ..stream(number, Protocol::Tcp)
    }
}

#[test]
fn several_routes_can_shadow_the_parts_of_a_block() {
    // In every flavor an address with a port comes before a block.
    for options in EVERY_OPTIONS {
        let one = |number| to(number, &[("10.0.0.1", 9000)]);
        let block = |ip, port| to(3, &[(ip, port)]);
        check_shadowed(
            &[one(1), block("10.0.0.1/32", 9000)],
            options,
            Some((1, &[0])),
        );
        check_shadowed(&[one(1), block("10.0.0.1/32", 0)], options, None);
        check_shadowed(&[one(1), block("10.0.0.0/31", 9000)], options, None);
        let more = to(2, &[("10.0.0.0", 9000), ("fd00::1", 9000)]);
        let both = [one(1), block("10.0.0.0/31", 9000), more.clone()];
        check_shadowed(
            &both,
            options,
            Some((
                1,
                if options.flavor == Flavor::Traditional {
                    &[0, 2]
                } else {
                    &[2, 0]
                },
            )),
        );
        check_shadowed(
            &[more, block("fd00::1/128", 9000)],
            options,
            Some((1, &[0])),
        );
    }
}

#[test]
fn a_port_without_an_address_shadows_only_the_same_port() {
    for options in EVERY_OPTIONS {
        let two_families = |number, port| to(number, &[("0.0.0.0/0", port), ("::/0", port)]);
        // In every flavor a block with a port comes before a port without an address.
        let port = |port| to(1, &[("", port)]);
        check_shadowed(
            &[two_families(2, 9000), port(9000)],
            options,
            Some((1, &[0])),
        );
        check_shadowed(&[two_families(2, 9000), port(9001)], options, None);
        let one_family = to(2, &[("0.0.0.0/0", 9000)]);
        check_shadowed(&[one_family, port(9000)], options, None);
    }
}

fn named(number: u32, snis: &[&str]) -> Route {
    Route {
        snis: snis.iter().map(|&sni| sni.into()).collect(),
        ..stream(number, Protocol::Tls)
    }
}

#[test]
fn a_wildcard_shadows_only_the_names_that_it_matches() {
    for options in EVERY_OPTIONS {
        // With equal priority, `traditional` prefers the older route and the other flavors the greater id.
        let (first, second) = match options.flavor {
            Flavor::Traditional => (1, 2),
            _ => (2, 1),
        };
        let general = || named(first, &["*.test"]);
        let check = |snis: &[&str], expected| {
            check_shadowed(&[named(second, snis), general()], options, expected);
        };
        check(&["*.a.test"], Some((0, &[1][..])));
        check(&["a.test", "b.test."], Some((0, &[1])));
        check(&["*.a.test", "a.other"], None);
        check(&["a.*"], None);
        let mut elsewhere = general();
        elsewhere.destinations = vec![end("", 9000)];
        check_shadowed(&[named(second, &["a.test"]), elsewhere], options, None);
    }
}

#[test]
fn different_server_names_tie_only_for_streams_without_one() {
    let witness = |options: Options, snis: [&str; 2]| {
        let routes = [named(1, &[snis[0]]), named(2, &[snis[1]])];
        let conflicts = router(&routes, options).conflicts(&search(10));
        assert_eq!((conflicts.undecided, conflicts.complete), (0, true));
        let mut ties = conflicts.ties.into_iter();
        ties.next().map(|tie| tie.witness)
    };
    // Streams without a server name match routes with server names except in `traditional`; with `Strict` only if the
    // route accepts such streams.
    for (options, passes) in EVERY_OPTIONS.into_iter().zip([false, true, false, true]) {
        let different = witness(options, ["a.test", "b.test"]);
        assert_eq!(different.is_some(), passes, "{options:?}");
        assert!(different.is_none_or(|witness| witness.sni.is_none()));
        let alike = witness(options, ["*.test", "a.*"]).expect("a tie");
        let expected = (!passes).then_some("a.x.test");
        assert_eq!(alike.sni.as_deref(), expected, "{options:?}");
    }
}

#[test]
fn more_and_less_specific_entries_do_not_rank_alike() {
    for options in EVERY_OPTIONS {
        let ties = |other: (&str, u16)| {
            let routes = [to(1, &[("10.0.0.0/8", 0)]), to(2, &[other])];
            router(&routes, options).conflicts(&search(10)).ties
        };
        assert!(ties(("10.0.0.1", 0)).is_empty(), "{options:?}");
        assert!(ties(("", 9000)).is_empty(), "{options:?}");
        assert!(ties(("fd00::/8", 0)).is_empty(), "{options:?}");
        let tied = ties(("10.1.0.0/16", 0));
        let witness = &tied[0].witness;
        assert_eq!(witness.destination, "10.1.0.0:9000".parse().unwrap());
        assert_eq!(witness.source, "127.0.0.1:40000".parse().unwrap());
    }
}

#[test]
fn an_example_has_addresses_of_one_family_if_possible() {
    let routes = [1, 2].map(|number| to(number, &[("fd00::/8", 9001)]));
    for options in EVERY_OPTIONS {
        let conflicts = router(&routes, options).conflicts(&search(10));
        let witness = &conflicts.ties[0].witness;
        assert_eq!(witness.destination, "[fd00::]:9001".parse().unwrap());
        assert_eq!(witness.source, "[::1]:40000".parse().unwrap());
    }
}

#[test]
fn expressions_that_no_stream_satisfies_are_contradictions() {
    for text in [
        "net.dst.port == 9000 && net.dst.port == 9001",
        "net.dst.port > 65535",
        "net.src.ip in 10.0.0.0/9 && net.src.ip in 10.128.0.0/9",
        "net.dst.ip in fd00::/8 && net.dst.ip in 10.0.0.0/8",
        "!(net.src.ip in 0.0.0.0/0) && !(net.src.ip in ::/0)",
        // Both ends of a stream have addresses of one family.
        "net.src.ip in fe80::/10 && net.dst.ip in 10.0.0.0/8",
        "!(net.dst.port >= 0)",
        // Routers treat mapped addresses as IPv4.
        "net.src.ip in ::ffff:0:0/96",
        r#"tls.sni == "a.test" && tls.sni == "b.test""#,
        r#"tls.sni =^ ".test" && tls.sni == "a.other""#,
        // A stream has a server name if and only if its protocol is `tls`.
        r#"tls.sni == "a.test" && net.protocol == "udp""#,
        r#"tls.sni == "a.test" && net.protocol != "tls""#,
        r#"net.protocol == "tls" && !(tls.sni != "a.test") && !(tls.sni == "a.test")"#,
        r#"net.protocol == "tcp" && net.protocol == "udp""#,
        r#"tls.sni == """#,
    ] {
        let routes = [expression(1, &[Protocol::Tls], text)];
        let conflicts = router(&routes, EXPRESSIONS).conflicts(&search(10));
        assert_eq!(conflicts.never.len(), 1, "{text} {conflicts:?}");
        assert_eq!(conflicts.never[0].reason, Reason::Contradiction);
        assert!(conflicts.never[0].whole);
    }
    // The contradiction comes from the route's protocols.
    let routes = [expression(1, &[Protocol::Tcp], r#"tls.sni == "a.test""#)];
    let conflicts = router(&routes, EXPRESSIONS).conflicts(&search(10));
    assert_eq!(conflicts.never[0].reason, Reason::Contradiction);
}

#[test]
fn expressions_that_unusual_streams_satisfy_are_no_contradictions() {
    for text in [
        r#"!(tls.sni == "a") && !(tls.sni != "a")"#,
        r#"net.protocol == "tls" && !(tls.sni == "x")"#,
        r#"net.protocol == "udp" && !(tls.sni == "x")"#,
        r#"lower(tls.sni) == "a.test""#,
        r#"tls.sni != "x" && tls.sni != "a.test""#,
        r##"tls.sni ~ "^[A-Z]?b" && tls.sni =^ ".test""##,
        "net.src.ip not in 0.0.0.0/0",
        "(net.src.ip in 10.0.0.0/8 || net.src.ip in fe80::/10) && net.dst.ip in fd00::/8",
        "net.src.ip not in 10.0.0.0/8 && net.dst.ip in fd00::/8",
        "net.dst.port != 9000 && net.dst.port <= 9001 && net.dst.port >= 9000",
        "net.dst.port == 0",
    ] {
        let routes = [expression(1, &[Protocol::Tls], text)];
        let conflicts = router(&routes, EXPRESSIONS).conflicts(&search(10));
        assert!(conflicts.never.is_empty(), "{text} {conflicts:?}");
        assert_eq!(conflicts.undecided, 0, "{text}");
    }
}

#[test]
fn several_routes_can_shadow_the_protocols_of_one() {
    use Protocol::{Tcp, Tls, Udp};
    let all = &[Tcp, Tls, Udp][..];
    let port = "net.dst.port == 9000";
    let rest = [
        expression(1, all, port),
        expression(2, &[Tcp], port),
        expression(3, &[Udp], port),
    ];
    check_shadowed(&rest, EXPRESSIONS, None);
    let named = expression(4, all, r#"tls.sni != """#);
    let routes = [&rest[..], &[named]].concat();
    check_shadowed(&routes, EXPRESSIONS, Some((0, &[3, 2, 1])));
}

#[test]
fn routes_with_different_ports_and_names_are_not_compared() {
    for options in EVERY_OPTIONS {
        let routes: Vec<_> = (0..2_000)
            .map(|number| match number % 2 {
                0 => to(number, &[("", 1000 + number as u16 % 1_990)]),
                _ => Route {
                    sources: vec![end(
                        &format!("10.{}.{}.0/24", number / 256, number % 256),
                        0,
                    )],
                    ..stream(number, Protocol::Udp)
                },
            })
            .collect();
        let conflicts = router(&routes, options).conflicts(&search(100));
        assert!(conflicts.complete && !conflicts.truncated);
        assert_eq!((conflicts.never.len(), conflicts.ties.len()), (5, 5));
    }
}

#[test]
fn blocks_of_other_sizes_are_found_among_many() {
    let of_ipv4 = (0..100).map(|number| format!("10.{number}.0.0/16"));
    let of_ipv6 = (0..100).map(|number| format!("fd00:{number:x}::/32"));
    check_wide_block(Vec::from_iter(of_ipv4), "10.16.0.0/12");
    check_wide_block(Vec::from_iter(of_ipv6), "fd00:10::/28");
}

/// Checks that the wide block is tied with exactly the blocks 16 to 31, which it contains.
#[track_caller]
fn check_wide_block(mut blocks: Vec<String>, wide: &str) {
    blocks.push(wide.to_owned());
    let routes = (0..).zip(&blocks);
    let routes: Vec<_> = routes.map(|(number, ip)| to(number, &[(ip, 0)])).collect();
    for options in EVERY_OPTIONS {
        let conflicts = router(&routes, options).conflicts(&search(100));
        let ties = conflicts.ties.iter();
        let mut tied: Vec<_> = ties.map(|tie| tie.first.0.min(tie.second.0)).collect();
        tied.sort_unstable();
        assert_eq!(tied, Vec::from_iter(16..32), "{options:?}");
    }
}

#[test]
fn routers_searched_one_after_the_other_share_the_limits() {
    let streams = router(
        &[1, 2].map(|number| to(number, &[("", 9000)])),
        ALL_OPTIONS[1],
    );
    let requests = super::fixtures::router(
        &[1, 2].map(|number| Route {
            paths: vec!["/a".into()],
            ..route(number)
        }),
        ALL_OPTIONS[1],
    );
    for (limit, told) in [(1, 0), (2, 1)] {
        let search = search(limit);
        let of_requests = requests.conflicts(&search);
        assert_eq!((of_requests.never.len(), of_requests.ties.len()), (1, 1));
        let of_streams = streams.conflicts(&search);
        let found = (of_streams.never.len(), of_streams.ties.len());
        assert_eq!((found, of_streams.truncated), ((told, told), told == 0));
        assert!(of_streams.complete);
    }
    let search = search(10);
    assert!(!super::conflicts::crowded(12).conflicts(&search).complete);
    let of_streams = streams.conflicts(&search);
    assert!(!of_streams.complete && of_streams.ties.is_empty());
    assert!(!streams.conflicts(&Search::new(10, &|| true)).complete);
}
