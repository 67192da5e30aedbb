use super::codec::{COMPRESSED, TRAILERS, encode_base64, frame};
use super::*;
use net::http1::{Limits, RequestHead, ResponseHead};
use plugin::{
    Answer, Configured, ConfiguredName, ConfiguredNames, HeaderEdits, Node, NodeIdentity,
    RequestState, RoutedUri, Scope, ScopeSet,
};
use std::fs;
use std::sync::Arc;

struct NoNames;

impl ConfiguredNames for NoNames {
    fn configured_name(&self, _plugin: u16, _scope: Scope) -> Option<ConfiguredName<'_>> {
        None
    }
}

const CONFIGURED: Configured<'_> = Configured {
    scopes: ScopeSet::GLOBAL,
    consumer: None,
    plugin: 0,
    names: &NoNames,
};

const HELLO: &str = r#"
    syntax = "proto3";
    package hello;
    service HelloService { rpc SayHello(HelloRequest) returns (HelloResponse); }
    message HelloRequest { string greeting = 1; }
    message HelloResponse { string reply = 1; }
"#;

fn build(config: Config) -> GrpcWeb {
    let cx = BuildCx {
        identity: &NodeIdentity::default(),
        lua: &Default::default(),
        life: &Arc::default(),
    };
    GrpcWeb::build(config, &cx).expect("it is built")
}

fn plain() -> GrpcWeb {
    build(Config {
        proto: None,
        pass_stripped_path: None,
        allow_origin_header: Some("*".to_owned()),
    })
}

fn with_proto(pass_stripped_path: bool) -> GrpcWeb {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("hello.proto");
    fs::write(&file, HELLO).expect("written");
    build(Config {
        proto: file.to_str().map(str::to_owned),
        pass_stripped_path: Some(pass_stripped_path),
        allow_origin_header: None,
    })
}

/// What the upstream answers: its head and its trailers.
struct Upstream {
    head: &'static str,
    body: Vec<u8>,
    trailers: &'static [(&'static str, &'static str)],
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nContent-Length: 9\r\n\r\n";

fn answers(body: Vec<u8>) -> Upstream {
    Upstream {
        head: OK,
        body,
        trailers: &[("grpc-status", "0"), ("x-t", "1")],
    }
}

/// What became of a call.
#[derive(Debug, PartialEq)]
enum Outcome {
    Refused(u16, String),
    Failed,
    /// The body and the path for the upstream, then content type and body for the client.
    Called {
        sent: Vec<u8>,
        path: Option<String>,
        content_type: String,
        received: Vec<u8>,
    },
}

fn refused(response: &Response) -> Outcome {
    let text = match &response.body {
        plugin::ResponseBody::Bytes(bytes) => String::from_utf8_lossy(bytes).into(),
        _ => String::new(),
    };
    Outcome::Refused(response.status, text)
}

/// Calls a method. `body` is `None` if it is too large to be read at once; then `pieces` are sent.
fn call(
    plugin: &GrpcWeb,
    target: &str,
    content_type: &str,
    body: Option<&[u8]>,
    pieces: &[&[u8]],
    upstream: &Upstream,
) -> Outcome {
    let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n\r\n");
    let (head, _) = RequestHead::parse(head.as_bytes(), &Limits::default())
        .expect("well formed")
        .expect("complete");
    let mut request = Request::bare(&head);
    request.routed = RoutedUri {
        bytes: b"/hello.HelloService/SayHello/p".to_vec(),
        path_length: 28,
        strips: target.starts_with("/p"),
    };
    let (mut state, mut own) = (RequestState::default(), Call::default());
    let node = Node::bare().expect("a node");
    loop {
        let cx = RequestCx {
            request: &mut request,
            state: &mut state,
            configured: CONFIGURED,
            node: &node,
        };
        let wants_body = match plugin.access(cx, &mut own) {
            Ok(Step::Continue) => false,
            Ok(Step::ReadBody) => true,
            Ok(Step::Respond(response)) => return refused(&response),
            Ok(_) => panic!("the plugin neither waits nor exits"),
            Err(_) => return Outcome::Failed,
        };
        if !wants_body {
            break;
        }
        request.body = match body {
            Some(body) => Body::Whole(Bytes::copy_from_slice(body)),
            None => Body::TooLarge,
        };
    }
    let mut sent = request.upstream.body.clone().unwrap_or_default().to_vec();
    for (at, piece) in pieces.iter().enumerate() {
        let mut chunk = Chunk {
            data: Bytes::copy_from_slice(piece),
            last: at + 1 == pieces.len(),
        };
        if plugin.request_body(&request, &mut own, &mut chunk).is_err() {
            return Outcome::Failed;
        }
        sent.extend_from_slice(&chunk.data);
    }
    let (head, _) = ResponseHead::parse(upstream.head.as_bytes(), false, &Limits::default())
        .expect("well formed")
        .expect("complete");
    let mut answer = Answer::new(Origin::Upstream, 200, HeaderEdits::new());
    let mut received = Vec::new();
    let mut cx = ResponseCx {
        request: &request,
        state: &mut state,
        configured: CONFIGURED,
        node: &node,
        upstream: Some(&head),
        upstream_body: None,
        answer: &mut answer,
    };
    plugin.header_filter(&mut cx, &mut own).expect("filtered");
    for (data, last) in [(upstream.body.clone(), false), (Vec::new(), true)] {
        if last {
            let trailers = upstream.trailers.iter();
            cx.answer.trailers = trailers
                .map(|&(name, value)| (name.into(), HeaderValue::from_text(value)))
                .collect();
        }
        let mut chunk = Chunk {
            data: data.into(),
            last,
        };
        if plugin.body_filter(&mut cx, &mut own, &mut chunk).is_err() {
            return Outcome::Failed;
        }
        received.extend_from_slice(&chunk.data);
    }
    Outcome::Called {
        sent,
        path: request.upstream.path.clone(),
        content_type: String::from_utf8_lossy(cx.header("content-type").unwrap_or_default()).into(),
        received,
    }
}

const METHOD: &str = "/hello.HelloService/SayHello";

fn request_frame() -> Vec<u8> {
    frame(0, b"\n\x04heya")
}

fn response_frame() -> Vec<u8> {
    frame(0, b"\n\nhello heya")
}

fn trailers() -> Vec<u8> {
    frame(TRAILERS, b"grpc-status:0\r\ngrpc-message:\r\nx-t:1\r\n")
}

#[test]
fn a_binary_body_passes_in_pieces_and_the_trailers_follow_the_response() {
    let body = request_frame();
    let called = call(
        &plain(),
        METHOD,
        "application/grpc-web+proto",
        None,
        &[&body[..3], &body[3..]],
        &answers(response_frame()),
    );
    let wanted = Outcome::Called {
        sent: body,
        path: None,
        content_type: "application/grpc-web+proto".to_owned(),
        received: [response_frame(), trailers()].concat(),
    };
    assert_eq!(called, wanted);
}

#[test]
fn base64_is_decoded_and_encoded_also_if_it_is_too_large_to_be_read_at_once() {
    let text = encode_base64(&request_frame());
    let wanted = || Outcome::Called {
        sent: request_frame(),
        path: None,
        content_type: "application/grpc-web-text".to_owned(),
        received: [encode_base64(&response_frame()), encode_base64(&trailers())].concat(),
    };
    let name = "application/grpc-web-text";
    let upstream = answers(response_frame());
    let whole = call(&plain(), METHOD, name, Some(&text), &[], &upstream);
    assert_eq!(whole, wanted());
    let pieces: Vec<&[u8]> = text.chunks(5).collect();
    let streamed = call(&plain(), METHOD, name, None, &pieces, &upstream);
    assert_eq!(streamed, wanted());
}

#[test]
fn json_becomes_a_message_and_the_response_json() {
    let plugin = with_proto(false);
    let json = br#"{"greeting":"heya"}"#;
    let upstream = answers(response_frame());
    let called = call(
        &plugin,
        METHOD,
        "application/json",
        Some(json),
        &[],
        &upstream,
    );
    let wanted = Outcome::Called {
        sent: request_frame(),
        path: None,
        content_type: "application/json".to_owned(),
        received: br#"{"reply":"hello heya"}"#.to_vec(),
    };
    assert_eq!(called, wanted);
}

#[test]
fn the_path_for_the_upstream_keeps_a_stripped_prefix_unless_that_is_configured() {
    let path = |plugin: &GrpcWeb, content_type: &str, body: &[u8]| {
        let upstream = answers(response_frame());
        match call(
            plugin,
            "/p/hello.HelloService/SayHello",
            content_type,
            Some(body),
            &[],
            &upstream,
        ) {
            Outcome::Called { path, .. } => Ok(path),
            other => Err(other),
        }
    };
    let whole = Some("/p/hello.HelloService/SayHello".to_owned());
    assert_eq!(
        path(&with_proto(false), "application/grpc-web", b""),
        Ok(whole)
    );
    assert_eq!(path(&with_proto(true), "application/json", b"{}"), Ok(None));
    let unknown = "Unknown path \"/p/hello.HelloService/SayHello\"".to_owned();
    assert_eq!(
        path(&with_proto(false), "application/json", b"{}"),
        Err(Outcome::Refused(400, unknown))
    );
}

#[test]
fn a_request_that_cannot_be_converted_is_refused_with_the_reason() {
    let missing = "transcoding requests require a .proto file defining the service";
    for (plugin, content_type, body, status, text) in [
        (plain(), "application/json", Some(&b"{}"[..]), 400, missing),
        (
            plain(),
            "application/grpc-web+json",
            Some(b"{}"),
            400,
            missing,
        ),
        (
            plain(),
            "text/plain",
            Some(b""),
            415,
            "unsupported content type",
        ),
        (
            plain(),
            "application/grpc-web-text",
            Some(b"!"),
            400,
            "the body is not base64",
        ),
        (with_proto(false), "application/json", None, 413, ""),
        (
            with_proto(false),
            "application/json",
            Some(br#"{"greeting":[]}"#),
            400,
            "greeting: expected a string",
        ),
    ] {
        let outcome = call(
            &plugin,
            METHOD,
            content_type,
            body,
            &[],
            &answers(Vec::new()),
        );
        assert_eq!(outcome, Outcome::Refused(status, text.to_owned()));
    }
}

#[test]
fn a_file_that_is_missing_fails_only_for_requests_in_json() {
    let plugin = build(Config {
        proto: Some("/nonexistent.proto".to_owned()),
        pass_stripped_path: None,
        allow_origin_header: None,
    });
    let upstream = answers(response_frame());
    let json = call(
        &plugin,
        METHOD,
        "application/json",
        Some(b"{}"),
        &[],
        &upstream,
    );
    assert_eq!(json, Outcome::Failed);
    let binary = call(
        &plugin,
        METHOD,
        "application/grpc-web",
        None,
        &[],
        &upstream,
    );
    assert!(matches!(binary, Outcome::Called { .. }));
}

#[test]
fn a_status_in_the_head_becomes_the_trailers() {
    let upstream = Upstream {
        head: "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\ngrpc-status: 5\r\ngrpc-message: m\r\n\r\n",
        body: Vec::new(),
        trailers: &[],
    };
    let called = call(
        &plain(),
        METHOD,
        "application/grpc-web",
        None,
        &[],
        &upstream,
    );
    let Outcome::Called { received, .. } = called else {
        panic!("it is called");
    };
    let wanted = frame(TRAILERS, b"grpc-status:5\r\ngrpc-message:m\r\n");
    assert_eq!(received, wanted);
}

#[test]
fn a_response_that_is_not_of_grpc_stays_as_it_is() {
    let upstream = Upstream {
        head: "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        body: b"<p>".to_vec(),
        trailers: &[],
    };
    let called = call(
        &plain(),
        METHOD,
        "application/grpc-web-text",
        Some(b""),
        &[],
        &upstream,
    );
    let wanted = Outcome::Called {
        sent: Vec::new(),
        path: None,
        content_type: "text/html".to_owned(),
        received: b"<p>".to_vec(),
    };
    assert_eq!(called, wanted);
}

#[test]
fn a_compressed_message_cannot_become_json() {
    let upstream = answers(frame(COMPRESSED, b"x"));
    let plugin = with_proto(false);
    let outcome = call(
        &plugin,
        METHOD,
        "application/json",
        Some(b"{}"),
        &[],
        &upstream,
    );
    assert_eq!(outcome, Outcome::Failed);
}

#[test]
fn a_preflight_request_is_answered() {
    let response = plain().preflight();
    let lines: Vec<String> = response
        .headers
        .added()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
        .collect();
    assert_eq!(
        lines,
        [
            "Content-Type: application/grpc-web-text+proto",
            "Access-Control-Allow-Methods: POST",
            "Access-Control-Allow-Headers: content-type,x-grpc-web,x-user-agent",
            "Access-Control-Allow-Origin: *",
        ]
    );
}

#[test]
fn all_origins_are_allowed_by_default() {
    let config: Config = crate::testing::config("grpc-web", serde_json::json!({}));
    assert_eq!(config.allow_origin_header.as_deref(), Some("*"));
}
