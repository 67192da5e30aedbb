//! Tests passive and active health checks of targets that fail and recover, and the health that the Admin API shows.

use crate::balancing::{admin, backends, dead, expect, pool, shares, start, targets, wait_until};
use crate::launch;
use serde_json::{Value, json};
use testkit::{Backend, Gateway, HttpResponse};

fn passive(unhealthy: Value) -> Value {
    json!({"healthchecks": {"passive": {"unhealthy": unhealthy}}})
}

/// Returns settings for active checks every 50 ms. A single result changes the health of the target.
fn active(fields: Value) -> Value {
    let mut active = json!({
        "http_path": "/probe", "timeout": 1,
        "healthy": {"interval": 0.05, "successes": 1},
        "unhealthy": {"interval": 0.05, "http_failures": 1, "tcp_failures": 1, "timeouts": 1},
    });
    for (name, value) in fields.as_object().expect("fields") {
        active[name] = value.clone();
    }
    json!({"healthchecks": {"active": active}})
}

/// Returns the name and the health of each target from the Admin API.
fn health(gateway: &Gateway) -> Vec<(String, String)> {
    let shown = gateway.admin_get("/upstreams/pool/health").json();
    let data = shown["data"].as_array().expect("a list of targets");
    let mut health: Vec<_> = data
        .iter()
        .map(|target| {
            let text = |name: &str| target[name].as_str().unwrap_or_default().to_owned();
            (text("target"), text("health"))
        })
        .collect();
    health.sort();
    health
}

fn health_of(gateway: &Gateway, backend: &Backend) -> String {
    let address = backend.address.to_string();
    let found = health(gateway)
        .into_iter()
        .find(|(target, _)| *target == address);
    found.expect("the target is listed").1
}

fn set(gateway: &Gateway, target: &str, health: &str) -> HttpResponse {
    admin(
        gateway,
        "PUT",
        &format!("/upstreams/pool/targets/{target}/{health}"),
        &json!({}),
    )
}

#[test]
fn a_dead_target_is_left_out_after_its_failures() {
    let backends: [Backend; 2] = backends();
    let mut targets = targets(&backends);
    let dead = dead();
    targets.push((dead.clone(), 100));
    let gateway = start(&passive(json!({"tcp_failures": 2})), &targets);
    assert_eq!(shares(&gateway, 30).values().sum::<usize>(), 30);
    let unhealthy: Vec<_> = health(&gateway)
        .into_iter()
        .filter(|(_, word)| word == "UNHEALTHY")
        .collect();
    assert_eq!(unhealthy, [(dead, "UNHEALTHY".to_owned())]);
    gateway.wait_for_log("a target's address is unhealthy");
    assert_eq!(shares(&gateway, 20), expect(&[("b0", 10), ("b1", 10)]));
}

#[test]
fn a_target_that_answers_errors_is_left_out_until_an_administrator_says_otherwise() {
    let backends: [Backend; 3] = backends();
    let gateway = start(&passive(json!({"http_failures": 2})), &targets(&backends));
    backends[1].set_status(500);
    let first = shares(&gateway, 9);
    assert_eq!(first["500 b1"], 2, "{first:?}");
    assert_eq!(shares(&gateway, 10), expect(&[("b0", 5), ("b2", 5)]));
    assert_eq!(health_of(&gateway, &backends[1]), "UNHEALTHY");
    backends[1].set_status(200);
    assert_eq!(shares(&gateway, 10), expect(&[("b0", 5), ("b2", 5)]));
    let target = backends[1].address.to_string();
    assert_eq!(set(&gateway, &target, "healthy").status, 204);
    assert_eq!(health_of(&gateway, &backends[1]), "HEALTHY");
    assert_eq!(shares(&gateway, 9).len(), 3);
    assert_eq!(set(&gateway, &target, "unhealthy").status, 204);
    assert_eq!(shares(&gateway, 9).len(), 2);
    assert_eq!(
        set(&gateway, &format!("{target}/{target}"), "healthy").status,
        204
    );
    assert_eq!(shares(&gateway, 9).len(), 3);
}

#[test]
fn a_target_that_does_not_respond_is_left_out() {
    let backends: [Backend; 1] = backends();
    let silent = testkit::Scripted::silent();
    let mut targets = targets(&backends);
    targets.push((silent.address.to_string(), 100));
    let config = pool(&passive(json!({"timeouts": 1})), &targets).replace("10000", "200");
    let gateway = launch().configuration(&config).start();
    assert_eq!(shares(&gateway, 10), expect(&[("b0", 10)]));
    assert_eq!(silent.connections(), 1);
}

#[test]
fn probes_find_a_target_that_fails_and_one_that_recovers() {
    let backends: [Backend; 2] = backends();
    let gateway = start(&active(json!({})), &targets(&backends));
    for _ in 0..3 {
        backends[0].set_status(503);
        wait_until("unhealthy", || {
            health_of(&gateway, &backends[0]) == "UNHEALTHY"
        });
        assert_eq!(shares(&gateway, 6), expect(&[("b1", 6)]));
        backends[0].set_status(200);
        wait_until("healthy", || health_of(&gateway, &backends[0]) == "HEALTHY");
        assert_eq!(shares(&gateway, 6), expect(&[("b0", 3), ("b1", 3)]));
    }
}

#[test]
fn probes_send_the_configured_request() {
    let backends: [Backend; 1] = backends();
    let mut fields = active(json!({"http_path": "/probe/a/b", "headers": {"X-Check": ["1", "2"]}}));
    fields["host_header"] = json!("shop.test");
    let _gateway = start(&fields, &targets(&backends));
    wait_until("a probe", || !backends[0].probes().is_empty());
    let probe = backends[0].probes().remove(0);
    assert_eq!(
        probe,
        "GET /probe/a/b HTTP/1.0\nX-Check: 1\nX-Check: 2\nHost: shop.test"
    );
}

#[test]
fn probes_start_and_stop_with_their_targets_and_other_changes_keep_health() {
    let backends: [Backend; 3] = backends();
    let gateway = start(
        &active(json!({"healthy": {"interval": 0.05, "successes": 0}})),
        &targets(&backends[..2]),
    );
    wait_until("probes", || {
        !backends[0].probes().is_empty() && !backends[1].probes().is_empty()
    });
    let target = backends[0].address.to_string();
    assert_eq!(set(&gateway, &target, "unhealthy").status, 204);
    // One target is added, and one is removed.
    let changed = pool(
        &active(json!({"healthy": {"interval": 0.05, "successes": 0}})),
        &targets(&[backends[0].clone(), backends[2].clone()]),
    );
    assert_eq!(gateway.post_config(&changed).status, 201);
    wait_until("a probe of the new one", || {
        !backends[2].probes().is_empty()
    });
    assert_eq!(health_of(&gateway, &backends[0]), "UNHEALTHY");
    // A probe of the removed target that had already started may still arrive.
    let (known, gone) = (backends[0].probes().len(), backends[1].probes().len());
    wait_until("more probes", || backends[0].probes().len() > known + 4);
    assert!(backends[1].probes().len() <= gone + 1);
    assert_eq!(shares(&gateway, 4), expect(&[("b2", 4)]));
}

#[test]
fn probes_use_tls_and_verify_certificates_as_configured() {
    let issued =
        rcgen::generate_simple_self_signed(["shop.test".to_owned()]).expect("a valid name");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [cert, key] = [
        ("cert.pem", issued.cert.pem()),
        ("key.pem", issued.signing_key.serialize_pem()),
    ]
    .map(|(name, text)| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path.display().to_string()
    });
    // The TLS server of this test has no routes, so it responds with 404.
    let server = launch()
        .set("database", "off")
        .set("proxy_listen", "127.0.0.1:0 ssl")
        .set("ssl_cert", cert.clone())
        .set("ssl_cert_key", key)
        .start();
    let address = server.proxy_tls.expect("a TLS listener").to_string();
    for (sni, verify, expected) in [
        ("shop.test", true, "HEALTHY"),
        ("other.test", true, "UNHEALTHY"),
        ("other.test", false, "HEALTHY"),
    ] {
        let fields = active(json!({
            "type": "https", "https_sni": sni, "https_verify_certificate": verify,
            "healthy": {"interval": 0.05, "successes": 1, "http_statuses": [404]},
        }));
        let config = pool(&fields, &[(address.clone(), 100)]);
        let gateway = launch()
            .set("lua_ssl_trusted_certificate", cert.clone())
            .configuration(&config)
            .start();
        let now = || health(&gateway).remove(0).1;
        // The target gets the opposite health first, so that only a probe can lead to the expected one.
        let other = if expected == "HEALTHY" {
            "unhealthy"
        } else {
            "healthy"
        };
        assert_eq!(set(&gateway, &address, other).status, 204);
        wait_until(&format!("{sni} {verify} {expected}"), || now() == expected);
    }
}

#[test]
fn tcp_probes_are_for_streams() {
    let dead = dead();
    let gateway = start(&active(json!({"type": "tcp"})), &[(dead.clone(), 100)]);
    assert_eq!(gateway.get("/open", &[]).status, 502);
    assert_eq!(health(&gateway), [(dead.clone(), "HEALTHY".to_owned())]);
    let config = pool(&active(json!({"type": "tcp"})), &[(dead, 100)]);
    let streams = launch().set("stream_listen", "127.0.0.1:0");
    let gateway = streams.configuration(&config).start();
    wait_until("a probe", || health(&gateway)[0].1 == "UNHEALTHY");
}

#[test]
fn the_admin_api_shows_addresses_and_weights() {
    let backends: [Backend; 2] = backends();
    let mut targets = targets(&backends);
    targets[1].1 = 300;
    let mut fields = passive(json!({"http_failures": 1}));
    fields["healthchecks"]["threshold"] = json!(50);
    let gateway = start(&fields, &targets);
    let path = "/upstreams/pool/health";
    let shown = gateway.admin_get(path).json();
    assert_eq!(shown["next"], Value::Null);
    assert_eq!(shown["node_id"], gateway.admin_get("/").json()["node_id"]);
    let target = shown["data"]
        .as_array()
        .and_then(|data| data.iter().find(|target| target["weight"] == 300))
        .expect("the second target");
    let port = backends[1].address.port();
    assert_eq!(target["health"], "HEALTHY");
    assert_eq!(
        target["data"],
        json!({
            "host": "127.0.0.1", "port": port, "dns": "A", "nodeWeight": 300,
            "weight": {"total": 300, "available": 300, "unavailable": 0},
            "addresses": [{"ip": "127.0.0.1", "port": port, "weight": 300, "health": "HEALTHY"}],
        })
    );
    let whole = |gateway: &Gateway| {
        gateway
            .admin_get(&format!("{path}?balancer_health=1"))
            .json()["data"]
            .clone()
    };
    let before = whole(&gateway);
    assert_eq!(
        (&before["health"], &before["balancer_health"]),
        (&json!("HEALTHY"), &json!("HEALTHY"))
    );
    assert_eq!(
        before["details"]["weight"],
        json!({"total": 400, "available": 400, "unavailable": 0})
    );
    assert_eq!(before["details"]["hosts"].as_array().map(Vec::len), Some(2));
    // A quarter of the weight is still available, which is below the threshold of 50 %.
    assert_eq!(set(&gateway, &targets[1].0, "unhealthy").status, 204);
    let after = whole(&gateway);
    assert_eq!(after["health"], "UNHEALTHY");
    assert_eq!(after["details"]["healthy"], false);
    assert_eq!(
        after["details"]["weight"],
        json!({"total": 400, "available": 100, "unavailable": 300})
    );
    assert_eq!(gateway.get("/open", &[]).status, 503);
}

#[test]
fn without_checks_health_is_off_and_cannot_be_set() {
    let backends: [Backend; 1] = backends();
    let gateway = start(&json!({}), &targets(&backends));
    assert_eq!(health_of(&gateway, &backends[0]), "HEALTHCHECKS_OFF");
    let target = backends[0].address.to_string();
    let refused = set(&gateway, &target, "unhealthy");
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["message"], "no healthchecker found for pool");
    assert_eq!(set(&gateway, "10.9.9.9:1", "healthy").status, 404);
    assert_eq!(gateway.get("/open", &[]).status, 200);
    let whole = gateway
        .admin_get("/upstreams/pool/health?balancer_health=1")
        .json();
    assert_eq!(whole["data"]["health"], "HEALTHCHECKS_OFF");
    assert_eq!(whole["data"]["balancer_health"], "HEALTHY");
}
