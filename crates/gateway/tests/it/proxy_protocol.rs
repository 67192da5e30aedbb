//! Listeners behind a load balancer that speaks the PROXY protocol.

use crate::{launch, one_route};
use std::io::Write;
use std::net::TcpStream;
use testkit::{Client, Echo, Gateway, HttpResponse};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A PROXY protocol header of version 2: TCP over IPv4, from 192.0.2.9:1234.
fn binary_header() -> Vec<u8> {
    let body = [192, 0, 2, 9, 127, 0, 0, 1, 4, 210, 0, 80];
    [SIGNATURE, &[0x21, 0x11, 0, 12], &body].concat()
}

const LINE: &[u8] = b"PROXY TCP4 192.0.2.9 127.0.0.1 1234 80\r\n";

fn gateway(echo: &Echo, trusted: &str, header: &str) -> Gateway {
    launch()
        .set(
            "proxy_listen",
            "127.0.0.1:0 proxy_protocol, 127.0.0.1:0 ssl proxy_protocol",
        )
        .set("trusted_ips", trusted)
        .set("real_ip_header", header)
        .configuration(&one_route(&echo.url(), "/a"))
        .start()
}

/// Sends `preface` and then a request on the same connection.
fn request(gateway: &Gateway, preface: &[u8]) -> std::io::Result<HttpResponse> {
    let mut client = Client::connect(gateway.proxy);
    client.send(preface)?;
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")?;
    client.receive("GET")
}

fn real_ip(answer: &HttpResponse) -> serde_json::Value {
    answer.json()["headers"]["x-real-ip"].clone()
}

#[test]
fn the_announced_address_is_used_from_trusted_senders() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "127.0.0.1", "proxy_protocol");
    for header in [LINE, &binary_header()] {
        let answer = request(&gateway, header).expect("an answer");
        assert_eq!(real_ip(&answer), "192.0.2.9");
        assert_eq!(answer.json()["headers"]["x-forwarded-for"], "192.0.2.9");
    }
    let unknown = request(&gateway, b"PROXY UNKNOWN\r\n").expect("an answer");
    assert_eq!(real_ip(&unknown), "127.0.0.1");
    let local = [SIGNATURE, &[0x20, 0, 0, 0]].concat();
    let local = request(&gateway, &local).expect("an answer");
    assert_eq!(real_ip(&local), "127.0.0.1");
}

#[test]
fn the_announced_address_is_ignored_from_untrusted_senders() {
    let echo = Echo::start();
    for (trusted, header) in [("10.0.0.0/8", "proxy_protocol"), ("127.0.0.1", "X-Real-IP")] {
        let gateway = gateway(&echo, trusted, header);
        let answer = request(&gateway, LINE).expect("an answer");
        assert_eq!(real_ip(&answer), "127.0.0.1", "{trusted} {header}");
    }
}

#[test]
fn a_connection_without_a_proper_header_is_closed() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "127.0.0.1", "proxy_protocol");
    for preface in [&b""[..], b"PROXY TCP4 1.1.1.1\r\n", &SIGNATURE[..11]] {
        assert!(request(&gateway, preface).is_err(), "{preface:?}");
    }
    assert_eq!(echo.requests(), 0);
    assert_eq!(request(&gateway, LINE).expect("an answer").status, 200);
}

#[test]
fn the_header_comes_before_the_handshake() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "127.0.0.1", "proxy_protocol");
    let address = gateway.proxy_tls.expect("a TLS listener");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(&binary_header()).expect("it reads");
    let answer = crate::tls::over(stream, "a.test").request("GET", "/a", &[], b"");
    assert_eq!(real_ip(&answer), "192.0.2.9");
    assert_eq!(answer.json()["headers"]["x-forwarded-proto"], "https");
}
