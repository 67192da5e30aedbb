//! The part of `gateway` about kinds of routes: the cost of a request with 1 to 100,000 routes of each kind. If a Kong
//! installation is given, it gets the same routes and requests.
//!
//! Kong's router caches its results for 5,000 requests. The cache key has all properties that the routes can match.
//! Therefore there are two measurements: "warm" with requests that fit into this cache, and "cold" with many more.

use crate::gateway::Build;
use crate::harness::{Harness, Subject};
use crate::load::{Request, Target};
use crate::report::{Scenario, Size};
use crate::rounds::{self, Case};
use crate::rules::Routes;
use anyhow::Result;
use std::sync::Arc;
use testkit::rules::Kind;

/// The measured kinds. `Ranges` is missing because the load generator's address is in none of its networks. `Prefixes`
/// is missing because `gateway` measures plain prefixes as "no plugins".
const KINDS: [Kind; 5] = [
    Kind::Hosts,
    Kind::Headers,
    Kind::Regexes,
    Kind::Expressions,
    Kind::Segments,
];
const COUNTS: [usize; 5] = [1, 100, 1_000, 10_000, 100_000];
/// Number of different requests that fit into the cache of Kong's router.
const WARM: usize = 1_000;
/// Number of different requests that is far larger than the cache of Kong's router.
const COLD: usize = 50_000;

pub fn measure(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    for kind in KINDS {
        for count in COUNTS {
            let routes = Routes {
                kind,
                count,
                requests: COLD,
            };
            measure_one(harness, scenario, routes, "cold")?;
        }
        let routes = Routes {
            kind,
            count: 1_000,
            requests: WARM,
        };
        measure_one(harness, scenario, routes, "warm")?;
    }
    Ok(())
}

fn measure_one(
    harness: &mut Harness,
    scenario: &mut Scenario,
    routes: Routes,
    cache: &str,
) -> Result<()> {
    let line = format!("{}, {cache}", routes.kind.name());
    let unit = if routes.count == 1 { "route" } else { "routes" };
    let name = format!("{line}, {} {unit}", routes.count);
    if !harness.wants(&name) || routes.count > harness.options.largest {
        return Ok(());
    }
    let requests: Arc<[Request]> = routes.requests().into();
    let text = routes.text(harness.upstream);
    let mut subjects = vec![harness.relay(&requests)?];
    for build in harness.builds_and_kong() {
        match subject(harness, &build, routes, &text, &requests) {
            Ok(subject) => subjects.push(subject),
            Err(error) => harness.note(format!(
                "{name}: {} refused these routes and is left out: {error:#}",
                build.name
            )),
        }
    }
    let size = Size {
        axis: "routes".to_owned(),
        value: routes.count as f64,
        line,
    };
    let case = Case {
        name,
        connections: harness.options.connections,
        size: Some(&size),
    };
    rounds::capacity(harness, scenario, &case, &subjects)
}

fn subject(
    harness: &mut Harness,
    build: &Build,
    routes: Routes,
    text: &str,
    requests: &Arc<[Request]>,
) -> Result<Subject> {
    let gateway = harness.gateway_with(build, &routes.settings())?;
    gateway.post_config(text)?;
    Ok(Subject {
        name: build.name.clone(),
        process: Some(gateway.process),
        target: Target {
            address: gateway.proxy,
            tls: false,
        },
        requests: Arc::clone(requests),
    })
}
