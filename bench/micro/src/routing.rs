//! Operations that find the route of a request, build a router, and change one of its routes.

use crate::operation::Operation;
use crate::rules;
use model::entities::Route;
use router::{Flavor, Router, Scratch};
use std::collections::HashSet;
use std::hint::black_box;
use testkit::rules::{Kind, Sample, hostile};

/// Number of requests used in turn. With so many, the routes of a large set do not stay in the processor's nearest
/// caches.
const REQUESTS: usize = 1000;

/// Returns the operations that are counted for every change. They cover each kind of rules with many routes, and
/// prefixes and regexes also with few.
pub(crate) fn operations() -> Vec<Operation> {
    use Kind::{Expressions, Headers, Hosts, Prefixes, Ranges, Regexes, Segments};
    let matched = [
        (Prefixes, 1),
        (Prefixes, 10),
        (Prefixes, 10_000),
        (Hosts, 10_000),
        (Headers, 10_000),
        (Regexes, 10),
        (Regexes, 1000),
        (Expressions, 1000),
        (Segments, 1000),
        (Ranges, 10_000),
    ];
    let mut operations: Vec<_> = matched.map(|(kind, count)| hits(kind, count)).into();
    operations.extend([
        misses(Prefixes, 10_000),
        misses(Regexes, 1000),
        building(Prefixes, 10_000),
        building(Regexes, 1000),
        rebuilding(Regexes, 1000),
        changing(Prefixes, 10_000),
        changing(Regexes, 1000),
    ]);
    operations.extend(
        [
            (Prefixes, 10_000),
            (Hosts, 10_000),
            (Headers, 10_000),
            (Regexes, 1000),
        ]
        .map(|(kind, count)| traditional_hits(kind, count)),
    );
    let hard = [
        "nested-regexes",
        "overlapping-prefixes",
        "wildcards",
        "header-flood",
    ];
    operations.extend(hard.map(withstanding));
    operations
}

/// Returns the operations that take too long to be counted for every change, such as each kind of rules with 1 to
/// 100,000 routes. They are timed, and they are counted only if they are named.
pub(crate) fn scaling() -> Vec<Operation> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        for count in [1, 10, 100, 1000, 10_000, 100_000] {
            all.push(hits(kind, count));
        }
        for count in [10_000, 100_000] {
            all.push(misses(kind, count));
            all.push(building(kind, count));
            all.push(changing(kind, count));
        }
    }
    all.extend(hostile().iter().map(|set| withstanding(set.name)));
    let counted: HashSet<String> = operations().into_iter().map(|one| one.name).collect();
    all.retain(|operation| !counted.contains(&operation.name));
    all
}

fn flavor(kind: Kind) -> Flavor {
    if kind.is_of_expressions() {
        Flavor::Expressions
    } else {
        Flavor::TraditionalCompatible
    }
}

fn build(routes: &[Route], flavor: Flavor, previous: Option<&Router>) -> Router {
    rules::build(routes, flavor, previous).expect("every route can be used")
}

fn hits(kind: Kind, count: usize) -> Operation {
    let name = format!("router/{}/{count}", kind.name());
    matching(name, kind, flavor(kind), count, Asked::Hits)
}

fn traditional_hits(kind: Kind, count: usize) -> Operation {
    let name = format!("router/{}/{count}/traditional", kind.name());
    matching(name, kind, Flavor::Traditional, count, Asked::Hits)
}

fn misses(kind: Kind, count: usize) -> Operation {
    let name = format!("router/misses/{}/{count}", kind.name());
    matching(name, kind, flavor(kind), count, Asked::Misses)
}

#[derive(Clone, Copy)]
enum Asked {
    Hits,
    Misses,
}

fn matching(name: String, kind: Kind, flavor: Flavor, count: usize, asked: Asked) -> Operation {
    Operation::repeat(name, 2 * REQUESTS as u32, move || {
        let set = kind.set(count, REQUESTS);
        let router = build(&rules::routes(&set.rules), flavor, None);
        let samples = match asked {
            Asked::Hits => set.hits.into_iter().map(|(sample, _)| sample).collect(),
            Asked::Misses => set.misses,
        };
        ask_in_turn(router, samples)
    })
}

/// Matches the request of one adversarial rule set.
fn withstanding(name: &'static str) -> Operation {
    Operation::repeat(format!("router/hostile/{name}"), 10, move || {
        let set = hostile().into_iter().find(|set| set.name == name);
        let set = set.expect("there is a set of that name");
        let routes = rules::routes(&set.rules);
        let router = build(&routes, Flavor::TraditionalCompatible, None);
        ask_in_turn(router, vec![set.sample])
    })
}

fn ask_in_turn(router: Router, samples: Vec<Sample>) -> impl FnMut() {
    let mut scratch = Scratch::default();
    let mut next = 0;
    move || {
        let request = rules::request(&samples[next]);
        next = (next + 1) % samples.len();
        black_box(router.matches(black_box(&request), &mut scratch));
    }
}

fn building(kind: Kind, count: usize) -> Operation {
    let name = format!("router/build/{}/{count}", kind.name());
    Operation::consume(name, 1, move || {
        let routes = rules::routes(&kind.set(count, 1).rules);
        (|| (), move |()| build(&routes, flavor(kind), None))
    })
}

/// Builds a router again from the same routes. It reuses the compiled regexes of the previous router.
fn rebuilding(kind: Kind, count: usize) -> Operation {
    let name = format!("router/rebuild/{}/{count}", kind.name());
    Operation::consume(name, 1, move || {
        let routes = rules::routes(&kind.set(count, 1).rules);
        let previous = build(&routes, flavor(kind), None);
        let run = move |()| build(&routes, flavor(kind), Some(&previous));
        (|| (), run)
    })
}

/// Changes one route, a different one each time.
fn changing(kind: Kind, count: usize) -> Operation {
    let name = format!("router/replace/{}/{count}", kind.name());
    Operation::consume(name, 20, move || {
        let routes = rules::routes(&kind.set(count, 1).rules);
        let router = build(&routes, flavor(kind), None);
        let mut at = 0;
        let make = move || {
            at = (at + 7919) % routes.len();
            let mut route = routes[at].clone();
            route.strip_path = !route.strip_path;
            (at, route)
        };
        let run = move |(at, route): (usize, Route)| {
            let at = u32::try_from(at).expect("there are fewer routes");
            rules::replace(&router, at, &route)
        };
        (make, run)
    })
}
