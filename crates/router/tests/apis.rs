//! Routes for the endpoints of public APIs, in every form that an operator could write them. Each request must reach an
//! endpoint that accepts it, the one with the most specific path; a request that no endpoint accepts must have no
//! route. The expected results come from the templates themselves, without an index and without regexes.

use router::{Flavor, Options, RouteIndex, Router, Scratch};
use testkit::rules::{Api, Endpoint, Part, Rule, Sample};

mod routes;

/// The form in which the endpoints of a table are written as routes.
#[derive(Debug, Clone, Copy)]
enum Form {
    Classic(Flavor),
    RegexExpressions,
    SegmentExpressions,
}

impl Form {
    fn flavor(self) -> Flavor {
        match self {
            Self::Classic(flavor) => flavor,
            Self::RegexExpressions | Self::SegmentExpressions => Flavor::Expressions,
        }
    }

    fn rule(self, endpoint: &Endpoint) -> Rule {
        let rule = Rule {
            priority: endpoint.template.priority(),
            ..Rule::default()
        };
        match self {
            Self::Classic(_) => Rule {
                methods: endpoint.methods.clone(),
                path: Some(format!("~{}", endpoint.template.regex())),
                ..rule
            },
            Self::RegexExpressions => Rule {
                expression: Some(endpoint.regex_expression("")),
                ..rule
            },
            Self::SegmentExpressions => Rule {
                expression: Some(endpoint.segments_expression("")),
                ..rule
            },
        }
    }
}

/// A table of endpoints and the router of their routes.
struct Routed {
    form: Form,
    endpoints: Vec<Endpoint>,
    router: Router,
    scratch: Scratch,
}

impl Routed {
    fn new(api: Api, form: Form) -> Self {
        let endpoints = api.endpoints();
        let rules: Vec<_> = endpoints
            .iter()
            .map(|endpoint| form.rule(endpoint))
            .collect();
        let routes = routes::of(&rules);
        let options = Options {
            flavor: form.flavor(),
            ..Options::default()
        };
        let (router, errors) = Router::build((0..).map(RouteIndex).zip(&routes), options, None);
        assert!(
            errors.is_empty(),
            "{api:?} {form:?}: {} errors, first {:?}",
            errors.len(),
            errors.first()
        );
        Self {
            form,
            endpoints,
            router,
            scratch: Scratch::default(),
        }
    }

    /// Whether the endpoint accepts the path. Expressions over segments ignore a trailing slash.
    fn takes(&self, endpoint: &Endpoint, path: &str) -> bool {
        let takes = |path: &str| endpoint.template.takes(path);
        match self.form {
            Form::Classic(_) | Form::RegexExpressions => takes(path),
            Form::SegmentExpressions => {
                let path = path.trim_end_matches('/');
                takes(path) || takes(&format!("{path}/"))
            }
        }
    }

    /// Returns the highest priority among the endpoints that accept the request.
    fn expected(&self, method: &str, path: &str) -> Option<u16> {
        let mut taking = self.endpoints.iter();
        let taking = taking
            .by_ref()
            .filter(|endpoint| endpoint.methods.contains(&method) && self.takes(endpoint, path));
        taking.map(|endpoint| endpoint.template.priority()).max()
    }

    /// Returns whether the request has a route; panics if it is the wrong one.
    fn check(&mut self, method: &'static str, path: &str) -> bool {
        let sample = Sample::get(path).with_method(method);
        let found = self
            .router
            .matches(&routes::request(&sample), &mut self.scratch);
        let expected = self.expected(method, path);
        let Some(found) = found else {
            assert_eq!(
                expected, None,
                "{:?} {method} {path} has no route",
                self.form
            );
            return false;
        };
        let endpoint = &self.endpoints[found.route.0 as usize];
        let text = endpoint.template.text;
        assert!(
            endpoint.methods.contains(&method),
            "{:?} {method} {path}: {text}",
            self.form
        );
        assert!(
            self.takes(endpoint, path),
            "{:?} {method} {path}: {text}",
            self.form
        );
        assert_eq!(
            Some(endpoint.template.priority()),
            expected,
            "{:?} {method} {path}: {text}",
            self.form
        );
        true
    }
}

/// Returns paths that differ slightly from one that the endpoint accepts. Another endpoint may accept some of them.
fn near(endpoint: &Endpoint, path: &str) -> Vec<String> {
    let longer = format!("{}/extra", path.trim_end_matches('/'));
    let before = format!("/x{path}");
    let (shorter, last) = path.rsplit_once('/').expect("a path begins with a slash");
    let mut near = vec![longer, before, format!("{shorter}/{last}x")];
    if !shorter.is_empty() {
        near.push(shorter.to_owned());
    }
    // Replaces each literal in turn with another word.
    let literals = endpoint
        .template
        .segments
        .iter()
        .filter_map(|part| match part {
            Part::Literal(literal) if !literal.is_empty() => Some(*literal),
            _ => None,
        });
    near.extend(literals.map(|literal| {
        path.replacen(
            &format!("/{literal}"),
            &format!("/{}", literal.to_uppercase()),
            1,
        )
    }));
    near
}

fn every_request_leads_to_the_endpoint_that_says_most_about_it(form: Form) {
    for api in Api::ALL {
        let mut routed = Routed::new(api, form);
        let (mut hits, mut misses) = (0, 0);
        for (at, endpoint) in routed.endpoints.clone().iter().enumerate() {
            let path = endpoint.template.path(at);
            for method in &endpoint.methods {
                assert!(routed.check(method, &path));
                hits += 1;
            }
            misses += usize::from(!routed.check("PURGE", &path));
            for near in near(endpoint, &path) {
                misses += usize::from(!routed.check(endpoint.methods[0], &near));
            }
        }
        assert!(
            hits > 600 && misses > hits,
            "{api:?}: too few hits ({hits}) or misses ({misses})"
        );
    }
}

#[test]
fn regex_paths_of_public_apis_lead_to_the_endpoint() {
    every_request_leads_to_the_endpoint_that_says_most_about_it(Form::Classic(
        Flavor::TraditionalCompatible,
    ));
}

#[test]
fn regex_paths_of_public_apis_lead_to_the_endpoint_in_the_traditional_flavor() {
    every_request_leads_to_the_endpoint_that_says_most_about_it(Form::Classic(Flavor::Traditional));
}

#[test]
fn regex_expressions_of_public_apis_lead_to_the_endpoint() {
    every_request_leads_to_the_endpoint_that_says_most_about_it(Form::RegexExpressions);
}

#[test]
fn segment_expressions_of_public_apis_lead_to_the_endpoint() {
    every_request_leads_to_the_endpoint_that_says_most_about_it(Form::SegmentExpressions);
}
