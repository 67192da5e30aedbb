//! Stale responses of proxy-cache that are sent at once, while one request without a client validates them.

use super::{admin, one_service, start, workers};
use crate::http_log::wait_for;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::{Client, HttpResponse, Scripted};

/// An upstream whose first response is sent at once, and each later one when the test says so. Its responses are stale
/// from the beginning.
struct Slow {
    upstream: Scripted,
    requests: Arc<AtomicUsize>,
    /// The head of the last request.
    seen: Arc<Mutex<String>>,
    release: Sender<()>,
}

impl Slow {
    fn start() -> Self {
        let (release, released) = channel();
        let released: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(released));
        let requests = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(String::new()));
        let (count, head) = (Arc::clone(&requests), Arc::clone(&seen));
        let upstream = Scripted::start(move |mut stream| {
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n")
                && stream.read(&mut byte).is_ok_and(|read| read == 1)
            {
                request.push(byte[0]);
            }
            *head.lock().expect("not poisoned") =
                String::from_utf8_lossy(&request).to_ascii_lowercase();
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            if number > 1 && released.lock().expect("not poisoned").recv().is_err() {
                return;
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\nETag: \"{number}\"\r\nContent-Type: text/plain\r\nConnection: close\r\n\
                 Cache-Control: max-age=0, stale-while-revalidate=600\r\nX-Kong-Limit: video=1\r\nContent-Length: 1\r\n\r\n{number}"
            );
            let _ = stream.write_all(answer.as_bytes());
        });
        Self {
            upstream,
            requests,
            seen,
            release,
        }
    }

    fn configuration(&self) -> Value {
        self.behind(&[])
    }

    /// A configuration with further plugins before the cache.
    fn behind(&self, plugins: &[Value]) -> Value {
        let config = json!({"strategy": "memory", "rfc9111": true});
        let own = [
            json!({"name": "proxy-cache", "config": config}),
            // It runs before the cache, and must not count the request that goes on a second time.
            json!({"name": "rate-limiting", "config": {"minute": 1000, "policy": "local"}}),
        ];
        let plugins = [&own, plugins].concat();
        let routes = json!([{"name": "a", "paths": ["/a"], "plugins": plugins}]);
        one_service(&format!("http://{}", self.upstream.address), routes)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn seen(answer: &HttpResponse) -> (String, String) {
    let status = answer.header("x-cache-status").unwrap_or("none");
    (status.to_owned(), answer.text())
}

fn is(status: &str, body: &str) -> (String, String) {
    (status.to_owned(), body.to_owned())
}

#[test]
fn a_stale_response_is_sent_at_once_while_one_request_without_a_client_validates_it() {
    let slow = Slow::start();
    let gateway = start(workers(), "off", &slow.configuration());
    let mut client = Client::connect(gateway.proxy);
    let mut get = || client.request("GET", "/a", &[], b"");
    assert_eq!(seen(&get()), is("Miss", "1"));
    let mut left = Vec::new();
    for _ in 0..5 {
        let answer = get();
        assert_eq!(seen(&answer), is("Stale", "1"));
        let remaining = answer.header("x-ratelimit-remaining-minute");
        left.push(remaining.and_then(|text| text.parse::<u32>().ok()));
    }
    // Each request counts once, the one that goes on too.
    assert_eq!(left, [998, 997, 996, 995, 994].map(Some));
    wait_for("the response is validated", || slow.requests() == 2);
    assert!(slow.seen.lock().unwrap().contains("if-none-match: \"1\""));
    slow.release.send(()).unwrap();
    wait_for("the new response is stored", || get().text() == "2");
    let last = slow.requests();
    assert!(last <= 3, "{last} requests");
}

#[test]
fn a_response_that_was_validated_uses_up_no_limit_of_response_ratelimiting() {
    let slow = Slow::start();
    let config = json!({"limits": {"video": {"hour": 2}}, "policy": "local"});
    let plugin = json!({"name": "response-ratelimiting", "config": config});
    let gateway = start(workers(), "off", &slow.behind(&[plugin]));
    let get = || gateway.get("/a", &[]);
    assert_eq!(seen(&get()), is("Miss", "1"));
    assert_eq!(seen(&get()), is("Stale", "1"));
    slow.release.send(()).unwrap();
    wait_for("the new response is stored", || get().text() == "2");
    for _ in 0..3 {
        let answer = get();
        assert_eq!(seen(&answer), is("Stale", "2"));
        let remaining = answer.header("x-ratelimit-remaining-video-hour");
        assert_eq!(remaining, Some("1"));
    }
}

#[test]
fn a_login_that_gets_a_stale_response_is_one_login() {
    let slow = Slow::start();
    let config = json!({"storage": "kong", "secret": "s", "cookie_secure": false});
    let mut configuration = slow.behind(&[
        json!({"name": "session", "config": config}),
        json!({"name": "key-auth", "config": {"anonymous": "guest"}}),
    ]);
    configuration["consumers"] = json!([
        {"username": "nora", "keyauth_credentials": [{"key": "k"}]}, {"username": "guest"},
    ]);
    let gateway = start(workers(), "off", &configuration);
    let log_in = || {
        let answer = gateway.get("/a", &[("apikey", "k")]);
        let cookie = answer.header("set-cookie").expect("a session");
        let pair = cookie.split(';').next().unwrap_or_default().to_owned();
        (seen(&answer), pair)
    };
    // A response with a cookie is not stored.
    let (_, cookie) = log_in();
    let get = || gateway.get("/a", &[("Cookie", &cookie)]);
    slow.release.send(()).unwrap();
    assert_eq!(seen(&get()), is("Miss", "2"));
    let (answer, _) = log_in();
    assert_eq!(answer, is("Stale", "2"));
    slow.release.send(()).unwrap();
    wait_for("the response is validated", || get().text() == "3");
    // Sessions are written in their order, a moment after the response. So this one comes after all others.
    log_in();
    let sessions = || {
        let sessions = gateway.admin_get("/sessions").json();
        sessions["data"].as_array().map_or(0, Vec::len)
    };
    wait_for("the last login has a session", || sessions() >= 3);
    assert_eq!(sessions(), 3, "one for each login");
}

#[test]
fn a_change_of_the_configuration_ends_the_request_that_validates() {
    let slow = Slow::start();
    let gateway = start(workers(), "lmdb", &slow.configuration());
    let get = || gateway.get("/a", &[]);
    assert_eq!(seen(&get()), is("Miss", "1"));
    assert_eq!(seen(&get()), is("Stale", "1"));
    wait_for("the response is validated", || slow.requests() == 2);
    let consumer = json!({"username": "new"});
    admin(&gateway, "POST", "/consumers", &consumer, &[201]);
    wait_for("another request validates", || {
        assert_eq!(seen(&get()), is("Stale", "1"));
        slow.requests() == 3
    });
}

#[test]
fn the_end_of_the_gateway_does_not_wait_for_requests_without_clients() {
    let slow = Slow::start();
    let mut gateway = start(workers(), "off", &slow.configuration());
    for body in ["1", "1"] {
        assert_eq!(gateway.get("/a", &[]).text(), body);
    }
    wait_for("the response is validated", || slow.requests() == 2);
    let begun = Instant::now();
    gateway.signal("QUIT");
    assert!(gateway.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(10));
}
