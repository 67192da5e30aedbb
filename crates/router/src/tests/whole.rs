//! Guarantees of the router that the recorded decisions do not cover.

use super::fixtures::{ALL_OPTIONS, Sample, numbered, route, router};
use crate::{Calculation, Flavor, Group, Options, Problem, RouteIndex, Router, Scheme, Scratch};
use model::entities::{Protocol, Route};
use std::fmt::Write as _;

fn found(router: &Router, sample: &Sample) -> Option<u32> {
    let found = router.matches(&sample.request(), &mut Scratch::default());
    found.map(|found| found.route.0)
}

fn with_path(number: u32, path: &str) -> Route {
    Route {
        paths: vec![path.into()],
        ..route(number)
    }
}

#[test]
fn an_unusable_route_is_reported_and_the_others_serve() {
    let routes = [with_path(1, "~/a("), with_path(2, "/a"), route(3)];
    for options in ALL_OPTIONS {
        let (router, errors) = Router::build(numbered(&routes), options, None);
        assert_eq!(errors.len(), 2);
        assert_eq!(errors[0].route, RouteIndex(0));
        assert_eq!(errors[0].id, routes[0].id);
        assert!(matches!(errors[0].problem, Problem::Regex { .. }));
        assert!(errors[0].to_string().contains("/a("), "{}", errors[0]);
        assert!(matches!(errors[1].problem, Problem::NoAttributes));
        assert_eq!(found(&router, &Sample::get("/a(")), Some(1));
    }
}

#[test]
fn only_the_traditional_flavor_supports_look_around() {
    let routes = [with_path(1, "~/(?!private).*$")];
    let (traditional, errors) = Router::build(numbered(&routes), ALL_OPTIONS[0], None);
    assert!(errors.is_empty());
    assert_eq!(found(&traditional, &Sample::get("/public")), Some(0));
    assert_eq!(found(&traditional, &Sample::get("/private/x")), None);
    let (_, errors) = Router::build(numbered(&routes), ALL_OPTIONS[1], None);
    assert_eq!(errors.len(), 1);
}

#[test]
fn routes_of_other_subsystems_are_left_out() {
    let stream = Route {
        protocols: vec![Protocol::Tcp],
        snis: vec!["a".into()],
        ..route(1)
    };
    for options in ALL_OPTIONS {
        let router = router(std::slice::from_ref(&stream), options);
        assert_eq!(found(&router, &Sample::get("/")), None);
    }
}

#[test]
fn with_strict_an_https_only_route_with_snis_accepts_no_plain_request() {
    let secure = Route {
        protocols: vec![Protocol::Https],
        snis: vec!["a.test".into()],
        ..route(1)
    };
    let options = |calculation| Options {
        calculation,
        ..Options::default()
    };
    let decided = |calculation, sample: &Sample| {
        found(
            &router(std::slice::from_ref(&secure), options(calculation)),
            sample,
        )
    };
    let plain = Sample::get("/");
    assert_eq!(decided(Calculation::Original, &plain), Some(0));
    assert_eq!(decided(Calculation::Strict, &plain), None);
    let mut with_tls = Sample::get("/");
    with_tls.scheme = Scheme::Https;
    with_tls.sni = Some("a.test".to_owned());
    assert_eq!(decided(Calculation::Strict, &with_tls), Some(0));
}

#[test]
fn headers_beyond_the_limit_are_ignored() {
    let route = Route {
        headers: vec![("x-last".into(), vec!["1".into()])],
        ..route(1)
    };
    for options in ALL_OPTIONS {
        let options = Options {
            max_headers: 3,
            ..options
        };
        let router = router(std::slice::from_ref(&route), options);
        for (before, expected) in [(2, Some(0)), (3, None)] {
            let mut sample = Sample::get("/");
            sample.headers = vec![("x".to_owned(), "1".to_owned()); before];
            sample.headers.push(("X-Last".to_owned(), "1".to_owned()));
            assert_eq!(found(&router, &sample), expected, "{options:?}");
        }
    }
}

#[test]
fn paths_of_equal_length_share_a_candidate_and_its_position() {
    // The parts of a split route have derived ids, which may change its order among routes of equal priority. A route
    // that is not split keeps its id.
    let routes = [
        Route {
            paths: vec!["/aa".into(), "/bb".into()],
            ..route(2)
        },
        with_path(1, "/bb"),
    ];
    let router = router(&routes, Options::default());
    assert_eq!(found(&router, &Sample::get("/bb")), Some(0));
}

#[test]
fn normal_paths_are_returned_unchanged_and_others_normalized() {
    let router = router(&[with_path(1, "/")], Options::default());
    let mut scratch = Scratch::default();
    for (path, shown) in [("/a/../%62", "/b"), ("/c", "/c")] {
        let sample = Sample::get(path);
        let request = sample.request();
        assert!(router.matches(&request, &mut scratch).is_some());
        assert_eq!(scratch.path(&request), shown.as_bytes());
    }
}

#[test]
fn header_regexes_capture_outside_the_traditional_flavor() {
    let route = Route {
        headers: vec![("x-v".into(), vec!["~*v(?<major>[0-9]+)".into()])],
        paths: vec!["~/(?<name>[a-z]+)".into()],
        ..route(1)
    };
    for options in ALL_OPTIONS {
        let router = router(std::slice::from_ref(&route), options);
        let mut sample = Sample::get("/shop");
        sample.headers.push(("X-V".to_owned(), "V12".to_owned()));
        let mut scratch = Scratch::default();
        let found = router.matches(&sample.request(), &mut scratch).unwrap();
        let mut shown = String::new();
        router.captures(
            &found,
            &sample.request(),
            &mut scratch,
            &mut |group, value| {
                write!(shown, "{group:?}={} ", String::from_utf8_lossy(value)).unwrap();
            },
        );
        let of_path = "Number(1)=shop Name(\"name\")=shop ";
        let of_header = "Number(1)=12 Name(\"major\")=12 ";
        match options.flavor {
            Flavor::Traditional => assert_eq!(shown, of_path),
            Flavor::TraditionalCompatible | Flavor::Expressions => {
                assert_eq!(shown, format!("{of_path}{of_header}"))
            }
        }
    }
}

#[test]
fn the_whole_match_of_a_path_is_group_zero_for_those_that_ask_for_it() {
    let route = Route {
        headers: vec![("x-v".into(), vec!["~*v(?<major>[0-9]+)".into()])],
        ..with_path(1, "~/u/([0-9]+)")
    };
    for options in ALL_OPTIONS {
        let router = router(std::slice::from_ref(&route), options);
        let mut sample = Sample::get("/u/42/more");
        sample.headers.push(("X-V".to_owned(), "V12".to_owned()));
        let mut scratch = Scratch::default();
        let found = router.matches(&sample.request(), &mut scratch).unwrap();
        let mut whole = Vec::new();
        let request = sample.request();
        router.captures_and_match(&found, &request, &mut scratch, &mut |group, value| {
            if group == Group::Number(0) {
                whole.push(String::from_utf8_lossy(value).into_owned());
            }
        });
        assert_eq!(whole, ["/u/42"]);
    }
}

#[test]
fn hosts_and_paths_need_not_be_utf8() {
    let routes = [
        Route {
            hosts: vec!["*.a.test".into()],
            ..route(1)
        },
        with_path(2, "~/[^/]+/x"),
    ];
    for options in ALL_OPTIONS {
        let router = router(&routes, options);
        let sample = Sample::get("/");
        let mut request = sample.request();
        let mut scratch = Scratch::default();
        request.host = Some(b"\xff.a.test");
        let found = router.matches(&request, &mut scratch);
        assert_eq!(found.map(|found| found.route), Some(RouteIndex(0)));
        request.host = None;
        request.path = b"/%e9/x";
        let found = router.matches(&request, &mut scratch);
        let bytes = options.flavor == Flavor::Traditional;
        assert_eq!(
            found.map(|found| found.route),
            bytes.then_some(RouteIndex(1))
        );
    }
}

#[test]
fn hostile_requests_cost_no_more_than_their_length() {
    // The routes have nested prefixes, so the longest path finds all of them. The host has many dots, and one path
    // consists of escapes only.
    let routes: Vec<_> = (1..2_000)
        .map(|length| Route {
            headers: vec![("x".into(), vec!["no".into()])],
            hosts: vec!["*.a.test".into()],
            ..with_path(length, &format!("/{}", "a".repeat(length as usize)))
        })
        .collect();
    for options in ALL_OPTIONS {
        let router = router(&routes, options);
        for path in ["/".to_owned() + &"a".repeat(8_000), "/%61".repeat(2_000)] {
            let sample = Sample::get(&path).with_host(&".a.test".repeat(1_000));
            assert_eq!(found(&router, &sample), None);
        }
    }
}

#[test]
fn a_router_with_replaced_routes_decides_like_a_new_one() {
    let before = [
        with_path(1, "/a"),
        with_path(3, "~/b/(?<id>\\d+)$"),
        with_path(5, "/c"),
        with_path(7, "/a/long"),
        with_path(9, "~/gone$"),
    ];
    // The second route is replaced, the third and fifth are removed, and new ones are added before, between and after.
    let after = [
        with_path(0, "/c"),
        with_path(1, "/a"),
        with_path(3, "/b"),
        with_path(4, "~/b/(?<id>\\d+)$"),
        with_path(7, "/a/long"),
        with_path(8, "/a/longer"),
    ];
    // Routes keep their numbers; a new route gets the number of the removed fifth one.
    let (numbers_before, numbers_after) = ([0, 1, 2, 3, 4], [5, 0, 1, 4, 3, 6]);
    let fresh = [5, 1, 4, 6];
    for options in ALL_OPTIONS {
        let numbered = |numbers: &[u32], routes| {
            let indexes = numbers.iter().copied().map(RouteIndex);
            indexes.zip(routes).collect::<Vec<_>>()
        };
        let build = |routes| Router::build(routes, options, None).0;
        let built = build(numbered(&numbers_after, after.iter()));
        let routes = numbered(&numbers_after, after.iter());
        let routes = (routes.into_iter()).filter(|(index, _)| fresh.contains(&index.0));
        let removed = [1, 2, 4].map(RouteIndex);
        let (replaced, errors) =
            build(numbered(&numbers_before, before.iter())).replace(&removed, routes);
        let order = |router: &Router| format!("{:?}", router.order().collect::<Vec<_>>());
        assert_eq!(order(&replaced), order(&built));
        assert!(errors.is_empty());
        for path in [
            "/a",
            "/a/long",
            "/a/longer",
            "/b",
            "/b/1",
            "/c",
            "/gone",
            "/",
        ] {
            let sample = Sample::get(path);
            assert_eq!(found(&replaced, &sample), found(&built, &sample), "{path}");
        }
    }
}

#[test]
fn an_unusable_replacement_is_reported() {
    let before = [with_path(1, "/a"), with_path(2, "/b")];
    for options in ALL_OPTIONS {
        let unusable = with_path(2, "~/b(");
        let second = RouteIndex(1);
        let (replaced, errors) = router(&before, options).replace(&[second], [(second, &unusable)]);
        assert_eq!(errors.len(), 1);
        assert_eq!(found(&replaced, &Sample::get("/a")), Some(0));
        assert_eq!(found(&replaced, &Sample::get("/b")), None);
    }
}
