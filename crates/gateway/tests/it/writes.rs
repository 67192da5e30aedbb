//! Writes of single entities and change sets over the Admin API with the embedded store. Concurrent writes must not get
//! lost, and a write must be live when its response arrives.

use crate::{launch, launch_in};
use serde_json::json;
use std::thread;
use testkit::Echo;

#[test]
fn a_write_is_live_when_the_response_arrives_and_survives_a_kill() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    let service = format!(r#"{{"name": "shop", "url": "{}"}}"#, echo.url());
    assert_eq!(
        gateway.admin_send("POST", "/services", &service).status,
        201
    );
    for number in 0..20 {
        let route = format!(r#"{{"name": "r{number}", "paths": ["/at/{number}"]}}"#);
        let made = gateway.admin_send("POST", "/services/shop/routes", &route);
        assert_eq!(made.status, 201, "{}", made.text());
        assert_eq!(gateway.get(&format!("/at/{number}"), &[]).status, 200);
    }
    assert_eq!(gateway.admin_send("DELETE", "/routes/r7", "").status, 204);
    assert_eq!(gateway.get("/at/7", &[]).status, 404);
    gateway.kill();
    let gateway = launch_in(prefix.path()).start();
    assert_eq!(gateway.get("/at/7", &[]).status, 404);
    assert_eq!(gateway.get("/at/19", &[]).status, 200);
}

#[test]
fn concurrent_writes_are_all_kept_or_refused_with_the_right_reason() {
    const WRITERS: usize = 16;
    const EACH: usize = 20;
    let gateway = launch().start();
    let consumer = r#"{"username": "shared", "tags": []}"#;
    assert_eq!(
        gateway.admin_send("POST", "/consumers", consumer).status,
        201
    );
    let gateway = &gateway;
    let contested: usize = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut won = 0;
                    for number in 0..EACH {
                        let own = format!(r#"{{"username": "w{writer}-{number}"}}"#);
                        let made = gateway.admin_send("POST", "/consumers", &own);
                        assert_eq!(made.status, 201, "{}", made.text());
                        let contested = format!(r#"{{"username": "contested-{number}"}}"#);
                        match gateway.admin_send("POST", "/consumers", &contested).status {
                            201 => won += 1,
                            status => assert_eq!(status, 409),
                        }
                        let invalid =
                            gateway.admin_send("POST", "/consumers", r#"{"username": 7}"#);
                        assert_eq!(invalid.status, 400);
                    }
                    won
                })
            })
            .collect();
        let won = writers
            .into_iter()
            .map(|writer| writer.join().expect("it does not panic"));
        won.sum()
    });
    assert_eq!(
        contested, EACH,
        "exactly one writer creates each contested name"
    );
    let listed = gateway.admin_get("/consumers?size=1000").json();
    let listed = listed["data"].as_array().expect("a list").len();
    assert_eq!(listed, 1 + WRITERS * EACH + EACH);
}

/// The gateway merges a PATCH with the stored entity when it applies the write, not when it reads the request. So
/// concurrent patches of different fields must all take effect.
#[test]
fn concurrent_patches_lose_nothing() {
    const FIELDS: [&str; 5] = [
        "connect_timeout",
        "read_timeout",
        "write_timeout",
        "retries",
        "port",
    ];
    let gateway = launch().start();
    let service = r#"{"name": "shop", "host": "upstream.test"}"#;
    assert_eq!(gateway.admin_send("POST", "/services", service).status, 201);
    let gateway = &gateway;
    for round in 1..20 {
        thread::scope(|scope| {
            for field in FIELDS {
                scope.spawn(move || {
                    let patch = format!(r#"{{"{field}": {round}}}"#);
                    let patched = gateway.admin_send("PATCH", "/services/shop", &patch);
                    assert_eq!(patched.status, 200, "{}", patched.text());
                });
            }
        });
        let service = gateway.admin_get("/services/shop").json();
        for field in FIELDS {
            assert_eq!(service[field], round, "{field}");
        }
    }
}

#[test]
fn a_change_set_is_completely_live_when_the_response_arrives() {
    let echo = Echo::start();
    let gateway = launch().start();
    let body = format!(
        r#"{{"message": "open the shop", "changes": [
            {{"action": "create", "type": "services", "data": {{"name": "shop", "url": "{}"}}}},
            {{"action": "create", "type": "routes", "data": {{"paths": ["/shop"], "service": {{"name": "shop"}}}}}},
            {{"action": "create", "type": "plugins", "data": {{"name": "key-auth", "service": {{"name": "shop"}}}}}},
            {{"action": "create", "type": "consumers", "data": {{"username": "alice"}}}},
            {{"action": "create", "type": "keyauth_credentials", "data": {{"key": "k", "consumer": {{"username": "alice"}}}}}}
        ]}}"#,
        echo.url()
    );
    let dry = body.replacen('{', r#"{"dry_run": true, "#, 1);
    assert_eq!(gateway.admin_send("POST", "/changes", &dry).status, 200);
    assert_eq!(gateway.get("/shop", &[]).status, 404);
    let made = gateway.admin_send("POST", "/changes", &body);
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(made.json()["revision"], 1);
    assert_eq!(gateway.get("/shop", &[]).status, 401);
    assert_eq!(gateway.get("/shop", &[("apikey", "k")]).status, 200);
    // The schema accepts this certificate, but the gateway cannot serve it. A dry run must refuse it too.
    let broken = r#"{"changes": [{"action": "create", "type": "certificates", "data":
        {"cert": "{vault://env/cert}", "key": "{vault://env/key}"}}]}"#;
    for broken in [
        broken.to_owned(),
        broken.replacen('{', r#"{"dry_run": true, "#, 1),
    ] {
        let refused = gateway.admin_send("POST", "/changes", &broken);
        assert_eq!(refused.status, 400, "{}", refused.text());
        let text = refused.text();
        assert!(text.contains("cert is a vault reference"), "{text}");
    }
    assert_eq!(gateway.admin_get("/certificates").json()["data"], json!([]));
}

/// Each worker caches the keys that it has looked up. A change of a credential or a consumer invalidates the cache.
#[test]
fn a_key_in_use_is_invalid_once_the_response_to_its_removal_arrives() {
    let echo = Echo::start();
    let gateway = launch().start();
    let body = format!(
        r#"{{"changes": [
            {{"action": "create", "type": "services", "data": {{"name": "shop", "url": "{}"}}}},
            {{"action": "create", "type": "routes", "data": {{"paths": ["/shop"], "service": {{"name": "shop"}}}}}},
            {{"action": "create", "type": "plugins", "data": {{"name": "key-auth", "service": {{"name": "shop"}}}}}},
            {{"action": "create", "type": "consumers", "data": {{"username": "alice"}}}}
        ]}}"#,
        echo.url()
    );
    assert_eq!(gateway.admin_send("POST", "/changes", &body).status, 200);
    let asked = || gateway.get("/shop", &[("apikey", "k")]);
    for round in 0..20 {
        assert_eq!(asked().status, 401);
        let made = gateway.admin_send("POST", "/consumers/alice/key-auth", r#"{"key": "k"}"#);
        assert_eq!(made.status, 201, "{}", made.text());
        assert_eq!(asked().status, 200);
        // A new route does not invalidate the cached keys.
        let route = format!(r#"{{"paths": ["/aside/{round}"]}}"#);
        assert_eq!(gateway.admin_send("POST", "/routes", &route).status, 201);
        assert_eq!(asked().status, 200);
        let renamed = format!(r#"{{"custom_id": "alice-{round}"}}"#);
        let patched = gateway.admin_send("PATCH", "/consumers/alice", &renamed);
        assert_eq!(patched.status, 200);
        let seen = asked().json();
        let custom_id = &seen["headers"]["x-consumer-custom-id"];
        assert_eq!(custom_id, &format!("alice-{round}"), "{seen}");
        let removed = gateway.admin_send("DELETE", "/consumers/alice/key-auth/k", "");
        assert_eq!(removed.status, 204);
    }
}
