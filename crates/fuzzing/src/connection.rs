//! Fuzz targets for whole connections. Every request sent to an upstream must be one of the client's requests and must
//! have only one possible reading. The client must receive valid responses and nothing else.

use net::http1::{Body, Framing, Limits, RequestHead, ResponseHead};
use net::memory::Then;
use proxy::session::memory::Bench;

/// Separates the bytes of the client and of each upstream connection.
const BOUNDARY: &[u8] = b"\n\xff\n";

thread_local! {
    static BENCH: Bench = Bench::new();
}

/// The parts of a request that are compared between client and upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    method: String,
    query: Option<Vec<u8>>,
    body: Vec<u8>,
}

/// Checks an HTTP/1 connection. The first byte of the input gives the number of bytes per read, and whether the client
/// closes after its last byte. The bytes of the client follow. After each boundary come the bytes that the next
/// upstream connection sends.
pub fn connection(data: &[u8]) {
    let Some(Scene {
        piece,
        then,
        client,
        upstreams,
    }) = scene(data)
    else {
        return;
    };
    let outcome = BENCH.with(|bench| bench.connection(client, then, &upstreams, piece));
    let asked = requests_of(client);
    let mut due = asked.iter();
    for sent in &outcome.to_upstreams {
        let Some(request) = forwarded(sent) else {
            continue;
        };
        // The gateway may answer some requests itself, but must not forward a request twice or out of order.
        assert!(
            due.any(|asked| *asked == request),
            "the client did not send {request:?}, or not in this order: {asked:?}"
        );
    }
    check_answers(&outcome.to_client, &asked);
}

/// Checks an HTTP/2 connection. The input is as for [`connection`], but the client's bytes are frames without the
/// preface.
pub fn http2(data: &[u8]) {
    let Some(Scene {
        piece,
        then,
        client,
        upstreams,
    }) = scene(data)
    else {
        return;
    };
    let outcome = BENCH.with(|bench| bench.http2(client, then, &upstreams, piece));
    for sent in &outcome.to_upstreams {
        forwarded(sent);
    }
    check_frames(&outcome.to_client);
}

/// Checks that the bytes are frames of known types. The last frame may be incomplete.
fn check_frames(mut data: &[u8]) {
    while let Some((header, rest)) = data.split_first_chunk::<9>() {
        let length =
            usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        assert!(header[3] <= 9, "a frame of type {}", header[3]);
        match rest.split_at_checked(length) {
            Some((_, after)) => data = after,
            None => return,
        }
    }
}

struct Scene<'d> {
    piece: usize,
    then: Then,
    client: &'d [u8],
    upstreams: Vec<&'d [u8]>,
}

fn scene(data: &[u8]) -> Option<Scene<'_>> {
    let (&first, data) = data.split_first()?;
    let piece = match first >> 1 {
        small @ 0..=63 => usize::from(small) + 1,
        _ => usize::MAX,
    };
    let then = match first & 1 {
        0 => Then::Close,
        _ => Then::Wait,
    };
    let mut parts = split(data).into_iter();
    Some(Scene {
        piece,
        then,
        client: parts.next().unwrap_or_default(),
        upstreams: parts.collect(),
    })
}

fn split(mut data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some(at) = data
        .windows(BOUNDARY.len())
        .position(|window| window == BOUNDARY)
    {
        parts.push(&data[..at]);
        data = &data[at + BOUNDARY.len()..];
    }
    parts.push(data);
    parts
}

/// Parses the complete requests of a client, up to the first one that is refused or incomplete.
fn requests_of(mut data: &[u8]) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some((request, _, rest)) = next_request(data) {
        requests.push(request);
        data = rest;
    }
    requests
}

fn next_request(data: &[u8]) -> Option<(Request, RequestHead, &[u8])> {
    let parsed = RequestHead::parse(data, &Limits::default());
    let (head, length) = parsed.ok().flatten()?;
    let mut body = Body::new(head.framing());
    let mut payload = Vec::new();
    let taken = body.decode(&data[length..], &mut payload).ok()?;
    let request = Request {
        method: head.method().to_owned(),
        query: head.query_bytes().map(<[u8]>::to_owned),
        body: payload,
    };
    body.is_done()
        .then_some((request, head, &data[length + taken..]))
}

/// Parses and checks the request that an upstream connection received. Returns `None` if it is incomplete or asks for
/// an upgrade.
fn forwarded(sent: &[u8]) -> Option<Request> {
    let parsed = RequestHead::parse(
        sent,
        &Limits {
            line: usize::MAX,
            head: usize::MAX,
            lines: usize::MAX,
        },
    );
    let (head, length) = parsed.expect("a forwarded request head must be valid")?;
    for name in [
        "connection",
        "x-real-ip",
        "x-forwarded-for",
        "x-kong-request-id",
    ] {
        assert_eq!(head.header_count(name), 1, "{name}");
    }
    for name in ["keep-alive", "proxy-connection", "expect"] {
        assert_eq!(head.header_count(name), 0, "{name}");
    }
    if head.header_count("upgrade") > 0 {
        // The bytes after the head may belong to a tunnel.
        return None;
    }
    let mut body = Body::new(head.framing());
    let mut payload = Vec::new();
    let taken = body.decode(&sent[length..], &mut payload);
    let taken = taken.expect("forwarded chunks must be valid");
    assert_eq!(length + taken, sent.len(), "more than a request was sent");
    body.is_done().then(|| Request {
        method: head.method().to_owned(),
        query: head.query_bytes().map(<[u8]>::to_owned),
        body: payload,
    })
}

/// Checks that the bytes are responses, each after any number of interim responses. There may be one for each request
/// and one more for a refused request. The last response may be incomplete.
fn check_answers(mut data: &[u8], asked: &[Request]) {
    let mut methods = asked.iter().map(|request| request.method.as_str());
    let mut refused = false;
    while !data.is_empty() {
        let method = match methods.next() {
            Some(method) => method,
            None if refused => panic!("more responses than requests"),
            None => {
                refused = true;
                "GET"
            }
        };
        loop {
            let limits = Limits {
                line: usize::MAX,
                head: usize::MAX,
                lines: usize::MAX,
            };
            let parsed = ResponseHead::parse(data, method == "HEAD", &limits);
            let Some((head, length)) = parsed.expect("a sent response head must be valid") else {
                return;
            };
            data = &data[length..];
            if head.status() == 101 {
                // The rest belongs to a tunnel and is not HTTP.
                return;
            }
            assert_eq!(head.header("connection").is_some(), !head.is_interim());
            if head.is_interim() {
                continue;
            }
            let closes = head.framing() == Framing::Close;
            let mut body = Body::new(head.framing());
            let taken = body.decode(data, &mut Vec::new());
            let taken = taken.expect("sent chunks must be valid");
            data = &data[taken..];
            if closes || !body.is_done() || !head.keep_alive() {
                assert!(data.is_empty(), "more bytes after the last response");
                return;
            }
            break;
        }
    }
}
