//! proxy-cache: all workers share the stored responses, each consumer gets only his own, and the Admin API shows and
//! removes them.

use super::http2::Http2;
use super::{DATABASES, admin, one_service, start, workers};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::{Client, Echo, Gateway, HttpResponse, Scripted};

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

/// An upstream that confirms a response with an entity tag, and that may break.
fn confirming(is_broken: Arc<AtomicBool>) -> Scripted {
    Scripted::start(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let answer = if is_broken.load(Ordering::SeqCst) {
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 9\r\nContent-Length: 6\r\n\r\nbroken"
        } else if head.contains("if-none-match: \"a\"") {
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nX-New: 1\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nCache-Control: max-age=60, stale-if-error=60\r\n\
             Content-Type: application/json\r\nDate: Thu, 01 Jan 2099 00:00:00 GMT\r\n\
             Content-Length: 5\r\n\r\nhello"
        };
        let _ = stream.write_all(
            answer
                .replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        );
    })
}

#[test]
fn a_stored_response_is_validated_and_stands_in_for_a_broken_upstream() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let upstream = confirming(Arc::clone(&is_broken));
    let config = json!({"strategy": "memory", "rfc9111": true});
    let plugin = json!({"name": "proxy-cache", "config": config});
    let routes = json!([{"name": "a", "paths": ["/a"], "plugins": [plugin]}]);
    let url = format!("http://{}", upstream.address);
    let gateway = start(workers(), "off", &one_service(&url, routes));
    let mut client = Client::connect(gateway.proxy);
    let mut expect = |headers: &[(&str, &str)], status: u16, cache: &str| {
        let answer = client.request("GET", "/a", headers, b"");
        assert_eq!((answer.status, cache_status(&answer)), (status, cache));
        let body = if status == 304 { "" } else { "hello" };
        assert_eq!(answer.text(), body);
        answer
    };
    let validate = ("Cache-Control", "no-cache");
    let has_it = ("If-None-Match", "\"a\"");
    expect(&[], 200, "Miss");
    let hit = expect(&[], 200, "Hit");
    let date = Some("Thu, 01 Jan 2099 00:00:00 GMT");
    assert_eq!((hit.header("date"), hit.header("x-new")), (date, None));
    let confirmed = expect(&[validate], 200, "Revalidated");
    assert_eq!(confirmed.header("x-new"), Some("1"));
    expect(&[validate, has_it], 304, "Revalidated");
    let unchanged = expect(&[has_it], 304, "Hit");
    assert_eq!(unchanged.header("content-length"), Some("5"));
    is_broken.store(true, Ordering::SeqCst);
    let stale = expect(&[validate], 200, "Stale");
    assert_eq!(
        (stale.header("retry-after"), stale.header("etag")),
        (None, Some("\"a\""))
    );
    expect(&[has_it], 304, "Hit");
}

#[test]
fn many_clients_wait_for_one_fetch() {
    const CLIENTS: usize = 16;
    let echo = Echo::start();
    let config = json!({"strategy": "memory", "cache_ttl": 3600, "collapse_timeout": 60});
    let gateway = start(workers(), "off", &cached(&echo, &config));
    thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|_| scope.spawn(|| gateway.get("/a/__delay/300", &[])));
        let clients: Vec<_> = clients.collect();
        for client in clients {
            assert_eq!(client.join().unwrap().status, 200);
        }
    });
    assert_eq!(echo.requests(), 1);
}

#[test]
fn a_write_warns_about_routes_that_do_not_choose_between_kongs_rules_and_the_rfcs() {
    let echo = Echo::start();
    let gateway = start(
        workers(),
        "lmdb",
        &one_service(&echo.url(), json!([{"name": "a", "paths": ["/a"]}])),
    );
    let warns = |more: Value| {
        let mut config = memory();
        for (name, value) in more.as_object().unwrap() {
            config[name] = value.clone();
        }
        let plugin = json!({"name": "proxy-cache", "config": config}).to_string();
        let path = format!("/routes/a/plugins/{PLUGIN}");
        let json = [("Content-Type", "application/json")];
        let address = gateway.admin;
        let answer = testkit::request(address, "PUT", &path, &json, plugin.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let warning = answer.header("warning").unwrap_or_default().to_owned();
        warning.contains("rfc9111") && warning.contains("routes: a")
    };
    assert!(warns(json!({})));
    assert!(!warns(json!({"rfc9111": true})));
    assert!(!warns(json!({"rfc9111": false})));
}
