//! Upstreams that misbehave: the client gets a clear response, and the gateway keeps running.

use crate::{launch, one_route, shop};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use testkit::{Client, Echo, Gateway, Scripted};

fn gateway_for(url: &str) -> Gateway {
    launch().configuration(&one_route(url, "/a")).start()
}

fn check(upstream: &Scripted, status: u16, message: &str) {
    let gateway = gateway_for(&format!("http://{}", upstream.address));
    let answer = gateway.get("/a", &[]);
    assert_eq!(answer.status, status, "{}", answer.text());
    assert!(answer.text().contains(message), "{}", answer.text());
    assert_eq!(gateway.get("/nowhere", &[]).status, 404);
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[test]
fn an_upstream_that_resets_gets_502() {
    check(
        &Scripted::resetting(),
        502,
        "An invalid response was received",
    );
}

#[test]
fn an_upstream_that_stalls_gets_504() {
    check(
        &Scripted::silent(),
        504,
        "The upstream server is timing out",
    );
}

#[test]
fn nonsense_from_an_upstream_gets_502() {
    for nonsense in [
        &b"SSH-2.0-OpenSSH_9.0\r\n\r\n"[..],
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"",
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        check(
            &Scripted::answering(nonsense),
            502,
            "An invalid response was received",
        );
    }
}

#[test]
fn a_refused_connection_gets_502_or_503() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = closed.local_addr().expect("a bound address");
    drop(closed);
    let gateway = gateway_for(&format!("http://{address}"));
    assert_eq!(gateway.get("/a", &[]).status, 502);
}

#[test]
fn an_answer_that_breaks_off_ends_the_connection() {
    let upstream = Scripted::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    let gateway = gateway_for(&format!("http://{}", upstream.address));
    let mut client = Client::connect(gateway.proxy);
    client
        .send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    assert!(client.is_cut_off("GET"));
    assert_eq!(gateway.get("/nowhere", &[]).status, 404);
}

#[test]
fn bodies_stream_both_ways() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    assert_eq!(
        gateway.get("/open/__bytes/3000000", &[]).body.len(),
        3_000_000
    );
    assert_eq!(
        gateway.get("/open/__stream/3", &[]).text(),
        "chunk 0\nchunk 1\nchunk 2\n"
    );
    let mut client = Client::connect(gateway.proxy);
    client
        .send("POST /open HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        .expect("sent");
    assert_eq!(
        client.receive("POST").expect("an answer").json()["body"],
        "abcde"
    );
}

/// Ten thousand connections, but at most half of the descriptors that this process may open. Other tests run in this
/// process at the same time.
fn most_connections() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    (allowed.unwrap_or(u64::MAX) / 2).min(10_000)
}

#[test]
fn thousands_of_slow_connections_leave_room_for_others() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let mut slow = Vec::new();
    for _ in 0..most_connections() {
        let mut stream = TcpStream::connect(gateway.proxy).expect("it accepts");
        stream
            .write_all(b"GET /open HTTP/1.1\r\nHo")
            .expect("it reads");
        slow.push(stream);
    }
    assert_eq!(gateway.get("/open", &[]).status, 200);
    drop(slow);
    assert_eq!(gateway.get("/open", &[]).status, 200);
}
