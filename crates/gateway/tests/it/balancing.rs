//! Load balancing of requests over the targets of an upstream, with the real binary.

use crate::launch;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Backend, Client, Echo, Gateway, HttpResponse, http};

/// Returns a configuration with a service whose upstream has these fields and targets.
pub(crate) fn pool(fields: &Value, targets: &[(String, u32)]) -> String {
    let mut upstream = json!({
        "name": "pool",
        "targets": targets.iter().map(|(target, weight)| json!({"target": target, "weight": weight})).collect::<Vec<_>>(),
    });
    for (name, value) in fields.as_object().expect("fields") {
        upstream[name] = value.clone();
    }
    json!({
        "_format_version": "3.0",
        "upstreams": [upstream],
        "services": [{
            "name": "shop", "host": "pool", "connect_timeout": 2000, "read_timeout": 10000,
            "routes": [
                {"name": "open", "paths": ["/open"]},
                {"name": "user", "paths": ["~/user/(?<who>[^/]+)/(\\w+)"]},
                {"name": "closed", "paths": ["/closed"], "plugins": [{"name": "key-auth"}]},
            ],
        }],
        "consumers": [
            {"username": "alice", "keyauth_credentials": [{"key": "alice-key"}]},
            {"username": "bob", "keyauth_credentials": [{"key": "bob-key"}]},
        ],
    })
    .to_string()
}

pub(crate) fn backends<const N: usize>() -> [Backend; N] {
    std::array::from_fn(|number| Backend::start(&format!("b{number}")))
}

pub(crate) fn targets(backends: &[Backend]) -> Vec<(String, u32)> {
    let addresses = backends.iter().map(|backend| backend.address.to_string());
    addresses.map(|address| (address, 100)).collect()
}

pub(crate) fn start(fields: &Value, targets: &[(String, u32)]) -> Gateway {
    launch().configuration(&pool(fields, targets)).start()
}

/// An address where nothing listens.
pub(crate) fn dead() -> String {
    testkit::upstream::refusing().to_string()
}

/// Sends this many requests on one connection. Returns the number of responses for each status and body, such as
/// `200 b0`. The body names the target.
pub(crate) fn shares(gateway: &Gateway, requests: usize) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    let mut client = Client::connect(gateway.proxy);
    for _ in 0..requests {
        let answer = client.request("GET", "/open", &[], b"");
        *shares
            .entry(format!("{} {}", answer.status, answer.text()))
            .or_default() += 1;
    }
    shares
}

pub(crate) fn expect(shares: &[(&str, usize)]) -> BTreeMap<String, usize> {
    shares
        .iter()
        .map(|(who, number)| (format!("200 {who}"), *number))
        .collect()
}

/// Waits until a condition holds, such as one that depends on a DNS answer. Panics after 30 seconds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} does not come true");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn admin(gateway: &Gateway, method: &str, path: &str, body: &Value) -> HttpResponse {
    let headers = [("Content-Type", "application/json")];
    http::request(
        gateway.admin,
        method,
        path,
        &headers,
        body.to_string().as_bytes(),
    )
}

#[test]
fn targets_get_their_shares() {
    let backends: [Backend; 3] = backends();
    let mut targets = targets(&backends);
    (targets[1].1, targets[2].1) = (200, 0);
    let gateway = start(&json!({}), &targets);
    assert_eq!(shares(&gateway, 30), expect(&[("b0", 10), ("b1", 20)]));
}

#[test]
fn requests_skip_a_dead_target_and_name_the_one_they_reach() {
    let echo = Echo::start();
    let targets = [(dead(), 100), (echo.address.to_string(), 100)];
    for algorithm in [
        "round-robin",
        "consistent-hashing",
        "least-connections",
        "latency",
    ] {
        let gateway = start(&json!({"algorithm": algorithm}), &targets);
        for _ in 0..10 {
            let answer = gateway.get("/open", &[]);
            assert_eq!(answer.status, 200, "{algorithm}: {}", answer.text());
            assert_eq!(answer.json()["headers"]["host"], echo.address.to_string());
        }
    }
}

#[test]
fn without_a_usable_target_there_is_a_503() {
    for targets in [vec![], vec![(dead(), 0)]] {
        let gateway = start(&json!({}), &targets);
        let answer = gateway.get("/open", &[]);
        assert_eq!(answer.status, 503);
        assert_eq!(
            answer.json()["message"],
            "failure to get a peer from the ring-balancer"
        );
    }
}

/// Sends each request twice, and checks that both reach the same target. Returns all targets that were reached.
fn leads(gateway: &Gateway, requests: &[(String, Vec<(&str, String)>)]) -> BTreeSet<String> {
    let ask = |(target, headers): &(String, Vec<(&str, String)>)| {
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        let answer = gateway.get(target, &headers);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.text()
    };
    let first: Vec<String> = requests.iter().map(ask).collect();
    let again: Vec<String> = requests.iter().rev().map(ask).collect();
    assert!(first.iter().eq(again.iter().rev()), "{first:?} {again:?}");
    first.into_iter().collect()
}

fn numbered(
    request: impl Fn(usize) -> (String, Vec<(&'static str, String)>),
) -> Vec<(String, Vec<(&'static str, String)>)> {
    (0..24).map(request).collect()
}

#[test]
fn requests_that_are_alike_go_to_the_same_target() {
    let backends: [Backend; 4] = backends();
    let targets = targets(&backends);
    let cases = [
        (
            json!({"hash_on": "header", "hash_on_header": "X-User-Id"}),
            numbered(|n| ("/open".into(), vec![("x-user-id", n.to_string())])),
        ),
        (
            json!({"hash_on": "cookie", "hash_on_cookie": "session"}),
            numbered(|n| {
                (
                    "/open".into(),
                    vec![("cookie", format!("other=1; session={n}"))],
                )
            }),
        ),
        (
            json!({"hash_on": "path"}),
            numbered(|n| (format!("/open/{n}?x={n}"), vec![])),
        ),
        (
            json!({"hash_on": "query_arg", "hash_on_query_arg": "user"}),
            numbered(|n| (format!("/open?x=1&user={n}"), vec![])),
        ),
        (
            json!({"hash_on": "uri_capture", "hash_on_uri_capture": "who"}),
            numbered(|n| (format!("/user/{n}/x"), vec![])),
        ),
        (
            json!({"hash_on": "uri_capture", "hash_on_uri_capture": "2"}),
            numbered(|n| (format!("/user/x/{n}"), vec![])),
        ),
        (
            json!({"hash_on": "consumer", "hash_fallback": "header", "hash_fallback_header": "x-user"}),
            numbered(|n| ("/open".into(), vec![("x-user", n.to_string())])),
        ),
    ];
    for (mut fields, requests) in cases {
        fields["algorithm"] = json!("consistent-hashing");
        let gateway = start(&fields, &targets);
        let seen = leads(&gateway, &requests);
        assert!(seen.len() >= 3, "{fields}: {seen:?}");
    }
}

#[test]
fn clients_without_a_hash_value_share_a_target() {
    let backends: [Backend; 4] = backends();
    let cases = [
        json!({"hash_on": "ip"}),
        json!({}),
        json!({"hash_on": "header", "hash_on_header": "x-absent"}),
    ];
    for mut fields in cases {
        fields["algorithm"] = json!("consistent-hashing");
        let gateway = start(&fields, &targets(&backends));
        let seen = leads(&gateway, &numbered(|n| (format!("/open?n={n}"), vec![])));
        assert_eq!(seen.len(), 1, "{fields}");
    }
}

#[test]
fn each_consumer_always_gets_the_same_target() {
    let backends: [Backend; 4] = backends();
    let fields = json!({"algorithm": "consistent-hashing", "hash_on": "consumer"});
    let gateway = start(&fields, &targets(&backends));
    for key in ["alice-key", "bob-key"] {
        let requests = numbered(|n| (format!("/closed?n={n}"), vec![("apikey", key.to_owned())]));
        assert_eq!(leads(&gateway, &requests).len(), 1, "{key}");
    }
}

#[test]
fn a_client_without_the_cookie_is_given_one_and_stays_at_its_target() {
    let backends: [Backend; 4] = backends();
    let fields = json!({
        "algorithm": "consistent-hashing", "hash_on": "cookie", "hash_on_cookie": "session",
        "hash_on_cookie_path": "/open",
    });
    let gateway = start(&fields, &targets(&backends));
    for _ in 0..10 {
        let first = gateway.get("/open", &[]);
        let set = first
            .header("set-cookie")
            .expect("a cookie is set")
            .to_owned();
        let (pair, attributes) = set.split_once("; ").expect("it has attributes");
        assert_eq!(attributes, "Path=/open; Same-Site=Lax; HttpOnly");
        let value = pair.strip_prefix("session=").expect("it is the session's");
        assert!(value.len() == 36 && value.as_bytes()[14] == b'4', "{value}");
        let second = gateway.get("/open", &[("Cookie", pair)]);
        assert_eq!(second.text(), first.text());
        assert_eq!(second.header("set-cookie"), None);
    }
}

#[test]
fn keys_keep_their_target_through_a_restart_and_the_loss_of_another() {
    let backends: [Backend; 4] = backends();
    let fields = json!({
        "algorithm": "consistent-hashing", "hash_on": "query_arg", "hash_on_query_arg": "key",
    });
    let map = |targets: &[(String, u32)]| -> Vec<String> {
        let gateway = start(&fields, targets);
        (0..40)
            .map(|key| gateway.get(&format!("/open?key={key}"), &[]).text())
            .collect()
    };
    let all = targets(&backends);
    let before = map(&all);
    assert_eq!(before, map(&all));
    for (before, after) in before.iter().zip(map(&all[..3])) {
        assert!(*before == after || before == "b3", "{before} {after}");
    }
}

/// Sends a request on another thread, because the upstream may hold its response back.
fn ask(gateway: &Gateway) -> thread::JoinHandle<HttpResponse> {
    let proxy = gateway.proxy;
    thread::spawn(move || http::get(proxy, "/open", &[]))
}

#[test]
fn a_busy_target_is_avoided() {
    let backends: [Backend; 2] = backends();
    let gateway = start(
        &json!({"algorithm": "least-connections"}),
        &targets(&backends),
    );
    backends[0].hold();
    let mut held = Vec::new();
    while backends[0].requests() == 0 {
        let (before, asked) = (backends[1].requests(), ask(&gateway));
        wait_until("the request is somewhere", || {
            backends[0].requests() > 0 || backends[1].requests() > before
        });
        held.push(asked);
    }
    assert_eq!(shares(&gateway, 10), expect(&[("b1", 10)]));
    backends[0].release();
    for asked in held {
        assert_eq!(asked.join().expect("no panic").status, 200);
    }
}

/// A gateway with a store, whose service and upstream were created over the Admin API.
fn writable(backends: &[Backend], fields: &Value) -> Gateway {
    let gateway = launch().start();
    let mut upstream = fields.clone();
    upstream["name"] = json!("pool");
    for (path, body) in [
        ("/upstreams", upstream),
        ("/services", json!({"name": "shop", "host": "pool"})),
        ("/services/shop/routes", json!({"paths": ["/open"]})),
    ] {
        let answer = admin(&gateway, "POST", path, &body);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    for (target, weight) in targets(backends) {
        let body = json!({"target": target, "weight": weight});
        assert_eq!(
            admin(&gateway, "POST", "/upstreams/pool/targets", &body).status,
            201
        );
    }
    gateway
}

#[test]
fn a_target_that_is_drained_or_deleted_finishes_what_it_has_and_gets_nothing_new() {
    let backends: [Backend; 2] = backends();
    let gateway = writable(&backends, &json!({}));
    for (method, body) in [("PATCH", json!({"weight": 0})), ("DELETE", json!({}))] {
        assert_eq!(shares(&gateway, 10), expect(&[("b0", 5), ("b1", 5)]));
        backends[0].hold();
        let before = backends[0].requests();
        let mut asked = Vec::new();
        while backends[0].requests() == before {
            let others = backends[1].requests();
            asked.push(ask(&gateway));
            wait_until("the request is somewhere", || {
                backends[0].requests() > before || backends[1].requests() > others
            });
        }
        let path = format!("/upstreams/pool/targets/{}", backends[0].address);
        let changed = admin(&gateway, method, &path, &body);
        assert!(matches!(changed.status, 200 | 204), "{}", changed.text());
        assert_eq!(shares(&gateway, 10), expect(&[("b1", 10)]));
        backends[0].release();
        for asked in asked {
            assert_eq!(asked.join().expect("no panic").status, 200);
        }
        let _ = admin(&gateway, "PATCH", &path, &json!({"weight": 100}));
    }
}
