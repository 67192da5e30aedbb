//! Plugins behave as recorded from Kong 3.9.1. Each case of `data/cases/` loads its configuration and sends its
//! requests; the responses, and the requests that reach the upstream, must be as recorded.

use crate::launch;
use regex::Regex;
use serde_json::Value;
use testkit::{Echo, Gateway, HttpResponse, http};

#[test]
fn key_auth_behaves_as_recorded() {
    run(include_str!("../data/cases/key-auth.json"));
}

#[test]
fn request_termination_behaves_as_recorded() {
    run(include_str!("../data/cases/request-termination.json"));
}

fn run(cases: &str) {
    let echo = Echo::start();
    let gateway = launch().set("database", "off").start();
    let filled = cases.replace("${UPSTREAM}", &echo.url());
    let cases: Vec<Value> = serde_json::from_str(&filled).expect("cases are JSON");
    let failures: Vec<String> = cases
        .iter()
        .flat_map(|case| run_case(&gateway, &echo, case))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn run_case(gateway: &Gateway, echo: &Echo, case: &Value) -> Vec<String> {
    let body = case["config"].to_string();
    let headers = [("Content-Type", "application/json")];
    let posted = http::request(gateway.admin, "POST", "/config", &headers, body.as_bytes());
    if posted.status != 201 {
        return vec![format!("{}: POST /config: {}", case["name"], posted.text())];
    }
    let mut failures: Vec<String> = unknown_keys(case, &CASE).collect();
    for (number, step) in (1..).zip(items(&case["steps"])) {
        failures.extend(unknown_keys(step, &STEP));
        failures.extend(unknown_keys(&step["request"], &REQUEST));
        let before = echo.seen().len();
        let answer = send(gateway, &step["request"]);
        let seen = echo.seen().split_off(before);
        let wrong = differences(&step["expect"], &answer, &seen);
        failures.extend(
            wrong
                .into_iter()
                .map(|wrong| format!("{} step {number}: {wrong}", case["name"])),
        );
    }
    failures
}

/// Headers that the client sends if the case has no `host`.
const CLIENT_HEADERS: [(&str, &str); 1] = [("Host", "localhost")];

fn send(gateway: &Gateway, request: &Value) -> HttpResponse {
    let text = |name: &str| request[name].as_str();
    let mut headers: Vec<(&str, &str)> = Vec::new();
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        match value {
            Value::Array(values) => {
                headers.extend(
                    values
                        .iter()
                        .filter_map(Value::as_str)
                        .map(|one| (name.as_str(), one)),
                );
            }
            value => headers.extend(value.as_str().map(|one| (name.as_str(), one))),
        }
    }
    match text("host") {
        Some(host) => headers.push(("Host", host)),
        None => headers.extend(CLIENT_HEADERS),
    }
    let address = match text("target") {
        Some("admin") => gateway.admin,
        _ => gateway.proxy,
    };
    let method = text("method").unwrap_or("GET");
    let body = match &request["body"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    http::request(
        address,
        method,
        text("path").unwrap_or("/"),
        &headers,
        body.as_bytes(),
    )
}

/// The keys of `expect` that [`differences`] compares.
const COMPARED: [&str; 9] = [
    "status",
    "headers",
    "body_equals",
    "body_regex",
    "body_json",
    "body_json_keys",
    "body_json_exact",
    "upstream_called",
    "upstream_saw",
];

/// The keys that a recorded case may have. `plugin` and `source` are only information for readers.
const CASE: [&str; 5] = ["name", "plugin", "source", "config", "steps"];
/// The keys that a step of a case may have.
const STEP: [&str; 2] = ["request", "expect"];
/// The keys that the request of a step may have. [`send`] reads them.
const REQUEST: [&str; 6] = ["method", "path", "host", "headers", "body", "target"];

/// Reports keys that are not in `known`. Without this report, a misspelt or unsupported key would check nothing.
fn unknown_keys(value: &Value, known: &[&str]) -> impl Iterator<Item = String> {
    fields(value)
        .map(|(name, _)| name)
        .filter(|name| !known.contains(&name.as_str()))
        .map(|name| format!("the key `{name}` means nothing here"))
}

/// All differences between the expected and the actual response or upstream request.
fn differences(expect: &Value, answer: &HttpResponse, seen: &[Value]) -> Vec<String> {
    let mut wrong: Vec<String> = unknown_keys(expect, &COMPARED).collect();
    let mut expected = |what: &str, wanted: &Value, actual: Value| {
        if !wanted.is_null() && !matches(wanted, &actual) {
            wrong.push(format!("{what}: {actual}, expected {wanted}"));
        }
    };
    expected("status", &expect["status"], answer.status.into());
    for (name, wanted) in fields(&expect["headers"]) {
        expected(name, wanted, joined(answer, name));
    }
    expected("body", &expect["body_equals"], answer.text().into());
    if let Some(pattern) = expect["body_regex"].as_str() {
        expected(
            "body",
            &serde_json::json!({ "regex": pattern }),
            answer.text().into(),
        );
    }
    let body = || serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    expected("body", &expect["body_json"], body());
    for name in items(&expect["body_json_keys"]) {
        let name = name.as_str().unwrap_or_default();
        expected(name, &Value::Bool(true), body().get(name).is_some().into());
    }
    if let Some(called) = expect["upstream_called"].as_bool() {
        expected("upstream called", &called.into(), (!seen.is_empty()).into());
    }
    if !expect["upstream_saw"].is_null() {
        // Otherwise every field of a request that never came would be absent as expected.
        expected("upstream called", &true.into(), (!seen.is_empty()).into());
    }
    let last = seen.last().unwrap_or(&Value::Null);
    for (name, wanted) in fields(&expect["upstream_saw"]) {
        if name != "headers" {
            expected(name, wanted, last[name].clone());
        }
    }
    for (name, wanted) in fields(&expect["upstream_saw"]["headers"]) {
        let actual = &last["headers"][name.to_ascii_lowercase()];
        expected(name, wanted, actual.clone());
    }
    let exact = &expect["body_json_exact"];
    if !exact.is_null() && *exact != body() {
        wrong.push(format!("body: {}, expected exactly {exact}", answer.text()));
    }
    wrong
}

/// The values of a header joined with commas; null when the header is missing.
fn joined(answer: &HttpResponse, name: &str) -> Value {
    let lines: Vec<&str> = answer
        .headers
        .iter()
        .filter(|(present, _)| present.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
        .collect();
    if lines.is_empty() {
        Value::Null
    } else {
        lines.join(", ").into()
    }
}

/// Whether the actual value equals the wanted one. A wanted object may instead be a condition: `{"regex"}`, `{"not"}`
/// or `{"absent"}`. In any other object, every wanted field must match; the actual object may have more fields.
fn matches(wanted: &Value, actual: &Value) -> bool {
    let Some(object) = wanted.as_object() else {
        return wanted == actual;
    };
    if object.contains_key("absent") {
        return actual.is_null();
    }
    if let Some(pattern) = object.get("regex").and_then(Value::as_str) {
        let text = actual
            .as_str()
            .map_or_else(|| actual.to_string(), str::to_owned);
        let regex = Regex::new(pattern).expect("cases have valid expressions");
        return !actual.is_null() && regex.is_match(&text);
    }
    if let Some(other) = object.get("not") {
        return !actual.is_null() && other != actual;
    }
    object
        .iter()
        .all(|(name, wanted)| matches(wanted, &actual[name]))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[test]
fn every_key_of_a_case_is_compared_or_refused() {
    use serde_json::json;
    let absent = Value::Null;
    assert!(!matches(&json!({ "not": "x" }), &absent));
    assert!(!matches(&json!({ "not": "x" }), &json!("x")));
    assert!(matches(&json!({ "not": "x" }), &json!("y")));
    let answer = HttpResponse {
        status: 200,
        line: String::new(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    assert!(differences(&json!({ "status": 200 }), &answer, &[]).is_empty());
    let saw = json!({ "upstream_saw": { "headers": { "apikey": { "absent": true } } } });
    assert_eq!(
        differences(&saw, &answer, &[]),
        ["upstream called: false, expected true"]
    );
    let request = json!({ "headers": {} });
    assert!(differences(&saw, &answer, &[request]).is_empty());
    let misspelt = differences(&json!({ "staus": 200 }), &answer, &[]);
    assert_eq!(misspelt, ["the key `staus` means nothing here"]);
}
