//! OAuth2 tokens of the real program: commands, restarts, upgrades, settings and metrics.

use crate::{launch, launch_in};
use serde_json::{Value, json};
use std::fs;
use std::process::Output;
use testkit::{Gateway, Launch};

const CLIENT: &str = "25377d70-0854-426d-a47a-2fb7be203832";

/// A configuration with a client, and a token in a declarative file.
fn configuration() -> String {
    format!(
        r#"
_format_version: "3.0"
consumers:
  - username: nora
    oauth2_credentials:
      - id: {CLIENT}
        name: app
        client_id: app
        client_secret: s
        oauth2_tokens:
          - {{id: 0baf9337-c19e-4137-9db3-06ca9d9eb080, access_token: of-file, expires_in: 60, refresh_token: r}}
"#
    )
}

fn run(launch: &Launch, words: &[&str]) -> (bool, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = launch.other(words).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.success(), text(stdout), text(stderr))
}

fn line(number: u32) -> String {
    let id = format!("1b6a2c58-6f2e-4f6a-8a20-{number:012}");
    let token = json!({"id": id, "credential": {"id": CLIENT}, "service": null, "token_type": "bearer",
        "expires_in": 7200, "created_at": 1_600_000_000, "access_token": format!("at-{number}"),
        "refresh_token": format!("rt-{number}"), "scope": "email", "ttl": 1_209_600});
    token.to_string()
}

fn shown(gateway: &Gateway, token: &str) -> Value {
    gateway.admin_get(&format!("/oauth2_tokens/{token}")).json()
}

fn metric(gateway: &Gateway, name: &str) -> String {
    let text = gateway.admin_get("/metrics").text();
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.expect("the metric exists").to_owned()
}

#[test]
fn tokens_are_imported_exported_and_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kong.yml");
    fs::write(&file, configuration()).expect("writable");
    let prefix = directory.path().join("prefix");
    let start = || launch_in(&prefix).file(&file).start();
    let gateway = start();
    assert_eq!(shown(&gateway, "of-file")["refresh_token"], "r");
    let lines: Vec<String> = (0..50).map(line).collect();
    let path = directory.path().join("tokens.ndjson");
    fs::write(&path, lines.join("\n") + "\nnonsense\n").expect("writable");
    let path = path.to_str().expect("UTF-8");
    let (done, text, errors) = run(gateway.launch(), &["oauth2", "import", path]);
    assert!(!done, "a line is refused");
    assert_eq!(
        text,
        "51 lines: 50 tokens imported, 0 were there, 0 were known and have ended, 0 have expired, 1 refused\n"
    );
    assert!(
        errors.contains("line 51: the line is not a JSON object"),
        "{errors}"
    );
    gateway.admin_send("DELETE", "/oauth2_tokens/at-7", "");
    let words = ["oauth2", "import", path, "--skip", "5"];
    let (_, text, _) = run(gateway.launch(), &words);
    assert!(
        text.starts_with("51 lines: 0 tokens imported, 44 were there, 1 were known"),
        "{text}"
    );
    assert_eq!(metric(&gateway, "silverback_oauth2_tokens"), "50");
    let (done, exported, errors) = run(gateway.launch(), &["oauth2", "export"]);
    assert!(done, "{errors}");
    assert_eq!(exported.lines().count(), 50);
    assert!(
        !run(gateway.launch(), &["export"])
            .1
            .contains("oauth2_tokens")
    );
    let (_, with, _) = run(gateway.launch(), &["export", "--oauth2-tokens"]);
    assert!(with.contains("access_token: at-3\n"), "{with}");
    gateway.stop();
    // The file is loaded again. What was deleted stays deleted, and what the file lacks stays.
    let gateway = start();
    assert_eq!(run(gateway.launch(), &["oauth2", "export"]).1, exported);
    assert_eq!(shown(&gateway, "at-7")["message"], "Not found");
}

#[test]
fn a_new_process_has_the_tokens_of_the_one_before() {
    let mut gateway = launch().set("database", "lmdb").start();
    let consumer = json!({"username": "nora"}).to_string();
    gateway.admin_send("POST", "/consumers", &consumer);
    let client = json!({"name": "app", "client_id": "app"}).to_string();
    let path = format!("/consumers/nora/oauth2/{CLIENT}");
    assert_eq!(gateway.admin_send("PUT", &path, &client).status, 200);
    let make = |gateway: &Gateway, number| {
        let made = gateway.admin_send("POST", "/oauth2_tokens", &line(number));
        assert_eq!(made.status, 201, "{}", made.text());
    };
    make(&gateway, 1);
    gateway.upgrade().expect("it is upgraded");
    make(&gateway, 2);
    for number in [1, 2] {
        assert_eq!(shown(&gateway, &format!("at-{number}"))["expires_in"], 7200);
    }
    // A change of the client ends nothing, its deletion does.
    let renamed = json!({"name": "other"}).to_string();
    gateway.admin_send("PATCH", "/oauth2/app", &renamed);
    assert_eq!(shown(&gateway, "at-1")["expires_in"], 7200);
    gateway.admin_send("DELETE", "/oauth2/app", "");
    assert_eq!(shown(&gateway, "at-1")["message"], "Not found");
}

#[test]
fn hashed_storage_shows_hashes_and_wrong_keys_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kong.yml");
    fs::write(&file, configuration()).expect("writable");
    let prefix = directory.path().join("prefix");
    let start = || {
        let launch = launch_in(&prefix)
            .file(&file)
            .set("token_storage", "hashed");
        launch.set("token_key_file", "keys/own.key")
    };
    let gateway = start().start();
    let found = shown(&gateway, "of-file");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"of-file");
    let digits = data_encoding::HEXLOWER.encode(digest.as_ref());
    assert_eq!(found["access_token"], format!("sha256:{digits}"));
    gateway.stop();
    fs::write(prefix.join("keys/own.key"), "find me\n").expect("writable");
    let refused = start().try_start().expect_err("it is refused");
    assert!(refused.contains("token_key_file"), "{refused}");
    assert!(refused.contains("line 1: expected"), "{refused}");
}

#[test]
fn a_gateway_with_the_plugin_warns_that_tokens_are_for_one_node() {
    let plugin = "plugins: [{name: oauth2, config: {enable_client_credentials: true}}]";
    let with = format!("{}{plugin}\n", configuration());
    let gateway = launch().configuration(&with).start();
    gateway.wait_for_log("the plugin oauth2 keeps its tokens on this node");
    let without = launch().configuration(&configuration()).start();
    assert!(!without.log().contains("keeps its tokens on this node"));
}
