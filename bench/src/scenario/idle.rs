//! `idle`: the memory of connections that have received a response and wait for their next request.

use crate::configuration::{Plugins, Shape};
use crate::harness::{Harness, Subject, figure};
use crate::load::{Client, Mode, Request};
use crate::progress::Progress;
use crate::report::{Better, Scenario};
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::time::Duration;

const ABOUT: &str = "Growth of PSS caused by keep-alive connections that wait after one response each. The kernel's memory for their sockets is not included.";
const CONNECTIONS: [usize; 2] = [1_000, 10_000];
const MEMORY: (&str, &str, Better) = ("memory per connection", "KiB", Better::Lower);
/// Duration of the traffic. It is long enough for every connection to be used.
const TRAFFIC: Duration = Duration::from_secs(2);

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "idle".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for connections in CONNECTIONS {
        let case = format!("{connections} idle connections, HTTP");
        if !harness.wants(&case) {
            continue;
        }
        // Each case starts new processes, because programs do not always free the memory of closed connections.
        let subjects = subjects(harness)?;
        let progress = Progress::start(&case, subjects.len());
        for subject in &subjects {
            let mut figure = figure(&case, &subject.name, MEMORY, None);
            match grown(subject, connections) {
                Ok(kibibytes) => {
                    figure.samples.push(kibibytes / connections as f64);
                    scenario.figures.push(figure);
                }
                Err(error) => {
                    let note = format!("{case}: {}: left out: {error:#}", subject.name);
                    harness.note(note.clone());
                    scenario.notes.push(note);
                }
            }
            progress.step();
        }
    }
    Ok(scenario)
}

fn subjects(harness: &mut Harness) -> Result<Vec<Subject>> {
    let requests: Arc<[Request]> = Arc::from([Request::get("/")]);
    let shape = Shape {
        routes: 1,
        consumers: 0,
        plugins: Plugins::None,
        changed: 0,
    };
    let text = shape.text(harness.upstream);
    let mut subjects = harness.silverbacks(false, &text, &requests)?;
    subjects.extend(harness.peers(false, 1, 0, &requests)?);
    Ok(subjects)
}

/// Returns the growth of a warm subject's memory in KiB.
fn grown(subject: &Subject, connections: usize) -> Result<f64> {
    let process = subject.process.as_ref().context("no process")?;
    // Warming up loads code pages and opens connections to the upstream.
    let mut warm = Client::connect(&subject.target, 64, &subject.requests)?;
    traffic(&mut warm)?;
    let before = process.memory()?.proportional;
    let mut client = Client::connect(&subject.target, connections, &subject.requests)?;
    // In a closed loop all connections would be busy at the same time, and the subject would open as many connections
    // to the upstream. Their memory would be measured too. An open loop at this rate needs only a few of them.
    let rate = connections as f64 / TRAFFIC.as_secs_f64() * 1.5;
    let outcomes = client.run(Mode::Open { rate }, TRAFFIC, TRAFFIC)?;
    if outcomes.iter().any(|outcome| outcome.failed > 0) {
        bail!("a response failed");
    }
    Ok((process.memory()?.proportional - before) * 1024.0)
}

fn traffic(client: &mut Client) -> Result<()> {
    client.run(Mode::Closed, TRAFFIC / 4, TRAFFIC).map(drop)
}
