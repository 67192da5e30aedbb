//! Tests of the parser against RFC 9112, section by section, and the table of messages that it refuses.

use super::*;
use proptest::prelude::*;

fn request(text: &str) -> Result<Option<(RequestHead, usize)>, BadRequest> {
    RequestHead::parse(text.as_bytes(), &Limits::default())
}

fn response(text: &str) -> Result<Option<(ResponseHead, usize)>, BadResponse> {
    ResponseHead::parse(text.as_bytes(), false, &Limits::default())
}

fn accepted(text: &str) -> RequestHead {
    request(text).unwrap().unwrap().0
}

fn answer(text: &str) -> ResponseHead {
    response(text).unwrap().unwrap().0
}

#[test]
fn a_request_is_read() {
    let text = "GET /a/b?c=d HTTP/1.1\r\nHost: Example.com:80\r\nX-Empty:\r\nx-a:  1 \r\nX-A: 2\r\n\r\nrest";
    let (head, len) = request(text).unwrap().unwrap();
    assert_eq!(len, text.len() - 4);
    assert_eq!(
        (head.method(), head.target_bytes()),
        ("GET", &b"/a/b?c=d"[..])
    );
    assert_eq!(
        (head.path(), head.query_bytes()),
        ("/a/b", Some(&b"c=d"[..]))
    );
    assert_eq!(head.host(), Some("Example.com:80"));
    assert_eq!(head.header("X-EMPTY"), Some(&b""[..]));
    assert_eq!(head.header("x-A"), Some(&b"1"[..]));
    assert_eq!(head.header_count("x-a"), 2);
    assert_eq!(head.headers().count(), 4);
    assert_eq!(head.framing(), Framing::None);
    assert!(head.keep_alive());
    let lines: Vec<u8> = head
        .lines()
        .flat_map(|(_, _, line)| line.to_vec())
        .collect();
    assert_eq!(
        lines,
        b"Host: Example.com:80\r\nX-Empty:\r\nx-a:  1 \r\nX-A: 2\r\n"
    );
}

// Section 2.2: message parsing.

#[test]
fn one_empty_line_before_a_request_is_skipped() {
    let (head, len) = request("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap()
        .unwrap();
    assert_eq!((head.method(), len), ("GET", 29));
    assert_eq!(head.headers().count(), 1);
    assert!(request("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").is_err());
}

#[test]
fn a_head_is_incomplete_at_every_cut() {
    let text = "POST /a?b HTTP/1.1\r\nHost: a.b\r\nContent-Length: 3\r\nX: y\r\n\r\n";
    for cut in 0..text.len() {
        assert!(request(&text[..cut]).unwrap().is_none(), "cut at {cut}");
    }
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: y\r\n\r\n";
    for cut in 0..text.len() {
        assert!(response(&text[..cut]).unwrap().is_none(), "cut at {cut}");
    }
}

// Section 2.3, and RFC 9110 section 6.2: the version.

#[test]
fn a_later_minor_version_is_read_as_the_latest_that_is_known() {
    for (version, expected) in [
        ("1.0", Version::Http10),
        ("1.1", Version::Http11),
        ("1.2", Version::Http11),
        ("1.9", Version::Http11),
        ("1.10", Version::Http11),
        ("1.99", Version::Http11),
    ] {
        let text = format!("GET /a HTTP/{version}\r\nHost: a\r\n\r\n");
        let (head, length) = request(&text).unwrap().unwrap();
        assert_eq!((head.version(), length), (expected, text.len()), "{text:?}");
        assert_eq!((head.path(), head.host()), ("/a", Some("a")), "{text:?}");
        for cut in 0..text.len() {
            assert!(
                request(&text[..cut]).unwrap().is_none(),
                "{text:?} cut at {cut}"
            );
        }
    }
}

// Section 3.2: request targets.

#[test]
fn targets_are_taken_apart() {
    let of = |line: &str| {
        let head = accepted(&format!("{line} HTTP/1.1\r\nHost: a.b:80\r\n\r\n"));
        let query = head.query_bytes().map(<[u8]>::to_owned);
        (head.path().to_owned(), query)
    };
    let pair = |path: &str, query: Option<&str>| {
        (
            path.to_owned(),
            query.map(|query| query.as_bytes().to_owned()),
        )
    };
    assert_eq!(of("GET /"), pair("/", None));
    assert_eq!(of("GET /?"), pair("/", Some("")));
    assert_eq!(of("GET /a?b?c"), pair("/a", Some("b?c")));
    assert_eq!(of("GET /%2e//x;y=z"), pair("/%2e//x;y=z", None));
    assert_eq!(of("GET http://A.b:80/x?y"), pair("/x", Some("y")));
    assert_eq!(of("GET HTTP://a.b:80"), pair("/", None));
    assert_eq!(of("GET http://a.b:80?y"), pair("/", Some("y")));
}

#[test]
fn only_a_query_may_contain_bytes_that_are_not_ascii() {
    let of = |target: &[u8]| {
        let text = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let parsed = RequestHead::parse(&text, &Limits::default());
        parsed.map(|parsed| {
            let (head, length) = parsed.expect("a whole head");
            assert_eq!((head.target_bytes(), length), (target, text.len()));
            head.query_bytes().map(<[u8]>::to_owned)
        })
    };
    for query in [
        &b"a=\xe4"[..],
        b"\x80",
        b"q=\xc3\xa4?\xff",
        b"\xf0\x9f\x98\x80",
    ] {
        assert_eq!(of(&[b"/a?", query].concat()).unwrap().unwrap(), query);
        assert_eq!(of(&[b"http://b?", query].concat()).unwrap().unwrap(), query);
    }
    for target in [
        &b"/\xe4"[..],
        b"/\xc3\xa4?a",
        b"/a?\xe4#",
        b"\xe4?\xe4",
        b"http://\xe4/?a",
        b"http://a\xc3\xa4?a",
    ] {
        assert_eq!(of(target).unwrap_err(), BadRequest::Target, "{target:?}");
    }
}

#[test]
fn the_host_of_an_absolute_form_is_the_name_and_the_host_header_stays() {
    let of = |target: &str| {
        let head = accepted(&format!("GET {target} HTTP/1.1\r\nHost: c.d:80\r\n\r\n"));
        let (name, upper) = head.host_name().unwrap();
        (name.to_owned(), upper, head.host().unwrap().to_owned())
    };
    let named = |name: &str, upper| (name.to_owned(), upper, "c.d:80".to_owned());
    assert_eq!(of("/"), named("c.d", false));
    assert_eq!(of("http://c.d:80/x"), named("c.d", false));
    assert_eq!(of("http://c.d/x"), named("c.d", false));
    assert_eq!(of("https://A.b:81"), named("A.b", true));
    assert_eq!(of("http://[::1]:1?y"), named("[::1]", false));
    for target in [
        "*",
        "http://",
        "http:///a",
        "http://u@c.d/",
        "http://c.d:x/",
        "ftp://c.d/",
    ] {
        let text = format!("OPTIONS {target} HTTP/1.1\r\nHost: c.d\r\n\r\n");
        assert_eq!(request(&text).unwrap_err(), BadRequest::Target, "{target}");
    }
}

// Section 6.3: message body length.

#[test]
fn request_bodies_have_a_length_or_chunks() {
    let framing =
        |lines: &str| accepted(&format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).framing();
    assert_eq!(framing(""), Framing::None);
    assert_eq!(framing("Content-Length: 0\r\n"), Framing::None);
    assert_eq!(framing("Content-Length: 7\r\n"), Framing::Length(7));
    assert_eq!(framing("transfer-encoding: Chunked\r\n"), Framing::Chunked);
}

#[test]
fn response_bodies_end_as_the_status_and_headers_say() {
    let framing = |status: u16, to_head: bool, lines: &str| {
        let text = format!("HTTP/1.1 {status} X\r\n{lines}\r\n");
        let parsed = ResponseHead::parse(text.as_bytes(), to_head, &Limits::default());
        parsed.unwrap().unwrap().0.framing()
    };
    assert_eq!(framing(200, false, ""), Framing::Close);
    assert_eq!(
        framing(200, false, "Content-Length: 5\r\n"),
        Framing::Length(5)
    );
    assert_eq!(
        framing(200, false, "Transfer-Encoding: chunked\r\n"),
        Framing::Chunked
    );
    for (status, to_head) in [
        (204, false),
        (304, false),
        (100, false),
        (103, false),
        (200, true),
    ] {
        assert_eq!(
            framing(status, to_head, "Content-Length: 5\r\n"),
            Framing::None
        );
        assert_eq!(framing(status, to_head, ""), Framing::None);
    }
}

// Section 7.1: chunked transfer coding.

const CHUNKED: &[u8] =
    b"5;a;b=c\r\nhello\r\n00A;x=\"y \\\"z\";d\r\n0123456789\r\n0\r\nTrailer-A: 1\r\nHosts: 2\r\nB:\r\n\r\n";

#[test]
fn chunks_may_be_cut_anywhere() {
    let text = [CHUNKED, b"GET / HTTP/1.1"].concat();
    for cut in 0..=text.len() {
        let mut body = Body::new(Framing::Chunked);
        let mut payload = Vec::new();
        let mut taken = body.decode(&text[..cut], &mut payload).unwrap();
        if taken == cut {
            taken += body.decode(&text[cut..], &mut payload).unwrap();
        }
        assert_eq!(
            (taken, &payload[..]),
            (CHUNKED.len(), &b"hello0123456789"[..]),
            "cut at {cut}"
        );
        assert!(body.is_done());
    }
}

#[test]
fn bad_chunks_are_refused() {
    let long_extension = format!("1;{}\r\n", "x".repeat(300));
    let long_size = format!("{}1\r\n", "0".repeat(300));
    let trailers = format!("0\r\n{}", "A: 1234567890\r\n".repeat(1000));
    let refused = [
        " 5\r\n",
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\n",
        "0x1\r\n",
        "5 \r\n",
        "5 ;a\r\n",
        "5\t\r\n",
        "5\n",
        "5\rx",
        "5\r\nhelloX",
        "5\r\nhello\n",
        "5\r\nhello\rX",
        "5;\x01\r\n",
        "5;\r\n",
        "5;=b\r\n",
        "5;a=\r\n",
        "5;a;\r\n",
        "5; a\r\n",
        "5;a =b\r\n",
        "5;a[=b\r\n",
        "5;a=\"b\r\n",
        "5;a=\"b\\\"\r\n",
        "5;a=\"b\"c\r\n",
        "0\r\nContent-Length: 5\r\n",
        "0\r\nA: b\r\ntransfer-encoding: chunked\r\n",
        "0\r\nHOST: a\r\n",
        "5;a\nb",
        ";a\r\n",
        "10000000000000000\r\n",
        "ffffffffffffffff\r\n",
        "0\r\n a: b\r\n",
        "0\r\nA b: c\r\n",
        "0\r\n: c\r\n",
        "0\r\nA: b\nC: d\r\n",
        "0\r\nA: b\rC: d\r\n",
        "0\r\nA: \x00\r\n",
        "0\r\nA\r\n",
        "0\r\n\n",
        "5\r\nhello\r\n\r\n",
        &long_extension,
        &long_size,
        &trailers,
    ];
    for text in &refused {
        let mut body = Body::new(Framing::Chunked);
        assert_eq!(body.consume(text.as_bytes()), Err(BadChunk), "{text:?}");
    }
}

#[test]
fn a_length_ends_where_it_says() {
    let mut body = Body::new(Framing::Length(5));
    assert_eq!(body.consume(b"abc"), Ok(3));
    assert!(!body.is_done());
    assert_eq!(body.consume(b"defg"), Ok(2));
    assert!(body.is_done());
}

// Section 9: connection management.

#[test]
fn connections_persist_by_version_and_option() {
    let keeps = |version: &str, option: &str| {
        accepted(&format!(
            "GET / HTTP/{version}\r\nHost: a\r\nConnection: {option}\r\n\r\n"
        ))
        .keep_alive()
    };
    assert!(keeps("1.1", "x"));
    assert!(!keeps("1.1", "foo, Close"));
    assert!(!keeps("1.0", "x"));
    assert!(keeps("1.0", "Keep-Alive"));
    assert!(!keeps("1.0", "keep-alive, close"));
    assert!(
        !answer("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").keep_alive()
    );
    assert!(answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").keep_alive());
    assert!(!answer("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").keep_alive());
    assert!(!answer("HTTP/1.1 200 OK\r\n\r\n").keep_alive());
}

#[test]
fn headers_named_by_connection_are_of_this_hop() {
    let head =
        accepted("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Foo\r\nConnection: close,bar\r\n\r\n");
    assert_eq!(hops(&head), [""; 0]);
    let head = accepted(
        "GET / HTTP/1.1\r\nx-FOO: 1\r\nHost: a\r\nfoo: 2\r\nConnection: X-Foo\r\nBar: 3\r\nConnection: close,bar\r\n\r\n",
    );
    assert_eq!(hops(&head), ["x-FOO", "Bar"]);
    let head = accepted("GET / HTTP/1.1\r\nHost: a\r\nFoo: 2\r\nConnection: close\r\n\r\n");
    assert_eq!(hops(&head), [""; 0]);
    let head = answer("HTTP/1.1 200 OK\r\nfoo: 1\r\nConnection: Foo\r\nfoobar: 1\r\n\r\n");
    let mut hops = 0;
    head.copy_lines(&mut Vec::new(), |line| {
        hops += usize::from(line.is_hop());
        assert_eq!(line.is_hop(), line.name() == b"foo");
        true
    });
    assert_eq!(hops, 1);
}

/// Returns the header names that `Connection` names.
fn hops(head: &RequestHead) -> Vec<String> {
    let mut names = Vec::new();
    head.copy_lines(&mut Vec::new(), |line| {
        if line.is_hop() {
            names.push(String::from_utf8(line.name().to_vec()).unwrap());
        }
        true
    });
    names
}

#[test]
fn many_names_in_connection_cost_little_for_many_lines() {
    let work = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("x{number}")).collect();
        let lines = "y: 1\r\n".repeat(count);
        let connection = names.join(",");
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n{lines}\r\n");
        let limits = Limits {
            line: usize::MAX,
            head: usize::MAX,
            lines: usize::MAX,
        };
        let before = super::head::COMPARED.get();
        assert!(
            RequestHead::parse(text.as_bytes(), &limits)
                .unwrap()
                .is_some()
        );
        super::head::COMPARED.get() - before
    };
    let (once, twice) = (work(2000), work(4000));
    assert!(once > 2000 && twice < once * 5 / 2, "{once} {twice}");
}

#[test]
fn a_coding_that_is_not_known_is_told_from_an_ambiguous_length() {
    let refusal = |version: &str, lines: &str| {
        let text = format!("POST / HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n");
        request(&text).unwrap_err()
    };
    for lines in [
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: GZIP ,\tx-y,Chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
    ] {
        assert_eq!(refusal("1.1", lines), BadRequest::Coding, "{lines:?}");
        assert_eq!(refusal("1.0", lines), BadRequest::Length, "{lines:?}");
        let both = format!("{lines}\r\nContent-Length: 3");
        assert_eq!(refusal("1.1", &both), BadRequest::Length, "{lines:?}");
    }
    for lines in [
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip, chunked",
        "Transfer-Encoding: , chunked",
        "Transfer-Encoding: gzip;q=1, chunked",
        "Transfer-Encoding: \"gzip\", chunked",
    ] {
        assert_eq!(refusal("1.1", lines), BadRequest::Length, "{lines:?}");
    }
}

#[test]
fn of_content_types_that_differ_only_the_first_is_forwarded() {
    let forwarded = |types: &[&str]| {
        let lines: String = types
            .iter()
            .map(|value| format!("Content-Type: {value}\r\n"))
            .collect();
        let head = accepted(&format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        let mut out = Vec::new();
        head.copy_lines(&mut out, |line| line.name() != b"Host" && !line.is_hop());
        let out = String::from_utf8(out).unwrap();
        out.replace("Content-Type: ", "").replace("\r\n", "|")
    };
    assert_eq!(
        forwarded(&["text/plain", "text/html", "text/css"]),
        "text/plain|"
    );
    assert_eq!(forwarded(&["a/b", ""]), "a/b|");
    assert_eq!(forwarded(&["a/b", "a/b"]), "a/b|a/b|");
}

#[test]
fn ambiguous_requests_are_refused() {
    let head = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
    let host = |value: &str| format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n");
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    let refused = [
        // Lengths.
        head("Content-Length: 3\r\nTransfer-Encoding: chunked"),
        head("Transfer-Encoding: chunked\r\nContent-Length: 3"),
        head("Content-Length: 3\r\nContent-Length: 3"),
        head("Content-Length: 3\r\nContent-Length: 4"),
        head("Content-Length: 3, 3"),
        head("Content-Length: +3"),
        head("Content-Length: -3"),
        head("Content-Length: 0x3"),
        head("Content-Length: 3 4"),
        head("Content-Length: 3.0"),
        head("Content-Length:"),
        head("Content-Length: 9999999999999999999"),
        head("Content-Length: 00"),
        head("Content-Length:  7"),
        head("Content-Length:\t7"),
        head("Content-Length: 7 "),
        head("Content-Length: 07"),
        head("Content_Length: 3"),
        head("transfer_encoding: chunked"),
        head("Transfer-Encoding: gzip"),
        head("Transfer-Encoding: gzip, chunked"),
        head("Transfer-Encoding: chunked, chunked"),
        head("Transfer-Encoding: chunked, identity"),
        head("Transfer-Encoding: identity"),
        head("Transfer-Encoding: xchunked"),
        head("Transfer-Encoding: \"chunked\""),
        head("Transfer-Encoding: chunked;q=1"),
        head("Transfer-Encoding: \u{b}chunked"),
        head("Transfer-Encoding:"),
        head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        head("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        // Lines.
        head("X: a\r\n folded"),
        head("X: a\r\n\tfolded"),
        head(" X: a"),
        head("X : a"),
        head("X\t: a"),
        head("X"),
        head(": a"),
        head("X Y: a"),
        head("X(: a"),
        head("X\u{0}: a"),
        head("X\u{e9}: a"),
        head("X: a\u{0}b"),
        head("X: a\u{1}"),
        head("X: a\u{7f}"),
        head("X: a\rb"),
        head("X: a\r\r"),
        head("X: a\nY: b"),
        "GET / HTTP/1.1\nHost: a\n\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\n\n".to_owned(),
        "GET / HTTP/1.1\nHost: a\r\n\r\n".to_owned(),
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        // Host.
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        head("Host: a"),
        head("host: b"),
        host(""),
        host("a b"),
        host("a, b"),
        host("a/b"),
        host("a@b"),
        host("user@a:80"),
        host("a:"),
        host("a:80x"),
        host("a:99999"),
        host("a:80:80"),
        host(":80"),
        host("[::1"),
        host("[g]"),
        host("[]"),
        host("::1"),
        host("a..b"),
        host("a?b"),
        host("a#b"),
        host("a\\b"),
        host("\u{e9}"),
        "GET / HTTP/1.0\r\nHost:\r\n\r\n".to_owned(),
        // Request line.
        line("GET"),
        line("GET /"),
        line("GET  / HTTP/1.1"),
        line("GET /  HTTP/1.1"),
        line("GET\t/ HTTP/1.1"),
        line("GET / HTTP/1.1 "),
        line("GET / http/1.1"),
        line("GET / HTTP/1.100"),
        line("GET / HTTP/1.2 "),
        line("GET / HTTP/1.1a"),
        line("GET / HTTP/1."),
        line("GET / HTTP/1.\u{b2}"),
        line("GET / HTTP/2.0"),
        line("GET / HTTP/0.9"),
        line("GET / HTTP/1.01"),
        line("GET / HTTP/11"),
        line("GET / HTTP/1"),
        line("GET / HTTPS/1.1"),
        line("GET /a b HTTP/1.1"),
        line("GET /a\u{1} HTTP/1.1"),
        line("GET /a\u{7f} HTTP/1.1"),
        line("GET a HTTP/1.1"),
        line("GET /\u{e9} HTTP/1.1"),
        line("GET /a\\b HTTP/1.1"),
        line("GET /a%00 HTTP/1.1"),
        line("GET /a%zz HTTP/1.1"),
        line("GET /a%2 HTTP/1.1"),
        line("GET /a% HTTP/1.1"),
        line("GET /%0d%0aX:y HTTP/1.1"),
        line("GET http://a/%0A HTTP/1.1"),
        line("GET * HTTP/1.1"),
        line("OPTIONS ** HTTP/1.1"),
        line("GET /a#b HTTP/1.1"),
        line("GET ftp://a/ HTTP/1.1"),
        line("GET http:/a HTTP/1.1"),
        line("GET http:// HTTP/1.1"),
        line("GET http://a@a/ HTTP/1.1"),
        line("CONNECT a:80 HTTP/1.1"),
        line("TRACE / HTTP/1.1"),
        line("G(T / HTTP/1.1"),
        line("get / HTTP/1.1"),
        line("G1T / HTTP/1.1"),
        line("G:T / HTTP/1.1"),
        line("PRI * HTTP/2.0"),
        head("Expect: 200-ok"),
        head("Authorization: a\r\nauthorization: b"),
        head("Authorization: a\r\nAuthorization: a"),
    ];
    assert!(refused.len() >= 60);
    for text in &refused {
        assert!(request(text).is_err(), "{text:?}");
    }
}

#[test]
fn too_large_requests_are_refused_with_the_reason() {
    let long = "x".repeat(9000);
    let refusal = |text: String| request(&text).unwrap_err();
    assert_eq!(
        refusal(format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        BadRequest::TargetTooLong
    );
    assert_eq!(refusal(format!("GET /{long}")), BadRequest::TargetTooLong);
    let method = "A".repeat(9000);
    assert_eq!(refusal(method.clone()), BadRequest::Malformed);
    assert_eq!(
        refusal(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n")),
        BadRequest::Malformed
    );
    assert_eq!(
        refusal(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")),
        BadRequest::HeadTooLarge
    );
    let many = "X: y\r\n".repeat(MAX_HEADERS + 1);
    assert_eq!(
        refusal(format!("GET / HTTP/1.1\r\n{many}\r\n")),
        BadRequest::HeadTooLarge
    );
    let most = "X: y\r\n".repeat(MAX_HEADERS - 1);
    let head = accepted(&format!("GET / HTTP/1.1\r\nHost: a\r\n{most}\r\n"));
    assert_eq!(head.headers().count(), MAX_HEADERS);
    let few = Limits {
        lines: 2,
        ..Limits::default()
    };
    let read = |text: &str| RequestHead::parse(text.as_bytes(), &few).map(|head| head.is_some());
    assert_eq!(read("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n"), Ok(true));
    assert_eq!(
        read("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\n\r\n"),
        Err(BadRequest::HeadTooLarge)
    );
    let much = format!("X: {}\r\n", "y".repeat(8000)).repeat(5);
    assert_eq!(
        refusal(format!("GET / HTTP/1.1\r\n{much}")),
        BadRequest::HeadTooLarge
    );
    assert_eq!(
        refusal(format!("GET / HTTP/1.1\r\nHost: a\r\n{much}\r\n")),
        BadRequest::HeadTooLarge
    );
}

#[test]
fn adversarial_responses_are_refused() {
    let much = format!("X: {}\r\n", "y".repeat(8000)).repeat(5);
    let refused = [
        "nonsense\r\n\r\n".to_owned(),
        "HTTP/2.0 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 20 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 2000 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 099 OK\r\n\r\n".to_owned(),
        "HTTP/1.1  200 OK\r\n\r\n".to_owned(),
        "\r\nHTTP/1.1 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\nX: y\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\nX: y\r\n".to_owned(),
        "HTTP/1.1 200 OK\nX: y\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\nX: y\rZ: a\n\n".to_owned(),
        "HTTP/1.1 200 OK\r\nX: y\n\n".to_owned(),
        "HTTP/1.1 200 OK\n X: y\n\n".to_owned(),
        "HTTP/1.1 200 OK\nX: y\n z\n\n".to_owned(),
        "HTTP/1.1 200 OK\nX: \u{0}\n\n".to_owned(),
        "HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\n".to_owned(),
        "nonsense\n\n".to_owned(),
        "\n\nHTTP/1.1 200 OK\n\n".to_owned(),
        format!("HTTP/1.1 200 OK\n{}", much.replace('\r', "")),
        "HTTP/1.1 200 O\u{1}K\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nX: a\nY: b\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nX: a\u{0}\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned(),
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{much}"),
    ];
    for text in &refused {
        assert!(response(text).is_err(), "{text:?}");
    }
}

#[test]
fn an_answer_whose_lines_all_end_in_lf_is_read_as_any_other() {
    let text = "HTTP/1.0 200 Fine\nServer: x\nContent-Length:  2\n\nok\n\n";
    let (head, length) = response(text).unwrap().unwrap();
    assert_eq!(&text[length..], "ok\n\n");
    assert_eq!((head.status(), head.reason()), (200, &b"Fine"[..]));
    assert_eq!(head.status_line(), b"HTTP/1.0 200 Fine\r\n");
    assert_eq!(head.framing(), Framing::Length(2));
    let lines: Vec<_> = head.lines().map(|(_, _, line)| line).collect();
    assert_eq!(
        lines,
        [&b"Server: x\r\n"[..], b"Content-Length:  2\r\n"],
        "passed on with the usual ends"
    );
    for cut in 0..length {
        let cut = response(&text[..cut]);
        assert!(matches!(cut, Ok(None)), "incomplete");
    }
    assert_eq!(answer("HTTP/1.1 204 \n\n").framing(), Framing::None);
}

#[test]
fn chunks_in_an_answer_of_http_1_0_end_its_connection() {
    let of = |version: &str| {
        answer(&format!(
            "{version} 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
        ))
    };
    let old = of("HTTP/1.0");
    assert_eq!((old.framing(), old.keep_alive()), (Framing::Chunked, false));
    let new = of("HTTP/1.1");
    assert_eq!((new.framing(), new.keep_alive()), (Framing::Chunked, true));
}

#[test]
fn an_answer_is_read() {
    let head = answer("HTTP/1.1 404 Not  Found\r\nServer: x\r\n\r\n");
    assert_eq!((head.status(), head.reason()), (404, &b"Not  Found"[..]));
    assert_eq!(head.header("server"), Some(&b"x"[..]));
    assert_eq!(answer("HTTP/1.1 200\r\n\r\n").reason(), b"");
    assert_eq!(answer("HTTP/1.1 200 \r\n\r\n").reason(), b"");
    let later = answer("HTTP/1.2 200 OK\r\n\r\n");
    assert_eq!((later.status(), later.version()), (200, Version::Http11));
    assert!(answer("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n").is_interim());
}

#[test]
fn heads_come_from_memory_that_was_used_before() {
    let first = accepted("GET /first HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n");
    drop(first);
    let second = accepted("GET / HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!((second.path(), second.headers().count()), ("/", 1));
}

proptest! {
    #[test]
    fn no_bytes_make_the_core_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = RequestHead::parse(&bytes, &Limits::default());
        let _ = ResponseHead::parse(&bytes, false, &Limits::default());
        let _ = Body::new(Framing::Chunked).consume(&bytes);
    }

    /// No byte of an accepted head is lost: the head that is assembled from its parts is identical.
    #[test]
    fn an_accepted_head_accounts_for_every_byte(
        text in "(GET|POST|A!b) /[a-z/?%.]{0,9} HTTP/1\\.[01]\r\nHost: a(\r\n[ -~\r\n\t:]{0,60}){0,3}\r\n\r\n"
    ) {
        if let Ok(Some((head, length))) = request(&text) {
            let version = match head.version() { Version::Http10 => "1.0", Version::Http11 => "1.1" };
            let target = str::from_utf8(head.target_bytes()).unwrap();
            let mut again = format!("{} {target} HTTP/{version}\r\n", head.method()).into_bytes();
            head.lines().for_each(|(_, _, line)| again.extend_from_slice(line));
            again.extend_from_slice(b"\r\n");
            prop_assert_eq!(&again[..], &text.as_bytes()[..length]);
            for (_, name, value) in head.fields() {
                prop_assert!(name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b':'));
                prop_assert!(!value.contains(&b'\r') && !value.contains(&b'\n'));
            }
        }
    }

    #[test]
    fn chunks_read_the_same_in_any_pieces(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..6),
        size in 1usize..40,
    ) {
        let mut text = Vec::new();
        for chunk in &chunks {
            text.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            text.extend_from_slice(chunk);
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"0\r\n\r\n");
        let mut body = Body::new(Framing::Chunked);
        let mut payload = Vec::new();
        for piece in text.chunks(size) {
            prop_assert_eq!(body.decode(piece, &mut payload), Ok(piece.len()));
        }
        prop_assert!(body.is_done());
        prop_assert_eq!(payload, chunks.concat());
    }
}
