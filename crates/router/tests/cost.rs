//! Checks that adversarial routes and requests have a limited cost, and that input of twice the size costs about twice
//! as much. The cost of a match is its number of steps. The cost of building a router is the memory that it allocates.

use router::{Flavor, MAX_STEPS, Options, RouteIndex, Router, Scratch, TooCostly};
use std::alloc::System;
use testkit::memory::{Counting, Counts};
use testkit::rules::{Hostile, Rule, Sample, hostile};

mod routes;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

const FLAVORS: [Flavor; 3] = [
    Flavor::Traditional,
    Flavor::TraditionalCompatible,
    Flavor::Expressions,
];

fn build(rules: &[Rule], flavor: Flavor) -> Router {
    let routes = routes::of(rules);
    let options = Options {
        flavor,
        ..Options::default()
    };
    let (router, errors) = Router::build((0..).map(RouteIndex).zip(&routes), options, None);
    assert!(errors.is_empty(), "{:?}", errors.first());
    router
}

/// Returns whether the match was completed, and its number of steps.
fn steps(router: &Router, sample: &Sample) -> (bool, usize) {
    let mut scratch = Scratch::default();
    let found = router.find(&routes::request(sample), &mut scratch);
    assert!(matches!(found, Ok(None) | Err(TooCostly)));
    (found.is_ok(), scratch.steps())
}

fn set(name: &str) -> Hostile {
    let mut sets = hostile().into_iter();
    sets.find(|set| set.name == name)
        .expect("the name of a set")
}

#[test]
fn no_request_takes_more_than_its_steps() {
    for set in hostile() {
        let router = build(&set.rules, Flavor::Expressions);
        let (is_whole, steps) = steps(&router, &set.sample);
        println!("{}: {steps} steps", set.name);
        assert!(steps <= MAX_STEPS && is_whole == (steps < MAX_STEPS));
    }
}

#[test]
fn a_regex_is_evaluated_once_however_often_its_text_occurs() {
    let set = set("indexed-texts");
    let length = set.sample.path.len();
    for flavor in FLAVORS {
        let (is_whole, steps) = steps(&build(&set.rules, flavor), &set.sample);
        // The path contains two of the texts. Some of the other regexes may be evaluated too, because the index stores
        // them under the same grams.
        assert!(
            is_whole && steps <= 20 * length,
            "{flavor:?}: {steps} steps"
        );
    }
}

#[test]
fn a_request_that_is_too_costly_has_no_route() {
    let mut rules = set("many-indexed-texts").rules;
    // This route comes last and matches the request.
    rules.push(Rule {
        path: Some("/f".to_owned()),
        ..Rule::default()
    });
    let sample = set("many-indexed-texts").sample;
    for flavor in FLAVORS {
        let router = build(&rules, flavor);
        let mut scratch = Scratch::default();
        let found = router.find(&routes::request(&sample), &mut scratch);
        assert_eq!(found, Err(TooCostly), "{flavor:?}");
        let other = Sample::get("/f/a");
        let found = router.find(&routes::request(&other), &mut scratch);
        assert!(matches!(found, Ok(Some(_))), "{flavor:?}");
    }
}

#[test]
fn twice_the_path_takes_about_twice_the_steps() {
    for set in hostile() {
        let half = &set.sample.path[..set.sample.path.len() / 2];
        if half.len() < 1000 {
            continue;
        }
        let half = Sample {
            path: half.to_owned(),
            ..set.sample.clone()
        };
        let router = build(&set.rules, Flavor::Expressions);
        let (once, twice) = (steps(&router, &half).1, steps(&router, &set.sample).1);
        assert!(
            twice <= 5 * once / 2 + 1000,
            "{}: {once} and {twice}",
            set.name
        );
    }
}

type Shape = (&'static str, fn(usize) -> String);

fn join(sign: &str, count: usize, part: impl Fn(usize) -> String) -> String {
    let parts: Vec<_> = (0..count).map(part).collect();
    parts.join(sign)
}

/// Expressions with `size` parts.
const EXPRESSIONS: &[Shape] = &[
    ("ranges of ports twice", |size| {
        let ports = join(" || ", size, |_| "net.dst.port > 0".to_owned());
        format!("({ports}) && ({ports})")
    }),
    ("ranges of ports many times", |size| {
        let any = join(" || ", 20, |port| {
            format!("net.dst.port != {port} && net.dst.port > {port}")
        });
        join(" && ", size / 20, |_| format!("({any})"))
    }),
    ("addresses twice", |size| {
        let any = |side: usize| {
            join(" || ", size, move |number| {
                let (high, low, bits) = (number / 256 % 256, number % 256, 24 + 8 * side);
                format!("net.src.ip in 10.{high}.{low}.{side}/{bits}")
            })
        };
        format!("({}) && ({})", any(0), any(1))
    }),
    ("alternatives of two", |size| {
        join(" && ", size, |number| {
            format!(r#"(http.path ^= "/p{number}" || tls.sni == "{number}")"#)
        })
    }),
    ("alternatives of many", |size| {
        let any = |number: usize| {
            join(" || ", 64, move |other| {
                format!(r#"(http.method == "{number}" && tls.sni == "{other}")"#)
            })
        };
        let hosts = join(" || ", size, |number| {
            format!(r#"http.host == "h{number}""#)
        });
        let all = join(" && ", size / 64 + 1, |number| format!("({})", any(number)));
        format!("({hosts}) && {all}")
    }),
    ("a list and a conjunction", |size| {
        let list = join(" || ", size, |number| {
            format!(r#"http.host == "h{number}""#)
        });
        let all = join(" && ", size, |_| r#"http.method == "A""#.to_owned());
        format!("({list}) && {all}")
    }),
    ("headers", |size| {
        join(" && ", size, |number| {
            format!(r#"http.headers.x{number} == "a""#)
        })
    }),
    ("headers, one of which", |size| {
        join(" || ", size, |number| {
            format!(r#"http.headers.x{number} == "a""#)
        })
    }),
    ("pairs, one of which", |size| {
        join(" || ", size, |number| {
            format!(r#"(http.host == "{number}" && http.path ^= "/{number}")"#)
        })
    }),
    ("texts within", |size| {
        join(" && ", size, |number| {
            format!(r#"http.path contains "abc{number}""#)
        })
    }),
    ("regexes", |size| {
        join(" || ", size / 4, |number| {
            format!(r#"http.path ~ "^/(a|b|c)/{number}""#)
        })
    }),
];

/// Returns the bytes allocated to build a router with one expression.
fn cost_of(expression: &str) -> u64 {
    let rule = Rule {
        expression: Some(expression.to_owned()),
        ..Rule::default()
    };
    let before = Counts::of_this_thread();
    drop(build(&[rule], Flavor::Expressions));
    Counts::since(before).taken
}

#[test]
fn twice_the_expression_takes_not_much_more_than_twice_the_work() {
    for (name, expression) in EXPRESSIONS {
        let (once, twice) = (cost_of(&expression(400)), cost_of(&expression(800)));
        println!("{name}: {} KiB", once >> 10);
        assert!(
            twice <= 5 * once / 2 + (1 << 20),
            "{name}: {once} bytes, and {twice} for twice as much"
        );
    }
}

#[test]
fn expressions_of_a_mebibyte_are_indexed_in_bounded_memory() {
    for (name, expression) in EXPRESSIONS {
        let each = expression(800).len() / 800;
        let expression = expression((1 << 20) / (each + 10));
        let cost = cost_of(&expression);
        println!("{name}: {} KiB, {} MiB", expression.len() >> 10, cost >> 20);
        assert!(
            cost < 1 << 30,
            "{name}: {cost} bytes for {}",
            expression.len()
        );
    }
}
