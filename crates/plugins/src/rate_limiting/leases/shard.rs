//! The ledgers that share a hash tag, and the task that exchanges messages with Redis for them.

use super::super::NAME;
use super::super::counters::Allowance;
use super::ledger::{Judged, Ledger, Outcome, TICK};
use super::message::{self, Ask, Digest, Reply};
use services::Clock;
use services::redis::Server;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Maximum number of messages in one call, so that Redis is not kept for long.
const MAX_MESSAGES: usize = 128;

/// Number of keys above which those that are not in use are forgotten, for each server or hash tag.
const MAX_KEYS: usize = 1 << 19;

/// Time between two attempts to reach Redis after a failure.
const RETRY: Duration = Duration::from_millis(100);

/// Maximum number of calls that return what is unused at the end.
const LAST_CALLS: usize = 64;

pub(super) struct Shard {
    /// The name of this node in Redis.
    node: String,
    /// The beginning of the keys in Redis.
    prefix: String,
    ledgers: Box<[Mutex<Ledger>]>,
    /// The ledger whose messages are sent first. Each call begins with another one.
    first: AtomicUsize,
    server: Server,
    clock: Clock,
    /// Wakes the task that sends messages.
    wake: Notify,
    is_closed: AtomicBool,
    held: AtomicU64,
    waited: AtomicU64,
    unreachable: AtomicU64,
}

/// The messages of one call, and which of them each ledger sent.
#[derive(Default)]
struct Batch {
    asks: Vec<Ask>,
    senders: Vec<(usize, Range<usize>)>,
}

/// The numbers of requests by how they were judged, and the number of keys in memory.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) held: u64,
    pub(super) waited: u64,
    pub(super) unreachable: u64,
    pub(super) keys: u64,
}

impl Numbers {
    pub(super) fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.waited += other.waited;
        self.unreachable += other.unreachable;
        self.keys += other.keys;
    }
}

impl Shard {
    pub(super) fn new(
        node: String,
        prefix: String,
        ledgers: usize,
        server: Server,
        clock: Clock,
    ) -> Self {
        let step = ledgers as u64;
        let ledger = |first| Mutex::new(Ledger::new(first, step, MAX_KEYS / ledgers));
        Self {
            node,
            prefix,
            ledgers: (0..step).map(ledger).collect(),
            first: AtomicUsize::new(0),
            server,
            clock,
            wake: Notify::new(),
            is_closed: AtomicBool::new(false),
            held: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            unreachable: AtomicU64::new(0),
        }
    }

    pub(super) fn judge(
        &self,
        id: u128,
        digest: impl FnOnce() -> Digest,
        allowances: &[Allowance],
        now: Duration,
    ) -> Judged {
        let mut ledger = self.ledger(id);
        let judged = ledger.judge(id, digest, allowances, now);
        self.wake_if_due(ledger);
        let count = match judged.outcome {
            Outcome::Passes | Outcome::Refused => &self.held,
            Outcome::Waits(_) => &self.waited,
            Outcome::Unreachable => &self.unreachable,
        };
        count.fetch_add(1, Ordering::Relaxed);
        judged
    }

    pub(super) fn judge_again(&self, id: u128, allowances: &[Allowance], now: Duration) -> Judged {
        let mut ledger = self.ledger(id);
        let judged = ledger.judge_again(id, allowances, now);
        self.wake_if_due(ledger);
        judged
    }

    pub(super) fn leave(&self, id: u128) {
        self.ledger(id).leave(id);
    }

    pub(super) fn nodes(&self) -> u64 {
        self.ledgers
            .first()
            .map_or(1, |ledger| lock(ledger).nodes())
    }

    pub(super) fn numbers(&self) -> Numbers {
        let keys = self.ledgers.iter().map(|ledger| lock(ledger).keys() as u64);
        Numbers {
            held: self.held.load(Ordering::Relaxed),
            waited: self.waited.load(Ordering::Relaxed),
            unreachable: self.unreachable.load(Ordering::Relaxed),
            keys: keys.sum(),
        }
    }

    /// Lets the task return what is unused, and end.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn ledger(&self, id: u128) -> MutexGuard<'_, Ledger> {
        lock(&self.ledgers[self.place(id)])
    }

    fn place(&self, id: u128) -> usize {
        id as usize % self.ledgers.len()
    }

    fn wake_if_due(&self, ledger: MutexGuard<'_, Ledger>) {
        let has_mail = ledger.has_mail();
        drop(ledger);
        if has_mail {
            self.wake.notify_one();
        }
    }

    fn is_idle(&self) -> bool {
        self.ledgers.iter().all(|ledger| lock(ledger).keys() == 0)
    }

    fn tick(&self) {
        let now = self.clock.since_boot();
        for ledger in &self.ledgers {
            lock(ledger).tick(now);
        }
    }

    /// Sends what there is to say, and applies the reply. Returns whether Redis replied.
    async fn exchange(&self) -> bool {
        // The time comes first: what Redis replies is true from then on.
        let sent = self.clock.since_boot();
        let Batch { asks, senders } = self.collect(sent);
        let reported = self.reported();
        let call = message::call(&self.prefix, &self.node, reported.as_deref(), &asks);
        // The client of Redis logs and counts errors.
        let reply = self.server.run(call).await.ok();
        let reply = reply.and_then(|value| {
            let reply = Reply::read(value, asks.len());
            if reply.is_none() {
                tracing::error!(plugin = NAME, "Redis sent an unexpected reply about leases");
            }
            reply
        });
        let now = self.clock.since_boot();
        let Some(reply) = reply else {
            self.ledgers
                .iter()
                .for_each(|ledger| lock(ledger).disconnect());
            for (at, messages) in senders {
                lock(&self.ledgers[at]).fail(&asks[messages]);
            }
            return false;
        };
        for ledger in &self.ledgers {
            lock(ledger).connect(&reply, sent, now);
        }
        for (at, messages) in senders {
            let answers = &reply.answers[messages.clone()];
            lock(&self.ledgers[at]).apply(&asks[messages], answers, &reply, sent, now);
        }
        true
    }

    fn collect(&self, now: Duration) -> Batch {
        let first = self.first.fetch_add(1, Ordering::Relaxed);
        let mut batch = Batch::default();
        for at in 0..self.ledgers.len() {
            let at = (first + at) % self.ledgers.len();
            let begin = batch.asks.len();
            let room = MAX_MESSAGES.saturating_sub(begin);
            lock(&self.ledgers[at]).collect(now, room, &mut batch.asks);
            if batch.asks.len() > begin {
                batch.senders.push((at, begin..batch.asks.len()));
            }
        }
        batch
    }

    /// Returns the epoch in which Redis knows all totals of this node.
    fn reported(&self) -> Option<String> {
        let mut reported = None;
        for ledger in &self.ledgers {
            reported = Some(lock(ledger).reported()?.to_owned());
        }
        reported
    }

    fn is_due(&self) -> bool {
        let now = self.clock.since_boot();
        self.ledgers.iter().any(|ledger| lock(ledger).is_due(now))
    }

    /// Returns what is unused, so that other nodes can use it.
    async fn end(&self) {
        let now = self.clock.since_boot();
        for ledger in &self.ledgers {
            lock(ledger).return_all(now);
        }
        for _ in 0..LAST_CALLS {
            let has_mail = self.ledgers.iter().any(|ledger| lock(ledger).has_mail());
            if !has_mail || !self.exchange().await {
                return;
            }
        }
    }
}

/// Exchanges messages with Redis until the shard is closed or the gateway shuts down.
pub(super) async fn serve(shard: Arc<Shard>, closing: impl Future<Output = ()>) {
    let mut closing = pin!(closing);
    let mut next_tick = Instant::now();
    let mut next_try = next_tick;
    while !shard.is_closed.load(Ordering::Acquire) {
        if shard.is_idle() {
            tokio::select! {
                () = shard.wake.notified() => continue,
                () = &mut closing => return,
            }
        }
        let now = Instant::now();
        if now >= next_tick {
            shard.tick();
            next_tick = now + TICK;
        }
        if now >= next_try && shard.is_due() {
            if !shard.exchange().await {
                next_try = Instant::now() + RETRY;
            }
            continue;
        }
        tokio::select! {
            () = sleep_until(next_tick) => {}
            () = shard.wake.notified() => {}
            () = &mut closing => break,
        }
    }
    shard.end().await;
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}
