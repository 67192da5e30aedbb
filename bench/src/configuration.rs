//! Generates declarative configurations for Kong-compatible gateways, and requests that use all their routes and keys.
//! A configuration is given by its number of routes, its number of consumers (with one key each), and the plugins of
//! every route.

use crate::load::Request;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Maximum length of a list of requests. The list is long enough that processor caches do not hold a route or key until
/// the next request that uses it, and short enough to need little memory.
const MAX_REQUESTS: usize = 100_000;
/// If a configuration has more consumers than this, each of them has only a name and a key. A million of them then need
/// less than 100 MB of text.
const MAX_FULL_CONSUMERS: usize = 100_000;

#[derive(Args, Clone)]
pub struct Options {
    #[arg(long, default_value_t = 10_000)]
    pub routes: usize,
    #[arg(long, default_value_t = 10_000)]
    pub consumers: usize,
    /// The plugins of every route
    #[arg(long, value_enum, default_value_t = Plugins::KeyAuthAndTermination)]
    pub plugins: Plugins,
    /// The address that the service points to
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub upstream: SocketAddr,
    /// Write to this file instead of standard output
    #[arg(long)]
    pub output: Option<PathBuf>,
}

pub fn write(options: &Options) -> Result<()> {
    let shape = Shape {
        routes: options.routes,
        consumers: options.consumers,
        plugins: options.plugins,
        changed: 0,
    };
    let text = shape.text(options.upstream);
    match &options.output {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
        None => {
            println!("{text}");
            Ok(())
        }
    }
}

/// Returns the path of route `number`.
pub fn path(number: usize) -> String {
    format!("/service-{}/route-{number}", number % 100)
}

/// Returns the key of consumer `number`. It looks random and is the same in every run.
pub fn key(number: usize) -> String {
    // splitmix64: consecutive numbers produce unrelated keys.
    let mix = |seed: u64| {
        let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    format!("{:016x}{:016x}", mix(number as u64), mix(!(number as u64)))
}

/// The plugins of every route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plugins {
    None,
    KeyAuth,
    RateLimiting,
    KeyAuthAndRateLimiting,
    /// The plugins of Kong's LMDB test.
    KeyAuthAndTermination,
    KeyAuthAndPrometheus,
}

impl Plugins {
    pub fn authenticate(self) -> bool {
        matches!(
            self,
            Self::KeyAuth
                | Self::KeyAuthAndRateLimiting
                | Self::KeyAuthAndTermination
                | Self::KeyAuthAndPrometheus
        )
    }

    pub fn limit_rates(self) -> bool {
        matches!(self, Self::RateLimiting | Self::KeyAuthAndRateLimiting)
    }

    fn entities(self) -> Vec<Value> {
        let mut plugins = Vec::new();
        if self.authenticate() {
            plugins.push(json!({"name": "key-auth", "config": {
                "key_names": ["apikey"], "key_in_query": true, "hide_credentials": false, "run_on_preflight": true,
            }}));
        }
        if self.limit_rates() {
            // The limit is too high for any run to reach. The benchmark measures counting, not refused requests.
            let config = json!({"minute": 1_000_000_000, "policy": "local"});
            plugins.push(json!({"name": "rate-limiting", "config": config}));
        }
        if self == Self::KeyAuthAndPrometheus {
            let config = json!({
                "per_consumer": true, "status_code_metrics": true, "latency_metrics": true, "bandwidth_metrics": true,
            });
            plugins.push(json!({"name": "prometheus", "config": config}));
        }
        if self == Self::KeyAuthAndTermination {
            // The trigger keeps the plugin from answering all requests, so that they still reach the upstream. The
            // plugin runs on every request and looks for the trigger.
            plugins.push(json!({"name": "request-termination", "config": {
                "status_code": 403, "message": "terminated", "echo": false, "trigger": "x-terminate",
            }}));
        }
        plugins
    }
}

/// The numbers that describe a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Number of routes. A single route has the path `/`; several have the paths `path(0..routes)`.
    pub routes: usize,
    /// Number of consumers, with one key each: `key(0..consumers)`.
    pub consumers: usize,
    pub plugins: Plugins,
    /// Selects a value in the first route. Two configurations with different numbers below 4 differ in this route only.
    pub changed: usize,
}

impl Shape {
    /// Writes the configuration entity by entity, because a single JSON tree would need gigabytes for the largest one.
    pub fn text(&self, upstream: SocketAddr) -> String {
        self.text_with(upstream, &self.plugins.entities())
    }

    /// Does the same as [`Self::text`] with these plugins on every route.
    pub fn text_with(&self, upstream: SocketAddr, plugins: &[Value]) -> String {
        let (host, port) = (upstream.ip(), upstream.port());
        let mut text = format!(
            r#"{{"_format_version":"3.0","services":[{{"name":"bench","protocol":"http","host":"{host}","port":{port},"routes":["#
        );
        list(&mut text, self.routes, |number| self.route(number, plugins));
        text.push_str(r#"]}],"consumers":["#);
        list(&mut text, self.consumers, |number| self.consumer(number));
        text.push_str("]}");
        text
    }

    fn path(&self, number: usize) -> String {
        if self.routes == 1 {
            "/".to_owned()
        } else {
            path(number)
        }
    }

    fn route(&self, number: usize, plugins: &[Value]) -> Value {
        let mut route = json!({
            "name": format!("route-{number}"),
            "paths": [self.path(number)],
            "strip_path": false,
            "protocols": ["http", "https"],
            "tags": [format!("team-{}", number % 50), "bench"],
            "plugins": plugins,
        });
        if number == 0 && self.changed > 0 {
            route["https_redirect_status_code"] = json!([301, 302, 307, 308][self.changed % 4]);
        }
        route
    }

    fn consumer(&self, number: usize) -> Value {
        let mut consumer = json!({
            "username": format!("consumer-{number}"),
            "keyauth_credentials": [{"key": key(number)}],
        });
        if self.consumers <= MAX_FULL_CONSUMERS {
            consumer["custom_id"] = format!("customer-{number}").into();
            consumer["tags"] = json!([format!("team-{}", number % 50)]);
        }
        consumer
    }
}

fn list(text: &mut String, count: usize, entity: impl Fn(usize) -> Value) {
    for number in 0..count {
        let comma = if number == 0 { "" } else { "," };
        write!(text, "{comma}{}", entity(number)).expect("writing to a String cannot fail");
    }
}

/// Returns requests that use the routes and keys of a configuration about equally often. If there are more routes or
/// keys than `MAX_REQUESTS`, the requests use an evenly spaced part of them. Consecutive requests use routes and keys
/// that are far apart.
pub fn requests(shape: &Shape) -> Vec<Request> {
    requests_up_to(shape, MAX_REQUESTS)
}

/// Does the same as [`requests`] with another maximum number of requests.
pub fn requests_up_to(shape: &Shape, most: usize) -> Vec<Request> {
    let keys = if shape.plugins.authenticate() {
        shape.consumers
    } else {
        0
    };
    let count = shape.routes.max(keys).min(most).max(1);
    // The strides differ, so that a route occurs with many different keys.
    let (route_stride, key_stride) = (stride(count, 0.618), stride(count, 0.755));
    (0..count)
        .map(|number| {
            let path = shape.path(spread(number * route_stride % count, count, shape.routes));
            if keys == 0 {
                return Request::get(&path);
            }
            let key = key(spread(number * key_stride % count, count, keys));
            Request::with_key(&path, &key)
        })
        .collect()
}

/// Returns a number near `part` of `count` that has no common divisor with `count`, so that steps of this size visit
/// every index before one repeats.
fn stride(count: usize, part: f64) -> usize {
    let divisor = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = ((count as f64 * part) as usize).max(1);
    (start..=start + count)
        .find(|&stride| divisor(stride, count) == 1)
        .unwrap_or(1)
}

/// Maps index `at` of `count` to an index of `all`.
fn spread(at: usize, count: usize, all: usize) -> usize {
    at * all / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashSet};

    const PUBLISHED: Shape = Shape {
        routes: 300,
        consumers: 200,
        plugins: Plugins::KeyAuthAndTermination,
        changed: 0,
    };

    fn parsed(shape: &Shape) -> Value {
        serde_json::from_str(&shape.text("127.0.0.1:8080".parse().unwrap())).unwrap()
    }

    fn sent(shape: &Shape) -> Vec<String> {
        requests(shape)
            .iter()
            .map(|request| String::from_utf8(request.bytes().to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn a_configuration_has_the_routes_the_consumers_and_the_plugins() {
        let value = parsed(&PUBLISHED);
        let service = &value["services"][0];
        assert_eq!(service["host"], "127.0.0.1");
        assert_eq!(service["port"], 8080);
        let routes = service["routes"].as_array().unwrap();
        assert_eq!(routes.len(), 300);
        assert_eq!(routes[299]["paths"][0], path(299));
        let names: Vec<_> = (0..2).map(|at| &routes[0]["plugins"][at]["name"]).collect();
        assert_eq!(names, ["key-auth", "request-termination"]);
        let consumers = value["consumers"].as_array().unwrap();
        assert_eq!(consumers.len(), 200);
        assert_eq!(consumers[199]["keyauth_credentials"][0]["key"], key(199));
    }

    #[test]
    fn a_single_route_takes_every_path() {
        let shape = Shape {
            routes: 1,
            consumers: 0,
            plugins: Plugins::RateLimiting,
            changed: 0,
        };
        let route = &parsed(&shape)["services"][0]["routes"][0];
        assert_eq!(route["paths"], json!(["/"]));
        assert_eq!(route["plugins"][0]["name"], "rate-limiting");
        assert_eq!(sent(&shape).len(), 1);
        assert!(sent(&shape)[0].starts_with("GET / HTTP/1.1\r\n"));
    }

    #[test]
    fn a_change_is_one_of_the_first_route_alone() {
        let texts: HashSet<_> = (0..4)
            .map(|changed| {
                let mut value = parsed(&Shape {
                    changed,
                    ..PUBLISHED
                });
                value["services"][0]["routes"][0].take();
                value.to_string()
            })
            .collect();
        assert_eq!(texts.len(), 1);
        let upstream = "127.0.0.1:1".parse().unwrap();
        let whole: HashSet<_> = (0..4)
            .map(|changed| {
                Shape {
                    changed,
                    ..PUBLISHED
                }
                .text(upstream)
            })
            .collect();
        assert_eq!(whole.len(), 4);
    }

    #[test]
    fn a_million_consumers_fit() {
        let shape = Shape {
            consumers: 1_000_000,
            ..PUBLISHED
        };
        let text = shape.consumer(999_999).to_string();
        assert!(text.len() * 1_000_000 < 256 << 20, "{text}");
    }

    #[test]
    fn requests_use_every_route_and_every_key_equally_often() {
        let shape = Shape {
            routes: 10,
            consumers: 1000,
            ..PUBLISHED
        };
        let mut routes = BTreeMap::new();
        let mut keys = HashSet::new();
        for request in sent(&shape) {
            let (line, rest) = request.split_once("\r\n").unwrap();
            *routes.entry(line.to_owned()).or_insert(0) += 1;
            keys.insert(rest.to_owned());
        }
        assert_eq!(routes.len(), 10);
        assert!(routes.values().all(|&count| count == 100), "{routes:?}");
        assert_eq!(keys.len(), 1000);
    }

    #[test]
    fn a_list_of_requests_stays_short_and_reaches_the_last_route() {
        let shape = Shape {
            routes: 200_000,
            consumers: 0,
            plugins: Plugins::None,
            changed: 0,
        };
        let sent = sent(&shape);
        assert_eq!(sent.len(), MAX_REQUESTS);
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), MAX_REQUESTS);
        assert!(sent.iter().any(|request| request.contains("/route-19999")));
        assert!(!sent.iter().any(|request| request.contains("apikey")));
    }

    #[test]
    fn neighbours_in_a_list_of_requests_are_far_apart() {
        for count in [100, 10_000] {
            let stride = stride(count, 0.618);
            assert!((count / 4..count * 3 / 4).contains(&stride), "{stride}");
        }
        assert_eq!(stride(1, 0.618), 1);
        assert_eq!(stride(2, 0.618), 1);
    }
}
