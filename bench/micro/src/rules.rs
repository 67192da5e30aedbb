//! The rule sets of [`testkit::rules`] as routes and requests.

use crate::fixtures::route;
use model::entities::Route;
use router::{Flavor, Options, Request, RouteError, RouteIndex, Router, Scheme};
use testkit::rules::{Rule, Sample};

/// Returns routes in the order of their rules.
pub fn routes(rules: &[Rule]) -> Vec<Route> {
    let routes = rules.iter().enumerate();
    routes
        .map(|(number, rule)| as_route(number, rule))
        .collect()
}

fn as_route(number: usize, rule: &Rule) -> Route {
    let is_expression = rule.expression.is_some();
    let headers = rule.headers.iter();
    Route {
        methods: rule.methods.iter().map(|method| (*method).into()).collect(),
        hosts: rule.hosts.iter().map(|host| host.as_str().into()).collect(),
        paths: rule.path.iter().map(|path| path.as_str().into()).collect(),
        headers: headers
            .map(|(name, value)| (name.as_str().into(), vec![value.as_str().into()]))
            .collect(),
        regex_priority: (!is_expression).then_some(rule.priority.into()),
        expression: rule.expression.as_deref().map(Into::into),
        priority: is_expression.then_some(rule.priority.into()),
        ..route(number)
    }
}

pub fn request(sample: &Sample) -> Request<'_> {
    Request {
        method: sample.method,
        path: sample.path.as_bytes(),
        host: Some(sample.host.as_bytes()),
        scheme: Scheme::Http,
        sni: None,
        query: None,
        source: Some(sample.source),
        destination: Some(sample.destination),
        port: sample.port,
        headers: &sample.headers,
    }
}

/// Builds a router from the routes, numbered in their order.
pub fn build(
    routes: &[Route],
    flavor: Flavor,
    previous: Option<&Router>,
) -> Result<Router, RouteError> {
    let options = Options {
        flavor,
        ..Options::default()
    };
    let (router, errors) = Router::build((0..).map(RouteIndex).zip(routes), options, previous);
    errors.into_iter().next().map_or(Ok(router), Err)
}

/// Returns a copy of the router with one route changed.
pub fn replace(router: &Router, number: u32, route: &Route) -> Router {
    let at = RouteIndex(number);
    let (router, errors) = router.replace(&[at], [(at, route)]);
    assert!(errors.is_empty(), "the route could be used before");
    router
}
