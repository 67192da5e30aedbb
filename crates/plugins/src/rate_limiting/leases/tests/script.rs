//! The script in a real Redis against its model, with random messages.

use super::super::super::window::Period;
use super::super::message::{self, Ask, Reply};
use super::model::Model;
use fastrand::Rng;
use net::dns::Resolver;
use net::tls::Trust;
use services::Background;
use services::redis::{Client, Server, Settings, Topology};
use std::time::Duration;
use testkit::Redis;

struct Real {
    redis: Redis,
    server: Server,
}

impl Real {
    async fn start() -> Option<Self> {
        let redis = Redis::start()?;
        let settings = Settings {
            topology: Topology::Single(("127.0.0.1".into(), redis.port)),
            timeout: Duration::from_secs(30),
            username: None,
            password: None,
            database: 0,
            tls: None,
        };
        let client = Client::new(Trust::Anyone, Resolver::default(), Background::here());
        let server = client.expect("a client").server(settings);
        Some(Self { redis, server })
    }

    async fn call(&self, node: &str, reported: Option<&str>, asks: &[Ask]) -> Reply {
        let call = message::call("leases", node, reported, asks);
        let value = self.server.run(call).await.expect("a value");
        Reply::read(value, asks.len()).expect("a reply")
    }
}

fn random_ask(random: &mut Rng, window: Option<u64>) -> Ask {
    let period = Period::ALL[random.usize(1..6)];
    let used = random.u64(0..30);
    let mut few = || {
        let most = [2, 10, 100][random.usize(0..3)];
        random.u64(0..most)
    };
    let (keep, waiting, ahead) = (used + few(), few(), few());
    Ask {
        id: 0,
        digest: [random.u8(0..2); 16],
        period,
        limit: [1, 10, 50, 1000, 100_000][random.usize(0..5)],
        record: random.u64(0..4),
        window: window.filter(|_| random.bool()),
        sequence: random.u64(1..40),
        used,
        keep,
        waiting,
        ahead,
    }
}

#[tokio::test]
async fn the_script_does_what_its_model_does() {
    let Some(real) = Real::start().await else {
        return;
    };
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    for round in 0..40 {
        real.redis.query(&["FLUSHALL"]);
        let mut model = Model::new("", 500);
        let first = real.call("n0", Some("*"), &[]).await;
        model.run = first.epoch.split(':').next().unwrap_or_default().into();
        assert_eq!(model.call("n0", Some("*"), &[], first.time), first);
        // In half of the rounds the epoch is old, so that permits are granted.
        if round % 2 == 0 {
            let epoch = format!("{}:{}", model.run, first.time / 1000 - 10_000);
            real.redis.query(&["HSET", "leases:nodes", "epoch", &epoch]);
            model.age(10_000);
        }
        let mut windows = vec![None];
        for step in 0..100 {
            let node = format!("n{}", random.u64(0..3));
            let reported = [Some("*"), None, Some("other"), Some(&*first.epoch)];
            let reported = reported[random.usize(0..4)];
            let asks: Vec<Ask> = (0..random.usize(0..4))
                .map(|_| {
                    let window = windows[random.usize(..windows.len())];
                    random_ask(&mut random, window)
                })
                .collect();
            let reply = real.call(&node, reported, &asks).await;
            let expected = model.call(&node, reported, &asks, reply.time);
            let context = format!("seed {seed}, round {round}, step {step}: {asks:?}");
            assert_eq!(reply, expected, "{context}");
            windows.extend(
                reply
                    .answers
                    .iter()
                    .flatten()
                    .map(|answer| Some(answer.begin)),
            );
        }
    }
}

#[tokio::test]
async fn every_key_of_the_script_expires() {
    let Some(real) = Real::start().await else {
        return;
    };
    let mut random = Rng::with_seed(1);
    for _ in 0..200 {
        let ask = random_ask(&mut random, Some(1_700_000_000));
        real.call("n", Some("*"), &[ask]).await;
    }
    let keys = real.redis.query(&["KEYS", "*"]);
    assert!(keys.lines().count() > 5, "{keys}");
    for key in keys.lines() {
        let rest: i64 = real.redis.query(&["PTTL", key]).trim().parse().unwrap();
        assert!(rest > 0, "{key} expires in {rest} ms");
    }
}

#[tokio::test]
async fn a_late_message_makes_no_key() {
    let Some(real) = Real::start().await else {
        return;
    };
    let mut ask = random_ask(&mut Rng::with_seed(1), None);
    ask.window = Some(0);
    let reply = real.call("n", Some("*"), &[ask]).await;
    assert_eq!(reply.answers[0].unwrap().sequence, None);
    assert_eq!(real.redis.query(&["KEYS", "*"]).trim(), "leases:nodes");
}
