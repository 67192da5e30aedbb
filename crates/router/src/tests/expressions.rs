//! The `expressions` flavor: routes with an expression, classic routes, and the fields that only expressions use.

use super::fixtures::{ALL_OPTIONS, Sample, numbered, route, router};
use crate::{Calculation, Flavor, HeaderSource, Options, Request, Router, Scheme, Scratch};
use model::entities::{Endpoint, Protocol, Route};
use std::cell::Cell;
use std::net::IpAddr;

const EXPRESSIONS: Options = Options {
    flavor: Flavor::Expressions,
    ..ALL_OPTIONS[1]
};

fn expression(number: u32, priority: u64, text: &str) -> Route {
    Route {
        expression: Some(text.into()),
        priority: Some(priority),
        ..route(number)
    }
}

fn path(number: u32, path: &str) -> Route {
    Route {
        paths: vec![path.into()],
        ..route(number)
    }
}

fn found(routes: &[Route], sample: &Sample) -> Option<u32> {
    let router = router(routes, EXPRESSIONS);
    found_by(&router, &sample.request())
}

fn found_by(router: &Router, request: &Request<'_>) -> Option<u32> {
    let found = router.matches(request, &mut Scratch::default());
    let unindexed = router.matches_without_index(request, &mut Scratch::default());
    assert_eq!(found, unindexed);
    found.map(|found| found.route.0)
}

/// Whether a request satisfies the expression.
fn passes(text: &str, sample: &Sample) -> bool {
    found(&[expression(1, 0, text)], sample).is_some()
}

#[test]
fn expressions_come_before_classic_routes_and_these_keep_their_order() {
    let mut routes = vec![
        path(9, "/a"),
        path(8, "/a/longer"),
        expression(1, 0, r#"http.path ^= "/a" && http.queries.x == "1""#),
        expression(2, 1, r#"http.path ^= "/a" && http.queries.y == "1""#),
    ];
    // The lowest priority of an expression outweighs all attribute types of a classic route.
    routes[1].methods = vec!["GET".into()];
    routes[1].hosts = vec!["h".into()];
    let asked = |query: &str| {
        let mut sample = Sample::get("/a/longer/still").with_host("h");
        sample.query = Some(query.to_owned());
        found(&routes, &sample)
    };
    assert_eq!(asked("x=1&y=1"), Some(3));
    assert_eq!(asked("x=1"), Some(2));
    assert_eq!(asked("z=1"), Some(1));
    routes.remove(1);
    let sample = Sample::get("/a/longer");
    assert_eq!(found(&routes, &sample), Some(0));
}

#[test]
fn with_equal_priority_the_greater_id_wins() {
    for (first, second) in [(1, 2), (2, 1)] {
        let any = r#"http.path ^= "/""#;
        let routes = [expression(first, 5, any), expression(second, 5, any)];
        let expected = u32::from(second > first);
        assert_eq!(found(&routes, &Sample::get("/")), Some(expected));
    }
}

#[test]
fn the_highest_priority_is_above_all_lower_ones() {
    let any = r#"http.path ^= "/""#;
    let routes = [
        expression(9, (1 << 46) - 2, any),
        expression(1, (1 << 46) - 1, any),
    ];
    assert_eq!(found(&routes, &Sample::get("/")), Some(1));
}

#[test]
fn requests_must_be_of_a_protocol_of_the_route() {
    let by_protocol = |protocols: &[Protocol], scheme| {
        let mut sample = Sample::get("/p");
        sample.scheme = scheme;
        let with = |route: Route| Route {
            protocols: protocols.to_vec(),
            ..route
        };
        let expression = with(expression(
            1,
            0,
            r#"http.path == "/other" || http.path == "/p""#,
        ));
        let as_expression = found(&[expression], &sample).is_some();
        let as_classic = found(&[with(path(1, "/p"))], &sample).is_some();
        assert_eq!(as_expression, as_classic, "{protocols:?}");
        as_expression
    };
    use Protocol::{Grpc, Grpcs, Http, Https};
    for (protocols, on_http, on_https) in [
        (&[Http][..], true, false),
        (&[Http, Https], true, true),
        // Unencrypted requests match too, so that the gateway can answer them with a redirect.
        (&[Https], true, true),
        (&[Grpc], true, false),
        (&[Grpcs], false, true),
        (&[Grpc, Grpcs], true, true),
    ] {
        assert_eq!(
            by_protocol(protocols, Scheme::Http),
            on_http,
            "{protocols:?}"
        );
        assert_eq!(
            by_protocol(protocols, Scheme::Https),
            on_https,
            "{protocols:?}"
        );
    }
}

#[test]
fn other_flavors_do_not_match_expressions() {
    let routes = [
        expression(1, 9, r#"http.path ^= "/""#),
        Route {
            paths: vec!["/a".into()],
            ..expression(2, 9, r#"http.path ^= "/""#)
        },
    ];
    for options in ALL_OPTIONS {
        let (router, errors) = Router::build(numbered(&routes), options, None);
        let problems: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].ends_with("it has nothing to match requests by"));
        assert_eq!(found_by(&router, &Sample::get("/a").request()), Some(1));
        assert_eq!(found_by(&router, &Sample::get("/").request()), None);
    }
}

#[test]
fn an_unreadable_route_is_reported_and_the_others_serve() {
    let routes = [
        expression(1, 3, r#"http.path == 1"#),
        expression(2, 2, r#"http.path ~ "(?=look-ahead)""#),
        expression(3, 1, r#"http.path ^= "/""#),
        route(4),
    ];
    let (router, errors) = Router::build(numbered(&routes), EXPRESSIONS, None);
    let reported: Vec<_> = errors.iter().map(|error| error.route.0).collect();
    assert_eq!(reported, [0, 1, 3]);
    let text = errors[0].to_string();
    assert!(
        text.contains("Type mismatch between the LHS and RHS values of predicate"),
        "{text}"
    );
    assert_eq!(found_by(&router, &Sample::get("/").request()), Some(2));
}

#[test]
fn the_old_name_of_the_port_still_works() {
    let sample = Sample::get("/").with_host("h:8000");
    assert!(passes("net.port == 8000", &sample));
    assert!(passes("net.port>= 8000 && net.dst.port < 8001", &sample));
}

#[test]
fn both_ends_of_the_connection_are_fields() {
    let mut sample = Sample::get("/");
    sample.source = Some("192.0.2.7:4000".parse().unwrap());
    sample.destination = Some("::ffff:10.0.0.1".parse().unwrap());
    for text in [
        "net.src.ip in 192.0.2.0/24",
        "net.src.ip == 192.0.2.7 && net.src.port == 4000",
        "net.dst.ip == 10.0.0.1",
        "net.dst.ip not in 10.1.0.0/16 && net.dst.port == 80",
        "!(net.src.ip in 2001:db8::/32)",
    ] {
        assert!(passes(text, &sample), "{text}");
    }
    assert!(!passes("net.src.port != 4000", &sample));
    // A load balancer may send an address without a port.
    sample.source = Some("192.0.2.7:0".parse().unwrap());
    assert!(!passes("net.src.port >= 0", &sample));
    sample.destination = None;
    assert!(
        !passes("net.dst.ip != 10.0.0.2", &sample),
        "the destination is unknown"
    );
}

#[test]
fn classic_routes_can_match_source_and_destination() {
    let end = |ip: Option<&str>, port| Endpoint {
        ip: ip.map(Into::into),
        port,
    };
    let routes = [Route {
        sources: vec![end(Some("192.0.2.9/24"), None), end(None, Some(1))],
        destinations: vec![end(Some("10.0.0.1"), Some(80))],
        ..route(1)
    }];
    let from = |source: &str, destination: &str, host: &str| {
        let mut sample = Sample::get("/").with_host(host);
        sample.source = Some(source.parse().unwrap());
        sample.destination = Some(destination.parse().unwrap());
        found(&routes, &sample).is_some()
    };
    assert!(
        from("192.0.2.1:5", "10.0.0.1", "h"),
        "bits after the prefix are ignored"
    );
    assert!(from("203.0.113.1:1", "10.0.0.1", "h:80"));
    assert!(!from("203.0.113.1:5", "10.0.0.1", "h"));
    assert!(!from("192.0.2.1:5", "10.0.0.2", "h"));
    assert!(
        !from("192.0.2.1:5", "10.0.0.1", "h:81"),
        "the port in the Host header is compared"
    );
}

#[test]
fn arguments_are_decoded_and_may_have_several_values() {
    let mut sample = Sample::get("/");
    sample.query = Some("q=a%20b+c&flag&flag=x&n%61me=%zz&empty=".to_owned());
    for text in [
        r#"http.queries.q == "a b c""#,
        r#"any(http.queries.flag) == """#,
        r#"any(http.queries.flag) == "x""#,
        r#"!(http.queries.flag == "x")"#,
        r#"http.queries.name == "%zz""#,
        r#"http.queries.empty == """#,
        r#"!(http.queries.Q != "") && !(any(http.queries.absent) == "")"#,
        r#"lower(http.queries.q) contains "B C" || http.queries.q =^ "b c""#,
    ] {
        assert!(passes(text, &sample), "{text}");
    }
}

#[test]
fn arguments_beyond_the_limit_are_ignored() {
    let options = Options {
        max_arguments: 2,
        ..EXPRESSIONS
    };
    let router = router(&[expression(1, 0, r#"http.queries.x == "1""#)], options);
    for (query, expected) in [("a=1&x=1", Some(0)), ("a=1&b=1&x=1", None)] {
        let mut sample = Sample::get("/");
        sample.query = Some(query.to_owned());
        assert_eq!(found_by(&router, &sample.request()), expected);
    }
}

#[test]
fn segments_are_those_of_the_normalized_path() {
    let sample = Sample::get("/a/./b//%63/x/../d%2Fe/");
    for text in [
        "http.path.segments.len == 4",
        r#"http.path.segments.2 == "c""#,
        r#"http.path.segments.1_3 == "b/c/d%2Fe""#,
        r#"!(http.path.segments.4 != "x") && !(http.path.segments.3_4 != "x")"#,
        r#"any(http.path.segments.0) == "a""#,
    ] {
        assert!(passes(text, &sample), "{text}");
    }
    let root = Sample::get("/");
    assert!(passes("http.path.segments.len == 0", &root));
    assert!(!passes(r#"http.path.segments.0 != "a""#, &root));
}

#[test]
fn parsed_parts_of_a_request_are_not_reused_for_the_next() {
    let texts = [r#"http.queries.x == "1""#, r#"http.path.segments.1 == "b""#];
    let routes: Vec<_> = (1..)
        .zip(texts)
        .map(|(number, text)| expression(number, 0, text))
        .collect();
    let router = router(&routes, EXPRESSIONS);
    let mut scratch = Scratch::default();
    let mut asked = |path: &str, query: &str| {
        let mut sample = Sample::get(path);
        sample.query = Some(query.to_owned());
        let found = router.matches(&sample.request(), &mut scratch);
        found.map(|found| found.route.0)
    };
    assert_eq!(asked("/a/c", "x=1"), Some(0));
    assert_eq!(asked("/a/b", "x=2"), Some(1));
    assert_eq!(asked("/a/c", "x=2"), None);
    assert_eq!(asked("/a/c", "x=1"), Some(0));
}

/// Counts how often the router calls [`HeaderSource::destination`].
struct Reached<'c>(&'c Cell<u32>);

impl HeaderSource for Reached<'_> {
    fn each(&self, _: &mut dyn FnMut(&[u8], &[u8])) {}

    fn destination(&self) -> Option<IpAddr> {
        self.0.set(self.0.get() + 1);
        Some(IpAddr::from([10, 0, 0, 1]))
    }
}

#[test]
fn the_destination_address_is_determined_only_for_routes_that_compare_it() {
    let sample = Sample::get("/a");
    let routes = [
        expression(1, 2, r#"http.path == "/a""#),
        expression(2, 1, "net.dst.ip == 10.0.0.1"),
    ];
    let router = router(&routes, EXPRESSIONS);
    for (path, route, times) in [("/a", 0, 0), ("/b", 1, 1)] {
        let asked = Cell::new(0);
        let request = Request {
            path: path.as_bytes(),
            headers: &Reached(&asked),
            ..sample.request()
        };
        let found = router.matches(&request, &mut Scratch::default());
        assert_eq!(found.map(|found| found.route.0), Some(route));
        assert_eq!(asked.get(), times, "{path}");
    }
}

#[test]
fn with_strict_classic_words_change_and_expressions_stay_first() {
    let options = Options {
        calculation: Calculation::Strict,
        ..EXPRESSIONS
    };
    let mut everything = path(9, "/a");
    everything.methods = vec!["GET".into()];
    everything.hosts = vec!["h".into()];
    everything.headers = vec![("x".into(), vec!["1".into()])];
    let routes = [everything, expression(1, 0, r#"http.path ^= "/a""#)];
    let mut sample = Sample::get("/a").with_host("h");
    sample.headers = vec![("X".to_owned(), "1".to_owned())];
    assert_eq!(
        found_by(&router(&routes, options), &sample.request()),
        Some(1)
    );
}

#[test]
fn an_empty_text_that_is_found_in_the_path_is_not_stripped() {
    for text in [
        r#"http.path ^= """#,
        r#"http.path ~ "^""#,
        r#"http.path ^= "/a" && http.path =^ """#,
    ] {
        let router = router(&[expression(1, 0, text)], EXPRESSIONS);
        let (sample, mut scratch) = (Sample::get("/a"), Scratch::default());
        let request = sample.request();
        let found = router.matches(&request, &mut scratch).unwrap();
        assert_eq!(router.matched_prefix(&found, b"/a"), None, "{text}");
        let mut uri = Vec::new();
        router.write_upstream_uri(&found, Some("/base"), b"/a", None, &mut uri);
        assert_eq!(uri, b"/base/a", "{text}");
    }
}

#[test]
fn overlapping_ranges_are_found_by_each_value_while_routes_change() {
    // The index splits port ranges into bit ranges of different lengths, and some ranges of the routes overlap.
    let routes: Vec<_> = (0..40_u32)
        .map(|number| {
            let (first, last) = (1_000 + 37 * number, 1_000 + 37 * number + 50);
            let text = match number % 4 {
                0 => format!("net.src.ip in 10.{number}.0.0/16"),
                1 => format!("net.src.ip == 10.0.0.{number} || net.src.ip in fd00:{number}::/32"),
                _ => format!("net.src.port >= {first} && net.src.port <= {last}"),
            };
            expression(number + 1, u64::from(number % 3), &text)
        })
        .collect();
    let check = |router: &Router| {
        for port in (950..2_600).step_by(3) {
            for ip in ["10.4.1.1", "10.0.0.5", "fd00:9::1", "10.99.0.1", "::1"] {
                let mut sample = Sample::get("/");
                let ip: IpAddr = ip.parse().unwrap();
                sample.source = Some((ip, port).into());
                found_by(router, &sample.request());
            }
        }
    };
    let mut current = router(&routes, EXPRESSIONS);
    check(&current);
    let indexed: Vec<_> = numbered(&routes).collect();
    for removed in indexed.chunks(9) {
        let indexes: Vec<_> = removed.iter().map(|(index, _)| *index).collect();
        (current, _) = current.replace(&indexes, []);
        check(&current);
    }
    (current, _) = current.replace(&[], indexed.into_iter().rev());
    check(&current);
    let mut sample = Sample::get("/");
    sample.source = Some(("10.4.0.1".parse::<IpAddr>().unwrap(), 1).into());
    assert_eq!(found_by(&current, &sample.request()), Some(4));
}
