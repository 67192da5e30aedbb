//! Tests of the plugin: the records in the file, and the paths that are refused.

use super::def;
use crate::testing::{case, eventually};
use plugin::testing::refusal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Waits until the file has this number of lines, and returns them.
fn records(path: &Path, number: usize) -> Vec<Value> {
    let lines = eventually(|| {
        let text = String::from_utf8(fs::read(path).ok()?).expect("a record is UTF-8");
        (text.ends_with('\n') && text.lines().count() == number).then_some(text)
    });
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn each_record_is_a_line_whatever_the_client_sends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    let fields = json!({"text": "return 'a\\nb\\0\\255'"});
    let case = case(def(), json!({"path": path, "custom_fields_by_lua": fields}));
    case.request("GET /1?a=%0a").header("x-a", "b\tc").run_now();
    case.request("GET /2")
        .header("x-long", "y".repeat(7_000))
        .run_now();
    let records = records(&path, 2);
    assert_eq!(records[0]["request"]["querystring"]["a"], "\n");
    assert_eq!(records[0]["request"]["headers"]["x-a"], "b\tc");
    assert_eq!(records[0]["text"], "a\nb\0\u{fffd}");
    assert_eq!(
        records[1]["request"]["headers"]["x-long"],
        "y".repeat(7_000)
    );
}

#[test]
fn instances_with_one_path_write_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.log");
    let first = case(def(), json!({"path": path}));
    first.request("GET /1").run_now();
    let fields = json!({"path": path, "custom_fields_by_lua": {"other": "return true"}});
    let second = case(def(), fields).on(first.node().clone());
    second.request("GET /2").run_now();
    let records = records(&path, 2);
    assert_eq!(records[1]["other"], true);
    assert_eq!(first.node().queues.counts().len(), 1);
}

#[test]
fn paths_with_special_characters_are_refused() {
    crate::install();
    for path in ["/tmp/a*", "/tmp/a&b", "/tmp/%d", "/tmp/`a`"] {
        let error = refusal(&def(), json!({"path": path}));
        assert!(error.contains("not a valid filename"), "{path}: {error}");
    }
}
