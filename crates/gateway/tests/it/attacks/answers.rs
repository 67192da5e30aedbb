//! Unusual and invalid responses of upstreams. The client receives exactly one response with the intended meaning, or a
//! 502. It never receives data that belongs to none of its requests.

use super::wire::{End, Framing, Message, Wire};
use super::{bytes, cases, check_all, shown};
use crate::launch;
use serde::Deserialize;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[allow(dead_code, reason = "for readers of the data")]
    rfc: String,
    answer: String,
    /// The upstream closes the connection after its response.
    #[serde(default)]
    closes: bool,
    /// The upstream resets the connection after the client has received some bytes.
    #[serde(default)]
    resets: bool,
    method: Option<String>,
    version: Option<String>,
    status: u16,
    /// Framing of the body in the response to the client.
    framing: Option<String>,
    body: Option<String>,
    /// The client can see that the response is incomplete.
    #[serde(default)]
    broken: bool,
    /// Whether the connection to the upstream is used for the next request.
    reused: Option<bool>,
    /// Statuses of the 1xx responses that reach the client.
    interims: Option<Vec<u16>>,
    #[serde(default)]
    interims_without: Vec<String>,
    #[serde(default)]
    lines: Vec<String>,
    #[serde(default)]
    has: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    /// `closed` if the gateway closes the client's connection. Otherwise the connection serves the next request.
    then: Option<String>,
}

#[test]
fn responses_reach_the_client_unambiguously_or_not_at_all() {
    let cases: Vec<Case> = cases("answers.json");
    assert!(cases.len() >= 100);
    let cases = Arc::new(cases);
    let upstream = start_upstream(cases.clone());
    let configuration = format!(
        r#"
_format_version: "3.0"
services:
  - name: scripted
    url: http://{upstream}
    retries: 0
    routes: [{{name: all, paths: [/], strip_path: false}}]
"#
    );
    let gateway = launch().configuration(&configuration).start();
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    check_all(
        &numbered,
        |(_, case)| &case.name,
        |(number, case)| check(*number, case, gateway.proxy),
    );
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

/// Starts an upstream that answers `/case/N` with the bytes of case N and `/sync` with the number of the connection.
fn start_upstream(cases: Arc<Vec<Case>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    let connections = AtomicUsize::new(0);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let cases = cases.clone();
            let connection = connections.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || serve(stream, connection, &cases));
        }
    });
    address
}

fn serve(stream: TcpStream, connection: usize, cases: &[Case]) {
    let mut wire = Wire::new(stream);
    wire.stream
        .set_read_timeout(None)
        .expect("no limit is accepted");
    while let Ok(request) = wire.request() {
        let number = request.target().strip_prefix("/case/");
        let case = number.and_then(|number| cases.get(number.parse::<usize>().ok()?));
        let written = match case {
            Some(case) => wire.stream.write_all(&bytes(&case.answer)),
            None => wire.stream.write_all(
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Connection: {connection}\r\n\r\n"
                )
                .as_bytes(),
            ),
        };
        if written.is_err() || case.is_some_and(|case| case.closes) {
            return;
        }
        if case.is_some_and(|case| case.resets) {
            // A reset discards data that the gateway has not read yet, so wait 200 ms, in which the first bytes reach
            // the client.
            let mut byte = [0];
            let limit = Some(Duration::from_millis(200));
            wire.stream
                .set_read_timeout(limit)
                .expect("a limit above zero is accepted");
            let _ = std::io::Read::read(&mut wire.stream, &mut byte);
            let socket = socket2::SockRef::from(&wire.stream);
            socket
                .set_linger(Some(Duration::ZERO))
                .expect("a TCP socket has the option");
            return;
        }
    }
}

fn check(number: usize, case: &Case, proxy: SocketAddr) -> Result<(), String> {
    let before = upstream_connection(&mut connect(proxy)?)?;
    let mut wire = connect(proxy)?;
    let method = case.method.as_deref().unwrap_or("GET");
    let version = case.version.as_deref().unwrap_or("1.1");
    let request = format!("{method} /case/{number} HTTP/{version}\r\nHost: a.test\r\n\r\n");
    wire.stream
        .write_all(request.as_bytes())
        .map_err(|error| error.to_string())?;
    let mut interims = Vec::new();
    let answer = loop {
        match wire.answer(method) {
            Ok(answer) if answer.status() < 200 => {
                if let Some(name) = case
                    .interims_without
                    .iter()
                    .find(|name| answer.header(name).is_some())
                {
                    return Err(format!("{name} in an interim answer"));
                }
                interims.push(answer.status());
            }
            Ok(answer) => break answer,
            Err(End::Cut | End::Reset) if case.broken => return Ok(()),
            Err(end) => return Err(format!("{end:?}")),
        }
    };
    if case.broken {
        return Err(format!("seems whole: {}", shown(&answer.body)));
    }
    if interims != case.interims.clone().unwrap_or_default() {
        return Err(format!("interim answers {interims:?}"));
    }
    compare(case, &answer)?;
    if case.then.as_deref() == Some("closed") || answer.header("connection") == Some("close") {
        let rest = wire.rest();
        return if rest.is_empty() {
            Ok(())
        } else {
            Err(format!("more than was due: {}", shown(&rest)))
        };
    }
    let after = upstream_connection(&mut wire)?;
    match case.reused {
        Some(reused) if reused != (after == before) => {
            Err(format!("upstream connection {before}, then {after}"))
        }
        _ => Ok(()),
    }
}

fn connect(proxy: SocketAddr) -> Result<Wire, String> {
    let stream = TcpStream::connect(proxy).map_err(|error| error.to_string())?;
    Ok(Wire::new(stream))
}

/// Sends the next request, and returns the number that the upstream gave to the connection that serves it.
fn upstream_connection(wire: &mut Wire) -> Result<String, String> {
    let sync = b"GET /sync HTTP/1.1\r\nHost: a.test\r\n\r\n";
    wire.stream
        .write_all(sync)
        .map_err(|error| error.to_string())?;
    let answer = wire.answer("GET").map_err(|end| format!("next: {end:?}"))?;
    let connection = answer.header("x-connection").map(str::to_owned);
    connection.ok_or_else(|| format!("the next answer is {:?} {:?}", answer.line, answer.lines))
}

fn compare(case: &Case, answer: &Message) -> Result<(), String> {
    if answer.status() != case.status {
        return Err(format!("status {}", answer.status()));
    }
    let framing = match answer.framing {
        Framing::None => "none",
        Framing::Length(_) => "length",
        Framing::Chunked => "chunked",
        Framing::Close => "close",
    };
    if case
        .framing
        .as_ref()
        .is_some_and(|expected| expected != framing)
    {
        return Err(format!("framed as {framing}"));
    }
    if case
        .body
        .as_ref()
        .is_some_and(|body| bytes(body) != answer.body)
    {
        return Err(format!("body {}", shown(&answer.body)));
    }
    let line = |text: &String| bytes(text).into_iter().map(char::from).collect::<String>();
    if let Some(missing) = case
        .lines
        .iter()
        .find(|text| !answer.lines.contains(&line(text)))
    {
        return Err(format!("no line {missing:?} in {:?}", answer.lines));
    }
    if let Some(name) = case
        .without
        .iter()
        .find(|name| answer.header(name).is_some())
    {
        return Err(format!("{name} passed"));
    }
    if let Some(name) = case.has.iter().find(|name| answer.header(name).is_none()) {
        return Err(format!("{name} is missing"));
    }
    Ok(())
}
