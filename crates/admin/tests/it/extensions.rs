//! Endpoints that plugins serve.

use crate::fake::{Api, Fake};
use admin::control::Database;
use plugin::{Endpoint, EndpointAnswer, EndpointReply, EndpointRequest, Node};
use serde_json::json;
use std::sync::Arc;

/// Answers with what the handler got.
fn echo(request: EndpointRequest, node: Arc<Node>) -> EndpointReply {
    let shown = json!({
        "method": request.method,
        "key": request.parameter("key"),
        "first": request.query("first"),
        "flag": request.query("flag"),
        "absent": request.query("absent"),
        "body": String::from_utf8_lossy(&request.body),
        "hostname": node.identity.hostname,
    });
    EndpointAnswer::json(200, &shown).into()
}

fn waits(_: EndpointRequest, _: Arc<Node>) -> EndpointReply {
    EndpointReply::Wait(Box::pin(async {
        tokio::task::yield_now().await;
        EndpointAnswer::empty(204)
    }))
}

fn api(endpoints: Vec<Endpoint>) -> Api {
    Api::new(Fake::new(Database::Off).with_endpoints(endpoints))
}

fn cache() -> Vec<Endpoint> {
    vec![
        Endpoint::new("cache", "/cache-of-plugin").on("DELETE", "Delete everything", waits),
        Endpoint::new("cache", "/cache-of-plugin/{key}")
            .on("GET", "Get an entry", echo)
            .on("POST", "Change an entry", echo),
        Endpoint::new("cache", "/cache-of-plugin/{plugin}/caches/{key}").on(
            "GET",
            "Get an entry of one instance",
            echo,
        ),
    ]
}

#[tokio::test]
async fn a_handler_gets_the_request_and_answers() {
    let api = api(cache());
    let answer = api.get("/cache-of-plugin/a%20b?first=1&flag&first=2").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json(),
        json!({
            "method": "GET", "key": "a b", "first": "1", "flag": "", "absent": null, "body": "", "hostname": "",
        })
    );
    let headers = [("content-type", "application/json")];
    let path = "/cache-of-plugin/k/";
    let answer = api.send("POST", path, &headers, "{\"a\": 1}").await;
    assert_eq!(answer.json()["body"], "{\"a\": 1}");
    let answer = api.get("/cache-of-plugin/p/caches/k").await;
    assert_eq!(answer.json()["key"], "k");
}

#[tokio::test]
async fn an_answer_may_wait_and_may_have_no_body() {
    let answer = api(cache())
        .send("DELETE", "/cache-of-plugin", &[], "")
        .await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
}

#[tokio::test]
async fn methods_of_an_endpoint_are_those_that_its_plugin_has() {
    let api = api(cache());
    let answer = api.send("OPTIONS", "/cache-of-plugin/k", &[], "").await;
    assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS, POST");
    let answer = api.send("HEAD", "/cache-of-plugin/k", &[], "").await;
    assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    let answer = api.send("PUT", "/cache-of-plugin/k", &[], "").await;
    assert_ne!(answer.status, 200);
    let answer = api.send("DELETE", "/cache-of-plugin/k", &[], "").await;
    assert_eq!(answer.status, 405);
}

#[tokio::test]
async fn endpoints_of_plugins_are_listed_and_described() {
    let api = api(cache());
    let listed = api.get("/endpoints").await.json();
    let document = api.get("/openapi.json").await.json();
    for endpoint in cache() {
        let paths = listed["data"].as_array().unwrap();
        assert!(paths.contains(&json!(endpoint.path)), "{endpoint:?}");
        for operation in &endpoint.operations {
            let method = operation.method.to_ascii_lowercase();
            let described = &document["paths"][&*endpoint.path][method];
            assert_eq!(described["summary"], json!(operation.summary));
        }
    }
}

#[tokio::test]
async fn a_plugin_cannot_take_a_path_of_the_api() {
    let paths = [
        "/services",
        "/services/{id}",
        "/changes",
        "/revisions/{n}",
        "/robots.txt",
        "/",
        "/new/",
        "no-slash",
        "/half-{open",
        "/all/{*rest}",
    ];
    let endpoints = paths.map(|path| Endpoint::new("bad", path).on("GET", "Take it", echo));
    let twice = ["/twice/{a}", "/twice/{b}"]
        .map(|path| Endpoint::new("bad", path).on("GET", "Take it", echo));
    let api = api([&endpoints[..], &twice[..]].concat());
    let answer = api.get("/services").await.json();
    assert!(answer["data"].is_array());
    assert_eq!(api.get("/new").await.status, 404);
    assert_eq!(api.get("/twice/k").await.status, 200);
    let listed = api.get("/endpoints").await.json();
    let listed = listed["data"].as_array().unwrap();
    assert!(listed.contains(&json!("/twice/{a}")));
    assert!(!listed.contains(&json!("/twice/{b}")));
}
