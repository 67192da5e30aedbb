//! Targets that are host names, with the real binary and a name server run by the test.

use crate::balancing::{admin, dead, expect, pool, shares, wait_until};
use crate::launch;
use serde_json::{Value, json};
use std::net::SocketAddr;
use testkit::dns::NameServer;
use testkit::{Backend, Echo, Gateway};

fn start(server: &NameServer, fields: &Value, targets: &[(String, u32)]) -> Gateway {
    launch()
        .set("dns_resolver", server.address.to_string())
        .configuration(&pool(fields, targets))
        .start()
}

/// Starts two backends that listen on the same port of different addresses.
fn twins() -> [Backend; 2] {
    for _ in 0..100 {
        let one = Backend::start("one");
        let address = SocketAddr::from(([127, 0, 0, 2], one.address.port()));
        if let Ok(two) = Backend::start_on(&address.to_string(), "two") {
            return [one, two];
        }
    }
    panic!("no port is free on both addresses");
}

#[test]
fn every_address_of_a_name_is_a_target_and_dns_changes_are_followed() {
    let server = NameServer::start();
    server.set("pair.test 1 A 127.0.0.1\npair.test 1 A 127.0.0.2");
    let [one, _two] = twins();
    let port = one.address.port();
    let gateway = start(&server, &json!({}), &[(format!("pair.test:{port}"), 100)]);
    assert_eq!(shares(&gateway, 10), expect(&[("one", 5), ("two", 5)]));
    server.set("pair.test 1 A 127.0.0.2");
    wait_until("only the other is used", || {
        shares(&gateway, 4) == expect(&[("two", 4)])
    });
    server.set("pair.test 1 A 127.0.0.1\npair.test 1 A 127.0.0.2");
    wait_until("both are used", || shares(&gateway, 4).len() == 2);
    assert_eq!(gateway.admin_get("/status").status, 200);
}

#[test]
fn an_address_of_a_name_that_fails_is_left_out_alone() {
    let server = NameServer::start();
    server.set("pair.test 100 A 127.0.0.1\npair.test 100 A 127.0.0.2");
    let [one, two] = twins();
    let target = format!("pair.test:{}", one.address.port());
    let fields = json!({"healthchecks": {"passive": {"unhealthy": {"http_failures": 1}}}});
    let gateway = start(&server, &fields, &[(target.clone(), 100)]);
    two.set_status(500);
    assert_eq!(shares(&gateway, 10)["200 one"], 9);
    let shown = gateway.admin_get("/upstreams/pool/health").json()["data"][0].clone();
    let port = one.address.port();
    assert_eq!(shown["health"], "HEALTHY");
    assert_eq!(
        shown["data"],
        json!({
            "host": "pair.test", "port": port, "dns": "A", "nodeWeight": 100,
            "weight": {"total": 200, "available": 100, "unavailable": 100},
            "addresses": [
                {"ip": "127.0.0.1", "port": port, "weight": 100, "health": "HEALTHY"},
                {"ip": "127.0.0.2", "port": port, "weight": 100, "health": "UNHEALTHY"},
            ],
        })
    );
    two.set_status(200);
    let path = format!("/upstreams/pool/targets/{target}/127.0.0.2:{port}/healthy");
    assert_eq!(admin(&gateway, "PUT", &path, &json!({})).status, 204);
    assert_eq!(shares(&gateway, 10), expect(&[("one", 5), ("two", 5)]));
}

#[test]
fn srv_records_give_ports_weights_and_names() {
    let server = NameServer::start();
    let (one, two) = (Echo::start(), Echo::start());
    server.set(&format!(
        "svc.test 100 SRV 1 10 {} one.test\nsvc.test 100 SRV 1 30 {} two.test\nsvc.test 100 SRV 2 90 {} off.test\n\
         one.test 100 A 127.0.0.1\ntwo.test 100 A 127.0.0.1\noff.test 100 A 127.0.0.1",
        one.address.port(),
        two.address.port(),
        dead().rsplit_once(':').expect("a port").1,
    ));
    for (use_name, expected) in [(false, "svc.test"), (true, "two.test")] {
        let fields = json!({"use_srv_name": use_name});
        let gateway = start(&server, &fields, &[("svc.test:1".to_owned(), 100)]);
        let before = (one.requests(), two.requests());
        for _ in 0..40 {
            assert_eq!(gateway.get("/open", &[]).status, 200);
        }
        assert_eq!(
            (one.requests() - before.0, two.requests() - before.1),
            (10, 30)
        );
        let seen = two.seen();
        let host = seen.last().map(|seen| seen["headers"]["host"].clone());
        assert_eq!(
            host,
            Some(json!(format!("{expected}:{}", two.address.port())))
        );
        let shown = gateway.admin_get("/upstreams/pool/health").json();
        assert_eq!(shown["data"][0]["data"]["dns"], "SRV");
        assert_eq!(shown["data"][0]["data"]["weight"]["total"], 40);
    }
}

/// Kong has one address for each SRV record, and its health report shows the name in the record instead of an IP
/// address.
#[test]
fn health_shows_and_sets_the_names_of_srv_records() {
    let server = NameServer::start();
    server.set(
        "svc.test 100 SRV 1 10 8001 pair.test\nsvc.test 100 SRV 1 30 8001 same.test\n\
         svc.test 100 SRV 1 5 8002 pair.test\n\
         pair.test 100 A 127.0.0.1\npair.test 100 A 127.0.0.2\nsame.test 100 A 127.0.0.3",
    );
    let fields = json!({"healthchecks": {"passive": {"unhealthy": {"http_failures": 1}}}});
    let target = "svc.test:1";
    let gateway = start(&server, &fields, &[(target.to_owned(), 100)]);
    let shown = || {
        let shown = gateway.admin_get("/upstreams/pool/health").json()["data"][0].clone();
        let addresses = shown["data"]["addresses"].as_array().cloned();
        let addresses: Vec<String> = (addresses.unwrap_or_default().iter())
            .map(|one| {
                let field = |name: &str| one[name].to_string().replace('"', "");
                ["ip", "port", "weight", "health"].map(field).join(" ")
            })
            .collect();
        (addresses, shown["data"]["weight"]["available"].clone())
    };
    let set = |address: &str, health: &str| {
        let path = format!("/upstreams/pool/targets/{target}/{address}/{health}");
        assert_eq!(admin(&gateway, "PUT", &path, &json!({})).status, 204);
    };
    wait_until("all names are resolved", || shown().0.len() == 3);
    let expected = |pair: &str, same: &str| {
        vec![
            format!("pair.test 8001 20 {pair}"),
            "pair.test 8002 10 HEALTHY".to_owned(),
            format!("same.test 8001 30 {same}"),
        ]
    };
    assert_eq!(shown(), (expected("HEALTHY", "HEALTHY"), json!(60)));
    set("pair.test:8001", "unhealthy");
    assert_eq!(shown(), (expected("UNHEALTHY", "HEALTHY"), json!(40)));
    // A target is healthy while one address of its name is.
    set("127.0.0.1:8001", "healthy");
    assert_eq!(shown(), (expected("HEALTHY", "HEALTHY"), json!(50)));
    set("Same.test:8001", "unhealthy");
    assert_eq!(shown(), (expected("HEALTHY", "UNHEALTHY"), json!(20)));
    let balancer = gateway.admin_get("/upstreams/pool/health?balancer_health=1");
    let hosts = &balancer.json()["data"]["details"]["hosts"];
    assert_eq!(hosts[0]["addresses"][2]["ip"], "same.test", "{hosts}");
    assert_eq!(hosts[0]["addresses"][2]["healthy"], false);
}

#[test]
fn a_name_that_does_not_resolve_leaves_the_others() {
    let server = NameServer::start();
    let backend = Backend::start("b");
    let missing = ("missing.test:80".to_owned(), 100);
    let targets = [missing.clone(), (backend.address.to_string(), 100)];
    let gateway = start(&server, &json!({}), &targets);
    assert_eq!(shares(&gateway, 4), expect(&[("b", 4)]));
    wait_until("DNS_ERROR", || {
        let shown = gateway.admin_get("/upstreams/pool/health").json();
        let data = shown["data"].as_array().cloned().unwrap_or_default();
        data.iter()
            .any(|one| one["target"] == "missing.test:80" && one["health"] == "DNS_ERROR")
    });
    let gateway = start(&server, &json!({}), &[missing]);
    let answer = gateway.get("/open", &[]);
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.json()["message"],
        "failure to get a peer from the ring-balancer"
    );
}
