//! Services with host names: the real binary queries a name server in the test process.

use crate::launch;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Echo, Gateway, Launch, NameServer};

/// A gateway to start. It queries only this name server and has one route `/a` to a host. Callers end names with a dot,
/// so that the search list of the machine does not matter.
fn launch_with(server: &NameServer, host: &str, port: u16) -> Launch {
    let configuration = format!(
        r#"
_format_version: "3.0"
services:
  - name: one
    host: {host}
    port: {port}
    connect_timeout: 5000
    routes: [{{name: one, paths: [/a]}}]
"#
    );
    launch()
        .configuration(&configuration)
        .set("dns_resolver", server.address.to_string())
        .set("dns_hostsfile", "/nonexistent")
}

fn start(server: &NameServer, host: &str, port: u16) -> Gateway {
    launch_with(server, host, port).start()
}

/// An upstream that listens on this loopback address and port.
fn echo_at(address: &str) -> Echo {
    Echo::start_on(address).expect("a loopback address")
}

fn check(gateway: &Gateway, status: u16, text: &str) {
    let answer = gateway.get("/a", &[]);
    let body = answer.text();
    assert_eq!(answer.status, status, "{body}\n{}", gateway.log());
    assert!(body.contains(text), "{body}");
}

/// Sends requests until one reaches the upstream. No request may fail.
fn until_reached(gateway: &Gateway, upstream: &Echo) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let before = upstream.seen().len();
    while upstream.seen().len() == before {
        assert!(
            Instant::now() < deadline,
            "never reached\n{}",
            gateway.log()
        );
        check(gateway, 200, "");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_service_by_name_is_reached_at_all_its_addresses_in_turn() {
    let server = NameServer::start();
    let one = echo_at("127.0.0.1:0");
    let two = echo_at(&format!("127.0.0.2:{}", one.address.port()));
    server.set("shop.test 60 A 127.0.0.1\nshop.test 60 A 127.0.0.2");
    let gateway = start(&server, "Shop.TEST.", one.address.port());
    for _ in 0..10 {
        check(&gateway, 200, "");
    }
    assert_eq!([one.seen().len(), two.seen().len()], [5, 5]);
    assert_eq!(server.asked(), ["shop.test SRV", "shop.test A"]);
}

#[test]
fn a_service_record_gives_the_port_too() {
    let server = NameServer::start();
    let echo = Echo::start();
    let port = echo.address.port();
    server.set(&format!(
        "shop.test 60 SRV 0 0 {port} node.test\nshop.test 60 SRV 9 0 1 node.test\nnode.test 60 CNAME real.test\n\
         real.test 60 A 127.0.0.1"
    ));
    let gateway = start(&server, "shop.test.", 1);
    check(&gateway, 200, "");
    assert_eq!(echo.seen()[0]["headers"]["host"], "shop.test.:1");
}

#[test]
fn a_missing_name_gets_503_and_a_failing_server_500() {
    let server = NameServer::start();
    let gateway = start(&server, "missing.test.", 80);
    check(&gateway, 503, "name resolution failed");
    server.fail(2);
    let gateway = start(&server, "failing.test.", 80);
    check(&gateway, 500, "dns server error: 2 server failure");
    let gateway = start(&server, &format!("{}.test", "a".repeat(64)), 80);
    check(&gateway, 500, "invalid name");
}

#[test]
fn starting_and_other_routes_do_not_wait_for_name_servers() {
    let server = NameServer::start();
    server.go_silent();
    let started = Instant::now();
    let gateway = start(&server, "slow.test.", 80);
    assert_eq!(gateway.get("/nowhere", &[]).status, 404);
    assert!(started.elapsed() < Duration::from_secs(4));
    // The gateway retries in the background and resolves the name as soon as a name server responds.
    let echo = Echo::start();
    let port = echo.address.port();
    server.set(&format!(
        "slow.test 60 SRV 0 0 {port} node.test\nnode.test 60 A 127.0.0.1"
    ));
    server.recover();
    let deadline = Instant::now() + Duration::from_secs(40);
    while gateway.get("/a", &[]).status != 200 {
        assert!(Instant::now() < deadline, "{}", gateway.log());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_outage_of_the_name_servers_is_not_seen_by_traffic() {
    let server = NameServer::start();
    let one = echo_at("127.0.0.1:0");
    let two = echo_at(&format!("127.0.0.3:{}", one.address.port()));
    server.set("shop.test 1 A 127.0.0.1");
    let gateway = start(&server, "shop.test.", one.address.port());
    check(&gateway, 200, "");
    // Each kind of outage lasts four times the TTL of the record.
    for outage in [None, Some(2), Some(5)] {
        match outage {
            None => server.go_silent(),
            Some(code) => server.fail(code),
        }
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            let before = Instant::now();
            check(&gateway, 200, "");
            assert!(
                before.elapsed() < Duration::from_secs(1),
                "a request waited"
            );
        }
        assert!(two.seen().is_empty());
        server.recover();
    }
    // After the outage, DNS changes take effect again.
    server.set("shop.test 1 A 127.0.0.3");
    until_reached(&gateway, &two);
}

/// The DNS records of the name change under load. At times they also contain an address where nothing listens. No
/// request fails.
#[test]
fn a_flapping_target_costs_no_request() {
    let server = NameServer::start();
    let one = echo_at("127.0.0.1:0");
    let port = one.address.port();
    let two = echo_at(&format!("127.0.0.4:{port}"));
    let zone = |both: bool, last: u8| {
        if both {
            server.set("shop.test 1 A 127.0.0.1\nshop.test 1 A 127.0.0.4\nshop.test 1 A 127.0.0.9")
        } else {
            server.set(&format!("shop.test 1 A 127.0.0.{last}"))
        }
    };
    zone(true, 0);
    let gateway = start(&server, "shop.test.", port);
    let requests = |seconds: u64| {
        let end = Instant::now() + Duration::from_secs(seconds);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while Instant::now() < end {
                        check(&gateway, 200, "");
                    }
                });
            }
        });
    };
    // Nothing listens at the third address. The gateway retries a request at another address if this one refuses it.
    requests(1);
    for round in 0..3 {
        zone(false, if round % 2 == 0 { 4 } else { 1 });
        requests(2);
    }
    zone(true, 0);
    requests(1);
    assert!(!one.seen().is_empty() && !two.seen().is_empty());
}

#[test]
fn dns_statistics_need_the_new_dns_client() {
    let server = NameServer::start();
    let echo = Echo::start();
    server.set("shop.test 60 A 127.0.0.1");
    let gateway = start(&server, "shop.test.", echo.address.port());
    let answer = gateway.admin_get("/status/dns");
    assert_eq!(answer.status, 501);
    assert_eq!(
        answer.json()["message"],
        "not implemented with the legacy DNS client"
    );
    drop(gateway);
    let gateway = launch_with(&server, "shop.test.", echo.address.port())
        .set("new_dns_client", "on")
        .set("resolver_address", server.address.to_string())
        .set("resolver_family", "A")
        .set("resolver_hosts_file", "/nonexistent")
        .start();
    server.asked();
    let runs = || {
        let stats = gateway.admin_get("/status/dns").json();
        stats["stats"]["shop.test.:all"]["runs"].as_u64()
    };
    // This request may count twice: once before it waits for the DNS response, and once after.
    check(&gateway, 200, "");
    let before = runs().expect("uses are counted");
    for _ in 0..3 {
        check(&gateway, 200, "");
    }
    assert_eq!(runs(), Some(before + 3));
    let stats = gateway.admin_get("/status/dns").json();
    assert_eq!(stats["worker"]["id"], 0);
    assert_eq!(
        stats["stats"]["shop.test:A"]["query_succ"].as_u64(),
        Some(1)
    );
    assert!(stats["stats"].get("shop.test:SRV").is_none(), "{stats}");
    let metrics = gateway.admin_get("/metrics").text();
    assert!(metrics.contains("silverback_dns_names 1\n"), "{metrics}");
}

#[test]
fn a_reload_changes_the_name_servers() {
    let (old, new) = (NameServer::start(), NameServer::start());
    let one = echo_at("127.0.0.1:0");
    let two = echo_at(&format!("127.0.0.5:{}", one.address.port()));
    old.set("shop.test 600 A 127.0.0.1");
    new.set("shop.test 600 A 127.0.0.5");
    let settings = |server: SocketAddr| format!("dns_resolver = {server}\n");
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n- {{name: one, host: shop.test., port: {}, routes: [{{name: one, paths: [/a]}}]}}\n",
        one.address.port()
    );
    let gateway = launch()
        .configuration(&text)
        .conf(&settings(old.address))
        .start();
    check(&gateway, 200, "");
    let file = gateway.launch().prefix().join("silverback.conf");
    std::fs::write(file, settings(new.address)).expect("a file");
    gateway.signal("HUP");
    until_reached(&gateway, &two);
    assert!(!gateway.log().contains("dns_resolver: the new value"));
}

#[test]
fn wrong_dns_settings_are_reported_at_start() {
    let failure = launch()
        .configuration("_format_version: \"3.0\"")
        .set("dns_resolver", "10.0.0.1, resolver.test")
        .set("dns_order", "A,MX")
        .set("dns_valid_ttl", "-1")
        .try_start()
        .expect_err("wrong settings");
    for part in ["`resolver.test`", "`MX`", "dns_valid_ttl"] {
        assert!(failure.contains(part), "{failure}");
    }
}
