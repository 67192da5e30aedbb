//! The scored cases of Http11Probe (github.com/MDA2AV/Http11Probe, suites of February 2026) under its names, with the
//! outcomes that it counts as passing. Where the RFC leaves a choice, the stricter outcome is required.

use super::origin::Origin;
use super::requests::start;
use super::wire::{End, Message, Wire};
use super::{bytes, cases, check_all};
use serde::Deserialize;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    /// `@HOST@` is the address of the gateway.
    send: String,
    /// Bytes sent after the first response if the connection is still open.
    follow: Option<String>,
    /// Passing outcomes: statuses, `2xx`, `4xx`, `5xx`, `close` (without a response) or `silence` (neither).
    passes: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
}

/// Time without any data after which the outcome is `silence`.
const SILENCE: Duration = Duration::from_millis(300);

/// Cases that are answered as Kong answers them, which Http11Probe counts as failures: nginx refuses `OPTIONS *`, and
/// Kong reads the first of several content types.
const AS_KONG: [(&str, &str); 2] = [("COMP-OPTIONS-STAR", "400"), ("COMP-DUPLICATE-CT", "200")];

#[test]
fn every_scored_case_of_http11probe_passes_or_is_answered_as_by_kong() {
    let mut cases: Vec<Case> = cases("http11probe.json");
    assert_eq!(cases.len(), 161);
    for (id, outcome) in AS_KONG {
        let case = cases.iter_mut().find(|case| case.id == id);
        case.expect("it is a case").passes = vec![outcome.to_owned()];
    }
    let origin = Origin::start();
    let gateway = start(&origin);
    check_all(&cases, |case| &case.id, |case| check(case, gateway.proxy));
}

fn check(case: &Case, proxy: SocketAddr) -> Result<(), String> {
    let stream = TcpStream::connect(proxy).map_err(|error| error.to_string())?;
    let mut wire = Wire::new(stream);
    let host = proxy.to_string();
    let _ = wire
        .stream
        .write_all(&bytes(&case.send.replace("@HOST@", &host)));
    let method = case.send.split(' ').next().unwrap_or_default();
    let answer = first_answer(&mut wire, method, case)?;
    let outcome = match &answer {
        Outcome::Answer(answer) => answer.status().to_string(),
        Outcome::Closed => "close".to_owned(),
        Outcome::Silence => "silence".to_owned(),
    };
    let is_among = |outcomes: &[String]| {
        outcomes.iter().any(|one| {
            let class = one.strip_suffix("xx").filter(|_| outcome.len() == 3);
            *one == outcome || class.is_some_and(|class| outcome.starts_with(class))
        })
    };
    if !is_among(&case.passes) {
        return Err(format!("{outcome}, not one of {:?}", case.passes));
    }
    let Outcome::Answer(answer) = answer else {
        return Ok(());
    };
    if let Some(follow) = &case.follow {
        let _ = wire
            .stream
            .write_all(&bytes(&follow.replace("@HOST@", &host)));
    }
    case.needs
        .iter()
        .try_for_each(|need| check_need(need, &answer, &mut wire))
}

enum Outcome {
    Answer(Message),
    Closed,
    Silence,
}

fn first_answer(wire: &mut Wire, method: &str, case: &Case) -> Result<Outcome, String> {
    let may_be_silent = case.passes.iter().any(|one| one == "silence");
    if may_be_silent {
        let set = wire.stream.set_read_timeout(Some(SILENCE));
        set.expect("a limit above zero is accepted");
        if wire.stream.peek(&mut [0]).is_err() {
            return Ok(Outcome::Silence);
        }
    }
    match wire.answer(method) {
        Ok(answer) => Ok(Outcome::Answer(answer)),
        Err(End::Closed | End::Reset) => Ok(Outcome::Closed),
        Err(end) => Err(format!("{end:?}")),
    }
}

fn check_need(need: &str, answer: &Message, wire: &mut Wire) -> Result<(), String> {
    let fulfilled = match need {
        "closed" | "one answer" => wire.rest().is_empty(),
        "no body" => answer.body.is_empty(),
        "no length" => answer.header("content-length").is_none(),
        name @ ("allow" | "date" | "content-type") => answer.header(name).is_some(),
        other => {
            let body = other.strip_prefix("echo ").expect("a need that is known");
            answer.body == body.as_bytes()
        }
    };
    if fulfilled {
        Ok(())
    } else {
        Err(format!("{need}: {:?} {:?}", answer.line, answer.lines))
    }
}
