//! Converts rules to routes and samples to requests.

use model::entities::{Route, RouteId};
use router::{Request, Scheme};
use testkit::rules::{Rule, Sample};
use uuid::Uuid;

/// Returns routes in the order of their rules.
pub fn of(rules: &[Rule]) -> Vec<Route> {
    (0..)
        .zip(rules)
        .map(|(number, rule)| route(number, rule))
        .collect()
}

fn route(number: u128, rule: &Rule) -> Route {
    Route {
        methods: rule.methods.iter().map(|method| (*method).into()).collect(),
        hosts: rule.hosts.iter().map(|host| host.as_str().into()).collect(),
        paths: rule.path.iter().map(|path| path.as_str().into()).collect(),
        headers: rule
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().into(), vec![value.as_str().into()]))
            .collect(),
        regex_priority: rule
            .expression
            .is_none()
            .then_some(i64::from(rule.priority)),
        expression: rule.expression.as_deref().map(Into::into),
        priority: rule.expression.is_some().then_some(rule.priority.into()),
        strip_path: false,
        ..Route::blank(RouteId(Uuid::from_u128(number)))
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
