//! The settings that limit clients of the Admin API.

use crate::launch;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use testkit::{Client, get};

/// Whether the server closes the connection without sending anything.
fn is_shut(client: &mut Client) -> bool {
    let mut rest = Vec::new();
    let read = client.stream().read_to_end(&mut rest);
    let is_closed = read.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
    is_closed && rest.is_empty()
}

#[test]
fn heads_bodies_and_idle_connections_have_timeouts() {
    let gateway = launch()
        .set("nginx_admin_client_header_timeout", "50ms")
        .set("nginx_admin_client_body_timeout", "50ms")
        .set("nginx_admin_keepalive_timeout", "50ms")
        .start();
    let apis = [
        (gateway.admin, "/services"),
        (gateway.status, "/status/ready"),
    ];
    for (address, path) in apis {
        let mut slow = Client::connect(address);
        slow.send("GET /status HTTP/1.1\r\nHost:").expect("sent");
        assert!(is_shut(&mut slow));
        let mut idle = Client::connect(address);
        assert_eq!(idle.request("GET", "/status", &[], b"").status, 200);
        assert!(is_shut(&mut idle));
        let mut stuck = Client::connect(address);
        let stall = |first_line: &str| {
            let fields = "Host: a\r\nContent-Type: application/json\r\nContent-Length: 5";
            format!("{first_line} HTTP/1.1\r\n{fields}\r\n\r\nhalf")
        };
        stuck.send(stall(&format!("POST {path}"))).expect("sent");
        assert_eq!(stuck.receive("POST").expect("an answer").status, 408);
        let mut unwanted = Client::connect(address);
        unwanted.send(stall("POST /nope")).expect("sent");
        assert_eq!(unwanted.receive("POST").expect("an answer").status, 404);
    }
}

#[test]
fn connections_are_limited_but_the_local_operator_still_gets_in() {
    let gateway = launch().set("admin_max_connections", "2").start();
    let mut kept: Vec<Client> = (0..2).map(|_| Client::connect(gateway.admin)).collect();
    for client in &mut kept {
        assert_eq!(client.request("GET", "/status", &[], b"").status, 200);
    }
    let mut another = Client::connect(gateway.admin);
    assert!(is_shut(&mut another));
    gateway.wait_for_log("there are too many");
    assert_eq!(
        get(gateway.status, "/status", &[]).status,
        200,
        "the Status API has its own limit"
    );
    let socket = gateway.launch().prefix().join("admin.sock");
    let stream = UnixStream::connect(socket).expect("it listens");
    let local = Client::over(stream).request("GET", "/status", &[], b"");
    assert_eq!(local.status, 200);
    drop(kept);
    // The server may notice a closed connection a moment later.
    let taken = |stream: TcpStream| {
        let mut client = Client::over(stream);
        let sent = client.send("GET /status HTTP/1.1\r\nHost: a\r\n\r\n");
        sent.and_then(|()| client.receive("GET")).is_ok()
    };
    while !taken(TcpStream::connect(gateway.admin).expect("it listens")) {}
}

#[test]
fn limits_that_allow_nobody_are_refused() {
    for name in ["admin_max_connections", "admin_max_requests"] {
        let log = launch().set(name, "0").try_start().map(drop);
        let log = log.expect_err("it started");
        assert!(log.contains(name) && log.contains("from 1"), "{log}");
    }
    let log = launch().set("admin_body_memory", "1000k").try_start();
    let log = log.map(drop).expect_err("it started");
    assert!(
        log.contains("admin_body_memory") && log.contains("at least 1m"),
        "{log}"
    );
}
