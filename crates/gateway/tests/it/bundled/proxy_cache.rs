//! proxy-cache: all workers share the stored responses, each consumer gets only his own, and the Admin API shows and
//! removes them.

use super::http2::Http2;
use super::{DATABASES, admin, one_service, start, workers};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::thread;
use testkit::{Client, Echo, Gateway, HttpResponse};

/// Connections of one test. The kernel spreads them over the workers. That all of them reach the same worker is as good
/// as impossible.
const CONNECTIONS: usize = 40;

const PLUGIN: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f002";

/// A route `/a` with this configuration of the plugin.
fn cached(echo: &Echo, config: &Value) -> Value {
    let plugin = json!({"id": PLUGIN, "name": "proxy-cache", "config": config});
    one_service(
        &echo.url(),
        json!([{"name": "a", "paths": ["/a"], "plugins": [plugin]}]),
    )
}

fn memory() -> Value {
    json!({"strategy": "memory", "cache_ttl": 3600})
}

fn cache_status(answer: &HttpResponse) -> &str {
    answer.header("x-cache-status").unwrap_or("none")
}

fn cache_key(answer: &HttpResponse) -> String {
    let key = answer.header("x-cache-key");
    key.expect("the key is shown").to_owned()
}

/// Requests a path on a new connection, and expects this cache status.
fn expect(gateway: &Gateway, path: &str, status: &str) -> HttpResponse {
    let answer = gateway.get(path, &[]);
    assert_eq!(answer.status, 200);
    assert_eq!(cache_status(&answer), status, "{path}");
    answer
}

#[test]
fn a_response_that_one_worker_stores_is_served_by_all() {
    for database in DATABASES {
        let echo = Echo::start();
        let gateway = start(workers(), database, &cached(&echo, &memory()));
        let stored = expect(&gateway, "/a?x=1", "Miss");
        let mut clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| Client::connect(gateway.proxy))
            .collect();
        for client in &mut clients {
            let answer = client.request("GET", "/a?x=1", &[], b"");
            assert_eq!(cache_status(&answer), "Hit", "{database}");
            assert_eq!(answer.body, stored.body);
            assert_eq!(cache_key(&answer), cache_key(&stored));
            assert!(answer.header("age").is_some());
        }
        assert_eq!(echo.requests(), 1);
    }
}

#[test]
fn a_large_body_is_replayed_as_it_was_to_all_kinds_of_clients() {
    const SIZE: usize = 3_000_000;
    let echo = Echo::start();
    let launch = workers().set("proxy_listen", "127.0.0.1:0 http2");
    let gateway = start(launch, "off", &cached(&echo, &memory()));
    for path in [&*format!("/a/__bytes/{SIZE}"), "/a/__stream/20000"] {
        let stored = expect(&gateway, path, "Miss");
        let hit = expect(&gateway, path, "Hit");
        assert!(hit.body == stored.body, "{path}: {} bytes", hit.body.len());
        assert!(hit.body.len() >= 200_000);
        let mut client = Http2::connect(gateway.proxy);
        assert_eq!(cache_status(&client.request("GET", path, &[], b"")), "Miss");
        let hit = client.request("GET", path, &[], b"");
        assert_eq!(cache_status(&hit), "Hit");
        assert!(hit.body == stored.body, "{path}: {} bytes", hit.body.len());
        let head = testkit::request(gateway.proxy, "HEAD", path, &[], b"");
        assert_eq!((head.status, cache_status(&head)), (200, "Miss"));
    }
}

/// A configuration in which alice, bob and everybody else may use `/a`.
fn with_consumers(echo: &Echo) -> Value {
    let mut configuration = cached(echo, &memory());
    configuration["plugins"] = json!([{"name": "key-auth", "config": {"anonymous": "everybody", "hide_credentials": true}}]);
    configuration["consumers"] = ["alice", "bob"]
        .iter()
        .map(|name| json!({"username": name, "keyauth_credentials": [{"key": name}]}))
        .chain([json!({"username": "everybody"})])
        .collect();
    configuration
}

#[test]
fn a_consumer_never_gets_what_was_stored_for_another_one() {
    const PATHS: usize = 30;
    for database in DATABASES {
        let echo = Echo::start();
        let gateway = start(workers(), database, &with_consumers(&echo));
        let hits: HashMap<&str, usize> = thread::scope(|scope| {
            let clients = ["alice", "bob", "everybody"].map(|name| {
                let proxy = gateway.proxy;
                let hits = move || {
                    let headers = [("apikey", name)];
                    let headers = if name == "everybody" {
                        &[][..]
                    } else {
                        &headers[..]
                    };
                    let answers = (0..2 * PATHS).map(|number| {
                        let path = format!("/a/{}", number % PATHS);
                        Client::connect(proxy).request("GET", &path, headers, b"")
                    });
                    let is_hit = |answer: HttpResponse| {
                        let seen = &answer.json()["headers"]["x-consumer-username"];
                        assert_eq!(*seen, name, "the response of another consumer");
                        cache_status(&answer) == "Hit"
                    };
                    (name, answers.map(is_hit).filter(|hit| *hit).count())
                };
                scope.spawn(hits)
            });
            let clients = clients.into_iter();
            clients
                .map(|client| client.join().expect("it is served"))
                .collect()
        });
        let all = [("alice", PATHS), ("bob", PATHS), ("everybody", PATHS)];
        assert_eq!(hits, HashMap::from(all), "{database}");
        assert_eq!(echo.requests(), 3 * PATHS as u64);
    }
}

#[test]
fn a_stored_response_is_not_served_without_the_credential() {
    let echo = Echo::start();
    let mut configuration = with_consumers(&echo);
    configuration["plugins"] = json!([{"name": "key-auth"}]);
    let gateway = start(workers(), "lmdb", &configuration);
    let get = |key: &str| gateway.get("/a", &[("apikey", key)]);
    assert_eq!(cache_status(&get("alice")), "Miss");
    assert_eq!(cache_status(&get("alice")), "Hit");
    for key in ["", "mallory"] {
        let refused = get(key);
        assert_eq!((refused.status, cache_status(&refused)), (401, "none"));
    }
    // A new key of the same consumer finds his responses, and a deleted one does not.
    let key = json!({"key": "alice-2"});
    admin(&gateway, "POST", "/consumers/alice/key-auth", &key, &[201]);
    assert_eq!(cache_status(&get("alice-2")), "Hit");
    let path = "/consumers/alice/key-auth/alice";
    admin(&gateway, "DELETE", path, &Value::Null, &[204]);
    assert_eq!(get("alice").status, 401);
    assert_eq!(echo.requests(), 1);
}

#[test]
fn the_admin_api_shows_and_removes_stored_responses() {
    for database in DATABASES {
        let echo = Echo::start();
        let gateway = start(workers(), database, &cached(&echo, &memory()));
        let delete = |path: &str| gateway.admin_send("DELETE", path, "").status;
        let show = |path: &str| gateway.admin_get(path);
        let of_plugin = |key: &str| format!("/proxy-cache/{PLUGIN}/caches/{key}");
        let of_all = |key: &str| format!("/proxy-cache/{key}");
        let paths: [&dyn Fn(&str) -> String; 2] = [&of_plugin, &of_all];
        for path in paths {
            let stored = expect(&gateway, "/a", "Miss");
            let key = cache_key(&stored);
            let shown = show(&path(&key));
            assert_eq!(shown.status, 200, "{}", shown.text());
            let shown = shown.json();
            assert_eq!(shown["status"], 200);
            assert_eq!(shown["body"], stored.text());
            assert_eq!(shown["body_len"], stored.body.len());
            expect(&gateway, "/a", "Hit");
            assert_eq!(delete(&path(&key)), 204);
            assert_eq!(delete(&path(&key)), 404);
            assert_eq!(show(&path(&key)).status, 404);
        }
        let keys: Vec<String> = ["/a/1", "/a/2"]
            .map(|path| cache_key(&expect(&gateway, path, "Miss")))
            .to_vec();
        assert_eq!(delete(&of_all(&"0".repeat(64))), 404);
        let other = "/proxy-cache/5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f999/caches";
        assert_eq!(show(&format!("{other}/{}", keys[0])).status, 404);
        assert_eq!(delete("/proxy-cache"), 204);
        assert!(keys.iter().all(|key| show(&of_all(key)).status == 404));
        for path in ["/a/1", "/a/2"] {
            expect(&gateway, path, "Miss");
        }
    }
}

#[test]
fn removing_stored_responses_under_load_fails_no_request_and_mixes_up_nothing() {
    const PATHS: usize = 20;
    const PURGES: usize = 100;
    let echo = Echo::start();
    let gateway = start(workers(), "off", &cached(&echo, &memory()));
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let _done = crate::SetOnDrop(&done);
        for start in 0..4 {
            let (proxy, done) = (gateway.proxy, &done);
            scope.spawn(move || {
                let mut client = Client::connect(proxy);
                for number in start.. {
                    if done.load(std::sync::atomic::Ordering::SeqCst) {
                        return;
                    }
                    let query = format!("/?n={}", number % PATHS);
                    let answer = client.request("GET", &format!("/a{query}"), &[], b"");
                    assert_eq!(answer.status, 200);
                    assert_eq!(answer.json()["uri"], query);
                }
            });
        }
        for _ in 0..PURGES {
            let before = echo.requests();
            let purged = gateway.admin_send("DELETE", "/proxy-cache", "");
            assert_eq!(purged.status, 204);
            crate::http_log::wait_for("the upstream is asked again", || echo.requests() > before);
        }
    });
}
