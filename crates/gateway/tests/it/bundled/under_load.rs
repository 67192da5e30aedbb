//! rate-limiting, http-log, proxy-cache, request-transformer and grpc-web together, under load: while the configuration
//! changes and the log server dies, no request fails, every change is live at once, and what http-log drops is counted.

use super::grpc::{GrpcUpstream, message, trailers};
use super::http2::Http2;
use super::{DATABASES, admin, apply, start, workers};
use crate::SetOnDrop;
use crate::http_log::{metric, wait_for};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use testkit::{Client, Echo, Gateway, Sink};

/// Number of configuration changes. The log server dies after half of them.
const CHANGES: u64 = 200;

/// Number of paths that clients request again and again, so that proxy-cache has hits.
const PATHS: u64 = 8;

const CACHE: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f011";
const LIMIT: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f012";
const LOG: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f013";
const TRANSFORMER: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f014";

/// The servers behind the gateway.
struct Servers {
    echo: Echo,
    calls: GrpcUpstream,
    sink: Sink,
}

impl Servers {
    /// The configuration after this many changes. It has all five plugins, each with another configuration than before.
    fn configuration(&self, number: u64) -> Value {
        let cache = json!({"name": "proxy-cache", "id": CACHE, "config": cache(number)});
        let routes = json!([
            {"name": "cached", "paths": ["/cached"], "plugins": [cache]},
            {"name": "plain", "paths": ["/plain"]}
        ]);
        let web = json!([{
            "name": "web", "paths": ["/pkg.Greeter"], "plugins": [{"name": "grpc-web", "config": {}}]
        }]);
        json!({
            "_format_version": "3.0",
            "services": [
                {"name": "shop", "url": self.echo.url(), "routes": routes},
                {"name": "greeter", "url": self.calls.url(), "routes": web}
            ],
            "plugins": [
                {"name": "rate-limiting", "id": LIMIT, "config": limit(number)},
                {"name": "http-log", "id": LOG, "config": self.log(number)},
                {"name": "request-transformer", "id": TRANSFORMER, "config": transformer(number)}
            ],
            "consumers": [{"username": format!("consumer-{number}")}]
        })
    }

    fn log(&self, number: u64) -> Value {
        json!({
            "http_endpoint": self.sink.url(),
            "queue": {
                "max_entries": 20, "max_batch_size": 1 + number % 5, "max_coalescing_delay": 0.01,
                "initial_retry_delay": 0.01, "max_retry_delay": 0.05
            }
        })
    }

    /// Makes the change with this number.
    fn change(&self, gateway: &Gateway, database: &str, number: u64) {
        if database == "off" {
            return apply(gateway, database, &self.configuration(number));
        }
        let patch = |plugin: &str, config: Value| {
            let body = json!({"config": config});
            admin(
                gateway,
                "PATCH",
                &format!("/plugins/{plugin}"),
                &body,
                &[200],
            );
        };
        match number % 4 {
            0 => patch(LIMIT, limit(number)),
            1 => patch(LOG, self.log(number)),
            2 => patch(CACHE, cache(number)),
            _ => {
                let path = format!("/routes/new-{}", number % 10);
                let route =
                    json!({"paths": [format!("/new-{number}")], "service": {"name": "shop"}});
                admin(gateway, "PUT", &path, &route, &[200]);
            }
        }
        patch(TRANSFORMER, transformer(number));
    }
}

/// A limit that no test reaches.
fn limit(number: u64) -> Value {
    json!({"year": 1_000_000_000 + number})
}

fn cache(number: u64) -> Value {
    json!({"strategy": "memory", "cache_ttl": 3600 + number})
}

fn transformer(number: u64) -> Value {
    json!({"add": {"headers": [format!("x-number:{number}")]}})
}

/// The requests of all clients.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    /// The number of the last change that was answered.
    changed: AtomicU64,
    answered: AtomicU64,
    hits: AtomicU64,
}

impl Load {
    fn run(&self, mut request: impl FnMut(u64)) {
        let mut number = 0;
        while !self.stop.load(Ordering::SeqCst) {
            request(number);
            self.answered.fetch_add(1, Ordering::SeqCst);
            number += 1;
        }
    }

    /// Requests that the upstream answers. It must see the last change that was answered before.
    fn plain(&self, proxy: SocketAddr) {
        let mut client = Client::connect(proxy);
        self.run(|number| {
            let changed = self.changed.load(Ordering::SeqCst);
            let answer = client.request("POST", &format!("/plain?{number}"), &[], b"body");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.header("x-ratelimit-remaining-year").is_some());
            let seen = answer.json();
            assert_eq!(seen["body"], "body");
            let header = seen["headers"]["x-number"].as_str();
            let seen: u64 = header.and_then(|text| text.parse().ok()).expect("a number");
            assert!(seen >= changed, "{seen} is older than {changed}");
        });
    }

    /// Requests that proxy-cache answers.
    fn cached(&self, mut request: impl FnMut(&str) -> testkit::HttpResponse) {
        self.run(|number| {
            let query = format!("/?{}", number % PATHS);
            let answer = request(&format!("/cached{query}"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.json()["uri"], query);
            let is_hit = answer.header("x-cache-status") == Some("Hit");
            self.hits.fetch_add(u64::from(is_hit), Ordering::SeqCst);
        });
    }

    fn calls(&self, proxy: SocketAddr) {
        let mut client = Client::connect(proxy);
        let headers = [("content-type", "application/grpc-web+proto")];
        self.run(|number| {
            let body = message(&number.to_be_bytes());
            let answer = client.request("POST", "/pkg.Greeter/Echo", &headers, &body);
            assert_eq!(answer.status, 200, "{}", answer.text());
            let end = trailers("grpc-status:0\r\ngrpc-message:fine\r\n");
            assert_eq!(answer.body, [body, end].concat());
        });
    }

    /// Waits until clients got this many more responses.
    fn wait_for(&self, more: u64) {
        let before = self.answered.load(Ordering::SeqCst);
        wait_for("requests are answered", || {
            self.stop.load(Ordering::SeqCst)
                || self.answered.load(Ordering::SeqCst) >= before + more
        });
    }
}

#[test]
fn no_request_fails_while_the_five_plugins_change_and_the_log_server_dies() {
    for database in DATABASES {
        let mut servers = Servers {
            echo: Echo::start(),
            calls: GrpcUpstream::start(),
            sink: Sink::start(&[]),
        };
        // Clients never have to reconnect.
        let launch = workers()
            .set("proxy_listen", "127.0.0.1:0 http2")
            .set("nginx_http_keepalive_requests", "0");
        let gateway = start(launch, database, &servers.configuration(0));
        let load = Load::default();
        let proxy = gateway.proxy;
        thread::scope(|scope| {
            let _stop = SetOnDrop(&load.stop);
            let load = &load;
            let plain = (0..2).map(|_| scope.spawn(move || load.plain(proxy)));
            let mut clients: Vec<_> = plain.collect();
            clients.push(scope.spawn(move || load.calls(proxy)));
            clients.push(scope.spawn(move || {
                let mut client = Client::connect(proxy);
                load.cached(|path| client.request("GET", path, &[], b""));
            }));
            clients.push(scope.spawn(move || {
                let mut client = Http2::connect(proxy);
                load.cached(|path| client.request("GET", path, &[], b""));
            }));
            for number in 1..=CHANGES {
                servers.change(&gateway, database, number);
                load.changed.store(number, Ordering::SeqCst);
                assert!(
                    clients.iter().all(|client| !client.is_finished()),
                    "a client failed"
                );
                load.wait_for(5);
                if number == CHANGES / 2 {
                    servers.sink.kill();
                }
            }
        });
        let answered = load.answered.load(Ordering::SeqCst);
        let hits = load.hits.load(Ordering::SeqCst);
        // Each path is stored once for HTTP/1.1 and once for HTTP/2, and no change removes a response.
        assert!(hits > 0);
        check_records(&gateway, answered);
        let log = gateway.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// Checks that every request is counted as sent, as dropped or as waiting, and that some of each kind exist.
fn check_records(gateway: &Gateway, answered: u64) {
    let count = |name: &str| metric(gateway, &format!("silverback_queue_{name}"), "http-log");
    wait_for("all records are queued", || {
        count("pushed_total") >= answered as f64
    });
    assert_eq!(count("pushed_total"), answered as f64);
    let (sent, dropped) = (count("sent_total"), count("dropped_total"));
    assert!(
        sent > 0.0 && dropped > 0.0,
        "{sent} sent, {dropped} dropped"
    );
    wait_for("every record is counted once", || {
        let parts = [
            "sent_total",
            "dropped_total",
            "waiting_entries",
            "sending_entries",
        ];
        parts.map(count).iter().sum::<f64>() == answered as f64
    });
}
