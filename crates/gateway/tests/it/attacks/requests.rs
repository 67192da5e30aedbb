//! Unusual and invalid requests of clients. The gateway refuses a request, or forwards it as exactly one request. After
//! a forwarded request, the connection is at the beginning of the next one.

use super::origin::{Origin, Seen};
use super::wire::{Framing, Message, Wire};
use super::{bytes, cases, check_all, shown};
use crate::launch;
use serde::Deserialize;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use testkit::Gateway;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[allow(dead_code, reason = "for readers of the data")]
    rfc: String,
    send: String,
    /// Status of the only response. The gateway then closes the connection, and no complete request reaches the
    /// upstream.
    refused: Option<u16>,
    /// The requests that reach the upstream.
    #[serde(default)]
    upstream: Vec<Expected>,
    /// Statuses of the responses. If absent, each expected request gets one response with a status from 200 to 599
    /// other than 400.
    answers: Option<Vec<u16>>,
    /// `closed` if the gateway closes the connection. Otherwise the connection serves the next request.
    then: Option<String>,
    /// The client closes its sending side after `send`.
    #[serde(default)]
    end: bool,
    /// The gateway closes the connection without a response.
    #[serde(default)]
    silent: bool,
    /// The upstream receives only the beginning of a request.
    #[serde(default)]
    cut: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    line: String,
    length: Option<usize>,
    #[serde(default)]
    chunked: bool,
    #[serde(default)]
    body: String,
    /// The body as it is transferred, with chunk headers.
    raw: Option<String>,
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
}

const SYNC: &[u8] = b"GET /sync HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// A configuration with a catch-all route and a route that streams request bodies.
pub(super) fn configuration(origin: &Origin) -> String {
    format!(
        r#"
_format_version: "3.0"
services:
  - name: origin
    url: http://{}
    retries: 0
    routes:
      - {{name: all, paths: [/], strip_path: false}}
      - {{name: stream, paths: [/stream], strip_path: false, request_buffering: false}}
"#,
        origin.address
    )
}

/// Starts a gateway with [`configuration`].
pub(super) fn start(origin: &Origin) -> Gateway {
    launch().configuration(&configuration(origin)).start()
}

#[test]
fn requests_are_refused_or_forwarded_unambiguously() {
    let cases: Vec<Case> = cases("requests.json");
    assert!(cases.len() >= 300);
    let origin = Origin::start();
    let gateway = start(&origin);
    check_all(
        &cases,
        |case| &case.name,
        |case| check(case, &gateway, &origin),
    );
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

fn check(case: &Case, gateway: &Gateway, origin: &Origin) -> Result<(), String> {
    origin.take();
    let stream = TcpStream::connect(gateway.proxy).map_err(|error| error.to_string())?;
    let mut wire = Wire::new(stream);
    // A gateway that refuses early may close before everything is written.
    let _ = wire.stream.write_all(&bytes(&case.send));
    let stays_open =
        case.refused.is_none() && !case.silent && case.then.as_deref() != Some("closed");
    if stays_open {
        let _ = wire.stream.write_all(SYNC);
    }
    if case.end {
        let _ = wire.stream.shutdown(Shutdown::Write);
    }
    let methods: Vec<&str> = case
        .upstream
        .iter()
        .map(|expected| expected.line.split(' ').next().unwrap_or_default())
        .collect();
    check_answers(case, &mut wire, &methods)?;
    if stays_open {
        let answer = wire
            .answer("GET")
            .map_err(|end| format!("no answer to the next request: {end:?}"))?;
        if answer.header("x-target") != Some("/sync") {
            return Err(format!(
                "the next request is answered for {:?}",
                answer.header("x-target")
            ));
        }
    } else {
        let rest = wire.rest();
        if !rest.is_empty() {
            return Err(format!("more than was due: {}", shown(&rest)));
        }
    }
    check_upstream(case, origin, stays_open)
}

fn check_answers(case: &Case, wire: &mut Wire, methods: &[&str]) -> Result<(), String> {
    let statuses: Vec<Option<u16>> = match (&case.answers, case.refused) {
        (Some(answers), _) => answers.iter().copied().map(Some).collect(),
        (None, Some(status)) => vec![Some(status)],
        (None, None) if case.silent => Vec::new(),
        (None, None) => vec![None; case.upstream.len()],
    };
    for (index, status) in statuses.iter().enumerate() {
        let method = methods.get(index).copied().unwrap_or("GET");
        let answer = wire
            .answer(method)
            .map_err(|end| format!("answer {index}: {end:?}"))?;
        let got = answer.status();
        let right = status.map_or((200..600).contains(&got) && got != 400, |status| {
            status == got
        });
        if !right {
            return Err(format!("answer {index} is {got}, not {status:?}"));
        }
    }
    Ok(())
}

fn check_upstream(case: &Case, origin: &Origin, synced: bool) -> Result<(), String> {
    let count = case.upstream.len() + usize::from(synced) + usize::from(case.cut);
    let mut seen = origin.take_at_least(count);
    if case.cut {
        return match &seen[..] {
            [Seen::Cut] => Ok(()),
            other => Err(format!("the upstream saw {other:?}")),
        };
    }
    if synced {
        let last = seen.pop();
        if !matches!(&last, Some(Seen::Request(request)) if request.target() == "/sync") {
            return Err(format!("last at the upstream: {last:?}"));
        }
    }
    // If a request is refused while it streams, the upstream may have received its beginning.
    seen.retain(|seen| !matches!(seen, Seen::Cut));
    if seen.len() != case.upstream.len() {
        return Err(format!("the upstream saw {seen:?}"));
    }
    for (seen, expected) in seen.iter().zip(&case.upstream) {
        match seen {
            Seen::Request(request) => compare(request, expected)?,
            other => return Err(format!("the upstream saw {other:?}")),
        }
    }
    Ok(())
}

fn compare(request: &Message, expected: &Expected) -> Result<(), String> {
    let framing = match (expected.length, expected.chunked) {
        (Some(length), _) => Framing::Length(length),
        (None, true) => Framing::Chunked,
        (None, false) => Framing::None,
    };
    let line = |text: &str| bytes(text).into_iter().map(char::from).collect::<String>();
    if request.line != line(&expected.line) {
        return Err(format!("request line {:?}", request.line));
    }
    if request.framing != framing {
        return Err(format!("framed as {:?}", request.framing));
    }
    if request.body != bytes(&expected.body) {
        return Err(format!("body {}", shown(&request.body)));
    }
    if expected
        .raw
        .as_ref()
        .is_some_and(|raw| request.raw != bytes(raw))
    {
        return Err(format!("body on the wire {}", shown(&request.raw)));
    }
    if let Some(missing) = expected
        .lines
        .iter()
        .find(|text| !request.lines.contains(&line(text)))
    {
        return Err(format!("no line {missing:?} in {:?}", request.lines));
    }
    if let Some(name) = expected
        .without
        .iter()
        .find(|name| request.header(name).is_some())
    {
        return Err(format!("{name} passed"));
    }
    if let Some(name) = expected
        .has
        .iter()
        .find(|name| request.header(name).is_none())
    {
        return Err(format!("{name} is missing"));
    }
    Ok(())
}

#[test]
fn the_strict_parser_reports_how_a_message_ended() {
    let origin = Origin::start();
    let read = |sent: &[u8]| {
        let mut stream = TcpStream::connect(origin.address).expect("it listens");
        stream.write_all(sent).expect("it reads");
        drop(stream);
        origin.take_at_least(1)
    };
    assert!(matches!(&read(SYNC)[..], [Seen::Request(_)]));
    assert!(matches!(&read(&SYNC[..20])[..], [Seen::Cut]));
    let two = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n";
    assert!(matches!(&read(two)[..], [Seen::Wrong { .. }]));
}
