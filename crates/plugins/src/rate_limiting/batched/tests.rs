//! Tests of the store with a real Redis, where it is installed.

use super::*;
use crate::rate_limiting::counters::{Counters, Identifier};
use services::redis::{Settings, Topology};
use testkit::Redis;

/// A store with room for this number of clients. It has no timer.
fn store(
    node: &Arc<Node>,
    redis: &Redis,
    max: usize,
) -> (Batched, mpsc::UnboundedReceiver<Arc<Entry>>) {
    let server = node.redis.server(Settings {
        topology: Topology::Single(("127.0.0.1".into(), redis.port)),
        timeout: Duration::from_secs(5),
        username: None,
        password: None,
        database: 0,
        tls: None,
    });
    let (listed, to_report) = mpsc::unbounded_channel();
    let store = Batched {
        server,
        interval: Duration::from_secs(1),
        clock: Clock::fixed(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
        entries: papaya::HashMap::default(),
        used: AtomicUsize::new(0),
        max,
        listed,
    };
    (store, to_report)
}

async fn passes(store: &Batched, counters: &Counters, client: &str, requests: u64) -> bool {
    let allowances = [Allowance {
        period: Period::Hour,
        requests,
    }];
    let identifier = Identifier::Text(client.as_bytes());
    let address = std::net::IpAddr::from([192, 0, 2, 1]);
    let identity = counters.identity(None, None, identifier, address);
    let names = || Names::new("ratelimit", None, None, identifier, false);
    let moment = counters.moment(store.clock.since_epoch().as_secs());
    match store.judge_here(identity, names, &allowances, &moment) {
        Some(verdict) => verdict.passes,
        None => {
            let judged = store.judge(identity, &names(), &allowances, &moment).await;
            judged.unwrap().passes
        }
    }
}

#[tokio::test]
async fn a_flood_of_clients_evicts_nobody_and_gives_nobody_a_second_allowance() {
    let Some(redis) = Redis::start() else { return };
    let node = Node::bare().unwrap();
    let counters = Counters::new(MAX_COUNTERS);
    let (store, _listed) = store(&node, &redis, 2);
    assert!(passes(&store, &counters, "first", 3).await);
    for number in 0..20 {
        let client = format!("flood-{number}");
        for wanted in [true, true, true, false] {
            assert_eq!(passes(&store, &counters, &client, 3).await, wanted);
        }
    }
    assert_eq!(store.entries(), 2);
    for wanted in [true, true, false] {
        assert_eq!(passes(&store, &counters, "first", 3).await, wanted);
    }
}

#[tokio::test]
async fn idle_entries_are_removed_and_found_again_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let node = Node::bare().unwrap();
    let counters = Counters::new(MAX_COUNTERS);
    let (store, mut listed) = store(&node, &redis, 10);
    for _ in 0..3 {
        assert!(passes(&store, &counters, "first", 100).await);
    }
    store.clock.advance(IDLE * 2);
    // What is not reported is not removed.
    store.sweep();
    assert_eq!(store.entries(), 1);
    let entry = listed.try_recv().unwrap();
    store.push(vec![entry]).await;
    store.sweep();
    assert_eq!(
        (store.entries(), store.used.load(Ordering::Relaxed)),
        (0, 0)
    );
    assert!(passes(&store, &counters, "first", 100).await);
    assert_eq!(redis.query(&["GET", &redis.query(&["KEYS", "*"])]), "4");
}

#[tokio::test]
async fn long_values_of_headers_are_counted_and_take_no_memory() {
    let Some(redis) = Redis::start() else { return };
    let node = Node::bare().unwrap();
    let counters = Counters::new(MAX_COUNTERS);
    let (store, _listed) = store(&node, &redis, 10);
    let long = "x".repeat(4000);
    for wanted in [true, true, true, false] {
        assert_eq!(passes(&store, &counters, &long, 3).await, wanted);
    }
    assert_eq!(store.entries(), 0);
}

#[tokio::test]
async fn a_counter_that_is_no_number_harms_no_other_client() {
    let Some(redis) = Redis::start() else { return };
    let node = Node::bare().unwrap();
    let counters = Counters::new(MAX_COUNTERS);
    let (store, mut listed) = store(&node, &redis, 10);
    for client in ["first", "second"] {
        for _ in 0..3 {
            assert!(passes(&store, &counters, client, 100).await);
        }
    }
    let key = |client: &str| redis.query(&["KEYS", &format!("*:{client}:*")]);
    redis.query(&["SET", &key("first"), "text"]);
    for _ in 0..3 {
        let mut entries = Vec::new();
        while let Ok(entry) = listed.try_recv() {
            entries.push(entry);
        }
        store.push(entries).await;
    }
    assert_eq!(redis.query(&["GET", &key("first")]), "text");
    assert_eq!(redis.query(&["GET", &key("second")]), "3");
}
