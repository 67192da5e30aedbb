//! The search for conflicts works without requests. These tests check its results with random requests.

use super::fixtures::{ALL_OPTIONS, assert_ties_are_reported, numbered, route, router, search};
use super::index::{random_route, random_sample};
use crate::{Conflicts, Flavor, Options, Reason, RouteIndex, Router, Scratch, Search, Witness};
use model::entities::Route;
use std::collections::HashSet;
use testkit::random::Random;

const COMPATIBLE: Options = ALL_OPTIONS[1];

/// Returns random routes. Every third route is a copy of another one. Every sixth route has one path removed if it has
/// several.
fn routes(random: &mut Random, count: usize) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for number in 0..count as u32 {
        let mut own = random_route(random, number);
        if number % 3 == 2 {
            let known = routes[random.index(routes.len())].clone();
            let (id, created_at) = (own.id, own.created_at);
            own = Route {
                id,
                created_at,
                ..known
            };
        }
        if number % 6 == 5 && own.paths.len() > 1 {
            own.paths.pop();
        }
        routes.push(own);
    }
    routes
}

/// Returns the expressions of the parts that are reported as unreachable.
fn never(conflicts: &Conflicts<Witness>) -> HashSet<*const expr::Expression> {
    let parts = conflicts.never.iter();
    parts
        .map(|never| std::sync::Arc::as_ptr(&never.part))
        .collect()
}

#[test]
fn no_request_reaches_a_part_reported_as_unreachable() {
    for options in ALL_OPTIONS {
        let mut random = Random::new(11);
        let mut scratch = Scratch::default();
        let (mut parts, mut claimed, mut undecided) = (0, 0, 0);
        for round in 0..25 {
            let count = 2 + random.index(30);
            let routes = routes(&mut random, count);
            let router = router(&routes, options);
            let conflicts = router.conflicts(&search(usize::MAX));
            let never = never(&conflicts);
            parts += router.order().count();
            claimed += never.len();
            undecided += conflicts.undecided;
            for _ in 0..200 {
                let sample = random_sample(&mut random);
                if let Some(found) = router.matches(&sample.request(), &mut scratch) {
                    let part = &router.candidate(&found).expression;
                    let part = std::sync::Arc::as_ptr(part);
                    assert!(
                        !never.contains(&part),
                        "{options:?} {round} {sample:?} {routes:#?}"
                    );
                }
            }
        }
        assert!(
            claimed > parts / 20,
            "too few conflicts: {claimed} in {parts} parts"
        );
        assert!(undecided < parts / 10, "{undecided} of {parts} undecided");
    }
}

#[test]
fn every_example_of_a_tie_satisfies_both_routes() {
    for options in ALL_OPTIONS {
        let mut random = Random::new(13);
        let mut ties = 0;
        for _ in 0..15 {
            let count = 2 + random.index(30);
            let routes = routes(&mut random, count);
            let conflicts = router(&routes, options).conflicts(&search(usize::MAX));
            for tie in &conflicts.ties {
                ties += 1;
                assert_ne!(tie.first, tie.second);
                let witness = &tie.witness;
                for index in [tie.first, tie.second] {
                    let only = &routes[index.0 as usize..][..1];
                    let found =
                        router(only, options).matches(&witness.request(), &mut Scratch::default());
                    assert!(found.is_some(), "{options:?} {witness:?} {only:#?}");
                }
            }
        }
        assert!(ties > 100, "too few ties: {ties}");
    }
}

#[test]
fn pairs_that_are_tied_for_a_request_are_reported() {
    let mut scratch = Scratch::default();
    for options in ALL_OPTIONS {
        let mut random = Random::new(17);
        let mut common = 0;
        for round in 0..40 {
            let count = 2 + random.index(10);
            let routes = routes(&mut random, count);
            let all = router(&routes, options);
            let conflicts = all.conflicts(&search(usize::MAX));
            let ranked = all.table().in_order();
            for _ in 0..100 {
                let sample = random_sample(&mut random);
                let matching: Vec<_> = (ranked.iter().map(|(_, candidate)| *candidate))
                    .filter(|candidate| {
                        all.satisfies(&sample.request(), &candidate.expression, &mut scratch)
                    })
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
    for options in ALL_OPTIONS {
        let mut random = Random::new(19);
        for _ in 0..3 {
            let routes = routes(&mut random, 20);
            let router = router(&routes, options);
            let all = router.conflicts(&search(usize::MAX));
            for number in 0..20 {
                let own = RouteIndex(number);
                let of_one = router.conflicts_of(&[own], &search(usize::MAX));
                let never = |conflicts: &Conflicts<Witness>| {
                    let parts = conflicts.never.iter();
                    let parts = parts.filter(|never| never.route == own);
                    parts.map(|never| format!("{never:?}")).collect::<Vec<_>>()
                };
                assert_eq!(never(&of_one), never(&all), "{options:?} {number}");
                let ties = |conflicts: &Conflicts<Witness>| {
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
    for options in ALL_OPTIONS {
        let copies = [1, 2].map(|number| Route {
            created_at: number.into(),
            hosts: vec!["a.test".into(), "*.b.test".into()],
            paths: vec!["/a".into(), "/b".into()],
            methods: vec!["GET".into()],
            headers: vec![("x-a".into(), vec!["1".into(), "2".into()])],
            snis: vec!["a.test".into()],
            ..route(number)
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
fn check_shadowed(routes: &[Route], expected: Option<(u32, &[u32])>) {
    let (router, errors) = Router::build(numbered(routes), COMPATIBLE, None);
    assert!(errors.is_empty(), "{errors:?}");
    let conflicts = router.conflicts(&search(10));
    let found: Vec<_> = (conflicts.never.iter())
        .map(|never| match &never.reason {
            Reason::Shadowed { by } => (never.route.0, by.iter().map(|by| by.0).collect()),
            Reason::Contradiction => (never.route.0, vec![]),
        })
        .collect();
    let expected = expected.map(|(route, by)| (route, by.to_vec()));
    assert_eq!(found, Vec::from_iter(expected));
    assert_eq!(conflicts.undecided, 0);
}

fn with_path(number: u32, path: &str) -> Route {
    Route {
        paths: vec![path.into()],
        ..route(number)
    }
}

#[test]
fn several_routes_can_shadow_the_alternatives_of_one() {
    let with_methods = |number, methods: &[&'static str]| Route {
        methods: methods.iter().map(|method| (*method).into()).collect(),
        ..with_path(number, "/a")
    };
    let mut routes = vec![
        with_methods(0, &["GET", "POST"]),
        with_methods(1, &["GET"]),
        with_methods(2, &["POST", "PUT"]),
    ];
    check_shadowed(&routes, Some((0, &[2, 1])));
    routes[0].methods.push("PATCH".into());
    check_shadowed(&routes, None);
}

#[test]
fn a_regex_shadows_later_paths_with_the_same_start() {
    check_shadowed(
        &[with_path(0, "/a/b"), with_path(1, "~/a")],
        Some((0, &[1])),
    );
    check_shadowed(&[with_path(0, "/a/b"), with_path(1, "~/a$")], None);
    check_shadowed(
        &[with_path(0, "/a/b"), with_path(1, "~/(a|c)/[a-z]")],
        Some((0, &[1])),
    );
    check_shadowed(&[with_path(0, "/a"), with_path(1, "/a/b")], None);
    check_shadowed(
        &[with_path(0, "~/a/.*"), with_path(1, "~/a")],
        Some((0, &[1])),
    );
}

#[test]
fn a_regex_shadows_others_that_match_nothing_else() {
    let users = || with_path(1, "~/users/[^/]+$");
    check_shadowed(&[with_path(0, r"~/users/\d+$"), users()], Some((0, &[1])));
    check_shadowed(&[with_path(0, r"~/users/\d*$"), users()], None);
    let mut two = with_path(0, "~/(users|teams)/[0-9]{1,3}$");
    check_shadowed(&[two.clone(), users()], None);
    check_shadowed(
        &[two.clone(), users(), with_path(2, "~/teams/[^/]")],
        Some((0, &[2, 1])),
    );
    two.headers = vec![("x-a".into(), vec!["~*^a+$".into()])];
    check_shadowed(&[two, users(), with_path(2, "~/teams")], None);
}

#[test]
fn a_wildcard_with_more_attribute_types_shadows_only_its_own_hosts() {
    let mut general = with_path(1, "~/");
    general.hosts = vec!["*.test".into()];
    let mut special = with_path(0, "/a");
    special.hosts = vec!["*.a.test".into()];
    check_shadowed(&[special.clone(), general.clone()], Some((0, &[1])));
    special.hosts = vec!["*.a.test".into(), "*.other".into()];
    check_shadowed(&[special.clone(), general.clone()], None);
    special.hosts = vec!["a.*".into()];
    check_shadowed(&[special, general], None);
}

#[test]
fn server_names_do_not_shadow_requests_without_tls() {
    let mut named = with_path(1, "/a");
    named.snis = vec!["a.test".into()];
    check_shadowed(&[with_path(0, "/a"), named.clone()], None);
    let mut same = with_path(0, "/a/b");
    same.snis = vec!["a.test".into()];
    let mut regex = with_path(1, "~/a");
    regex.snis = vec!["*.test".into()];
    check_shadowed(&[same, regex], Some((0, &[1])));
}

fn with_expression(number: u32, expression: &str, priority: u64) -> Route {
    Route {
        expression: Some(expression.into()),
        priority: Some(priority),
        ..route(number)
    }
}

const EXPRESSIONS: Options = Options {
    flavor: Flavor::Expressions,
    ..COMPATIBLE
};

#[test]
fn expressions_that_no_request_satisfies_are_contradictions() {
    for text in [
        r#"http.path == "/a" && http.path ^= "/b""#,
        r#"http.host == "a.test" && http.host == "b.test""#,
        r#"http.host =^ ".a.test" && http.host == "b.test""#,
        r#"net.dst.port > 80 && net.dst.port <= 80"#,
        r#"net.dst.port < 0"#,
        r#"net.src.ip in 10.0.0.0/9 && net.src.ip in 10.128.0.0/9"#,
        r#"net.src.ip in 10.0.0.0/8 && net.src.ip not in 10.0.0.0/9 && net.src.ip not in 10.128.0.0/9"#,
        r#"(http.path ^= "/a") && !(http.path ^= "/a")"#,
        r#"lower(http.path) == "/A""#,
        r#"http.headers.x_a == "1" && http.headers.x_a == "2""#,
        r#"http.headers.x_a == "1" && any(http.headers.x_a) == "2""#,
        r#"any(http.headers.x_a) == "1" && !(any(http.headers.x_a) ^= "1")"#,
        r#"net.protocol == "http" && net.protocol == "https""#,
        r##"http.path ~ r#"^/a/[0-9]+$"# && http.path ~ r#"^/a/[a-z]+$"#"##,
        r#"(http.method == "GET" || http.method == "PUT") && http.method != "GET" && http.method != "PUT""#,
        r##"http.path ~ "^/a" && !(http.path ^= "/a")"##,
    ] {
        let routes = [with_expression(0, text, 1)];
        let conflicts = router(&routes, EXPRESSIONS).conflicts(&search(10));
        assert_eq!(conflicts.never.len(), 1, "{text} {conflicts:?}");
        assert_eq!(conflicts.never[0].reason, Reason::Contradiction);
        assert!(conflicts.never[0].whole);
    }
}

#[test]
fn expressions_that_unusual_requests_satisfy_are_no_contradictions() {
    for text in [
        // A predicate on a field without a value is false.
        r#"!(tls.sni == "a") && !(tls.sni != "a")"#,
        r#"!(http.headers.x_a == "1") && !(http.headers.x_a != "1")"#,
        // A request may have two values of the header.
        r#"any(http.headers.x_a) == "1" && any(http.headers.x_a) == "2""#,
        r#"!(http.headers.x_a == "1") && any(http.headers.x_a) == "1""#,
        r#"lower(http.path) == "/a" && http.path != "/a""#,
        r#"http.queries.q == "x" && http.queries.q != """#,
        r#"net.dst.port >= 8080 && net.dst.port <= 8080"#,
        r#"net.src.ip in 10.0.0.0/8 && net.src.ip != 10.0.0.0 && net.src.port > 1024"#,
        r#"http.path.segments.0 == "a" && http.path.segments.2 == "c""#,
        r#"http.path.segments.0 == "a" && http.path.segments.len == 3"#,
        r##"http.path ~ "a" && http.path contains "b" && http.path =^ "c""##,
        r##"http.path ~ r#"^/a/[^/]+/x$"# && http.path ~ r#"^/a/y/[^/]+$"#"##,
        r#"http.host == "a.test" && net.dst.port == 8443 && net.protocol == "https""#,
    ] {
        let routes = [with_expression(0, text, 1)];
        let conflicts = router(&routes, EXPRESSIONS).conflicts(&search(10));
        assert!(conflicts.never.is_empty(), "{text} {conflicts:?}");
        assert_eq!(conflicts.undecided, 0, "{text}");
    }
}

#[test]
fn expressions_shadow_each_other_and_tie_by_priority() {
    let check = |routes: &[(&str, u64)], shadowed: &[u32], tied: usize| {
        let routes: Vec<_> = (0..)
            .zip(routes)
            .map(|(number, (text, priority))| with_expression(number, text, *priority))
            .collect();
        let conflicts = router(&routes, EXPRESSIONS).conflicts(&search(10));
        let never: Vec<_> = conflicts.never.iter().map(|never| never.route.0).collect();
        assert_eq!(never, shadowed, "{routes:#?} {conflicts:#?}");
        assert_eq!(conflicts.ties.len(), tied, "{routes:#?} {conflicts:#?}");
        assert_eq!(conflicts.undecided, 0, "{routes:#?}");
    };
    let ports = [
        ("net.src.port >= 100 && net.src.port < 200", 1),
        ("net.src.port < 150", 2),
        ("net.src.port >= 150", 2),
    ];
    check(&ports, &[0], 0);
    let blocks = [
        ("net.src.ip in 10.1.0.0/16", 1),
        ("net.src.ip in 10.0.0.0/8 && http.method == \"GET\"", 2),
        ("net.src.ip in 10.0.0.0/9 && http.method != \"GET\"", 2),
    ];
    check(&blocks, &[0], 0);
    let same = [("http.path ^= \"/a\"", 7), ("http.path ^= \"/a/b\"", 7)];
    check(&same, &[], 1);
    let negated = [("http.path ^= \"/a\"", 1), ("!(http.path ^= \"/b\")", 2)];
    check(&negated, &[0], 0);
    let not_all = [
        ("any(http.headers.x_a) == \"1\"", 1),
        ("http.headers.x_a == \"1\"", 2),
    ];
    check(&not_all, &[], 0);
    let all = [not_all[1], (not_all[0].0, 3)];
    check(&all, &[0], 0);
}

/// Returns a router whose routes have 1000 hosts each. No two routes have a host in common.
pub(super) fn crowded(count: usize) -> Router {
    let routes = (0..count as u32).map(|number| Route {
        hosts: (0..1000)
            .map(|host| format!("h{host}.r{number}.test").into())
            .collect(),
        ..route(number)
    });
    router(&routes.collect::<Vec<_>>(), COMPATIBLE)
}

#[test]
fn a_search_that_takes_too_many_steps_says_that_it_is_incomplete() {
    assert!(crowded(2).conflicts(&search(100)).complete);
    let router = crowded(12);
    let asked = std::cell::Cell::new(0);
    let ask = || {
        asked.set(asked.get() + 1);
        false
    };
    let conflicts = router.conflicts(&Search::new(100, &ask));
    assert!(!conflicts.complete && !conflicts.truncated);
    assert!((1..5000).contains(&asked.get()), "{}", asked.get());
}

#[test]
fn a_cancelled_search_stops() {
    let router = crowded(12);
    let search = || Search::new(100, &|| true);
    assert!(!router.conflicts(&search()).complete);
    assert!(!router.conflicts_of(&[RouteIndex(0)], &search()).complete);
}

/// Returns a condition with more cases than the search compares.
fn with_many_cases(path: &str) -> String {
    let parts = (0..8).map(|number| {
        format!(r#"(http.headers.a{number} == "1" || http.headers.b{number} == "1")"#)
    });
    let parts: Vec<_> = parts.collect();
    format!(r#"http.path ^= "{path}" && {}"#, parts.join(" && "))
}

/// A condition for which the search cannot decide whether any request satisfies it.
const UNDECIDABLE: &str = r##"http.path ~ r#"é\b"# && !(http.path contains "é")"##;

#[test]
fn neighbours_that_cannot_be_decided_are_counted() {
    for (neighbour, priority, undecided) in [
        (with_many_cases("/a/b"), 1, 1),
        (with_many_cases("/a/b"), 2, 1),
        // The route cannot shadow a neighbour that is tried first.
        (with_many_cases("/a/b"), 3, 0),
        (with_many_cases("/b"), 1, 0),
        (UNDECIDABLE.to_owned(), 1, 1),
        (UNDECIDABLE.to_owned(), 3, 0),
    ] {
        let routes = [
            with_expression(0, r#"http.path ^= "/a" && http.method == "GET""#, 2),
            with_expression(1, r#"http.path ^= "/a" && http.method == "PUT""#, 2),
            with_expression(2, &neighbour, priority),
        ];
        let router = router(&routes, EXPRESSIONS);
        for chosen in [&[RouteIndex(0)][..], &[RouteIndex(0), RouteIndex(1)]] {
            let conflicts = router.conflicts_of(chosen, &search(10));
            assert_eq!(conflicts.undecided, undecided, "{neighbour} {priority}");
            assert!(conflicts.complete && !conflicts.truncated);
        }
    }
}

#[test]
fn a_search_is_truncated_if_a_conflict_is_left_out() {
    let same_paths = |count: u32| {
        let pairs = (0..count).map(|number| with_path(number, &format!("/{}", number % 2)));
        let headers = |number: u32| format!("x-{}", number / 2);
        let routes: Vec<_> = (0..)
            .zip(pairs)
            .map(|(number, mut route)| {
                route.headers = vec![(headers(number).into(), vec!["1".into()])];
                route
            })
            .collect();
        router(&routes, COMPATIBLE)
    };
    // Each of the two paths belongs to three of the six routes. Routes with the same path are tied, so there are two
    // times three pairs.
    let router = same_paths(6);
    for (limit, truncated) in [(5, true), (6, false), (7, false)] {
        let conflicts = router.conflicts(&search(limit));
        assert_eq!(conflicts.ties.len(), limit.min(6));
        assert_eq!(conflicts.truncated, truncated, "{limit}");
        assert!(conflicts.complete);
    }
}

#[test]
fn a_search_that_stops_at_a_limit_on_pairs_is_truncated() {
    let undecidable = |count: u32| {
        let routes = (0..count).map(|number| {
            let text = format!("{UNDECIDABLE} && http.headers.x_{number} == \"1\"");
            with_expression(number, &text, 1)
        });
        router(&routes.collect::<Vec<_>>(), EXPRESSIONS).conflicts(&search(100))
    };
    // 20 routes have 190 pairs, and 21 routes 210.
    let (few, many) = (undecidable(20), undecidable(21));
    assert_eq!((few.undecided, few.truncated), (20 + 190, false));
    assert_eq!((many.undecided, many.truncated), (21 + 200, true));
}

#[test]
fn neighbours_that_cannot_conflict_do_not_truncate_the_search() {
    let neighbours = 1_100;
    for (priority, truncated) in [(1, true), (3, false)] {
        let others = (1..=neighbours).map(|number| {
            let text = format!(r#"http.path ^= "/" && http.headers.x_{number} == "1""#);
            with_expression(number, &text, priority)
        });
        let own = with_expression(0, r#"http.path ^= "/" && http.headers.y == "1""#, 2);
        let routes: Vec<_> = std::iter::once(own).chain(others).collect();
        let conflicts = router(&routes, EXPRESSIONS).conflicts_of(&[RouteIndex(0)], &search(10));
        assert_eq!(conflicts.truncated, truncated, "{priority}");
    }
}
