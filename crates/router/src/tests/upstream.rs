//! The upstream path for combinations of route, service and request.

use super::fixtures::{Sample, route, router};
use crate::{Calculation, Flavor, Options, Scratch};
use model::entities::{PathHandling, Route};

const TRADITIONAL: Options = Options {
    flavor: Flavor::Traditional,
    calculation: Calculation::Original,
    max_headers: 100,
    max_arguments: 100,
};

/// Columns: strip_path, route path, request path, then upstream paths for the service paths `/`, `/base` and `/base/`,
/// first with path_handling v0, then with v1.
const TABLE: &[(bool, &str, &str, [&str; 6])] = &[
    (
        true,
        "/pre",
        "/pre",
        ["/", "/base", "/base", "/", "/base", "/base/"],
    ),
    (
        true,
        "/pre",
        "/pre/",
        ["/", "/base/", "/base/", "/", "/base/", "/base/"],
    ),
    (
        true,
        "/pre",
        "/pre/x",
        ["/x", "/base/x", "/base/x", "/x", "/base/x", "/base/x"],
    ),
    (
        true,
        "/pre",
        "/pre/x/",
        ["/x/", "/base/x/", "/base/x/", "/x/", "/base/x/", "/base/x/"],
    ),
    (
        true,
        "/pre",
        "/prefix",
        [
            "/fix",
            "/base/fix",
            "/base/fix",
            "/fix",
            "/basefix",
            "/base/fix",
        ],
    ),
    (
        true,
        "/pre/",
        "/pre/",
        ["/", "/base/", "/base/", "/", "/base", "/base/"],
    ),
    (
        true,
        "/pre/",
        "/pre/x",
        ["/x", "/base/x", "/base/x", "/x", "/basex", "/base/x"],
    ),
    (
        true,
        "/pre/",
        "/pre/x/",
        ["/x/", "/base/x/", "/base/x/", "/x/", "/basex/", "/base/x/"],
    ),
    (
        true,
        "/",
        "/",
        ["/", "/base", "/base/", "/", "/base", "/base/"],
    ),
    (
        true,
        "/",
        "/x",
        ["/x", "/base/x", "/base/x", "/x", "/basex", "/base/x"],
    ),
    (
        true,
        "/",
        "/x/",
        ["/x/", "/base/x/", "/base/x/", "/x/", "/basex/", "/base/x/"],
    ),
    (
        false,
        "/pre",
        "/pre",
        [
            "/pre",
            "/base/pre",
            "/base/pre",
            "/pre",
            "/basepre",
            "/base/pre",
        ],
    ),
    (
        false,
        "/pre",
        "/pre/",
        [
            "/pre/",
            "/base/pre/",
            "/base/pre/",
            "/pre/",
            "/basepre/",
            "/base/pre/",
        ],
    ),
    (
        false,
        "/pre",
        "/pre/x",
        [
            "/pre/x",
            "/base/pre/x",
            "/base/pre/x",
            "/pre/x",
            "/basepre/x",
            "/base/pre/x",
        ],
    ),
    (
        false,
        "/pre",
        "/pre/x/",
        [
            "/pre/x/",
            "/base/pre/x/",
            "/base/pre/x/",
            "/pre/x/",
            "/basepre/x/",
            "/base/pre/x/",
        ],
    ),
    (
        false,
        "/pre",
        "/prefix",
        [
            "/prefix",
            "/base/prefix",
            "/base/prefix",
            "/prefix",
            "/baseprefix",
            "/base/prefix",
        ],
    ),
    (
        false,
        "/pre/",
        "/pre/",
        [
            "/pre/",
            "/base/pre/",
            "/base/pre/",
            "/pre/",
            "/basepre/",
            "/base/pre/",
        ],
    ),
    (
        false,
        "/pre/",
        "/pre/x",
        [
            "/pre/x",
            "/base/pre/x",
            "/base/pre/x",
            "/pre/x",
            "/basepre/x",
            "/base/pre/x",
        ],
    ),
    (
        false,
        "/pre/",
        "/pre/x/",
        [
            "/pre/x/",
            "/base/pre/x/",
            "/base/pre/x/",
            "/pre/x/",
            "/basepre/x/",
            "/base/pre/x/",
        ],
    ),
    (
        false,
        "/",
        "/",
        ["/", "/base", "/base/", "/", "/base", "/base/"],
    ),
    (
        false,
        "/",
        "/x",
        ["/x", "/base/x", "/base/x", "/x", "/basex", "/base/x"],
    ),
    (
        false,
        "/",
        "/x/",
        ["/x/", "/base/x/", "/base/x/", "/x/", "/basex/", "/base/x/"],
    ),
];

fn sent(route: Route, options: Options, service: Option<&str>, request: &str) -> Option<String> {
    let router = router(&[route], options);
    let (path, query) = match request.split_once('?') {
        Some((path, query)) => (path, Some(query.as_bytes())),
        None => (request, None),
    };
    let sample = Sample::get(path);
    let mut scratch = Scratch::default();
    let found = router.matches(&sample.request(), &mut scratch)?;
    let mut uri = Vec::new();
    let path = scratch.path(&sample.request()).to_vec();
    router.write_upstream_uri(&found, service, &path, query, &mut uri);
    Some(String::from_utf8(uri).unwrap())
}

fn route_at(path: &str, strip_path: bool, handling: PathHandling) -> Route {
    Route {
        paths: vec![path.into()],
        strip_path,
        path_handling: Some(handling),
        ..route(1)
    }
}

#[test]
fn service_and_request_path_are_joined_as_in_kongs_table() {
    let services = [Some("/"), Some("/base"), Some("/base/")];
    for (strip_path, path, request, expected) in TABLE {
        for (column, expected) in expected.iter().enumerate() {
            let handling = [PathHandling::V0, PathHandling::V1][column / 3];
            let service = services[column % 3];
            let route = || route_at(path, *strip_path, handling);
            let uri = sent(route(), TRADITIONAL, service, request);
            let case = format!("{strip_path} {path} {request} {handling:?} {service:?}");
            assert_eq!(uri.as_deref(), Some(*expected), "{case}");
            if service == Some("/") {
                assert_eq!(sent(route(), TRADITIONAL, None, request), uri, "{case}");
            }
            if handling == PathHandling::V0 {
                let compatible = sent(route(), Options::default(), service, request);
                assert_eq!(compatible, uri, "{case}");
            }
        }
    }
}

#[test]
fn path_handling_v1_is_ignored_outside_the_traditional_flavor() {
    let route = || route_at("/pre", true, PathHandling::V1);
    let uri = |options| sent(route(), options, Some("/base/"), "/pre");
    assert_eq!(uri(TRADITIONAL).as_deref(), Some("/base/"));
    assert_eq!(uri(Options::default()).as_deref(), Some("/base"));
}

#[test]
fn the_rest_of_the_path_cannot_leave_the_service_path() {
    for (request, expected) in [
        ("/dots.", "/base"),
        ("/dots..", "/base"),
        ("/dots./x", "/base/x"),
        ("/dots../x", "/base/x"),
        ("/dots.../x", "/base/.../x"),
    ] {
        let route = route_at("/dots", true, PathHandling::V0);
        let uri = sent(route, Options::default(), Some("/base"), request);
        assert_eq!(uri.as_deref(), Some(expected), "{request}");
    }
}

#[test]
fn the_path_is_escaped_and_the_query_is_not_touched() {
    for (request, expected) in [
        ("/a%20b?q=a b%zz", "/a%20b?q=a b%zz"),
        ("/caf%c3%a9?", "/caf%C3%A9?"),
        ("/x%2fy", "/x%2Fy"),
    ] {
        let route = route_at("/", false, PathHandling::V0);
        let uri = sent(route, Options::default(), None, request);
        assert_eq!(uri.as_deref(), Some(expected), "{request}");
    }
}

#[test]
fn a_route_without_paths_strips_nothing() {
    for options in [TRADITIONAL, Options::default()] {
        let route = Route {
            methods: vec!["GET".into()],
            ..route(1)
        };
        let uri = sent(route, options, Some("/base"), "/a/b");
        assert_eq!(uri.as_deref(), Some("/base/a/b"));
    }
}
