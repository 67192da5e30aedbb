//! Tests of `/sessions` of the Admin API.

use super::stored::{Store, disturbed, stored};
use super::*;
use plugin::{EndpointAnswer, EndpointReply, EndpointRequest};
use serde_json::Value as Json;
use tokens::testing::Meanwhile;

/// Sends a request to the endpoint of a path, and returns the status and the body.
async fn send(case: &Case, method: &str, target: &str, body: Json) -> (u16, Json) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, parameters) = match path.strip_prefix("/sessions/") {
        Some(segment) => (
            "/sessions/{sessions}",
            vec![("sessions".to_owned(), segment.to_owned())],
        ),
        None => (path, Vec::new()),
    };
    let query = query.split('&').filter_map(|one| one.split_once('='));
    let request = EndpointRequest {
        method: method.to_owned(),
        parameters,
        query: query
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
            .collect(),
        body: match body {
            Json::Null => Default::default(),
            body => body.to_string().into(),
        },
    };
    let endpoints = crate::session::endpoints::endpoints();
    let endpoint = endpoints.iter().find(|one| one.path == path);
    let operations = &endpoint.expect("there is the path").operations;
    let operation = operations.iter().find(|one| one.method == method);
    let reply = (operation.expect("it has the method").handle)(request, case.node().clone());
    let EndpointAnswer { status, body } = match reply {
        EndpointReply::Ready(answer) => answer,
        EndpointReply::Wait(answer) => answer.await,
    };
    let body = body.map(|body| serde_json::from_slice(&body).expect("it is JSON"));
    (status, body.unwrap_or(Json::Null))
}

#[tokio::test]
async fn sessions_are_shown_and_deleted() {
    let store = Store::new();
    let case = stored(&store, json!({"storage": "kong"}));
    let cookie = jar(&log_in(&case));
    // A write that waits comes after those before it.
    send(&case, "DELETE", "/sessions/none", Json::Null).await;
    let (status, page) = send(&case, "GET", "/sessions", Json::Null).await;
    assert_eq!((status, &page["next"]), (200, &Json::Null));
    let [row] = &page["data"].as_array().expect("a list")[..] else {
        panic!("one row: {page}");
    };
    let now = 1_700_000_000;
    assert_eq!(
        (&row["expires"], &row["created_at"]),
        (&json!(now + 3600), &json!(now))
    );
    assert_eq!(row["ttl"], 3599);
    let session_id = row["session_id"].as_str().expect("a text");
    assert_eq!(session_id.len(), 43);
    let id = row["id"].as_str().expect("a text");
    for name in [id, session_id] {
        let shown = send(&case, "GET", &format!("/sessions/{name}"), Json::Null).await;
        assert_eq!(shown, (200, row.clone()));
    }
    assert_eq!(run(&case, &cookie).consumer(), Some("nora"));
    for _ in 0..2 {
        let path = format!("/sessions/{id}");
        assert_eq!(
            send(&case, "DELETE", &path, Json::Null).await,
            (204, Json::Null)
        );
    }
    assert_eq!(run(&case, &cookie).consumer(), Some("guest"));
    let (status, body) = send(&case, "GET", &format!("/sessions/{id}"), Json::Null).await;
    assert_eq!((status, body), (404, json!({"message": "Not found"})));
}

#[tokio::test]
async fn sessions_are_written() {
    let store = Store::new();
    let case = stored(&store, json!({"storage": "kong"}));
    let (status, made) = send(
        &case,
        "POST",
        "/sessions",
        json!({"session_id": "a", "data": "x", "ttl": 50}),
    )
    .await;
    assert_eq!(
        (status, &made["session_id"], &made["ttl"]),
        (201, &json!("a"), &json!(49))
    );
    let (status, body) = send(&case, "POST", "/sessions", json!({"session_id": "a"})).await;
    assert_eq!(
        (status, &body["message"]),
        (
            409,
            &json!("UNIQUE violation detected on '{session_id=\"a\"}'")
        )
    );
    let (status, body) = send(&case, "POST", "/sessions", json!({"data": "x"})).await;
    assert_eq!(
        (status, &body["fields"]),
        (400, &json!({"session_id": "required field missing"}))
    );
    let (status, _) = send(
        &case,
        "POST",
        "/sessions",
        json!({"session_id": "b", "ttl": -1}),
    )
    .await;
    assert_eq!(status, 400);
    let (status, body) = send(
        &case,
        "POST",
        "/sessions",
        json!({"session_id": "b", "id": made["id"]}),
    )
    .await;
    assert_eq!(
        (status, &body["name"]),
        (400, &json!("primary key violation"))
    );

    let (status, changed) = send(&case, "PATCH", "/sessions/a", json!({"data": "y"})).await;
    assert_eq!(
        (status, &changed["data"], &changed["ttl"]),
        (200, &json!("y"), &json!(49))
    );
    assert_eq!(changed["id"], made["id"]);
    let (status, put) = send(&case, "PUT", "/sessions/a", json!({"expires": 7})).await;
    assert_eq!(
        (status, &put["id"], &put["expires"]),
        (200, &made["id"], &json!(7))
    );
    assert_eq!((&put["data"], &put["ttl"]), (&Json::Null, &Json::Null));
    let (status, put) = send(&case, "PUT", "/sessions/new", Json::Null).await;
    assert_eq!((status, &put["session_id"]), (200, &json!("new")));
    let path = format!("/sessions/{}", Uuid::from_u128(5));
    let (status, put) = send(&case, "PUT", &path, json!({"session_id": "five"})).await;
    assert_eq!((status, &put["id"]), (200, &json!(Uuid::from_u128(5))));
    let (status, _) = send(&case, "PATCH", "/sessions/none", json!({})).await;
    assert_eq!(status, 404);
    let refused = send(&case, "POST", "/sessions", json!("no object")).await;
    assert_eq!(refused.0, 400);
}

/// A session may be logged out, or written by somebody else, between the two halves of a PATCH.
#[tokio::test]
async fn a_patch_revives_nothing_and_overwrites_nothing() {
    let store = Store::new();
    let case = stored(&store, json!({"storage": "kong"}));
    for id in ["a", "b"] {
        let session = json!({"session_id": id, "data": "x"});
        assert_eq!(send(&case, "POST", "/sessions", session).await.0, 201);
    }
    let store_in_use = disturbed(&store, [Meanwhile::Delete]);
    let busy = with(json!({"storage": "kong"})).sessions(store_in_use);
    let patch = json!({"expires": 9});
    let (status, _) = send(&busy, "PATCH", "/sessions/a", patch.clone()).await;
    assert_eq!(status, 404);
    let (status, _) = send(&case, "GET", "/sessions/a", Json::Null).await;
    assert_eq!(status, 404);
    // Another change is kept.
    let store_in_use = disturbed(&store, [Meanwhile::Write("other")]);
    let busy = with(json!({"storage": "kong"})).sessions(store_in_use);
    let (status, row) = send(&busy, "PATCH", "/sessions/b", patch.clone()).await;
    assert_eq!(
        (status, &row["data"], &row["expires"]),
        (200, &json!("other"), &json!(9))
    );
    // A PATCH gives up at last.
    let writes = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"].map(Meanwhile::Write);
    let store_in_use = disturbed(&store, writes);
    let busy = with(json!({"storage": "kong"})).sessions(store_in_use);
    let (status, _) = send(&busy, "PATCH", "/sessions/b", patch).await;
    assert_eq!(status, 503);
}

#[tokio::test]
async fn sessions_are_listed_in_pages() {
    let store = Store::new();
    let case = stored(&store, json!({"storage": "kong"}));
    for number in 0..70 {
        let session = json!({"session_id": number.to_string()});
        assert_eq!(send(&case, "POST", "/sessions", session).await.0, 201);
    }
    let mut path = "/sessions?size=69".to_owned();
    let mut sizes = Vec::new();
    loop {
        let (_, page) = send(&case, "GET", &path, Json::Null).await;
        sizes.push(page["data"].as_array().expect("a list").len());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        assert_eq!(
            next,
            format!(
                "/sessions?offset={}&size=69",
                page["offset"].as_str().expect("a text")
            )
        );
        path = next.to_owned();
    }
    assert_eq!(sizes, [69, 1]);
    let (_, all) = send(&case, "GET", "/sessions", Json::Null).await;
    assert_eq!(all["data"].as_array().expect("a list").len(), 70);
    for (query, name) in [
        ("size=0", "invalid size"),
        ("size=x", "invalid size"),
        ("offset=x", "invalid offset"),
    ] {
        let (status, body) = send(&case, "GET", &format!("/sessions?{query}"), Json::Null).await;
        assert_eq!((status, &body["name"]), (400, &json!(name)));
    }
    let without = with(json!({}));
    assert_eq!(send(&without, "GET", "/sessions", Json::Null).await.0, 501);
}
