//! Tests of the plugin: headers, refusals, and what is counted where.

use super::def;
use plugin::testing::{Case, Outcome, Upstream};
use serde_json::{Value, json};
use std::time::Duration;
use testkit::Redis;
use tokio::time::Instant;

fn case(config: Value) -> Case {
    crate::testing::case(def(), config)
}

fn video(config: Value) -> Case {
    let mut config = config;
    config["limits"] = json!({"video": {"minute": 3}});
    case(config)
}

/// Runs a request whose response uses this up.
async fn run(case: &Case, uses: &str) -> Outcome {
    let upstream = Upstream::new(200)
        .header("X-Kong-Limit", uses)
        .header("X-Up", "1")
        .body("up");
    let request = case.request("GET /").client("192.0.2.1:80");
    request.answered(upstream).run().await
}

fn shown(outcome: &Outcome) -> [Option<&str>; 3] {
    ["", "-minute", "-hour"].map(|end| {
        let name = format!("x-ratelimit-remaining-video{end}");
        outcome.client.header(&name)
    })
}

#[tokio::test]
async fn what_responses_use_up_is_counted_and_shown() {
    let case = case(json!({"limits": {"video": {"minute": 3, "hour": 10}}}));
    let outcome = run(&case, "video=2").await;
    assert_eq!(shown(&outcome), [Some("3"), Some("1"), Some("8")]);
    assert_eq!(
        outcome.client.header("x-ratelimit-limit-video-minute"),
        Some("3")
    );
    assert_eq!(outcome.client.header("x-kong-limit"), None);
    let outcome = run(&case, "audio=1, video=x").await;
    assert_eq!(shown(&outcome), [Some("1"), Some("1"), Some("8")]);
    // More than what is left still passes.
    assert_eq!(run(&case, "video=5").await.client.status, 200);
    let refused = run(&case, "video=1").await;
    assert_eq!((refused.client.status, refused.client.text()), (429, ""));
    assert_eq!(refused.client.header("x-up"), Some("1"));
    // A refused response is not counted.
    let outcome = run(&case, "").await;
    assert_eq!(
        (outcome.client.status, shown(&outcome)[2]),
        (200, Some("3"))
    );
    case.node().clock.advance(Duration::from_secs(60));
    assert_eq!(shown(&run(&case, "video=1").await)[1], Some("2"));
}

#[tokio::test]
async fn hidden_headers_show_only_what_remains_before_the_response() {
    let case = video(json!({"hide_client_headers": true}));
    assert_eq!(shown(&run(&case, "video=1").await), [Some("3"), None, None]);
}

#[tokio::test]
async fn requests_are_blocked_when_exactly_nothing_remains() {
    let case = video(json!({"block_on_first_violation": true}));
    run(&case, "video=3").await;
    let blocked = run(&case, "").await;
    assert_eq!(
        (blocked.client.status, blocked.upstream.is_none()),
        (429, true)
    );
    assert_eq!(
        blocked.client.message(),
        "API rate limit exceeded for 'video'"
    );
    assert_eq!(
        blocked.client.header("x-ratelimit-limit-video-minute"),
        None
    );
}

#[tokio::test]
async fn a_negative_number_gives_back() {
    let case = video(json!({}));
    run(&case, "video=3").await;
    run(&case, "video=-2").await;
    assert_eq!(shown(&run(&case, "").await)[0], Some("2"));
}

#[tokio::test]
async fn names_and_clients_count_apart_and_not_with_rate_limiting() {
    let limits = json!({"video": {"minute": 3}, "image": {"minute": 3}});
    let case = case(json!({"limits": limits}));
    let case = case.and(crate::rate_limiting::def(), json!({"minute": 9}));
    run(&case, "video=2").await;
    let outcome = run(&case, "image=1").await;
    assert_eq!(
        outcome.client.header("x-ratelimit-remaining-image"),
        Some("3")
    );
    assert_eq!(shown(&outcome)[0], Some("1"));
    assert_eq!(
        outcome.client.header("x-ratelimit-remaining-minute"),
        Some("7")
    );
    let other = case.request("GET /").client("192.0.2.2:80").run().await;
    assert_eq!(shown(&other)[0], Some("3"));
}

#[test]
fn a_name_that_cannot_be_in_a_header_is_refused() {
    crate::install();
    let config = json!({"limits": {"a\r\nb": {"minute": 3}}});
    let reason = plugin::testing::refusal(&def(), config);
    assert!(
        reason.contains("cannot be a part of a header name"),
        "{reason}"
    );
}

fn remote(port: u16, config: Value) -> Case {
    let mut config = config;
    config["policy"] = "redis".into();
    config["redis"] = json!({"host": "127.0.0.1", "port": port});
    video(config)
}

#[tokio::test]
async fn nodes_count_together_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (first, second) = (remote(redis.port, json!({})), remote(redis.port, json!({})));
    assert_eq!(shown(&run(&first, "video=2").await)[1], Some("1"));
    let end = Instant::now() + Duration::from_secs(30);
    while shown(&run(&second, "").await)[1] != Some("1") {
        assert!(Instant::now() < end, "counting takes too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // All periods are counted, and end.
    let keys = redis.query(&["KEYS", "response-ratelimit:*:192.0.2.1:*:video:*"]);
    let periods: Vec<&str> = keys
        .lines()
        .filter_map(|key| key.rsplit(':').next())
        .collect();
    for period in ["minute", "hour", "day", "month", "year"] {
        assert!(periods.contains(&period), "{keys}");
    }
    for key in keys.lines() {
        // The counter of a second may have ended meanwhile (-2). One without an end would have -1.
        assert_ne!(redis.query(&["TTL", key]), "-1", "{key}");
    }
}

#[tokio::test]
async fn without_redis_requests_pass_unlimited_or_fail() {
    // Nothing listens on port 1.
    let passed = run(&remote(1, json!({})), "video=9").await;
    assert_eq!((passed.client.status, shown(&passed)), (200, [None; 3]));
    let failed = run(&remote(1, json!({"fault_tolerant": false})), "video=9").await;
    assert_eq!(
        (failed.client.status, failed.upstream.is_none()),
        (500, true)
    );
}
