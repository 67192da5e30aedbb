//! `POST /changes`: several changes as one revision, or none of them.

use crate::fake::Api;
use serde_json::{Value, json};

async fn change(api: &Api, body: &Value) -> (u16, Value) {
    let answer = api.json("POST", "/changes", body).await;
    (answer.status, answer.json())
}

fn create(kind: &str, data: &Value) -> Value {
    json!({"action": "create", "type": kind, "data": data})
}

#[tokio::test]
async fn changes_see_those_before_them_and_make_one_revision() {
    let api = Api::lmdb();
    let old = json!({"username": "old"});
    assert_eq!(api.json("POST", "/consumers", &old).await.status, 201);
    let (status, answer) = change(
        &api,
        &json!({"changes": [
            create("services", &json!({"name": "shop", "url": "http://shop.test/v1"})),
            create("routes", &json!({"name": "all", "paths": ["/"], "service": {"name": "shop"}})),
            {"action": "update", "type": "services", "key": "shop", "data": {"retries": 1}},
            {"action": "upsert", "type": "consumers", "key": "alice", "data": {"tags": ["vip"]}},
            create("keyauth_credentials", &json!({"key": "secret", "consumer": {"username": "alice"}})),
            {"action": "delete", "type": "consumers", "key": "old"},
            {"action": "delete", "type": "consumers", "key": "never-was"},
        ]}),
    )
    .await;
    assert_eq!((status, &answer["revision"]), (200, &json!(2)), "{answer}");
    let shown = answer["changes"].as_array().unwrap();
    assert_eq!(shown.len(), 7);
    assert_eq!(shown[2]["entity"]["retries"], 1);
    assert_eq!(shown[2]["entity"]["path"], "/v1");
    assert_eq!(
        shown[5],
        json!({"action": "delete", "type": "consumers", "entity": null})
    );
    let service = api.get("/services/shop").await.json();
    assert_eq!(service, shown[2]["entity"]);
    let route = api.get("/routes/all").await.json();
    assert_eq!(route["service"]["id"], service["id"]);
    assert_eq!(
        api.get("/consumers/alice/key-auth/secret").await.status,
        200
    );
    assert_eq!(api.get("/consumers/old").await.status, 404);
}

#[tokio::test]
async fn one_error_refuses_all_changes_and_all_errors_are_listed_with_paths() {
    let api = Api::lmdb();
    let taken = json!({"username": "taken"});
    assert_eq!(api.json("POST", "/consumers", &taken).await.status, 201);
    let (status, answer) = change(
        &api,
        &json!({"changes": [
            create("services", &json!({"name": "shop", "host": "shop.test"})),
            create("routes", &json!({"paths": ["/ok", "bad"], "service": {"name": "shop"}})),
            create("routes", &json!({"protocols": ["http"]})),
            create("consumers", &json!({"username": "taken"})),
            {"action": "update", "type": "consumers", "key": "nobody", "data": {}},
            create("plugins", &json!({"name": "request-termination", "config": {"status_code": 7}})),
            create("routes", &json!({"paths": ["/"], "service": {"name": "missing"}})),
            {"action": "wipe", "type": "routes"},
            {"action": "create", "type": "gadgets"},
            {"action": "update", "type": "routes", "data": {}},
            create("services", &json!({"name": "after", "host": "after.test"})),
            {"action": "delete", "type": "services", "key": "b ad"},
        ]}),
    )
    .await;
    assert_eq!(status, 400, "{answer}");
    let problems: Vec<(u64, &str, &str)> = answer["errors"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|error| {
            let change = error["change"].as_u64().unwrap();
            error["problems"]
                .as_array()
                .unwrap()
                .iter()
                .map(move |one| {
                    (
                        change,
                        one["path"].as_str().unwrap(),
                        one["message"].as_str().unwrap(),
                    )
                })
        })
        .collect();
    let expected = [
        (
            1,
            "changes[1].data.paths[1]",
            "should start with: / (fixed path) or ~/ (regex path)",
        ),
        (
            2,
            "changes[2].data",
            "must set one of 'methods', 'hosts', 'headers', 'paths' when 'protocols' is 'http'",
        ),
        (
            3,
            "changes[3]",
            "UNIQUE violation detected on '{username=\"taken\"}'",
        ),
        (
            4,
            "changes[4]",
            "could not find the entity with '{username=\"nobody\"}'",
        ),
        (
            5,
            "changes[5].data.config.status_code",
            "value should be between 100 and 599",
        ),
        (
            6,
            "changes[6].data.service.name",
            "the foreign key cannot be resolved with '{name=\"missing\"}' for an existing 'services' entity",
        ),
        (
            7,
            "changes[7]",
            "changes[7].action: expected one of: create, upsert, update, delete",
        ),
        (
            8,
            "changes[8]",
            "changes[8].type: there are no entities of the type gadgets. The types are: acls, acme_storage, basic-auths, ca_certificates, certificates, consumers, hmac-auths, jwts, key-auths, key-sets, \
             keys, oauth2, plugins, routes, services, snis, targets, upstreams, vaults",
        ),
        (9, "changes[9]", "changes[9].key: required field missing"),
        (
            11,
            "changes[11].key",
            "invalid value 'b ad': the only accepted ascii characters are alphanumerics or ., -, _, and ~",
        ),
    ];
    assert_eq!(problems, expected);
    assert_eq!(answer["errors"][2]["error"]["code"], 5);
    assert_eq!(api.get("/services").await.json()["data"], json!([]));
    // The name of the refused service is still free.
    let (status, answer) = change(
        &api,
        &json!({"changes": [create("services", &json!({"name": "shop", "host": "shop.test"}))]}),
    )
    .await;
    assert_eq!((status, &answer["revision"]), (200, &json!(2)), "{answer}");
}

#[tokio::test]
async fn a_dry_run_shows_the_result_and_changes_nothing() {
    let api = Api::lmdb();
    let body = json!({
        "dry_run": true,
        "changes": [create("services", &json!({"name": "shop", "host": "shop.test"}))],
    });
    let (status, answer) = change(&api, &body).await;
    assert_eq!(
        (status, &answer["dry_run"], &answer["revision"]),
        (200, &json!(true), &json!(1)),
        "{answer}"
    );
    assert_eq!(answer["changes"][0]["entity"]["name"], "shop");
    assert_eq!(api.get("/services/shop").await.status, 404);
    let bad = json!({"dry_run": true, "changes": [create("services", &json!({}))]});
    assert_eq!(change(&api, &bad).await.0, 400);
}

#[tokio::test]
async fn an_unexpected_newest_revision_is_a_conflict() {
    let api = Api::lmdb();
    let body = |expected: u64, name: &str| {
        json!({
            "expected_revision": expected,
            "changes": [create("consumers", &json!({"username": name}))],
        })
    };
    assert_eq!(change(&api, &body(0, "a")).await.0, 200);
    let (status, answer) = change(&api, &body(0, "b")).await;
    assert_eq!(
        (status, answer),
        (409, json!({"message": "the newest revision is 1, not 0"}))
    );
    assert_eq!(change(&api, &body(1, "b")).await.0, 200);
}

#[tokio::test]
async fn a_malformed_body_is_refused_with_its_error() {
    let api = Api::lmdb();
    for (body, message) in [
        (json!({}), "changes: required field missing"),
        (json!({"changes": {}}), "changes: expected an array"),
        (
            json!({"changes": [], "dryrun": true}),
            "dryrun: unknown field",
        ),
        (
            json!({"changes": [], "dry_run": 1}),
            "dry_run: expected a boolean",
        ),
        (
            json!({"changes": [], "expected_revision": -1}),
            "expected_revision: expected a revision's number",
        ),
        (
            json!({"changes": [], "message": "m".repeat(5000)}),
            "message: longer than 4096 bytes",
        ),
    ] {
        let (status, answer) = change(&api, &body).await;
        assert_eq!((status, answer["message"].as_str()), (400, Some(message)));
    }
    let (status, answer) = change(&Api::off(), &json!({"changes": []})).await;
    assert_eq!((status, &answer["code"]), (405, &json!(12)));
}

#[tokio::test]
async fn writes_of_routes_warn_of_conflicts_when_they_are_asked_to() {
    let api = Api::lmdb();
    let route = json!({"name": "r", "paths": ["/r"]});
    let answer = api.json("POST", "/routes?warn=conflicts", &route).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let warning = format!(
        "299 - \"no request can get the route {id}: its conditions contradict each other\""
    );
    assert_eq!(
        (answer.status, answer.header("warning")),
        (201, warning.as_str())
    );
    let patch = json!({"paths": ["/s"]});
    let answer = api.json("PATCH", "/routes/r?warn=conflicts", &patch).await;
    assert_eq!(answer.header("warning"), warning);
    // Writes of other entities, and writes of routes without `warn`, return no warning.
    let service = json!({"url": "http://shop.test"});
    let answer = api.json("POST", "/services?warn=conflicts", &service).await;
    assert_eq!(answer.header("warning"), "");
    let answer = api.json("PATCH", "/routes/r", &patch).await;
    assert_eq!(answer.header("warning"), "");
    for dry_run in [true, false] {
        let changes = json!({
            "changes": [
                {"action": "update", "type": "routes", "key": "r", "data": {"paths": ["/t"]}},
                {"action": "delete", "type": "consumers", "key": "nobody"},
            ],
            "dry_run": dry_run,
        });
        let path = "/changes?warn=conflicts";
        let answer = api.json("POST", path, &changes).await;
        assert_eq!(
            (answer.status, answer.header("warning")),
            (200, warning.as_str())
        );
    }
}

#[tokio::test]
async fn one_error_is_counted_as_one() {
    let api = Api::lmdb();
    let bad = create("routes", &json!({"hosts": 1}));
    let (_, answer) = change(&api, &json!({"changes": [bad]})).await;
    assert_eq!(
        answer["message"],
        "nothing was changed: 1 error in 1 change"
    );
}

#[tokio::test]
async fn errors_of_many_changes_are_bounded() {
    let api = Api::lmdb();
    let bad = create("routes", &json!({"hosts": vec![1; 2000]}));
    let (status, answer) = change(&api, &json!({"changes": vec![bad; 20]})).await;
    assert_eq!(status, 400);
    assert_eq!(
        answer["message"],
        "nothing was changed: 10 errors in the first 10 of 20 changes; the others were not tried"
    );
    let told = answer["errors"].as_array().unwrap();
    assert_eq!(told.len(), 10);
    // At most a thousand problems per entity are listed. Another entry says that there are more.
    let problems = told[0]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1001);
    assert_eq!(problems[1000]["path"], "changes[0].data.hosts[1000]");
}

#[tokio::test]
async fn errors_of_one_entity_are_bounded() {
    let api = Api::lmdb();
    let answer = api
        .json("POST", "/routes", &json!({"hosts": vec![1; 2000]}))
        .await;
    let fields = &answer.json()["fields"]["hosts"];
    assert_eq!(
        (answer.status, fields.as_array().unwrap().len()),
        (400, 1001)
    );
    assert_eq!(fields[1000], "there are more errors, which are not shown");
}
