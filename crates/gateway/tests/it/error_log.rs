//! The error log: it delays nobody, and no client can fill it.

use crate::{launch, one_route};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::thread;
use testkit::Client;

/// An upstream that refuses every connection.
fn dead_upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    format!("http://{address}")
}

/// Sends requests one after the other; all are answered by the gateway.
fn ask_in_vain(gateway: &testkit::Gateway, requests: usize) {
    let mut client = Client::connect(gateway.proxy);
    for _ in 0..requests {
        let status = client.request("GET", "/dead", &[], b"").status;
        assert!(matches!(status, 502 | 503), "{status}");
    }
}

#[test]
fn a_log_that_nobody_reads_delays_no_request() {
    const FILLING: usize = 1 << 20;
    let (mut pipe, full) = io::pipe().expect("a pipe");
    let mut filler = full.try_clone().expect("a descriptor");
    // Takes whatever room there is in the pipe, until somebody reads it.
    let filler = thread::spawn(move || filler.write_all(&b"x".repeat(FILLING)));
    let gateway = launch()
        .set("log_level", "debug")
        .configuration(&one_route(&dead_upstream(), "/dead"))
        .errors(full)
        .start();
    ask_in_vain(&gateway, 1_000);
    let metrics = gateway.admin_get("/metrics").text();
    assert!(
        metrics.contains("\nsilverback_error_log_dropped_lines_total "),
        "{metrics}"
    );
    // Now somebody reads it, and the end of the process waits for the last lines.
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).map(|_| text)
    });
    assert!(gateway.stop().success());
    let text = reader.join().expect("it ends").expect("the pipe is read");
    filler.join().expect("it ends").expect("the pipe is read");
    let text = String::from_utf8_lossy(&text).replace('x', "");
    assert!(text.contains("cannot connect to upstream"), "{text}");
    assert!(text.contains(" more like it: cannot connect to upstream"));
    assert!(text.contains("stopped"), "{text}");
}

#[test]
fn what_clients_bring_about_does_not_fill_the_log() {
    const REQUESTS: usize = 1_000;
    let mut gateway = launch()
        .configuration(&one_route(&dead_upstream(), "/dead"))
        .start();
    ask_in_vain(&gateway, REQUESTS);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let log = gateway.log();
    let told: Vec<_> = log
        .lines()
        .filter(|line| line.contains("cannot connect to upstream"))
        .collect();
    // The machine may be so slow that several intervals have passed.
    assert!(told.len() < REQUESTS, "{} lines", told.len());
    assert!(told.iter().any(|line| line.contains(" more like it: ")));
}

#[test]
fn a_gateway_that_cannot_start_ends_though_nobody_reads_why() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("a bound address").to_string();
    // One is wrong before there is a log, one after that.
    for (setting, value) in [("proxy_listen", "nowhere"), ("admin_listen", &taken)] {
        let (pipe, full) = io::pipe().expect("a pipe");
        let mut filler = full.try_clone().expect("a descriptor");
        let filler = thread::spawn(move || filler.write_all(&b"x".repeat(1 << 20)));
        let started = launch().set(setting, value).errors(full).try_start();
        assert!(started.is_err(), "{setting}");
        drop(pipe);
        assert!(filler.join().expect("it ends").is_err());
    }
}

#[test]
fn a_gateway_that_cannot_start_does_not_panic_when_nobody_can_read_why() {
    let (pipe, closed) = io::pipe().expect("a pipe");
    drop(pipe);
    let mut command = launch().set("proxy_listen", "nowhere").command();
    let status = command.stderr(closed).status().expect("it runs");
    assert_eq!(status.code(), Some(1));
}
