//! What every answer has in common.

use crate::fake::{Api, Fake};
use admin::control::Database;
use serde_json::json;

#[tokio::test]
async fn every_answer_carries_kongs_headers() {
    let api = Api::off();
    for path in ["/", "/services", "/nope", "/services/nope"] {
        let answer = api.get(path).await;
        assert_eq!(answer.header("server"), "kong/3.9.1", "{path}");
        assert!(
            answer.header("x-kong-admin-latency").parse::<u64>().is_ok(),
            "{path}"
        );
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{path}");
        assert_eq!(
            answer.header("access-control-allow-credentials"),
            "true",
            "{path}"
        );
        assert_eq!(
            answer.header("content-type"),
            "application/json; charset=utf-8",
            "{path}"
        );
    }
}

#[tokio::test]
async fn headers_can_be_switched_off_and_origins_limited() {
    let fake = Fake::new(Database::Off).with_node(|node| {
        node.server_header = false;
        node.latency_header = false;
        node.gui_origins = vec!["http://gui.test".into()];
    });
    let answer = Api::new(fake).get("/").await;
    assert_eq!(answer.header("server"), "");
    assert_eq!(answer.header("x-kong-admin-latency"), "");
    assert_eq!(
        answer.header("access-control-allow-origin"),
        "http://gui.test"
    );
}

#[tokio::test]
async fn options_lists_the_methods() {
    let api = Api::off();
    for (path, methods) in [
        ("/services", "GET, HEAD, OPTIONS, POST"),
        ("/services/x", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("/status", "GET, HEAD, OPTIONS"),
    ] {
        let answer = api.send("OPTIONS", path, &[], "").await;
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.header("allow"), methods, "{path}");
        assert_eq!(
            answer.header("access-control-allow-methods"),
            methods,
            "{path}"
        );
        assert_eq!(
            answer.header("access-control-allow-headers"),
            "Content-Type",
            "{path}"
        );
    }
    let asked = [("access-control-request-headers", "X-Foo")];
    let answer = api.send("OPTIONS", "/services", &asked, "").await;
    assert_eq!(answer.header("access-control-allow-headers"), "X-Foo");
    assert_eq!(api.send("OPTIONS", "/nope", &[], "").await.status, 404);
}

#[tokio::test]
async fn head_is_get_without_a_body() {
    let answer = Api::off().send("HEAD", "/services", &[], "").await;
    assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    assert_eq!(answer.header("content-length"), "23");
    assert_eq!(
        answer.header("content-type"),
        "application/json; charset=utf-8"
    );
}

#[tokio::test]
async fn a_path_that_is_no_text_is_refused_as_json() {
    let answer = Api::off().get("/services/%ff").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["message"], "the path is not valid UTF-8");
}

#[tokio::test]
async fn a_trailing_slash_is_tolerated() {
    let api = Api::off();
    for path in ["/services/", "/status/", "/schemas/services/"] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_have_kongs_texts() {
    let api = Api::off();
    for path in [
        "/nope",
        "/workspaces",
        "/consumer_groups",
        "/targets",
        "/parameters",
    ] {
        let answer = api.get(path).await;
        assert_eq!(
            (answer.status, answer.json()),
            (404, json!({"message": "Not found"})),
            "{path}"
        );
    }
    for (method, path) in [
        ("PUT", "/services"),
        ("POST", "/services/x"),
        ("DELETE", "/services"),
    ] {
        let answer = api.json(method, path, &json!({})).await;
        let wanted = (405, json!({"message": "Method not allowed"}));
        assert_eq!((answer.status, answer.json()), wanted, "{method} {path}");
        let allowed = api.send("OPTIONS", path, &[], "").await;
        assert_eq!(
            answer.header("allow"),
            allowed.header("allow"),
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn bodies_beyond_their_limit_are_refused() {
    let api = Api::off();
    let large = "x".repeat(10_001);
    let json = [("content-type", "application/json")];
    let answer = api.send("POST", "/services", &json, large.clone()).await;
    assert_eq!(answer.status, 413);
    assert_eq!(
        answer.json(),
        json!({"message": "request body is larger than the limit of 10000 bytes"})
    );
    let answer = api.send("POST", "/config", &json, large).await;
    assert_eq!(answer.status, 400, "a configuration has a limit of its own");
    let answer = api
        .send("POST", "/config", &json, "x".repeat((1 << 20) + 1))
        .await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn content_types_that_are_not_taken_are_refused() {
    let api = Api::off();
    for (path, kind) in [
        ("/services", "text/yaml"),
        ("/services", "text/plain"),
        ("/config", "x/y"),
    ] {
        let answer = api
            .send("POST", path, &[("content-type", kind)], "a: 1")
            .await;
        assert_eq!(answer.status, 415, "{path} {kind}");
    }
    assert_eq!(api.send("POST", "/services", &[], "x").await.status, 415);
    assert_eq!(api.send("POST", "/services", &[], "").await.status, 400);
}

#[tokio::test]
async fn too_many_arguments_are_refused() {
    let api = Api::off();
    let many = vec!["a=1"; 1001].join("&");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let wanted = json!({"message": "Too many arguments"});
    let answer = api.send("POST", "/services", &form, many.clone()).await;
    assert_eq!((answer.status, answer.json()), (400, wanted.clone()));
    let answer = api.get(&format!("/services?{many}")).await;
    assert_eq!((answer.status, answer.json()), (400, wanted));
}

#[tokio::test]
async fn robots_are_kept_out() {
    let answer = Api::off().get("/robots.txt").await;
    assert_eq!(answer.text, "User-agent: *\nDisallow: /");
}

#[tokio::test]
async fn the_root_says_what_runs() {
    let root = Api::off().get("/").await.json();
    assert_eq!(root["version"], "3.9.1");
    assert_eq!(root["tagline"], "Welcome to kong");
    assert_eq!(root["edition"], "community");
    assert_eq!(root["configuration"]["log_level"], "notice");
    assert_eq!(root["plugins"]["enabled_in_cluster"], json!([]));
    let key_auth = &root["plugins"]["available_on_server"]["key-auth"];
    assert_eq!(key_auth["priority"], 1250);
    assert_eq!(root["pids"]["workers"], json!([1, 1]));
}

#[tokio::test]
async fn status_takes_a_unit_and_a_scale() {
    let api = Api::off();
    let status = api.get("/status?unit=k&scale=3").await.json();
    let store = &status["memory"]["lua_shared_dicts"]["store"];
    assert_eq!(store["capacity"], "0.000 KiB");
    assert_eq!(status["configuration_hash"], "0".repeat(32));
    let answer = api.get("/status?unit=z").await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json()["message"],
        "invalid unit 'z' (expected 'k/K', 'm/M', or 'g/G')"
    );
}
