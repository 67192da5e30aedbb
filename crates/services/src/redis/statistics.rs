//! The servers of the node and their numbers, for the metrics.

use super::{RedisErrorKind, Server, Settings, Shape};
use crate::metrics::{Kind, Page, Source};
use redis::Value;
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The servers by their settings. A server ends when nobody uses it.
#[derive(Default)]
pub(super) struct Registry(Mutex<HashMap<Settings, Weak<super::Inner>>>);

/// The numbers of one server.
#[derive(Default)]
pub(super) struct Statistics {
    answered: AtomicU64,
    failed: AtomicU64,
    not_asked: AtomicU64,
    round_trips: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Statistics {
    pub(super) fn record(&self, results: &[Result<Value, RedisErrorKind>], time: Duration) {
        let is_down = |result: &&Result<Value, RedisErrorKind>| {
            matches!(result, Err(RedisErrorKind::Down(_)))
        };
        let answered = results.iter().filter(|result| result.is_ok()).count() as u64;
        let not_asked = results.iter().filter(is_down).count() as u64;
        let failed = results.len() as u64 - answered - not_asked;
        self.answered.fetch_add(answered, Ordering::Relaxed);
        self.not_asked.fetch_add(not_asked, Ordering::Relaxed);
        self.failed.fetch_add(failed, Ordering::Relaxed);
        if answered + failed > 0 {
            let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self.round_trips.fetch_add(1, Ordering::Relaxed);
            self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }
}

impl Registry {
    /// Returns the server with these settings; makes it if there is none.
    pub(super) fn server(
        &self,
        settings: Settings,
        make: impl FnOnce(Settings) -> Server,
    ) -> Server {
        let mut servers = self.servers();
        if let Some(inner) = servers.get(&settings).and_then(Weak::upgrade) {
            return Server(inner);
        }
        servers.retain(|_, server| server.strong_count() > 0);
        let server = make(settings.clone());
        servers.insert(settings, Arc::downgrade(&server.0));
        server
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<Settings, Weak<super::Inner>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sums of the servers with the same name: they differ in users, databases or timeouts.
#[derive(Default)]
struct Sum {
    answered: u64,
    failed: u64,
    not_asked: u64,
    round_trips: u64,
    seconds: f64,
    is_down: bool,
}

impl Source for Registry {
    fn collect(&self, page: &mut Page) {
        let servers: Vec<Arc<super::Inner>> =
            self.servers().values().filter_map(Weak::upgrade).collect();
        let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
        for server in &servers {
            let sum = sums.entry(&server.name).or_default();
            let of = |number: &AtomicU64| number.load(Ordering::Relaxed);
            sum.answered += of(&server.statistics.answered);
            sum.failed += of(&server.statistics.failed);
            sum.not_asked += of(&server.statistics.not_asked);
            sum.round_trips += of(&server.statistics.round_trips);
            sum.seconds += of(&server.statistics.nanoseconds) as f64 / 1e9;
            sum.is_down |= match &server.shape {
                Shape::Single(link) => link.is_down(),
                Shape::Cluster(cluster) => cluster.is_down(),
            };
        }
        const CALLS: &str =
            "Calls to Redis: answered, failed, or not_asked because it had failed before.";
        page.family("silverback_redis_calls_total", CALLS, Kind::Counter);
        for (server, sum) in &sums {
            let mut sample = |outcome, value: u64| {
                page.sample(&[("server", server), ("outcome", outcome)], value as f64);
            };
            sample("answered", sum.answered);
            sample("failed", sum.failed);
            sample("not_asked", sum.not_asked);
        }
        type Field = (&'static str, &'static str, Kind, fn(&Sum) -> f64);
        const FIELDS: [Field; 3] = [
            (
                "silverback_redis_round_trips_total",
                "Exchanges with Redis. One has one or more calls.",
                Kind::Counter,
                |sum| sum.round_trips as f64,
            ),
            (
                "silverback_redis_seconds_total",
                "Time of the exchanges with Redis.",
                Kind::Counter,
                |sum| sum.seconds,
            ),
            (
                "silverback_redis_down",
                "Whether Redis is not asked because it has failed.",
                Kind::Gauge,
                |sum| f64::from(u8::from(sum.is_down)),
            ),
        ];
        for (name, help, kind, value) in FIELDS {
            page.family(name, help, kind);
            for (server, sum) in &sums {
                page.sample(&[("server", server)], value(sum));
            }
        }
    }
}
