//! `config`: the three tests of the publication on Kong's LMDB storage engine. They measure how long a `POST /config`
//! takes, how long the router and the plugin chains take to rebuild, and how changes in the background affect traffic.

use super::{pushes, rebuild};
use crate::configuration::{Plugins, Shape};
use crate::gateway::Build;
use crate::harness::{Harness, figure};
use crate::progress::Progress;
use crate::report::{Better, Figure, Scenario};
use crate::rounds::{PROPORTIONAL, RESIDENT};
use anyhow::Result;

const ABOUT: &str = "POST /config, measured by its latency header: on a new gateway (first), repeated (unchanged), and with one route changed; \
                     rebuild of router and plugin chains, measured by the gateway's own metric; traffic while configurations are pushed.";
const HEADER: (&str, &str, Better) = ("X-Kong-Admin-Latency", "ms", Better::Lower);
const WHOLE: (&str, &str, Better) = ("whole answer", "ms", Better::Lower);

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "config".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for (name, shape) in loads() {
        if harness.wants(name) {
            scenario.figures.extend(post(harness, name, &shape)?);
        }
    }
    rebuild::measure(harness, &mut scenario)?;
    pushes::measure(harness, &mut scenario)?;
    Ok(scenario)
}

fn loads() -> [(&'static str, Shape); 3] {
    let shape = |routes, consumers, plugins| Shape {
        routes,
        consumers,
        plugins,
        changed: 0,
    };
    [
        (
            "POST /config, 10,000 routes",
            shape(10_000, 0, Plugins::None),
        ),
        (
            "POST /config, 10,000 consumers with keys",
            shape(1, 10_000, Plugins::KeyAuth),
        ),
        (
            "POST /config, 50,000 objects",
            shape(10_000, 10_000, Plugins::KeyAuthAndTermination),
        ),
    ]
}

/// Starts a new gateway in each round and loads three configurations into it, one after the other.
fn post(harness: &mut Harness, case: &str, shape: &Shape) -> Result<Vec<Figure>> {
    let unchanged = shape.text(harness.upstream);
    let changed = Shape {
        changed: 1,
        ..*shape
    }
    .text(harness.upstream);
    let steps = [
        ("first", &unchanged),
        ("unchanged", &unchanged),
        ("one route changed", &changed),
    ];
    let builds = harness.builds_and_kong();
    let mut figures: Vec<[Figure; 4]> = Vec::new();
    for build in &builds {
        for (step, _) in &steps {
            let case = format!("{case}: {step}");
            figures.push(
                [HEADER, WHOLE, RESIDENT, PROPORTIONAL]
                    .map(|kind| figure(&case, &build.name, kind, None)),
            );
        }
    }
    let rounds = harness.options.rounds();
    let progress = Progress::start(case, rounds);
    for round in 0..rounds {
        for offset in 0..builds.len() {
            let at = (round + offset) % builds.len();
            let figures = &mut figures[at * steps.len()..][..steps.len()];
            let texts = steps.map(|(_, text)| text.as_str());
            load_thrice(harness, &builds[at], &texts, figures)?;
        }
        progress.step();
    }
    Ok(figures.into_iter().flatten().collect())
}

fn load_thrice(
    harness: &mut Harness,
    build: &Build,
    texts: &[&str],
    figures: &mut [[Figure; 4]],
) -> Result<()> {
    let gateway = harness.gateway(build)?;
    for (text, figures) in texts.iter().zip(figures) {
        let posted = gateway.post_config(text)?;
        let memory = gateway.process.memory()?;
        let samples = [
            posted.header,
            posted.whole,
            memory.resident,
            memory.proportional,
        ];
        for (figure, sample) in figures.iter_mut().zip(samples) {
            figure.samples.push(sample);
        }
    }
    Ok(())
}
