//! rate-limiting with the policy `local`: a limit holds exactly for all workers together, and clients learn it.
//!
//! All limits here are per month or year, so that no window ends during a test.

use super::http2::Http2;
use super::{DATABASES, one_service, start, workers};
use crate::SetOnDrop;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use testkit::{Client, Echo, HttpResponse};

/// Number of clients that send requests at the same time.
const THREADS: usize = 8;
/// Connections of each client. All are open at once, so that the kernel spreads them over all workers.
const CONNECTIONS: usize = 8;
/// Requests on each connection.
const REQUESTS: usize = 5;
/// All requests of a storm.
const ALL: usize = THREADS * CONNECTIONS * REQUESTS;

/// A route `/a` with this configuration of the plugin.
pub(super) fn limited(echo: &Echo, config: &Value) -> Value {
    let plugin = json!({"name": "rate-limiting", "config": config});
    one_service(
        &echo.url(),
        json!([{"name": "a", "paths": ["/a"], "plugins": [plugin]}]),
    )
}

/// Sends requests on many connections at the same time, with headers that `headers` chooses by the number of the
/// client. Returns the responses of each client.
pub(super) fn storm<'h>(
    proxy: SocketAddr,
    headers: impl Fn(usize) -> Vec<(&'h str, &'h str)> + Sync,
) -> Vec<Vec<HttpResponse>> {
    let send = |headers: Vec<(&str, &str)>| {
        let connect = |_| Client::connect(proxy);
        let mut clients: Vec<_> = (0..CONNECTIONS).map(connect).collect();
        let rounds = (0..REQUESTS).flat_map(|_| {
            let ask = |client: &mut Client| client.request("GET", "/a", &headers, b"");
            clients.iter_mut().map(ask).collect::<Vec<_>>()
        });
        rounds.collect()
    };
    thread::scope(|scope| {
        let clients = (0..THREADS).map(|number| {
            let headers = headers(number);
            scope.spawn(move || send(headers))
        });
        let clients: Vec<_> = clients.collect();
        let join = |client: thread::ScopedJoinHandle<'_, _>| client.join().expect("it is served");
        clients.into_iter().map(join).collect()
    })
}

/// Returns how many responses have this status.
pub(super) fn count<'r>(
    responses: impl IntoIterator<Item = &'r HttpResponse>,
    status: u16,
) -> usize {
    let responses = responses.into_iter();
    responses.filter(|answer| answer.status == status).count()
}

#[test]
fn exactly_as_many_requests_as_the_limit_pass_through_several_workers() {
    const LIMIT: usize = 150;
    const ROUNDS: usize = 5;
    for database in DATABASES {
        let echo = Echo::start();
        let config = json!({"year": LIMIT, "limit_by": "header", "header_name": "x-round"});
        let gateway = start(workers(), database, &limited(&echo, &config));
        // Each round has a counter that does not exist yet, so that all workers also try to create it at once.
        for round in 0..ROUNDS {
            let name = round.to_string();
            let responses = storm(gateway.proxy, |_| vec![("x-round", &*name)]);
            let responses = || responses.iter().flatten();
            assert_eq!(count(responses(), 200), LIMIT, "round {round}, {database}");
            assert_eq!(count(responses(), 429), ALL - LIMIT);
            let mut remaining: Vec<usize> = responses()
                .filter(|answer| answer.status == 200)
                .map(|answer| number(answer, "x-ratelimit-remaining-year"))
                .collect();
            remaining.sort_unstable();
            let all_numbers: Vec<usize> = (0..LIMIT).collect();
            assert_eq!(remaining, all_numbers, "each number is shown once");
        }
        assert_eq!(echo.requests(), (LIMIT * ROUNDS) as u64);
    }
}

#[test]
fn no_request_too_many_passes_when_few_places_are_left() {
    const RACERS: usize = 8;
    const PLACES: usize = 3;
    const ROUNDS: usize = 1000;
    let echo = Echo::start();
    let config = json!({"year": PLACES, "limit_by": "header", "header_name": "x-round"});
    let gateway = start(workers(), "off", &limited(&echo, &config));
    let (ready, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let passed: Vec<AtomicUsize> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..RACERS {
            scope.spawn(|| {
                // The others stop to wait for this client if it panics.
                let _failed = SetOnDrop(&failed);
                let mut client = Client::connect(gateway.proxy);
                for (round, passed) in passed.iter().enumerate() {
                    ready.fetch_add(1, Ordering::SeqCst);
                    let all = RACERS * (round + 1);
                    while ready.load(Ordering::SeqCst) < all && !failed.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    let headers = [("x-round", &*round.to_string())];
                    let answer = client.request("GET", "/a", &headers, b"");
                    passed.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
                }
            });
        }
    });
    for (round, passed) in passed.iter().enumerate() {
        assert_eq!(passed.load(Ordering::SeqCst), PLACES, "round {round}");
    }
}

#[test]
fn each_consumer_has_the_whole_limit_in_all_workers_together() {
    const LIMIT: usize = 60;
    let echo = Echo::start();
    let mut configuration = limited(&echo, &json!({"year": LIMIT, "limit_by": "consumer"}));
    configuration["plugins"] = json!([{"name": "key-auth"}]);
    let names = ["alice", "bob"];
    configuration["consumers"] = names
        .iter()
        .map(|name| json!({"username": name, "keyauth_credentials": [{"key": name}]}))
        .collect();
    let gateway = start(workers(), "lmdb", &configuration);
    let name = |client: usize| names[client % names.len()];
    let responses = storm(gateway.proxy, |client| vec![("apikey", name(client))]);
    for consumer in names {
        let of_consumer = responses.iter().enumerate();
        let of_consumer = of_consumer.filter(|(client, _)| name(*client) == consumer);
        let responses = of_consumer.flat_map(|(_, responses)| responses);
        assert_eq!(count(responses, 200), LIMIT, "{consumer}");
    }
}

#[test]
fn all_windows_of_a_request_are_counted_or_none_is() {
    let echo = Echo::start();
    let config = json!({"month": 40, "year": 90, "limit_by": "ip"});
    let gateway = start(workers(), "off", &limited(&echo, &config));
    let responses = storm(gateway.proxy, |_| Vec::new());
    let responses: Vec<_> = responses.into_iter().flatten().collect();
    assert_eq!(count(&responses, 200), 40);
    // The requests beyond the limit of the month are not counted in the year.
    let refused = gateway.get("/a", &[]);
    assert_eq!(refused.status, 429);
    assert_eq!(number(&refused, "x-ratelimit-remaining-month"), 0);
    assert_eq!(number(&refused, "x-ratelimit-remaining-year"), 50);
}

#[test]
fn responses_show_the_limits_and_refusals_have_the_body_of_kong() {
    let echo = Echo::start();
    let config = json!({"month": 2, "year": 9});
    let gateway = start(workers(), "off", &limited(&echo, &config));
    let passed = gateway.get("/a", &[]);
    assert_eq!(passed.status, 200);
    let shown = |answer: &HttpResponse| {
        [
            "x-ratelimit-limit-month",
            "x-ratelimit-remaining-month",
            "x-ratelimit-limit-year",
            "x-ratelimit-remaining-year",
            "ratelimit-limit",
            "ratelimit-remaining",
        ]
        .map(|name| number(answer, name))
    };
    assert_eq!(shown(&passed), [2, 1, 9, 8, 2, 1]);
    assert_eq!(passed.header("retry-after"), None);
    assert_eq!(shown(&gateway.get("/a", &[])), [2, 0, 9, 7, 2, 0]);
    let refused = gateway.get("/a", &[]);
    assert_eq!(shown(&refused), [2, 0, 9, 7, 2, 0]);
    let seconds = number(&refused, "retry-after");
    assert_eq!(number(&refused, "ratelimit-reset"), seconds);
    // A reset counts 30 days for each month, so that it can be 1 for all of the 31st day.
    assert!((1..=30 * 86_400).contains(&seconds), "{seconds}");
    let id = refused.header("x-kong-request-id").expect("an id");
    let body =
        format!("{{\n  \"message\":\"API rate limit exceeded\",\n  \"request_id\":\"{id}\"\n}}");
    assert_eq!((refused.status, refused.text()), (429, body));
    let kind = refused.header("content-type");
    assert_eq!(kind, Some("application/json; charset=utf-8"));
    assert_eq!(echo.requests(), 2);
}

#[test]
fn a_refusal_over_http2_looks_the_same_and_a_call_of_grpc_has_exhausted_its_resource() {
    let echo = Echo::start();
    let config = json!({"year": 1, "error_message": "no more tea"});
    let launch = workers().set("proxy_listen", "127.0.0.1:0 http2");
    let gateway = start(launch, "off", &limited(&echo, &config));
    let mut client = Http2::connect(gateway.proxy);
    assert_eq!(client.request("GET", "/a", &[], b"").status, 200);
    let refused = client.request("GET", "/a", &[], b"");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["message"], "no more tea");
    assert_eq!(number(&refused, "x-ratelimit-remaining-year"), 0);
    let call = [("content-type", "application/grpc"), ("te", "trailers")];
    let refused = client.request("POST", "/a", &call, b"");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("grpc-status"), Some("8"));
    assert_eq!(refused.header("grpc-message"), Some("ResourceExhausted"));
    assert_eq!(number(&refused, "x-ratelimit-limit-year"), 1);
}

#[test]
fn hidden_headers_are_in_no_response() {
    let echo = Echo::start();
    let config = json!({"year": 1, "hide_client_headers": true});
    let gateway = start(workers(), "off", &limited(&echo, &config));
    for status in [200, 429] {
        let answer = gateway.get("/a", &[]);
        assert_eq!(answer.status, status);
        let mut names = answer.headers.iter().map(|(name, _)| name.to_lowercase());
        let shown = names.find(|name| name.contains("ratelimit") || name == "retry-after");
        assert_eq!(shown, None);
    }
}

/// Returns the value of a header that is a number.
pub(super) fn number(answer: &HttpResponse, name: &str) -> usize {
    let text = answer.header(name);
    let text = text.unwrap_or_else(|| panic!("no {name} in {:?}", answer.headers));
    text.parse().expect("a number")
}
