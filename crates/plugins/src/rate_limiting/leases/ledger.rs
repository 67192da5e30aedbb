//! The node's side of leases: judges requests by the permits that the node holds, and says what to send to Redis. It does
//! no I/O and has no clock, so that a simulation can run it. `now` is the time since the computer was started, with the
//! time in which it was suspended.
//!
//! A request passes if the node has an unused permit of each of its limits. If Redis has said that nothing is left of
//! one of them, the request is refused. Otherwise it waits for the reply to the node's next message.
//!
//! Redis names windows and says how long they last. A lease ends before its window does, whatever the node's clock shows.

use super::super::counters::Allowance;
use super::super::window::Period;
use super::entry::{Entry, FORGET, IDLE_TICKS, Numbers};
use super::lease::{Lease, Offer};
use super::message::{Answer, Ask, Digest, Reply};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long permits may be used after the last contact with Redis. A new master grants nothing for as long.
pub(super) const LEASE: Duration = Duration::from_millis(500);

/// Time between two calls of [`Ledger::tick`].
pub(super) const TICK: Duration = Duration::from_millis(25);

/// A node that holds leases sends a message at least this often, so that it hears of a new master in time.
const HEARTBEAT: Duration = Duration::from_millis(100);

pub(super) struct Ledger {
    entries: HashMap<u128, Entry>,
    /// Keys about which the node has something to say.
    outbox: VecDeque<u128>,
    /// Keys that [`Ledger::tick`] looks at.
    active: Vec<u128>,
    link: Link,
    next_record: u64,
    record_step: u64,
    /// Number of keys above which idle ones are forgotten early.
    max: usize,
    swept: Duration,
}

/// What the node knows about Redis.
#[derive(Debug, Default)]
struct Link {
    /// When the newest message that was answered had been sent.
    contact: Option<Duration>,
    epoch: Option<String>,
    /// Whether some totals are not known in this epoch.
    is_reporting: bool,
    frozen: bool,
    nodes: u64,
    /// Whether the last message was not answered.
    is_down: bool,
}

/// The result for one request.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    pub(super) outcome: Outcome,
    /// The requests in each window without this one, as far as the node knows, in the order of the allowances.
    pub(super) before: [u64; Period::COUNT],
}

#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Passes,
    Refused,
    /// The request must wait for this, and then be judged by [`Ledger::judge_again`] or leave.
    Waits(Arc<Notify>),
    /// Redis cannot be reached.
    Unreachable,
}

impl Ledger {
    /// Creates one of several ledgers of a node. Their leases have different numbers: `first`, `first + step` and so on.
    pub(super) fn new(first: u64, step: u64, max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            outbox: VecDeque::new(),
            active: Vec::new(),
            link: Link::default(),
            next_record: first,
            record_step: step,
            max,
            swept: Duration::ZERO,
        }
    }

    /// Judges a request. The allowances are ordered by period, the shortest first.
    pub(super) fn judge(
        &mut self,
        id: u128,
        digest: impl FnOnce() -> Digest,
        allowances: &[Allowance],
        now: Duration,
    ) -> Judged {
        let entry = self
            .entries
            .entry(id)
            .or_insert_with(|| Entry::new(digest()));
        entry.recent += 1;
        entry.idle_ticks = 0;
        entry.last_use = now;
        if !entry.is_active {
            entry.is_active = true;
            self.active.push(id);
        }
        let judged = self.decide(id, allowances, now);
        if let Outcome::Waits(_) = judged.outcome
            && let Some(entry) = self.entries.get_mut(&id)
        {
            entry.waiting += 1;
        }
        judged
    }

    /// Judges a request that waits. If it need not wait longer, it is no longer counted as waiting.
    pub(super) fn judge_again(
        &mut self,
        id: u128,
        allowances: &[Allowance],
        now: Duration,
    ) -> Judged {
        let judged = self.decide(id, allowances, now);
        if !matches!(judged.outcome, Outcome::Waits(_)) {
            self.leave(id);
        }
        judged
    }

    /// Takes note that a request waits no longer.
    pub(super) fn leave(&mut self, id: u128) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.waiting = entry.waiting.saturating_sub(1);
        }
    }

    fn decide(&mut self, id: u128, allowances: &[Allowance], now: Duration) -> Judged {
        let is_certain = self.link.is_certain(now);
        let mut judged = Judged {
            outcome: Outcome::Unreachable,
            before: [0; Period::COUNT],
        };
        let Some(entry) = self.entries.get_mut(&id) else {
            return judged;
        };
        entry.fit(
            allowances,
            now,
            &mut Numbers(&mut self.next_record, self.record_step),
        );
        let (mut refused, mut unknown) = (false, false);
        for (lease, before) in entry.leases.iter().zip(&mut judged.before) {
            *before = lease.requests();
            match lease.offer(is_certain, now) {
                Offer::Permit => {}
                Offer::Refusal => refused = true,
                Offer::Unknown => unknown = true,
            }
        }
        judged.outcome = if refused {
            Outcome::Refused
        } else if unknown && self.link.is_down {
            Outcome::Unreachable
        } else if unknown {
            Outcome::Waits(Arc::clone(&entry.changed))
        } else {
            entry.leases.iter_mut().for_each(Lease::take);
            Outcome::Passes
        };
        let wants = match judged.outcome {
            Outcome::Passes => entry.runs_short(now),
            // During a freeze the ticks ask.
            Outcome::Waits(_) => !self.link.frozen,
            Outcome::Refused | Outcome::Unreachable => false,
        };
        if wants {
            queue(&mut self.outbox, id, entry);
        }
        judged
    }

    /// Takes at most `room` messages that are to be sent now.
    pub(super) fn collect(&mut self, now: Duration, room: usize, asks: &mut Vec<Ask>) {
        let is_certain = self.link.is_certain(now);
        let most = asks.len() + room;
        while asks.len() < most {
            let Some(id) = self.outbox.pop_front() else {
                return;
            };
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            entry.is_queued = false;
            entry.replace_over(now, &mut Numbers(&mut self.next_record, self.record_step));
            let need = entry.need(id);
            for lease in &mut entry.leases {
                if !is_certain {
                    lease.give_up();
                }
                asks.extend(lease.ask(need));
            }
        }
    }

    /// Whether there are messages to send, or a message is due that only keeps the contact.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let is_silent = self
            .link
            .contact
            .is_none_or(|contact| contact + HEARTBEAT <= now);
        !self.outbox.is_empty() || (is_silent && !self.entries.is_empty())
    }

    /// Returns the epoch in which Redis knows all totals of the node. `None` if it does not know some.
    pub(super) fn reported(&self) -> Option<&str> {
        match &self.link.epoch {
            None => Some("*"),
            Some(epoch) => (!self.link.is_reporting).then_some(epoch),
        }
    }

    /// Number of nodes that Redis saw lately. At least 1.
    pub(super) fn nodes(&self) -> u64 {
        self.link.nodes.max(1)
    }

    /// Takes note of a reply to a message that was sent at this time, before its answers are applied.
    pub(super) fn connect(&mut self, reply: &Reply, sent: Duration, now: Duration) {
        let link = &mut self.link;
        link.is_down = false;
        link.frozen = reply.frozen;
        link.nodes = reply.nodes;
        if link.epoch.as_deref() == Some(&reply.epoch) {
            link.contact = link.contact.max(Some(sent));
            return;
        }
        link.contact = Some(sent);
        link.epoch = Some(reply.epoch.clone());
        for entry in self.entries.values_mut() {
            entry.leases.iter_mut().for_each(Lease::begin_epoch);
        }
        self.report(now);
    }

    /// Queues the leases that the current master may not know.
    fn report(&mut self, now: Duration) {
        self.link.is_reporting = false;
        for (id, entry) in &mut self.entries {
            let is_unreported = |lease: &Lease| lease.is_unreported() && lease.is_live(now);
            if entry.leases.iter().any(is_unreported) {
                self.link.is_reporting = true;
                queue(&mut self.outbox, *id, entry);
            }
        }
    }

    /// Applies the answers to messages, and wakes the requests that wait for them.
    pub(super) fn apply(
        &mut self,
        asks: &[Ask],
        answers: &[Option<Answer>],
        reply: &Reply,
        sent: Duration,
        now: Duration,
    ) {
        for (ask, answer) in asks.iter().zip(answers) {
            let Some(entry) = self.entries.get_mut(&ask.id) else {
                continue;
            };
            let mut leases = entry.leases.iter_mut();
            let Some(lease) = leases.find(|lease| lease.expects(ask)) else {
                continue;
            };
            let Some(answer) = answer else {
                lease.fail();
                continue;
            };
            if !lease.apply(ask, answer, sent, reply.time, reply.frozen) {
                let mut numbers = Numbers(&mut self.next_record, self.record_step);
                *lease = Lease::new(lease.period, lease.limit, numbers.next());
            }
            entry.changed.notify_waiters();
        }
        if self.link.is_reporting {
            let mut leases = self.entries.values().flat_map(|entry| &entry.leases);
            self.link.is_reporting =
                leases.any(|lease| lease.is_unreported() && lease.is_live(now));
        }
    }

    /// Takes note that a message was not answered.
    pub(super) fn disconnect(&mut self) {
        self.link.is_down = true;
        // All that wait learn that Redis cannot be reached.
        for id in &self.active {
            if let Some(entry) = self.entries.get(id) {
                entry.changed.notify_waiters();
            }
        }
    }

    /// Takes note that these messages were not answered. Redis may have applied them.
    pub(super) fn fail(&mut self, asks: &[Ask]) {
        for ask in asks {
            let entry = self.entries.get_mut(&ask.id);
            let mut leases = entry.into_iter().flat_map(|entry| &mut entry.leases);
            if let Some(lease) = leases.find(|lease| lease.expects(ask)) {
                lease.fail();
            }
        }
    }

    /// Estimates what the next tick needs, and queues what is to be returned, reported, or asked for again.
    pub(super) fn tick(&mut self, now: Duration) {
        let Self {
            entries,
            outbox,
            active,
            link,
            ..
        } = self;
        let is_certain = link.is_certain(now);
        active.retain(|id| {
            let Some(entry) = entries.get_mut(id) else {
                return false;
            };
            let is_due = entry.tick(now, is_certain);
            if is_due {
                queue(outbox, *id, entry);
            }
            entry.is_active = is_due || !entry.is_idle() || entry.waiting > 0;
            entry.is_active
        });
        if self.link.is_reporting {
            self.report(now);
        }
        let is_full = self.entries.len() > self.max;
        if is_full || self.swept + FORGET / 8 <= now {
            self.swept = now;
            self.entries
                .retain(|_, entry| entry.is_busy() || (!is_full && now < entry.last_use + FORGET));
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// Whether there are messages to send.
    pub(super) fn has_mail(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Number of keys in memory.
    pub(super) fn keys(&self) -> usize {
        self.entries.len()
    }

    /// Queues the return of everything that is unused.
    pub(super) fn return_all(&mut self, now: Duration) {
        for (id, entry) in &mut self.entries {
            entry.idle_ticks = IDLE_TICKS;
            let returns = |lease: &Lease| lease.is_live(now) && lease.unused() > 0;
            if entry.leases.iter().any(returns) {
                queue(&mut self.outbox, *id, entry);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn lease(&self, id: u128, period: Period) -> Option<&Lease> {
        let mut leases = self.entries.get(&id)?.leases.iter();
        leases.find(|lease| lease.period == period)
    }
}

impl Link {
    /// Whether the master that granted the permits is still the master, or at least no other one grants anything yet.
    fn is_certain(&self, now: Duration) -> bool {
        self.contact.is_some_and(|contact| now < contact + LEASE)
    }
}

fn queue(outbox: &mut VecDeque<u128>, id: u128, entry: &mut Entry) {
    if !entry.is_queued {
        entry.is_queued = true;
        outbox.push_back(id);
    }
}
