//! Checks that a match allocates no memory, and that each route takes a bounded amount of memory.

use router::{Flavor, Options, RouteIndex, Router, Scratch};
use std::alloc::System;
use testkit::memory::{Counting, Counts};
use testkit::rules::{Kind, RuleSet, hostile};

mod routes;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

fn build(rules: &[testkit::rules::Rule]) -> Router {
    let routes = routes::of(rules);
    let options = Options {
        flavor: Flavor::Expressions,
        ..Options::default()
    };
    let (router, errors) = Router::build((0..).map(RouteIndex).zip(&routes), options, None);
    assert!(
        errors.is_empty(),
        "{} errors, first {:?}",
        errors.len(),
        errors.first()
    );
    router
}

/// Matches all requests of the set and returns the number of hits.
fn ask(router: &Router, set: &RuleSet, scratch: &mut Scratch) -> usize {
    let hits = set.hits.iter().map(|(sample, _)| sample);
    let asked = hits.chain(&set.misses);
    asked
        .filter(|sample| router.matches(&routes::request(sample), scratch).is_some())
        .count()
}

#[test]
fn a_match_allocates_nothing() {
    for kind in Kind::ALL {
        let set = kind.set(500, 500);
        let router = build(&set.rules);
        let mut scratch = Scratch::default();
        // Regexes create their caches on first use.
        assert_eq!(ask(&router, &set, &mut scratch), 500, "{}", kind.name());
        let before = Counts::of_this_thread();
        ask(&router, &set, &mut scratch);
        assert_eq!(Counts::since(before), Counts::default(), "{}", kind.name());
    }
}

#[test]
fn a_hostile_request_allocates_nothing_either() {
    for set in hostile() {
        let router = build(&set.rules);
        let mut scratch = Scratch::default();
        let mut ask = || router.matches(&routes::request(&set.sample), &mut scratch);
        assert_eq!(ask(), None, "{}", set.name);
        let before = Counts::of_this_thread();
        ask();
        let asked_for = Counts::since(before);
        // A request that finds hundreds of buckets needs a list of them.
        let most = match set.name {
            "many-indexed-texts" | "user-agents" => 10,
            _ => 0,
        };
        assert!(asked_for.allocations <= most, "{}: {asked_for:?}", set.name);
        assert_eq!(asked_for.held, 0, "{}", set.name);
    }
}

#[test]
fn a_route_takes_about_a_kilobyte_at_most() {
    for kind in Kind::ALL {
        let count = 2000;
        let rules = kind.set(count, 1).rules;
        let before = Counts::of_this_thread();
        let router = build(&rules);
        let held = Counts::since(before).held;
        let each = held / count as i64;
        println!("{}: {each} bytes a route", kind.name());
        // The regexes of the public APIs are long. The router stores each as text and in compiled form.
        let has_regexes = matches!(kind, Kind::Regexes | Kind::Expressions);
        let bound = if has_regexes { 1280 } else { 1024 };
        assert!(each < bound, "{}: {each} bytes a route", kind.name());
        drop(router);
    }
}
