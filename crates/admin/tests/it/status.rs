//! The Status API: readiness, draining, and the endpoints that it provides.

use crate::fake::{Api, Fake};
use admin::control::{Database, Readiness};
use serde_json::json;

fn api(readiness: Readiness) -> Api {
    Api::status(Fake::new(Database::Lmdb).with_readiness(readiness))
}

#[tokio::test(start_paused = true)]
async fn readiness_is_told_in_kongs_words() {
    let building = Readiness::Building {
        ready: 1,
        workers: 3,
    };
    for (readiness, status, message) in [
        (Readiness::Ready, 200, "ready"),
        (Readiness::Draining, 503, "draining"),
        (
            Readiness::Empty,
            503,
            "no configuration available (empty configuration present)",
        ),
        (
            building,
            503,
            "router builds not yet complete, router ready in 1 of 3 workers",
        ),
    ] {
        let answer = api(readiness).get("/status/ready").await;
        assert_eq!(answer.status, status, "{message}");
        assert_eq!(answer.json(), json!({ "message": message }));
    }
}

#[tokio::test]
async fn draining_is_accepted_as_form_or_json_only() {
    for wrong in [json!({}), json!({"status": "ready"}), json!({"status": 1})] {
        let api = api(Readiness::Ready);
        let answer = api.json("POST", "/status/ready", &wrong).await;
        assert_eq!(answer.status, 400, "{wrong}");
        assert_eq!(api.get("/status/ready").await.status, 200);
    }
    let api = api(Readiness::Ready);
    let body = json!({"status": "draining"});
    assert_eq!(api.json("POST", "/status/ready", &body).await.status, 204);
    assert_eq!(api.get("/status/ready").await.status, 503);
}

#[tokio::test]
async fn health_of_upstreams_exists_only_without_a_database() {
    let off = Api::status(Fake::new(Database::Off));
    let answer = off.get("/upstreams/nobody/health").await;
    assert_eq!(answer.status, 404);
    for method in ["POST", "DELETE"] {
        let refused = off
            .json(method, "/upstreams/nobody/targets", &json!({}))
            .await;
        assert_eq!(refused.status, 405, "{method}");
    }
    let lmdb = api(Readiness::Ready);
    assert_eq!(
        lmdb.json("POST", "/upstreams/nobody/targets", &json!({}))
            .await
            .status,
        404
    );
    assert_eq!(lmdb.get("/services").await.status, 404);
}
