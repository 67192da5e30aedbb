//! HTTP/2 requests that HTTP/1.1 cannot represent. On the way to an HTTP/1.1 upstream, one of their fields could become
//! another line or another request. The gateway refuses such a request, or forwards it as one request with the original
//! body.

use super::origin::{Origin, Seen};
use super::requests::configuration;
use super::wire::Message;
use super::{bytes, cases, check_all};
use crate::launch;
use serde::Deserialize;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[allow(dead_code, reason = "for readers of the data")]
    rfc: String,
    /// `refused`: no complete request reaches the upstream. `passes`: exactly one does. `safe`: either.
    must: String,
    fields: Vec<(String, String)>,
    body: Option<String>,
    trailers: Option<Vec<(String, String)>>,
    /// Header lines of the request at the upstream, in lower case.
    #[serde(default)]
    lines: Vec<String>,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[test]
fn http2_fields_do_not_become_requests() {
    let cases: Vec<Case> = cases("http2.json");
    assert!(cases.len() >= 100);
    let origin = Origin::start();
    let gateway = launch()
        .set("proxy_listen", "127.0.0.1:0 http2")
        .configuration(&configuration(&origin))
        .start();
    check_all(
        &cases,
        |case| &case.name,
        |case| check(case, gateway.proxy, &origin),
    );
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

fn check(case: &Case, proxy: SocketAddr, origin: &Origin) -> Result<(), String> {
    origin.take();
    let how = exchange(case, proxy)?;
    let mut seen = origin.take();
    // If a request is refused while it streams, the upstream may have received its beginning.
    seen.retain(|seen| !matches!(seen, Seen::Cut));
    match (&seen[..], case.must.as_str()) {
        ([], "refused" | "safe") => Ok(()),
        ([Seen::Request(request)], "passes" | "safe") => compare(case, request),
        _ => Err(format!("{how}; the upstream saw {seen:?}")),
    }
}

fn compare(case: &Case, request: &Message) -> Result<(), String> {
    let body = bytes(case.body.as_deref().unwrap_or_default());
    if request.body != body {
        return Err(format!("another body: {request:?}"));
    }
    let lower: Vec<String> = request
        .lines
        .iter()
        .map(|line| line.to_lowercase())
        .collect();
    let has_smuggled = lower.iter().any(|line| line.starts_with("smuggled"));
    if has_smuggled || request.line.contains("smuggled") {
        return Err(format!("smuggled: {request:?}"));
    }
    match case.lines.iter().find(|line| !lower.contains(line)) {
        None => Ok(()),
        Some(missing) => Err(format!("no {missing:?} in {:?}", request.lines)),
    }
}

/// Sends the request, and waits for its complete response, a reset of its stream, or the end of the connection.
fn exchange(case: &Case, proxy: SocketAddr) -> Result<String, String> {
    let mut stream = TcpStream::connect(proxy).map_err(|error| error.to_string())?;
    let limit = Some(Duration::from_secs(20));
    stream
        .set_read_timeout(limit)
        .expect("a limit above zero is accepted");
    let mut out = PREFACE.to_vec();
    push_frame(&mut out, SETTINGS, 0, 0, &[]);
    let (body, trailers) = (case.body.as_deref(), case.trailers.as_deref());
    let end_if = |is_last: bool| if is_last { END_STREAM } else { 0 };
    let flags = END_HEADERS | end_if(body.is_none());
    push_frame(&mut out, HEADERS, flags, 1, &block(&case.fields));
    if let Some(body) = body {
        push_frame(&mut out, DATA, end_if(trailers.is_none()), 1, &bytes(body));
    }
    if let Some(trailers) = trailers {
        let flags = END_HEADERS | END_STREAM;
        push_frame(&mut out, HEADERS, flags, 1, &block(trailers));
    }
    let _ = stream.write_all(&out);
    loop {
        let mut header = [0; 9];
        if let Err(error) = stream.read_exact(&mut header) {
            return match error.kind() {
                std::io::ErrorKind::WouldBlock => Err("nothing comes".to_owned()),
                _ => Ok("closed".to_owned()),
            };
        }
        let [high, middle, low, kind, flags, ..] = header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).is_err() {
            return Ok("closed within a frame".to_owned());
        }
        match kind {
            GOAWAY => return Ok(format!("GOAWAY {payload:?}")),
            RST_STREAM => return Ok(format!("RST_STREAM {payload:?}")),
            HEADERS | DATA if flags & END_STREAM != 0 => return Ok("answered".to_owned()),
            _ => {}
        }
    }
}

fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("frames here are small");
    out.extend_from_slice(&length.to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A header block with every field as a literal without indexing (RFC 7541 section 6.2.2).
fn block(fields: &[(String, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            let text = bytes(text);
            let length = u8::try_from(text.len()).ok();
            let length = length.filter(|length| *length < 127);
            out.push(length.expect("fields here are short"));
            out.extend_from_slice(&text);
        }
    }
    out
}
