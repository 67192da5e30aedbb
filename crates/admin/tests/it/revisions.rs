//! History in the Admin API: listing and comparing revisions, and rollback.

use crate::fake::{Api, Fake, FakeResponse};
use crate::openapi::assert_described;
use crate::vectors::Exchange;
use admin::Control;
use admin::control::Database;
use model::{EntityKind, Error, ErrorCode, Object, codec};
use serde_json::{Value, json};
use store::{Change, ChangeLog, ChangeSet, Options, Origin, Retention, Revision, View};
use uuid::Uuid;

/// The API, and the requests and responses so far. Requests by `write` are not included.
struct Asked {
    api: Api,
    exchanges: Vec<Exchange>,
}

impl Asked {
    fn new(api: Api) -> Self {
        Self {
            api,
            exchanges: Vec::new(),
        }
    }

    async fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let answer = match body {
            Some(body) => self.api.json(method, path, body).await,
            None => self.api.send(method, path, &[], "").await,
        };
        let told = (answer.status, answer.json());
        self.exchanges.push(Exchange {
            method: method.to_owned(),
            path: path.to_owned(),
            answer,
        });
        told
    }

    async fn get(&mut self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, None).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Returns status and message of a refused request.
    async fn refused(&mut self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let (status, answer) = self.ask(method, path, body).await;
        assert!(status >= 400, "{path}: {answer}");
        (status, answer["message"].as_str().unwrap().to_owned())
    }

    async fn write(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
        message: &str,
    ) -> FakeResponse {
        let headers = [
            ("content-type", "application/json"),
            ("x-change-message", message),
            ("x-request-id", "request-1"),
        ];
        let answer = self
            .api
            .send(method, path, &headers, body.to_string())
            .await;
        assert!(answer.status < 300, "{}", answer.text);
        answer
    }

    /// Returns all pages of a list by following its links.
    async fn pages(&mut self, path: &str) -> Vec<Value> {
        let mut pages = vec![self.get(path).await];
        while let Some(next) = pages[pages.len() - 1]["next"].as_str() {
            let next = next.to_owned();
            pages.push(self.get(&next).await);
        }
        pages
    }
}

fn data(pages: &[Value]) -> Vec<Value> {
    let data = pages
        .iter()
        .flat_map(|page| page["data"].as_array().unwrap());
    data.cloned().collect()
}

fn numbers(pages: &[Value]) -> Vec<u64> {
    let revisions = data(pages).into_iter();
    revisions
        .map(|revision| revision["revision"].as_u64().unwrap())
        .collect()
}

/// Revision 1 creates a service, 2 creates a route to the service, 3 changes the service, and 4 deletes the route.
async fn four_revisions() -> Asked {
    let mut asked = Asked::new(Api::lmdb());
    let service = json!({"name": "shop", "url": "http://shop.test"});
    asked.write("POST", "/services", &service, "opened").await;
    let route = json!({"name": "all", "paths": ["/"]});
    asked
        .write("POST", "/services/shop/routes", &route, "routed")
        .await;
    let retries = json!({"retries": 1});
    asked
        .write("PATCH", "/services/shop", &retries, "gave up early")
        .await;
    asked
        .write("DELETE", "/routes/all", &json!({}), "closed")
        .await;
    asked
}

#[tokio::test]
async fn revisions_are_listed_newest_first_with_time_origin_and_counts() {
    let mut asked = four_revisions().await;
    let pages = asked.pages("/revisions?size=3").await;
    assert_eq!(pages.len(), 2);
    assert_eq!(numbers(&pages), [4, 3, 2, 1]);
    let all = data(&pages);
    assert_eq!(
        (&all[0]["deleted"], &all[1]["updated"], &all[3]["created"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(all[2]["message"], "routed");
    assert_eq!(all[2]["request_id"], "request-1");
    assert_eq!(all[2]["actor"], "local");
    let times: Vec<&str> = all
        .iter()
        .map(|one| one["time"].as_str().unwrap())
        .collect();
    assert!(
        times.is_sorted_by(|later, earlier| later >= earlier),
        "{times:?}"
    );

    let newest = times[0];
    for (query, expected) in [
        (format!("until={newest}"), 4),
        (format!("since={}", times[3]), 4),
        ("since=2000-01-01T00:00:00Z&until=1000000000".to_owned(), 0),
        ("since=99999999999".to_owned(), 0),
    ] {
        let pages = asked.pages(&format!("/revisions?{query}&size=1")).await;
        assert_eq!(numbers(&pages).len(), expected, "{query}");
    }
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn a_revision_shows_its_changes_as_the_api_shows_entities() {
    let mut asked = four_revisions().await;
    let service = asked.api.get("/services/shop").await.json();
    let shown = asked.get("/revisions/3").await;
    assert_eq!(shown["message"], "gave up early");
    let change = &shown["data"][0];
    assert_eq!(
        (&change["action"], &change["type"], &change["id"]),
        (&json!("update"), &json!("services"), &service["id"])
    );
    assert_eq!(change["after"], service);
    assert_eq!(change["before"]["retries"], 5);
    let removed = asked.get("/revisions/4").await["data"][0].take();
    assert_eq!(removed["action"], "delete");
    assert_eq!(removed["before"]["service"]["id"], service["id"]);
    assert_eq!(removed["after"], Value::Null);

    let difference = asked.get("/revisions/1/diff/4").await;
    assert_eq!(
        (&difference["from"], &difference["to"]),
        (&json!(1), &json!(4))
    );
    assert_eq!(difference["data"], json!([change]));
    let back = asked.get("/revisions/4/diff/1").await;
    assert_eq!(back["data"][0]["after"], change["before"]);
    assert_eq!(asked.get("/revisions/2/diff/2").await["data"], json!([]));
    assert_eq!(
        asked.get("/revisions/0/diff/4").await["data"][0]["action"],
        "create"
    );
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn an_entity_has_a_history_even_when_it_is_gone() {
    let mut asked = four_revisions().await;
    let by_name = asked.pages("/services/shop/revisions?size=1").await;
    assert_eq!((by_name.len(), numbers(&by_name)), (2, vec![3, 1]));
    let changes = data(&by_name);
    assert_eq!(
        changes[0]["change"]["before"],
        changes[1]["change"]["after"]
    );
    let id = changes[0]["change"]["id"].as_str().unwrap().to_owned();
    let by_id = asked
        .pages(&format!("/revisions?entity_type=services&entity_id={id}"))
        .await;
    assert_eq!(data(&by_id), changes);
    let until = changes[1]["time"].as_str().unwrap();
    let early = asked
        .pages(&format!("/services/shop/revisions?until={until}"))
        .await;
    assert_eq!(data(&early).last(), changes.last());

    let route = asked.get("/revisions/2").await["data"][0]["id"].take();
    let route = route.as_str().unwrap();
    let gone = asked.pages(&format!("/routes/{route}/revisions")).await;
    assert_eq!(numbers(&gone), [4, 2]);
    let named = asked.pages("/routes/all/revisions?size=1").await;
    assert_eq!(data(&named), data(&gone));
    let missing = asked.refused("GET", "/routes/none/revisions", None).await;
    let expected = "there is no routes/none, neither now nor in the kept history";
    assert_eq!(missing, (404, expected.to_owned()));
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn a_name_means_the_entity_that_has_it_or_had_it_last() {
    let mut asked = carol_and_shop().await;
    let path = "/revisions?entity_type=consumers&entity_id=carol";
    assert_eq!(numbers(&asked.pages(path).await), [6]);
    let renamed = json!({"username": "caroline"});
    asked.write("PATCH", "/consumers/carol", &renamed, "").await;
    assert_eq!(numbers(&asked.pages(path).await), [8, 6]);
    let key = asked.pages("/key-auths/k1/revisions").await;
    assert_eq!(numbers(&key), [5, 2]);
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn invalid_arguments_are_refused_by_name() {
    let mut asked = four_revisions().await;
    for (path, status, message) in [
        (
            "/revisions/5",
            404,
            "there is no revision 5, the newest is 4",
        ),
        (
            "/revisions/0",
            404,
            "there is no revision 0, the newest is 4",
        ),
        (
            "/revisions/x",
            400,
            "revision: expected a revision's number",
        ),
        (
            "/revisions/+1",
            400,
            "revision: expected a revision's number",
        ),
        (
            "/revisions/1/diff/5",
            404,
            "there is no revision 5, the newest is 4",
        ),
        (
            "/revisions/-1/diff/5",
            400,
            "from: expected a revision's number",
        ),
        (
            "/revisions/1/diff/b",
            400,
            "to: expected a revision's number",
        ),
        (
            "/revisions?since=yesterday",
            400,
            "since: expected a time, as RFC 3339 or as seconds since 1970",
        ),
        (
            "/revisions?until=2001-02-29T00:00:00Z",
            400,
            "until: expected a time, as RFC 3339 or as seconds since 1970",
        ),
        (
            "/revisions?entity_id=x",
            400,
            "entity_type: required with entity_id",
        ),
        (
            "/revisions?entity_type=routes",
            400,
            "entity_id: required with entity_type",
        ),
        (
            "/revisions?entity_type=key-auht&entity_id=x",
            400,
            "entity_type: there are no entities of the type key-auht; did you mean key-auth? The types are: acls, acme_storage, basic-auths, ca_certificates, certificates, clustering_data_planes, consumers, filter-chains, \
             hmac-auths, jwts, key-auths, key-sets, keys, oauth2, \
             parameters, plugins, ratelimiting_metrics, routes, services, snis, targets, upstreams, vaults, workspaces",
        ),
        (
            "/revisions?size=0",
            400,
            "size must be an integer between 1 and 1000",
        ),
        (
            "/revisions?offset=x",
            400,
            "'x' is not a valid offset: bad base64 encoding",
        ),
        (
            "/revisions/1/diff/2?offset=x",
            400,
            "'x' is not a valid offset: bad base64 encoding",
        ),
    ] {
        let refused = asked.refused("GET", path, None).await;
        assert_eq!(refused, (status, message.to_owned()), "{path}");
    }
    for (body, message) in [
        (json!({"message": 1}), "message: expected a string"),
        (json!({"dry_run": "yes"}), "dry_run: expected a boolean"),
        (
            json!({"expected_revision": -1}),
            "expected_revision: expected a revision's number",
        ),
        (json!({"mesage": "x"}), "mesage: unknown field"),
        (
            json!({"entities": []}),
            "entities: expected a list of <type>/<id or name>, such as services/billing",
        ),
        (
            json!({"entities": ["services/shop", "routes/none"]}),
            "entities: there is no routes/none, neither now nor in revision 1",
        ),
        (
            json!({"entities": ["basic-auths/x/y", 1]}),
            "entities: expected a list of <type>/<id or name>, such as services/billing",
        ),
    ] {
        let refused = asked
            .refused("POST", "/revisions/1/rollback", Some(&body))
            .await;
        assert_eq!(refused, (400, message.to_owned()));
    }
    let unknown = asked.refused("POST", "/revisions/9/rollback", None).await;
    assert_eq!(unknown.0, 404);
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn a_rollback_creates_a_revision_and_has_a_dry_run() {
    let mut asked = four_revisions().await;
    let stale = json!({"expected_revision": 3});
    let stale = asked
        .refused("POST", "/revisions/2/rollback", Some(&stale))
        .await;
    assert_eq!(stale, (409, "the newest revision is 4, not 3".to_owned()));
    let body = json!({"dry_run": true, "expected_revision": 4});
    let (status, tried) = asked
        .ask("POST", "/revisions/2/rollback", Some(&body))
        .await;
    assert_eq!((status, &tried["revision"]), (200, &json!(5)), "{tried}");
    assert_eq!(numbers(&asked.pages("/revisions").await)[0], 4);

    let first = asked
        .ask("POST", "/revisions/2/rollback?size=1", None)
        .await
        .1;
    assert_eq!(
        first,
        json!({
            "revision": 5, "rolled_back_to": 2, "dry_run": false,
            "created": 1, "updated": 1, "deleted": 0,
            "data": [first["data"][0]], "next": first["next"], "offset": first["offset"],
        })
    );
    let next = first["next"].as_str().unwrap().to_owned();
    let rest = asked.get(&next).await;
    let both = [first["data"][0].clone(), rest["data"][0].clone()];
    assert_eq!(tried["data"], json!(both));
    let made = asked.get("/revisions/5").await;
    assert_eq!(made["data"], tried["data"]);
    assert_eq!(made["message"], "rollback to revision 2");
    assert_eq!(asked.get("/revisions/2/diff/5").await["data"], json!([]));
    assert_eq!(asked.api.get("/services/shop/routes/all").await.status, 200);

    let body = json!({"message": "once more"});
    let again = asked
        .ask("POST", "/revisions/2/rollback", Some(&body))
        .await
        .1;
    assert_eq!(again["revision"], 5, "nothing to change: {again}");
    let all = asked
        .ask("POST", "/revisions/0/rollback", Some(&body))
        .await
        .1;
    assert_eq!((&all["revision"], &all["deleted"]), (&json!(6), &json!(2)));
    assert_eq!(asked.get("/revisions/6").await["message"], "once more");
    assert_described(&asked.exchanges).await;
}

/// Revision 1 creates the consumer `carol`, and 2 her key. 3 creates the service `shop`, and 4 changes it. 5 deletes
/// `carol` and her key, and 6 creates another `carol`. 7 creates a route to `shop`.
async fn carol_and_shop() -> Asked {
    let mut asked = Asked::new(Api::lmdb());
    let shop = json!({"name": "shop", "url": "http://127.0.0.1:1"});
    for (method, path, body) in [
        (
            "POST",
            "/consumers",
            json!({"username": "carol", "tags": ["first"]}),
        ),
        ("POST", "/consumers/carol/key-auth", json!({"key": "k1"})),
        ("POST", "/services", shop),
        ("PATCH", "/services/shop", json!({"retries": 2})),
        ("DELETE", "/consumers/carol", Value::Null),
        ("POST", "/consumers", json!({"username": "carol"})),
        (
            "POST",
            "/services/shop/routes",
            json!({"name": "all", "paths": ["/"]}),
        ),
    ] {
        asked.write(method, path, &body, "").await;
    }
    asked
}

#[tokio::test]
async fn single_entities_are_restored_and_others_stay() {
    let mut asked = carol_and_shop().await;
    let body = json!({"entities": ["services/shop"], "dry_run": true});
    let (status, tried) = asked
        .ask("POST", "/revisions/3/rollback", Some(&body))
        .await;
    assert_eq!((status, &tried["updated"]), (200, &json!(1)), "{tried}");
    assert_eq!(tried["data"][0]["after"]["retries"], 5);
    assert_eq!(asked.get("/services/shop").await["retries"], 2);

    let body = json!({"entities": ["services/shop"]});
    let (status, done) = asked
        .ask("POST", "/revisions/3/rollback", Some(&body))
        .await;
    assert_eq!((status, &done["revision"]), (200, &json!(8)), "{done}");
    assert_eq!(done["data"], tried["data"]);
    assert_eq!(done["entities"], json!(["services/shop"]));
    assert_eq!(asked.get("/services/shop").await["retries"], 5);
    assert_eq!(asked.get("/consumers/carol").await["tags"], Value::Null);
    let made = asked.get("/revisions/8").await;
    assert_eq!(made["message"], "rollback of services/shop to revision 3");
    assert_eq!(made["data"], done["data"]);
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn a_rollback_names_the_entities_that_were_deleted_together_and_stay_deleted() {
    let mut asked = carol_and_shop().await;
    let plugin = json!({"name": "key-auth"});
    asked
        .write("POST", "/routes/all/plugins", &plugin, "")
        .await;
    asked.write("DELETE", "/routes/all", &json!({}), "").await;
    asked
        .write("DELETE", "/services/shop", &json!({}), "")
        .await;
    // The plugin went with the route. The route is no part of the service: deleting the service would be refused.
    let mut told = async |revision: u64, dry_run: bool, entities: &[&str]| {
        let body = json!({"entities": entities, "dry_run": dry_run});
        let path = format!("/revisions/{revision}/rollback");
        let (status, answer) = asked.ask("POST", &path, Some(&body)).await;
        assert_eq!(status, 200, "{answer}");
        answer["not_restored"].clone()
    };
    assert_eq!(told(8, true, &["services/shop"]).await, Value::Null);
    let routed = told(8, true, &["services/shop", "routes/all"]).await;
    assert_eq!(routed[0]["type"], "plugins");
    assert_eq!(
        routed[0]["entity"],
        format!("plugins/{}", routed[0]["id"].as_str().unwrap())
    );
    for dry_run in [true, false] {
        let carol = told(2, dry_run, &["consumers/carol"]).await;
        assert_eq!(carol[0]["entity"], "key-auths/k1", "{carol}");
        assert_eq!(carol.as_array().map(Vec::len), Some(1));
    }
    let both = told(2, true, &["consumers/carol", "key-auths/k1"]).await;
    assert_eq!(both, Value::Null);
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn a_deleted_entity_is_restored_by_its_name_in_place_of_a_new_one_with_that_name() {
    let mut asked = carol_and_shop().await;
    let body = json!({"entities": ["consumers/carol", "key-auths/k1"]});
    let (status, done) = asked
        .ask("POST", "/revisions/2/rollback", Some(&body))
        .await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(
        (&done["created"], &done["deleted"]),
        (&json!(2), &json!(1)),
        "{done}"
    );
    assert_eq!(
        asked.get("/consumers/carol").await["tags"],
        json!(["first"])
    );
    assert_eq!(asked.get("/key-auths/k1").await["key"], "k1");
    let made = asked.get("/revisions/8").await;
    assert_eq!(made["message"], "rollback of 2 entities to revision 2");
    // At revision 0 the consumer did not exist. So the rollback deletes the consumer and its credential.
    let body = json!({"entities": ["consumers/carol"]});
    let gone = asked
        .ask("POST", "/revisions/0/rollback", Some(&body))
        .await
        .1;
    assert_eq!(
        (&gone["deleted"], gone["data"].as_array().map(Vec::len)),
        (&json!(2), Some(2))
    );
    assert_eq!(asked.api.get("/consumers/carol").await.status, 404);
    assert_eq!(asked.get("/services/shop").await["retries"], 2);
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn restoring_an_entity_must_not_break_a_reference() {
    let mut asked = carol_and_shop().await;
    let body = json!({"entities": ["services/shop"]});
    let used = asked
        .refused("POST", "/revisions/2/rollback", Some(&body))
        .await;
    assert_eq!(used.0, 400, "{}", used.1);
    assert!(used.1.contains("routes"), "{}", used.1);
    let body = json!({"entities": ["key-auths/k1"]});
    let owner = asked
        .refused("POST", "/revisions/2/rollback", Some(&body))
        .await;
    assert_eq!(owner.0, 400, "{}", owner.1);
    assert!(owner.1.contains("consumer"), "{}", owner.1);
    assert_eq!(numbers(&asked.pages("/revisions").await)[0], 7);
}

#[tokio::test]
async fn single_entities_are_restored_without_a_database_too() {
    let mut asked = Asked::new(Api::off());
    let config =
        |username: &str| json!({"_format_version": "3.0", "consumers": [{"username": username}]});
    for name in ["a", "b"] {
        asked.write("POST", "/config", &config(name), name).await;
    }
    let body = json!({"entities": ["consumers/a"]});
    let (status, answer) = asked
        .ask("POST", "/revisions/1/rollback", Some(&body))
        .await;
    assert_eq!((status, &answer["created"]), (200, &json!(1)), "{answer}");
    for name in ["a", "b"] {
        assert_eq!(
            asked.api.get(&format!("/consumers/{name}")).await.status,
            200
        );
    }
}

#[tokio::test]
async fn configurations_are_rolled_back_without_a_database_too() {
    let mut asked = Asked::new(Api::off());
    for name in ["a", "b"] {
        let config = json!({"_format_version": "3.0", "consumers": [{"username": name}]});
        asked.write("POST", "/config", &config, name).await;
    }
    let (status, answer) = asked.ask("POST", "/revisions/1/rollback", None).await;
    assert_eq!((status, &answer["revision"]), (200, &json!(3)), "{answer}");
    assert_eq!(asked.api.get("/consumers/a").await.status, 200);
    assert_eq!(asked.api.get("/consumers/b").await.status, 404);
}

#[test]
fn an_offline_store_is_not_rolled_back_to_an_invalid_state() {
    let fake = Fake::new(Database::Lmdb);
    let (store, context) = (fake.store(), fake.context());
    let change_set = ChangeSet {
        changes: vec![Change::Put {
            kind: EntityKind::Consumers,
            id: Uuid::from_u128(1),
            entity: codec::encode(&Object::from_iter([("username", "a".into())])),
        }],
        meta: Vec::new(),
    };
    store.commit(None, change_set, &Origin::default()).unwrap();
    let roll_back = |body: &str, may: bool| {
        let mut check = |view: &View<'_>| {
            assert_eq!(view.count(EntityKind::Consumers).unwrap(), 0);
            let unservable = Error::new(ErrorCode::DeclarativeConfig, "no");
            if may { Ok(()) } else { Err(unservable) }
        };
        let rollback = (Revision(0), body.as_bytes());
        let (status, body) = admin::roll_back(store, None, &context, rollback, &mut check);
        let answer: Value = serde_json::from_slice(&body).unwrap();
        (status, answer, store.head().0)
    };
    let refused = roll_back("{}", false);
    assert_eq!(
        (refused.0, &refused.1["message"], refused.2),
        (400, &json!("no"), 1)
    );
    let tried = roll_back(r#"{"dry_run": true}"#, true);
    assert_eq!((tried.0, &tried.1["deleted"], tried.2), (200, &json!(1), 1));
    let stale = roll_back(r#"{"expected_revision": 0}"#, true);
    assert_eq!((stale.0, stale.2), (409, 1));
    let done = roll_back("{}", true);
    assert_eq!((done.0, &done.1["revision"], done.2), (200, &json!(2), 2));
    let (status, body) = admin::read_history(&store.view().unwrap(), &context, "/revisions?size=1");
    let listed: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &listed["data"][0]["source"]),
        (200, &json!("command line"))
    );
    let view = store.view().unwrap();
    assert_eq!(admin::read_history(&view, &context, "/status").0, 404);
}

#[tokio::test]
async fn revisions_that_are_no_longer_kept_are_gone() {
    let retention = Retention {
        bytes: 5_000,
        ..Retention::default()
    };
    let options = Options {
        retention,
        ..Options::default()
    };
    let mut asked = Asked::new(Api::new(Fake::with_options(Database::Lmdb, options)));
    let many: Vec<Value> = (0..200)
        .map(|number| json!({"action": "create", "type": "consumers", "data": {"username": format!("c{number}")}}))
        .collect();
    for body in [
        json!({"changes": [many[0]]}),
        json!({"changes": many[1..]}),
        json!({"changes": [{"action": "delete", "type": "consumers", "key": "c1"}]}),
    ] {
        asked.write("POST", "/changes", &body, "x").await;
    }
    assert_eq!(numbers(&asked.pages("/revisions").await), [3]);
    let gone = asked.refused("GET", "/revisions/1", None).await;
    let message = "revision 1 is not kept any more, the oldest is 3";
    assert_eq!(gone, (410, message.to_owned()));
    for path in ["/revisions/1/diff/3", "/revisions/2"] {
        assert_eq!(asked.refused("GET", path, None).await.0, 410, "{path}");
    }
    let gone = asked.refused("POST", "/revisions/1/rollback", None).await;
    let message = "revision 1 is not kept any more, the oldest is 2";
    assert_eq!(gone, (410, message.to_owned()));
    // The store still has the state after revision 2, but no longer the changes of revision 2.
    assert_eq!(
        asked.get("/revisions/2/diff/3").await["data"][0]["action"],
        "delete"
    );
    assert_described(&asked.exchanges).await;
}

#[tokio::test]
async fn a_large_revision_and_a_large_diff_are_paged() {
    let mut asked = Asked::new(Api::lmdb());
    let many: Vec<Value> = (0..300)
        .map(|number| json!({"action": "create", "type": "consumers", "data": {"username": format!("c{number}")}}))
        .collect();
    let body = json!({"changes": many});
    asked.api.json("POST", "/changes", &body).await;
    for path in ["/revisions/1?size=70", "/revisions/0/diff/1?size=70"] {
        let pages = asked.pages(path).await;
        assert_eq!(pages.len(), 5, "{path}");
        let mut ids: Vec<String> = data(&pages)
            .iter()
            .map(|change| change["id"].as_str().unwrap().to_owned())
            .collect();
        assert!(ids.is_sorted());
        ids.dedup();
        assert_eq!(ids.len(), 300);
    }
}
