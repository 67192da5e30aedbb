//! Services and targets with host names, under load, while name servers fail and addresses change. No request may fail
//! as long as the gateway knows an address that works.

use crate::{SetOnDrop, launch};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Echo, Gateway, NameServer, get, request};

const ALGORITHMS: [&str; 4] = [
    "round-robin",
    "consistent-hashing",
    "least-connections",
    "latency",
];

/// A gateway with one service at `/host` and one for each balancing algorithm, at a path with the name of the
/// algorithm. All of them use the host name `shop.test`.
fn start(server: &NameServer, port: u16) -> Gateway {
    let mut services = format!(
        "- {{name: host, host: shop.test., port: {port}, routes: [{{name: host, paths: [/host]}}]}}\n"
    );
    let mut upstreams = String::new();
    for name in ALGORITHMS {
        let hash = match name {
            "consistent-hashing" => ", hash_on: path",
            _ => "",
        };
        let _ = writeln!(
            services,
            "- {{name: {name}, host: {name}.pool, routes: [{{name: {name}, paths: [/{name}]}}]}}"
        );
        let _ = writeln!(
            upstreams,
            "- {{name: {name}.pool, algorithm: {name}{hash}, targets: [{{target: 'shop.test:{port}'}}]}}"
        );
    }
    launch()
        .configuration(&format!(
            "_format_version: \"3.0\"\nservices:\n{services}upstreams:\n{upstreams}"
        ))
        .set("dns_resolver", server.address.to_string())
        .set("dns_hostsfile", "/nonexistent")
        .start()
}

/// Two upstreams that listen on the same port of different loopback addresses.
fn twins() -> [Echo; 2] {
    for _ in 0..100 {
        let one = Echo::start();
        let address = format!("127.0.0.2:{}", one.address.port());
        if let Ok(two) = Echo::start_on(&address) {
            return [one, two];
        }
    }
    panic!("no port is free on both addresses");
}

/// Sends requests to every service from several threads while `events` runs. Checks that no request fails or is
/// delayed. Returns the number of requests.
fn load(gateway: &Gateway, events: impl FnOnce()) -> usize {
    let (over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..4 {
            let (over, sent) = (&over, &sent);
            scope.spawn(move || {
                for turn in number.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let places = ["host"].iter().chain(&ALGORITHMS);
                    let place = places.cycle().nth(turn % 5).expect("a path");
                    let began = Instant::now();
                    let target = format!("/{place}/{turn}");
                    let method = if turn % 2 == 0 { "GET" } else { "POST" };
                    let answer = request(gateway.proxy, method, &target, &[], b"");
                    let text = answer.text();
                    assert_eq!(answer.status, 200, "{target}: {text}\n{}", gateway.log());
                    let took = began.elapsed();
                    assert!(took < Duration::from_secs(3), "{target} took {took:?}");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _running = SetOnDrop(&over);
        events();
    });
    sent.into_inner()
}

fn pass(seconds: f64) {
    // These tests need real time, because TTLs are whole seconds.
    thread::sleep(Duration::from_secs_f64(seconds));
}

#[test]
fn name_servers_that_are_down_for_many_ttls_cost_no_request() {
    let server = NameServer::start();
    let [one, two] = twins();
    server.set("shop.test 1 A 127.0.0.1");
    let gateway = start(&server, one.address.port());
    load(&gateway, || pass(0.5));
    let sent = load(&gateway, || {
        server.go_silent();
        pass(6.0);
        server.fail(2);
        pass(3.0);
        // Invalid responses: a truncated one, and one that cannot be parsed.
        server.behave(|question, _| vec![question.truncated(), vec![0xff; 40]]);
        pass(3.0);
    });
    assert!(sent > 100, "{sent}");
    assert_eq!(two.requests(), 0);
    server.set("shop.test 1 A 127.0.0.2");
    server.recover();
    let deadline = Instant::now() + Duration::from_secs(20);
    for place in ["host"].iter().chain(&ALGORITHMS) {
        let reached = || {
            let before = two.requests();
            let answer = get(gateway.proxy, &format!("/{place}"), &[]);
            answer.status == 200 && two.requests() > before
        };
        while !reached() {
            assert!(
                Instant::now() < deadline,
                "/{place} still goes to the old address"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The name resolves to one address, to the other, to both, and to one together with an address where nothing listens.
#[test]
fn addresses_that_come_and_go_cost_no_request() {
    let server = NameServer::start();
    let [one, two] = twins();
    server.set("shop.test 1 A 127.0.0.1");
    let gateway = start(&server, one.address.port());
    load(&gateway, || {
        for _ in 0..2 {
            for zone in [
                "shop.test 1 A 127.0.0.2",
                "shop.test 1 A 127.0.0.1\nshop.test 1 A 127.0.0.9",
                "shop.test 0 A 127.0.0.2",
                "shop.test 1 A 127.0.0.2\nshop.test 1 A 127.0.0.1",
                "shop.test 0 A 127.0.0.1",
            ] {
                server.set(zone);
                pass(1.2);
            }
        }
    });
    assert!(one.requests() > 50 && two.requests() > 50);
}

/// SRV records move the name to another port during a request.
#[test]
fn a_request_stays_with_its_upstream_when_dns_changes() {
    let server = NameServer::start();
    let (one, two) = (Echo::start(), Echo::start());
    let at = |echo: &Echo| {
        let port = echo.address.port();
        server.set(&format!(
            "shop.test 1 SRV 0 0 {port} node.test\nnode.test 60 A 127.0.0.1"
        ));
    };
    at(&one);
    let gateway = start(&server, 1);
    let slow = |gateway: &Gateway| get(gateway.proxy, "/host/__delay/4000", &[]).status;
    thread::scope(|scope| {
        let slow = scope.spawn(|| slow(&gateway));
        let deadline = Instant::now() + Duration::from_secs(20);
        while one.requests() == 0 {
            assert!(Instant::now() < deadline, "{}", gateway.log());
            thread::sleep(Duration::from_millis(5));
        }
        at(&two);
        while two.requests() == 0 && !slow.is_finished() {
            assert_eq!(get(gateway.proxy, "/host", &[]).status, 200);
        }
        assert!(
            !slow.is_finished(),
            "the slow request ended before DNS changed"
        );
        assert_eq!(slow.join().expect("an answer"), 200);
    });
}

#[test]
fn thousands_of_names_delay_neither_the_start_nor_each_other() {
    const NAMES: usize = 2_000;
    let server = NameServer::start();
    let echo = Echo::start();
    let port = echo.address.port();
    let mut zone = String::new();
    let mut targets = String::new();
    for number in 0..NAMES {
        let _ = writeln!(zone, "n{number}.test 60 A 127.0.0.1");
        let _ = writeln!(targets, "  - {{target: 'n{number}.test:{port}'}}");
    }
    server.set(&zone);
    let started = Instant::now();
    let gateway = launch()
        .configuration(&format!(
            "_format_version: \"3.0\"\nservices:\n- {{name: many, host: many.pool, routes: [{{name: many, paths: [/many]}}]}}\n\
             upstreams:\n- name: many.pool\n  targets:\n{targets}"
        ))
        .set("dns_resolver", server.address.to_string())
        .set("dns_order", "A")
        .start();
    for _ in 0..20 {
        assert_eq!(gateway.get("/many", &[]).status, 200);
    }
    let metric = format!("silverback_dns_question_seconds_count{{outcome=\"answered\"}} {NAMES}\n");
    while !gateway.admin_get("/metrics").text().contains(&metric) {
        let took = started.elapsed();
        assert!(
            took < Duration::from_secs(40),
            "{}",
            gateway.admin_get("/metrics").text()
        );
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(gateway.get("/many", &[]).status, 200);
}
