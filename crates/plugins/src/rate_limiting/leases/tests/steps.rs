//! Single steps of a node, with the script's model in place of Redis.

use super::super::super::counters::Allowance;
use super::super::super::window::Period;
use super::super::ledger::{LEASE, Ledger, Outcome, TICK};
use super::super::message::{Ask, Reply};
use super::model::Model;
use std::time::Duration;

const ID: u128 = 1;
const MS: Duration = Duration::from_millis(1);
/// The beginning of a minute, and of 10 minutes.
const BEGIN: u64 = 1_800_000_000;

/// A node and Redis. Their clocks differ by [`BEGIN`].
struct Pair {
    ledger: Ledger,
    model: Model,
    now: Duration,
    allowances: Vec<Allowance>,
}

impl Pair {
    /// Begins after the time in which a new master grants nothing.
    fn new(period: Period, requests: u64) -> Self {
        let mut pair = Self {
            ledger: Ledger::new(1, 1, 1000),
            model: Model::new("run", LEASE.as_millis() as u64),
            now: Duration::from_secs(1),
            allowances: vec![Allowance { period, requests }],
        };
        pair.exchange();
        pair.now += LEASE;
        pair.exchange();
        pair
    }

    fn judge(&mut self) -> Outcome {
        let judged = self
            .ledger
            .judge(ID, || [0; 16], &self.allowances, self.now);
        judged.outcome
    }

    fn judge_again(&mut self) -> Outcome {
        let judged = self.ledger.judge_again(ID, &self.allowances, self.now);
        judged.outcome
    }

    fn collect(&mut self) -> Vec<Ask> {
        let mut asks = Vec::new();
        self.ledger.collect(self.now, 100, &mut asks);
        asks
    }

    fn call(&mut self, asks: &[Ask]) -> Reply {
        let time = BEGIN * 1_000_000 + self.now.as_micros() as u64;
        self.model.call("node", self.ledger.reported(), asks, time)
    }

    fn receive(&mut self, asks: &[Ask], reply: &Reply) {
        let now = self.now;
        self.ledger.connect(reply, now, now);
        self.ledger.apply(asks, &reply.answers, reply, now, now);
    }

    /// Exchanges messages without delay, and returns those of the node.
    fn exchange(&mut self) -> Vec<Ask> {
        let asks = self.collect();
        let reply = self.call(&asks);
        self.receive(&asks, &reply);
        asks
    }

    /// Lets a request pass at once or after an exchange, or be refused.
    fn passes(&mut self) -> bool {
        match self.judge() {
            Outcome::Waits(_) => {
                self.exchange();
                matches!(self.judge_again(), Outcome::Passes)
            }
            outcome => matches!(outcome, Outcome::Passes),
        }
    }

    fn tick(&mut self) -> Vec<Ask> {
        self.now += TICK;
        self.ledger.tick(self.now);
        self.exchange()
    }

    fn granted(&self) -> u64 {
        let period = self.allowances[0].period;
        self.model.granted([0; 16], period, BEGIN)
    }
}

#[test]
fn only_the_first_request_of_a_busy_key_waits() {
    let mut pair = Pair::new(Period::Minute, 100_000);
    assert!(matches!(pair.judge(), Outcome::Waits(_)));
    pair.exchange();
    assert!(matches!(pair.judge_again(), Outcome::Passes));
    for _ in 0..10 {
        pair.passes();
    }
    let mut waits = 0;
    for _ in 0..20 {
        pair.tick();
        for _ in 0..10 {
            waits += u32::from(matches!(pair.judge(), Outcome::Waits(_)));
            pair.exchange();
            let _ = pair.judge_again();
        }
    }
    assert!(waits <= 1, "{waits}");
}

#[test]
fn what_is_unused_is_returned_within_a_tenth_of_a_second() {
    let mut pair = Pair::new(Period::Minute, 100_000);
    for _ in 0..3 {
        (0..20).for_each(|_| assert!(pair.passes()));
        pair.tick();
    }
    assert!(pair.passes());
    assert!(pair.granted() > 61, "{}", pair.granted());
    let last = pair.now;
    while pair.granted() > 61 {
        pair.tick();
    }
    assert_eq!(pair.granted(), 61);
    assert!(pair.now - last < 100 * MS, "{:?}", pair.now - last);
    // Nothing is sent for a key that is not in use.
    assert_eq!(pair.tick(), []);
}

#[test]
fn a_limit_is_refused_when_redis_says_that_nothing_is_left() {
    let mut pair = Pair::new(Period::Minute, 3);
    let passed = (0..10).filter(|_| pair.passes()).count();
    assert_eq!(passed, 3);
    // No other node can return anything.
    assert!(matches!(pair.judge(), Outcome::Refused));
    assert_eq!(pair.tick(), []);
    pair.now = Duration::from_secs(60);
    assert!(pair.passes(), "another minute");
}

#[test]
fn a_node_that_was_suspended_uses_no_lease_of_a_window_that_is_over() {
    let mut pair = Pair::new(Period::Second, 1000);
    (0..20).for_each(|_| assert!(pair.passes()));
    pair.tick();
    assert!(pair.passes());
    let lease = pair.ledger.lease(ID, Period::Second).unwrap();
    assert!(lease.unused() > 0);
    pair.now += Duration::from_secs(1);
    assert!(matches!(pair.judge(), Outcome::Waits(_)));
}

#[test]
fn permits_are_not_used_without_contact_to_redis() {
    let mut pair = Pair::new(Period::Minute, 100_000);
    (0..20).for_each(|_| assert!(pair.passes()));
    pair.tick();
    assert!(pair.passes());
    pair.now += LEASE - 10 * MS;
    assert!(matches!(pair.judge(), Outcome::Passes));
    pair.now += 10 * MS;
    assert!(matches!(pair.judge(), Outcome::Waits(_)));
    let asks = pair.exchange();
    assert!(
        asks[0].keep == asks[0].used && asks[0].used == 22,
        "{asks:?}"
    );
    assert!(matches!(pair.judge_again(), Outcome::Passes));
}

#[test]
fn a_message_without_a_reply_is_counted_once() {
    let mut pair = Pair::new(Period::Minute, 10);
    assert!(matches!(pair.judge(), Outcome::Waits(_)));
    let asks = pair.collect();
    pair.call(&asks);
    assert_eq!(pair.granted(), 1);
    pair.ledger.disconnect();
    pair.ledger.fail(&asks);
    assert!(matches!(pair.judge_again(), Outcome::Unreachable));
    // The node says with its next message that it did not use the permit.
    while pair.granted() > 0 {
        assert!(pair.now < Duration::from_secs(2), "it is not returned");
        pair.tick();
    }
    // The first message arrives once more.
    pair.call(&asks);
    assert_eq!(pair.granted(), 0);
    let passed = (0..20).filter(|_| pair.passes()).count();
    assert_eq!(passed, 10);
}

#[test]
fn a_lowered_limit_ends_what_is_out_on_lease() {
    let mut pair = Pair::new(Period::Minute, 100_000);
    for _ in 0..2 {
        (0..20).for_each(|_| assert!(pair.passes()));
        pair.tick();
    }
    pair.allowances[0].requests = 10;
    let begin = pair.now;
    while pair.passes() {
        assert!(pair.now - begin < LEASE, "requests still pass");
        pair.tick();
    }
    pair.tick();
    pair.tick();
    assert_eq!(
        pair.granted(),
        pair.ledger.lease(ID, Period::Minute).unwrap().used()
    );
}

#[test]
fn a_raised_limit_lets_more_pass_at_once() {
    let mut pair = Pair::new(Period::Minute, 2);
    assert_eq!((0..5).filter(|_| pair.passes()).count(), 2);
    pair.allowances[0].requests = 4;
    assert_eq!((0..5).filter(|_| pair.passes()).count(), 2);
}

#[test]
fn a_new_master_grants_nothing_before_the_totals_are_reported() {
    let mut pair = Pair::new(Period::Minute, 10);
    assert_eq!((0..4).filter(|_| pair.passes()).count(), 4);
    pair.model = Model::new("other", LEASE.as_millis() as u64);
    assert!(matches!(pair.judge(), Outcome::Waits(_)));
    pair.exchange();
    assert!(matches!(pair.judge_again(), Outcome::Waits(_)));
    let begin = pair.now;
    while !matches!(pair.judge_again(), Outcome::Passes) {
        pair.tick();
    }
    assert!(pair.now - begin >= LEASE, "{:?}", pair.now - begin);
    assert_eq!((0..10).filter(|_| pair.passes()).count(), 5);
}

#[test]
fn a_request_takes_nothing_from_a_limit_if_another_one_is_reached() {
    let mut pair = Pair::new(Period::Minute, 100);
    let hour = Allowance {
        period: Period::Hour,
        requests: 2,
    };
    pair.allowances.push(hour);
    assert_eq!((0..20).filter(|_| pair.passes()).count(), 2);
    let lease = pair.ledger.lease(ID, Period::Minute).unwrap();
    assert_eq!(lease.used(), 2);
}

#[test]
fn keys_that_are_not_in_use_are_forgotten() {
    let mut pair = Pair::new(Period::Hour, 10);
    let now = pair.now;
    for id in 0..3000 {
        pair.ledger.judge(id, || [0; 16], &pair.allowances, now);
        pair.ledger.leave(id);
    }
    assert_eq!(pair.ledger.keys(), 3000);
    for _ in 0..100 {
        pair.tick();
    }
    // There is room for 1000, so that idle keys are forgotten early.
    assert!(pair.ledger.keys() <= 1000, "{}", pair.ledger.keys());
    pair.ledger
        .judge(ID, || [0; 16], &pair.allowances, pair.now);
    pair.ledger.leave(ID);
    for _ in 0..3000 {
        pair.tick();
    }
    assert_eq!(pair.ledger.keys(), 0);
}

#[test]
fn a_node_that_holds_nothing_has_nothing_to_report_to_a_new_master() {
    let mut pair = Pair::new(Period::Minute, 10);
    pair.model = Model::new("other", LEASE.as_millis() as u64);
    let reply = pair.call(&[]);
    // A node has several ledgers. This one sent no messages, so that it only hears of the reply.
    pair.ledger.connect(&reply, pair.now, pair.now);
    assert_eq!(pair.ledger.reported(), Some(&*reply.epoch));
}

#[test]
fn a_refusal_by_the_limit_of_before_does_not_count_for_a_raised_one() {
    let mut pair = Pair::new(Period::Minute, 1);
    assert!(pair.passes());
    assert!(matches!(pair.judge(), Outcome::Waits(_)));
    let asks = pair.collect();
    let reply = pair.call(&asks);
    // The limit is raised while the reply is on its way.
    pair.allowances[0].requests = 2;
    assert!(matches!(pair.judge(), Outcome::Waits(_)));
    pair.receive(&asks, &reply);
    assert!(!matches!(pair.judge_again(), Outcome::Refused));
    pair.exchange();
    assert!(matches!(pair.judge_again(), Outcome::Passes));
}
