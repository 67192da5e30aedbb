//! Tests of RFC 9113 section 8: which requests are valid.

use super::client::*;
use crate::http2::{Ended, ServerSettings};
use socket2::SockRef;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const MALFORMED: Want = Want::Malformed(1);

fn line(name: &str, value: &str) -> Vec<u8> {
    literal(name, value.as_bytes())
}

fn request(lines: &[(&str, &str)]) -> Vec<u8> {
    let block: Vec<u8> = lines
        .iter()
        .flat_map(|(name, value)| line(name, value))
        .collect();
    whole(1, &block)
}

/// Creates a GET request with one additional field.
fn with(name: &str, value: &str) -> Vec<u8> {
    whole(1, &get_with(&line(name, value)))
}

/// Creates a POST request with additional fields, then data, then optional trailers.
fn upload(lines: &[(&str, &str)], data: &[&str], trailers: Option<&[(&str, &str)]>) -> Vec<u8> {
    let of = |lines: &[(&str, &str)]| -> Vec<u8> {
        let lines = lines.iter().flat_map(|(name, value)| line(name, value));
        lines.collect()
    };
    let block = [post(), of(lines)].concat();
    let mut out = frame(HEADERS, END_HEADERS, 1, &block);
    for (at, piece) in data.iter().enumerate() {
        let last = at + 1 == data.len() && trailers.is_none();
        out.extend(frame(DATA, u8::from(last), 1, piece.as_bytes()));
    }
    if let Some(trailers) = trailers {
        out.extend(whole(1, &of(trailers)));
    }
    out
}

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "http");
const AUTHORITY: (&str, &str) = (":authority", "a.test");
const PATH: (&str, &str) = (":path", "/");

#[tokio::test]
async fn section_8_1_messages() {
    check(vec![
        case(
            "GET",
            Want::Answer(1),
            &[request(&[METHOD, SCHEME, AUTHORITY, PATH])],
        ),
        case(
            "any order",
            Want::Answer(1),
            &[request(&[PATH, AUTHORITY, SCHEME, METHOD])],
        ),
        case(
            "HEAD",
            Want::Answer(1),
            &[request(&[(":method", "HEAD"), SCHEME, AUTHORITY, PATH])],
        ),
        case("POST", Want::Answer(1), &[upload(&[], &["x"], None)]),
        case(
            "trailers",
            Want::Answer(1),
            &[upload(&[], &["x"], Some(&[("x-sum", "1")]))],
        ),
        case(
            "trailers and no data",
            Want::Answer(1),
            &[upload(&[], &[], Some(&[("x-sum", "1")]))],
        ),
        case(
            "second HEADERS without the end",
            MALFORMED,
            &[
                frame(HEADERS, END_HEADERS, 1, &post()),
                frame(HEADERS, END_HEADERS, 1, &line("x", "y")),
            ],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_8_1_an_answer_to_head_is_a_head() {
    let mut client = Client::open(ServerSettings::default()).await;
    client
        .send(&request(&[(":method", "HEAD"), SCHEME, AUTHORITY, PATH]))
        .await;
    let frames = client.until(|frame| frame.stream == 1).await;
    assert!(frames.last().unwrap().ends(1));
}

#[tokio::test]
async fn section_8_2_names() {
    let names = ["X-Upper", "x y", "x\n", "x\0", "x:y", "(x)", "x\u{e4}", ""];
    check(
        names
            .map(|name| case("a name", MALFORMED, &[with(name, "v")]))
            .into(),
    )
    .await;
    let trailer = |name| {
        case(
            "in a trailer",
            MALFORMED,
            &[upload(&[], &["x"], Some(&[(name, "v")]))],
        )
    };
    check(vec![trailer("X-Upper"), trailer("x y"), trailer("x\r\n")]).await;
}

#[tokio::test]
async fn section_8_2_1_values() {
    let values = [
        "a\0b",
        "a\nb",
        "a\rb",
        "a\r\nx: y",
        " a",
        "a ",
        "\ta",
        "a\t",
        "a\x7f",
    ];
    let cases = values.map(|value| case("a value", MALFORMED, &[with("x", value)]));
    check(cases.into()).await;
    check(vec![
        case("empty", Want::Answer(1), &[with("x", "")]),
        case("inner white space", Want::Answer(1), &[with("x", "a \t b")]),
        case("above ASCII", Want::Answer(1), &[with("x", "\u{e4}\u{f6}")]),
    ])
    .await;
}

#[tokio::test]
async fn section_8_2_2_fields_of_a_connection() {
    let fields = [
        ("connection", "keep-alive"),
        ("connection", "x"),
        ("proxy-connection", "keep-alive"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, deflate"),
    ];
    check(
        fields
            .map(|(name, value)| case("a field", MALFORMED, &[with(name, value)]))
            .into(),
    )
    .await;
    check(vec![
        case("te: trailers", Want::Answer(1), &[with("te", "trailers")]),
        case(
            "both lengths",
            MALFORMED,
            &[upload(
                &[("content-length", "1"), ("transfer-encoding", "chunked")],
                &["x"],
                None,
            )],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_8_3_pseudo_fields() {
    let all = [METHOD, SCHEME, AUTHORITY, PATH];
    let and = |more: (&'static str, &'static str)| [&all[..], &[more]].concat();
    for more in [
        (":unknown", "x"),
        (":status", "200"),
        ("", "x"),
        (":", "x"),
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a.test"),
        (":protocol", "websocket"),
        (":Method", "GET"),
    ] {
        check(vec![case(more.0, MALFORMED, &[request(&and(more))])]).await;
    }
    for late in all {
        let others = all.iter().copied().filter(|one| *one != late);
        let lines: Vec<_> = others.chain([("x", "y"), late]).collect();
        check(vec![case("after another", MALFORMED, &[request(&lines)])]).await;
    }
    for name in [":method", ":path", ":status", ":authority"] {
        let late = upload(&[], &["x"], Some(&[("x", "y"), (name, "x")]));
        check(vec![case("in a trailer", MALFORMED, &[late])]).await;
    }
    for name in [":x", ":path", ":status", ":authority"] {
        let first = upload(&[], &["x"], Some(&[(name, "/other")]));
        check(vec![case("first in a trailer", MALFORMED, &[first])]).await;
    }
}

#[tokio::test]
async fn section_8_3_1_requests() {
    check(vec![
        case(
            "no method",
            MALFORMED,
            &[request(&[SCHEME, AUTHORITY, PATH])],
        ),
        case(
            "no scheme",
            MALFORMED,
            &[request(&[METHOD, AUTHORITY, PATH])],
        ),
        case(
            "no path",
            MALFORMED,
            &[request(&[METHOD, SCHEME, AUTHORITY])],
        ),
        case("no pseudo field", MALFORMED, &[request(&[("x", "y")])]),
        case("nothing", MALFORMED, &[request(&[])]),
        case("only the method", MALFORMED, &[request(&[METHOD])]),
        case(
            "CONNECT with a path",
            MALFORMED,
            &[request(&[(":method", "CONNECT"), AUTHORITY, PATH])],
        ),
        case(
            "CONNECT with a scheme",
            MALFORMED,
            &[request(&[(":method", "CONNECT"), AUTHORITY, SCHEME])],
        ),
        case(
            "CONNECT without authority",
            MALFORMED,
            &[request(&[(":method", "CONNECT")])],
        ),
        case(
            "Host alone",
            Want::Answer(1),
            &[request(&[METHOD, SCHEME, PATH, ("host", "a.test")])],
        ),
        case("the same Host", Want::Answer(1), &[with("host", "a.test")]),
        case("another Host", MALFORMED, &[with("host", "b.test")]),
        case("another port", MALFORMED, &[with("host", "a.test:80")]),
        case(
            "two Hosts",
            MALFORMED,
            &[request(&[
                METHOD,
                SCHEME,
                PATH,
                ("host", "a"),
                ("host", "a"),
            ])],
        ),
    ])
    .await;
    for path in [
        "",
        "x",
        "a.test/",
        "http://a.test/",
        "*",
        "?x",
        "/a b",
        "/\r\n",
        "/\0",
        "/a\tb",
        "/\x7f",
        "/#",
        "/a#b",
        "/?a#b",
    ] {
        let request = request(&[METHOD, SCHEME, AUTHORITY, (":path", path)]);
        check(vec![case("a path", MALFORMED, &[request])]).await;
    }
    for scheme in ["", "ht tp", "http:", "http://", "1http", "http\n"] {
        let with_authority = request(&[METHOD, (":scheme", scheme), AUTHORITY, PATH]);
        let with_host = request(&[METHOD, (":scheme", scheme), PATH, ("host", "a")]);
        check(vec![
            case("a scheme", MALFORMED, &[with_authority]),
            case("a scheme without authority", MALFORMED, &[with_host]),
        ])
        .await;
    }
    for method in ["", "G T", "GET\r\n", "G\0T", "GET /x HTTP/1.1", "(GET)"] {
        let request = request(&[(":method", method), SCHEME, AUTHORITY, PATH]);
        check(vec![case("a method", MALFORMED, &[request])]).await;
    }
    for authority in ["a b", "a\r\nx: y", "a/b", "a\0", "a?b", "a#b", "[::1"] {
        let request = request(&[METHOD, SCHEME, (":authority", authority), PATH]);
        check(vec![case("an authority", MALFORMED, &[request])]).await;
    }
}

#[tokio::test]
async fn section_8_1_1_lengths() {
    let length = |value| ("content-length", value);
    check(vec![
        case(
            "equal",
            Want::Answer(1),
            &[upload(&[length("4")], &["test"], None)],
        ),
        case(
            "equal in pieces",
            Want::Answer(1),
            &[upload(&[length("4")], &["te", "st"], None)],
        ),
        case(
            "less data",
            MALFORMED,
            &[upload(&[length("5")], &["test"], None)],
        ),
        case(
            "more data",
            MALFORMED,
            &[upload(&[length("1")], &["test"], None)],
        ),
        case(
            "less in pieces",
            MALFORMED,
            &[upload(&[length("9")], &["te", "st"], None)],
        ),
        case(
            "more in pieces",
            MALFORMED,
            &[upload(&[length("3")], &["te", "st"], None)],
        ),
        case(
            "no data",
            MALFORMED,
            &[whole(1, &[post(), line("content-length", "3")].concat())],
        ),
        case(
            "zero",
            Want::Answer(1),
            &[whole(1, &[post(), line("content-length", "0")].concat())],
        ),
        case(
            "less before trailers",
            MALFORMED,
            &[upload(&[length("9")], &["x"], Some(&[("x", "y")]))],
        ),
        case(
            "no number",
            MALFORMED,
            &[upload(&[length("x")], &["x"], None)],
        ),
        case(
            "negative",
            MALFORMED,
            &[upload(&[length("-1")], &["x"], None)],
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_8_7_a_reset_stream_frees_its_slot() {
    let mut client = Client::open(ServerSettings {
        streams: 2,
        ..ServerSettings::default()
    })
    .await;
    for stream in (1..200).step_by(2) {
        let begun = frame(HEADERS, END_HEADERS, stream, &post());
        client
            .send(&[begun, reset(stream, 8), frame(PING, 0, 0, &[9; 8])].concat())
            .await;
        let frames = client.until(|frame| frame.kind == PING).await;
        assert!(
            frames.iter().all(|frame| frame.kind != GOAWAY),
            "{frames:?}"
        );
    }
    client.send(&whole(201, &get())).await;
    client.until(|frame| frame.ends(201)).await;
}

#[tokio::test]
async fn section_10_5_floods_end_the_connection() {
    let calm = Want::Connection(&[ENHANCE_YOUR_CALM]);
    let resets: Vec<_> = (0..500)
        .map(|at| [whole(at * 2 + 1, &get()), reset(at * 2 + 1, 8)].concat())
        .collect();
    let continuations: Vec<_> = std::iter::once(frame(HEADERS, END_STREAM, 1, &get()))
        .chain((0..20_000).map(|_| frame(CONTINUATION, 0, 1, &[])))
        .collect();
    check(vec![
        case("streams reset at once", calm, &resets),
        case("CONTINUATION without end", calm, &continuations),
    ])
    .await;
    let empty = frame(DATA, 0, 1, b"").repeat(1_200_000);
    let begun = frame(HEADERS, END_HEADERS, 1, &post());
    check(vec![case("DATA without data", calm, &[begun, empty])]).await;
    let unknown = frame(0x77, 0, 0, &[0; 8000]).repeat(1_200);
    check(vec![case("frames without meaning", calm, &[unknown])]).await;
}

/// `GET http://a.test/large`
fn large_on(stream: u32) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x01, 6];
    block.extend_from_slice(b"a.test");
    block.extend(line(":path", "/large"));
    whole(stream, &block)
}

#[tokio::test]
async fn section_10_5_frames_that_follow_from_a_response_are_no_flood() {
    let mut client = Client::open(ServerSettings::default()).await;
    let most = 4 * LARGE as u32;
    client
        .send(&[settings(&[(4, most)]), large_on(1)].concat())
        .await;
    client.send(&window_update(0, most)).await;
    client.until(|frame| frame.ends(1)).await;
    // More than a client without a response may send, and less than this response allows.
    client.send(&window_update(0, 1).repeat(900_000)).await;
    client.send(&frame(PING, 0, 0, &[9; 8])).await;
    client.until(|frame| frame.kind == PING).await;
    // A response allows a limited number only.
    client.send(&window_update(0, 1).repeat(1_200_000)).await;
    let frames = client.until(|frame| frame.kind == GOAWAY).await;
    assert_eq!(frames.last().unwrap().code(), ENHANCE_YOUR_CALM);
}

#[tokio::test(start_paused = true)]
async fn section_10_5_a_client_that_floods_and_does_not_read_is_closed_soon() {
    let long = Duration::from_secs(3600);
    let mut client = Client::open(ServerSettings {
        send_timeout: long,
        idle_timeout: long,
        ..ServerSettings::default()
    })
    .await;
    let _ = SockRef::from(&client.stream).set_recv_buffer_size(4096);
    let start = Instant::now();
    let windows = [settings(&[(4, 1 << 30)]), window_update(0, 1 << 30)].concat();
    client.send(&windows).await;
    for stream in 0..20 {
        client.send(&large_on(stream * 2 + 1)).await;
    }
    let flood = frame(0x77, 0, 0, &[0; 16_000]);
    for _ in 0..30_000 {
        client.send(&flood).await;
    }
    let ended = timeout(long, client.server)
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(ended, Ended::Timeout);
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn section_8_1_1_other_streams_of_the_connection_go_on() {
    let mut client = Client::open(ServerSettings::default()).await;
    let begun = frame(HEADERS, END_HEADERS, 1, &post());
    let malformed = whole(3, &get_with(&line("X-Upper", "v")));
    client.send(&[begun, malformed].concat()).await;
    let frames = client.until(|frame| frame.kind == RST_STREAM).await;
    let reset = frames.last().unwrap();
    assert_eq!((reset.stream, reset.code()), (3, PROTOCOL_ERROR));
    client.send(&frame(DATA, END_STREAM, 1, b"x")).await;
    client.until(|frame| frame.ends(1)).await;
}

/// The server must read the whole field block before it resets the stream: later blocks depend on its HPACK entries.
#[tokio::test]
async fn section_8_1_1_malformed_blocks_in_several_frames() {
    let upper = line("X-Upper", "v");
    let connection = line("connection", "close");
    let rest = line("x-long", "value");
    for wrong in [upper, connection] {
        let block = [&get()[..], &wrong, &rest].concat();
        for cut in 1..block.len() {
            let frames = [
                frame(HEADERS, END_STREAM, 1, &block[..cut]),
                frame(CONTINUATION, END_HEADERS, 1, &block[cut..]),
            ];
            check(vec![case("cut in two", MALFORMED, &frames)]).await;
        }
    }
}
