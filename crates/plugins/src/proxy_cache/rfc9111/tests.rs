//! Tests of the plugin with `rfc9111`, beside the table of statements.

use super::Turn;
use super::family::{Place, Seen};
use crate::proxy_cache::entry::{Entry, Terms};
use crate::proxy_cache::flights::Flight;
use crate::proxy_cache::key::{CacheKey, Owner};
use crate::proxy_cache::storage::Storage;
use crate::proxy_cache::{def, zones};
use crate::testing::case;
use net::http1::{Limits, RequestHead};
use plugin::testing::{Call, Case, Outcome, Upstream};
use plugin::{
    BuildCx, BuildError, HeaderEdits, Phases, Plugin, PluginDef, PluginError, Request, RequestCx,
    Scopes, Step, Stored,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

pub(super) struct Cache(Case);

impl Cache {
    pub(super) fn new() -> Self {
        Self::with(json!({}))
    }

    fn with(more: Value) -> Self {
        let mut config = json!({
            "strategy": "memory", "rfc9111": true, "content_type": ["text/plain"],
            "response_code": [200, 201, 204, 206, 403, 404, 503],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        let case = case(def(), config);
        case.node();
        Self(case)
    }

    /// Plays one request of the table, and returns what happened.
    pub(super) fn play(&self, number: usize, script: &str) -> String {
        let script = script.replace('#', "Cache-Control: ");
        let (request, response) = script.split_once(';').expect("a request and a response");
        let (wait, request) = request.split_once(' ').expect("seconds and a request");
        self.advance(wait.trim_start_matches('+').parse().expect("seconds"));
        let mut lines = request.split('|');
        let line = lines.next().expect("a request line");
        let lines: Vec<&str> = lines.collect();
        let is_head = line.starts_with("HEAD");
        let has_own = lines.iter().any(|line| line.starts_with("If-"));
        let call = self.0.request(line).lines(&lines);
        let call = match response {
            "fails" => call.upstream_fails(502),
            response => call.answered(upstream(number, response)),
        };
        let outcome = call.run_now();
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        let asked = match &outcome.upstream {
            None => "-",
            Some(sent) => {
                let mut names = sent.headers.0.iter().map(|(name, _)| name.as_str());
                match names.any(|name| name.starts_with("If-")) {
                    true => "cond",
                    false => "ask",
                }
            }
        };
        assert!(asked == "cond" || outcome.upstream.is_none() || !has_own);
        let client = &outcome.client;
        assert_eq!(
            client.header("x-a"),
            None.or(client.header("x-a").filter(|_| asked != "-"))
        );
        assert!(asked != "-" || client.header("set-cookie").is_none());
        assert!(asked != "-" || client.status == 504 || client.header("age").is_some());
        match client.text() {
            _ if is_head || client.status == 504 || client.status == 304 => {
                format!("{asked} {}", client.status)
            }
            body => format!("{asked} {} {body}", client.status),
        }
    }

    fn get(&self, lines: &[&str], response: &str) -> Outcome {
        let call = self.0.request("GET /").lines(lines);
        call.answered(upstream(1, response)).run_now()
    }

    /// Whether the upstream is asked.
    fn asks(&self, lines: &[&str], response: &str) -> bool {
        self.get(lines, response).upstream.is_some()
    }

    fn advance(&self, seconds: u64) {
        self.0.node().clock.advance(Duration::from_secs(seconds));
    }

    fn call(&self) -> Call<'_> {
        self.0
            .request("GET /")
            .answered(upstream(1, "200|Cache-Control: max-age=9"))
    }
}

/// A response whose body is a number.
fn upstream(number: usize, response: &str) -> Upstream {
    let mut lines = response.split('|');
    let status = lines.next().and_then(|status| status.parse().ok());
    let mut upstream = Upstream::new(status.expect("a status"));
    for line in lines {
        let (name, value) = line.split_once(": ").expect("a header line");
        upstream = upstream.header(name, value);
    }
    if status != Some(304) {
        upstream = upstream
            .header("Content-Type", "text/plain")
            .body(number.to_string());
    }
    upstream
}

const FRESH: &str = "200|Cache-Control: max-age=9";

#[test]
fn the_scheme_the_route_and_the_client_are_parts_of_the_key() {
    let cache = Cache::new();
    let asks = |call: Call<'_>| call.run_now().upstream.is_some();
    assert!(asks(cache.call()));
    assert!(!asks(cache.call()));
    let others: [fn(Call<'_>) -> Call<'_>; 4] = [
        |call| call.https(None),
        |call| call.route(Uuid::from_u128(77), None),
        |call| call.consumer(Uuid::from_u128(1), "ann"),
        |call| call.credential(Uuid::from_u128(2)),
    ];
    for other in others {
        assert!(asks(other(cache.call())));
        assert!(!asks(other(cache.call())));
    }
    // All of them become invalid together, except for the other scheme.
    cache
        .0
        .request("DELETE /")
        .answered(upstream(1, "204"))
        .run_now();
    assert!(!asks(others[0](cache.call())));
    for other in &others[1..] {
        assert!(asks(other(cache.call())));
    }
}

#[test]
fn headers_of_a_304_replace_the_stored_ones_except_those_about_the_body() {
    let cache = Cache::new();
    cache.get(
        &[],
        "200|Cache-Control: max-age=1|ETag: \"a\"|X-New: 1|X-Old: 1|Content-Encoding: x",
    );
    cache.advance(1);
    let update =
        "304|ETag: \"a\"|X-New: 2|Cache-Control: max-age=9|Content-Encoding: y|Set-Cookie: a=b";
    let first = cache.get(&[], update).client;
    assert_eq!(first.header("x-cache-status"), Some("Revalidated"));
    let hit = cache.get(&[], "500").client;
    for (name, value) in [
        ("x-new", Some("2")),
        ("x-old", Some("1")),
        ("content-encoding", Some("x")),
        ("set-cookie", None),
        ("age", Some("0")),
    ] {
        assert_eq!(hit.header(name), value, "{name}");
    }
}

#[test]
fn nothing_of_an_error_is_left_when_a_stale_response_stands_in_for_it() {
    let cache = Cache::new();
    cache.get(&[], "200|Cache-Control: max-age=1, stale-if-error=9");
    cache.advance(1);
    let client = cache.get(&[], "503|Retry-After: 9|X-Error: 1").client;
    assert_eq!(
        (client.status, client.header("x-cache-status")),
        (200, Some("Stale"))
    );
    assert_eq!(
        (client.header("retry-after"), client.header("x-error")),
        (None, None)
    );
}

#[test]
fn variants_of_a_uri_are_bounded() {
    let cache = Cache::new();
    let response = "200|Cache-Control: max-age=99|Vary: X-A";
    let line = |number: usize| format!("X-A: {number}");
    for number in 0..70 {
        assert!(cache.asks(&[&line(number)], response));
    }
    assert!(!cache.asks(&[&line(69)], response));
    assert!(!cache.asks(&[&line(6)], response));
    assert!(
        cache.asks(&[&line(5)], response),
        "64 newer ones have replaced it"
    );
}

#[test]
fn configured_headers_and_arguments_distinguish_responses_too() {
    let cache = Cache::with(json!({"vary_headers": ["x_a"], "vary_query_params": ["p"]}));
    let asks = |target: &str, line: &str| {
        let call = cache.0.request(&format!("GET {target}")).lines(&[line]);
        call.answered(upstream(1, FRESH))
            .run_now()
            .upstream
            .is_some()
    };
    assert!(asks("/?p=1&q=1", "X-A: 1"));
    assert!(!asks("/?q=2&p=1", "X-A: 1"));
    assert!(asks("/?p=1", "X-A: 2"));
    assert!(asks("/?p=2", "X-A: 1"));
}

#[test]
fn a_response_is_not_sent_after_the_configuration_has_named_a_further_header() {
    let before = Cache::new();
    assert!(before.asks(&["X-A: 1"], FRESH));
    let config = json!({
        "strategy": "memory", "rfc9111": true, "content_type": ["text/plain"], "vary_headers": ["X-A"],
    });
    let after = Cache(case(def(), config).on(before.0.node().clone()));
    assert!(after.asks(&["X-A: 2"], FRESH));
    assert!(!after.asks(&["X-A: 2"], FRESH));
    assert!(after.asks(&["X-A: 1"], FRESH));
}

#[test]
fn the_host_and_the_user_that_earlier_plugins_set_are_parts_of_the_key() {
    let config = json!({"strategy": "memory", "rfc9111": true, "content_type": ["text/plain"]});
    for rules in [
        json!({"replace": {"headers": ["Host:$(headers['x-tenant']).test"]}}),
        json!({"add": {"headers": ["Authorization:Bearer $(headers['x-tenant'])"]}}),
    ] {
        let case = case(def(), config.clone()).and(crate::request_transformer::def(), rules);
        case.node();
        let asks = |line: &str| {
            let call = case.request("GET /").lines(&[line]);
            call.answered(upstream(1, FRESH))
                .run_now()
                .upstream
                .is_some()
        };
        assert!(asks("X-Tenant: a"));
        assert!(!asks("X-Tenant: a"));
        assert!(asks("X-Tenant: b"));
    }
}

#[test]
fn a_response_that_was_asked_for_before_an_invalidation_is_not_stored() {
    let storage = Storage::new(1024 * 1024);
    let text = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let head = RequestHead::parse(text, &Limits::default()).unwrap();
    let (head, _) = head.expect("a whole head");
    let request = Request::bare(&head);
    let owner = Owner {
        consumer: None,
        credential: None,
        route: None,
    };
    let config = json!({
        "response_code": [], "request_method": [], "content_type": [], "strategy": "memory", "cache_control": false,
        "memory": {"dictionary_name": "kong"}, "response_headers": {},
    });
    let config = serde_json::from_value(config).expect("a configuration");
    let place = Place::of(&request, &owner, &config);
    let entry = Entry {
        status: 200,
        stored: Arc::new(Stored::new(std::iter::empty())),
        stored_at: 1,
        ttl: 9,
        expires_at: 9,
        terms: Terms::default(),
    };
    let stamp = storage.stamp(&place.uri);
    let stores = |stamp| {
        let edits = HeaderEdits::new();
        let asked = Seen {
            head: &head,
            before: &edits,
            sent: &edits,
            stamp,
        };
        place.store(&storage, &asked, Vec::new(), entry.clone(), 1);
        place.find(&storage, &request, &[], 1).entry.is_some()
    };
    assert!(stores(stamp));
    storage.invalidate(&place.uri);
    assert!(!stores(stamp));
    assert!(stores(storage.stamp(&place.uri)));
}

#[test]
fn the_key_that_clients_see_removes_all_variants() {
    let cache = Cache::new();
    let response = "200|Cache-Control: max-age=99|Vary: X-A";
    let key = cache.get(&["X-A: 1"], response).client;
    let key = key.header("x-cache-key").and_then(CacheKey::parse);
    cache.asks(&["X-A: 2"], response);
    let storage = zones::storage(cache.0.node(), "kong_db_cache");
    assert!(storage.purge(&key.expect("a key"), 0));
    assert!(cache.asks(&["X-A: 1"], response) && cache.asks(&["X-A: 2"], response));
}

#[test]
fn bodies_and_upgrades_of_requests_are_left_alone() {
    let cache = Cache::new();
    cache.asks(&[], FRESH);
    assert!(cache.asks(
        &["Content-Length: 0", "Upgrade: x", "Connection: upgrade"],
        FRESH
    ));
    let with_body = cache.call().body("x").run_now();
    assert_eq!(with_body.client.header("x-cache-status"), Some("Bypass"));
}

#[test]
fn a_response_without_a_body_is_stored() {
    let cache = Cache::new();
    let response = "204|Cache-Control: max-age=9";
    assert!(cache.asks(&[], response));
    let hit = cache.get(&[], response);
    assert!(hit.upstream.is_none());
    assert_eq!(hit.client.status, 204);
}

/// Returns the key of the response which is stored already.
fn latest(cache: &Cache, storage: &Arc<Storage>) -> CacheKey {
    let shown = cache.get(&["Kong-Debug: 1"], FRESH).client;
    let uri = shown.header("x-cache-key").and_then(CacheKey::parse);
    let family = storage.family(&uri.expect("the response shows its key"), 0);
    family.expect("a response was stored").latest
}

/// Takes the part of a request that fetches the response which is stored already.
fn fetches(cache: &Cache, storage: &Arc<Storage>) -> Flight {
    match storage.take_off(latest(cache, storage)) {
        Turn::First(flight) => flight,
        Turn::Later(_) => panic!("nobody else fetches"),
    }
}

#[test]
fn a_stale_response_is_sent_while_another_request_validates_it() {
    let cache = Cache::new();
    let storage = zones::storage(cache.0.node(), "kong_db_cache");
    cache.get(
        &[],
        "200|Cache-Control: max-age=9, stale-while-revalidate=5",
    );
    let flight = fetches(&cache, &storage);
    cache.advance(13);
    let stale = cache.get(&[], FRESH);
    assert!(stale.upstream.is_none());
    assert_eq!(stale.client.header("x-cache-status"), Some("Stale"));
    assert_eq!(stale.client.header("age"), Some("13"));
    assert!(!stale.state.goes_on, "another request validates it");
    drop(flight);
    let unstored = cache.get(&["Cache-Control: no-store"], FRESH);
    assert!(unstored.upstream.is_none());
    assert!(!unstored.state.goes_on, "nothing would be stored");
    let stale = cache.get(&[], FRESH);
    assert!(stale.upstream.is_none(), "its client need not wait");
    assert!(stale.state.goes_on, "now it is the one that validates");
    cache.advance(1);
    assert!(cache.asks(&[], FRESH), "the response does not allow it");
}

/// Its own client may receive the stale response as slowly as it likes, and it fetches only afterwards.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_request_that_fetches_after_its_client_has_a_stale_response() {
    let cache = Cache::with(json!({"collapse_timeout": 5}));
    let storage = zones::storage(cache.0.node(), "kong_db_cache");
    cache.get(&[], FRESH);
    let key = latest(&cache, &storage);
    let background = storage.take_off_in_background(key);
    assert!(background.is_some() && storage.take_off_in_background(key).is_none());
    cache.advance(10);
    let begun = tokio::time::Instant::now();
    let one = cache.call().run().await;
    assert!(one.upstream.is_some() && begun.elapsed() == Duration::ZERO);
    // The end of the one does not end the flight of the other.
    let Turn::First(flight) = storage.take_off(key) else {
        panic!("the background has no place that others respect");
    };
    drop(background);
    assert!(matches!(storage.take_off(key), Turn::Later(_)));
    drop(flight);
    assert!(matches!(storage.take_off(key), Turn::First(_)));
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_one_that_fetches_and_only_for_so_long() {
    let cache = Cache::with(json!({"collapse_timeout": 5}));
    let storage = zones::storage(cache.0.node(), "kong_db_cache");
    cache.get(&[], FRESH);
    let flight = fetches(&cache, &storage);
    cache.advance(10);
    let begun = tokio::time::Instant::now();
    let call = || cache.call().run();
    let (one, two) = tokio::join!(call(), call());
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    // One of them stored its response before the other looked again.
    assert!(one.upstream.is_some() != two.upstream.is_some());
    drop(flight);
}

#[tokio::test(start_paused = true)]
async fn one_of_the_waiting_requests_fetches_if_the_client_of_the_first_leaves() {
    let cache = Cache::with(json!({"collapse_timeout": 5}));
    let storage = zones::storage(cache.0.node(), "kong_db_cache");
    cache.get(&[], FRESH);
    let flight = fetches(&cache, &storage);
    cache.advance(10);
    let begun = tokio::time::Instant::now();
    let call = || cache.call().run();
    let leaves = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(flight);
    };
    let (one, two, three, ()) = tokio::join!(call(), call(), call(), leaves);
    let asked = [one, two, three].map(|outcome| usize::from(outcome.upstream.is_some()));
    assert_eq!(asked.iter().sum::<usize>(), 1);
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[test]
fn nobody_waits_for_a_response_that_is_too_large_to_be_stored() {
    for more in [json!({}), json!({"rfc9111": false})] {
        let mut config = json!({"collapse_timeout": 5});
        for (name, value) in more.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        let cache = Cache::with(config);
        let large = format!("{FRESH}|Content-Length: {}", 1_u64 << 40);
        assert!(cache.asks(&[], &large));
        assert!(cache.asks(&[], &large));
        let storage = zones::storage(cache.0.node(), "kong_db_cache");
        assert_eq!(storage.flights.unshared(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_private_response_is_not_shared_with_requests_that_wait() {
    let cache = Cache::with(json!({"collapse_timeout": 5}));
    let storage = zones::storage(cache.0.node(), "kong_db_cache");
    cache.get(&[], FRESH);
    let flight = fetches(&cache, &storage);
    cache.advance(10);
    let private = || {
        let response = upstream(1, "200|Cache-Control: private, max-age=9");
        cache.0.request("GET /").answered(response).run()
    };
    let ends = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(flight);
    };
    let (one, two, ()) = tokio::join!(private(), private(), ends);
    assert!(one.upstream.is_some() && two.upstream.is_some());
    // It is known now that waiting is of no use.
    let begun = tokio::time::Instant::now();
    let (one, two) = tokio::join!(private(), private());
    assert!(one.upstream.is_some() && two.upstream.is_some());
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// A plugin that runs after proxy-cache, and sets a header on which the response depends.
struct Later;

impl Plugin for Later {
    type Config = serde::de::IgnoredAny;
    type Own = ();

    fn build(_: serde::de::IgnoredAny, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self)
    }

    fn access<'a>(&'a self, cx: RequestCx<'a, '_>, _: &'a mut ()) -> Result<Step<'a>, PluginError> {
        cx.request.upstream.headers.set("X-User", "ann");
        Ok(Step::Continue)
    }
}

#[test]
fn a_header_that_a_later_plugin_sets_does_not_lead_to_a_response_for_another_client() {
    let later = PluginDef::bundled::<Later>("later", -1, Phases::ACCESS, Scopes::ALL);
    let config = json!({"strategy": "memory", "rfc9111": true, "content_type": ["text/plain"]});
    let case = case(def(), config).and_complete(later, json!({}));
    case.node();
    for line in [
        "X-User: ann",
        "X-User: ann",
        "X-User: bob",
        "X-User: bob",
        "X-A: 1",
        "X-A: 1",
    ] {
        let response = upstream(1, "200|Cache-Control: max-age=9|Vary: X-User");
        let outcome = case
            .request("GET /")
            .lines(&[line])
            .answered(response)
            .run_now();
        assert!(outcome.upstream.is_some(), "{line}");
    }
}
