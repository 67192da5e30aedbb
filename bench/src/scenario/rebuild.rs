//! Rebuild times of the router and the plugin chains, as measured by the gateway itself.

use crate::configuration::{Plugins, Shape};
use crate::gateway::{Build, Gateway};
use crate::harness::{Harness, figure};
use crate::progress::Progress;
use crate::report::{Better, Figure, Scenario, Size};
use anyhow::Result;

const ROUTES: [usize; 4] = [100, 1_000, 10_000, 100_000];
/// The parts that a change rebuilds, each with its label in the gateway's metric and its name in the report.
const PARTS: [(&str, &str); 2] = [
    ("router", "router rebuild"),
    ("plans", "plugin plans rebuild"),
];

pub fn measure(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    for build in harness.builds.clone() {
        for routes in ROUTES {
            let name = format!("rebuild, {routes} routes");
            if !harness.wants(&name) || routes > harness.options.largest {
                continue;
            }
            if harness.gateway(&build)?.metric(&sum("router"))?.is_none() {
                scenario.notes.push(format!(
                    "{name}: skipped, {} has no metric silverback_rebuild_seconds",
                    build.name
                ));
                continue;
            }
            scenario
                .figures
                .extend(rebuilds(harness, &build, &name, routes)?);
        }
    }
    Ok(())
}

fn sum(part: &str) -> String {
    format!("silverback_rebuild_seconds_sum{{part=\"{part}\"}}")
}

/// Each round loads all routes into a gateway with one route, and then changes one route. Each of the two steps gives a
/// sample. At the end of the round only one route remains.
fn rebuilds(
    harness: &mut Harness,
    build: &Build,
    name: &str,
    routes: usize,
) -> Result<Vec<Figure>> {
    let shape = |routes, changed| Shape {
        routes,
        consumers: 0,
        plugins: Plugins::KeyAuth,
        changed,
    };
    let texts =
        [shape(1, 0), shape(routes, 0), shape(routes, 1)].map(|shape| shape.text(harness.upstream));
    let mut figures = Vec::new();
    for change in ["full", "one route changed"] {
        for (_, quantity) in PARTS {
            let size = Size {
                axis: "routes".to_owned(),
                value: routes as f64,
                line: change.to_owned(),
            };
            let case = format!("{name}: {change}");
            let kind = (quantity, "ms", Better::Lower);
            figures.push(figure(&case, &build.name, kind, Some(&size)));
        }
    }
    let gateway = harness.gateway(build)?;
    gateway.post_config(&texts[0])?;
    let rounds = harness.options.rounds();
    let progress = Progress::start(name, rounds);
    for _ in 0..rounds {
        let spent = [
            spent_by(&gateway, &texts[1])?,
            spent_by(&gateway, &texts[2])?,
        ]
        .concat();
        for (figure, spent) in figures.iter_mut().zip(spent) {
            figure.samples.push(spent);
        }
        gateway.post_config(&texts[0])?;
        progress.step();
    }
    Ok(figures)
}

/// Loads a configuration, and returns how many milliseconds the rebuild of each part took. The result is zero for a
/// part that was not rebuilt.
fn spent_by(gateway: &Gateway, text: &str) -> Result<Vec<f64>> {
    let read = || -> Result<Vec<f64>> {
        let sums = PARTS.map(|(part, _)| gateway.metric(&sum(part)));
        sums.into_iter()
            .map(|sum| Ok(sum?.unwrap_or(f64::NAN)))
            .collect()
    };
    let before = read()?;
    gateway.post_config(text)?;
    let after = read()?;
    Ok(before
        .iter()
        .zip(after)
        .map(|(before, after)| (after - before) * 1e3)
        .collect())
}
