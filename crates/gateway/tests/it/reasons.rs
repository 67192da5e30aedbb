//! Why the gateway answered itself: in the access log, in metrics, and in the records of log plugins.

use crate::http_log::wait_for;
use crate::launch;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;
use testkit::upstream::{Scripted, refusing};
use testkit::{Client, Echo, Gateway, Launch, NameServer};

const LOG: &str = "logs/access.log";

fn logging() -> Launch {
    launch().set("proxy_access_log", format!("{LOG} json"))
}

/// Waits for the access log to have this many lines, and returns the last one.
fn line(gateway: &Gateway, count: usize) -> Value {
    let path = gateway.launch().prefix().join(LOG);
    let read = || fs::read_to_string(&path).unwrap_or_default();
    wait_for("the line is written", || {
        let text = read();
        text.lines().count() >= count && text.ends_with('\n')
    });
    let text = read();
    assert_eq!(text.lines().count(), count, "{text}");
    let last = text.lines().last().expect("a line");
    serde_json::from_str(last).expect("JSON")
}

/// Returns the value of a sample, or 0 if there is none.
fn sample(gateway: &Gateway, name: &str) -> f64 {
    let text = gateway.admin_get("/metrics").text();
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.map_or(0.0, |value| value.parse().expect("a number"))
}

fn answers(gateway: &Gateway, reason: &str) -> f64 {
    let name = format!("silverback_answers_total{{reason=\"{reason}\"}}");
    sample(gateway, &name)
}

/// A service without retries at this URL, with a route of the service's name. `more` are further fields.
fn service(name: &str, url: &str, more: &str) -> String {
    format!(
        "  - {{name: {name}, url: \"{url}\", retries: 0, {more} routes: [{{name: {name}, paths: [/{name}]}}]}}\n"
    )
}

#[test]
fn every_reason_is_logged_and_counted() {
    let echo = Echo::start();
    let names = NameServer::start();
    let silent = Scripted::silent();
    // It accepts connections and reads nothing, so that neither handshakes nor requests get on.
    let deaf = Scripted::start(|stream| {
        thread::sleep(Duration::from_secs(60));
        drop(stream);
    });
    let nonsense = Scripted::answering(b"HTTP/9.9 what\r\n\r\n");
    let short = Scripted::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
    let stops = Scripted::start(|mut stream| {
        testkit::upstream::read_until_blank_line(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let resets = Scripted::resetting();
    let plain = Scripted::start(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let to = |scripted: &Scripted| format!("http://{}", scripted.address);
    let services = [
        service("echo", &echo.url(), ""),
        service("refused", &format!("http://{}", refusing()), ""),
        service("unknown", "http://missing.test", ""),
        service("plain", &format!("https://{}", plain.address), ""),
        service(
            "deaf_tls",
            &format!("https://{}", deaf.address),
            "connect_timeout: 200,",
        ),
        service("deaf", &to(&deaf), "write_timeout: 200,"),
        service("silent", &to(&silent), "read_timeout: 200,"),
        service("stops", &to(&stops), "read_timeout: 200,"),
        service("resets", &to(&resets), ""),
        service("nonsense", &to(&nonsense), ""),
        service("short", &to(&short), ""),
        service("balanced", "http://pool", ""),
        service("waits", &to(&silent), ""),
    ];
    let configuration = format!(
        r#"
_format_version: "3.0"
services:
{services}
  - name: guarded
    url: {echo}
    routes:
      - name: refuses
        paths: [/refuses]
        plugins: [{{name: key-auth}}]
      - name: fails
        paths: [/fails]
        plugins: [{{name: pre-function, config: {{access: ["error('on purpose')"]}}}}]
      - name: filters
        paths: [/filters]
        plugins: [{{name: pre-function, config: {{header_filter: ["error('on purpose')"]}}}}]
      - {{name: secure, paths: [/secure], protocols: [https]}}
routes:
  - {{name: lonely, paths: [/lonely]}}
upstreams:
  - name: pool
"#,
        services = services.concat(),
        echo = echo.url(),
    );
    let gateway = logging()
        .set("dns_resolver", names.address.to_string())
        .set("dns_hostsfile", "/nonexistent")
        .set("nginx_http_client_max_body_size", "20m")
        .set("nginx_http_client_header_timeout", "300ms")
        .configuration(&configuration)
        .start();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
    let post = |path: &str, length: usize| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; length]].concat()
    };
    let too_large = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99000000\r\n\r\n".to_vec();
    let mut lines = 0;
    for (request, status, reason) in [
        (get("/nowhere"), 404, "no_route"),
        (get("/secure"), 426, "wrong_protocol"),
        (get("/lonely"), 503, "no_service"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 400, "bad_request"),
        (too_large, 413, "too_large"),
        (b"GET / HT".to_vec(), 408, "client_timeout"),
        (get("/refuses"), 401, "plugin"),
        (get("/fails"), 500, "plugin_failed"),
        (get("/filters"), 500, "plugin_failed"),
        (get("/balanced"), 503, "no_healthy_target"),
        (get("/unknown"), 503, "name_not_resolved"),
        (get("/refused"), 502, "connect_failed"),
        (get("/deaf_tls"), 504, "connect_timeout"),
        (get("/plain"), 502, "tls_failed"),
        (post("/deaf", 16_000_000), 504, "write_timeout"),
        (get("/silent"), 504, "read_timeout"),
        (get("/stops"), 200, "read_timeout"),
        (get("/resets"), 502, "upstream_closed"),
        (get("/nonsense"), 502, "upstream_protocol"),
        (get("/short"), 200, "response_broken_off"),
    ] {
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        let before = answers(&gateway, reason);
        let mut client = TcpStream::connect(gateway.proxy).expect("it accepts");
        client.write_all(&request).expect("it reads");
        lines += 1;
        let line = line(&gateway, lines);
        assert_eq!(line["reason"], reason, "{shown}: {line}");
        assert_eq!(line["status"], status, "{shown}: {line}");
        assert_eq!(answers(&gateway, reason), before + 1.0, "{shown}");
    }

    // A client that goes away while it waits.
    let mut client = TcpStream::connect(gateway.proxy).expect("it accepts");
    client.write_all(&get("/waits")).expect("it reads");
    wait_for("it waits", || silent.connections() >= 2);
    drop(client);
    lines += 1;
    let gone = line(&gateway, lines);
    assert_eq!(
        (&gone["reason"], &gone["status"]),
        (&"client_gone".into(), &499.into())
    );
    assert_eq!(answers(&gateway, "client_gone"), 1.0);

    // An upstream's own response has no reason, whatever its status is.
    assert_eq!(
        gateway
            .get("/echo/__resp/eyJzdGF0dXMiOjUwM30/x", &[])
            .status,
        503
    );
    lines += 1;
    let own = line(&gateway, lines);
    assert_eq!((&own["reason"], &own["status"]), (&"".into(), &503.into()));

    let refusals = "silverback_plugin_answers_total{plugin=\"key-auth\",status=\"401\"}";
    assert_eq!(sample(&gateway, refusals), 1.0);
    let failures = "silverback_plugin_answers_total{plugin=\"pre-function\",status=\"500\"}";
    assert_eq!(sample(&gateway, failures), 2.0);
    let of_class = |class| {
        sample(
            &gateway,
            &format!("silverback_requests_total{{status_class=\"{class}\"}}"),
        )
    };
    let all: f64 = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"]
        .map(of_class)
        .iter()
        .sum();
    assert_eq!(all, lines as f64);
    assert_eq!(of_class("2xx"), 2.0);
    assert_eq!(sample(&gateway, "silverback_request_seconds_count"), all);
    assert!(sample(&gateway, "silverback_upstream_connect_seconds_count") >= 5.0);
    assert!(sample(&gateway, "silverback_upstream_first_byte_seconds_count") >= 1.0);
}

#[test]
fn retries_and_the_reason_of_the_last_attempt_are_counted() {
    let gateway = logging()
        .configuration(&format!(
            r#"
_format_version: "3.0"
services:
  - {{name: one, url: "http://{}", retries: 3, routes: [{{paths: [/]}}]}}
"#,
            refusing()
        ))
        .start();
    assert_eq!(gateway.get("/", &[]).status, 502);
    assert_eq!(line(&gateway, 1)["reason"], "connect_failed");
    assert_eq!(sample(&gateway, "silverback_upstream_retries_total"), 3.0);
    assert_eq!(answers(&gateway, "connect_failed"), 1.0);
}

#[test]
fn a_target_without_a_free_place_is_busy() {
    let silent = Scripted::silent();
    let gateway = logging()
        .set("upstream_max_requests", "1")
        .set("upstream_max_queue", "0")
        .configuration(&format!(
            r#"
_format_version: "3.0"
services:
  - {{name: one, url: "http://{}", retries: 0, routes: [{{paths: [/]}}]}}
"#,
            silent.address
        ))
        .start();
    let mut first = Client::connect(gateway.proxy);
    first
        .send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    wait_for("it waits", || silent.connections() > 0);
    assert_eq!(gateway.get("/", &[]).status, 503);
    assert_eq!(line(&gateway, 1)["reason"], "upstream_busy");
}

#[test]
fn flags_are_a_short_form_and_records_have_the_reason_if_wanted() {
    let sink = testkit::Sink::start(&[]);
    let configuration = format!(
        r#"
_format_version: "3.0"
plugins:
  - {{name: http-log, config: {{http_endpoint: "{}"}}}}
"#,
        sink.url()
    );
    let gateway = launch()
        .set("log_record_reason", "on")
        .set(
            "nginx_http_log_format",
            "short '$status $kong_reason_flag $kong_reason'",
        )
        .set("proxy_access_log", format!("{LOG} short"))
        .configuration(&configuration)
        .start();
    assert_eq!(gateway.get("/nowhere", &[]).status, 404);
    let records = sink.next().records();
    assert_eq!(records[0]["reason"], "no_route", "{records:?}");
    let path = gateway.launch().prefix().join(LOG);
    wait_for("the line is written", || {
        fs::read_to_string(&path).is_ok_and(|text| text == "404 NR no_route\n")
    });
}

#[test]
fn handshakes_with_clients_are_counted_by_outcome() {
    let echo = Echo::start();
    let gateway = launch()
        .set("proxy_listen", "127.0.0.1:0 ssl")
        .configuration(&crate::shop(&echo))
        .start();
    let mut client = TcpStream::connect(gateway.listening("proxy_tls")[0]).expect("it accepts");
    // A record that is no handshake.
    client.write_all(&[23, 3, 3, 0, 1, 0]).expect("sent");
    // The gateway answers with an alert and closes. It counts after that.
    let _ = client.read_to_end(&mut Vec::new());
    let failed = "silverback_client_tls_handshakes_total{outcome=\"failed\"}";
    wait_for("it is counted", || sample(&gateway, failed) == 1.0);
}

/// A service of streams with a route for the address with this number. Only the third one does not wait long.
fn stream_service(protocol: &str, to: SocketAddr, number: u8, more: &str) -> String {
    let read_timeout = if number == 3 { 100 } else { 60_000 };
    format!(
        "  - {{name: s{number}, protocol: {protocol}, host: {}, port: {}, retries: 0, read_timeout: {read_timeout}, \
         routes: [{{name: r{number}, protocols: [tcp, tls], destinations: [{{ip: 127.0.0.{number}}}]{more}}}]}}\n",
        to.ip(),
        to.port()
    )
}

#[test]
fn sessions_of_streams_have_reasons_too() {
    let ends = Scripted::start(|mut stream| {
        let _ = stream.write_all(b"nonsense");
    });
    let silent = Scripted::silent();
    let services = [
        stream_service("tcp", ends.address, 1, ""),
        stream_service("tcp", refusing(), 2, ""),
        stream_service("tcp", silent.address, 3, ""),
        stream_service("tls", ends.address, 4, ""),
        stream_service(
            "tcp",
            ends.address,
            5,
            ", plugins: [{name: ip-restriction, config: {deny: [127.0.0.0/8]}}]",
        ),
        stream_service("tcp", ends.address, 7, ""),
    ];
    let pool = "  - {name: s8, protocol: tcp, host: pool, port: 80, routes: [{name: r8, protocols: [tcp], \
                destinations: [{ip: 127.0.0.8}]}]}\n";
    let configuration = format!(
        "_format_version: '3.0'\nupstreams: [{{name: pool}}]\nservices:\n{}{pool}routes: [{{name: r9, protocols: [tcp], \
         destinations: [{{ip: 127.0.0.9}}]}}]\n",
        services.concat()
    );
    let listen: Vec<String> = (1..=10)
        .map(|number| match number {
            7 => "127.0.0.7:0 ssl".to_owned(),
            number => format!("127.0.0.{number}:0"),
        })
        .collect();
    let gateway = launch()
        .set("stream_listen", format!("{}, 127.0.0.11:0 udp", listen.join(", ")))
        .set(
            "nginx_http_log_format",
            "s escape=json '{\"reason\":\"$kong_reason\",\"plugin\":\"$kong_plugin\",\"route\":\"$kong_route\",\"service\":\"$kong_service\"}'",
        )
        .set("proxy_stream_access_log", format!("{LOG} s"))
        .configuration(&configuration)
        .start();
    let listening = ["stream", "stream_tls"]
        .map(|kind| gateway.listening(kind))
        .concat();
    let ends = |reason: &str| {
        let name = format!("silverback_stream_ends_total{{reason=\"{reason}\"}}");
        sample(&gateway, &name)
    };
    for (position, (number, sent, reason, plugin)) in [
        (1, "", "", ""),
        (2, "", "connect_failed", ""),
        (3, "", "read_timeout", ""),
        (4, "", "tls_failed", ""),
        (5, "", "plugin", "ip-restriction"),
        (7, "GET / HTTP/1.0\r\n\r\n", "client_tls_failed", ""),
        (7, "\x16\x03", "client_gone", ""),
        (8, "", "no_healthy_target", ""),
        (9, "", "no_service", ""),
        (10, "", "no_route", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let ip = format!("127.0.0.{number}");
        let mut addresses = listening.iter();
        let address = addresses.find(|address| address.ip().to_string() == ip);
        let mut client = TcpStream::connect(address.expect("it listens")).expect("connected");
        client.write_all(sent.as_bytes()).expect("sent");
        if reason == "client_gone" {
            client.shutdown(Shutdown::Write).expect("it is open");
        }
        // An end or a reset.
        let _ = client.read_to_end(&mut Vec::new());
        drop(client);
        let line = line(&gateway, position + 1);
        assert_eq!(
            (&line["reason"], &line["plugin"]),
            (&reason.into(), &plugin.into()),
            "{line}"
        );
        if (1..8).contains(&number) && reason != "client_gone" && reason != "client_tls_failed" {
            assert_eq!(line["route"], format!("r{number}"));
            assert_eq!(line["service"], format!("s{number}"));
        }
        if !reason.is_empty() {
            assert_eq!(ends(reason), 1.0, "{reason}");
        }
    }
    let udp = UdpSocket::bind("127.0.0.11:0").expect("a port");
    let address = gateway.listening("stream_udp")[0];
    udp.send_to(b"x", address).expect("sent");
    assert_eq!(line(&gateway, 11)["reason"], "no_route");
    assert_eq!(ends("no_route"), 2.0);
}
