//! Tests of the conversion between HTTP/2 heads and HTTP/1.1 text, and of heads that must be refused.

use crate::http1::{Limits, RequestHead, ResponseHead};
use crate::http2::text::{self, Length};
use h2::ext::Protocol;
use http::{HeaderMap, Request, Response, request};

fn parts(request: http::request::Builder) -> request::Parts {
    request.body(()).unwrap().into_parts().0
}

fn get(uri: &str) -> http::request::Builder {
    Request::get(uri)
}

fn written(parts: &request::Parts, bodiless: bool) -> (String, Length) {
    let mut out = Vec::new();
    let length = text::write_request(parts, bodiless, &mut out);
    let (_, taken) = RequestHead::parse(&out, &Limits::default())
        .unwrap()
        .unwrap();
    assert_eq!(taken, out.len(), "a head and nothing else");
    (String::from_utf8(out).unwrap(), length)
}

#[test]
fn a_request_becomes_the_text_of_one() {
    let request = get("http://a.test:81/b?c=%20d").header("x-one", "1");
    let expected = "GET /b?c=%20d HTTP/1.1\r\nhost: a.test:81\r\nx-one: 1\r\n\r\n";
    let (text, length) = written(&parts(request), true);
    assert_eq!((&*text, length), (expected, Length::Known(0)));
}

#[test]
fn a_body_without_a_length_is_chunked() {
    let request = Request::post("http://a.test/");
    let (text, length) = written(&parts(request), false);
    assert!(text.ends_with("transfer-encoding: chunked\r\n\r\n"));
    assert_eq!(length, Length::Chunked);
    let request = Request::post("http://a.test/").header("content-length", "7");
    let (text, length) = written(&parts(request), false);
    assert!(text.ends_with("content-length: 7\r\n\r\n"));
    assert_eq!(length, Length::Known(7));
}

#[test]
fn cookies_become_one_line() {
    let request = get("http://a.test/")
        .header("cookie", "a=b")
        .header("x", "y")
        .header("cookie", "c=d")
        .header("cookie", "e");
    let (text, _) = written(&parts(request), true);
    assert!(text.contains("\r\ncookie: a=b; c=d; e\r\n"));
    assert_eq!(text.matches("cookie").count(), 1);
}

#[test]
fn the_host_is_written_once() {
    let request = get("http://a.test/").header("host", "A.test");
    let (text, _) = written(&parts(request), true);
    assert_eq!(text.matches("ost: ").count(), 1);
    let request = Request::get("/").header("host", "b.test");
    let (text, _) = written(&parts(request), true);
    assert_eq!(text, "GET / HTTP/1.1\r\nhost: b.test\r\n\r\n");
}

#[test]
fn malformed_requests_are_detected() {
    let well = |request: http::request::Builder| text::is_well_formed(&parts(request));
    assert!(well(get("http://a.test/")));
    assert!(well(Request::get("/").header("host", "a.test")));
    assert!(well(get("http://a.test/").header("host", "A.TEST")));
    // A request without a host is accepted here; the HTTP/1.1 engine responds with an error.
    assert!(well(Request::get("/")));
    for (why, request) in [
        ("two", get("http://a.test/").header("host", "b.test")),
        ("port", get("http://a.test/").header("host", "a.test:80")),
        (
            "two hosts",
            Request::get("/").header("host", "a").header("host", "a"),
        ),
        ("star", Request::options("*").header("host", "a.test")),
        ("space before", get("http://a.test/").header("x", " y")),
        ("tab after", get("http://a.test/").header("x", "y\t")),
    ] {
        assert!(!well(request), "{why}");
    }
}

#[test]
fn an_extended_connect_becomes_a_handshake() {
    let request = Request::connect("http://a.test/chat")
        .extension(Protocol::from_static("websocket"))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat");
    let parts = parts(request);
    assert!(text::is_websocket(&parts) && text::is_well_formed(&parts));
    let mut out = Vec::new();
    assert_eq!(text::write_request(&parts, false, &mut out), Length::Open);
    let (head, _) = RequestHead::parse(&out, &Limits::default())
        .unwrap()
        .unwrap();
    assert!(head.asks_for_websocket());
    assert_eq!(head.header_count("sec-websocket-version"), 1);
    assert_eq!(head.header("sec-websocket-key").map(<[u8]>::len), Some(24));
}

fn answer(text: &str) -> (Response<()>, Length) {
    let answer = text::read_answer(text.as_bytes(), false).unwrap();
    (answer.response, answer.length)
}

#[test]
fn connection_headers_of_a_response_are_dropped() {
    let (response, length) = answer(
        "HTTP/1.1 201 Created\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nTransfer-Encoding: chunked\r\nX-A:  b \r\n\
         Set-Cookie: a\r\nSet-Cookie: b\r\n\r\n",
    );
    assert_eq!((response.status().as_u16(), length), (201, Length::Chunked));
    assert_eq!(response.headers().len(), 3);
    assert_eq!(response.headers()["x-a"], "b");
    let cookies = response.headers().get_all("set-cookie").iter();
    assert_eq!(cookies.count(), 2);
}

#[test]
fn an_answer_says_how_its_body_ends() {
    let of = |text: &str| answer(&format!("HTTP/1.1 {text}\r\n\r\n")).1;
    assert_eq!(of("200 OK\r\nContent-Length: 12"), Length::Known(12));
    assert_eq!(of("200 OK"), Length::Open);
    assert_eq!(of("204 No Content"), Length::Known(0));
    assert_eq!(of("304 X\r\nContent-Length: 12"), Length::Known(0));
    let head = text::read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true).unwrap();
    assert_eq!(head.length, Length::Known(0));
    assert_eq!(head.response.headers()["content-length"], "9");
}

#[test]
fn a_request_of_the_engine_becomes_a_stream() {
    let text = "POST /a?b HTTP/1.1\r\nHost: c.test:8\r\nConnection: keep-alive\r\nTE: trailers\r\n\
                Transfer-Encoding: chunked\r\ncontent-type: application/grpc\r\n\r\n";
    let call = text::read_request(text.as_bytes(), true).unwrap();
    assert_eq!(
        call.request.uri().to_string(),
        "https://c.test:8/a?b",
        "scheme, authority and path"
    );
    assert_eq!(call.length, Length::Chunked);
    assert_eq!(call.request.headers().len(), 2);
    assert_eq!(call.request.headers()["te"], "trailers");
}

#[test]
fn a_path_may_have_bytes_that_uris_forbid() {
    let text = "GET /a<b>\u{e4}?c^`#x HTTP/1.1\r\nHost: c\r\n\r\n";
    let call = text::read_request(text.as_bytes(), false).unwrap();
    let path = call.request.uri().path_and_query().unwrap().as_str();
    assert_eq!(path, "/a%3Cb%3E%C3%A4?c%5E%60%23x");
}

#[test]
fn a_query_that_is_not_ascii_stays_if_it_is_utf8() {
    let of = |query: &[u8]| {
        let text = [b"GET /a?", query, b" HTTP/1.1\r\nHost: c\r\n\r\n"].concat();
        let call = text::read_request(&text, false).unwrap();
        call.request.uri().query().unwrap().to_owned()
    };
    assert_eq!(of("q=\u{e4}".as_bytes()), "q=\u{e4}");
    assert_eq!(of(b"q=\xe4\xff"), "q=%E4%FF");
}

fn response_text(response: &Response<()>, ended: bool, to_head: bool) -> (String, Length) {
    let mut out = Vec::new();
    let length = text::write_response(response, ended, to_head, &mut out);
    let parsed = ResponseHead::parse(&out, to_head, &Limits::default());
    assert_eq!(parsed.unwrap().unwrap().1, out.len());
    (String::from_utf8(out).unwrap(), length)
}

#[test]
fn an_upstreams_answer_becomes_text() {
    let plain = Response::builder().header("x", "y").body(()).unwrap();
    let (text, length) = response_text(&plain, false, false);
    let expected = "HTTP/1.1 200 OK\r\nx: y\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!((&*text, length), (expected, Length::Chunked));
    let (text, length) = response_text(&plain, true, false);
    assert!(text.ends_with("content-length: 0\r\n\r\n"));
    assert_eq!(length, Length::Known(0));
    let (text, _) = response_text(&plain, true, true);
    assert!(!text.contains("content-length"));
}

#[test]
fn a_call_keeps_room_for_its_trailers() {
    let call = Response::builder()
        .header("content-type", "application/grpc+proto")
        .header("content-length", "5")
        .body(())
        .unwrap();
    let (text, length) = response_text(&call, false, false);
    assert!(!text.contains("content-length"));
    assert_eq!(length, Length::Chunked);
}

#[test]
fn trailers_are_converted_without_framing_fields() {
    let trailers = text::trailers(
        b"grpc-status: 0\r\nGrpc-Message: all well\r\nContent-Length: 5\r\nconnection: x\r\nbad name: y\r\n",
    );
    let mut out = Vec::new();
    text::write_trailers(&trailers, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "grpc-status: 0\r\ngrpc-message: all well\r\n"
    );
    let mut sneaky = HeaderMap::new();
    for name in ["transfer-encoding", "content-length", "host", "x"] {
        sneaky.insert(http::HeaderName::from_static(name), "1".parse().unwrap());
    }
    let mut out = Vec::new();
    text::write_trailers(&sneaky, &mut out);
    assert_eq!(out, b"x: 1\r\n");
}

#[test]
fn text_that_is_no_head_is_refused_and_not_a_panic() {
    for text in [
        "",
        "\r\n\r\n",
        "HTTP/1.1 \r\n\r\n",
        "HTTP/1.1 200 OK\r\nx\r\n\r\n",
        "x\r",
        "HTTP/1.1 99",
    ] {
        assert!(
            text::read_answer(text.as_bytes(), false).is_err(),
            "{text:?}"
        );
        assert!(
            text::read_request(text.as_bytes(), false).is_err(),
            "{text:?}"
        );
    }
}
