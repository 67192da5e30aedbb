//! acl and hmac-auth with several workers: changed groups count at once, and a signature that counts once does so on all
//! workers together.

use super::rate_limiting::{count, storm};
use super::{DATABASES, admin, one_service, start, workers};
use aws_lc_rs::hmac;
use data_encoding::BASE64;
use serde_json::{Value, json};
use std::time::SystemTime;
use testkit::Echo;

#[test]
fn changed_groups_count_at_once_on_all_workers() {
    let echo = Echo::start();
    let guard = json!([{"name": "key-auth"}, {"name": "acl", "config": {"allow": ["staff"]}}]);
    let mut configuration = one_service(
        &echo.url(),
        json!([{"name": "a", "paths": ["/a"], "plugins": guard}]),
    );
    configuration["consumers"] = json!([
        {"username": "alice", "keyauth_credentials": [{"key": "alice"}]},
        {"username": "bob", "keyauth_credentials": [{"key": "bob"}], "acls": [{"group": "staff"}]},
    ]);
    let gateway = start(workers(), "lmdb", &configuration);
    let ask = |key: &'static str| storm(gateway.proxy, |_| vec![("apikey", key)]);
    let all_are = |status: u16, key: &'static str| {
        let responses = ask(key);
        let all = responses.iter().flatten().count();
        assert_eq!(
            count(responses.iter().flatten(), status),
            all,
            "{key} {status}"
        );
    };
    all_are(403, "alice");
    all_are(200, "bob");
    let groups = "/consumers/alice/acls";
    admin(&gateway, "POST", groups, &json!({"group": "staff"}), &[201]);
    all_are(200, "alice");
    let one = "/consumers/alice/acls/staff";
    admin(&gateway, "PATCH", one, &json!({"group": "other"}), &[200]);
    all_are(403, "alice");
    all_are(200, "bob");
    let seen = gateway.get("/a", &[("apikey", "bob")]);
    assert_eq!(seen.json()["headers"]["x-consumer-groups"], "staff");
    admin(
        &gateway,
        "DELETE",
        "/consumers/bob/acls/staff",
        &Value::Null,
        &[204],
    );
    all_are(403, "bob");
}

#[test]
fn a_signature_that_counts_once_does_so_on_all_workers_together() {
    for database in DATABASES {
        let echo = Echo::start();
        let plugin = json!({"name": "hmac-auth", "config": {"refuse_replays": true}});
        let mut configuration = one_service(
            &echo.url(),
            json!([{"name": "a", "paths": ["/a"], "plugins": [plugin]}]),
        );
        let credential = json!({"username": "alice", "secret": "s"});
        configuration["consumers"] =
            json!([{"username": "alice", "hmacauth_credentials": [credential]}]);
        let gateway = start(workers(), database, &configuration);
        let date = httpdate::fmt_http_date(SystemTime::now());
        let authorization = |number: usize| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, b"s");
            let text = format!("date: {date}\nx-number: {number}");
            let signature = BASE64.encode(hmac::sign(&key, text.as_bytes()).as_ref());
            format!(
                "hmac username=\"alice\", algorithm=\"hmac-sha256\", headers=\"date x-number\", signature=\"{signature}\""
            )
        };
        let first = authorization(0);
        let headers = |_| {
            vec![
                ("date", &*date),
                ("x-number", "0"),
                ("authorization", &*first),
            ]
        };
        let responses = storm(gateway.proxy, headers);
        let all = responses.iter().flatten().count();
        assert_eq!(count(responses.iter().flatten(), 200), 1, "{database}");
        assert_eq!(
            count(responses.iter().flatten(), 401),
            all - 1,
            "{database}"
        );
        let second = authorization(1);
        let headers = [
            ("date", &*date),
            ("x-number", "1"),
            ("authorization", &*second),
        ];
        assert_eq!(gateway.get("/a", &headers).status, 200);
        let again = gateway.get("/a", &headers);
        assert_eq!(again.json()["message"], "HMAC signature was used before");
    }
}
