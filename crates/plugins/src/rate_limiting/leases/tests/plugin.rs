//! The plugin with leases and a real Redis. Each case is a node of its own.

use super::super::super::def;
use crate::testing::case;
use plugin::testing::Case;
use serde_json::{Value, json};
use services::Clock;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Redis, RedisCluster};

/// A configuration with leases. Its windows are months, so that none ends during a test.
fn config(redis: &Redis, limit: u64, more: Value) -> Value {
    let mut config = json!({
        "month": limit, "policy": "redis", "leases": true, "limit_by": "service",
        "redis": {"host": "127.0.0.1", "port": redis.port, "timeout": 5000},
    });
    if let (Value::Object(config), Value::Object(more)) = (&mut config, more) {
        config.extend(more);
    }
    config
}

fn node(config: Value) -> Case {
    case(def(), config).clock(Clock::system())
}

async fn status(case: &Case) -> u16 {
    case.request("GET /").run().await.client.status
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The permits that Redis has granted.
fn granted(redis: &Redis) -> u32 {
    let keys = redis.query(&["KEYS", "silverback:lease:*:month"]);
    let records = redis.query(&["HVALS", keys.trim()]);
    let granted = records.lines().filter_map(|line| line.split(' ').nth(1));
    granted.map(|granted| granted.parse::<u32>().unwrap()).sum()
}

#[tokio::test]
async fn several_nodes_let_the_limit_pass_and_no_more() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let nodes: Vec<Case> = (0..4)
        .map(|_| node(config(&redis, 150, json!({}))))
        .collect();
    let mut passed = 0;
    for _ in 0..60 {
        for node in &nodes {
            passed += u32::from(status(node).await == 200);
        }
    }
    assert_eq!(passed, 150);
    let page = nodes[0].node().metrics.render();
    let held = "silverback_rate_limiting_leased_total{outcome=\"held\"} ";
    let held = page.lines().find_map(|line| line.strip_prefix(held));
    assert!(held.unwrap().parse::<u32>().unwrap() > 0, "{page}");
}

#[tokio::test]
async fn in_a_cluster_the_limits_of_many_clients_hold() {
    let Some(cluster) = RedisCluster::start(3, 0) else {
        return;
    };
    let masters: Vec<Value> = (cluster.nodes.iter())
        .map(|master| json!({"ip": "127.0.0.1", "port": master.port}))
        .collect();
    let config = json!({
        "month": 5, "policy": "redis", "leases": true, "limit_by": "header", "header_name": "x",
        "redis": {"host": "127.0.0.1", "cluster_nodes": masters, "timeout": 20000},
    });
    let nodes = [node(config.clone()), node(config)];
    for client in ["a", "{b}", "c}{", "d", "e", "f"] {
        let mut passed = 0;
        for _ in 0..6 {
            for node in &nodes {
                let response = node.request("GET /").header("x", client).run().await;
                passed += u32::from(response.client.status == 200);
            }
        }
        assert_eq!(passed, 5, "{client}");
    }
    let tags = |master: &Redis| master.query(&["KEYS", "{silverback:lease:*}:*:month"]);
    let tags: Vec<String> = cluster.nodes.iter().map(tags).collect();
    let counters = tags.iter().flat_map(|keys| keys.lines());
    assert_eq!(
        counters.filter(|key| !key.is_empty()).count(),
        6,
        "{tags:?}"
    );
}

#[tokio::test]
async fn headers_tell_what_remains_and_a_changed_limit_keeps_the_counts() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let first = node(config(&redis, 3, json!({})));
    for remaining in ["2", "1", "0"] {
        let outcome = first.request("GET /").run().await;
        let header = outcome.client.header("X-RateLimit-Remaining-Month");
        assert_eq!(header, Some(remaining));
    }
    let refused = first.request("GET /").run().await.client;
    assert_eq!(
        (refused.status, refused.header("RateLimit-Remaining")),
        (429, Some("0"))
    );
    let changed = config(&redis, 4, json!({}));
    let changed = Case::new(def(), changed).on(Arc::clone(first.node()));
    let statuses = [status(&changed).await, status(&changed).await];
    assert_eq!(statuses, [200, 429]);
}

#[tokio::test]
async fn a_removed_plugin_and_a_shutdown_return_what_is_unused() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let first = node(config(&redis, 1000, json!({})));
    let mut used = 0;
    // The node gets more than it uses when it has seen some requests.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(700) {
        used += u32::from(status(&first).await == 200);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(first);
    until("everything unused is returned", || granted(&redis) == used).await;
    let second = node(config(&redis, 1000, json!({})));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(700) {
        used += u32::from(status(&second).await == 200);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let background = second.node().background.clone();
    assert!(background.shut_down(deadline).await, "nothing is cut off");
    assert_eq!(granted(&redis), used);
}

#[tokio::test]
async fn a_lost_redis_is_treated_as_configured() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let with = |more: Value| node(config(&redis, 4, more));
    let closed = with(json!({"on_unreachable": "closed"}));
    let open = with(json!({"on_unreachable": "open"}));
    let local = with(json!({"on_unreachable": "local"}));
    let tolerant = with(json!({"fault_tolerant": true}));
    let strict = with(json!({"fault_tolerant": false}));
    // One node has been in contact with Redis, and has seen itself and another node.
    assert_eq!((status(&open).await, status(&local).await), (200, 200));
    until("nothing is unused", || granted(&redis) == 2).await;
    redis.kill();
    assert_eq!(status(&closed).await, 500);
    assert_eq!(status(&strict).await, 500);
    assert_eq!(status(&tolerant).await, 200);
    for _ in 0..6 {
        assert_eq!(status(&open).await, 200);
    }
    // Two nodes share a limit of 4.
    let begin = Instant::now();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(status(&local).await);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert!(begin.elapsed() < Duration::from_secs(20));
    redis.restart();
    let page = || closed.node().metrics.render();
    assert!(
        page().contains("leased_total{outcome=\"unreachable\"}"),
        "{}",
        page()
    );
    let begin = Instant::now();
    while status(&closed).await == 500 {
        assert!(begin.elapsed() < Duration::from_secs(60), "Redis is back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The wait cannot be shorter: nodes that the script does not know may hold leases. docs/rate-limiting.md states it.
#[tokio::test]
async fn without_data_a_request_waits_for_the_lease_time_or_until_the_timeout() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let patient = node(config(&redis, 100, json!({"on_unreachable": "closed"})));
    for _ in 0..2 {
        let begin = Instant::now();
        assert_eq!(status(&patient).await, 200);
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(400), "{took:?}");
        assert!(took < Duration::from_secs(4), "{took:?}");
        // The node returns what it holds, and has nothing to send then.
        tokio::time::sleep(Duration::from_millis(700)).await;
        redis.query(&["FLUSHALL"]);
    }
    let timeout = json!({"host": "127.0.0.1", "port": redis.port, "timeout": 100});
    let more = json!({"on_unreachable": "closed", "redis": timeout});
    let hasty = node(config(&redis, 100, more));
    let begin = Instant::now();
    assert_eq!(status(&hasty).await, 500);
    assert!(begin.elapsed() < Duration::from_millis(400));
}

#[tokio::test]
async fn a_hung_redis_holds_requests_no_longer_than_the_timeout() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let timeout = json!({"host": "127.0.0.1", "port": redis.port, "timeout": 300});
    let case = node(config(&redis, 4, json!({"redis": timeout})));
    redis.halt();
    let begin = Instant::now();
    assert_eq!(status(&case).await, 200, "the plugin is fault tolerant");
    assert!(begin.elapsed() < Duration::from_secs(5));
    redis.go_on();
}

#[test]
fn leases_need_the_policy_redis_and_no_sync_rate() {
    crate::install();
    let refused = |config: Value| plugin::testing::completed("rate-limiting", config).unwrap_err();
    let text = |config: Value| format!("{:?}", refused(config));
    let redis = json!({"host": "a"});
    let error = text(json!({"second": 1, "leases": true}));
    assert!(
        error.contains("leases can only be used with the redis policy"),
        "{error}"
    );
    let both =
        json!({"second": 1, "policy": "redis", "redis": redis, "leases": true, "sync_rate": 1});
    let error = text(both);
    assert!(
        error.contains("leases cannot be used with sync_rate"),
        "{error}"
    );
    let error =
        text(json!({"second": 1, "policy": "redis", "redis": redis, "on_unreachable": "open"}));
    assert!(
        error.contains("on_unreachable can only be used with leases"),
        "{error}"
    );
}

#[tokio::test]
async fn a_key_of_another_program_fails_only_its_own_client() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let config = config(
        &redis,
        5,
        json!({
            "limit_by": "header", "header_name": "x", "on_unreachable": "closed",
            // Longer than a Redis without data grants nothing.
            "redis": {"host": "127.0.0.1", "port": redis.port, "timeout": 3000},
        }),
    );
    let status = async |case: &Case, client: &str| {
        let outcome = case.request("GET /").header("x", client).run().await;
        outcome.client.status
    };
    let first = node(config.clone());
    assert_eq!(status(&first, "broken").await, 200);
    let key = redis.query(&["KEYS", "silverback:lease:*:month"]);
    drop(first);
    redis.query(&["SET", key.trim(), "not a hash"]);
    let second = node(config);
    let (broken, other) = tokio::join!(status(&second, "broken"), status(&second, "other"));
    assert_eq!(other, 200);
    assert!(broken >= 500, "{broken}");
    redis.query(&["DEL", key.trim()]);
    assert_eq!(status(&second, "broken").await, 200);
}
