//! The audit log of the Admin API.

use crate::launch;
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use testkit::{Client, Gateway, request};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn log_of(gateway: &Gateway) -> PathBuf {
    gateway.launch().prefix().join("logs/admin_audit.log")
}

fn lines(path: PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("it is written");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    lines.collect()
}

fn token(gateway: &Gateway, name: &str, role: &str) -> String {
    let words = ["tokens", "create", name, "--role", role];
    let output = gateway.launch().other(&words).output().expect("it runs");
    format!("Bearer {}", String::from_utf8_lossy(&output.stdout).trim())
}

#[test]
fn every_attempted_write_is_logged_without_its_body() {
    let mut gateway = launch().start();
    let path = log_of(&gateway);
    let (writer, reader) = (
        token(&gateway, "ci", "admin"),
        token(&gateway, "eyes", "read-only"),
    );
    let send = |method, target, headers: &[(&str, &str)], body: &str| {
        let headers = [&[JSON], headers].concat();
        request(gateway.admin, method, target, &headers, body.as_bytes()).status
    };
    let by_writer = ("Authorization", &*writer);
    let whole = [
        by_writer,
        ("X-Request-Id", "request-7"),
        ("X-Change-Message", "for \"alice\""),
    ];
    assert_eq!(send("PUT", "/consumers/alice", &whole, "{}"), 200);
    assert_eq!(
        send(
            "PUT",
            "/consumers/alice/key-auth/hushhush",
            &[by_writer],
            "{}"
        ),
        200
    );
    assert_eq!(
        send("POST", "/services", &[by_writer], r#"{"url": 7}"#),
        400
    );
    assert_eq!(
        send("POST", "/services", &[("Authorization", &*reader)], "{}"),
        403
    );
    assert_eq!(send("DELETE", "/services/a", &[], ""), 401);
    assert_eq!(send("GET", "/services", &[by_writer], ""), 200);
    assert_eq!(
        send(
            "POST",
            "/schemas/services/validate",
            &[by_writer],
            r#"{"url": "http://a"}"#
        ),
        200
    );
    let socket = gateway.launch().prefix().join("admin.sock");
    let stream = UnixStream::connect(socket).expect("it listens");
    Client::over(stream).request("DELETE", "/consumers/alice", &[], b"");
    let log = gateway.log();
    gateway.signal("TERM");
    assert!(gateway.wait().success());

    let text = fs::read_to_string(&path).expect("it is written");
    for secret in ["hushhush", &writer[7..], &reader[7..]] {
        assert!(!text.contains(secret) && !log.contains(secret), "{text}");
    }
    let lines = lines(path);
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            (
                text("actor"),
                text("method"),
                text("path"),
                line["status"].as_u64(),
                line["revision"].as_u64(),
            )
        })
        .collect();
    let line = |actor: &str, method: &str, path: &str, status, revision| {
        (
            actor.to_owned(),
            method.to_owned(),
            path.to_owned(),
            Some(status),
            revision,
        )
    };
    assert_eq!(
        told,
        [
            line("ci", "PUT", "/consumers/alice", 200, Some(1)),
            line(
                "ci",
                "PUT",
                "/consumers/alice/key-auth/******",
                200,
                Some(2)
            ),
            line("ci", "POST", "/services", 400, None),
            line("eyes", "POST", "/services", 403, None),
            line("-", "DELETE", "/services/a", 401, None),
            line("local", "DELETE", "/consumers/alice", 204, Some(3)),
        ]
    );
    assert_eq!(lines[0]["request_id"], "request-7");
    assert_eq!(lines[0]["message"], "for \"alice\"");
    assert_eq!(lines[5]["source"], "local");
    let source = lines[1]["source"].as_str().expect("an address");
    assert!(source.starts_with("127.0.0.1:"), "{source}");
    let made = lines[1]["request_id"].as_str().expect("one is made");
    assert_eq!(made.len(), 32);
    assert!(lines[1]["took"].as_f64().is_some_and(|took| took > 0.0));
    assert!(
        lines[1]["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
}

#[test]
fn it_is_reopened_with_the_other_logs() {
    let mut gateway = launch().start();
    let path = log_of(&gateway);
    let write = |name: &str| {
        request(
            gateway.admin,
            "PUT",
            &format!("/consumers/{name}"),
            &[JSON],
            b"{}",
        )
        .status
    };
    assert_eq!(write("before"), 200);
    let moved = path.with_extension("1");
    fs::rename(&path, &moved).expect("it is there");
    gateway.signal("USR1");
    // The thread that writes the log reopens the file a moment later.
    while !path.exists() {
        std::thread::yield_now();
    }
    assert_eq!(write("after"), 200);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert_eq!(lines(moved)[0]["path"], "/consumers/before");
    let after = lines(path);
    assert_eq!(
        (after.len(), &after[0]["path"]),
        (1, &Value::from("/consumers/after"))
    );
}

#[test]
fn it_can_be_off_or_in_another_file() {
    let mut gateway = launch().set("admin_audit_log", "off").start();
    let path = log_of(&gateway);
    assert_eq!(
        request(gateway.admin, "PUT", "/consumers/a", &[JSON], b"{}").status,
        200
    );
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(!path.exists());
    let log = launch()
        .set("admin_audit_log", "/dev/null/audit")
        .try_start();
    let log = log.map(drop).expect_err("no such folder");
    assert!(log.contains("setting admin_audit_log"), "{log}");
}
