//! The world of the simulation: nodes with clocks of their own, a network that delays, loses and repeats messages, and
//! Redis masters. Everything follows from a seed.

use super::super::super::counters::Allowance;
use super::super::super::window::Period;
use super::super::ledger::{Ledger, Outcome, TICK};
use super::super::message::{Ask, Reply};
use super::model::{Model, window};
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// Microseconds since 1970: the true time, which the clock of the first master shows.
pub(super) type Time = u64;

pub(super) const MS: Time = 1000;
pub(super) const SECOND: Time = 1000 * MS;

/// How long a node waits for a reply.
const TIMEOUT: Time = 100 * MS;

#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) allowances: Vec<Allowance>,
    /// Requests per second at all nodes together.
    pub(super) rate: f64,
    pub(super) begin: Time,
    pub(super) length: Time,
    /// The network's delay of a message in each direction.
    pub(super) delay: (Time, Time),
    /// Probabilities that a message is lost, and that it arrives twice.
    pub(super) lost: f64,
    pub(super) repeated: f64,
    /// Probability per second that a node is suspended for up to 3 seconds, and that it is replaced by a new one.
    pub(super) suspensions: f64,
    pub(super) losses: f64,
    /// When the master changes, by how much the new one's data is behind, and its clock.
    pub(super) failover: Option<(Time, Time, i64)>,
}

/// What happened, for each window by its beginning.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Requests that passed, by the window of the lease and by the true time.
    pub(super) by_lease: BTreeMap<(Period, u64), u64>,
    pub(super) by_time: BTreeMap<(Period, u64), u64>,
    pub(super) passed: u64,
    pub(super) refused: u64,
    pub(super) unreachable: u64,
    pub(super) waited: u64,
    /// The longest time after which a request was refused since Redis had something left.
    pub(super) hasty: Time,
    /// Maximum number of permits that were unused elsewhere while a request was refused, and the longest time in which
    /// one node had some of them all the time.
    pub(super) unused: u64,
    pub(super) longest_unused: Time,
}

#[derive(Debug)]
enum Event {
    Request(usize),
    Tick(usize),
    ToRedis { call: usize, master: usize },
    ToNode { call: usize, reply: Box<Reply> },
    Timeout(usize),
    Suspend(usize),
    Replace(usize),
    Failover,
    Copy,
}

struct Call {
    node: usize,
    name: String,
    reported: Option<String>,
    asks: Vec<Ask>,
    sent: Duration,
}

struct Node {
    name: String,
    ledger: Ledger,
    /// The node's clock: it began at a time of its own and runs at a speed of its own.
    offset: Time,
    speed: f64,
    call: Option<usize>,
    waiting: u64,
    suspended_until: Time,
    /// Since when the node has had unused permits while others were refused.
    unused_since: Option<Time>,
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    random: Rng,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64)>>,
    payloads: BTreeMap<u64, Event>,
    numbers: u64,
    nodes: Vec<Node>,
    calls: Vec<Call>,
    master: usize,
    model: Model,
    clock: i64,
    copies: VecDeque<(Time, Model)>,
    /// Since when Redis has something left.
    left_since: Option<Time>,
    pub(super) outcomes: Outcomes,
}

/// All requests have the same key.
const ID: u128 = 7;

impl World {
    pub(super) fn run(scenario: Scenario) -> Outcomes {
        let mut world = Self {
            random: Rng::with_seed(scenario.seed),
            now: scenario.begin,
            events: BinaryHeap::new(),
            payloads: BTreeMap::new(),
            numbers: 0,
            nodes: Vec::new(),
            calls: Vec::new(),
            master: 0,
            model: Model::new("run0", 500),
            clock: 0,
            copies: VecDeque::new(),
            left_since: None,
            outcomes: Outcomes::default(),
            scenario,
        };
        world.begin();
        let end = world.scenario.begin + world.scenario.length;
        while let Some(Reverse((time, number))) = world.events.pop() {
            if time > end {
                break;
            }
            world.now = time;
            if let Some(event) = world.payloads.remove(&number) {
                world.handle(event);
            }
        }
        world.outcomes
    }

    fn begin(&mut self) {
        for at in 0..self.scenario.nodes {
            let node = self.node();
            self.nodes.push(node);
            let first = self.random.u64(0..TICK.as_micros() as u64);
            self.after(first, Event::Tick(at));
        }
        let length = self.scenario.length;
        for at in 0..self.scenario.nodes {
            for (rate, event) in [
                (
                    self.scenario.suspensions,
                    Event::Suspend as fn(usize) -> Event,
                ),
                (self.scenario.losses, Event::Replace as fn(usize) -> Event),
            ] {
                let mut time = 0;
                while rate > 0.0 && time < length {
                    time += (-self.random.f64().ln() / rate * SECOND as f64) as Time;
                    self.after(time, event(at));
                }
            }
        }
        if let Some((time, _, _)) = self.scenario.failover {
            self.after(time, Event::Failover);
            self.after(0, Event::Copy);
        }
        self.next_request();
    }

    fn node(&mut self) -> Node {
        self.numbers += 1;
        Node {
            name: format!("node{}", self.numbers),
            ledger: Ledger::new(1, 1, 1000),
            offset: self.random.u64(..1000 * SECOND),
            speed: 1.0 + (self.random.f64() - 0.5) / 1000.0,
            call: None,
            waiting: 0,
            suspended_until: 0,
            unused_since: None,
        }
    }

    fn after(&mut self, delay: Time, event: Event) {
        self.numbers += 1;
        self.payloads.insert(self.numbers, event);
        self.events.push(Reverse((self.now + delay, self.numbers)));
    }

    fn next_request(&mut self) {
        let gap = -self.random.f64().ln() / self.scenario.rate * SECOND as f64;
        let node = self.random.usize(..self.nodes.len());
        self.after(gap as Time, Event::Request(node));
    }

    /// The time that a node's clock shows. It counts while the node is suspended.
    fn clock_of(&self, at: usize) -> Duration {
        let node = &self.nodes[at];
        let since = (self.now - self.scenario.begin) as f64 * node.speed;
        Duration::from_micros(node.offset + since as u64)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request(at) => {
                self.next_request();
                if !self.is_suspended(at) {
                    self.request(at);
                    self.send(at);
                }
            }
            Event::Tick(at) => {
                self.after(TICK.as_micros() as u64, Event::Tick(at));
                if !self.is_suspended(at) {
                    let now = self.clock_of(at);
                    self.nodes[at].ledger.tick(now);
                    self.send(at);
                }
            }
            Event::ToRedis { call, master } if master == self.master => self.answer(call),
            Event::ToRedis { .. } => {}
            Event::ToNode { call, reply } => self.receive(call, reply),
            Event::Timeout(call) => self.time_out(call),
            Event::Suspend(at) => {
                let until = self.now + self.random.u64(..3 * SECOND);
                self.nodes[at].suspended_until = until;
            }
            Event::Replace(at) => self.nodes[at] = self.node(),
            Event::Failover => self.fail_over(),
            Event::Copy => {
                self.copies.push_back((self.now, self.model.clone()));
                self.after(MS, Event::Copy);
            }
        }
        self.look();
    }

    fn is_suspended(&self, at: usize) -> bool {
        self.now < self.nodes[at].suspended_until
    }

    fn request(&mut self, at: usize) {
        let now = self.clock_of(at);
        let allowances = &self.scenario.allowances;
        let judged = self.nodes[at].ledger.judge(ID, || [0; 16], allowances, now);
        if let Outcome::Waits(_) = judged.outcome {
            self.nodes[at].waiting += 1;
            self.outcomes.waited += 1;
        }
        self.count(at, &judged.outcome);
    }

    fn count(&mut self, at: usize, outcome: &Outcome) {
        match outcome {
            Outcome::Passes => {
                self.outcomes.passed += 1;
                for allowance in &self.scenario.allowances {
                    let period = allowance.period;
                    let lease = self.nodes[at].ledger.lease(ID, period);
                    let named = lease.and_then(|lease| lease.window()).expect("a window");
                    *self.outcomes.by_lease.entry((period, named)).or_default() += 1;
                    let begin = window(period, self.now / SECOND).0;
                    *self.outcomes.by_time.entry((period, begin)).or_default() += 1;
                }
            }
            Outcome::Refused => {
                self.outcomes.refused += 1;
                let since = self.left_since.unwrap_or(self.now);
                self.outcomes.hasty = self.outcomes.hasty.max(self.now - since);
            }
            Outcome::Unreachable => self.outcomes.unreachable += 1,
            Outcome::Waits(_) => {}
        }
    }

    /// Looks at what lies unused while Redis has nothing left.
    fn look(&mut self) {
        let [allowance] = &*self.scenario.allowances else {
            return;
        };
        let period = allowance.period;
        let begin = window(period, self.now / SECOND).0;
        let granted = self.model.granted([0; 16], period, begin);
        let is_empty = granted >= allowance.requests;
        self.left_since = match is_empty {
            true => None,
            false => Some(self.left_since.unwrap_or(self.now)),
        };
        let mut all = 0;
        for at in 0..self.nodes.len() {
            let now = self.clock_of(at);
            let node = &mut self.nodes[at];
            let lease = node.ledger.lease(ID, period);
            let lease = lease.filter(|lease| lease.window() == Some(begin) && lease.is_live(now));
            let unused = lease.map_or(0, |lease| lease.unused());
            if unused == 0 || !is_empty {
                node.unused_since = None;
                continue;
            }
            all += unused;
            let since = *node.unused_since.get_or_insert(self.now);
            let longest = &mut self.outcomes.longest_unused;
            *longest = (*longest).max(self.now - since);
        }
        self.outcomes.unused = self.outcomes.unused.max(all);
    }

    fn send(&mut self, at: usize) {
        let now = self.clock_of(at);
        let node = &mut self.nodes[at];
        if node.call.is_some() || !node.ledger.is_due(now) {
            return;
        }
        let mut asks = Vec::new();
        node.ledger.collect(now, 100, &mut asks);
        node.call = Some(self.calls.len());
        self.calls.push(Call {
            node: at,
            name: node.name.clone(),
            reported: node.ledger.reported().map(str::to_owned),
            asks,
            sent: now,
        });
        let call = self.calls.len() - 1;
        self.after(TIMEOUT, Event::Timeout(call));
        for _ in 0..self.copies_of_message() {
            let delay = self.delay();
            let master = self.master;
            self.after(delay, Event::ToRedis { call, master });
        }
    }

    fn copies_of_message(&mut self) -> usize {
        if self.random.f64() < self.scenario.lost {
            0
        } else if self.random.f64() < self.scenario.repeated {
            2
        } else {
            1
        }
    }

    fn delay(&mut self) -> Time {
        let (least, most) = self.scenario.delay;
        self.random.u64(least..=most)
    }

    fn answer(&mut self, at: usize) {
        let call = &self.calls[at];
        let time = self.now.saturating_add_signed(self.clock);
        let reply = self
            .model
            .call(&call.name, call.reported.as_deref(), &call.asks, time);
        for _ in 0..self.copies_of_message() {
            let delay = self.delay();
            let reply = Box::new(reply.clone());
            self.after(delay, Event::ToNode { call: at, reply });
        }
    }

    fn receive(&mut self, call: usize, reply: Box<Reply>) {
        let at = self.calls[call].node;
        if self.is_suspended(at) {
            // The reply is read when the node goes on.
            let rest = self.nodes[at].suspended_until - self.now;
            return self.after(rest, Event::ToNode { call, reply });
        }
        if self.nodes[at].call != Some(call) || self.nodes[at].name != self.calls[call].name {
            return;
        }
        let now = self.clock_of(at);
        let Call { asks, sent, .. } = &self.calls[call];
        let node = &mut self.nodes[at];
        node.call = None;
        node.ledger.connect(&reply, *sent, now);
        node.ledger.apply(asks, &reply.answers, &reply, *sent, now);
        self.wake(at);
        self.send(at);
    }

    fn time_out(&mut self, call: usize) {
        let at = self.calls[call].node;
        if self.is_suspended(at) {
            let rest = self.nodes[at].suspended_until - self.now;
            return self.after(rest, Event::Timeout(call));
        }
        let node = &mut self.nodes[at];
        if node.call == Some(call) && node.name == self.calls[call].name {
            node.call = None;
            node.ledger.disconnect();
            node.ledger.fail(&self.calls[call].asks);
            self.wake(at);
            self.send(at);
        }
    }

    /// Judges the requests that wait again.
    fn wake(&mut self, at: usize) {
        let now = self.clock_of(at);
        for _ in 0..self.nodes[at].waiting {
            let allowances = &self.scenario.allowances;
            let judged = self.nodes[at].ledger.judge_again(ID, allowances, now);
            if !matches!(judged.outcome, Outcome::Waits(_)) {
                self.nodes[at].waiting -= 1;
            }
            self.count(at, &judged.outcome);
        }
    }

    fn fail_over(&mut self) {
        let (_, behind, clock) = self.scenario.failover.expect("a change of master");
        let until = self.now - behind;
        while self.copies.get(1).is_some_and(|copy| copy.0 <= until) {
            self.copies.pop_front();
        }
        let (_, copy) = self.copies.pop_front().expect("a copy");
        self.master += 1;
        self.model = copy;
        self.model.run = format!("run{}", self.master);
        self.clock = clock;
    }
}
