//! Access logs: their settings, their formats and the files that they are written to.

use crate::{launch, shop};
use regex::Regex;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Echo, Gateway, get};

fn file(gateway: &Gateway, name: &str) -> PathBuf {
    gateway.launch().prefix().join(name)
}

/// Waits until the log has `count` lines, because a line is written shortly after its request.
fn lines(gateway: &Gateway, name: &str, count: usize) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let text = fs::read_to_string(file(gateway, name)).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            assert_eq!(lines.len(), count, "{text}");
            return lines;
        }
        assert!(
            Instant::now() < deadline,
            "{count} lines are not there:\n{text}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn matches(line: &str, pattern: &str) {
    let pattern = Regex::new(&format!("^{pattern}$")).expect("a pattern");
    assert!(pattern.is_match(line), "{line}");
}

const TIME: &str = r"\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\]";
const ID: &str = r#"kong_request_id: "[0-9a-f]{32}""#;

#[test]
fn every_request_has_a_line_in_kongs_format_by_default() {
    let echo = Echo::start();
    let gateway = launch()
        .unset("proxy_access_log")
        .configuration(&shop(&echo))
        .start();
    let headers = [
        ("User-Agent", "a\"b\\c"),
        ("Referer", "http://x"),
        ("Authorization", "Basic Ym9iOnB3"),
    ];
    get(gateway.proxy, "/open/__bytes/70000?k=v", &headers);
    get(gateway.proxy, "/nowhere", &[]);
    get(gateway.proxy, "/gone", &[]);
    let mut garbage = Client::connect(gateway.proxy);
    garbage.send("\x16\x03nonsense\r\n\r\n").expect("sent");
    assert_eq!(garbage.receive("GET").expect("an answer").status, 400);
    let lines = lines(&gateway, "logs/access.log", 4);
    matches(
        &lines[0],
        &format!(
            r#"127\.0\.0\.1 - bob {TIME} "GET /open/__bytes/70000\?k=v HTTP/1\.1" 200 70000 "http://x" "a\\x22b\\x5Cc" {ID}"#
        ),
    );
    matches(
        &lines[1],
        &format!(r#"127\.0\.0\.1 - - {TIME} "GET /nowhere HTTP/1\.1" 404 \d+ "-" "-" {ID}"#),
    );
    matches(
        &lines[2],
        &format!(r#".* "GET /gone HTTP/1\.1" 410 27 "-" "-" {ID}"#),
    );
    matches(
        &lines[3],
        &format!(r#".* "\\x16\\x03nonsense" 400 \d+ "-" "-" {ID}"#),
    );
}

#[test]
fn json_lines_tell_route_service_upstream_and_times() {
    let echo = Echo::start();
    let gateway = launch()
        .set("proxy_access_log", "/dev/stdout json")
        .configuration(&shop(&echo))
        .start();
    get(gateway.proxy, "/closed?apikey=alice-key", &[]);
    gateway.wait_for_log("\"request_id\"");
    let log = gateway.log();
    let line = log
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("a line");
    let line: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(
        (&line["route"], &line["service"]),
        (&"closed".into(), &"shop".into())
    );
    assert_eq!(line["consumer"], "alice");
    assert_eq!(line["uri"], "/closed?apikey=REDACTED");
    assert!(!log.contains("alice-key"), "{log}");
    assert_eq!(line["upstream_addr"], echo.address.to_string());
    assert_eq!(line["upstream_status"], "200");
    assert_eq!(line["status"], 200);
    assert!(line["request_time"].as_f64().expect("a number") < 30.0);
    let sizes = |name: &str| line[name].as_u64().expect("a number");
    assert!(sizes("bytes_sent") > sizes("body_bytes_sent") && sizes("request_length") > 0);
}

#[test]
fn json_lines_name_the_plugin_that_responded() {
    let echo = Echo::start();
    let open = "      - name: open\n        paths: [/open]\n";
    let guarded = "        plugins: [{name: ai-prompt-guard, config: {allow_patterns: [a]}}]\n";
    let text = shop(&echo).replace(open, &format!("{open}{guarded}"));
    let gateway = launch()
        .set("proxy_access_log", "access.log json")
        .configuration(&text)
        .start();
    let mut client = Client::connect(gateway.proxy);
    let mut status = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.send(&request).expect("sent");
        client.receive("GET").expect("an answer").status
    };
    let paths = [
        "/open",
        "/closed",
        "/gone",
        "/nowhere",
        "/closed?apikey=alice-key",
    ];
    assert_eq!(paths.map(&mut status), [500, 401, 410, 404, 200]);
    let plugins = lines(&gateway, "access.log", 5).into_iter().map(|line| {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        line["plugin"].as_str().expect("a text").to_owned()
    });
    let plugins: Vec<String> = plugins.collect();
    assert_eq!(
        plugins,
        ["ai-prompt-guard", "key-auth", "request-termination", "", ""]
    );
}

#[test]
fn files_are_rotated_by_a_signal_and_continued_after_an_upgrade() {
    let echo = Echo::start();
    let mut gateway = launch()
        .set("proxy_access_log", "access.log own")
        .set("nginx_http_log_format", "own '$request_uri'")
        .configuration(&shop(&echo))
        .start();
    gateway.get("/open/before", &[]);
    assert_eq!(lines(&gateway, "access.log", 1), ["/open/before"]);
    fs::rename(file(&gateway, "access.log"), file(&gateway, "access.log.1")).expect("moved");
    gateway.signal("USR1");
    gateway.wait_for_log("log files are opened anew");
    gateway.get("/open/after", &[]);
    assert_eq!(lines(&gateway, "access.log", 1), ["/open/after"]);
    assert_eq!(lines(&gateway, "access.log.1", 1), ["/open/before"]);
    gateway.upgrade().expect("it takes over");
    gateway.get("/open/upgraded", &[]);
    assert_eq!(
        lines(&gateway, "access.log", 2),
        ["/open/after", "/open/upgraded"]
    );
}

#[test]
fn the_last_lines_are_written_before_the_process_exits() {
    let echo = Echo::start();
    let mut gateway = launch()
        .set("proxy_access_log", "access.log combined")
        .configuration(&shop(&echo))
        .start();
    for _ in 0..50 {
        gateway.get("/gone", &[]);
    }
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let text = fs::read_to_string(file(&gateway, "access.log")).expect("written");
    assert_eq!(text.lines().count(), 50);
}

#[test]
fn the_apis_have_logs_of_their_own() {
    let gateway = launch()
        .set("admin_access_log", "logs/admin.log")
        .set("status_access_log", "logs/status.log")
        .start();
    let size = gateway.admin_get("/services").body.len();
    gateway.admin_get("/nowhere");
    get(gateway.status, "/status/ready", &[]);
    let admin = lines(&gateway, "logs/admin.log", 2);
    matches(
        &admin[0],
        &format!(r#"127\.0\.0\.1 - - {TIME} "GET /services HTTP/1\.1" 200 {size} "-" "-""#),
    );
    matches(&admin[1], r#".* "GET /nowhere HTTP/1\.1" 404 \d+ "-" "-""#);
    let status = lines(&gateway, "logs/status.log", 1);
    matches(
        &status[0],
        r#".* "GET /status/ready HTTP/1\.1" 200 \d+ "-" "-""#,
    );
}

#[test]
fn a_blocked_log_reader_loses_lines_but_fails_no_request() {
    let echo = Echo::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo can be run").success());
    // Opening a pipe for reading and writing does not block. The test never reads from it.
    let held = fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)
        .expect("open");
    let mut gateway = launch()
        .set("proxy_access_log", pipe.display().to_string())
        .set("nginx_http_large_client_header_buffers", "4 64k")
        .configuration(&shop(&echo))
        .start();
    let target = format!("/gone?{}", "x".repeat(60_000));
    let mut client = Client::connect(gateway.proxy);
    for _ in 0..150 {
        assert_eq!(client.request("GET", &target, &[], b"").status, 410);
    }
    let name = "silverback_access_log_dropped_lines_total ";
    let metrics = gateway.admin_get("/metrics").text();
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("a metric");
    let dropped: u32 = value.parse().expect("a number");
    assert!((1..150).contains(&dropped), "{dropped}");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    drop(held);
}

#[test]
fn wrong_log_settings_are_reported_at_start() {
    for (value, told) in [
        ("access.log nonsense", "there is no log format `nonsense`"),
        ("access.log combined gzip", "`gzip` is not known"),
        ("syslog:server=127.0.0.1", "syslog is not available"),
        ("/dev/null/access.log", "cannot open"),
    ] {
        let launch = launch()
            .set("database", "off")
            .set("proxy_access_log", value);
        let log = launch.try_start().map(drop).expect_err("it started");
        assert!(
            log.contains("setting proxy_access_log") && log.contains(told),
            "{log}"
        );
    }
}

#[test]
fn variables_without_a_value_are_warnings_and_credentials_can_be_shown() {
    let echo = Echo::start();
    let gateway = launch()
        .set(
            "nginx_http_log_format",
            "a '$arg_apikey $http_authorization $geoip_city'",
        )
        .set("proxy_access_log", "access.log a")
        .set("log_redact", "off")
        .configuration(&shop(&echo))
        .start();
    gateway.wait_for_log("`$geoip_city` has no value here");
    gateway.wait_for_log("`$http_authorization` shows only whether there are credentials");
    let headers = [("Authorization", "Bearer hidden")];
    get(gateway.proxy, "/closed?apikey=alice-key", &headers);
    assert_eq!(lines(&gateway, "access.log", 1), ["alice-key REDACTED -"]);
}

#[test]
fn headers_of_responses_are_shown_without_a_plugin_that_logs() {
    let echo = Echo::start();
    let gateway = launch()
        .set("proxy_access_log", "access.log sent")
        .set(
            "nginx_http_log_format",
            "sent '$request_uri $sent_http_via $sent_http_content_length $sent_http_x_none'",
        )
        .configuration(&shop(&echo))
        .start();
    for path in ["/open/__bytes/70000", "/nowhere", "/gone"] {
        get(gateway.proxy, path, &[]);
    }
    let lines = lines(&gateway, "access.log", 3);
    assert_eq!(lines[0], "/open/__bytes/70000 1.1 kong/3.9.1 70000 -");
    matches(&lines[1], r"/nowhere - \d+ -");
    assert_eq!(lines[2], "/gone - 27 -");
}

#[test]
fn streams_have_lines_of_their_own() {
    let echo = Echo::start();
    let address = echo.address;
    let configuration = format!(
        "_format_version: '3.0'\nservices:\n- name: s\n  protocol: tcp\n  host: {}\n  port: {}\n  routes: [{{name: s, protocols: [tcp], \
         destinations: [{{ip: 127.0.0.1}}]}}]\n",
        address.ip(),
        address.port()
    );
    let gateway = launch()
        .set("stream_listen", "127.0.0.1:0, 127.0.0.2:0")
        .unset("proxy_stream_access_log")
        .configuration(&configuration)
        .start();
    let listening = gateway.listening("stream");
    let mut client = Client::connect(listening[0]);
    let answer = client.request("GET", "/__bytes/1000", &[("Connection", "close")], b"");
    assert_eq!(answer.status, 200);
    drop(client);
    let line = &lines(&gateway, "logs/access.log", 1)[0];
    matches(
        line,
        &format!(r"127\.0\.0\.1 {TIME} TCP 200 1\d\d\d 66 \d+\.\d{{3}}"),
    );
    // No route matches connections to this listener.
    assert!(Client::connect(listening[1]).is_closed());
    let line = &lines(&gateway, "logs/access.log", 2)[1];
    matches(
        line,
        &format!(r"127\.0\.0\.\d {TIME} TCP 500 0 0 \d+\.\d{{3}}"),
    );
}
