//! Tests of the plugin: what it stores, and for whom.

use super::flights::Place;
use super::key::CacheKey;
use super::{def, zones};
use crate::testing::case;
use crate::{request_transformer, response_transformer};
use plugin::HeaderValue;
use plugin::testing::{Call, Case, Outcome, Received, Upstream};
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

struct Cache(Case);

/// What one request comes to.
#[derive(Debug, PartialEq)]
enum Served {
    /// The upstream was asked. `X-Cache-Status` of the response.
    Asked(String),
    /// The stored body.
    Stored(String),
}

fn asked(status: &str) -> Served {
    Served::Asked(status.to_owned())
}

fn stored(body: &str) -> Served {
    Served::Stored(body.to_owned())
}

fn cache(mut config: Value) -> Cache {
    config["strategy"] = json!("memory");
    Cache(case(def(), config))
}

/// A response that the plugin stores, unless it is configured otherwise.
fn plain() -> Upstream {
    Upstream::new(200).header("Content-Type", "text/plain")
}

fn served(outcome: &Outcome) -> Served {
    match &outcome.upstream {
        Some(_) => asked(outcome.client.header("x-cache-status").unwrap_or_default()),
        None => stored(outcome.client.text()),
    }
}

impl Cache {
    /// The same storage behind request-transformer.
    fn and_transformer(&self, mut config: Value, transformer: Value) -> Self {
        config["strategy"] = json!("memory");
        let case = case(def(), config).and(request_transformer::def(), transformer);
        Self(case.on(self.0.node().clone()))
    }

    /// Begins a request to which the upstream responds with the body `onetwo` in two pieces.
    fn request(&self, line: &str) -> Call<'_> {
        let call = self.0.request(line);
        call.answered(plain().piece("one").piece("two"))
    }

    fn get(&self, lines: &[&str]) -> Served {
        served(&self.request("GET /a").lines(lines).run_now())
    }

    /// Returns the response to a request that a stored one answers.
    fn hit(&self, lines: &[&str]) -> Received {
        let outcome = self.request("GET /a").lines(lines).run_now();
        assert!(outcome.upstream.is_none(), "it was not stored");
        outcome.client
    }

    /// Makes two requests to which the upstream responds in this way, and returns whether the first was stored.
    fn stores(&self, upstream: Upstream) -> bool {
        let request = || {
            let call = self.request("GET /a").answered(upstream.clone());
            call.run_now().upstream.is_some()
        };
        request();
        !request()
    }

    fn advance(&self, seconds: u64) {
        self.0.node().clock.advance(Duration::from_secs(seconds));
    }
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
    let upstream = Upstream::new(404)
        .header("Content-Type", "text/plain")
        .header("X-Many", "a")
        .header("X-Many", "b")
        .header("Connection", "X-Hop")
        .header("X-Hop", "1")
        .header("Keep-Alive", "5")
        .header("Age", "99")
        .header("X-RateLimit-Remaining-A", "1")
        .body("x");
    let first = cache.request("GET /a").answered(upstream).run_now();
    cache.advance(7);
    let hit = cache.hit(&[]);
    assert_eq!((hit.status, hit.text()), (404, "x"));
    assert!(hit.counts_as_proxied);
    let lines = hit.headers.0.iter();
    let lines = lines.map(|(name, value)| (name.as_str(), value.as_str()));
    let lines: Vec<_> = lines.filter(|(name, _)| *name != "X-Cache-Key").collect();
    let expected = [
        ("Content-Type", "text/plain"),
        ("X-Many", "a"),
        ("X-Many", "b"),
        ("Age", "7"),
        ("X-Cache-Status", "Hit"),
    ];
    assert_eq!(lines, expected);
    // Headers of the connection, which clients do not see here, are not stored either.
    let key = first.client.header("x-cache-key").and_then(CacheKey::parse);
    let key = key.expect("the response shows its key");
    let mut storages = zones::storages(cache.0.node()).into_iter();
    let entry = storages.find_map(|storage| storage.get(&key, 0));
    let entry = entry.expect("it was stored");
    let names: Vec<&str> = entry.stored.header_pairs().map(|(name, _)| name).collect();
    assert_eq!(names, ["Content-Type", "X-Many", "X-Many"]);
}

#[test]
fn what_other_plugins_have_set_for_one_client_is_not_stored() {
    let cache = cache(json!({}));
    let call = cache.request("GET /a").state(|state| {
        let cookie = HeaderValue::from_static("session=secret");
        state.headers.set("Set-Cookie", cookie);
    });
    let first = call.run_now().client;
    assert_eq!(first.header("set-cookie"), Some("session=secret"));
    assert_eq!(cache.hit(&[]).header("set-cookie"), None);
}

#[test]
fn what_filters_of_other_plugins_say_of_a_session_is_not_stored() {
    let cache = cache(json!({}));
    let headers = ["Set-Cookie:session=secret", "session-id:1", "X-A:1"];
    let filter = json!({"add": {"headers": headers}});
    let filtered = case(def(), json!({"strategy": "memory"}))
        .and(response_transformer::def(), filter)
        .on(cache.0.node().clone());
    let first = filtered.request("GET /a").answered(plain()).run_now();
    assert_eq!(first.client.header("set-cookie"), Some("session=secret"));
    let hit = cache.hit(&[]);
    let shown = ["set-cookie", "session-id", "x-a"].map(|name| hit.header(name));
    assert_eq!(shown, [None, None, Some("1")]);
    // The cookies of the upstream are stored as in Kong.
    let upstream = plain().header("Set-Cookie", "a=b");
    let call = cache.request("GET /b").answered(upstream);
    assert!(call.run_now().upstream.is_some());
    let hit = cache.request("GET /b").run_now().client;
    assert_eq!(hit.header("set-cookie"), Some("a=b"));
}

#[test]
fn consumers_and_credentials_have_responses_of_their_own() {
    let cache = cache(json!({}));
    let request = |owner: u128, credential: u128| {
        let mut call = cache.request("GET /a").answered(plain().body("x"));
        if owner > 0 {
            call = call.consumer(Uuid::from_u128(owner), "a");
        }
        if credential > 0 {
            call = call.credential(Uuid::from_u128(credential));
        }
        served(&call.run_now())
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
    let post = || served(&cache.request("POST /a").run_now());
    assert_eq!(post(), asked("Bypass"));
    assert_eq!(post(), asked("Bypass"));
    let response = |status| Upstream::new(status).body("x");
    assert!(!cache.stores(response(500).header("Content-Type", "text/plain")));
    assert!(!cache.stores(response(200).header("Content-Type", "text/html")));
    assert!(!cache.stores(response(200)));
    assert!(cache.stores(plain()), "an empty body is a body");
}

#[test]
fn a_response_that_is_not_whole_is_not_stored() {
    let cache = cache(json!({}));
    let with_length = || plain().header("Content-Length", "4");
    assert!(!cache.stores(with_length().body("abc")));
    assert!(!cache.stores(plain().piece("abc").breaks_off()));
    assert!(cache.stores(with_length().body("abcd")));
}

#[test]
fn a_response_beyond_its_share_of_the_memory_is_not_stored() {
    // The zone has 5 MiB, of which one response gets an eighth.
    let cache = cache(json!({"memory": {"dictionary_name": "kong"}}));
    let pieces = |count| {
        let piece = "x".repeat(64 * 1024);
        (0..count).fold(plain(), |upstream, _| upstream.piece(piece.clone()))
    };
    assert!(!cache.stores(pieces(11)));
    assert!(cache.stores(pieces(9)));
}

#[test]
fn the_response_decides_with_cache_control() {
    let cache = cache(json!({"cache_control": true}));
    let stores = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a header line");
        cache.stores(plain().header(name, value).body("x"))
    };
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
    let upstream = plain().header("Cache-Control", "max-age=60").body("x");
    let get = |directive: &str| {
        let call = cache.request("GET /a").header("Cache-Control", directive);
        served(&call.answered(upstream.clone()).run_now())
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
    let call = cache.request("GET /a");
    let outcome = call.lines(&["Cache-Control: only-if-cached"]).run_now();
    assert!(outcome.upstream.is_none());
    assert_eq!(outcome.client.status, 504);
    assert!(outcome.client.header("X-Cache-Key").is_some());
}

#[test]
fn headers_are_shown_as_configured_or_for_all_with_kong_debug() {
    let off = json!({"age": false, "X-Cache-Status": false, "X-Cache-Key": false});
    let cache = cache(json!({"response_headers": off}));
    assert_eq!(cache.get(&[]), asked(""));
    let hit = |lines: &[&str]| {
        let lines = cache.hit(lines).headers.0.into_iter();
        let mut names: Vec<String> = lines.map(|(name, _)| name).collect();
        names.sort();
        names
    };
    assert_eq!(hit(&[]), ["Content-Type"]);
    let all = ["Age", "Content-Type", "X-Cache-Key", "X-Cache-Status"];
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
            let call = cache.request(&format!("GET /a?{query}"));
            served(&call.run_now())
        };
        assert_eq!(get(&format!("{many}&x=1")), asked("Miss"));
        assert_eq!(get(&many), asked("Miss"));
        assert_eq!(get(&format!("{many}&x=1")), stored("onetwo"));
    }
}

#[test]
fn the_id_of_the_first_request_is_not_sent_to_others() {
    let cache = cache(json!({}));
    assert!(cache.stores(plain().header("X-Kong-Request-Id", "1")));
    assert_eq!(cache.hit(&[]).header("X-Kong-Request-Id"), None);
}

#[test]
fn a_header_that_is_not_forwarded_is_no_part_of_the_key() {
    let config = json!({"vary_headers": ["accept_language"]});
    let cache = cache(config.clone());
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
    let french = json!({
        "remove": {"headers": ["Accept-Language"]},
        "add": {"headers": ["Accept-Language:fr"]},
    });
    let french = cache.and_transformer(config, french);
    assert_eq!(french.get(&hidden), asked("Miss"));
    assert_eq!(french.get(&[]), stored("onetwo"));
}

#[test]
fn a_path_from_another_plugin_is_a_part_of_the_key() {
    let cache = cache(json!({}));
    let path = json!({"replace": {"uri": "/$(headers['x-user'])"}});
    let paths = cache.and_transformer(json!({}), path);
    for line in ["X-User: ann", "X-User: bob", "X-User:"] {
        assert_eq!(paths.get(&[line]), asked("Miss"), "{line}");
        assert_eq!(paths.get(&[line]), stored("onetwo"), "{line}");
    }
    assert_eq!(cache.get(&[]), asked("Miss"));
}

#[test]
fn a_response_to_one_client_alone_is_not_stored() {
    let cache = cache(json!({"response_code": [200, 206, 304]}));
    for status in [206, 304] {
        let upstream = Upstream::new(status).header("Content-Type", "text/plain");
        assert!(!cache.stores(upstream.body("part")), "{status}");
    }
}

#[test]
fn a_response_with_many_headers_is_stored_and_sent_in_linear_time() {
    testkit::cost::assert_linear(
        450,
        |size| {
            let named: Vec<String> = (0..size).map(|number| format!("x-{number:06}")).collect();
            let upstream = plain().header("Connection", &named[..size / 2].join(","));
            let add = |upstream: Upstream, name: &String| upstream.header(name, "v");
            let upstream = named.iter().fold(upstream, add).body("x");
            let cache = cache(json!({}));
            cache.0.node();
            (cache, upstream)
        },
        |(cache, upstream)| {
            let miss = cache.request("GET /a").answered(upstream);
            assert!(miss.run_now().upstream.is_some());
            let hit = cache.request("GET /a").state(|state| {
                let early = HeaderValue::from_static("early");
                state.headers.set("X-000001", early);
            });
            assert!(hit.run_now().upstream.is_none());
        },
    );
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_another_one_up_to_a_number() {
    let cache = cache(json!({"collapse_timeout": 5, "collapse_max_waiting": 2, "cache_ttl": 10}));
    let key = cache.request("GET /a").run().await.client;
    let key = key.header("x-cache-key").and_then(CacheKey::parse);
    let storage = zones::storage(cache.0.node(), "kong_db_cache");
    let flight = match storage.take_off(key.expect("the response shows its key")) {
        Place::First(flight) => flight,
        Place::Later(_) => panic!("nobody else fetches"),
    };
    cache.advance(11);
    let ends = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(flight);
    };
    let call = || cache.request("GET /a").run();
    let begun = tokio::time::Instant::now();
    let (one, two, three, ()) = tokio::join!(call(), call(), call(), ends);
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    // There was no room for the third to wait. It asked the upstream, and the others got what it had stored.
    let served = [&one, &two, &three].map(served);
    assert_eq!(served, [stored("onetwo"), stored("onetwo"), asked("Miss")]);
    drop(storage);
}
