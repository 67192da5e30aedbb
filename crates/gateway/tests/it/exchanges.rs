//! WebSockets, connection limits and failing upstreams with the real binary. The settings must take effect, and a
//! failed request must not affect the next one.

use super::launch;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use testkit::http::Client;
use testkit::upstream::{Scripted, read_until_blank_line};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn configuration(upstream: SocketAddr) -> String {
    format!(
        r#"
_format_version: "3.0"
services:
  - name: behind
    url: http://{upstream}
    retries: 0
    read_timeout: 500
    routes:
      - {{name: all, paths: [/]}}
"#
    )
}

/// Reads exactly `length` bytes from a connection.
fn take(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("as many bytes");
    bytes
}

#[test]
fn a_websocket_is_a_tunnel_until_one_side_ends_it() {
    let upstream = Scripted::start(|mut stream| {
        read_until_blank_line(&mut stream);
        let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello";
        let _ = stream.write_all(switch.as_bytes());
        let mut buffer = [0; 1024];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..read]);
        }
        let _ = stream.write_all(b"bye");
    });
    let gateway = launch()
        .configuration(&configuration(upstream.address))
        .start();
    let mut client = TcpStream::connect(gateway.proxy).expect("the gateway listens");
    let limit = Some(Duration::from_secs(20));
    client.set_read_timeout(limit).expect("a limit");
    let ask =
        "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly";
    client.write_all(ask.as_bytes()).expect("the gateway reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(take(&mut client, 1));
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    assert_eq!(take(&mut client, 10), b"helloearly");
    let payload = vec![0x81; 100_000];
    for piece in payload.chunks(10_000) {
        client.write_all(piece).expect("the gateway reads");
        assert_eq!(take(&mut client, piece.len()), piece);
    }
    client
        .shutdown(std::net::Shutdown::Write)
        .expect("half of a connection can be closed");
    let mut rest = Vec::new();
    client
        .read_to_end(&mut rest)
        .expect("the upstream sends the rest");
    assert_eq!(rest, b"bye");
}

#[test]
fn whatever_an_upstream_does_the_next_request_is_served() {
    // Each of the first six connections fails in a different way. Later connections get a valid response. The upstream
    // closes every connection afterwards.
    let number = std::sync::atomic::AtomicUsize::new(0);
    let upstream = Scripted::start(move |mut stream| {
        read_until_blank_line(&mut stream);
        let failing: &[u8] = match number.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => b"",
            1 => b"HTTP/1.1 200 O",
            2 => b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            3 => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            4 => b"nonsense\r\n\r\n",
            5 => {
                // Sends nothing until the gateway closes the connection after its `read_timeout`.
                let _ = stream.read(&mut [0]);
                return;
            }
            _ => OK,
        };
        let _ = stream.write_all(failing);
    });
    let gateway = launch()
        .configuration(&configuration(upstream.address))
        .start();
    for expected in [
        Some(502),
        Some(502),
        None,
        None,
        Some(502),
        Some(504),
        Some(200),
    ] {
        let mut client = Client::connect(gateway.proxy);
        client.send(GET).expect("the gateway reads");
        let status = client.receive("GET").ok().map(|answer| answer.status);
        assert_eq!(status, expected);
    }
}

#[test]
fn limits_on_connections_are_settings() {
    let upstream = Scripted::answering(OK);
    let gateway = launch()
        .configuration(&configuration(upstream.address))
        .set("max_connections", "1")
        .set("nginx_http_keepalive_requests", "2")
        .start();
    let mut first = Client::connect(gateway.proxy);
    first.send(GET).expect("the gateway reads");
    let answer = first.receive("GET").expect("an answer");
    assert_eq!(answer.header("connection"), Some("keep-alive"));
    assert!(Client::connect(gateway.proxy).is_closed());
    first.send(GET).expect("the gateway reads");
    let answer = first.receive("GET").expect("an answer");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(first.is_closed());
}

#[test]
fn a_full_upstream_is_a_503() {
    let upstream = Scripted::silent();
    let gateway = launch()
        .configuration(&configuration(upstream.address))
        .set("nginx_main_worker_processes", "1")
        .set("upstream_max_requests", "1")
        .set("upstream_max_queue", "0")
        .start();
    let mut first = Client::connect(gateway.proxy);
    first.send(GET).expect("the gateway reads");
    while upstream.connections() == 0 {
        std::thread::yield_now();
    }
    let mut second = Client::connect(gateway.proxy);
    second.send(GET).expect("the gateway reads");
    let answer = second.receive("GET").expect("an answer");
    assert_eq!(answer.status, 503);
    assert!(
        answer
            .text()
            .contains("The upstream server is currently unavailable")
    );
    assert_eq!(first.receive("GET").expect("an answer").status, 504);
}
