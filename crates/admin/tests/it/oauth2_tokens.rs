//! OAuth2 tokens: Kong's endpoints over the store of tokens, imports and exports.

use crate::fake::{Api, Fake, FakeResponse};
use admin::control::Database;
use serde_json::{Value, json};

const CLIENT: &str = "25377d70-0854-426d-a47a-2fb7be203832";
const SERVICE: &str = "1b6a2c58-6f2e-4f6a-8a20-000000000001";
const MISSING: &str = "1b6a2c58-6f2e-4f6a-8a20-00000000dead";

/// An API with a client and a service.
async fn api() -> Api {
    let api = Api::lmdb();
    configure(&api).await;
    api
}

async fn configure(api: &Api) {
    let consumer = json!({"username": "nora"});
    api.json("PUT", "/consumers/nora", &consumer).await;
    make_client(api).await;
    let service = json!({"name": "billing", "host": "h.test"});
    let path = format!("/services/{SERVICE}");
    assert_eq!(api.json("PUT", &path, &service).await.status, 200);
}

async fn make_client(api: &Api) {
    let client = json!({"name": "app", "client_id": "app", "client_secret": "s"});
    let path = format!("/consumers/nora/oauth2/{CLIENT}");
    let made = api.json("PUT", &path, &client).await;
    assert_eq!(made.status, 200, "{}", made.text);
}

fn token(access: &str) -> Value {
    json!({"credential": {"id": CLIENT}, "expires_in": 3600, "access_token": access})
}

async fn post(api: &Api, token: &Value) -> FakeResponse {
    api.json("POST", "/oauth2_tokens", token).await
}

async fn ids(api: &Api, path: &str) -> Vec<String> {
    let (mut ids, mut next) = (Vec::new(), path.to_owned());
    loop {
        let page = api.get(&next).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let page = page.json();
        let data = page["data"].as_array().unwrap();
        ids.extend(
            data.iter()
                .map(|one| one["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(path) => next = path.to_owned(),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn a_token_has_kongs_answers() {
    let api = api().await;
    let given = json!({"credential": {"id": CLIENT}, "service": {"name": "billing"}, "expires_in": 3600,
        "access_token": "legacy-token-1", "refresh_token": "legacy-refresh-1", "scope": "read",
        "authenticated_userid": "old-7", "created_at": 1_500_000_000, "ttl": 1000});
    let made = post(&api, &given).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let shown = made.json();
    let id = shown["id"].as_str().unwrap().to_owned();
    let ttl = shown["ttl"].as_i64().unwrap();
    assert!((990..1000).contains(&ttl), "{ttl}");
    let expected = json!({"id": id, "created_at": 1_500_000_000, "service": {"id": SERVICE},
        "credential": {"id": CLIENT}, "token_type": "bearer", "expires_in": 3600, "ttl": ttl,
        "access_token": "legacy-token-1", "refresh_token": "legacy-refresh-1", "scope": "read",
        "authenticated_userid": "old-7"});
    assert_eq!(shown, expected);
    for path in [
        format!("/oauth2_tokens/{id}"),
        "/oauth2_tokens/legacy-token-1".to_owned(),
        format!("/oauth2/app/oauth2_tokens/{id}"),
        "/services/billing/oauth2_tokens/legacy-token-1".to_owned(),
    ] {
        let found = api.get(&path).await;
        assert_eq!(found.status, 200, "{path}");
        assert_eq!(found.json()["id"], *id, "{path}");
    }
    let service = api.get(&format!("/oauth2_tokens/{id}/service")).await;
    assert_eq!(service.json()["name"], "billing");
    let client = api.get("/oauth2_tokens/legacy-token-1/credential").await;
    assert_eq!(client.json()["client_id"], "app");
    let other = api
        .json("PUT", "/services/other", &json!({"host": "h"}))
        .await;
    assert_eq!(other.status, 200);
    let path = format!("/services/other/oauth2_tokens/{id}");
    assert_eq!(api.get(&path).await.status, 404);
    assert_eq!(api.send("DELETE", &path, &[], "").await.status, 404);
    for path in ["/oauth2_tokens/legacy-token-1", "/oauth2_tokens/none"] {
        assert_eq!(
            api.send("DELETE", path, &[], "").await.status,
            204,
            "{path}"
        );
    }
    assert_eq!(api.get(&format!("/oauth2_tokens/{id}")).await.status, 404);
}

#[tokio::test]
async fn a_generated_token_has_no_end() {
    let api = api().await;
    let made = post(
        &api,
        &json!({"credential": {"id": CLIENT}, "expires_in": 60}),
    )
    .await;
    let shown = made.json();
    assert_eq!(shown["access_token"].as_str().unwrap().len(), 32);
    for field in ["refresh_token", "service", "scope", "ttl"] {
        assert_eq!(shown[field], Value::Null, "{field}");
    }
    assert!(shown["created_at"].as_i64().unwrap() > 1_700_000_000);
}

#[tokio::test]
async fn wrong_tokens_have_kongs_errors() {
    let api = api().await;
    let first = token("a");
    assert_eq!(post(&api, &first).await.status, 201);
    let id = MISSING;
    let mut with_id = token("b");
    with_id["id"] = id.into();
    with_id["refresh_token"] = "r".into();
    assert_eq!(post(&api, &with_id).await.status, 201);
    let mut same_refresh = token("c");
    same_refresh["refresh_token"] = "r".into();
    let mut foreign = token("d");
    foreign["credential"] = json!({ "id": MISSING });
    let mut with_ttl = token("e");
    with_ttl["ttl"] = (-1).into();
    let mut same_id = token("f");
    same_id["id"] = id.into();
    let mut of_mac = token("g");
    of_mac["token_type"] = "mac".into();
    for (given, status, message) in [
        (json!({}), 400, "2 schema violations (credential: required field missing; expires_in: required field missing)".to_owned()),
        (of_mac, 400, "schema violation (token_type: expected one of: bearer)".to_owned()),
        (first, 409, "UNIQUE violation detected on '{access_token=\"a\"}'".to_owned()),
        (same_refresh, 409, "UNIQUE violation detected on '{refresh_token=\"r\"}'".to_owned()),
        (foreign, 400, format!("the foreign key '{{id=\"{MISSING}\"}}' does not reference an existing 'oauth2_credentials' entity.")),
        (with_ttl, 400, "invalid option (ttl: must be an integer between 0 and 100000000)".to_owned()),
        (same_id, 400, format!("primary key violation on key '{{id=\"{id}\"}}'")),
    ] {
        let refused = post(&api, &given).await;
        assert_eq!(refused.status, status, "{}", refused.text);
        assert_eq!(refused.json()["message"], *message);
    }
    let missing = api.json("PATCH", "/oauth2_tokens/none", &json!({})).await;
    assert_eq!(missing.status, 404);
    assert_eq!(
        missing.json()["message"],
        "could not find the entity with '{access_token=\"none\"}'"
    );
    assert_eq!(api.get("/oauth2_tokens?size=0").await.status, 400);
    assert_eq!(api.get("/oauth2_tokens?offset=garbage").await.status, 400);
    assert_eq!(
        api.get(&format!("/oauth2_tokens/{MISSING}/revisions"))
            .await
            .status,
        404
    );
    let change =
        json!({"changes": [{"action": "create", "type": "oauth2_tokens", "data": token("h")}]});
    let refused = api.json("POST", "/changes", &change).await;
    assert_eq!(
        refused.status, 400,
        "tokens are not configuration: {}",
        refused.text
    );
}

#[tokio::test]
async fn a_token_is_changed_and_replaced_under_its_id() {
    let api = api().await;
    let mut given = token("a");
    given["refresh_token"] = "r".into();
    given["scope"] = "read".into();
    let id = post(&api, &given).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/oauth2_tokens/{id}");
    let changed = api
        .json("PATCH", &path, &json!({"scope": "write", "ttl": 500}))
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let shown = changed.json();
    assert_eq!(
        (&shown["scope"], &shown["refresh_token"]),
        (&json!("write"), &json!("r"))
    );
    assert!(shown["ttl"].as_i64().unwrap() > 490);
    let changed = api
        .json(
            "PATCH",
            "/oauth2_tokens/a",
            &json!({"access_token": "b", "id": MISSING}),
        )
        .await;
    assert_eq!((changed.status, &changed.json()["id"]), (200, &json!(id)));
    assert!(
        changed.json()["ttl"].as_i64().unwrap() > 480,
        "it keeps its end"
    );
    assert_eq!(api.get("/oauth2_tokens/a").await.status, 404);
    // PUT by token keeps the id, and what is not given is gone.
    let put = api.json("PUT", "/oauth2_tokens/b", &token("ignored")).await;
    let shown = put.json();
    assert_eq!(
        (put.status, &shown["id"], &shown["access_token"]),
        (200, &json!(id), &json!("b"))
    );
    assert_eq!(
        (&shown["scope"], &shown["ttl"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(api.send("DELETE", &path, &[], "").await.status, 204);
    assert_eq!(api.json("PATCH", &path, &json!({})).await.status, 404);
    let mut again = token("b");
    again["id"] = json!(id);
    assert_eq!(
        post(&api, &again).await.status,
        400,
        "only PUT brings it back"
    );
    assert_eq!(api.json("PUT", &path, &token("b")).await.status, 200);
    assert_eq!(api.get("/oauth2_tokens/b").await.status, 200);
    let nested = api
        .json("PUT", "/services/billing/oauth2_tokens/b", &token("b"))
        .await;
    assert_eq!(nested.json()["service"]["id"], SERVICE);
    let nested = api
        .json(
            "POST",
            "/oauth2/app/oauth2_tokens",
            &json!({"expires_in": 1}),
        )
        .await;
    assert_eq!(nested.json()["credential"]["id"], CLIENT);
}

#[tokio::test]
async fn lists_have_pages_and_parents() {
    let api = api().await;
    assert_eq!(
        api.get("/oauth2_tokens").await.json(),
        json!({"data": [], "next": null})
    );
    for number in 0..25 {
        let mut token = token(&format!("t{number}"));
        if number % 5 == 0 {
            token["service"] = json!({ "id": SERVICE });
        }
        assert_eq!(post(&api, &token).await.status, 201);
    }
    for (path, count) in [
        ("/oauth2_tokens?size=4", 25),
        ("/oauth2_tokens?size=25", 25),
        ("/oauth2/app/oauth2_tokens?size=7", 25),
        ("/services/billing/oauth2_tokens", 5),
    ] {
        let mut listed = ids(&api, path).await;
        listed.sort();
        listed.dedup();
        assert_eq!(listed.len(), count, "{path}");
    }
    let page = api.get("/oauth2_tokens?size=4").await.json();
    assert!(page["next"].as_str().unwrap().ends_with("&size=4"));
    assert_eq!(api.get("/services/none/oauth2_tokens").await.status, 404);
}

#[tokio::test]
async fn tokens_go_with_their_client_and_do_not_come_back_with_it() {
    let api = api().await;
    let mut given = token("a");
    given["id"] = MISSING.into();
    post(&api, &given).await;
    let path = format!("/oauth2/{CLIENT}");
    assert_eq!(api.send("DELETE", &path, &[], "").await.status, 204);
    assert_eq!(api.get("/oauth2_tokens/a").await.status, 404);
    assert_eq!(ids(&api, "/oauth2_tokens").await.len(), 0);
    make_client(&api).await;
    assert_eq!(
        api.get(&format!("/oauth2_tokens/{MISSING}")).await.status,
        404
    );
    assert_eq!(ids(&api, "/oauth2_tokens").await.len(), 0);
    // Neither the id nor the token is taken.
    let made = post(&api, &given).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(ids(&api, "/oauth2_tokens").await.len(), 1);
}

#[tokio::test]
async fn tokens_are_written_without_a_database() {
    let api = Api::off();
    let document = json!({"_format_version": "3.0", "consumers": [{"username": "nora", "oauth2_credentials": [
        {"id": CLIENT, "name": "app", "client_id": "app", "client_secret": "s"}]}]});
    let loaded = api.json("POST", "/config", &document).await;
    assert_eq!(loaded.status, 201, "{}", loaded.text);
    let made = post(&api, &token("a")).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let changed = api
        .json("PATCH", "/oauth2_tokens/a", &json!({"scope": "x"}))
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    assert_eq!(
        api.send("DELETE", "/oauth2_tokens/a", &[], "").await.status,
        204
    );
    assert_eq!(api.get("/oauth2_tokens/a").await.status, 404);
}

fn line(number: u32) -> String {
    let id = format!("1b6a2c58-6f2e-4f6a-8a20-{number:012}");
    format!(
        r#"{{"id": "{id}", "credential": {{"id": "{CLIENT}"}}, "service": null, "token_type": "bearer",
           "expires_in": 7200, "created_at": 1600000000, "access_token": "at-{number}",
           "refresh_token": "rt-{number}", "scope": "email", "authenticated_userid": null, "ttl": 4000000000.5}}"#
    )
    .replace('\n', " ")
}

const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

async fn import(api: &Api, path: &str, lines: &[String]) -> Value {
    let answer = api.send("POST", path, &[LINES], lines.join("\n")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn an_import_can_be_repeated_and_tells_what_it_refuses() {
    let api = api().await;
    let mut lines: Vec<String> = (0..1500).map(line).collect();
    lines[3] = "nonsense".to_owned();
    lines[4] = String::new();
    lines[5] = r#"{"expires_in": 1}"#.to_owned();
    lines[6] = line(6).replace(CLIENT, MISSING);
    lines[7] = line(8).replace("rt-8", "rt-x");
    lines[9] = line(9).replace("4000000000.5", "1500000000");
    lines[10] = line(10).replace("email", &"x".repeat(70_000));
    let expected = json!({"lines": 1500, "imported": 1493, "present": 0, "ended": 0, "expired": 1, "refused": 5, "errors": [
        {"line": 4, "reason": "the line is not a JSON object"},
        {"line": 6, "reason": "id: required field missing"},
        {"line": 7, "reason": format!("the foreign key '{{id=\"{MISSING}\"}}' does not reference an existing 'oauth2_credentials' entity.")},
        {"line": 11, "reason": "the line is longer than 65536 bytes"},
        {"line": 9, "reason": "a token with this id and another content exists"},
    ]});
    assert_eq!(
        import(&api, "/oauth2_tokens/import", &lines).await,
        expected
    );
    let found = api.get("/oauth2_tokens/at-1").await.json();
    assert_eq!(found["refresh_token"], "rt-1");
    assert!(found["ttl"].as_i64().unwrap() > 1_000_000_000);
    api.send("DELETE", "/oauth2_tokens/at-1", &[], "").await;
    let again = import(&api, "/oauth2_tokens/import", &lines[..3]).await;
    let expected =
        json!({"lines": 3, "imported": 0, "present": 2, "ended": 1, "expired": 0, "refused": 0});
    assert_eq!(again, expected);
    // It goes on after the lines that are done.
    let rest = import(&api, "/oauth2_tokens/import?skip=1499", &lines).await;
    assert_eq!(
        (&rest["lines"], &rest["present"]),
        (&json!(1500), &json!(1))
    );
    let wrong = api
        .send("POST", "/oauth2_tokens/import?skip=x", &[LINES], "")
        .await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn an_import_tells_its_progress_and_is_audited_at_its_end() {
    let fake = Fake::new(Database::Lmdb);
    let audits = fake.audits();
    let api = Api::new(fake);
    configure(&api).await;
    audits.lock().unwrap().clear();
    let headers = [LINES, ("accept", "application/x-ndjson")];
    let lines: Vec<String> = (0..10).map(line).collect();
    let answer = api
        .send("POST", "/oauth2_tokens/import", &headers, lines.join("\n"))
        .await;
    let last = answer.text.lines().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["summary"]["imported"], 10);
    let audits = audits.lock().unwrap();
    assert_eq!(audits.len(), 1);
    assert_eq!(
        (audits[0].status, audits[0].path.as_str()),
        (Some(200), "/oauth2_tokens/import")
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_keeps_what_is_done() {
    let api = api().await;
    let pieces: Vec<Result<String, std::io::Error>> = vec![
        Ok((0..1001).map(|number| line(number) + "\n").collect()),
        Err(std::io::Error::other("gone")),
    ];
    let body = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
    let answer = api
        .send("POST", "/oauth2_tokens/import", &[LINES], body)
        .await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["summary"]["lines"], 1000);
    assert_eq!(ids(&api, "/oauth2_tokens?size=1000").await.len(), 1000);
}

#[tokio::test]
async fn imports_that_never_end_leave_the_api_to_others() {
    let api = std::sync::Arc::new(api().await);
    let endless = || {
        axum::body::Body::from_stream(futures_util::stream::pending::<
            Result<String, std::io::Error>,
        >())
    };
    let mut sending = Vec::new();
    for _ in 0..4 {
        let (api, body) = (std::sync::Arc::clone(&api), endless());
        sending.push(tokio::spawn(async move {
            api.send("POST", "/oauth2_tokens/import", &[LINES], body)
                .await
        }));
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let refused = api
        .send("POST", "/oauth2_tokens/import", &[LINES], line(1))
        .await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(post(&api, &token("a")).await.status, 201);
    sending.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_export_can_be_imported_elsewhere() {
    let first = api().await;
    let lines: Vec<String> = (0..5).map(line).collect();
    import(&first, "/oauth2_tokens/import", &lines).await;
    post(&first, &token("hashed").clone()).await;
    let exported = first.get("/oauth2_tokens/export").await;
    assert_eq!(exported.header("content-type"), "application/x-ndjson");
    let second = api().await;
    let body = exported.text.clone();
    let answer = second
        .send("POST", "/oauth2_tokens/import", &[LINES], body)
        .await;
    assert_eq!(answer.json()["imported"], 6, "{}", answer.text);
    assert_eq!(
        second.get("/oauth2_tokens/export").await.text,
        exported.text
    );
    // A row in the form of a declarative configuration, which ends with its access token.
    let bare = line(78).replace(
        &format!(r#"{{"id": "{CLIENT}"}}"#),
        &format!("\"{CLIENT}\""),
    );
    let over = bare.replace(r#""rt-78""#, "null");
    assert_eq!(
        import(&second, "/oauth2_tokens/import", &[over]).await["expired"],
        1
    );
    assert_eq!(
        import(&second, "/oauth2_tokens/import", &[bare]).await["imported"],
        1
    );
    // A token of which only the hash is known.
    let digits = "0f".repeat(32);
    let hashed = line(77).replace("at-77", &format!("sha256:{digits}"));
    assert_eq!(
        import(&second, "/oauth2_tokens/import", &[hashed]).await["imported"],
        1
    );
    assert!(
        second
            .get("/oauth2_tokens/export")
            .await
            .text
            .contains(&digits)
    );
}

#[tokio::test]
async fn documents_bring_tokens_and_exports_have_them_if_asked() {
    let api = Api::lmdb();
    let document = json!({"_format_version": "3.0", "consumers": [{"username": "nora", "oauth2_credentials": [
        {"id": CLIENT, "name": "app", "client_id": "app", "client_secret": "s", "oauth2_tokens": [
            {"id": MISSING, "expires_in": 60, "access_token": "a", "refresh_token": "r", "ttl": 4_000_000_000u32}]}]}]});
    let made = api.json("POST", "/import", &document).await;
    assert_eq!(made.json()["created"], 4, "{}", made.text);
    let found = api.get("/oauth2_tokens/a").await.json();
    assert_eq!(found["id"], MISSING);
    let again = api.json("POST", "/import", &document).await.json();
    assert_eq!(
        (&again["created"], &again["unchanged"]),
        (&json!(0), &json!(3))
    );
    assert!(!api.get("/export").await.text.contains("oauth2_tokens"));
    let with = api
        .get("/export?format=json&oauth2_tokens=true")
        .await
        .json();
    assert_eq!(with["oauth2_tokens"][0]["access_token"], "a");
    assert_eq!(with["oauth2_tokens"][0]["ttl"], 4_000_000_000u32);
    // A rollback does not touch them.
    let back = api.json("POST", "/revisions/0/rollback", &json!({})).await;
    assert_eq!(back.status, 200, "{}", back.text);
    assert_eq!(
        api.get("/oauth2_tokens/a").await.status,
        404,
        "its client is gone"
    );
}

/// Tokens end with their client or their service, also if a rollback deletes these.
#[tokio::test]
async fn a_dry_run_of_a_rollback_counts_the_tokens_that_would_end() {
    let api = api().await;
    let rollback = async |to: u64, body: Value| {
        let path = format!("/revisions/{to}/rollback");
        let answer = api.json("POST", &path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["ended_oauth2_tokens"].clone()
    };
    // The revisions: the consumer, the client, the service.
    let dry = || json!({"dry_run": true});
    assert_eq!(rollback(1, dry()).await, Value::Null);
    for (access, of_service) in [("a", false), ("b", true), ("c", true)] {
        let mut token = token(access);
        if of_service {
            token["service"] = json!({ "id": SERVICE });
        }
        assert_eq!(post(&api, &token).await.status, 201);
    }
    let mut ended = token("d");
    ended["service"] = json!({ "id": SERVICE });
    assert_eq!(post(&api, &ended).await.status, 201);
    let deleted = api.json("DELETE", "/oauth2_tokens/d", &json!({})).await;
    assert_eq!(deleted.status, 204);
    let wanted = |count: u64| json!({"count": count, "more": false});
    assert_eq!(rollback(3, dry()).await, Value::Null);
    assert_eq!(rollback(2, dry()).await, wanted(2));
    assert_eq!(rollback(1, dry()).await, wanted(3));
    assert_eq!(rollback(0, dry()).await, wanted(3));
    // The client goes with its consumer.
    let only = json!({"dry_run": true, "entities": ["consumers/nora"]});
    assert_eq!(rollback(0, only).await, wanted(3));
    let only = json!({"dry_run": true, "entities": ["services/billing"]});
    assert_eq!(rollback(0, only).await, wanted(2));
    // Nothing has ended, and only a dry run counts.
    assert_eq!(ids(&api, "/oauth2_tokens").await.len(), 3);
    assert_eq!(rollback(2, json!({})).await, Value::Null);
    assert_eq!(ids(&api, "/oauth2_tokens").await.len(), 1);
    // Tokens of the former service are none of the one that is made again.
    let service = json!({"name": "billing", "host": "h.test"});
    let path = format!("/services/{SERVICE}");
    assert_eq!(api.json("PUT", &path, &service).await.status, 200);
    assert_eq!(rollback(2, dry()).await, Value::Null);
}
