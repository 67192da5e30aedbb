//! Tests with real Redis servers, where they are installed.

use super::*;
use net::dns::Resolver;
use std::collections::HashSet;
use std::future::Future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::{Redis, RedisCluster, RedisSentinel};
use tokio::io::AsyncWriteExt;

/// Time limit of what a server does at last. Even on a busy machine, it takes less.
const LIMIT: Duration = Duration::from_secs(30);

static ADD: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])"));

fn client(trust: Trust) -> Client {
    Client::new(trust, Resolver::default(), Background::here()).unwrap()
}

fn settings(topology: Topology) -> Settings {
    Settings {
        topology,
        timeout: Duration::from_secs(5),
        username: None,
        password: None,
        database: 0,
        tls: None,
    }
}

fn local(port: u16) -> Address {
    ("127.0.0.1".into(), port)
}

fn single(port: u16) -> Settings {
    settings(Topology::Single(local(port)))
}

fn add(key: &str, number: u32) -> Call {
    let number = number.to_string().into_bytes();
    Call::script(&ADD, vec![key.into()], vec![number])
}

async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn int(result: Result<Value, RedisError>) -> i64 {
    match result.unwrap() {
        Value::Int(number) => number,
        other => panic!("not a number: {other:?}"),
    }
}

#[tokio::test]
async fn a_script_runs_whether_or_not_the_server_knows_it() {
    let Some(redis) = Redis::start() else { return };
    let client = client(Trust::Anyone);
    let server = client.server(single(redis.port));
    assert_eq!(int(server.run(add("a", 2)).await), 2);
    let calls = [add("a", 3), add("b", 1), add("a", 1)];
    let results = server.run_all(&calls).await;
    let results: Vec<i64> = results.into_iter().map(int).collect();
    assert_eq!(results, [5, 1, 6]);
    redis.query(&["SCRIPT", "FLUSH"]);
    let results = server.run_all(&calls).await;
    let results: Vec<i64> = results.into_iter().map(int).collect();
    assert_eq!(results, [9, 2, 10]);
    // An error of one call leaves the others alone.
    redis.query(&["SET", "text", "x"]);
    let results = server.run_all(&[add("text", 1), add("b", 1)]).await;
    assert!(matches!(
        results[0].as_ref().unwrap_err().kind,
        RedisErrorKind::Refused(_)
    ));
    assert_eq!(results[1].as_ref().unwrap(), &Value::Int(3));
    let get = Call::command("GET", vec![b"b".to_vec()], Vec::new());
    assert_eq!(
        server.run(get).await.unwrap(),
        Value::BulkString(b"3".to_vec())
    );
}

#[tokio::test]
async fn equal_settings_share_a_connection_and_others_do_not() {
    let Some(redis) = Redis::start() else { return };
    let client = client(Trust::Anyone);
    let (first, second) = (
        client.server(single(redis.port)),
        client.server(single(redis.port)),
    );
    assert!(first.is_same(&second));
    let mut other = single(redis.port);
    other.database = 3;
    let third = client.server(other);
    assert!(!first.is_same(&third));
    int(first.run(add("a", 1)).await);
    assert_eq!(int(second.run(add("a", 1)).await), 2);
    assert_eq!(int(third.run(add("a", 1)).await), 1);
    assert_eq!(redis.query(&["-n", "3", "GET", "a"]), "1");
    let connections = || redis.query(&["CLIENT", "LIST"]).matches("cmd=eval").count();
    assert_eq!(connections(), 2);
    drop(third);
    drop((first, second));
    eventually("closing", || async { (connections() == 0).then_some(()) }).await;
}

#[tokio::test]
async fn users_of_an_acl_are_known_and_passwords_are_not_shown() {
    let options = [
        "--user", "gate", "on", ">s3cret", "~*", "+eval", "+evalsha", "+incrby", "+select",
    ];
    let Some(redis) = Redis::start_with(&options) else {
        return;
    };
    redis.query(&["CONFIG", "SET", "requirepass", "other"]);
    let client = client(Trust::Anyone);
    let mut settings = single(redis.port);
    settings.username = Some("gate".into());
    settings.password = Some(Secret("s3cret".into()));
    let server = client.server(settings.clone());
    assert_eq!(int(server.run(add("a", 1)).await), 1);
    assert!(!format!("{server:?}").contains("s3cret"));
    settings.password = Some(Secret("wrong-pw".into()));
    let server = client.server(settings);
    let error = server.run(add("a", 1)).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("wrong-pw"));
    let anonymous = client.server(single(redis.port));
    let error = anonymous.run(add("a", 1)).await.unwrap_err();
    assert!(
        matches!(error.kind, RedisErrorKind::Refused(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn tls_verifies_the_certificate_and_the_server_name() {
    let identity = rcgen::generate_simple_self_signed(["redis.test".to_owned()]).unwrap();
    let (certificate, key) = (identity.cert.pem(), identity.signing_key.serialize_pem());
    let Some(redis) = Redis::start_tls(&certificate, &key) else {
        return;
    };
    let trust = |pem: String| Trust::Authorities {
        pems: vec![pem],
        depth: 1,
        common_name: net::tls::CommonName::Ignored,
    };
    let mut settings = single(redis.port);
    let with = |verify, name: Option<&str>| {
        Some(Tls {
            verify,
            server_name: name.map(Box::from),
        })
    };
    let client_of = client(trust(certificate));
    settings.tls = with(true, Some("redis.test"));
    assert_eq!(
        int(client_of.server(settings.clone()).run(add("a", 1)).await),
        1
    );
    settings.tls = with(true, None);
    let error = client_of
        .server(settings.clone())
        .run(add("a", 1))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    let stranger = rcgen::generate_simple_self_signed(["redis.test".to_owned()]).unwrap();
    let stranger = client(trust(stranger.cert.pem()));
    settings.tls = with(true, Some("redis.test"));
    let error = stranger
        .server(settings.clone())
        .run(add("a", 1))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    settings.tls = with(false, None);
    assert_eq!(int(stranger.server(settings).run(add("a", 1)).await), 2);
}

#[tokio::test]
async fn a_dead_server_is_not_asked_by_each_call_and_found_when_it_is_back() {
    let Some(mut redis) = Redis::start() else {
        return;
    };
    let metrics = Metrics::new(1);
    let client = client(Trust::Anyone);
    client.expose(&metrics);
    let server = client.server(single(redis.port));
    assert_eq!(int(server.run(add("a", 1)).await), 1);
    redis.kill();
    let is_down = || async {
        let error = server.run(add("a", 1)).await.err()?;
        matches!(error.kind, RedisErrorKind::Down(_)).then_some(())
    };
    eventually("the breaker", is_down).await;
    let page = metrics.render();
    let of_server = format!(
        "silverback_redis_down{{server=\"127.0.0.1:{}\"}} 1",
        redis.port
    );
    assert!(page.contains(&of_server), "{page}");
    redis.restart();
    let result = eventually("the probe", || async { server.run(add("a", 1)).await.ok() }).await;
    assert_eq!(result, Value::Int(1));
    assert!(metrics.render().contains(&of_server.replace("} 1", "} 0")));
}

#[tokio::test]
async fn a_server_that_hangs_costs_a_call_its_time_limit_and_later_calls_nothing() {
    let Some(redis) = Redis::start() else { return };
    let mut settings = single(redis.port);
    settings.timeout = Duration::from_millis(300);
    let server = client(Trust::Anyone).server(settings);
    let answer = eventually("the connection", || async {
        server.run(add("a", 1)).await.ok()
    });
    assert_eq!(answer.await, Value::Int(1));
    redis.halt();
    for _ in 0..3 {
        let error = server.run(add("a", 1)).await.unwrap_err();
        assert!(
            matches!(error.kind, RedisErrorKind::Timeout(_)),
            "{error:?}"
        );
    }
    let down = || async {
        let error = server.run(add("a", 1)).await.unwrap_err();
        matches!(error.kind, RedisErrorKind::Down(_)).then_some(())
    };
    eventually("the breaker", down).await;
    redis.go_on();
    eventually("the probe", || async { server.run(add("a", 1)).await.ok() }).await;
}

#[tokio::test]
async fn a_slow_answer_counts_until_the_configured_time_limit() {
    let Some(redis) = Redis::start() else { return };
    let server = client(Trust::Anyone).server(single(redis.port));
    int(server.run(add("a", 1)).await);
    redis.halt();
    let (answer, ()) = tokio::join!(server.run(add("a", 1)), async {
        tokio::time::sleep(Duration::from_millis(800)).await;
        redis.go_on();
    });
    assert_eq!(int(answer), 2);
}

#[tokio::test]
async fn a_server_that_hangs_longer_than_half_a_second_is_not_asked_either() {
    let Some(redis) = Redis::start() else { return };
    let mut settings = single(redis.port);
    settings.timeout = Duration::from_secs(1);
    let server = client(Trust::Anyone).server(settings);
    int(server.run(add("a", 1)).await);
    redis.halt();
    let calls = [add("a", 1)];
    let all = (0..3).map(|_| server.run_all(&calls));
    futures_util::future::join_all(all).await;
    // From here on, no call waits for the server: it accepts connections, and answers nothing.
    let mut waited = Duration::ZERO;
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        let begin = Instant::now();
        server.run(add("a", 1)).await.unwrap_err();
        waited = waited.max(begin.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(waited < Duration::from_millis(500), "{waited:?}");
    redis.go_on();
    eventually("the probe", || async { server.run(add("a", 1)).await.ok() }).await;
}

#[tokio::test]
async fn a_hang_before_the_first_call_ends_with_the_time_limit() {
    let Some(redis) = Redis::start() else { return };
    redis.halt();
    let mut settings = single(redis.port);
    settings.timeout = Duration::from_millis(200);
    let server = client(Trust::Anyone).server(settings);
    let begin = Instant::now();
    let error = server.run(add("a", 1)).await.unwrap_err();
    let timed_out = matches!(
        error.kind,
        RedisErrorKind::Timeout(_) | RedisErrorKind::Down(_)
    );
    assert!(timed_out, "{error:?}");
    assert!(begin.elapsed() < LIMIT);
    redis.go_on();
}

#[tokio::test]
async fn a_server_that_closes_each_connection_is_not_asked_by_each_call() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let refusal = b"-ERR max number of clients reached\r\n";
            let _ = stream.write_all(refusal).await;
        }
    });
    let server = client(Trust::Anyone).server(single(port));
    for _ in 0..200 {
        server.run(add("a", 1)).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let connections = connections.load(Ordering::Relaxed);
    assert!(connections < 50, "{connections}");
}

#[tokio::test]
async fn a_connection_that_the_server_closes_is_replaced_by_the_next_call() {
    let Some(redis) = Redis::start() else { return };
    let server = client(Trust::Anyone).server(single(redis.port));
    int(server.run(add("a", 1)).await);
    redis.query(&["CLIENT", "KILL", "TYPE", "normal"]);
    let next = || async { server.run(add("a", 1)).await.ok() };
    assert_eq!(eventually("another connection", next).await, Value::Int(2));
}

#[tokio::test]
async fn a_failover_of_sentinel_leads_to_the_new_master() {
    let Some(mut servers) = RedisSentinel::start() else {
        return;
    };
    let topology = Topology::Sentinel {
        sentinels: vec![local(1), local(servers.sentinel.port)],
        master: RedisSentinel::MASTER.into(),
        username: None,
        password: None,
    };
    let server = client(Trust::Anyone).server(settings(topology));
    assert_eq!(int(server.run(add("a", 1)).await), 1);
    assert_eq!(servers.master.query(&["GET", "a"]), "1");
    // What is read back from the replica shows that it has followed.
    let followed = || async { (servers.replica.query(&["GET", "a"]) == "1").then_some(()) };
    eventually("replication", followed).await;
    servers.fail_over();
    let next = || async { server.run(add("a", 1)).await.ok() };
    assert_eq!(eventually("the new master", next).await, Value::Int(2));
    assert_eq!(servers.replica.query(&["GET", "a"]), "2");
}

#[tokio::test]
async fn an_unknown_master_is_an_error_that_says_so() {
    let Some(servers) = RedisSentinel::start() else {
        return;
    };
    let topology = Topology::Sentinel {
        sentinels: vec![local(servers.sentinel.port)],
        master: "another".into(),
        username: None,
        password: None,
    };
    let server = client(Trust::Anyone).server(settings(topology));
    let error = server.run(add("a", 1)).await.unwrap_err().to_string();
    assert!(
        error.contains("no sentinel knows a master \"another\""),
        "{error}"
    );
}

#[tokio::test]
async fn calls_to_a_cluster_go_to_the_nodes_that_have_their_slots() {
    let Some(cluster) = RedisCluster::start(3, 0) else {
        return;
    };
    let topology = Topology::Cluster {
        nodes: vec![local(1), local(cluster.nodes[0].port)],
        redirections: 5,
    };
    let server = client(Trust::Anyone).server(settings(topology));
    let keys: Vec<String> = (0..60).map(|number| format!("key-{number}")).collect();
    for round in 1..3 {
        let calls: Vec<Call> = keys.iter().map(|key| add(key, 1)).collect();
        let results = server.run_all(&calls).await;
        assert_eq!(results.len(), keys.len());
        assert!(results.into_iter().map(int).all(|result| result == round));
    }
    let sizes = cluster.nodes.iter().map(|node| node.query(&["DBSIZE"]));
    let sizes: Vec<u32> = sizes.map(|size| size.parse().unwrap()).collect();
    assert_eq!(sizes.iter().sum::<u32>(), 60);
    assert!(sizes.iter().all(|size| *size > 0), "{sizes:?}");
}

#[tokio::test]
async fn a_slot_that_moves_is_followed_during_and_after_its_move() {
    let Some(cluster) = RedisCluster::start(3, 0) else {
        return;
    };
    let topology = Topology::Cluster {
        nodes: vec![local(cluster.nodes[0].port)],
        redirections: 5,
    };
    let server = client(Trust::Anyone).server(settings(topology));
    assert_eq!(int(server.run(add("foo", 1)).await), 1);
    let slot = "12182";
    let has = |node: &Redis| node.query(&["CLUSTER", "COUNTKEYSINSLOT", slot]) == "1";
    let from = cluster.nodes.iter().position(has).unwrap();
    let (from, to) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
    let id = |node: &Redis| node.query(&["CLUSTER", "MYID"]);
    to.query(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &id(from)]);
    from.query(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &id(to)]);
    let port = to.port.to_string();
    assert_eq!(
        from.query(&["MIGRATE", "127.0.0.1", &port, "foo", "0", "5000"]),
        "OK"
    );
    // The node answers ASK now.
    assert_eq!(int(server.run(add("foo", 1)).await), 2);
    for node in [to, from] {
        node.query(&["CLUSTER", "SETSLOT", slot, "NODE", &id(to)]);
    }
    // From here on, the node answers MOVED.
    assert_eq!(int(server.run(add("foo", 1)).await), 3);
    assert_eq!(to.query(&["GET", "foo"]), "3");
    let mut unique = HashSet::new();
    for key in ["foo", "bar", "hello"] {
        unique.insert(int(server.run(add(key, 0)).await));
    }
    assert_eq!(unique, HashSet::from([0, 3]));
}

#[tokio::test]
async fn a_failover_of_a_cluster_leads_to_the_new_master() {
    let Some(mut cluster) = RedisCluster::start(3, 1) else {
        return;
    };
    let topology = Topology::Cluster {
        nodes: cluster.nodes.iter().map(|node| local(node.port)).collect(),
        redirections: 5,
    };
    let mut settings = settings(topology);
    settings.timeout = Duration::from_secs(2);
    let server = client(Trust::Anyone).server(settings);
    let keys = ["foo", "bar", "hello"];
    for key in keys {
        let first = || async { server.run(add(key, 1)).await.ok() };
        assert_eq!(eventually("the first count", first).await, Value::Int(1));
    }
    let copied = || async {
        let sizes = cluster.replicas().map(|node| node.query(&["DBSIZE"]));
        let sizes = sizes.filter_map(|size| size.parse::<usize>().ok());
        (sizes.sum::<usize>() == keys.len()).then_some(())
    };
    eventually("replication", copied).await;
    let has = |node: &Redis| {
        let is_master = node.query(&["ROLE"]).starts_with("master");
        is_master && node.query(&["CLUSTER", "COUNTKEYSINSLOT", "12182"]) == "1"
    };
    let master = cluster.nodes.iter().position(has).unwrap();
    cluster.nodes[master].kill();
    // The other nodes go on.
    for key in ["bar", "hello"] {
        assert_eq!(int(server.run(add(key, 1)).await), 2);
    }
    let next = || async { server.run(add("foo", 1)).await.ok() };
    assert_eq!(eventually("the new master", next).await, Value::Int(2));
}
