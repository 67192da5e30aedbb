//! HTTP/2 over TLS: starts the programs that support it, and measures the cost of a request.

use crate::configuration::{Plugins, Shape};
use crate::h2load::{H2load, Load, MISSING};
use crate::harness::{Harness, figure};
use crate::peers::{Http2, Workload};
use crate::process::Process;
use crate::progress::Progress;
use crate::report::{Figure, Scenario};
use crate::rounds::{self, CPU, RATE};
use crate::upstream;
use anyhow::Result;
use std::net::SocketAddr;

pub const NOT_SERVED: &str = "this version does not serve HTTP/2 yet";
const CASE: &str = "512 B, 64 connections, HTTP/2";
const CONNECTIONS: usize = 64;
const STREAMS: usize = 16;
/// Number of requests in a run of h2load. It is large enough that the handshakes of the new connections do not matter.
const REQUESTS: usize = 50_000;

/// An HTTP/2 listener of a subject.
pub struct Listener {
    pub name: String,
    pub address: SocketAddr,
    process: Process,
}

/// Adds the cost of a request over HTTP/2 to the scenario, or a note why it was not measured.
pub fn measure(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    if !harness.wants(CASE) {
        return Ok(());
    }
    let Some(h2load) = H2load::find() else {
        scenario.notes.push(format!("{CASE}: skipped, {MISSING}"));
        return Ok(());
    };
    let Some(mut listeners) = builds(harness, &h2load)? else {
        scenario
            .notes
            .push(format!("{CASE}: skipped, {NOT_SERVED}"));
        return Ok(());
    };
    listeners.extend(peers(harness, &["nginx", "haproxy"], Http2::Unlimited)?);
    costs(harness, scenario, &h2load, &listeners)
}

/// Starts every build of Silverback. Returns `None` if one of them does not support HTTP/2.
pub fn builds(harness: &mut Harness, h2load: &H2load) -> Result<Option<Vec<Listener>>> {
    let shape = Shape {
        routes: 1,
        consumers: 0,
        plugins: Plugins::None,
        changed: 0,
    };
    let mut listeners = Vec::new();
    for build in harness.builds.clone() {
        let gateway = harness.gateway(&build)?;
        gateway.post_config(&shape.text(harness.upstream))?;
        if !h2load.serves_http2(gateway.tls)? {
            return Ok(None);
        }
        listeners.push(Listener {
            name: build.name,
            address: gateway.tls,
            process: gateway.process,
        });
    }
    Ok(Some(listeners))
}

/// Starts the installed competitors with these names.
pub fn peers(harness: &mut Harness, names: &[&str], http2: Http2) -> Result<Vec<Listener>> {
    let certificate = harness.certificate.clone();
    let workload = Workload {
        upstream: harness.upstream,
        tls: Some(&certificate),
        http2,
        routes: 1,
        keys: 0,
    };
    let mut listeners = Vec::new();
    for at in 0..harness.peers.len() {
        let name = harness.peers[at].name;
        if !names.contains(&name) {
            continue;
        }
        if let Some(started) = harness.peer(at, &workload)? {
            listeners.push(Listener {
                name: name.to_owned(),
                address: started.address,
                process: started.process,
            });
        }
    }
    Ok(listeners)
}

/// Adds the figures of the subjects that answered every request with a body of the upstream's length. Other subjects
/// are left out, with a note.
fn costs(
    harness: &mut Harness,
    scenario: &mut Scenario,
    h2load: &H2load,
    listeners: &[Listener],
) -> Result<()> {
    let mut failures: Vec<Option<String>> = listeners.iter().map(|_| None).collect();
    let mut figures: Vec<[Figure; 2]> = listeners
        .iter()
        .map(|listener| [CPU, RATE].map(|kind| figure(CASE, &listener.name, kind, None)))
        .collect();
    let load = Load {
        requests: REQUESTS,
        connections: CONNECTIONS,
        streams: STREAMS,
    };
    let rounds = harness.options.rounds();
    let progress = Progress::start(CASE, rounds);
    for round in 0..rounds {
        for offset in 0..listeners.len() {
            let at = (round + offset) % listeners.len();
            if failures[at].is_some() {
                continue;
            }
            let process = &listeners[at].process;
            let before = process.cpu_time()?;
            let outcome = h2load.run(listeners[at].address, load)?;
            let spent = process.cpu_time()?.saturating_sub(before);
            failures[at] = outcome.failure(REQUESTS, upstream::body_length("/"));
            let cost = spent.as_secs_f64() * 1e6 / outcome.succeeded;
            figures[at][0].samples.push(cost);
            figures[at][1].samples.push(outcome.rate);
        }
        progress.step();
    }
    for ((listener, figures), failure) in listeners.iter().zip(figures).zip(failures) {
        match failure {
            None => scenario.figures.extend(figures),
            Some(failure) => {
                let failure = format!("{CASE}: {}: {failure}", listener.name);
                rounds::leave_out(harness, scenario, &listener.name, &failure);
            }
        }
    }
    Ok(())
}
