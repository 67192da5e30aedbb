//! Tests of the plugin: what it stores, and for whom.

use super::ProxyCache;
use crate::fixture::{self, Exchange, head, response_head};
use model::value::from_value;
use plugin::{Consumer, Credential, EntityRef, HeaderValue, Node, Response, ResponseBody};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const NOW: u64 = 1_800_000_000;

struct Cache {
    plugin: ProxyCache,
    node: Arc<Node>,
}

/// What one request comes to.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The upstream was asked. `X-Cache-Status` of the response.
    Asked(String),
    /// The stored body.
    Stored(String),
}

fn asked(status: &str) -> Outcome {
    Outcome::Asked(status.to_owned())
}

fn stored(body: &str) -> Outcome {
    Outcome::Stored(body.to_owned())
}

fn cache(mut config: Value) -> Cache {
    config["strategy"] = json!("memory");
    Cache {
        plugin: fixture::build("proxy-cache", &config).unwrap(),
        node: fixture::node(NOW),
    }
}

fn body(response: &Response) -> String {
    let ResponseBody::Pieces(pieces) = &response.body else {
        panic!("a stored response has pieces");
    };
    String::from_utf8(pieces.concat()).unwrap()
}

impl Cache {
    /// Makes a request, to which the upstream responds with this head and body.
    fn exchange(
        &self,
        lines: &[&str],
        upstream: &[&str],
        pieces: &[&'static str],
        with: impl FnOnce(&mut Exchange<'_, ProxyCache>),
    ) -> Outcome {
        let (head, upstream) = (head(lines), response_head(upstream));
        let mut exchange = Exchange::new(&head, &self.node);
        let id = Uuid::from_u128(1);
        exchange.request.route = Some(EntityRef { id, name: None });
        with(&mut exchange);
        if let Some(response) = exchange.access(&self.plugin) {
            return Outcome::Stored(body(&response));
        }
        let headers = exchange.respond(&self.plugin, &upstream, pieces);
        let mut values = headers.before().chain(headers.added());
        let status = values.find(|(name, _)| *name == "X-Cache-Status");
        let status = status.map_or("", |(_, value)| std::str::from_utf8(value).unwrap());
        asked(status)
    }

    fn get(&self, lines: &[&str]) -> Outcome {
        let lines = [&["GET /a HTTP/1.1"], lines].concat();
        self.exchange(&lines, PLAIN, &["one", "two"], |_| {})
    }

    /// Makes two requests to which the upstream responds with this head, and returns whether the first was stored.
    fn stores(&self, upstream: &[&str], pieces: &[&'static str]) -> bool {
        let request = || self.exchange(&["GET /a HTTP/1.1"], upstream, pieces, |_| {});
        request();
        matches!(request(), Outcome::Stored(_))
    }

    fn advance(&self, seconds: u64) {
        self.node.clock.advance(Duration::from_secs(seconds));
    }
}

const PLAIN: &[&str] = &["HTTP/1.1 200 OK", "Content-Type: text/plain"];

#[test]
fn every_field_of_the_schema_is_read() {
    let config = json!({
        "strategy": "memory", "response_code": [200], "request_method": ["GET"], "content_type": ["a/b"], "cache_ttl": 1,
        "cache_control": true, "ignore_uri_case": true, "storage_ttl": 1, "memory": {"dictionary_name": "kong"},
        "vary_query_params": ["a"], "vary_headers": ["b"],
        "response_headers": {"age": true, "X-Cache-Status": true, "X-Cache-Key": true},
    });
    let config = fixture::completed("proxy-cache", &config);
    let config: super::config::Config = from_value(config).unwrap();
    assert_eq!(config.storage_ttl, Some(1));
}

#[test]
fn a_response_is_stored_and_sent_again_until_it_is_too_old() {
    let cache = cache(json!({"cache_ttl": 10}));
    assert_eq!(cache.get(&[]), asked("Miss"));
    assert_eq!(cache.get(&[]), stored("onetwo"));
    cache.advance(9);
    assert_eq!(cache.get(&[]), stored("onetwo"));
    cache.advance(2);
    assert_eq!(cache.get(&[]), asked("Miss"));
}

#[test]
fn a_response_that_is_kept_longer_than_it_may_be_sent_is_refreshed() {
    let cache = cache(json!({"cache_ttl": 10, "storage_ttl": 60}));
    assert_eq!(cache.get(&[]), asked("Miss"));
    cache.advance(11);
    assert_eq!(cache.get(&[]), asked("Refresh"));
    assert_eq!(cache.get(&[]), stored("onetwo"));
}

#[test]
fn a_stored_response_has_its_status_headers_and_age() {
    let cache = cache(json!({"response_code": [404]}));
    let upstream = [
        "HTTP/1.1 404 Not Found",
        "Content-Type: text/plain",
        "X-Many: a",
        "X-Many: b",
        "Connection: X-Hop",
        "X-Hop: 1",
        "Keep-Alive: 5",
        "Age: 99",
        "X-RateLimit-Remaining-A: 1",
        "Content-Length: 1",
    ];
    cache.exchange(&["GET /a HTTP/1.1"], &upstream, &["x"], |_| {});
    cache.advance(7);
    let head = head(&["GET /a HTTP/1.1"]);
    let mut exchange = Exchange::new(&head, &cache.node);
    let id = Uuid::from_u128(1);
    exchange.request.route = Some(EntityRef { id, name: None });
    let response = exchange.access(&cache.plugin).expect("it was stored");
    assert_eq!((response.status, body(&response).as_str()), (404, "x"));
    assert!(response.counts_as_proxied);
    let lines = response.headers.added();
    let lines: Vec<(&str, &str)> = lines
        .filter(|(name, _)| *name != "X-Cache-Key")
        .map(|(name, value)| (name, std::str::from_utf8(value).unwrap()))
        .collect();
    let expected = [
        ("Content-Type", "text/plain"),
        ("X-Many", "a"),
        ("X-Many", "b"),
        ("Age", "7"),
        ("X-Cache-Status", "Hit"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_other_plugins_have_set_for_one_client_is_not_stored() {
    let cache = cache(json!({}));
    cache.exchange(&["GET /a HTTP/1.1"], PLAIN, &["x"], |exchange| {
        let cookie = HeaderValue::from_static("session=secret");
        exchange.state.headers.set("Set-Cookie", cookie);
    });
    let head = head(&["GET /a HTTP/1.1"]);
    let mut exchange = Exchange::new(&head, &cache.node);
    let id = Uuid::from_u128(1);
    exchange.request.route = Some(EntityRef { id, name: None });
    let response = exchange.access(&cache.plugin).expect("it was stored");
    assert_eq!(response.headers.value("set-cookie"), None);
}

#[test]
fn consumers_and_credentials_have_responses_of_their_own() {
    let cache = cache(json!({}));
    let consumer = |id: u128| {
        let consumer = json!({"id": Uuid::from_u128(id), "username": "a"});
        Some(Arc::new(
            serde_json::from_value::<Consumer>(consumer).unwrap(),
        ))
    };
    let request = |owner: u128, credential: u128| {
        cache.exchange(&["GET /a HTTP/1.1"], PLAIN, &["x"], |exchange| {
            exchange.state.consumer = consumer(owner).filter(|_| owner > 0);
            let id = Uuid::from_u128(credential);
            exchange.state.credential = Some(Credential { id }).filter(|_| credential > 0);
        })
    };
    for (owner, credential) in [(1, 0), (2, 0), (0, 11), (0, 12), (0, 0)] {
        assert_eq!(request(owner, credential), asked("Miss"));
        assert_eq!(request(owner, credential), stored("x"));
    }
    assert_eq!(
        request(1, 9),
        stored("x"),
        "all credentials of a consumer share"
    );
}

#[test]
fn only_configured_methods_statuses_and_types_are_stored() {
    let cache = cache(json!({}));
    let post = || cache.exchange(&["POST /a HTTP/1.1"], PLAIN, &["x"], |_| {});
    assert_eq!(post(), asked("Bypass"));
    assert_eq!(post(), asked("Bypass"));
    assert!(!cache.stores(&["HTTP/1.1 500 No", "Content-Type: text/plain"], &["x"]));
    assert!(!cache.stores(&["HTTP/1.1 200 OK", "Content-Type: text/html"], &["x"]));
    assert!(!cache.stores(&["HTTP/1.1 200 OK"], &["x"]));
    assert!(cache.stores(PLAIN, &[""]), "an empty body is a body");
}

#[test]
fn a_response_that_is_not_whole_is_not_stored() {
    let cache = cache(json!({}));
    let with_length = [PLAIN, &["Content-Length: 4"]].concat();
    assert!(!cache.stores(&with_length, &["abc"]));
    let head = head(&["GET /a HTTP/1.1"]);
    let mut exchange: Exchange<'_, ProxyCache> = Exchange::new(&head, &cache.node);
    assert!(exchange.access(&cache.plugin).is_none());
    exchange.respond(&cache.plugin, &response_head(PLAIN), &[]);
    drop(exchange);
    assert!(cache.stores(&with_length, &["ab", "cd"]));
}

#[test]
fn a_response_beyond_its_share_of_the_memory_is_not_stored() {
    // The zone has 5 MiB, of which one response gets an eighth.
    let cache = cache(json!({"memory": {"dictionary_name": "kong"}}));
    let piece: &'static str = Box::leak("x".repeat(64 * 1024).into_boxed_str());
    assert!(!cache.stores(PLAIN, &[piece; 11]));
    assert!(cache.stores(PLAIN, &[piece; 9]));
}

#[test]
fn the_response_decides_with_cache_control() {
    let cache = cache(json!({"cache_control": true}));
    let stores = |line: &str| cache.stores(&[PLAIN, &[line]].concat(), &["x"]);
    for line in [
        "X-A: 1",
        "Cache-Control: no-store, max-age=9",
        "Cache-Control: private",
        "Cache-Control: max-age=0",
    ] {
        assert!(!stores(line), "{line}");
    }
    assert!(stores("Cache-Control: max-age=9"));
}

#[test]
fn the_request_decides_with_cache_control() {
    let cache = cache(json!({"cache_control": true, "storage_ttl": 1000}));
    let upstream = [PLAIN, &["Cache-Control: max-age=60"]].concat();
    let get = |directive: &str| {
        let line = format!("Cache-Control: {directive}");
        cache.exchange(&["GET /a HTTP/1.1", &line], &upstream, &["x"], |_| {})
    };
    assert_eq!(get("no-store"), asked("Bypass"));
    assert_eq!(get("no-cache"), asked("Bypass"));
    assert_eq!(get(""), asked("Miss"));
    cache.advance(30);
    for fresh in [
        "max-age=30",
        "min-fresh=30",
        "max-stale=0",
        "only-if-cached",
    ] {
        assert_eq!(get(fresh), stored("x"), "{fresh}");
    }
    for refused in ["max-age=29", "min-fresh=31"] {
        assert_eq!(get(refused), asked("Refresh"), "{refused}");
        cache.advance(30);
    }
    cache.advance(60);
    assert_eq!(
        get("max-stale=30"),
        stored("x"),
        "it was refreshed 90 seconds ago"
    );
    assert_eq!(get("max-stale=29"), asked("Refresh"));
}

#[test]
fn a_client_that_wants_no_wait_gets_504() {
    let cache = cache(json!({"cache_control": true}));
    let head = head(&["GET /a HTTP/1.1", "Cache-Control: only-if-cached"]);
    let mut exchange = Exchange::new(&head, &cache.node);
    let response = exchange.access(&cache.plugin).expect("nothing is stored");
    assert_eq!(response.status, 504);
    assert!(exchange.state.headers.value("X-Cache-Key").is_some());
}

#[test]
fn headers_are_shown_as_configured_or_for_all_with_kong_debug() {
    let off = json!({"age": false, "X-Cache-Status": false, "X-Cache-Key": false});
    let cache = cache(json!({"response_headers": off}));
    assert_eq!(cache.get(&[]), asked(""));
    let hit = |lines: &[&str]| {
        let head = head(&[&["GET /a HTTP/1.1"], lines].concat());
        let mut exchange = Exchange::new(&head, &cache.node);
        let id = Uuid::from_u128(1);
        exchange.request.route = Some(EntityRef { id, name: None });
        let response = exchange.access(&cache.plugin).expect("it was stored");
        let names = response.headers.added().map(|(name, _)| name.to_owned());
        names.collect::<Vec<String>>()
    };
    assert_eq!(hit(&[]), ["Content-Type"]);
    let all = ["Content-Type", "Age", "X-Cache-Status", "X-Cache-Key"];
    assert_eq!(hit(&["Kong-Debug: 1"]), all);
}

#[test]
fn headers_that_vary_are_found_with_dashes_for_underscores() {
    let cache = cache(json!({"vary_headers": ["x_lang"]}));
    assert_eq!(cache.get(&["X-Lang: de"]), asked("Miss"));
    assert_eq!(cache.get(&["X-Lang: en"]), asked("Miss"));
    assert_eq!(cache.get(&["x-lang: de"]), stored("onetwo"));
}

#[test]
fn a_header_that_varies_counts_after_many_others_too() {
    let cache = cache(json!({"vary_headers": ["x-lang"]}));
    let many: Vec<String> = (0..120).map(|number| format!("X-{number}: 1")).collect();
    let mut lines: Vec<&str> = many.iter().map(String::as_str).collect();
    lines.push("X-Lang: de");
    assert_eq!(cache.get(&lines), asked("Miss"));
    assert_eq!(cache.get(&[]), asked("Miss"));
    assert_eq!(cache.get(&["X-Lang: de"]), stored("onetwo"));
}

#[test]
fn an_argument_counts_after_many_others_too() {
    let many: Vec<String> = (0..120).map(|number| format!("a{number}=1")).collect();
    let many = many.join("&");
    for config in [json!({}), json!({"vary_query_params": ["x"]})] {
        let cache = cache(config);
        let get = |query: &str| {
            let line = format!("GET /a?{query} HTTP/1.1");
            cache.exchange(&[&line], PLAIN, &["x"], |_| {})
        };
        assert_eq!(get(&format!("{many}&x=1")), asked("Miss"));
        assert_eq!(get(&many), asked("Miss"));
        assert_eq!(get(&format!("{many}&x=1")), stored("x"));
    }
}

#[test]
fn the_id_of_the_first_request_is_not_sent_to_others() {
    let cache = cache(json!({}));
    let upstream = [PLAIN, &["X-Kong-Request-Id: 1"]].concat();
    assert!(cache.stores(&upstream, &["x"]));
    let head = head(&["GET /a HTTP/1.1"]);
    let mut exchange = Exchange::new(&head, &cache.node);
    let id = Uuid::from_u128(1);
    exchange.request.route = Some(EntityRef { id, name: None });
    let response = exchange.access(&cache.plugin).expect("it was stored");
    assert_eq!(response.headers.value("X-Kong-Request-Id"), None);
}

#[test]
fn a_header_that_is_not_forwarded_is_no_part_of_the_key() {
    let cache = cache(json!({"vary_headers": ["accept_language"]}));
    let german = "Accept-Language: de";
    let hidden = [german, "Connection: x, ACCEPT-language"];
    assert_eq!(cache.get(&hidden), asked("Miss"));
    assert_eq!(cache.get(&[german]), asked("Miss"));
    assert_eq!(
        cache.get(&[]),
        stored("onetwo"),
        "the upstream saw the same request"
    );
    // A header that a plugin adds is forwarded whatever the client says.
    let get = |lines: &[&str]| {
        let lines = [&["GET /a HTTP/1.1"], lines].concat();
        cache.exchange(&lines, PLAIN, &["three"], |exchange| {
            exchange
                .request
                .upstream
                .headers
                .set("Accept-Language", "fr");
        })
    };
    assert_eq!(get(&hidden), asked("Miss"));
    assert_eq!(get(&[]), stored("three"));
}

#[test]
fn a_path_from_another_plugin_is_a_part_of_the_key() {
    let cache = cache(json!({}));
    let get = |path: &str| {
        cache.exchange(&["GET /a HTTP/1.1"], PLAIN, &["x"], |exchange| {
            exchange.request.upstream.path = Some(path.to_owned());
        })
    };
    for path in ["/ann", "/bob", ""] {
        assert_eq!(
            (get(path), get(path)),
            (asked("Miss"), stored("x")),
            "{path}"
        );
    }
    assert_eq!(cache.get(&[]), asked("Miss"));
}

#[test]
fn a_response_to_one_client_alone_is_not_stored() {
    let cache = cache(json!({"response_code": [200, 206, 304]}));
    for status in ["206 Partial Content", "304 Not Modified"] {
        let head = [&*format!("HTTP/1.1 {status}"), "Content-Type: text/plain"];
        assert!(!cache.stores(&head, &["part"]), "{status}");
    }
}

#[test]
fn a_response_with_many_headers_is_stored_and_sent_in_linear_time() {
    testkit::cost::assert_linear(
        1000,
        |size| {
            let named: Vec<String> = (0..size).map(|number| format!("x-{number:06}")).collect();
            let mut head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: {}\r\n",
                named[..size / 2].join(",")
            );
            named
                .iter()
                .for_each(|name| head += &format!("{name}: v\r\n"));
            head += "\r\n";
            let limits = net::http1::Limits {
                line: 1 << 20,
                head: 1 << 20,
                lines: 1 << 15,
            };
            let parsed = net::http1::ResponseHead::parse(head.as_bytes(), false, &limits);
            let (head, _) = parsed.unwrap().unwrap();
            (cache(json!({})), head)
        },
        |(cache, upstream)| {
            let head = head(&["GET /a HTTP/1.1"]);
            let mut exchange = Exchange::new(&head, &cache.node);
            assert!(exchange.access(&cache.plugin).is_none());
            exchange.respond(&cache.plugin, &upstream, &["x"]);
            let mut exchange = Exchange::new(&head, &cache.node);
            exchange.state.headers.set("X-000001", "early");
            let response = exchange.access(&cache.plugin).unwrap();
            let mut early = std::mem::take(&mut exchange.state.headers);
            early.apply(response.headers);
            std::hint::black_box(early);
        },
    );
}
