//! Tests of log lines, and of handing them to the writer.

use super::*;
use net::http1::{Limits, RequestHead};
use plugin::{Latencies, Try, TryEnd};
use std::net::SocketAddr;

const HEAD: &[u8] = b"GET /a?key=1 HTTP/1.1\r\nHost: a.test\r\nUser-Agent: curl/8 \"x\"\r\n\
                      Authorization: Basic YWxpY2U6c2VjcmV0\r\nX-Own: \xff\\\t\r\n\r\n";

fn head() -> RequestHead {
    let parsed = RequestHead::parse(HEAD, &Limits::default());
    parsed.expect("a valid head").expect("a complete head").0
}

fn facts<'a>(headers: &'a dyn Headers, request: RequestLine<'a>, tries: &'a [Try]) -> Facts<'a> {
    Facts {
        client: SocketAddr::from(([10, 0, 0, 7], 4711)),
        peer: SocketAddr::from(([127, 0, 0, 1], 80)),
        scheme: "http",
        port: 8000,
        host: "a.test",
        request,
        headers,
        request_id: "0123456789abcdef0123456789abcdef",
        status: 200,
        upstream_status: Some(200),
        tries,
        latencies: Latencies {
            request: Duration::from_millis(1234),
            ..Latencies::default()
        },
        request_size: 100,
        response_size: 300,
        response_head: 200,
        route: "open",
        service: "",
        consumer: "",
        plugin: "",
        sent_head: b"HTTP/1.1 200 OK\r\nX-B:  c \r\nSet-Cookie: s=1\r\n\r\n",
        ..Facts::default()
    }
}

fn parsed() -> RequestLine<'static> {
    RequestLine::Parsed {
        method: b"GET",
        target: b"/a?key=1",
        version: "HTTP/1.1",
    }
}

fn at(seconds: u64) -> Clock {
    let mut clock = Clock::default();
    clock.set(SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 5));
    clock
}

fn line(format: &Format, facts: &Facts<'_>) -> String {
    let mut out = Vec::new();
    format.write(facts, &at(1_795_172_400), &mut out);
    String::from_utf8(out).expect("a line is text")
}

#[test]
fn kongs_format_is_written_as_by_the_web_server() {
    let head = head();
    let format = Format::named("kong_log_format").expect("a built-in format");
    assert_eq!(
        line(&format, &facts(&head, parsed(), &[])),
        "10.0.0.7 - alice [20/Nov/2026:11:00:00 +0000] \"GET /a?key=1 HTTP/1.1\" 200 100 \"-\" \"curl/8 \\x22x\\x22\" \
         kong_request_id: \"0123456789abcdef0123456789abcdef\"\n"
    );
    let combined = Format::named("combined").expect("a built-in format");
    assert!(line(&combined, &facts(&head, parsed(), &[])).ends_with("\"curl/8 \\x22x\\x22\"\n"));
}

#[test]
fn invalid_requests_cannot_break_a_line() {
    let format = Format::named("combined").expect("a built-in format");
    let raw = RequestLine::Raw(b"\x16\x03\x01\nfake line \"\x7f\xc3");
    assert_eq!(
        line(&format, &facts(&(), raw, &[])),
        "10.0.0.7 - - [20/Nov/2026:11:00:00 +0000] \"\\x16\\x03\\x01\\x0Afake line \\x22\\x7F\\xC3\" 200 100 \"-\" \"-\"\n"
    );
}

#[test]
fn json_lines_are_json_whatever_was_sent() {
    let format = Format::named("json").expect("a built-in format");
    let head = head();
    let tries = [TryEnd::Failed(502), TryEnd::Answered(200)].map(|end| Try {
        address: Some(SocketAddr::from(([127, 0, 0, 1], 80))),
        after: Duration::ZERO,
        choosing: Duration::ZERO,
        took: Duration::from_millis(7),
        end,
    });
    let value: serde_json::Value =
        serde_json::from_str(&line(&format, &facts(&head, parsed(), &tries))).expect("JSON");
    assert_eq!(value["time"], "2026-11-20T11:00:00+00:00");
    assert_eq!(value["user_agent"], "curl/8 \"x\"");
    assert_eq!(value["remote_user"], "alice");
    assert_eq!(value["status"], 200);
    assert_eq!(value["request_time"], 1.234);
    assert_eq!(value["upstream_addr"], "127.0.0.1:80, 127.0.0.1:80");
    assert_eq!(value["upstream_status"], "502, 200");
    assert_eq!(value["upstream_response_time"], "0.007, 0.007");
    assert_eq!(
        (&value["route"], &value["service"]),
        (&"open".into(), &"".into())
    );
    assert_eq!(value["plugin"], "");
    let refused = Facts {
        plugin: "key-auth",
        ..facts(&head, parsed(), &[])
    };
    let value: serde_json::Value = serde_json::from_str(&line(&format, &refused)).expect("JSON");
    assert_eq!(value["plugin"], "key-auth");
    for byte in 0..=255_u8 {
        let target = [b'/', byte, b'"', b'\\', byte];
        let request = RequestLine::Parsed {
            method: b"GET",
            target: &target,
            version: "HTTP/1.1",
        };
        let text = line(&format, &facts(&(), request, &[]));
        serde_json::from_str::<serde_json::Value>(&text)
            .unwrap_or_else(|error| panic!("{error} in {text}"));
        assert_eq!(text.matches('\n').count(), 1);
    }
}

#[test]
fn an_operators_format_is_read_as_the_web_server_reads_it() {
    let directive = r#"mine escape=json '{"own":"$http_x_own",' '"u":"${uri}","a":"$args","port":$server_port}'"#;
    let (name, format) = Format::directive(directive).expect("a format");
    assert_eq!(name, "mine");
    let value: serde_json::Value =
        serde_json::from_str(&line(&format, &facts(&head(), parsed(), &[]))).expect("JSON");
    assert_eq!(value["own"], "\u{fffd}\\");
    assert_eq!((&value["u"], &value["a"]), (&"/a".into(), &"key=1".into()));
    assert_eq!(value["port"], 8000);
    let (_, plain) = Format::directive("m $msec;$request_time").expect("a format");
    assert_eq!(
        line(&plain, &facts(&(), parsed(), &[])),
        "1795172400.005;1.234\n"
    );
    for (wrong, error) in [
        ("mine", FormatError::Syntax),
        ("mine 'open", FormatError::Syntax),
        ("mine escape=none x", FormatError::Syntax),
        ("mine $", FormatError::NoName),
    ] {
        assert_eq!(Format::directive(wrong).map(|_| ()), Err(error), "{wrong}");
    }
}

/// The line of a format for a request with credentials in many places.
fn shown(format: &str, redacts: bool) -> String {
    let text =
        b"GET /a?apikey=KEY&b=2&Code=KEY HTTP/1.1\r\nHost: a.test\r\nCookie: a=KEY; bc=KEY\r\n\
                 X-Api-Key: KEY\r\nAuthorization: Bearer KEY\r\nReferer: https://b/?jwt=KEY&x=1\r\n\
                 Content-Type: text/x\r\n\r\n";
    let parsed = RequestHead::parse(text, &Limits::default());
    let head = parsed.expect("a valid head").expect("a complete head").0;
    let request = RequestLine::Parsed {
        method: b"GET",
        target: head.target_bytes(),
        version: "HTTP/1.1",
    };
    let format = Format::directive(&format!("mine '{format}'"))
        .expect("a format")
        .1;
    line(&format.redacting(redacts), &facts(&head, request, &[]))
}

#[test]
fn credentials_are_hidden_unless_the_operator_wants_them() {
    let format = "$request|$request_uri|$args|$arg_apikey|$arg_b|$http_cookie|$cookie_bc|$http_x_api_key|\
                  $http_referer|$sent_http_set_cookie|$http_authorization";
    assert_eq!(
        shown(format, true),
        "GET /a?apikey=REDACTED&b=2&Code=REDACTED HTTP/1.1|/a?apikey=REDACTED&b=2&Code=REDACTED|\
         apikey=REDACTED&b=2&Code=REDACTED|REDACTED|2|REDACTED|REDACTED|REDACTED|https://b/?jwt=REDACTED&x=1|\
         REDACTED|REDACTED\n"
    );
    assert_eq!(
        shown(format, false),
        "GET /a?apikey=KEY&b=2&Code=KEY HTTP/1.1|/a?apikey=KEY&b=2&Code=KEY|apikey=KEY&b=2&Code=KEY|KEY|2|\
         a=KEY; bc=KEY|KEY|KEY|https://b/?jwt=KEY&x=1|s=1|REDACTED\n"
    );
}

#[test]
fn variables_of_the_web_server_have_their_values() {
    let format = "$is_args $content_type $sent_http_x_b $server_name $https $request_completion $pipe $document_uri";
    assert_eq!(shown(format, true), "? text/x c kong - OK . /a\n");
}

#[test]
fn variables_without_a_value_are_named() {
    let format =
        Format::directive("mine '$nonsense $status $geoip_city $http_authorization $http_'");
    let format = format.expect("a format").1;
    let expected = ["nonsense", "geoip_city", "http_authorization", "http_"];
    assert_eq!(format.without_value(), expected);
    assert_eq!(line(&format, &facts(&(), parsed(), &[])), "- 200 - - -\n");
}

fn log(lanes: usize) -> AccessLog {
    let lanes: Vec<Lane> = (0..lanes).map(|_| Lane::default()).collect();
    let format = Format::directive("m $request_id").expect("a format").1;
    AccessLog::new(Arc::new(format), lanes.into(), std::thread::current())
}

#[test]
fn lines_reach_the_writer_whole_and_in_order() {
    let log = log(2);
    let mut journal = LogBuffer::new(&log, 1);
    assert_eq!(journal.write(&facts(&(), parsed(), &[])), Written::First);
    assert_eq!(journal.write(&facts(&(), parsed(), &[])), Written::Another);
    assert!(journal.has_lines());
    journal.hand_over();
    assert!(!journal.has_lines());
    journal.write(&facts(&(), parsed(), &[]));
    journal.hand_over();
    let lines = "0123456789abcdef0123456789abcdef\n".repeat(3);
    assert_eq!(log.lanes[1].take(Vec::new()), lines.as_bytes());
    assert!(log.lanes[0].take(Vec::new()).is_empty());
}

#[test]
fn lines_that_the_writer_cannot_take_are_dropped_and_counted() {
    let log = log(1);
    let mut journal = LogBuffer::new(&log, 0);
    let mut written = 0;
    while log.lanes[0].dropped() == 0 {
        journal.write(&facts(&(), parsed(), &[]));
        written += 1;
        assert!(written < 1_000_000, "the lane never drops a line");
    }
    journal.hand_over();
    let taken = log.lanes[0].take(Vec::new());
    assert!(taken.len() <= LANE_BYTES);
    let lines = taken.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(lines + log.lanes[0].dropped(), written);
    // The lane has room again.
    journal.write(&facts(&(), parsed(), &[]));
    journal.hand_over();
    assert!(!log.lanes[0].take(Vec::new()).is_empty());
}

#[test]
fn a_line_of_another_thread_that_finds_no_room_is_counted() {
    let log = log(1);
    log.give(0, vec![b'x'; LANE_BYTES]);
    log.give(0, b"y\n".to_vec());
    log.give(0, b"z\n".to_vec());
    assert_eq!(log.lanes[0].dropped(), 2);
    assert_eq!(log.lanes[0].take(Vec::new()).len(), LANE_BYTES);
}

#[test]
fn a_worker_does_not_wait_for_the_writer() {
    let log = log(1);
    let mut journal = LogBuffer::new(&log, 0);
    let looking = log.lanes[0].lock();
    journal.write(&facts(&(), parsed(), &[]));
    journal.hand_over();
    assert!(journal.has_lines(), "the buffer keeps its line");
    drop(looking);
    journal.hand_over();
    assert!(!journal.has_lines());
}
