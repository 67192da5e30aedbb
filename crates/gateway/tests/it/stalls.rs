//! Workers that do not respond, and the metrics of the node.

use crate::launch;
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use testkit::{Client, Echo, Gateway, Scripted};

fn metrics(gateway: &Gateway) -> String {
    gateway.admin_get("/metrics").text()
}

/// Returns the value of a sample. `name` includes the labels.
fn sample(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(value.parse().expect("a number"))
}

/// Lua snippets of which each stays far below the limit of its time. Together they hold the worker for 1.5 seconds.
fn spins() -> String {
    ["\"local start = os.clock() while os.clock() - start < 0.01 do end\""; 150].join(", ")
}

/// Waits until the metrics say that the worker stalls in this phase of a plugin, for this route.
fn wait_for_stall(gateway: &Gateway, plugin: &str, phase: &str, route: &str) {
    let stalled = format!(
        "silverback_worker_stalled_seconds{{worker=\"0\",plugin=\"{plugin}\",phase=\"{phase}\",route=\"{route}\"}}"
    );
    let began = Instant::now();
    // The Admin API has threads of its own.
    while sample(&metrics(gateway), &stalled).is_none() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{}",
            gateway.log()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_worker_that_stalls_is_reported_with_what_it_does() {
    let echo = Echo::start();
    let snippets = spins();
    let gateway = launch()
        .configuration(&format!(
            r#"
_format_version: "3.0"
services:
  - name: one
    url: {}
    routes:
      - name: spins
        paths: [/spins]
        plugins: [{{name: pre-function, config: {{access: [{snippets}]}}}}]
      - {{name: open, paths: [/open]}}
"#,
            echo.url()
        ))
        .start();
    assert_eq!(gateway.get("/open", &[]).status, 200);
    let stalls = "silverback_worker_stalls_total{worker=\"0\"}";
    assert_eq!(sample(&metrics(&gateway), stalls), Some(0.0));

    let mut client = Client::connect(gateway.proxy);
    client
        .send("GET /spins HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    wait_for_stall(&gateway, "pre-function", "access", "spins");
    assert_eq!(client.receive("GET").expect("a response").status, 200);
    gateway.wait_for_log(
        "a worker does not respond: it runs pre-function (access) for the route spins",
    );
    gateway.wait_for_log("the worker responds again");
    let text = metrics(&gateway);
    assert!(sample(&text, stalls) >= Some(1.0), "{text}");
    let again = "silverback_worker_stalled_seconds{worker=\"0\"}";
    assert_eq!(sample(&text, again), Some(0.0));
    let busy = sample(&text, "silverback_worker_busy_seconds_total{worker=\"0\"}");
    assert!(busy.expect("a time") > 1.0, "{busy:?}");
    let slow = "silverback_worker_loop_delay_seconds_bucket{worker=\"0\",le=\"0.5\"}";
    let all = "silverback_worker_loop_delay_seconds_count{worker=\"0\"}";
    assert!(sample(&text, slow) < sample(&text, all), "{text}");
}

#[test]
fn a_request_that_goes_on_without_its_client_is_reported_with_its_route() {
    // Its responses are stale from the beginning, so that a later request gets one at once and then goes on.
    let upstream = Scripted::start(|mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\
              Cache-Control: max-age=0, stale-while-revalidate=600\r\nContent-Length: 1\r\n\r\n1",
        );
    });
    let spins = spins().replace("while", "while kong.request.get_header('x-spin') and");
    let gateway = launch()
        .configuration(&format!(
            r#"
_format_version: "3.0"
services:
  - name: one
    url: http://{}
    routes:
      - name: stale
        paths: [/]
        plugins:
          - {{name: proxy-cache, config: {{strategy: memory, rfc9111: true}}}}
          - {{name: post-function, config: {{access: [{spins}]}}}}
"#,
            upstream.address
        ))
        .start();
    assert_eq!(gateway.get("/", &[]).header("x-cache-status"), Some("Miss"));
    let stale = gateway.get("/", &[("X-Spin", "1")]);
    assert_eq!(stale.header("x-cache-status"), Some("Stale"));
    wait_for_stall(&gateway, "post-function", "access", "stale");
}

#[test]
fn a_log_phase_of_a_stream_is_reported_with_its_route() {
    let upstream = Scripted::start(|mut stream| {
        let _ = stream.write_all(b"up");
    });
    let spin = "local start = os.clock() while os.clock() - start < 0.01 do end return 1";
    let fields: Vec<String> = (0..150).map(|n| format!("f{n}: \"{spin}\"")).collect();
    let gateway = launch()
        .set("stream_listen", "127.0.0.1:0")
        .configuration(&format!(
            r#"
_format_version: "3.0"
services:
  - name: one
    protocol: tcp
    host: {}
    port: {}
    routes:
      - name: session
        protocols: [tcp]
        destinations: [{{ip: 127.0.0.1}}]
        plugins: [{{name: file-log, protocols: [tcp], config: {{path: /dev/null, custom_fields_by_lua: {{{}}}}}}}]
"#,
            upstream.address.ip(),
            upstream.address.port(),
            fields.join(", ")
        ))
        .start();
    let address = gateway.listening("stream")[0];
    let mut client = std::net::TcpStream::connect(address).expect("it listens");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("an answer");
    assert_eq!(text, "up");
    drop(client);
    wait_for_stall(&gateway, "file-log", "log", "session");
}

#[test]
fn the_node_shows_its_process_certificates_and_store() {
    let echo = Echo::start();
    let gateway = launch()
        .set("proxy_listen", "127.0.0.1:0 ssl")
        .configuration(&crate::shop(&echo))
        .start();
    let text = metrics(&gateway);
    for (name, least) in [
        ("process_open_fds", 10.0),
        ("process_max_fds", 10.0),
        ("process_cpu_seconds_total", 0.001),
        ("process_start_time_seconds", 1.7e9),
        ("silverback_revision_timestamp_seconds", 1.7e9),
        ("silverback_store_bytes{kind=\"limit\"}", 1e6),
        ("silverback_store_bytes{kind=\"file\"}", 1e4),
        ("silverback_store_bytes{kind=\"used\"}", 1e4),
        ("silverback_store_bytes{kind=\"history\"}", 0.0),
        ("silverback_store_readers", 0.0),
        ("silverback_history_revisions", 0.0),
        (
            "silverback_certificate_expiry_timestamp_seconds{certificate=\"ssl_cert\",name=\"\"}",
            1.7e9,
        ),
    ] {
        let value = sample(&text, name).unwrap_or_else(|| panic!("no {name} in\n{text}"));
        assert!(value >= least, "{name}: {value}");
    }
}
