//! Explanations must agree with the router's decisions and give the reasons for each candidate's position.

use super::fixtures::{ALL_OPTIONS, Sample, route, router};
use crate::{Calculation, Flavor, Options, Scratch, Tried, Verdict, Wanted};
use model::entities::Route;

const ALL: Wanted = Wanted {
    limit: usize::MAX,
    closest: usize::MAX,
    route: None,
};

fn routes() -> Vec<Route> {
    let with_paths = |number, paths: &[&str]| Route {
        paths: paths.iter().map(|path| (*path).into()).collect(),
        ..route(number)
    };
    vec![
        with_paths(1, &["/a"]),
        with_paths(2, &["/a/b", "/c"]),
        with_paths(3, &["~/a/\\d+"]),
        Route {
            hosts: vec!["shop.example".into()],
            ..with_paths(4, &["/a"])
        },
        Route {
            methods: vec!["POST".into(), "PUT".into()],
            headers: vec![("x-kind".into(), vec!["one".into()])],
            ..with_paths(5, &["/z"])
        },
    ]
}

fn explain(options: Options, sample: &Sample, wanted: Wanted) -> (Option<u32>, Tried) {
    let router = router(&routes(), options);
    let told = router.explain(&sample.request(), &mut Scratch::default(), wanted);
    (told.found.map(|found| found.route.0), told.tried)
}

fn samples() -> Vec<Sample> {
    let at = |host: &str, path: &str| Sample::get(path).with_host(host);
    vec![
        at("shop.example", "/a/b/c"),
        at("other.example", "/a/b"),
        at("shop.example", "/a/77"),
        at("other.example", "/nothing"),
        at("other.example", "/z"),
    ]
}

#[test]
fn the_first_true_candidate_is_the_one_that_matches() {
    for options in ALL_OPTIONS {
        for sample in samples() {
            let (found, tried) = explain(options, &sample, ALL);
            let holding = tried.candidates.iter();
            let mut holding = holding.filter(|one| !matches!(one.verdict, Verdict::Fails(_)));
            let first = holding.next();
            assert_eq!(
                first.map(|one| one.route.0),
                found,
                "{options:?} {sample:?}"
            );
            assert!(first.is_none_or(|one| one.verdict == Verdict::Matches));
            assert!(holding.all(|one| one.verdict == Verdict::ComesLater));
            let places = tried.candidates.iter().map(|one| one.place);
            assert!(places.is_sorted(), "{tried:?}");
        }
    }
}

#[test]
fn the_other_candidates_fail_and_the_closest_comes_first() {
    for options in ALL_OPTIONS {
        for sample in samples() {
            let (_, tried) = explain(options, &sample, ALL);
            let parts = tried.closest.iter().map(|one| match &one.verdict {
                Verdict::Fails(reasons) => reasons.len(),
                verdict => panic!("{options:?} {sample:?}: expected a failure, not {verdict:?}"),
            });
            assert!(parts.is_sorted(), "{tried:?}");
        }
    }
}

#[test]
fn the_limits_of_an_explanation_are_kept() {
    let wanted = Wanted {
        limit: 1,
        closest: 1,
        route: Some(crate::RouteIndex(1)),
    };
    let (_, tried) = explain(ALL_OPTIONS[1], &samples()[0], wanted);
    assert_eq!(tried.candidates.len(), 1);
    assert!(tried.omitted >= 1);
    assert_eq!(tried.closest.len(), 1);
    // The paths of the route have different lengths, so each path has its own candidate.
    assert_eq!(tried.route.len(), 2);
}

#[test]
fn ranks_list_the_most_important_criterion_first() {
    let rank = |options: Options, route: u32| {
        let wanted = Wanted {
            route: Some(crate::RouteIndex(route)),
            ..ALL
        };
        let (_, tried) = explain(options, &samples()[0], wanted);
        tried.route[0].rank.join("; ")
    };
    let options = |flavor, calculation| Options {
        flavor,
        calculation,
        ..Options::default()
    };
    let original = options(Flavor::TraditionalCompatible, Calculation::Original);
    let strict = options(Flavor::TraditionalCompatible, Calculation::Strict);
    let traditional = options(Flavor::Traditional, Calculation::Original);
    let id = |number| format!("00000000-0000-0000-0000-00000000000{number}");
    assert_eq!(
        rank(original, 3),
        format!(
            "priority 0x1000000040000002 (hosts without wildcards + 2 attribute types + \
             a plain path of 2 bytes); if equal, the greater id: {}",
            id(4)
        )
    );
    assert_eq!(
        rank(strict, 4),
        format!(
            "priority 0x6010000000000002 (3 attribute types + 1 header + a plain path of 2 bytes); \
             if equal, the greater id: {}",
            id(5)
        )
    );
    assert_eq!(
        rank(strict, 2),
        format!(
            "priority 0x2008000000000000 (1 attribute type + a regex path, regex_priority 0); \
             if equal, the greater id: {}",
            id(3)
        )
    );
    assert_eq!(
        rank(traditional, 4),
        format!(
            "3 attribute types: headers, paths, methods; 1 header; a plain path of 2 bytes; \
             if equal, the older route: created at 0; if still equal, the smaller id: {}",
            id(5)
        )
    );
}

#[test]
fn an_expression_ranks_by_its_priority() {
    let options = Options {
        flavor: Flavor::Expressions,
        ..Options::default()
    };
    let expression = Route {
        expression: Some("http.path ^= \"/e\"".to_owned()),
        priority: Some(7),
        ..route(1)
    };
    let router = router(&[expression], options);
    let request = Sample::get("/x");
    let told = router.explain(&request.request(), &mut Scratch::default(), ALL);
    assert_eq!(
        told.tried.closest[0].rank[0],
        "an expression with priority 7"
    );
    let Verdict::Fails(reasons) = &told.tried.closest[0].verdict else {
        panic!("the candidate must fail")
    };
    assert_eq!(reasons[0].part, "http.path ^= \"/e\"");
}
