//! The error log. Writing to it must not delay requests, and clients must not be able to fill it.

use crate::{launch, one_route};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use testkit::Client;

/// Returns a URL that refuses every connection. The listener only finds a free port, and closes on return.
fn dead_upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    format!("http://{address}")
}

/// Sends requests one after the other. The gateway itself answers all of them with an error.
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
    // This thread fills the pipe and blocks until the test reads it.
    let filler = thread::spawn(move || filler.write_all(&b"x".repeat(FILLING)));
    let gateway = launch()
        .set("log_level", "debug")
        .configuration(&one_route(&dead_upstream(), "/dead"))
        .errors(full)
        .start();
    ask_in_vain(&gateway, 1_000);
    let metrics = gateway.admin_get("/metrics").text();
    // The lines that wait for the reader are few, because similar ones are only counted. So none is lost.
    assert!(
        metrics.contains("\nsilverback_error_log_dropped_lines_total 0\n"),
        "{metrics}"
    );
    // The test reads the pipe from here on. The gateway must write its last lines before it exits.
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
fn errors_caused_by_clients_do_not_fill_the_log() {
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
    // The gateway logs at most 100 lines of one kind every 10 seconds and counts the rest. A slow machine may need several
    // such intervals.
    assert!(told.len() < REQUESTS, "{} lines", told.len());
    assert!(told.iter().any(|line| line.contains(" more like it: ")));
}

/// An upstream that sends the same bytes on each connection and closes it.
fn upstream_that_sends(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 4096];
            // One read is enough, because the gateway sends the request head in one piece.
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn a_502_is_logged_with_the_service_the_route_the_address_and_the_request() {
    let malformed = upstream_that_sends(b"nonsense\r\n\r\n");
    let silent = upstream_that_sends(b"");
    let dead = dead_upstream();
    let configuration = format!(
        "_format_version: '3.0'\nservices:\n\
         - {{name: orders, url: 'http://{malformed}', retries: 0, routes: [{{name: a, paths: [/malformed]}}]}}\n\
         - {{name: items, url: 'http://{silent}', retries: 0, routes: [{{name: b, paths: [/silent]}}]}}\n\
         - {{name: users, url: '{dead}', retries: 0, routes: [{{name: c, paths: [/dead]}}]}}\n"
    );
    let gateway = launch().configuration(&configuration).start();
    let dead = dead.trim_start_matches("http://");
    for (path, text, service, route, address) in [
        (
            "/malformed",
            "upstream sent a malformed response",
            "orders",
            "a",
            malformed.to_string(),
        ),
        (
            "/silent",
            "upstream closed the connection without a response",
            "items",
            "b",
            silent.to_string(),
        ),
        (
            "/dead",
            "cannot connect to upstream cause=Connection refused (os error 111)",
            "users",
            "c",
            dead.to_owned(),
        ),
    ] {
        let answer = gateway.get(path, &[]);
        assert_eq!(answer.status, 502, "{path}");
        let id = answer.header("x-kong-request-id").expect("an id");
        gateway.wait_for_log(&format!(
            "{text} service={service} route={route} upstream={address} request_id=\"{id}\""
        ));
    }
}

#[test]
fn a_503_after_all_targets_have_failed_is_logged_with_the_last_failure() {
    let targets = [dead_upstream(), dead_upstream()].map(|url| url.replace("http://", ""));
    let [one, two] = &targets;
    let configuration = format!(
        "_format_version: '3.0'\nupstreams: [{{name: pair, \
         healthchecks: {{passive: {{unhealthy: {{tcp_failures: 1}}}}}}, targets: [{{target: '{one}'}}, {{target: '{two}'}}]}}]\n\
         services: [{{name: all, host: pair, routes: [{{name: r, paths: [/r]}}]}}]\n"
    );
    let gateway = launch().configuration(&configuration).start();
    let answer = gateway.get("/r", &[]);
    assert_eq!(answer.status, 503);
    let id = answer.header("x-kong-request-id").expect("an id");
    gateway.wait_for_log(
        "cannot connect to upstream cause=Connection refused (os error 111) service=all route=r",
    );
    gateway.wait_for_log(&format!("request_id=\"{id}\""));
}

#[test]
fn a_refused_request_is_logged_with_its_reason_at_level_debug() {
    let gateway = launch()
        .set("log_level", "debug")
        .configuration(&one_route(&dead_upstream(), "/dead"))
        .start();
    for (head, reason) in [
        (
            "Host: a\r\nContent-Length: 1\r\nContent-Length: 2",
            "ambiguous or malformed message length",
        ),
        ("Host: a/b", "missing, repeated or invalid Host"),
    ] {
        let mut client = TcpStream::connect(gateway.proxy).expect("it listens");
        write!(client, "POST /dead HTTP/1.1\r\n{head}\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("text");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        gateway.wait_for_log(&format!("a request gets 400: {reason}"));
    }
}

#[test]
fn a_gateway_that_cannot_start_exits_even_if_its_output_is_not_read() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("a bound address").to_string();
    // The wrong `proxy_listen` fails before the gateway opens the log, the occupied `admin_listen` afterwards.
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
fn a_gateway_that_cannot_start_does_not_panic_when_its_output_is_closed() {
    let (pipe, closed) = io::pipe().expect("a pipe");
    drop(pipe);
    let mut command = launch().set("proxy_listen", "nowhere").command();
    let status = command.stderr(closed).status().expect("it runs");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn fields_of_json_lines_have_one_type_and_no_json_inside_of_text() {
    let mut gateway = launch()
        .set("log_format", "json")
        .configuration(&one_route(&dead_upstream(), "/dead"))
        .start();
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let log = gateway.log();
    let lines: Vec<serde_json::Value> = (log.lines())
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    let line = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("{message}: {log}"))
    };
    let (live, serving) = (
        line("the configuration is live"),
        line("silverback is serving"),
    );
    assert_eq!(
        (&live["revision"], &serving["revision"]),
        (&1.into(), &1.into())
    );
    let (proxy, addresses) = (gateway.proxy, serving["addresses"].as_str());
    let addresses = addresses.expect("text");
    assert!(
        addresses.contains(&format!("proxy {proxy}, ")),
        "{addresses}"
    );
    assert!(!addresses.contains(['{', '"']), "{addresses}");
}
