//! Limits that hold: a node takes a slice of a limit from Redis ahead of use, so that most requests wait for nothing, and
//! yet all nodes together never let more requests through than the limit. docs/rate-limiting.md describes the protocol
//! and its bounds, and docs/design/0017-leases.md has the reasons. [`ledger`] is the node's side of it, and `script.lua` is
//! that of Redis.
//!
//! The keys of a node are spread over several ledgers, so that workers seldom wait for each other's lock. One task sends
//! what all of them have to say, one message at a time, so that a busy node sends few large messages. In a Cluster, the
//! counters are spread over 64 hash tags, and each has ledgers and a task of its own.

mod entry;
mod lease;
mod ledger;
mod message;
mod shard;
#[cfg(test)]
mod tests;

use super::NAME;
use super::counters::{Allowance, Verdict};
use ledger::{Judged, Outcome};
pub(super) use message::Digest;
use plugin::Node;
use services::Clock;
use services::metrics::{Kind, Page, Source};
use services::redis::Server;
use shard::{Numbers, Shard};
use std::cell::LazyCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// Number of hash tags in a Cluster.
const TAGS: usize = 64;

/// Number of ledgers for a server that is no Cluster, and for each hash tag of a Cluster.
const LEDGERS: usize = 64;
const LEDGERS_OF_TAG: usize = 2;

/// The leases of this node in one Redis server. The unused permits are returned when this is dropped.
pub(super) struct Leases {
    server: Server,
    clock: Clock,
    shards: Box<[Arc<Shard>]>,
    /// Kept for the metrics and for plugins that start later.
    _all: Arc<All>,
}

/// The result for one request.
pub(super) enum Leased<'l> {
    Known(Verdict),
    /// The request must wait for Redis.
    Waits(Waiting<'l>),
    Unreachable,
}

/// A request that waits for Redis. It stops waiting when this is dropped.
pub(super) struct Waiting<'l> {
    shard: &'l Shard,
    clock: &'l Clock,
    id: u128,
    changed: Arc<Notify>,
    is_over: bool,
}

impl Leases {
    /// Returns the leases of the node in this server.
    pub(super) fn of(node: &Node, server: &Server) -> Arc<Self> {
        let all = node.shared.get_or_insert(NAME, "leases", All::default);
        let source: Weak<dyn Source> = Arc::downgrade(&all) as Weak<dyn Source>;
        all.exposed.get_or_init(|| node.metrics.add_source(source));
        let mut leases = all.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = leases.iter().filter_map(Weak::upgrade);
        if let Some(known) = alive.find(|known| known.server.is_same(server)) {
            return known;
        }
        drop(alive);
        leases.retain(|leases| leases.strong_count() > 0);
        let started = Arc::new(Self::start(node, server, Arc::clone(&all)));
        leases.push(Arc::downgrade(&started));
        started
    }

    fn start(node: &Node, server: &Server, all: Arc<All>) -> Self {
        // Another process never has the same name, so that a record in Redis belongs to one process.
        let name = Uuid::new_v4().simple().to_string();
        let shard = |prefix: String, ledgers: usize| {
            let clock = node.clock.clone();
            let shard = Shard::new(name.clone(), prefix, ledgers, server.clone(), clock);
            let shard = Arc::new(shard);
            // A shutdown waits until the last permits are returned.
            let closing = node.background.closing();
            node.background
                .spawn(shard::serve(Arc::clone(&shard), closing));
            shard
        };
        let shards = match server.is_cluster() {
            false => Box::new([shard("silverback:lease".to_owned(), LEDGERS)]),
            true => (0..TAGS)
                .map(|tag| shard(format!("{{silverback:lease:{tag}}}"), LEDGERS_OF_TAG))
                .collect::<Box<[_]>>(),
        };
        Self {
            server: server.clone(),
            clock: node.clock.clone(),
            shards,
            _all: all,
        }
    }

    /// Judges a request. `id` names its client in this node, and `digest` names it in Redis. The allowances are ordered by
    /// period, the shortest first.
    pub(super) fn judge(
        &self,
        id: u128,
        digest: impl FnOnce() -> Digest,
        allowances: &[Allowance],
    ) -> Leased<'_> {
        let digest = LazyCell::new(digest);
        let at = match self.shards.len() {
            1 => 0,
            // All nodes must choose the same hash tag.
            tags => usize::from(digest[0]) % tags,
        };
        let Some(shard) = self.shards.get(at) else {
            return Leased::Unreachable;
        };
        let judged = shard.judge(id, || *digest, allowances, self.clock.since_boot());
        match (known(&judged), judged.outcome) {
            (Some(verdict), _) => Leased::Known(verdict),
            (None, Outcome::Waits(changed)) => Leased::Waits(Waiting {
                shard,
                clock: &self.clock,
                id,
                changed,
                is_over: false,
            }),
            (None, _) => Leased::Unreachable,
        }
    }

    /// Number of nodes that share the limits, as far as this node knows. At least 1.
    pub(super) fn nodes(&self) -> u64 {
        let nodes = self.shards.iter().map(|shard| shard.nodes());
        nodes.max().unwrap_or(1)
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.shards.iter().for_each(|shard| shard.close());
    }
}

impl Waiting<'_> {
    /// Waits until the request can be judged, at most for this time. `None` if Redis cannot be reached.
    pub(super) async fn judge(
        mut self,
        allowances: &[Allowance],
        timeout: Duration,
    ) -> Option<Verdict> {
        let deadline = Instant::now() + timeout;
        let changed = Arc::clone(&self.changed);
        loop {
            let notified = changed.notified();
            tokio::pin!(notified);
            // What changes from here on is not missed.
            notified.as_mut().enable();
            let now = self.clock.since_boot();
            let judged = self.shard.judge_again(self.id, allowances, now);
            if !matches!(judged.outcome, Outcome::Waits(_)) {
                self.is_over = true;
                return known(&judged);
            }
            timeout_at(deadline, notified).await.ok()?;
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.shard.leave(self.id);
        }
    }
}

fn known(judged: &Judged) -> Option<Verdict> {
    let passes = match judged.outcome {
        Outcome::Passes => true,
        Outcome::Refused => false,
        Outcome::Waits(_) | Outcome::Unreachable => return None,
    };
    let before = judged.before;
    Some(Verdict { passes, before })
}

/// All leases of a node, for the metrics.
#[derive(Default)]
struct All {
    leases: Mutex<Vec<Weak<Leases>>>,
    exposed: OnceLock<()>,
}

impl Source for All {
    fn collect(&self, page: &mut Page) {
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let alive: Vec<Arc<Leases>> = leases.iter().filter_map(Weak::upgrade).collect();
        drop(leases);
        let mut sum = Numbers::default();
        for shard in alive.iter().flat_map(|leases| &leases.shards) {
            sum.add(&shard.numbers());
        }
        page.family(
            "silverback_rate_limiting_leased_total",
            "Requests judged by leases: the node knew the result (held), they waited for Redis (waited), or Redis could not be \
             reached (unreachable).",
            Kind::Counter,
        );
        for (outcome, count) in [
            ("held", sum.held),
            ("unreachable", sum.unreachable),
            ("waited", sum.waited),
        ] {
            page.sample(&[("outcome", outcome)], count as f64);
        }
        page.family(
            "silverback_rate_limiting_lease_keys",
            "Clients whose leases the node has in memory.",
            Kind::Gauge,
        );
        page.sample(&[], sum.keys as f64);
    }
}
