//! Tests of the policy `redis` with real servers, where they are installed.

use super::def;
use plugin::testing::{Case, Outcome};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use testkit::{Redis, RedisCluster, RedisSentinel};
use tokio::time::Instant;

/// Time limit of what happens at last. Even on a busy machine, it takes less.
const LIMIT: Duration = Duration::from_secs(30);

/// A case on a node of its own, whose clock stands at 20 seconds of a minute.
fn case(port: u16, config: Value) -> Case {
    let redis = json!({"host": "127.0.0.1", "port": port, "timeout": 5000});
    with(redis, config)
}

fn with(redis: Value, mut config: Value) -> Case {
    config["policy"] = "redis".into();
    config["redis"] = redis;
    crate::testing::case(def(), config)
}

async fn run(case: &Case) -> Outcome {
    case.request("GET /").client("192.0.2.1:80").run().await
}

async fn passes(case: &Case) -> bool {
    run(case).await.upstream.is_some()
}

async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let end = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < end, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// The name of the counter of 192.0.2.1.
fn key(redis: &Redis, period: &str) -> String {
    let keys = redis.query(&["KEYS", &format!("ratelimit:*:192.0.2.1:*:{period}")]);
    assert!(
        keys.starts_with(&format!("ratelimit:{NOBODY}:{NOBODY}:192.0.2.1:")),
        "{keys}"
    );
    assert_eq!(keys.lines().count(), 1, "{keys}");
    keys
}

#[tokio::test]
async fn nodes_count_together_and_refused_requests_count_too() {
    let Some(redis) = Redis::start() else { return };
    let config = json!({"minute": 2, "month": 9});
    let (first, second) = (case(redis.port, config.clone()), case(redis.port, config));
    let shown = run(&first).await;
    assert_eq!(
        shown.client.header("x-ratelimit-remaining-minute"),
        Some("1")
    );
    assert_eq!(
        shown.client.header("x-ratelimit-remaining-month"),
        Some("8")
    );
    assert!(passes(&second).await);
    for case in [&first, &second] {
        let refused = run(case).await;
        assert_eq!(
            (refused.client.status, refused.upstream.is_none()),
            (429, true)
        );
        assert_eq!(refused.client.header("ratelimit-remaining"), Some("0"));
        assert_eq!(refused.client.header("retry-after"), Some("40"));
    }
    assert_eq!(redis.query(&["GET", &key(&redis, "minute")]), "4");
    let lifetime = |period| -> i64 { redis.query(&["TTL", &key(&redis, period)]).parse().unwrap() };
    assert!((1..=60).contains(&lifetime("minute")));
    // A month can have 31 days.
    assert!((30 * 86_400 + 1..=31 * 86_400).contains(&lifetime("month")));
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_an_error() {
    let Some(redis) = Redis::start() else { return };
    let case = case(redis.port, json!({"minute": 2, "fault_tolerant": false}));
    assert!(passes(&case).await);
    redis.query(&["SET", &key(&redis, "minute"), "text"]);
    assert_eq!(run(&case).await.client.status, 500);
}

#[tokio::test]
async fn requests_pass_without_headers_or_fail_while_redis_is_away() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let tolerant = case(redis.port, json!({"minute": 2}));
    let strict = case(redis.port, json!({"minute": 2, "fault_tolerant": false}));
    assert!(passes(&tolerant).await);
    redis.kill();
    for _ in 0..5 {
        let passed = run(&tolerant).await;
        assert!(passed.upstream.is_some());
        assert_eq!(passed.client.header("ratelimit-limit"), None);
        let failed = run(&strict).await;
        assert_eq!(
            (failed.client.status, failed.upstream.is_none()),
            (500, true)
        );
    }
    let metric = |case: &Case, outcome: &str| {
        let line = format!("silverback_rate_limiting_uncounted_total{{outcome=\"{outcome}\"}} 5");
        case.node().metrics.render().contains(&line)
    };
    assert!(metric(&tolerant, "passed") && metric(&strict, "failed"));
    redis.restart();
    eventually("counting again", || async {
        run(&strict)
            .await
            .client
            .header("ratelimit-limit")
            .is_some()
    })
    .await;
}

#[tokio::test]
async fn batched_counts_are_reported_once_and_another_node_begins_with_them() {
    let Some(redis) = Redis::start() else { return };
    let config = json!({"hour": 100, "sync_rate": 0.05});
    let (first, second) = (case(redis.port, config.clone()), case(redis.port, config));
    for _ in 0..20 {
        assert!(passes(&first).await);
    }
    let count = || async { redis.query(&["GET", &key(&redis, "hour")]) };
    eventually("the report", || async { count().await == "20" }).await;
    let shown = run(&second).await;
    assert_eq!(
        shown.client.header("x-ratelimit-remaining-hour"),
        Some("79")
    );
    // Nothing is counted twice after a further report.
    assert!(passes(&first).await);
    eventually("the second report", || async { count().await == "22" }).await;
    let lifetime: i64 = redis.query(&["TTL", &key(&redis, "hour")]).parse().unwrap();
    assert!((1..=3600).contains(&lifetime));
}

#[tokio::test]
async fn batched_counts_of_several_nodes_end_at_the_limit() {
    let Some(redis) = Redis::start() else { return };
    let config = json!({"minute": 10, "sync_rate": 0.05});
    let cases = [0; 3].map(|_| case(redis.port, config.clone()));
    let mut passed = 0;
    for _ in 0..10 {
        for case in &cases {
            passed += u32::from(passes(case).await);
            case.node().clock.advance(Duration::from_millis(60));
        }
    }
    // Each answer was older than the interval, so that each request has asked.
    assert_eq!(passed, 10);
}

#[tokio::test]
async fn a_changed_limit_keeps_the_batched_counts() {
    let Some(redis) = Redis::start() else { return };
    let first = case(redis.port, json!({"minute": 5, "sync_rate": 60}));
    for _ in 0..3 {
        assert!(passes(&first).await);
    }
    let changed = case(redis.port, json!({"minute": 4, "sync_rate": 60})).on(first.node().clone());
    let shown = run(&changed).await;
    assert_eq!(
        shown.client.header("x-ratelimit-remaining-minute"),
        Some("0")
    );
    assert!(!passes(&changed).await);
}

#[tokio::test]
async fn a_request_that_fails_without_redis_is_not_counted_later() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let config = json!({"hour": 100, "sync_rate": 0.05, "fault_tolerant": false});
    let case = case(redis.port, config);
    redis.kill();
    for _ in 0..5 {
        assert_eq!(run(&case).await.client.status, 500);
    }
    redis.restart();
    let counted = || async { passes(&case).await };
    eventually("counting again", counted).await;
    let shown = run(&case).await;
    let remaining = shown.client.header("x-ratelimit-remaining-hour");
    assert_eq!(remaining, Some("98"));
}

#[tokio::test]
async fn a_shutdown_and_a_removed_plugin_report_what_was_counted() {
    let Some(redis) = Redis::start() else { return };
    let config = json!({"hour": 100, "sync_rate": 600});
    let (removed, stopped) = (case(redis.port, config.clone()), case(redis.port, config));
    for case in [&removed, &stopped] {
        for _ in 0..3 {
            assert!(passes(case).await);
        }
    }
    assert_eq!(redis.query(&["GET", &key(&redis, "hour")]), "2");
    let deadline = Instant::now() + LIMIT;
    assert!(stopped.node().background.shut_down(deadline).await);
    assert_eq!(redis.query(&["GET", &key(&redis, "hour")]), "4");
    drop(removed);
    let count = || async { redis.query(&["GET", &key(&redis, "hour")]) };
    eventually("the last report", || async { count().await == "6" }).await;
}

#[tokio::test]
async fn what_was_counted_while_redis_was_away_is_reported_when_it_is_back() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let case = case(redis.port, json!({"hour": 100, "sync_rate": 0.05}));
    assert!(passes(&case).await);
    redis.kill();
    case.node().clock.advance(Duration::from_secs(1));
    for _ in 0..4 {
        assert!(passes(&case).await);
    }
    redis.restart();
    // The server has lost the first request as well. It is found out with the next report.
    eventually("the report", || async {
        case.node().clock.advance(Duration::from_millis(60));
        assert!(passes(&case).await);
        let keys = redis.query(&["KEYS", "*:hour"]);
        let count: u32 = redis.query(&["GET", &keys]).parse().unwrap_or_default();
        count >= 6
    })
    .await;
}

/// Kong's counters are increments, so a report whose answer is lost counts again. docs/rate-limiting.md states the bounds.
#[tokio::test]
async fn a_server_that_hangs_counts_a_report_at_most_three_times_more() {
    let Some(redis) = Redis::start() else { return };
    let redis_config = json!({"host": "127.0.0.1", "port": redis.port, "timeout": 200});
    let case = with(redis_config, json!({"hour": 1000, "sync_rate": 0.05}));
    assert!(passes(&case).await);
    redis.halt();
    for _ in 0..9 {
        assert!(passes(&case).await);
    }
    // Longer than three calls wait for their answers.
    tokio::time::sleep(Duration::from_secs(2)).await;
    redis.go_on();
    let count = || -> u32 { redis.query(&["GET", &key(&redis, "hour")]).parse().unwrap() };
    eventually("the report", || async { count() >= 10 }).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let counted = count();
    assert!((10..=1 + 4 * 9).contains(&counted), "{counted}");
}

#[tokio::test]
async fn braces_of_clients_do_not_choose_the_node_of_a_cluster() {
    let Some(cluster) = RedisCluster::start(3, 0) else {
        return;
    };
    let nodes: Vec<Value> = (cluster.nodes.iter())
        .map(|node| json!({"ip": "127.0.0.1", "port": node.port}))
        .collect();
    for sync_rate in [-1.0, 0.05] {
        let header = format!("x-{}", if sync_rate < 0.0 { "a" } else { "b" });
        let config = json!({
            "minute": 2, "hour": 9, "limit_by": "header", "header_name": header, "sync_rate": sync_rate,
        });
        let case = with(json!({"host": "127.0.0.1", "cluster_nodes": nodes}), config);
        for number in 0..30 {
            let client = format!("{{same}}{sync_rate}-{number}");
            let request = || case.request("GET /").header(&header, &client).run();
            assert_eq!(
                request().await.client.header("ratelimit-remaining"),
                Some("1")
            );
            assert!(request().await.upstream.is_some());
            assert_eq!(request().await.client.status, 429);
        }
    }
    for node in &cluster.nodes {
        assert!(!node.query(&["KEYS", "ratelimit:*"]).is_empty());
    }
}

#[tokio::test]
async fn a_failover_of_sentinel_loses_no_request() {
    let Some(mut servers) = RedisSentinel::start() else {
        return;
    };
    let redis = json!({
        "host": "127.0.0.1", "timeout": 300, "sentinel_master": RedisSentinel::MASTER, "sentinel_role": "master",
        "sentinel_nodes": [{"host": "127.0.0.1", "port": servers.sentinel.port}],
    });
    let case = with(redis, json!({"hour": 1_000_000}));
    assert!(run(&case).await.client.header("ratelimit-limit").is_some());
    let failover = std::thread::spawn(move || {
        servers.fail_over();
        servers
    });
    while !failover.is_finished() {
        assert!(passes(&case).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let servers = failover.join().unwrap();
    eventually("counting again", || async {
        let outcome = run(&case).await;
        assert!(outcome.upstream.is_some());
        outcome.client.header("ratelimit-limit").is_some()
    })
    .await;
    assert!(!servers.replica.query(&["KEYS", "ratelimit:*"]).is_empty());
}

#[test]
fn addresses_of_an_ipv6_network_can_count_together() {
    let case = crate::testing::case(
        def(),
        json!({"minute": 1, "limit_by": "ip", "ipv6_prefix": 64}),
    );
    let passes = |client: &str| {
        case.request("GET /")
            .client(client)
            .run_now()
            .upstream
            .is_some()
    };
    assert!(passes("[2001:db8::1]:80"));
    assert!(!passes("[2001:db8::ffff:1]:80"));
    assert!(passes("[2001:db8:0:1::1]:80"));
    assert!(passes("192.0.2.1:80") && passes("192.0.2.2:80"));
}

#[test]
fn contradicting_places_are_refused() {
    let refusal = |redis: Value| {
        let config = json!({"minute": 1, "policy": "redis", "redis": redis});
        crate::install();
        plugin::testing::refusal(&def(), config)
    };
    let (node, sentinel) = (json!([{"ip": "a"}]), json!([{"host": "b"}]));
    let both = json!({"host": "h", "cluster_nodes": node, "sentinel_nodes": sentinel, "sentinel_master": "m"});
    assert!(refusal(both).contains("redis.cluster_nodes"));
    assert!(
        refusal(json!({"host": "h", "sentinel_nodes": sentinel})).contains("redis.sentinel_master")
    );
    let numbered = json!({"host": "h", "cluster_nodes": node, "database": 1});
    assert!(refusal(numbered).contains("redis.database"));
}
