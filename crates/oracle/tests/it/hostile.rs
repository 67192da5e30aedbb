//! Routes and requests that are meant to be expensive must have a limited cost. For routes with headers, the cost is how
//! often the router reads the headers of a request: once for each predicate on a header that it evaluates. For long
//! expressions, it is the number of steps of the match.

use model::entities::{Route, RouteId};
use oracle::{Drawn, Sample, router};
use router::{Flavor, HeaderSource, Match, Options, Request, RouteIndex, Router, Scratch};
use std::cell::Cell;
use uuid::Uuid;

/// Headers that count how often they are read.
struct Counted<'h> {
    headers: &'h [(Vec<u8>, Vec<u8>)],
    asked: Cell<usize>,
}

impl HeaderSource for Counted<'_> {
    fn each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.asked.set(self.asked.get() + 1);
        for (name, value) in self.headers {
            visit(name, value);
        }
    }
}

/// Returns the match and the number of times the headers were read.
fn cost(router: &Router, sample: &Sample) -> (Option<Match>, usize) {
    let headers = Counted {
        headers: &sample.headers,
        asked: Cell::new(0),
    };
    let request = Request {
        headers: &headers,
        ..sample.request()
    };
    let found = router.matches(&request, &mut Scratch::default());
    (found, headers.asked.get())
}

/// Returns `count` routes, each with a condition on a header.
fn routes(
    count: usize,
    header: impl Fn(usize) -> (String, String),
    change: impl Fn(usize, &mut Drawn),
) -> Vec<Drawn> {
    let numbers = 0..count;
    let each = numbers.map(|number| {
        let (name, value) = header(number);
        let mut drawn = Drawn::from(Route::blank(id(number as u128)));
        drawn.route.headers = vec![(name.into(), vec![value.into()])];
        change(number, &mut drawn);
        drawn
    });
    each.collect()
}

fn with_header(mut sample: Sample, name: &str, value: &str) -> Sample {
    sample.headers.push((name.into(), value.into()));
    sample
}

const COUNT: usize = 1_000;

#[test]
fn no_overlapping_prefix_is_checked_twice() {
    let prefix = |number: usize| "/a/bc".repeat(number + 1);
    let routes = routes(
        COUNT,
        |number| ("x-a".into(), format!("v{number}")),
        |number, drawn| drawn.route.paths = vec![prefix(number).into()],
    );
    let router = router(&routes, Options::default());
    let longest = Sample::get(prefix(2 * COUNT).as_bytes());
    for (value, found) in [("none", None), ("v0", Some(0)), ("v999", Some(999))] {
        let (match_, asked) = cost(&router, &with_header(longest.clone(), "x-a", value));
        assert_eq!(match_.map(|found| found.route.0), found);
        assert!(asked <= COUNT + 1, "{asked}");
    }
}

#[test]
fn no_wildcard_over_a_host_of_dots_is_checked_twice() {
    let routes = routes(
        COUNT,
        |number| ("x-a".into(), format!("v{number}")),
        |number, drawn| {
            let labels = ".a".repeat(number / 2 + 1);
            drawn.route.hosts = vec![match number % 2 {
                0 => format!("*{labels}").into(),
                _ => format!("{}.*", &labels[1..]).into(),
            }];
        },
    );
    let router = router(&routes, Options::default());
    let mut sample = Sample::get(b"/");
    for host in [b"a.".repeat(4_000), b".a".repeat(4_000), b".".repeat(8_000)] {
        sample.host = Some(host);
        let (found, asked) = cost(&router, &sample);
        assert_eq!(found, None);
        assert!(asked <= COUNT, "{asked}");
    }
}

#[test]
fn routes_that_differ_in_a_header_value_are_looked_up_by_it() {
    let routes = routes(
        COUNT,
        |number| ("x-a".into(), format!("v{number}")),
        |_, drawn| drawn.route.paths = vec!["/a".into()],
    );
    let router = router(&routes, Options::default());
    let mut sample = Sample::get(b"/a");
    for number in 0..COUNT {
        sample = with_header(sample, &format!("x-{number}"), "v");
    }
    sample.headers.insert(0, (b"X-A".to_vec(), b"V7".to_vec()));
    let (found, asked) = cost(&router, &sample);
    assert_eq!(found.map(|found| found.route.0), Some(7));
    assert!(asked <= 20, "{asked}");
}

#[test]
fn worse_candidates_are_skipped_after_a_better_match() {
    let routes = routes(
        COUNT,
        |number| (format!("x-{number}"), "v".into()),
        |_, drawn| drawn.route.paths = vec!["/a".into()],
    );
    let router = router(&routes, Options::default());
    // The route with the greatest id is tried first.
    let sample = with_header(Sample::get(b"/a"), "x-999", "v");
    let (found, asked) = cost(&router, &sample);
    assert_eq!(found.map(|found| found.route.0), Some(999));
    assert!(asked <= 20, "{asked}");
    let (found, asked) = cost(&router, &Sample::get(b"/a"));
    assert_eq!(found, None);
    assert!(asked <= 2 * COUNT, "{asked}");
}

/// Returns a route with a long expression.
fn with_expression(expression: String) -> Drawn {
    let mut route = Route::blank(id(1));
    route.expression = Some(expression);
    Drawn::from(route)
}

/// Number of parts of a long expression.
const PARTS: usize = 3_000;

#[test]
fn expressions_of_100_kb_are_matched_and_nested_ones_refused() {
    let options = Options {
        flavor: Flavor::Expressions,
        ..Options::default()
    };
    let join = |sign: &str, part: &dyn Fn(usize) -> String| {
        let parts: Vec<_> = (0..PARTS).map(part).collect();
        parts.join(sign)
    };
    let sample = with_header(Sample::get(b"/p2999"), "a", "none");
    // Each expression with its result and its greatest cost, in steps for each part.
    for (expression, found, cost) in [
        (
            join("||", &|number| format!("http.path ^= \"/p{number:04}\"")),
            true,
            7,
        ),
        (
            join("&&", &|number| format!("http.path != \"/p{number}x\"")),
            true,
            7,
        ),
        // In disjunctive normal form, this expression would have 2 to the power of 3000 alternatives.
        (
            join("&&", &|number| {
                format!("(http.path ^= \"/p\" || tls.sni == \"{number}\")")
            }),
            true,
            3,
        ),
        (
            join("||", &|number| {
                format!("any(http.headers.a) == \"{number}\"")
            }),
            false,
            21,
        ),
        (
            join("||", &|number| {
                format!("http.path ~ \"^/p{number}[0-9]+x\"")
            }),
            false,
            7,
        ),
        (
            join("&&", &|number| format!("!(net.dst.port < {})", number % 80)),
            true,
            1,
        ),
    ] {
        let router = router(&[with_expression(expression)], options);
        let mut scratch = Scratch::default();
        let match_ = router.matches(&sample.request(), &mut scratch);
        assert_eq!(match_.is_some(), found);
        let steps = scratch.steps();
        assert!(steps <= cost * PARTS + 10, "{steps}");
    }
    let nested = format!(
        "{}net.dst.port == 1{}",
        "!(".repeat(30_000),
        ")".repeat(30_000)
    );
    let refused = with_expression(nested);
    let (_, errors) = Router::build([(RouteIndex(0), &refused.route)], options, None);
    assert_eq!(errors.len(), 1);
}

fn id(number: u128) -> RouteId {
    RouteId(Uuid::from_u128(number))
}
