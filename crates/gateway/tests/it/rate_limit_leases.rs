//! Leases of rate-limiting: several processes and a real Redis let a limit pass, and no more.

use crate::launch;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Gateway, Redis};

const PROCESSES: usize = 5;

fn gateways(redis: &Redis, limits: &str) -> Vec<Gateway> {
    let configuration = format!(
        r#"
_format_version: "3.0"
services:
  - name: a
    url: http://127.0.0.1:1
    routes:
      - {{name: a, paths: [/]}}
plugins:
  - {{name: request-termination, config: {{status_code: 200}}}}
  - name: rate-limiting
    config:
      policy: redis
      leases: true
      limit_by: header
      header_name: x-client
      redis: {{host: 127.0.0.1, port: {}, timeout: 10000}}
      {limits}
"#,
        redis.port
    );
    let start = |_| launch().configuration(&configuration).start();
    (0..PROCESSES).map(start).collect()
}

fn proxy(gateway: &Gateway) -> SocketAddr {
    gateway.listening("proxy")[0]
}

/// Sends requests of some clients, from one connection to each process, for some time. Returns how many passed, by the
/// client.
fn flood(gateways: &[Gateway], clients: &[&str], length: Duration) -> HashMap<String, u64> {
    let mut passed: HashMap<String, u64> = HashMap::new();
    let end = Instant::now() + length;
    thread::scope(|scope| {
        let send = |address: SocketAddr| {
            let mut client = Client::connect(address);
            let mut passed: HashMap<String, u64> = HashMap::new();
            while Instant::now() < end {
                for name in clients {
                    let response = client.request("GET", "/", &[("x-client", name)], b"");
                    assert!(matches!(response.status, 200 | 429), "{response:?}");
                    if response.status == 200 {
                        *passed.entry((*name).to_owned()).or_default() += 1;
                    }
                }
            }
            passed
        };
        let threads: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || send(proxy(gateway))))
            .collect();
        for thread in threads {
            for (client, count) in thread.join().expect("no thread fails") {
                *passed.entry(client).or_default() += count;
            }
        }
    });
    passed
}

#[test]
fn processes_let_a_limit_pass_and_no_more() {
    let Some(redis) = Redis::start() else {
        return;
    };
    // The windows are years, so that none ends meanwhile.
    let gateways = gateways(&redis, "year: 400");
    let passed = flood(&gateways, &["a", "b"], Duration::from_secs(4));
    assert_eq!(
        passed,
        HashMap::from([("a".into(), 400), ("b".into(), 400)])
    );
    let held = |gateway: &Gateway| {
        let page = gateway.admin_get("/metrics").text();
        let name = "silverback_rate_limiting_leased_total{outcome=\"held\"} ";
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.expect("the metric").parse::<u64>().expect("a number")
    };
    assert!(gateways.iter().all(|gateway| held(gateway) > 0));
}

#[test]
fn a_killed_process_takes_no_more_than_its_slice_with_it() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let mut gateways = gateways(&redis, "year: 1000");
    let clients = ["a"];
    let first = flood(&gateways, &clients, Duration::from_millis(1500));
    let first = first.get("a").copied().unwrap_or(0);
    if let Some(gateway) = gateways.pop() {
        gateway.kill();
    }
    let second = flood(&gateways, &clients, Duration::from_secs(3));
    let passed = first + second.get("a").copied().unwrap_or(0);
    // At most 2 % of the limit is unused at any time.
    assert!(
        (980..=1000).contains(&passed),
        "{first} and then {second:?}"
    );
}

/// A new Redis at the same place knows nothing. The nodes report their totals before anything is granted.
#[test]
fn a_redis_that_lost_its_data_learns_the_totals_from_the_nodes() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let gateways = gateways(&redis, "year: 300");
    let clients = ["a"];
    let first = flood(&gateways, &clients, Duration::from_secs(3));
    assert_eq!(first.get("a"), Some(&300));
    redis.kill();
    redis.restart();
    // All processes are connected again when they have told the new Redis about themselves.
    let begin = Instant::now();
    loop {
        let nodes = redis.query(&["HVALS", "silverback:lease:nodes"]);
        let told = nodes
            .lines()
            .filter(|line| line.contains(' ') && !line.ends_with('-'));
        if told.count() == PROCESSES {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{nodes}");
        thread::sleep(Duration::from_millis(20));
    }
    let second = flood(&gateways, &clients, Duration::from_secs(2));
    assert_eq!(second.get("a"), None);
}
