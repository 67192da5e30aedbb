//! Entities in a writable store.

use crate::fake::{Api, Fake, FakeResponse};
use admin::control::{AddressHealth, Database, TargetHealth, UpstreamHealth, Weight};
use futures_util::future::join_all;
use serde_json::json;
use std::collections::BTreeSet;

#[tokio::test]
async fn an_entity_lives_from_post_to_delete() {
    let api = Api::lmdb();
    let created = api
        .json(
            "POST",
            "/services",
            &json!({"name": "billing", "url": "https://b.test:8443/v1"}),
        )
        .await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.json()["port"], 8443);
    let patched = api
        .json("PATCH", "/services/billing", &json!({"retries": 3}))
        .await;
    assert_eq!(
        (patched.status, &patched.json()["retries"]),
        (200, &json!(3))
    );
    let put = api
        .json("PUT", "/services/billing", &json!({"host": "c.test"}))
        .await;
    assert_eq!((put.status, &put.json()["retries"]), (200, &json!(5)));
    assert_eq!(put.json()["id"], created.json()["id"]);
    for _ in 0..2 {
        assert_eq!(
            api.send("DELETE", "/services/billing", &[], "")
                .await
                .status,
            204
        );
    }
    assert_eq!(api.get("/services/billing").await.status, 404);
}

#[tokio::test]
async fn pages_follow_each_other_to_the_end() {
    let api = Api::lmdb();
    for number in 0..5 {
        let tags = if number % 2 == 0 {
            json!(["even"])
        } else {
            json!(["odd"])
        };
        let body = json!({"username": format!("u{number}"), "tags": tags});
        assert_eq!(api.json("POST", "/consumers", &body).await.status, 201);
    }
    let mut seen = Vec::new();
    let mut path = "/consumers?size=2&tags=even".to_owned();
    loop {
        let page = api.get(&path).await.json();
        for one in page["data"].as_array().unwrap() {
            seen.push(one["username"].as_str().unwrap().to_owned());
        }
        let Some(next) = page["next"].as_str() else {
            assert!(page.get("offset").is_none());
            break;
        };
        assert!(next.ends_with("&tags=even&size=2"), "{next}");
        path = next.to_owned();
    }
    seen.sort();
    assert_eq!(seen, ["u0", "u2", "u4"]);
    let bad = api.get("/consumers?offset=garbage").await;
    assert_eq!((bad.status, &bad.json()["code"]), (400, &json!(7)));
}

#[tokio::test]
async fn children_belong_to_their_parent_only() {
    let api = Api::lmdb();
    for name in ["a", "b"] {
        api.json(
            "POST",
            "/services",
            &json!({"name": name, "host": "x.test"}),
        )
        .await;
    }
    let route = json!({"name": "r", "paths": ["/r"]});
    let created = api.json("POST", "/services/a/routes", &route).await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(api.get("/services/a/routes/r").await.status, 200);
    for method in ["GET", "DELETE"] {
        let answer = api.send(method, "/services/b/routes/r", &[], "").await;
        assert_eq!(answer.status, 404, "{method}");
    }
    assert_eq!(api.get("/routes/r/service").await.json()["name"], "a");
    assert_eq!(
        api.send("DELETE", "/routes/r/service", &[], "")
            .await
            .status,
        405
    );
    let listed = api.get("/services/b/routes").await.json();
    assert_eq!(listed, json!({"data": [], "next": null}));
    let refused = api.send("DELETE", "/services/a", &[], "").await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(4)));
}

#[tokio::test]
async fn references_are_found_by_name() {
    let api = Api::lmdb();
    api.json("POST", "/services", &json!({"name": "a", "host": "x.test"}))
        .await;
    let by_name = json!({"paths": ["/x"], "service": {"name": "a"}});
    let created = api.json("POST", "/routes", &by_name).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let dangling = json!({"paths": ["/x"], "service": {"name": "b"}});
    let refused = api.json("POST", "/routes", &dangling).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(13)));
    assert_eq!(
        refused.json()["message"],
        "foreign key unresolved (service.name: the foreign key cannot be resolved with '{name=\"b\"}' for an \
         existing 'services' entity)"
    );
    let form = api
        .form("POST", "/routes", "name=f&paths[]=/f&service.name=a")
        .await;
    assert_eq!(form.status, 201, "{}", form.text);
}

#[tokio::test]
async fn a_credential_shows_the_seconds_that_are_left() {
    let api = Api::lmdb();
    api.json("POST", "/consumers", &json!({"username": "al"}))
        .await;
    let created = api
        .json(
            "POST",
            "/consumers/al/key-auth",
            &json!({"key": "k", "ttl": 60}),
        )
        .await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert!(created.json()["ttl"].as_i64().unwrap() < 60);
    let left = api.get("/key-auths/k").await.json()["ttl"]
        .as_i64()
        .unwrap();
    assert!((1..60).contains(&left), "{left}");
    let endless = api.json("POST", "/consumers/al/key-auth", &json!({})).await;
    assert!(endless.json()["ttl"].is_null());
    let bad = api
        .json("POST", "/consumers/al/key-auth", &json!({"ttl": -1}))
        .await;
    assert_eq!((bad.status, &bad.json()["code"]), (400, &json!(11)));
}

#[tokio::test]
async fn targets_are_found_by_id_or_normal_form() {
    let api = Api::lmdb();
    api.json("POST", "/upstreams", &json!({"name": "p.internal"}))
        .await;
    let targets = "/upstreams/p.internal/targets";
    let created = api
        .json("POST", targets, &json!({"target": "10.0.0.1"}))
        .await;
    assert_eq!(
        created.json()["target"],
        "10.0.0.1:8000",
        "{}",
        created.text
    );
    let path = format!("{targets}/10.0.0.1:8000");
    let patched = api.json("PATCH", &path, &json!({"weight": 5})).await;
    assert_eq!(
        (patched.status, &patched.json()["weight"]),
        (200, &json!(5))
    );
    assert_eq!(
        api.get(targets).await.json()["data"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(api.get(&format!("{targets}/all")).await.status, 200);
    let health = api.get("/upstreams/p.internal/health").await.json();
    assert_eq!(health["data"][0]["health"], "HEALTHCHECKS_OFF");
    let missing = api
        .json(
            "PUT",
            &format!("{targets}/10.0.0.9:80"),
            &json!({"weight": 1}),
        )
        .await;
    assert_eq!(missing.status, 404);
    assert_eq!(api.send("DELETE", &path, &[], "").await.status, 204);
    assert_eq!(api.send("DELETE", &path, &[], "").await.status, 404);
}

/// A PATCH stores the target as the client wrote it, but the balancer reports its health under the normal form.
#[tokio::test]
async fn a_target_has_its_health_in_every_spelling() {
    let weight = Weight {
        total: 100,
        available: 100,
    };
    let target = |host: &str| TargetHealth {
        host: host.to_owned(),
        port: 80,
        dns: "A".to_owned(),
        node_weight: 100,
        weight,
        addresses: vec![AddressHealth {
            ip: host.to_owned(),
            port: 80,
            weight: 100,
            available: true,
        }],
    };
    let ipv6 = "[0000:0000:0000:0000:0000:0000:0000:0001]";
    let api = Api::new(Fake::new(Database::Lmdb).with_health(UpstreamHealth {
        checked: true,
        healthy: true,
        weight,
        targets: vec![target("1.2.3.4"), target(ipv6)],
    }));
    let upstream = json!({"name": "p.internal"});
    assert_eq!(api.json("POST", "/upstreams", &upstream).await.status, 201);
    let targets = "/upstreams/p.internal/targets";
    for (made, spelling) in [("10.0.0.1:80", "001.2.3.4:80"), ("10.0.0.2:80", "[::1]:80")] {
        let made = api.json("POST", targets, &json!({"target": made})).await;
        let path = format!("{targets}/{}", made.json()["id"].as_str().unwrap());
        let patched = api.json("PATCH", &path, &json!({"target": spelling})).await;
        assert_eq!(patched.json()["target"], spelling, "{}", patched.text);
    }
    let health = api.get("/upstreams/p.internal/health").await.json();
    for shown in health["data"].as_array().unwrap() {
        assert_eq!(shown["health"], "HEALTHY", "{shown}");
    }
}

#[tokio::test]
async fn an_unacceptable_key_in_a_path_is_an_error_of_its_own() {
    let answer = Api::lmdb().get("/services/a%20b").await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json(),
        json!({
            "code": 10,
            "name": "invalid unique name",
            "message": "invalid value 'a b': the only accepted ascii characters are alphanumerics or ., -, _, and ~"
        })
    );
    let answer = Api::lmdb().get("/ca_certificates/x").await;
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!(1)));
}

#[tokio::test]
async fn tags_list_their_entities() {
    let api = Api::lmdb();
    for name in ["a", "b"] {
        let body = json!({"name": name, "host": "x.test", "tags": ["t", name]});
        api.json("POST", "/services", &body).await;
    }
    let all = api.get("/tags?size=3").await.json();
    assert_eq!(all["data"].as_array().unwrap().len(), 3);
    let rest = api.get(all["next"].as_str().unwrap()).await.json();
    assert_eq!(rest["data"].as_array().unwrap().len(), 1);
    let tagged = api.get("/tags/t").await.json();
    assert_eq!(tagged["data"][0]["entity_name"], "services");
    assert_eq!(tagged["data"].as_array().unwrap().len(), 2);
    assert_eq!(
        api.get("/tags/unknown").await.json(),
        json!({"data": [], "next": null})
    );
}

#[tokio::test]
async fn concurrent_puts_of_a_routes_service_create_one() {
    let api = Api::lmdb();
    let route = json!({"name": "r", "paths": ["/r"]});
    assert_eq!(api.json("POST", "/routes", &route).await.status, 201);
    let [first, second] = ["a", "b"].map(|name| json!({"name": name, "host": "h.test"}));
    let (first, second) = tokio::join!(
        api.json("PUT", "/routes/r/service", &first),
        api.json("PUT", "/routes/r/service", &second),
    );
    assert_eq!((first.status, second.status), (200, 200));
    let services = api.get("/services").await.json();
    assert_eq!(services["data"].as_array().unwrap().len(), 1);
    assert_eq!(
        services["data"][0],
        api.get("/routes/r/service").await.json()
    );
}

/// A PUT must look for an existing entity when it is applied. If it looked earlier, each of the concurrent requests
/// would create an entity.
#[tokio::test]
async fn concurrent_puts_of_one_name_create_one_entity() {
    let api = Api::lmdb();
    let consumer = json!({"username": "c"});
    assert_eq!(api.json("POST", "/consumers", &consumer).await.status, 201);
    let certificate = json!({
        "cert": include_str!("../data/rsa.crt"), "key": include_str!("../data/rsa.key"), "snis": [],
    });
    for (path, body, list) in [
        ("/consumers/c/acls/staff", json!({}), "/acls"),
        ("/certificates/a.test", certificate, "/certificates"),
    ] {
        let answers = join_all((0..16).map(|_| api.json("PUT", path, &body))).await;
        let ids: BTreeSet<String> = (answers.iter())
            .map(|answer| {
                assert_eq!(answer.status, 200, "{path}: {}", answer.text);
                answer.json()["id"].to_string()
            })
            .collect();
        assert_eq!(ids.len(), 1, "{path}: {ids:?}");
        let listed = api.get(list).await.json();
        assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{path}");
    }
}

#[tokio::test]
async fn a_put_of_a_membership_takes_the_group_of_the_body() {
    let api = Api::lmdb();
    let consumer = json!({"username": "c"});
    assert_eq!(api.json("POST", "/consumers", &consumer).await.status, 201);
    let put = async |segment: &str, body| {
        let path = format!("/consumers/c/acls/{segment}");
        let answer = api.json("PUT", &path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let membership = answer.json();
        (membership["id"].clone(), membership["group"].clone())
    };
    let (id, group) = put("staff", json!({})).await;
    assert_eq!(group, "staff");
    assert_eq!(
        put("staff", json!({"group": "ops"})).await,
        (id, "ops".into())
    );
    assert_eq!(api.get("/consumers/c/acls/staff").await.status, 404);
    let (_, group) = put("new", json!({"group": "other"})).await;
    assert_eq!(group, "other");
    let listed = api.get("/consumers/c/acls").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_invalid_target_has_one_text_when_created_and_another_when_changed() {
    let api = Api::lmdb();
    let upstream = api
        .json("POST", "/upstreams", &json!({ "name": "u" }))
        .await;
    assert_eq!(upstream.status, 201);
    let targets = "/upstreams/u/targets";
    let good = json!({ "target": "a.test" });
    assert_eq!(api.json("POST", targets, &good).await.status, 201);
    let bad = json!({ "target": "a b" });
    let problem = |answer: FakeResponse| {
        assert_eq!(answer.status, 400, "{}", answer.text);
        answer.json()["fields"]["target"].clone()
    };
    let new = "Invalid target; not a valid hostname or ip address";
    assert_eq!(problem(api.json("POST", targets, &bad).await), new);
    let changed = "Invalid target ('a b'); not a valid hostname or ip address";
    let path = "/upstreams/u/targets/a.test:8000";
    assert_eq!(problem(api.json("PATCH", path, &bad).await), changed);
    let path = "/schemas/targets/validate";
    assert_eq!(problem(api.json("POST", path, &bad).await), changed);
}
