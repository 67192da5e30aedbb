//! `proxy`: one route, no plugins. Measures the cost of proxying by size of the response, number of connections and
//! protocol.

use super::http2;
use crate::configuration::{Plugins, Shape};
use crate::harness::{Harness, Subject};
use crate::load::Request;
use crate::report::Scenario;
use crate::rounds::{self, Case};
use anyhow::Result;
use std::sync::Arc;

const ABOUT: &str = "One route, no plugins, default headers. Closed loop for capacity; latency at a fixed rate, measured from the time when a request was due.";
const ANSWERS: [(&str, &str, &[usize]); 3] = [
    ("512 B", "/", &[8, 64, 256, 1024]),
    ("64 KiB", "/big", &[8, 64, 256, 1024]),
    // A sample ends when the outstanding responses have arrived. With more connections this would take seconds.
    ("10 MiB", "/huge", &[8]),
];
/// Number of connections for handshakes. It is small, so that the wait for outstanding responses does not dominate a
/// sample.
const HANDSHAKING: usize = 8;
const PROTOCOLS: [(&str, bool); 2] = [("HTTP", false), ("TLS", true)];

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "proxy".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for (protocol, tls) in PROTOCOLS {
        let mut subjects = subjects(harness, tls)?;
        for (answer, path, counts) in ANSWERS {
            ask_for(&mut subjects, Request::get(path));
            for &connections in counts {
                let case = Case {
                    name: format!("{answer}, {connections} connections, {protocol}"),
                    connections,
                    size: None,
                };
                if harness.wants(&case.name) {
                    rounds::capacity(harness, &mut scenario, &case, &subjects)?;
                }
            }
        }
        let case = Case {
            name: format!("512 B, {} requests/s, {protocol}", harness.options.rate),
            connections: harness.options.connections,
            size: None,
        };
        ask_for(&mut subjects, Request::get("/"));
        if harness.wants(&case.name) {
            rounds::latency(harness, &mut scenario, &case, &subjects)?;
        }
        if tls {
            let case = Case {
                name: format!("512 B, {HANDSHAKING} connections, a handshake for each request"),
                connections: HANDSHAKING,
                size: None,
            };
            ask_for(&mut subjects, Request::closing("/"));
            if harness.wants(&case.name) {
                rounds::capacity(harness, &mut scenario, &case, &subjects)?;
            }
        }
    }
    http2::measure(harness, &mut scenario)?;
    Ok(scenario)
}

fn ask_for(subjects: &mut [Subject], request: Request) {
    let requests: Arc<[Request]> = Arc::from([request]);
    for subject in subjects {
        subject.requests = Arc::clone(&requests);
    }
}

fn subjects(harness: &mut Harness, tls: bool) -> Result<Vec<Subject>> {
    let requests: Arc<[Request]> = Arc::from([Request::get("/")]);
    let mut subjects = Vec::new();
    if !tls {
        subjects.push(harness.direct(&requests));
        subjects.push(harness.relay(&requests)?);
    }
    let shape = Shape {
        routes: 1,
        consumers: 0,
        plugins: Plugins::None,
        changed: 0,
    };
    let text = shape.text(harness.upstream);
    subjects.extend(harness.silverbacks(tls, &text, &requests)?);
    subjects.extend(harness.peers(tls, 1, 0, &requests)?);
    Ok(subjects)
}
