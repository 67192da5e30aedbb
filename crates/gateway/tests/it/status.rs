//! The Status API, in normal operation and during shutdown.

use crate::{launch, one_route, shop};
use std::io::Write;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use testkit::upstream::read_until_blank_line;
use testkit::{Client, Echo, Gateway, HttpResponse, Scripted, get, request};

fn ready(gateway: &Gateway) -> (u16, String) {
    let answer = get(gateway.status, "/status/ready", &[]);
    let message = answer.json()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (answer.status, message)
}

fn post(gateway: &Gateway, path: &str, kind: &str, body: &[u8]) -> HttpResponse {
    request(
        gateway.status,
        "POST",
        path,
        &[("Content-Type", kind)],
        body,
    )
}

#[test]
fn a_node_is_ready_when_every_worker_serves_what_is_stored() {
    let echo = Echo::start();
    let gateway = launch()
        .set("database", "off")
        .set("nginx_worker_processes", "3")
        .start();
    let empty = "no configuration available (empty configuration present)";
    assert_eq!(ready(&gateway), (503, empty.to_owned()));
    let nothing = "_format_version: '3.0'\nworkspaces: [{name: team}]\n";
    assert_eq!(gateway.post_config(nothing).status, 201);
    assert_eq!(ready(&gateway), (503, empty.to_owned()));
    let hash =
        |gateway: &Gateway| gateway.admin_get("/status").json()["configuration_hash"].clone();
    assert_eq!(hash(&gateway), "0".repeat(32));
    // No proxy request wakes the workers here. The node becomes ready only if idle workers apply each change too.
    for path in ["/a", "/b", "/c"] {
        assert_eq!(
            gateway.post_config(&one_route(&echo.url(), path)).status,
            201
        );
        assert_eq!(ready(&gateway), (200, "ready".to_owned()));
    }
    assert_ne!(hash(&gateway), "0".repeat(32));
    assert_eq!(gateway.post_config(nothing).status, 201);
    assert_eq!(ready(&gateway), (503, empty.to_owned()));
}

#[test]
fn an_empty_store_is_a_configuration() {
    let gateway = launch().start();
    assert_eq!(ready(&gateway), (200, "ready".to_owned()));
}

#[test]
fn status_and_metrics_are_as_in_the_admin_api_and_nothing_else_exists() {
    let gateway = launch().start();
    let status = get(gateway.status, "/status", &[]);
    assert_eq!(status.status, 200);
    assert_eq!(status.json()["database"]["reachable"], true);
    assert!(
        status
            .header("server")
            .is_some_and(|name| name.starts_with("kong/"))
    );
    assert_eq!(status.header("access-control-allow-origin"), None);
    let metrics = get(gateway.status, "/metrics", &[]).text();
    for name in [
        "silverback_revision",
        "silverback_panics_total 0",
        "silverback_accept_errors_total 0",
    ] {
        assert!(metrics.contains(name), "{name} is missing in {metrics}");
    }
    for path in ["/services", "/config", "/", "/upstreams/a/health"] {
        let answer = get(gateway.status, path, &[]);
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["message"], "Not found", "{path}");
    }
    let refused = request(gateway.status, "DELETE", "/status", &[], b"");
    assert_eq!(refused.status, 405);
}

#[test]
fn a_node_can_be_set_to_report_that_it_drains() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let form = "application/x-www-form-urlencoded";
    assert_eq!(
        post(&gateway, "/status/ready", form, b"status=gone").status,
        400
    );
    assert_eq!(ready(&gateway).0, 200);
    assert_eq!(
        post(&gateway, "/status/ready", form, b"status=draining").status,
        204
    );
    assert_eq!(ready(&gateway), (503, "draining".to_owned()));
    assert_eq!(gateway.get("/open", &[]).status, 200);
}

#[test]
fn before_listeners_close_the_node_reports_draining_and_keeps_serving() {
    let echo = Echo::start();
    let mut gateway = launch()
        .set("drain_delay", "3600")
        .configuration(&shop(&echo))
        .start();
    let mut kept = Client::connect(gateway.proxy);
    assert_eq!(
        kept.request("GET", "/open", &[], b"").header("connection"),
        Some("keep-alive")
    );
    gateway.signal("TERM");
    gateway.wait_for_log("still accepts connections");
    assert_eq!(ready(&gateway), (503, "draining".to_owned()));
    // The gateway closes each connection after its next response, so that clients reconnect to another node. A worker
    // may start doing so a moment after the log line.
    let deadline = Instant::now() + Duration::from_secs(30);
    while gateway.get("/open", &[]).header("connection") != Some("close") {
        assert!(
            Instant::now() < deadline,
            "the gateway does not close connections"
        );
    }
    assert_eq!(
        kept.request("GET", "/open", &[], b"").header("connection"),
        Some("close")
    );
    assert!(kept.is_closed());
    // A second signal ends all waiting.
    gateway.signal("TERM");
    assert!(gateway.wait().success());
}

#[test]
fn the_apis_close_after_the_last_request() {
    // The upstream holds its response until the test releases it.
    let (release, held) = mpsc::channel();
    let held = Mutex::new(held);
    let upstream = Scripted::start(move |mut stream| {
        read_until_blank_line(&mut stream);
        let held = held
            .lock()
            .expect("no thread panics while it holds the lock");
        if held.recv().is_ok() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let text = format!(
        "_format_version: '3.0'\nservices:\n- url: http://{}\n  routes: [{{paths: [/open]}}]\n",
        upstream.address
    );
    let mut gateway = launch().configuration(&text).start();
    let mut busy = Client::connect(gateway.proxy);
    busy.send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    while upstream.connections() < 1 {
        std::thread::yield_now();
    }
    gateway.signal("TERM");
    gateway.wait_for_log("requests in flight may finish");
    assert_eq!(ready(&gateway), (503, "draining".to_owned()));
    assert_eq!(gateway.admin_get("/status").status, 200);
    release.send(()).expect("the upstream waits");
    assert_eq!(busy.receive("GET").expect("an answer").status, 200);
    assert!(gateway.wait().success());
}

#[test]
fn a_second_signal_ends_the_wait_for_requests() {
    let echo = Echo::start();
    let mut gateway = launch()
        .set("drain_timeout", "3600")
        .configuration(&shop(&echo))
        .start();
    let mut stuck = Client::connect(gateway.proxy);
    stuck
        .send("GET /open/__delay/100000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    while echo.requests() < 1 {
        std::thread::yield_now();
    }
    gateway.signal("TERM");
    gateway.wait_for_log("requests in flight may finish");
    gateway.signal("INT");
    assert!(gateway.wait().success());
    assert!(stuck.is_closed());
}

#[test]
fn connections_in_the_queue_are_answered_at_the_end() {
    let echo = Echo::start();
    let mut gateway = launch().configuration(&shop(&echo)).start();
    let proxy = gateway.proxy;
    // A process stopped by SIGSTOP accepts nothing, but the kernel still queues new connections for it.
    gateway.signal("STOP");
    let mut queued: Vec<Client> = (0..20).map(|_| Client::connect(proxy)).collect();
    for client in &mut queued {
        client
            .send("GET /open HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
    }
    gateway.signal("TERM");
    gateway.signal("CONT");
    for client in &mut queued {
        let answer = client.receive("GET").expect("an answer");
        // The worker may accept some of them before it learns that it must stop.
        assert_eq!(answer.status, 200);
    }
    assert!(gateway.wait().success());
}
