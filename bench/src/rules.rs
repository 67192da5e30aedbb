//! The rule sets of [`testkit::rules`] as configurations for Kong-compatible gateways, and requests that are spread
//! over them.

use crate::load::Request;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use testkit::rules::{Kind, Rule};

/// A number of routes of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Routes {
    pub kind: Kind,
    pub count: usize,
    /// Number of different requests. Kong's router caches its results for 5,000 requests, so a smaller number is
    /// answered from the cache.
    pub requests: usize,
}

impl Routes {
    /// Returns the settings that a gateway needs for these routes, in addition to the usual ones.
    pub fn settings(self) -> Vec<(&'static str, String)> {
        if self.kind.is_of_expressions() {
            vec![("KONG_ROUTER_FLAVOR", "expressions".to_owned())]
        } else {
            Vec::new()
        }
    }

    /// Returns a configuration with all routes in one service.
    pub fn text(self, upstream: SocketAddr) -> String {
        let rules = self.kind.set(self.count, 1).rules;
        let routes: Vec<Value> = (0..)
            .zip(&rules)
            .map(|(at, rule)| route(at, rule))
            .collect();
        let service = json!({
            "name": "bench", "protocol": "http", "host": upstream.ip(), "port": upstream.port(), "routes": routes,
        });
        json!({"_format_version": "3.0", "services": [service]}).to_string()
    }

    /// Returns the requests that use GET, because the load generator sends no other method.
    pub fn requests(self) -> Vec<Request> {
        // At least one of four consecutive requests of every kind is a GET.
        let hits = self.kind.set(self.count, 4 * self.requests).hits;
        let samples = hits.iter().map(|(sample, _)| sample);
        let gets = samples.filter(|sample| sample.method == "GET");
        gets.take(self.requests)
            .map(|sample| Request::with_headers(&sample.path, &sample.headers))
            .collect()
    }
}

fn route(number: usize, rule: &Rule) -> Value {
    let mut route = Map::new();
    route.insert("name".to_owned(), format!("route-{number}").into());
    route.insert("strip_path".to_owned(), false.into());
    if let Some(expression) = &rule.expression {
        route.insert("expression".to_owned(), expression.as_str().into());
        route.insert("priority".to_owned(), rule.priority.into());
        return route.into();
    }
    let headers = rule.headers.iter();
    let headers: Map<_, _> = headers
        .map(|(name, value)| (name.clone(), json!([value])))
        .collect();
    let attributes = [
        ("methods", json!(rule.methods), rule.methods.is_empty()),
        ("hosts", json!(rule.hosts), rule.hosts.is_empty()),
        ("paths", json!([rule.path]), rule.path.is_none()),
        ("regex_priority", rule.priority.into(), rule.priority == 0),
        ("headers", headers.into(), rule.headers.is_empty()),
    ];
    for (name, value, is_unset) in attributes {
        if !is_unset {
            route.insert(name.to_owned(), value);
        }
    }
    route.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(kind: Kind) -> Routes {
        Routes {
            kind,
            count: 100,
            requests: 50,
        }
    }

    fn first(kind: Kind) -> Value {
        let text = routes(kind).text("127.0.0.1:8080".parse().unwrap());
        let mut value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["services"][0]["routes"].as_array().unwrap().len(),
            100
        );
        value["services"][0]["routes"][0].take()
    }

    #[test]
    fn rules_become_routes_by_attributes_or_by_expression() {
        let route = first(Kind::Headers);
        assert_eq!(route["methods"], json!(["GET"]));
        assert_eq!(route["headers"], json!({"x-version": ["v-0"]}));
        assert!(route.get("expression").is_none() && route.get("hosts").is_none());
        let route = first(Kind::Segments);
        assert!(route["expression"].as_str().unwrap().contains("segments"));
        assert!(route["priority"].is_u64() && route.get("paths").is_none());
        assert!(routes(Kind::Headers).settings().is_empty());
        assert_eq!(routes(Kind::Segments).settings().len(), 1);
    }

    #[test]
    fn there_are_as_many_requests_as_asked_for() {
        for kind in Kind::ALL {
            let requests = routes(kind).requests();
            assert_eq!(requests.len(), 50, "{}", kind.name());
            let text = String::from_utf8(requests[7].bytes().to_vec()).unwrap();
            assert!(
                text.starts_with("GET /") && text.ends_with("\r\n\r\n"),
                "{text}"
            );
        }
    }
}
