//! Access to the Admin API over the network: tokens, their roles, and settings that are refused at start.

use crate::{launch, launch_in};
use std::os::unix::net::UnixStream;
use std::process::Output;
use testkit::{Client, Gateway, HttpResponse, Launch, request};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const SERVICE: &[u8] = br#"{"url": "http://a.test"}"#;

fn run(launch: &Launch, words: &[&str]) -> Output {
    launch.other(words).output().expect("it runs")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", complaint(output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn token(launch: &Launch, name: &str, role: &str) -> String {
    said(&run(launch, &["tokens", "create", name, "--role", role]))
}

fn ask(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
    let headers = [&[JSON], headers].concat();
    let body = if method == "GET" { b"" } else { SERVICE };
    request(gateway.admin, method, path, &headers, body)
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn failure(launch: Launch) -> String {
    launch.try_start().map(drop).expect_err("it started")
}

#[test]
fn the_first_token_ends_open_access_and_each_token_allows_what_its_role_allows() {
    let gateway = launch().start();
    assert_eq!(ask(&gateway, "POST", "/services", &[]).status, 201);
    let writer = token(gateway.launch(), "ci", "admin");
    let reader = token(gateway.launch(), "dashboard", "read-only");

    let refused = ask(&gateway, "GET", "/services", &[]);
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.header("www-authenticate"),
        Some("Bearer realm=\"silverback\"")
    );
    let text = refused.json()["message"].as_str().map(str::to_owned);
    assert!(text.is_some_and(|text| text.contains("Kong-Admin-Token")));
    let wrong = ask(
        &gateway,
        "GET",
        "/services",
        &[("Authorization", "Bearer silverback_0")],
    );
    assert_eq!(wrong.status, 401);
    let challenge = wrong.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains("invalid_token"), "{challenge}");

    let (writer, reader) = (bearer(&writer), bearer(&reader));
    let (writes, reads) = (("Authorization", &*writer), ("Authorization", &*reader));
    assert_eq!(ask(&gateway, "POST", "/services", &[writes]).status, 201);
    assert_eq!(ask(&gateway, "GET", "/services", &[reads]).status, 200);
    let valid = ask(&gateway, "POST", "/schemas/services/validate", &[reads]);
    assert_eq!(valid.status, 200, "{}", valid.text());
    for (method, path) in [
        ("POST", "/services"),
        ("PUT", "/services/a"),
        ("DELETE", "/cache"),
    ] {
        let refused = ask(&gateway, method, path, &[reads]);
        assert_eq!(refused.status, 403, "{method} {path}");
        let message = refused.json()["message"].to_string();
        assert!(message.contains("read-only"), "{message}");
    }
    let kongs = ("Kong-Admin-Token", writer.trim_start_matches("Bearer "));
    assert_eq!(ask(&gateway, "POST", "/services", &[kongs]).status, 201);
    let listed = ask(&gateway, "GET", "/services", &[writes]).json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(3), "{listed}");
}

#[test]
fn some_requests_need_no_token() {
    let gateway = launch().start();
    token(gateway.launch(), "ci", "admin");
    assert_eq!(ask(&gateway, "GET", "/", &[]).status, 401);
    // Browsers send this preflight request without a token.
    assert_eq!(ask(&gateway, "OPTIONS", "/services", &[]).status, 204);
    assert_eq!(
        testkit::get(gateway.status, "/status/ready", &[]).status,
        200
    );
    let socket = gateway.launch().prefix().join("admin.sock");
    let stream = UnixStream::connect(socket).expect("it listens");
    let answer = Client::over(stream).request("POST", "/services", &[JSON], SERVICE);
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[test]
fn a_revoked_token_is_refused_immediately() {
    let gateway = launch().start();
    let launch = gateway.launch();
    assert_eq!(said(&run(launch, &["tokens", "list"])), "no tokens");
    let first = bearer(&token(launch, "first", "admin"));
    let second = bearer(&token(launch, "second", "read-only"));
    let status = |token: &str| ask(&gateway, "GET", "/", &[("Authorization", token)]).status;
    assert_eq!((status(&first), status(&second)), (200, 200));
    let list = said(&run(launch, &["tokens", "list"]));
    let lines: Vec<Vec<&str>> = list
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0][1..], ["admin", "first"]);
    assert_eq!(lines[1][1..], ["read-only", "second"]);
    for part in [&first, &second] {
        assert!(!list.contains(part.trim_start_matches("Bearer silverback_")));
    }
    said(&run(launch, &["tokens", "revoke", "first"]));
    assert_eq!((status(&first), status(&second)), (401, 200));
    // When the token file becomes unreadable, the tokens that were loaded before stay valid and no others do.
    let file = launch.prefix().join("admin_tokens");
    std::fs::write(&file, "nonsense\n").expect("writable");
    assert_eq!((status(&first), status(&second)), (401, 200));
    gateway.wait_for_log("stay as they were");
    std::fs::remove_file(&file).expect("there");
    assert_eq!(status("Bearer whatever"), 200, "as without tokens");
    assert!(
        !gateway
            .log()
            .contains(first.trim_start_matches("Bearer silverback_"))
    );
}

#[test]
fn tokens_have_names_that_are_checked() {
    let launch = launch();
    token(&launch, "ci", "admin");
    for (words, problem) in [
        (&["tokens", "create", "ci"][..], "`ci` already"),
        (&["tokens", "create", "a b"], "letters"),
        (&["tokens", "create", "x", "--role", "root"], "read-only"),
        (&["tokens", "revoke", "nobody"], "no token `nobody`"),
    ] {
        let output = run(&launch, words);
        assert!(!output.status.success(), "{words:?}");
        assert!(
            complaint(&output).contains(problem),
            "{}",
            complaint(&output)
        );
    }
}

#[test]
fn other_machines_are_let_in_only_by_credentials_or_on_purpose() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let open = || launch_in(directory.path()).set("admin_listen", "0.0.0.0:0");
    let log = failure(open());
    for part in [
        "admin_listen",
        "0.0.0.0:0",
        "silverback tokens create",
        "admin_allow_unauthenticated",
    ] {
        assert!(log.contains(part), "{part} is missing in: {log}");
    }
    let check = run(&open(), &["check"]);
    assert!(complaint(&check).contains("admin_allow_unauthenticated"));

    let gateway = open().set("admin_allow_unauthenticated", "on").start();
    assert_eq!(ask(&gateway, "GET", "/", &[]).status, 200);
    assert!(gateway.stop().success());

    let text = bearer(&token(&open(), "ci", "admin"));
    let mut gateway = open().start();
    gateway.wait_for_log("there is no `ssl`");
    assert_eq!(ask(&gateway, "GET", "/", &[]).status, 401);
    assert_eq!(
        ask(&gateway, "GET", "/", &[("Authorization", &text)]).status,
        200
    );
    // After the last token is revoked, the listener refuses everybody, and a new process would refuse to start.
    said(&run(gateway.launch(), &["tokens", "revoke", "ci"]));
    for headers in [&[][..], &[("Authorization", &*text)]] {
        assert_eq!(ask(&gateway, "GET", "/", headers).status, 401);
    }
    let reason = gateway.upgrade().expect_err("it must not start");
    assert!(reason.contains("admin_allow_unauthenticated"), "{reason}");
    let text = bearer(&token(gateway.launch(), "again", "admin"));
    assert_eq!(
        ask(&gateway, "GET", "/", &[("Authorization", &text)]).status,
        200
    );
}

#[test]
fn an_unusable_token_file_is_reported_at_start() {
    let launch = launch();
    let file = launch.prefix().join("admin_tokens");
    std::fs::write(&file, "# fine\nci admin\n").expect("writable");
    let log = failure(launch);
    for part in [
        "admin_tokens_file",
        "admin_tokens: line 2",
        "name, role, hash and time",
    ] {
        assert!(log.contains(part), "{part} is missing in: {log}");
    }
}
