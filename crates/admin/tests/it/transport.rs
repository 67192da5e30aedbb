//! Properties that all responses share.

use crate::fake::{Api, Fake};
use admin::Limits;
use admin::control::Database;
use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;
use tower::ServiceExt;

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
async fn a_path_that_is_not_utf8_is_refused_as_json() {
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
async fn endpoints_that_accept_only_json_say_so() {
    let api = Api::lmdb();
    for path in ["/router/explain", "/revisions/1/rollback", "/changes"] {
        for kind in [
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=B",
            "application/yaml",
            "text/plain",
        ] {
            let headers = [("content-type", kind)];
            let answer = api.send("POST", path, &headers, "url=http://h/").await;
            assert_eq!(answer.status, 415, "{path} {kind}");
            let message = json!({"message": "send JSON: Content-Type: application/json"});
            assert_eq!(answer.json(), message, "{path} {kind}");
        }
    }
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

/// Number of body pieces in memory: now, and the maximum so far.
#[derive(Default)]
struct Kept {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A piece of a body. `Kept` counts the piece until it is dropped.
struct Piece(Arc<Kept>);

const PIECE: [u8; 100] = [b' '; 100];

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &PIECE
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Kept {
    fn body(self: &Arc<Self>, pieces: usize) -> Body {
        let kept = Arc::clone(self);
        Body::from_stream(stream::iter(0..pieces).map(move |_| {
            let now = kept.now.fetch_add(1, Ordering::Relaxed) + 1;
            kept.most.fetch_max(now, Ordering::Relaxed);
            Ok::<_, io::Error>(Bytes::from_owner(Piece(Arc::clone(&kept))))
        }))
    }
}

#[tokio::test]
async fn an_unneeded_body_is_discarded() {
    let (admin, status_api) = (Api::off(), Api::status(Fake::new(Database::Off)));
    let yaml = [("content-type", "text/yaml")];
    for (api, method, path, status) in [
        (&admin, "OPTIONS", "/config", 204),
        (&admin, "POST", "/nope", 404),
        (&admin, "POST", "/workspaces", 404),
        (&admin, "POST", "/status", 415),
        (&admin, "DELETE", "/config", 405),
        (&admin, "POST", "/services", 415),
        (&admin, "GET", "/services", 200),
        (&status_api, "POST", "/config", 404),
        (&status_api, "PUT", "/status/ready", 415),
    ] {
        let kept = Arc::new(Kept::default());
        let answer = api.send(method, path, &yaml, kept.body(50)).await;
        assert_eq!(answer.status, status, "{method} {path}");
        let most = kept.most.load(Ordering::Relaxed);
        assert!(most <= 2, "{method} {path}: {most}");
    }
}

#[tokio::test]
async fn a_request_without_a_connection_is_refused_before_its_body() {
    let kept = Arc::new(Kept::default());
    for (method, path, status) in [
        ("GET", "/services", 401),
        ("POST", "/config", 401),
        ("POST", "/nope", 401),
        ("OPTIONS", "/config", 204),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(kept.body(50)).unwrap();
        let answer = Api::off().router().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), status, "{method} {path}");
    }
    assert!(kept.most.load(Ordering::Relaxed) <= 2);
}

/// Returns a body that provides `first` bytes and then stalls until the sender sends or is dropped.
fn stalling(first: usize) -> (oneshot::Sender<()>, Body) {
    let (sender, receiver) = oneshot::channel();
    let pieces = stream::iter([Ok::<_, io::Error>(Bytes::from(vec![b' '; first]))]);
    let rest = receiver.map(|_| Ok(Bytes::new())).into_stream();
    (sender, Body::from_stream(pieces.chain(rest)))
}

#[tokio::test]
async fn a_large_body_cannot_use_all_body_memory() {
    let api = Api::off().with_limits(Limits {
        body_memory: 64_000,
        ..Limits::default()
    });
    let json = [("content-type", "application/json")];
    let (finish, body) = stalling(30_000);
    let mut large = Box::pin(api.send("POST", "/config", &json, body));
    assert!((&mut large).now_or_never().is_none());
    let refused = api.send("POST", "/config", &json, vec![b' '; 20_000]).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), "1");
    let small = api.send("POST", "/config", &json, vec![b' '; 10_000]).await;
    assert_eq!(small.status, 400, "{}", small.text);
    finish.send(()).unwrap();
    assert_eq!(large.await.status, 400);
    // The memory of the large body is free again.
    let again = api.send("POST", "/config", &json, vec![b' '; 32_000]).await;
    assert_eq!(again.status, 400, "{}", again.text);
    let never = api.send("POST", "/config", &json, vec![b' '; 32_001]).await;
    assert_eq!(never.status, 413);
    let text = "request body is larger than the limit of 32000 bytes";
    assert_eq!(never.json()["message"], text);
}

#[tokio::test]
async fn the_status_api_accepts_small_bodies_only() {
    let api = Api::status(Fake::new(Database::Off));
    let json = [("content-type", "application/json")];
    let answer = api
        .send("POST", "/status/ready", &json, vec![b' '; 20_000])
        .await;
    assert_eq!(answer.status, 413);
}

/// Checks that another request is answered while a validation is running.
async fn assert_validation_does_not_block_others(entity: &str, body: &Value) {
    let (open, gate) = std::sync::mpsc::channel();
    let fake = Fake::new(Database::Lmdb).with_gate(gate);
    let api = Api::new(fake.with_node(|node| node.max_body_size = None));
    let path = format!("/schemas/{entity}/validate");
    let mut heavy = Box::pin(api.json("POST", &path, body));
    assert!((&mut heavy).now_or_never().is_none());
    assert_eq!(api.get("/status").await.status, 200);
    assert!((&mut heavy).now_or_never().is_none());
    open.send(()).unwrap();
    assert_eq!(heavy.await.status, 200);
}

#[tokio::test]
async fn an_expensive_request_does_not_block_others() {
    let service = json!({"host": "h.test", "path": format!("/{}", "a".repeat(100_000))});
    assert_validation_does_not_block_others("services", &service).await;
}

/// Small validations can be expensive too, because a short regex may take long to compile.
#[tokio::test]
async fn a_small_validation_does_not_block_others() {
    let route = json!({"paths": ["~/(?i)\\pL"]});
    assert_validation_does_not_block_others("routes", &route).await;
    let plugin = json!({"name": "key-auth"});
    assert_validation_does_not_block_others("plugins", &plugin).await;
}

#[tokio::test]
async fn the_audit_log_has_the_outcome_of_a_write_whose_client_disconnected() {
    let fake = Fake::new(Database::Lmdb);
    let audits = fake.audits();
    let api = Api::new(fake);
    let (give, given) = oneshot::channel();
    let body = Body::from_stream(given.into_stream());
    let headers = [("content-type", "application/json")];
    let asked = api.send("POST", "/services", &headers, body);
    assert!(asked.now_or_never().is_none());
    let service = Bytes::from_static(br#"{"name": "s", "host": "h"}"#);
    give.send(service)
        .expect("the server is still reading the body");
    while audits.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let audits = audits.lock().unwrap();
    let revision = audits[0].revision.map(|revision| revision.0);
    assert_eq!((audits[0].status, revision), (Some(201), Some(1)));
}

#[tokio::test]
async fn the_access_log_has_status_499_of_a_request_whose_client_disconnected() {
    let fake = Fake::new(Database::Lmdb);
    let statuses = fake.statuses();
    let api = Api::new(fake);
    let headers = [("content-type", "application/json")];
    let endless = || Body::from_stream(stream::pending::<io::Result<Bytes>>());
    let asked = api.send("POST", "/services", &headers, endless());
    assert!(asked.now_or_never().is_none());
    assert_eq!(api.get("/services").await.status, 200);
    assert_eq!(*statuses.lock().unwrap(), [499, 200]);
}

#[tokio::test]
async fn the_audit_log_has_the_message_of_the_revision() {
    let fake = Fake::new(Database::Lmdb);
    let audits = fake.audits();
    let api = Api::new(fake);
    let headers = [
        ("content-type", "application/json"),
        ("x-change-message", "of the header"),
    ];
    let change = json!({"action": "create", "type": "consumers", "data": {"username": "a"}});
    let given = json!({"message": "of the body", "changes": [change]}).to_string();
    // The second request fails because the consumer already exists. It creates no revision, so the audit log has the
    // message of its header.
    for status in [200, 400] {
        let answer = api.send("POST", "/changes", &headers, given.clone()).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    let answer = api.send("PUT", "/consumers/b", &headers, "{}").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let back = json!({"message": "back"}).to_string();
    let answer = api.send("POST", "/revisions/1/rollback", &headers, back);
    assert_eq!(answer.await.status, 200);
    let audits = audits.lock().unwrap().clone();
    let messages: Vec<&str> = audits
        .iter()
        .map(|audit| audit.message.as_deref().unwrap())
        .collect();
    assert_eq!(
        messages,
        ["of the body", "of the header", "of the header", "back"]
    );
    for number in [1, 2, 3] {
        let revision = api.get(&format!("/revisions/{number}")).await.json();
        let expected = ["of the body", "of the header", "back"][number - 1];
        assert_eq!(revision["message"], expected, "{revision}");
    }
}
