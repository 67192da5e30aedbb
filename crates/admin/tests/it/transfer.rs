//! `/import` and `/export`: all entities as one document, and documents that add to existing entities.

use crate::fake::{Api, Fake, FakeResponse};
use admin::control::Database;
use serde_json::{Value, json};

const YAML: [(&str, &str); 1] = [("content-type", "application/yaml")];
const LINES: [(&str, &str); 2] = [
    ("content-type", "application/json"),
    ("accept", "application/x-ndjson"),
];

fn services(names: &[&str]) -> Value {
    let services: Vec<Value> = (names.iter())
        .map(|name| json!({"name": name, "host": "h.test"}))
        .collect();
    json!({"_format_version": "3.0", "services": services})
}

async fn import(api: &Api, document: &Value) -> FakeResponse {
    api.json("POST", "/import", document).await
}

async fn listed(api: &Api) -> usize {
    let services = api.get("/services").await.json();
    services["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn an_import_is_one_revision_and_keeps_other_entities() {
    let api = Api::lmdb();
    let made = import(&api, &services(&["a", "b"])).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let expected = json!({"revision": 1, "created": 3, "updated": 0, "unchanged": 0});
    assert_eq!(made.json(), expected);
    let mut next = services(&["b", "c"]);
    next["services"][0]["port"] = 81.into();
    let changed = import(&api, &next).await;
    let expected = json!({"revision": 2, "created": 1, "updated": 1, "unchanged": 0});
    assert_eq!(changed.json(), expected);
    assert_eq!(listed(&api).await, 3);
    let again = import(&api, &next).await;
    let expected = json!({"revision": 2, "created": 0, "updated": 0, "unchanged": 2});
    assert_eq!(again.json(), expected);
}

#[tokio::test]
async fn an_export_imports_unchanged() {
    let api = Api::lmdb();
    import(&api, &services(&["b", "a"])).await;
    let consumer = json!({"username": "c", "custom_id": "yes"});
    api.json("POST", "/consumers", &consumer).await;
    let yaml = api.get("/export").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(
        yaml.text
            .starts_with("_format_version: '3.0'\n_transform: false\nconsumers:\n- id: "),
        "{}",
        yaml.text
    );
    let again = api.send("POST", "/import", &YAML, yaml.text.clone()).await;
    assert_eq!(again.json()["unchanged"], 3, "{}", again.text);
    let copy = Api::lmdb();
    let made = copy.send("POST", "/import", &YAML, yaml.text.clone()).await;
    assert_eq!(made.json()["created"], 4, "{}", made.text);
    assert_eq!(copy.get("/export").await.text, yaml.text);
    let json = copy.get("/export?format=json").await;
    assert_eq!(json.header("content-type"), "application/json");
    let exported = json.json();
    let names = exported["services"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|service| &service["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    let accepted = [("accept", "application/json")];
    let asked = copy.send("GET", "/export", &accepted, "").await;
    assert_eq!(asked.text, json.text);
    assert_eq!(copy.get("/export?format=xml").await.status, 400);
}

#[tokio::test]
async fn an_unread_export_does_not_keep_pages_of_the_store() {
    let fake = Fake::new(Database::Lmdb);
    let store = admin::Control::store(&fake).clone();
    let api = Api::new(fake);
    let names: Vec<String> = (0..3000).map(|number| format!("service{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    import(&api, &services(&names)).await;
    let unread = api.open("/export").await;
    let before = store.size().unwrap();
    for port in 1..200 {
        let changed = api
            .json("PATCH", "/services/service7", &json!({ "port": port }))
            .await;
        assert_eq!(changed.status, 200);
    }
    let grown = store.size().unwrap() - before;
    assert!(grown < 2 << 20, "{grown} bytes");
    let length = unread.headers()["content-length"]
        .to_str()
        .unwrap()
        .to_owned();
    let text = axum::body::to_bytes(unread.into_body(), usize::MAX).await;
    let text = String::from_utf8(text.unwrap().to_vec()).unwrap();
    assert_eq!(text.len().to_string(), length);
    assert_eq!(text.matches("\n  port: 80\n").count(), 3000);
}

#[tokio::test]
async fn large_responses_are_limited() {
    let names: Vec<String> = (0..3000).map(|number| format!("service{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lmdb = Api::lmdb();
    import(&lmdb, &services(&names)).await;
    let off = Api::off();
    let loaded = off.json("POST", "/config", &services(&names)).await;
    assert_eq!(loaded.status, 201);
    for (api, path) in [(lmdb, "/export"), (off, "/config")] {
        let mut unread = Vec::new();
        for _ in 0..8 {
            let answer = api.open(path).await;
            assert_eq!(answer.status(), 200, "{path}");
            unread.push(answer);
        }
        assert_eq!(api.get(path).await.status, 503, "{path}");
        unread.pop();
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn progress_is_sent_as_lines_with_the_result_last() {
    let api = Api::lmdb();
    let body = services(&["a"]).to_string();
    let answer = api.send("POST", "/import", &LINES, body).await;
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let lines = answer.text.lines();
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            json!({"stage": "reading"}),
            json!({"stage": "validating", "done": 2, "total": 2}),
            json!({"stage": "writing"}),
            json!({"stage": "making_live"}),
            json!({"revision": 1, "created": 2, "updated": 0, "unchanged": 0}),
        ]
    );
    let wrong = services(&["a", ""]).to_string();
    let answer = api.send("POST", "/import", &LINES, wrong).await;
    assert_eq!(answer.status, 200);
    let last: Value = serde_json::from_str(answer.text.lines().last().unwrap()).unwrap();
    assert_eq!(last["status"], 400);
    assert_eq!(last["error"]["code"], 14);
    assert!(last["error"]["fields"]["services"][1]["name"].is_string());
}

#[tokio::test]
async fn the_audit_log_has_the_outcome_of_an_import_that_reports_its_progress() {
    let fake = Fake::new(Database::Lmdb);
    let audits = fake.audits();
    let api = Api::new(fake);
    for names in [["a", "b"], ["c", ""]] {
        let body = services(&names).to_string();
        assert_eq!(api.send("POST", "/import", &LINES, body).await.status, 200);
    }
    let audits = audits.lock().unwrap();
    let outcomes: Vec<(Option<u16>, Option<u64>)> = audits
        .iter()
        .map(|audit| (audit.status, audit.revision.map(|revision| revision.0)))
        .collect();
    assert_eq!(outcomes, [(Some(200), Some(1)), (Some(400), None)]);
}

#[tokio::test]
async fn a_refused_import_changes_nothing() {
    let api = Api::lmdb();
    import(&api, &services(&["a"])).await;
    let before = api.get("/export").await.text;
    let other = "99999999-2222-4333-8444-555555555555";
    for document in [
        json!({}),
        json!({"_format_version": "9"}),
        json!({"_format_version": "3.0", "servces": []}),
        json!({"_format_version": "3.0", "services": [{"name": "b", "host": "h", "hots": 1}]}),
        json!({"_format_version": "3.0", "services": [{"name": "b", "host": "h"}, {"name": "b", "host": "h"}]}),
        json!({"_format_version": "3.0", "services": [{"id": other, "name": "a", "host": "h"}]}),
        json!({"_format_version": "3.0", "services": [{"name": "b", "host": "h"}],
            "routes": [{"name": "r", "paths": ["/"], "service": "c"}]}),
    ] {
        let refused = import(&api, &document).await;
        assert_eq!(refused.status, 400, "{document}: {}", refused.text);
        assert!(refused.json()["fields"].is_object(), "{}", refused.text);
    }
    let text = services(&["b"]).to_string();
    for end in [1, text.len() / 2, text.len() - 1] {
        let headers = [("content-type", "application/json")];
        let refused = api
            .send("POST", "/import", &headers, text[..end].to_owned())
            .await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
    assert_eq!(api.get("/export").await.text, before);
}

#[tokio::test]
async fn other_content_types_are_refused_and_large_bodies_accepted() {
    let api = Api::lmdb();
    assert_eq!(api.send("POST", "/import", &[], "").await.status, 400);
    assert_eq!(api.form("POST", "/import", "a=1").await.status, 415);
    let text = [("content-type", "text/plain")];
    assert_eq!(api.send("POST", "/import", &text, "a").await.status, 415);
    // This body is larger than `max_body_size`, which does not apply to `/import`.
    let names: Vec<String> = (0..1000).map(|number| format!("s{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let long = services(&names);
    assert!(long.to_string().len() > 20_000);
    assert_eq!(import(&api, &long).await.status, 200);
}

#[tokio::test]
async fn without_a_database_only_export_works() {
    let api = Api::off();
    api.json("POST", "/config", &services(&["a"])).await;
    let refused = import(&api, &services(&["b"])).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("/config"), "{}", refused.text);
    let exported = api.get("/export").await.text;
    let config = api.get("/config").await.json();
    assert_eq!(config["config"], exported);
}

#[tokio::test]
async fn warnings_about_an_import_are_in_its_response() {
    let api = Api::lmdb();
    let text = "_format_version: '3.0'\nservices:\n- name: a\n  host: h\n  host: i\n";
    let warning = "the imported configuration: line 5: `host` was given already in line 4; the later value is used";
    let made = api.send("POST", "/import", &YAML, text.to_owned()).await;
    assert_eq!(made.json()["warnings"], json!([warning]), "{}", made.text);
    assert_eq!(made.header("warning"), format!("299 - \"{warning}\""));
    let lines = [YAML[0], LINES[1]];
    let lines = api.send("POST", "/import", &lines, text.to_owned()).await;
    let last: Value = serde_json::from_str(lines.text.lines().last().unwrap()).unwrap();
    assert_eq!(last["warnings"], json!([warning]), "{}", lines.text);
}
