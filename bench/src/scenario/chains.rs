//! Chains of plugins as gateways in production have them. The plugins are added one after the other, so that the share
//! of each is the difference between two lines. All lines are measured in the same rounds, next to the byte relay and
//! the peers, which have no plugins.

use super::authentication::{self, CONSUMERS, Signer, bearer_of};
use super::plugins::prometheus;
use crate::configuration::{Plugins, Shape, key, path};
use crate::harness::Harness;
use crate::load::Request;
use crate::report::Scenario;
use crate::rounds::{self, Case};
use anyhow::Result;
use serde_json::{Value, json};
use std::sync::Arc;

/// The chain of which Kong's cost is published, with as many routes.
const SIX: &str = "chain of key-auth, 500 routes";
const ROUTES: usize = 500;
const TOKENS: &str = "chain of jwt, 1 route";
const HOST: &str = "bench.test";
const ORIGIN: &str = "https://app.test";

pub fn measure(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    if harness.wants(SIX) && ROUTES <= harness.options.largest {
        let shape = Shape {
            routes: ROUTES,
            consumers: 1,
            plugins: Plugins::KeyAuth,
            changed: 0,
        };
        let requests = (0..ROUTES).map(|number| request(&path(number), "apikey", key(0)));
        let text =
            |harness: &Harness, plugins: &[Value]| shape.text_with(harness.upstream, plugins);
        let plugins = six();
        add_one_by_one(
            harness,
            scenario,
            SIX,
            ROUTES,
            requests.collect(),
            &plugins,
            &text,
        )?;
    }
    if harness.wants(TOKENS) {
        let signer = Signer::new()?;
        let requests = (0..CONSUMERS).map(|number| {
            let (name, token) = bearer_of(number);
            request("/", name, token)
        });
        let text = |harness: &Harness, plugins: &[Value]| {
            authentication::configuration(harness.upstream, plugins, &signer).to_string()
        };
        let plugins = [
            cors(),
            json!({"name": "jwt"}),
            json!({"name": "acl", "config": {"allow": ["bench"]}}),
            limit(),
            transform(),
            json!({"name": "correlation-id"}),
            prometheus(),
        ];
        add_one_by_one(
            harness,
            scenario,
            TOKENS,
            1,
            requests.collect(),
            &plugins,
            &text,
        )?;
    }
    Ok(())
}

fn add_one_by_one(
    harness: &mut Harness,
    scenario: &mut Scenario,
    name: &str,
    routes: usize,
    requests: Arc<[Request]>,
    plugins: &[Value],
    text: &dyn Fn(&Harness, &[Value]) -> String,
) -> Result<()> {
    let case = Case {
        name: name.to_owned(),
        connections: harness.options.connections,
        size: None,
    };
    rounds::costs(harness, scenario, &case, &mut |harness| {
        let mut subjects = vec![harness.relay(&requests)?];
        subjects.extend(harness.peers(false, routes, 0, &requests)?);
        for count in 0..=plugins.len() {
            let added = count.checked_sub(1).and_then(|last| plugins.get(last));
            let added = added.and_then(|plugin| plugin["name"].as_str());
            let text = text(harness, &plugins[..count]);
            for mut subject in harness.silverbacks(false, &text, &requests)? {
                let line = added.map_or("no plugins".to_owned(), |added| format!("+ {added}"));
                subject.name = format!("{}, {line}", subject.name);
                subjects.push(subject);
            }
        }
        Ok(subjects)
    })
}

/// The chain of which Kong's cost is published, without prometheus.
pub(super) fn six() -> [Value; 6] {
    [
        json!({"name": "key-auth", "config": {"key_names": ["apikey"]}}),
        cors(),
        json!({"name": "correlation-id"}),
        limit(),
        transform(),
        prometheus(),
    ]
}

fn cors() -> Value {
    json!({"name": "cors", "config": {"origins": [ORIGIN], "credentials": true}})
}

/// The limit is too high for any run to reach. The benchmark measures counting, not refused requests.
fn limit() -> Value {
    json!({"name": "rate-limiting", "config": {"minute": 1_000_000_000, "policy": "local"}})
}

fn transform() -> Value {
    json!({"name": "request-transformer", "config": {
        "add": {"headers": ["x-first:1", "x-second:2"]}, "remove": {"headers": ["x-internal"]},
    }})
}

pub(super) fn request(path: &str, name: &str, value: String) -> Request {
    let headers = [
        ("Host".to_owned(), HOST.to_owned()),
        ("Origin".to_owned(), ORIGIN.to_owned()),
        (name.to_owned(), value),
    ];
    Request::with_headers(path, &headers)
}
