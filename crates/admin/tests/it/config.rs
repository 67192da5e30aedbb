//! `/config`: loading and exporting whole configurations.

use crate::fake::Api;
use serde_json::{Value, json};

fn document(services: usize) -> Value {
    let services: Vec<Value> = (0..services)
        .map(|number| {
            json!({
                "name": format!("service-{number}"),
                "url": format!("http://host-{number}.test"),
                "routes": [{"name": format!("route-{number}"), "paths": [format!("/p/{number}")]}],
            })
        })
        .collect();
    json!({"_format_version": "3.0", "services": services})
}

async fn load(api: &Api, document: &Value) -> Value {
    let answer = api.json("POST", "/config", document).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn a_response_of_many_chunks_is_complete() {
    let api = Api::off();
    let answer = load(&api, &document(1500)).await;
    assert!(answer.to_string().len() > 1 << 20);
    for kind in ["services", "routes"] {
        let entities = answer[kind].as_object().unwrap();
        assert_eq!(entities.len(), 1500);
        assert!(
            entities
                .iter()
                .all(|(id, entity)| entity["id"] == id.as_str())
        );
    }
}

#[tokio::test]
async fn an_export_loads_as_the_same_configuration() {
    let api = Api::off();
    let loaded = load(&api, &document(20)).await;
    let exported = api.get("/config").await.json();
    let text = exported["config"].as_str().unwrap();
    assert!(text.starts_with("_format_version: '3.0'\n"), "{text}");
    let yaml = [("content-type", "text/yaml")];
    let again = api.send("POST", "/config", &yaml, text.to_owned()).await;
    assert_eq!(again.status, 201, "{}", again.text);
    assert_eq!(again.json(), loaded);
}

#[tokio::test]
async fn an_invalid_configuration_does_not_replace_the_running_one() {
    let api = Api::off();
    load(&api, &document(1)).await;
    for (kind, body) in [
        (
            "application/json",
            "{\"_format_version\": \"3.0\", \"services\": [{]}",
        ),
        (
            "application/json",
            "{\"_format_version\": \"3.0\", \"services\": [{\"name\": \"x\"}]}",
        ),
        ("application/json", "[1]"),
        ("text/yaml", "a: [b"),
        ("text/yaml", "just text"),
        ("multipart/form-data; boundary=B", "--B"),
    ] {
        let headers = [("content-type", kind)];
        let answer = api.send("POST", "/config", &headers, body).await;
        assert_eq!(answer.status, 400, "{kind} {body}: {}", answer.text);
    }
    assert_eq!(api.get("/services/service-0").await.status, 200);
}

#[tokio::test]
async fn malformed_json_has_kongs_text() {
    for body in ["{bad", "{\"_format_version\": \"3.0\", \"services\": [{]}"] {
        let headers = [("content-type", "application/json")];
        let answer = Api::off().send("POST", "/config", &headers, body).await;
        let wanted = json!({"message": "Cannot parse JSON body"});
        assert_eq!((answer.status, answer.json()), (400, wanted), "{body}");
    }
}

#[tokio::test]
async fn a_single_entity_is_not_written_without_a_database() {
    let api = Api::off();
    load(&api, &document(1)).await;
    let refused = api.send("DELETE", "/services/service-0", &[], "").await;
    assert_eq!(
        refused.json()["message"],
        "cannot remove 'services' entities by 'name' when not using a database"
    );
    let missing = api.send("DELETE", "/services/missing", &[], "").await;
    assert_eq!(missing.status, 204);
    let missing = api
        .json("PATCH", "/services/missing", &json!({"retries": 1}))
        .await;
    assert_eq!((missing.status, &missing.json()["code"]), (404, &json!(6)));
    assert_eq!(
        api.get("/services").await.json()["data"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_time_to_live_is_shown_where_there_is_one() {
    let api = Api::off();
    let far = 4_000_000_000_u32;
    let credentials = json!([{"key": "a"}, {"key": "b", "ttl": far}]);
    let consumers = json!([{"username": "c", "keyauth_credentials": credentials}]);
    let document = json!({"_format_version": "3.0", "consumers": consumers});
    load(&api, &document).await;
    let shown = |key: &str| {
        let path = format!("/key-auths/{key}");
        let api = &api;
        async move { api.get(&path).await.json() }
    };
    assert!(shown("a").await.get("ttl").is_none());
    assert!(shown("b").await["ttl"].is_u64());
}

#[tokio::test]
async fn yaml_that_claims_to_be_a_form_is_loaded() {
    let api = Api::off();
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let yaml =
        "_format_version: \"3.0\"\nservices:\n- name: s\n  url: http://a.test/?a=1&b=2%3D+3\n";
    let answer = api.send("POST", "/config", &headers, yaml).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(api.get("/services/s").await.json()["host"], "a.test");
}

#[tokio::test]
async fn warnings_about_a_configuration_are_headers_of_limited_number() {
    let api = Api::off();
    let yaml = [("content-type", "text/yaml")];
    let post = async |text: String| {
        let answer = api.send("POST", "/config", &yaml, text).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let warnings = answer.headers.get_all("warning").iter();
        let warnings = warnings.map(|value| value.to_str().unwrap().to_owned());
        warnings.collect::<Vec<_>>()
    };
    let once = "_format_version: '3.0'\nservices:\n- host: h\n  host: i\n";
    assert_eq!(
        post(once.to_owned()).await,
        ["299 - \"line 4: `host` was given already in line 3; the later value is used\""]
    );
    let often = "  host: i\n".repeat(14);
    let warnings = post(format!("{once}{often}")).await;
    assert_eq!(warnings.len(), 11);
    assert_eq!(warnings[10], "299 - \"the log has 5 more warnings\"");
    assert_eq!(post("_format_version: '3.0'\n".to_owned()).await, [""; 0]);
}
