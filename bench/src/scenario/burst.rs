//! `burst`: hundreds and thousands of streams on one HTTP/2 connection. By default nginx closes a connection after
//! 1,000 requests, and the outstanding requests fail.

use super::http2::{self, Listener};
use crate::h2load::{H2load, Load, MISSING};
use crate::harness::{self, Harness, figure};
use crate::peers::Http2;
use crate::progress::Progress;
use crate::report::{Better, Figure, Scenario};
use crate::rounds::RATE;
use anyhow::Result;

const ABOUT: &str =
    "h2load: 500 and 5,000 requests on one HTTP/2 connection over TLS, 100 streams at a time.";
const REQUESTS: [usize; 2] = [500, 5_000];
const STREAMS: usize = 100;
const SUCCEEDED: (&str, &str, Better) = ("succeeded", "requests", Better::Higher);

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let Some(h2load) = H2load::find() else {
        return Ok(harness::skipped("burst", ABOUT, MISSING));
    };
    let Some(mut listeners) = http2::builds(harness, &h2load)? else {
        return Ok(harness::skipped("burst", ABOUT, http2::NOT_SERVED));
    };
    listeners.extend(http2::peers(harness, &["nginx"], Http2::UsualLimits)?);
    let mut scenario = Scenario {
        name: "burst".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for requests in REQUESTS {
        let figures = measure(harness, &h2load, requests, &listeners)?;
        scenario.figures.extend(figures);
    }
    Ok(scenario)
}

fn measure(
    harness: &Harness,
    h2load: &H2load,
    requests: usize,
    listeners: &[Listener],
) -> Result<Vec<Figure>> {
    let case = format!("{requests} requests on one connection");
    let mut figures: Vec<[Figure; 2]> = listeners
        .iter()
        .map(|listener| [SUCCEEDED, RATE].map(|kind| figure(&case, &listener.name, kind, None)))
        .collect();
    let load = Load {
        requests,
        connections: 1,
        streams: STREAMS,
    };
    let rounds = harness.options.rounds();
    let progress = Progress::start(&case, rounds);
    for round in 0..rounds {
        for offset in 0..listeners.len() {
            let at = (round + offset) % listeners.len();
            let outcome = h2load.run(listeners[at].address, load)?;
            figures[at][0].samples.push(outcome.succeeded);
            figures[at][1].samples.push(outcome.rate);
        }
        progress.step();
    }
    Ok(figures.into_iter().flatten().collect())
}
