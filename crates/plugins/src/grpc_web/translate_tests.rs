use super::*;
use crate::protobuf::Services;
use std::fs;

const HELLO: &str = r#"
    syntax = "proto3";
    package hello;
    service HelloService { rpc SayHello(HelloRequest) returns (HelloResponse); }
    message HelloRequest { string greeting = 1; }
    message HelloResponse { string reply = 1; }
"#;

/// The types of the request and of the response.
fn types() -> (MessageDescriptor, MessageDescriptor) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("hello.proto");
    fs::write(&file, HELLO).expect("written");
    let services = Services::compile(file.to_str().expect("UTF-8")).expect("it compiles");
    let method = services
        .method("/hello.HelloService/SayHello")
        .expect("it is there");
    (method.input.clone(), method.output.clone())
}

fn encoding(name: &str) -> Encoding {
    Encoding::of(name.as_bytes()).expect(name)
}

fn decode(text: &str) -> Vec<u8> {
    data_encoding::BASE64
        .decode(text.as_bytes())
        .expect("base64")
}

/// Converts a request's body in pieces of this size.
fn request(name: &str, body: &[u8], size: usize) -> Result<Vec<u8>, TranslateError> {
    let encoding = encoding(name);
    let mut conversion = RequestBody::new(encoding, encoding.json.then(|| types().0));
    let mut out = Vec::new();
    let mut pieces = body.chunks(size).peekable();
    if pieces.peek().is_none() {
        out.extend(conversion.convert(&Bytes::new(), true)?);
    }
    while let Some(piece) = pieces.next() {
        let piece = Bytes::copy_from_slice(piece);
        out.extend(conversion.convert(&piece, pieces.peek().is_none())?);
    }
    Ok(out)
}

fn response(name: &str, pieces: &[&[u8]]) -> Result<Vec<u8>, TranslateError> {
    let encoding = encoding(name);
    let mut conversion = ResponseBody::new(encoding, encoding.json.then(|| types().1));
    let mut out = Vec::new();
    for piece in pieces {
        out.extend(conversion.convert(&Bytes::copy_from_slice(piece))?);
    }
    let status: [(&str, &[u8]); 1] = [("grpc-status", b"0")];
    out.extend(conversion.finish(status.into_iter())?);
    Ok(out)
}

const REQUEST: &str = "AAAAAAYKBGhleWE=";
const RESPONSE: &str = "AAAAAAwKCmhlbGxvIGhleWE=";
const TRAILERS: &str = "gAAAAB5ncnBjLXN0YXR1czowDQpncnBjLW1lc3NhZ2U6DQo=";

#[test]
fn every_encoding_of_a_request_becomes_the_same_frame() {
    let json = br#"{"greeting":"heya"}"#;
    let bodies = [
        ("application/grpc-web", decode(REQUEST)),
        ("application/grpc-web+proto", decode(REQUEST)),
        ("application/grpc-web-text", REQUEST.into()),
        (
            "Application/gRPC-web-text+proto; charset=utf-8",
            REQUEST.into(),
        ),
        ("application/grpc-web+json", frame(0, json)),
        (
            "application/grpc-web-text+json",
            encode_base64(&frame(0, json)).to_vec(),
        ),
        ("application/json", json.to_vec()),
    ];
    for (name, body) in bodies {
        for size in [1, 2, 3, 5, 7, 1000] {
            assert_eq!(
                request(name, &body, size),
                Ok(decode(REQUEST)),
                "{name} {size}"
            );
        }
    }
}

#[test]
fn a_response_gets_its_trailers_except_plain_json() {
    let answer = decode(RESPONSE);
    let json = br#"{"reply":"hello heya"}"#;
    let whole: [&[u8]; 1] = [&answer];
    let binary = [answer.clone(), decode(TRAILERS)].concat();
    assert_eq!(response("application/grpc-web", &whole), Ok(binary));
    assert_eq!(
        response("application/grpc-web-text", &whole),
        Ok([RESPONSE, TRAILERS].concat().into_bytes())
    );
    let framed = [frame(0, json), decode(TRAILERS)].concat();
    let halves: [&[u8]; 2] = [&answer[..7], &answer[7..]];
    assert_eq!(response("application/grpc-web+json", &halves), Ok(framed));
    assert_eq!(response("application/json", &halves), Ok(json.to_vec()));
    let text = encode_base64(&frame(0, json));
    assert_eq!(
        response("application/grpc-web-text+json", &halves),
        Ok([&text[..], TRAILERS.as_bytes()].concat())
    );
}

#[test]
fn other_content_types_have_no_encoding() {
    for name in [
        "",
        "text/plain",
        "application/grpc",
        "application/grpc-web+xml",
    ] {
        assert_eq!(Encoding::of(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn a_request_that_cannot_be_converted_is_refused() {
    let framed = "application/grpc-web+json";
    for (name, body, error) in [
        (
            "application/grpc-web-text",
            &b"A"[..],
            "the body is not base64",
        ),
        (
            framed,
            &frame(COMPRESSED, b"{}"),
            "a message is compressed and cannot be converted to or from JSON",
        ),
        (
            framed,
            &frame(0x80, b"{}"),
            "there is a frame that is no message",
        ),
        (
            framed,
            &frame(0, b"{}")[..6],
            "the body ends within a frame",
        ),
        (
            framed,
            &[0, 0xff, 0, 0, 0],
            "a message is larger than 4194304 bytes",
        ),
        (
            "application/json",
            br#"{"greeting":{}}"#,
            "greeting: expected a string",
        ),
        (
            "application/json",
            b"[]",
            "hello.HelloRequest: expected an object",
        ),
    ] {
        let found = request(name, body, 1000).expect_err(error);
        assert_eq!(found.to_string(), error);
    }
    let found = request("application/json", b"", 1).expect_err("no JSON");
    assert!(matches!(found, TranslateError::NotJson(_)));
}

#[test]
fn json_without_frames_is_bounded() {
    let long = vec![b' '; MAX_MESSAGE + 1];
    let found = request("application/json", &long, 65536).expect_err("too large");
    assert_eq!(
        found,
        TranslateError::Codec(CodecError::TooLarge(MAX_MESSAGE))
    );
}
