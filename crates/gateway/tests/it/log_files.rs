//! Tests of file-log from end to end: rotation, shutdown, and logs that hide credentials.

use crate::http_log::wait_for;
use crate::launch;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use testkit::Echo;

fn configuration(echo: &Echo, path: &Path) -> String {
    let service =
        json!({"name": "logged", "url": echo.url(), "routes": [{"name": "r", "paths": ["/"]}]});
    let plugin = json!({"name": "file-log", "config": {"path": path}});
    json!({"_format_version": "3.0", "services": [service], "plugins": [plugin]}).to_string()
}

fn uris(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let records = text.lines().map(|line| {
        let record: Value = serde_json::from_str(line).expect("each line is a record");
        record["request"]["uri"]
            .as_str()
            .expect("a text")
            .to_owned()
    });
    records.collect()
}

#[test]
fn a_renamed_file_gets_no_more_records_after_the_signal() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("requests.log");
    let echo = Echo::start();
    let gateway = launch().configuration(&configuration(&echo, &path)).start();
    gateway.get("/1?apikey=key", &[]);
    wait_for("the first record is written", || uris(&path).len() == 1);
    // Kong's records show queries.
    assert_eq!(uris(&path), ["/1?apikey=key"]);
    let renamed = directory.path().join("requests.log.1");
    fs::rename(&path, &renamed).expect("it can be renamed");
    gateway.get("/2", &[]);
    wait_for("the second record is written", || uris(&renamed).len() == 2);
    gateway.signal("USR1");
    gateway.wait_for_log("log files are opened anew");
    gateway.get("/3", &[]);
    wait_for("the third record is written", || uris(&path).len() == 1);
    assert_eq!(
        (uris(&path), uris(&renamed).len()),
        (vec!["/3".to_owned()], 2)
    );
}

#[test]
fn the_last_records_are_written_at_shutdown_and_can_hide_credentials() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("requests.log");
    let echo = Echo::start();
    let gateway = launch()
        .set("log_redact", "all")
        .configuration(&configuration(&echo, &path))
        .start();
    for number in 0..100 {
        gateway.get(
            &format!("/{number}?code=secret"),
            &[("X-Api-Key", "secret")],
        );
    }
    assert!(gateway.stop().success());
    assert_eq!(uris(&path).len(), 100);
    let text = fs::read_to_string(&path).expect("there is a file");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn logs_hide_credentials_whose_names_the_configuration_says() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("requests.log");
    let log = directory.path().join("access.log");
    let echo = Echo::start();
    let plugins = json!([
        {"name": "file-log", "config": {"path": path}},
        {"name": "key-auth", "config": {"key_names": ["x_pass"], "anonymous": "nobody"}},
        {"name": "jwt", "config": {"uri_param_names": ["proof"], "header_names": ["x-proof"], "anonymous": "nobody"}},
        {"name": "oauth2", "config": {"auth_header_name": "x-bearer", "enable_client_credentials": true,
            "global_credentials": true, "anonymous": "nobody"}}
    ]);
    let configuration = json!({
        "_format_version": "3.0",
        "consumers": [{"username": "nobody"}],
        "services": [{"name": "s", "url": echo.url(), "routes": [{"name": "r", "paths": ["/"]}]}],
        "plugins": plugins,
    });
    let gateway = launch()
        .set("log_redact", "all")
        .set(
            "nginx_http_log_format",
            "a '$request $http_x_pass $http_x_proof $http_x_bearer $arg_proof $http_referer'",
        )
        .set("proxy_access_log", format!("{} a", log.display()))
        .configuration(&configuration.to_string())
        .start();
    let target = "/?X_Pass=secret&proof[]=secret&%70roof=secret&plain=shown";
    let headers = [
        ("X-Pass", "secret"),
        ("X-Proof", "secret"),
        ("X-Bearer", "secret"),
        ("Referer", "http://a/?proof=secret&X-Amz-Signature=secret"),
    ];
    gateway.get(target, &headers);
    assert!(gateway.stop().success());
    for log in [&path, &log] {
        let text = fs::read_to_string(log).expect("there is a file");
        assert!(text.contains("plain=shown"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
