//! Finding the route of a request, and building what finds it.

use crate::fixtures::{path, prefix_routes, route, spread};
use crate::operation::Operation;
use model::entities::Route;
use router::{Flavor, Options, Request, RouteIndex, Router, Scheme, Scratch};
use std::hint::black_box;

const FLAVORS: [(&str, Flavor); 2] = [
    ("", Flavor::TraditionalCompatible),
    ("/traditional", Flavor::Traditional),
];
/// How many requests take turns.
const REQUESTS: usize = 100;

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = Vec::new();
    for (suffix, flavor) in FLAVORS {
        for routes in [1, 10, 100, 10_000] {
            operations.push(matching(
                format!("router/prefixes/{routes}{suffix}"),
                flavor,
                move || (prefix_routes(routes), requests_of(routes)),
            ));
        }
        operations.extend([
            matching(format!("router/hosts/1000x10{suffix}"), flavor, hosts),
            matching(format!("router/regexes/100{suffix}"), flavor, regexes),
            matching(
                format!("router/methods-headers/100{suffix}"),
                flavor,
                headers,
            ),
            matching(format!("router/none/10000{suffix}"), flavor, misses),
            building(
                format!("router/build/prefixes/10000{suffix}"),
                flavor,
                || prefix_routes(10_000),
            ),
        ]);
    }
    // Building this many takes long, and once tells enough.
    operations.push(matching(
        "router/prefixes/100000".to_owned(),
        Flavor::TraditionalCompatible,
        || (prefix_routes(100_000), requests_of(100_000)),
    ));
    operations.push(building(
        "router/build/regexes/100".to_owned(),
        Flavor::TraditionalCompatible,
        || regexes().0,
    ));
    operations.push(rebuilding_regexes());
    operations
}

/// What the router is asked.
struct Asked {
    method: &'static str,
    host: String,
    path: String,
    headers: Vec<(String, String)>,
}

impl Asked {
    fn new(path: String) -> Self {
        let headers = [
            ("Host", "gateway.test:8000"),
            ("User-Agent", "curl/8.5.0"),
            ("Accept", "*/*"),
            ("apikey", "0123456789abcdef0123456789abcdef"),
        ];
        Self {
            method: "GET",
            host: "gateway.test:8000".to_owned(),
            path,
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        }
    }
}

fn requests_of(routes: usize) -> Vec<Asked> {
    spread(REQUESTS, routes)
        .map(|number| Asked::new(format!("{}/users/42", path(number))))
        .collect()
}

fn misses() -> (Vec<Route>, Vec<Asked>) {
    let asked = spread(REQUESTS, 100).map(|number| Asked::new(format!("/service-{number}/other")));
    (prefix_routes(10_000), asked.collect())
}

/// 1,000 hosts with the same ten paths each.
fn hosts() -> (Vec<Route>, Vec<Asked>) {
    let host = |number: usize| format!("host-{}.test", number / 10);
    let path = |number: usize| format!("/api/v{}", number % 10);
    let routes = (0..10_000).map(|number| Route {
        hosts: vec![host(number).into()],
        paths: vec![path(number).into()],
        ..route(number)
    });
    let asked = spread(REQUESTS, 10_000).map(|number| Asked {
        host: host(number),
        ..Asked::new(format!("{}/users/42", path(number)))
    });
    (routes.collect(), asked.collect())
}

fn regexes() -> (Vec<Route>, Vec<Asked>) {
    let routes = (0..REQUESTS).map(|number| Route {
        paths: vec![format!(r"~/team-{number}/users/(?<user>\d+)/orders$").into()],
        ..route(number)
    });
    let asked = spread(REQUESTS, REQUESTS)
        .map(|number| Asked::new(format!("/team-{number}/users/42/orders")));
    (routes.collect(), asked.collect())
}

/// One path for all: method and headers make the difference.
fn headers() -> (Vec<Route>, Vec<Asked>) {
    const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];
    let version = |number: usize| format!("v{}", number / METHODS.len());
    let routes = (0..REQUESTS).map(|number| Route {
        paths: vec!["/api".into()],
        methods: vec![METHODS[number % METHODS.len()].into()],
        headers: vec![("x-version".into(), vec![version(number).into()])],
        ..route(number)
    });
    let asked = spread(REQUESTS, REQUESTS).map(|number| {
        let mut asked = Asked::new("/api/users/42".to_owned());
        asked.method = METHODS[number % METHODS.len()];
        asked
            .headers
            .push(("X-Version".to_owned(), version(number)));
        asked
    });
    (routes.collect(), asked.collect())
}

fn options(flavor: Flavor) -> Options {
    Options {
        flavor,
        ..Options::default()
    }
}

fn build(routes: &[Route], flavor: Flavor, previous: Option<&Router>) -> Router {
    let (router, errors) =
        Router::build((0..).map(RouteIndex).zip(routes), options(flavor), previous);
    assert!(errors.is_empty(), "every route can be used: {errors:?}");
    router
}

fn matching(
    name: String,
    flavor: Flavor,
    prepare: impl Fn() -> (Vec<Route>, Vec<Asked>) + Send + Sync + 'static,
) -> Operation {
    Operation::repeat(name, 10 * REQUESTS as u32, move || {
        let (routes, asked) = prepare();
        let router = build(&routes, flavor, None);
        let mut scratch = Scratch::default();
        let mut next = 0;
        move || {
            let asked = &asked[next];
            next = (next + 1) % REQUESTS;
            let request = Request {
                method: asked.method,
                path: asked.path.as_bytes(),
                host: Some(asked.host.as_bytes()),
                scheme: Scheme::Http,
                sni: None,
                query: None,
                source: None,
                destination: None,
                port: 8000,
                headers: &asked.headers,
            };
            black_box(router.matches(black_box(&request), &mut scratch));
        }
    })
}

fn building(
    name: String,
    flavor: Flavor,
    routes: impl Fn() -> Vec<Route> + Send + Sync + 'static,
) -> Operation {
    Operation::consume(name, 1, move || {
        let routes = routes();
        (|| (), move |()| build(&routes, flavor, None))
    })
}

fn rebuilding_regexes() -> Operation {
    Operation::consume("router/rebuild/regexes/100", 1, || {
        let (routes, _) = regexes();
        let flavor = Flavor::TraditionalCompatible;
        let previous = build(&routes, flavor, None);
        (|| (), move |()| build(&routes, flavor, Some(&previous)))
    })
}
