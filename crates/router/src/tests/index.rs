//! The index must find the same candidate as a check of all candidates in order, for random routes and requests.

use super::fixtures::{ALL_OPTIONS, Sample, numbered, route};
use crate::{Router, Scheme, Scratch};
use model::entities::Route;
use testkit::random::Random;

const HOSTS: &[&str] = &[
    "a.test",
    "b.a.test",
    "c.test",
    "a.test:8080",
    "*.test",
    "*.a.test",
    "*.a.test:8080",
    "a.*",
    "b.a.*",
    "a.*:8080",
    "[::1]",
    "[::1]:8080",
];
const SENT_HOSTS: &[&str] = &[
    "a.test",
    "b.a.test",
    "x.a.test",
    "a.test:8080",
    "x.b.a.test:8080",
    "a.other",
    "a.",
    ".test",
    "test",
    "b.a.x.y:443",
    "[::1]",
    "[::1]:8080",
    "a.test:x",
    "",
    "A.test",
];
const PATHS: &[&str] = &[
    "/",
    "/a",
    "/ab",
    "/a/b",
    "/a/b/",
    "/a/b/c",
    "/b",
    "~/a",
    "~/a/[0-9]+",
    "~/(a|b)/x",
    "~/a|/b",
    "~/(?i)AB",
    "~/ab?/c$",
    "~.*",
    "~/a/(?<rest>.*)",
];
const SENT_PATHS: &[&str] = &[
    "/",
    "/a",
    "/ab",
    "/abc",
    "/a/b",
    "/a/b/c/d",
    "/a/7",
    "/a//b",
    "/%61/x",
    "/b/x",
    "/AB",
    "/ab/c",
    "/a/c",
    "/c",
    "*",
    "/b/../a/17/x",
];
const METHODS: &[&str] = &["GET", "POST", "PUT", "PURGE"];
const HEADERS: &[(&str, &str)] = &[("x-a", "1"), ("x-a", "two"), ("x-b", "~*^t"), ("x_c", "Z")];
const SENT_HEADERS: &[(&str, &str)] = &[("X-A", "1"), ("x-a", "TWO"), ("X-B", "to"), ("x-c", "z")];
const SNIS: &[&str] = &["a.test", "*.test", "a.*", "b.test."];

/// Returns an empty list in half of the cases, else up to three elements.
fn some<T: Copy>(random: &mut Random, of: &[T]) -> Vec<T> {
    let count = random.index(6).saturating_sub(2);
    (0..count).map(|_| *random.pick(of)).collect()
}

fn texts<T: From<&'static str>>(random: &mut Random, of: &[&'static str]) -> Vec<T> {
    some(random, of).into_iter().map(T::from).collect()
}

pub(super) fn random_route(random: &mut Random, number: u32) -> Route {
    let mut route = Route {
        created_at: i64::try_from(random.index(3)).unwrap(),
        hosts: texts(random, HOSTS),
        paths: texts(random, PATHS),
        methods: texts(random, METHODS),
        regex_priority: Some(i64::try_from(random.index(3)).unwrap()),
        strip_path: random.one_in(2),
        ..route(number)
    };
    if random.one_in(4) {
        for (name, value) in some(random, HEADERS) {
            route.headers.push((name.into(), vec![value.into()]));
        }
    }
    if random.one_in(4) {
        route.snis = texts(random, SNIS);
    }
    let bare = route.hosts.is_empty() && route.paths.is_empty() && route.methods.is_empty();
    if bare && route.headers.is_empty() && route.snis.is_empty() {
        route.paths.push("/".into());
    }
    route
}

pub(super) fn random_sample(random: &mut Random) -> Sample {
    let mut sample = Sample::get(random.text(SENT_PATHS));
    sample.method = random.text(&["GET", "POST", "PURGE", "OTHER"]).to_owned();
    if !random.one_in(5) {
        sample = sample.with_host(random.text(SENT_HOSTS));
    }
    for (name, value) in some(random, SENT_HEADERS) {
        sample.headers.push((name.to_owned(), value.to_owned()));
    }
    if random.one_in(2) {
        sample.scheme = Scheme::Https;
        sample.sni = Some(random.text(&["a.test", "b.test", "a.x", "none"]).to_owned());
    }
    sample
}

#[test]
fn the_index_decides_like_a_check_of_every_candidate() {
    for options in ALL_OPTIONS {
        let mut random = Random::new(7);
        let mut scratch = Scratch::default();
        let mut last: Option<Router> = None;
        let mut hits = 0;
        for round in 0..300 {
            let count = 1 + random.index(40);
            let routes: Vec<_> = (0..count as u32)
                .map(|number| random_route(&mut random, number))
                .collect();
            let (router, errors) = Router::build(numbered(&routes), options, last.as_ref());
            assert!(errors.is_empty(), "{errors:?}");
            for _ in 0..100 {
                let sample = random_sample(&mut random);
                let request = sample.request();
                let expected = router.matches_without_index(&request, &mut scratch);
                let found = router.matches(&request, &mut scratch);
                assert_eq!(
                    found, expected,
                    "{options:?} {round} {sample:?} {routes:#?}"
                );
                if let Some(found) = found {
                    hits += 1;
                    let reachable = router.reachable(&request, &mut scratch);
                    assert!(reachable.contains(&found.route), "{sample:?}");
                }
            }
            last = Some(router);
        }
        assert!(
            (10_000..29_000).contains(&hits),
            "too few hits or misses: {hits} hits"
        );
    }
}

#[test]
fn routes_with_many_hosts_and_paths_are_found_by_each() {
    let route = Route {
        hosts: (0..100)
            .map(|host| format!("h{host}.test").into())
            .collect(),
        paths: (0..100).map(|path| format!("/p{path:03}").into()).collect(),
        ..route(1)
    };
    for options in ALL_OPTIONS {
        let router = super::fixtures::router(std::slice::from_ref(&route), options);
        let mut scratch = Scratch::default();
        for number in 0..100 {
            let sample =
                Sample::get(&format!("/p{number:03}/x")).with_host(&format!("h{number}.test"));
            assert!(router.matches(&sample.request(), &mut scratch).is_some());
        }
        let other = Sample::get("/p100").with_host("h1.test");
        assert!(router.matches(&other.request(), &mut scratch).is_none());
    }
}

#[test]
fn more_methods_than_bits_are_distinguished() {
    let routes: Vec<_> = (0..40)
        .map(|number| Route {
            methods: vec![format!("M{number}").into()],
            ..route(number)
        })
        .collect();
    for options in ALL_OPTIONS {
        let router = super::fixtures::router(&routes, options);
        let mut scratch = Scratch::default();
        for number in 0..41 {
            let mut sample = Sample::get("/");
            sample.method = format!("M{number}");
            let found = router.matches(&sample.request(), &mut scratch);
            let expected = (number < 40).then_some(number);
            assert_eq!(found.map(|found| found.route.0), expected);
        }
    }
}
