//! Where bodies end. The gateway finds the start of the next pipelined request, whether or not a plugin has read the body
//! of the previous one. Clients find the end of each chunk.

use super::{launch, one_route};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::Scripted;
use testkit::http::Client;
use testkit::upstream::read_until_blank_line;

const CONFIGURATION: &str = r#"
_format_version: "3.0"
services:
  - name: nowhere
    url: http://127.0.0.1:1
    retries: 0
    routes:
      - {name: lost, paths: [/lost]}
      - name: keyed
        paths: [/keyed]
        plugins:
          - {name: key-auth, config: {key_in_body: true}}
          - {name: request-termination, config: {status_code: 200, message: keyed}}
      - name: fixed
        paths: [/fixed]
        plugins:
          - {name: request-termination, config: {status_code: 200, message: fixed}}
      - name: interim
        paths: [/interim]
        plugins:
          - {name: request-termination, config: {status_code: 103}}
consumers:
  - username: alice
    keyauth_credentials: [{key: alice-key}]
"#;

const NEXT: &str = "GET /fixed HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Sends the given request and then one for `/fixed` without waiting. Returns the statuses of both responses.
fn pipelined(first: &str) -> (u16, u16) {
    let gateway = launch().configuration(CONFIGURATION).start();
    let mut client = Client::connect(gateway.proxy);
    client
        .send(format!("{first}{NEXT}"))
        .expect("the gateway reads");
    let one = client.receive("POST").expect("the first is answered");
    let two = client.receive("GET").expect("the second is answered");
    assert_eq!(two.json()["message"], "fixed");
    (one.status, two.status)
}

#[test]
fn a_body_that_a_plugin_read_is_not_skipped_again() {
    let head = "POST /keyed HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let with_length = format!("{head}Content-Length: 16\r\n\r\napikey=alice-key");
    assert_eq!(pipelined(&with_length), (200, 200));
    let in_chunks =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n10\r\napikey=alice-key\r\n0\r\n\r\n");
    assert_eq!(pipelined(&in_chunks), (200, 200));
}

#[test]
fn a_body_that_nobody_read_is_skipped() {
    let fixed = "POST /fixed HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(pipelined(fixed), (200, 200));
    let lost = "POST /lost HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(pipelined(lost), (502, 200));
}

/// A client keeps reading after a status below 200. It would use the response to the next request for this one.
#[test]
fn a_response_below_200_is_not_sent() {
    let interim = "GET /interim HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(pipelined(interim), (500, 200));
}

/// Some clients read the line break after a chunk before they use the chunk. They must not wait for the next one.
#[test]
fn a_chunk_arrives_with_its_end_before_the_next_piece_exists() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\n";
    let (next, pieces) = channel::<&[u8]>();
    let pieces = Mutex::new(pieces);
    let upstream = Scripted::start(move |mut stream| {
        read_until_blank_line(&mut stream);
        let _ = stream.write_all(HEAD);
        let pieces = pieces.lock().expect("one connection at a time");
        for piece in pieces.iter() {
            let _ = stream.write_all(piece);
        }
    });
    let url = format!("http://{}", upstream.address);
    let configuration = one_route(&url, "/").replace("read_timeout: 300", "read_timeout: 60000");
    let gateway = launch().configuration(&configuration).start();
    let mut client = TcpStream::connect(gateway.proxy).expect("it listens");
    let limit = Some(Duration::from_secs(60));
    client.set_read_timeout(limit).expect("a limit above zero");
    write!(client, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("it reads");
    read_until_blank_line(&mut client);
    let large = [b'x'; 20_000];
    for piece in [&b"one"[..], &large, b"two"] {
        let piece: &'static [u8] = piece.to_vec().leak();
        next.send(piece).expect("the upstream waits for it");
        let mut payload = Vec::new();
        while payload.len() < piece.len() {
            payload.extend(read_chunk(&mut client));
        }
        assert!(payload == piece);
    }
    drop(next);
    assert_eq!(read_chunk(&mut client), b"");
}

/// Reads a chunk up to the line break after it, and returns its payload.
fn read_chunk(client: &mut TcpStream) -> Vec<u8> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("the size of a chunk");
        line.push(byte[0]);
    }
    let digits = String::from_utf8_lossy(&line[..line.len() - 2]);
    let size = usize::from_str_radix(&digits, 16).expect("a number");
    let mut rest = vec![0; size + 2];
    client.read_exact(&mut rest).expect("a chunk and its end");
    assert!(rest.ends_with(b"\r\n"));
    rest.truncate(size);
    rest
}
