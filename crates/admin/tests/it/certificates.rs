//! Certificates and their `snis`, which are stored as entities.

use crate::fake::Api;
use serde_json::{Value, json};

const RSA: [&str; 2] = [
    include_str!("../data/rsa.crt"),
    include_str!("../data/rsa.key"),
];
const EC: [&str; 2] = [
    include_str!("../data/ec.crt"),
    include_str!("../data/ec.key"),
];

fn certificate(snis: Value) -> Value {
    json!({"cert": RSA[0], "key": RSA[1], "snis": snis})
}

#[tokio::test]
async fn snis_are_set_shown_and_replaced_as_a_list() {
    let api = Api::lmdb();
    let names = json!(["one.test", "*.two.test"]);
    let created = api.json("POST", "/certificates", &certificate(names)).await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.json()["snis"], json!(["*.two.test", "one.test"]));
    assert_eq!(
        api.get("/certificates/one.test").await.json(),
        created.json()
    );
    assert_eq!(
        api.get("/certificates").await.json()["data"],
        json!([created.json()])
    );
    assert_eq!(
        api.get("/snis/one.test").await.json()["certificate"]["id"],
        created.json()["id"]
    );

    let three = json!({"snis": ["three.test"]});
    let patched = api.json("PATCH", "/certificates/one.test", &three).await;
    assert_eq!(
        (patched.status, &patched.json()["snis"]),
        (200, &json!(["three.test"]))
    );
    let gone = api.get("/certificates/one.test").await;
    assert_eq!(
        (gone.status, gone.json()),
        (404, json!({"message": "SNI not found"}))
    );
    let kept = api
        .json("PATCH", "/certificates/three.test", &json!({"tags": ["t"]}))
        .await;
    assert_eq!(kept.json()["snis"], json!(["three.test"]));
    let disabled = api.get("/snis/three.test/certificate").await;
    assert_eq!(disabled.status, 404);

    let id = created.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/certificates/{id}");
    let without = api.json("PATCH", &path, &json!({"snis": null})).await;
    assert_eq!((without.status, &without.json()["snis"]), (200, &json!([])));
    assert_eq!(api.get("/snis/three.test").await.status, 404);
}

#[tokio::test]
async fn a_name_belongs_to_one_certificate() {
    let api = Api::lmdb();
    let created = api
        .json("POST", "/certificates", &certificate(json!(["one.test"])))
        .await;
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let other = json!({"cert": EC[0], "key": EC[1], "snis": ["one.test"]});
    let refused = api.json("POST", "/certificates", &other).await;
    let text = format!("one.test already associated with existing certificate '{id}'");
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert_eq!(refused.json()["fields"], json!({"snis": text}));
    let twice = certificate(json!(["a.test", "a.test"]));
    let refused = api.json("POST", "/certificates", &twice).await;
    assert_eq!(
        refused.json()["message"],
        "schema violation (snis: a.test is duplicated)"
    );
    let address = certificate(json!(["1.2.3.4"]));
    let refused = api.json("POST", "/certificates", &address).await;
    let wanted = json!({"code": 10, "name": "invalid unique name", "message": "must not be an IP"});
    assert_eq!((refused.status, refused.json()), (400, wanted));
}

#[tokio::test]
async fn a_put_replaces_the_whole_list() {
    let api = Api::lmdb();
    let body = json!({"cert": RSA[0], "key": RSA[1]});
    let created = api.json("PUT", "/certificates/new.test", &body).await;
    assert_eq!(
        (created.status, &created.json()["snis"]),
        (200, &json!([])),
        "{}",
        created.text
    );
    let named = api
        .json(
            "PUT",
            "/certificates/new.test",
            &certificate(json!(["a.test"])),
        )
        .await;
    assert_eq!(
        named.json()["snis"],
        json!(["a.test", "new.test"]),
        "{}",
        named.text
    );
    let emptied = api.json("PUT", "/certificates/a.test", &body).await;
    assert_eq!(
        (&emptied.json()["snis"], &emptied.json()["id"]),
        (&json!([]), &named.json()["id"])
    );
}

#[tokio::test]
async fn deleting_a_certificate_deletes_its_snis() {
    let api = Api::lmdb();
    let created = api
        .json("POST", "/certificates", &certificate(json!(["one.test"])))
        .await;
    let path = format!("/certificates/{}", created.json()["id"].as_str().unwrap());
    assert_eq!(api.send("DELETE", &path, &[], "").await.status, 204);
    assert_eq!(api.get("/snis/one.test").await.status, 404);
}

#[tokio::test]
async fn a_ca_certificate_in_use_cannot_be_deleted() {
    let api = Api::lmdb();
    let ca = json!({"cert": include_str!("../data/ca.crt")});
    let created = api.json("POST", "/ca_certificates", &ca).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let body = json!({"name": "s", "url": "https://t.test", "ca_certificates": [id]});
    let service = api.json("POST", "/services", &body).await;
    assert_eq!(service.status, 201, "{}", service.text);
    let path = format!("/ca_certificates/{id}");
    let refused = api.send("DELETE", &path, &[], "").await;
    let service = service.json()["id"].as_str().unwrap().to_owned();
    let text = format!("ca certificate {id} is still referenced by services (id = {service})");
    let wanted = json!({"code": 19, "name": "referenced by others", "message": text});
    assert_eq!((refused.status, refused.json()), (400, wanted));
    api.send("DELETE", "/services/s", &[], "").await;
    assert_eq!(api.send("DELETE", &path, &[], "").await.status, 204);
}
