//! grpc-web between clients of HTTP/1.1 or HTTP/2 and a gRPC upstream: both encodings, responses that arrive message by
//! message, calls that fail, and clients that leave.

use super::grpc::{GrpcUpstream, message, trailers};
use super::http2::Http2;
use super::{one_service, start, workers};
use data_encoding::BASE64;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use testkit::http::encode;
use testkit::{Gateway, HttpResponse};

/// Time limit of reads. It turns a hang into a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// The content types of the two encodings.
const TYPES: [&str; 2] = [
    "application/grpc-web+proto",
    "application/grpc-web-text+proto",
];

fn gateway(upstream: &GrpcUpstream, config: &Value) -> Gateway {
    let plugin = json!({"name": "grpc-web", "config": config});
    let routes = json!([{"name": "web", "paths": ["/pkg.Greeter", "/api"], "plugins": [plugin]}]);
    let launch = workers().set("proxy_listen", "127.0.0.1:0 http2");
    start(launch, "off", &one_service(&upstream.url(), routes))
}

/// Encodes a body as clients with this content type do.
fn encoded(content_type: &str, body: &[u8]) -> Vec<u8> {
    match is_text(content_type) {
        true => BASE64.encode(body).into_bytes(),
        false => body.to_vec(),
    }
}

/// Decodes the body of a response with this content type. Text may have padding between pieces.
fn decoded(content_type: &str, body: &[u8]) -> Vec<u8> {
    match is_text(content_type) {
        true => BASE64.decode(body).expect("the body is base64"),
        false => body.to_vec(),
    }
}

fn is_text(content_type: &str) -> bool {
    content_type.contains("text")
}

/// Sends the same call over HTTP/1.1 and over HTTP/2.
fn call_twice(gateway: &Gateway, path: &str, content_type: &str, body: &[u8]) -> [HttpResponse; 2] {
    let headers = [("content-type", content_type), ("x-grpc-web", "1")];
    let body = encoded(content_type, body);
    let first = testkit::request(gateway.proxy, "POST", path, &headers, &body);
    let second = Http2::connect(gateway.proxy).request("POST", path, &headers, &body);
    [first, second]
}

#[test]
fn a_unary_call_gets_its_message_and_its_trailers_in_the_body() {
    let upstream = GrpcUpstream::start();
    let gateway = gateway(&upstream, &json!({}));
    // Larger than a frame of HTTP/2, and no multiple of three bytes, so that base64 needs padding.
    let request = message(&vec![7; 100_000]);
    for content_type in TYPES {
        for answer in call_twice(&gateway, "/pkg.Greeter/Echo", content_type, &request) {
            let expected = [
                &request[..],
                &trailers("grpc-status:0\r\ngrpc-message:fine\r\n"),
            ];
            let body = decoded(content_type, &answer.body);
            assert!(
                body == expected.concat(),
                "{content_type}: {} bytes",
                body.len()
            );
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("content-type"), Some(content_type));
            assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
            assert_eq!(
                answer.header("grpc-status"),
                None,
                "no trailers after the body"
            );
        }
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 4);
    let expected = json!({
        "method": "POST", "path": "/pkg.Greeter/Echo", "content-type": "application/grpc", "te": "trailers",
        "length": request.len(), "x-number": null
    });
    seen.iter().for_each(|call| assert_eq!(*call, expected));
}

#[test]
fn a_call_that_fails_at_once_has_its_status_in_the_body() {
    let upstream = GrpcUpstream::start();
    let gateway = gateway(&upstream, &json!({}));
    for content_type in TYPES {
        let request = message(b"please");
        for answer in call_twice(&gateway, "/pkg.Greeter/Fail", content_type, &request) {
            let body = decoded(content_type, &answer.body);
            let lines = "grpc-status:5\r\ngrpc-message:nothing here\r\n";
            assert_eq!(body, trailers(lines), "{content_type}");
            assert_eq!(answer.status, 200);
        }
    }
}

#[test]
fn the_prefix_of_a_route_is_stripped_only_if_the_plugin_says_so() {
    let upstream = GrpcUpstream::start();
    for (strips, path) in [
        (false, "/api/pkg.Greeter/Echo"),
        (true, "/pkg.Greeter/Echo"),
    ] {
        let gateway = gateway(&upstream, &json!({"pass_stripped_path": strips}));
        let request = message(b"hello");
        for answer in call_twice(&gateway, "/api/pkg.Greeter/Echo", TYPES[0], &request) {
            assert_eq!(answer.status, 200);
        }
        let seen = upstream.seen();
        assert!(
            seen[seen.len() - 2..]
                .iter()
                .all(|call| call["path"] == path)
        );
    }
}

#[test]
fn what_is_no_call_never_reaches_the_upstream() {
    let upstream = GrpcUpstream::start();
    let gateway = gateway(
        &upstream,
        &json!({"allow_origin_header": "https://shop.test"}),
    );
    let send = |method: &str, content_type: &str, body: &[u8]| {
        let headers = [("content-type", content_type)];
        testkit::request(gateway.proxy, method, "/pkg.Greeter/Echo", &headers, body)
    };
    let preflight = send("OPTIONS", "", b"");
    assert_eq!((preflight.status, preflight.text().as_str()), (200, "OK"));
    let origin = preflight.header("access-control-allow-origin");
    assert_eq!(origin, Some("https://shop.test"));
    assert_eq!(
        preflight.header("access-control-allow-methods"),
        Some("POST")
    );
    assert_eq!(send("POST", TYPES[1], b"not base64!").status, 400);
    assert_eq!(send("POST", "application/json", b"{}").status, 400);
    assert_eq!(upstream.seen(), Vec::<Value>::new());
}

#[test]
fn json_becomes_messages_of_the_configured_service() {
    const PROTO: &str = "syntax = \"proto3\"; package pkg;\n\
        service Greeter { rpc Echo(Greeting) returns (Greeting); }\n\
        message Greeting { string text = 1; }\n";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("greeter.proto");
    std::fs::write(&file, PROTO).expect("the directory can be written");
    let upstream = GrpcUpstream::start();
    let gateway = gateway(&upstream, &json!({"proto": file}));
    let body = br#"{"text": "hello"}"#;
    for answer in call_twice(&gateway, "/pkg.Greeter/Echo", "application/json", body) {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json(), json!({"text": "hello"}));
    }
    // A head of five bytes, a tag, a length and the text.
    assert_eq!(upstream.seen()[0]["length"], 12);
}

#[test]
fn each_message_of_a_stream_arrives_before_the_next_one_is_sent() {
    let upstream = GrpcUpstream::start();
    let gateway = gateway(&upstream, &json!({}));
    for content_type in TYPES {
        let mut call = StreamedCall::begin(gateway.proxy, content_type);
        for content in [&b"one"[..], b"two", b"three"] {
            upstream.send(&message(content));
            assert_eq!(call.read(message(content).len()), message(content));
        }
        // A message in two pieces.
        let long = message(&[1; 100]);
        upstream.send(&long[..50]);
        assert_eq!(call.read(50), long[..50]);
        upstream.send(&long[50..]);
        upstream.end();
        let end = trailers("grpc-status:0\r\ngrpc-message:done\r\n");
        assert_eq!(call.read_to_end(), [&long[50..], &end].concat());
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_ends_the_call() {
    let upstream = GrpcUpstream::start();
    let gateway = gateway(&upstream, &json!({}));
    let first = message(b"first");
    for content_type in TYPES {
        let mut call = StreamedCall::begin(gateway.proxy, content_type);
        upstream.send(&first);
        assert_eq!(call.read(first.len()), first);
        drop(call);
        upstream.wait_for_reset();
        let mut client = Http2::connect(gateway.proxy);
        upstream.send(&first);
        let headers = [("content-type", content_type)];
        let body = encoded(content_type, &message(b"begin"));
        let piece = client.begin_and_reset("/pkg.Greeter/Stream", &headers, &body);
        assert_eq!(piece, encoded(content_type, &first));
        upstream.wait_for_reset();
        let next = call_twice(&gateway, "/pkg.Greeter/Echo", content_type, &first);
        assert!(next.iter().all(|answer| answer.status == 200));
    }
}

/// A call over HTTP/1.1 whose response is read piece by piece.
struct StreamedCall {
    reader: BufReader<TcpStream>,
    is_text: bool,
    /// Bytes of chunks that are not decoded yet: fewer than four characters of base64.
    raw: Vec<u8>,
    decoded: Vec<u8>,
    has_ended: bool,
}

impl StreamedCall {
    /// Sends the request. The head of the response is read with the first piece.
    fn begin(proxy: SocketAddr, content_type: &str) -> Self {
        let mut stream = TcpStream::connect(proxy).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        let body = encoded(content_type, &message(b"begin"));
        let headers = [("Content-Type", content_type)];
        let request = encode("POST", "/pkg.Greeter/Stream", &headers, &body);
        stream.write_all(&request).expect("it reads");
        let mut reader = BufReader::new(stream);
        let line = read_line(&mut reader);
        assert_eq!(line, "HTTP/1.1 200 OK");
        let mut is_chunked = false;
        loop {
            let line = read_line(&mut reader).to_lowercase();
            is_chunked |= line == "transfer-encoding: chunked";
            if line.is_empty() {
                break;
            }
        }
        assert!(is_chunked);
        Self {
            reader,
            is_text: is_text(content_type),
            raw: Vec::new(),
            decoded: Vec::new(),
            has_ended: false,
        }
    }

    /// Reads and decodes this many bytes.
    fn read(&mut self, length: usize) -> Vec<u8> {
        while self.decoded.len() < length {
            assert!(!self.has_ended, "the response is too short");
            self.read_chunk();
        }
        self.decoded.drain(..length).collect()
    }

    fn read_to_end(mut self) -> Vec<u8> {
        while !self.has_ended {
            self.read_chunk();
        }
        assert_eq!(self.raw, b"");
        self.decoded
    }

    fn read_chunk(&mut self) {
        let size = read_line(&mut self.reader);
        let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
        let start = self.raw.len();
        self.raw.resize(start + size, 0);
        let filled = self.reader.read_exact(&mut self.raw[start..]);
        filled.expect("a whole chunk");
        assert_eq!(read_line(&mut self.reader), "");
        self.has_ended = size == 0;
        let whole = match self.is_text {
            true => self.raw.len() / 4 * 4,
            false => self.raw.len(),
        };
        let raw: Vec<u8> = self.raw.drain(..whole).collect();
        match self.is_text {
            true => self.decoded.extend(BASE64.decode(&raw).expect("base64")),
            false => self.decoded.extend(raw),
        }
    }
}

fn read_line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("the response goes on");
    line.trim_end().to_owned()
}
