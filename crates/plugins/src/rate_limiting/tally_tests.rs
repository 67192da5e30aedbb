//! Tests of what a node knows about shared counters: single steps, and ten nodes under load.

use super::counters::{Allowance, Verdict};
use super::tally::{Judged, Now, Report, Tally};
use super::window::{Calendar, Period};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;
use testkit::random::Random;

const INTERVAL: Duration = Duration::from_millis(100);
/// The time at which the steady clocks of the tests begin; it is the beginning of a day.
const EPOCH: u64 = 1_800_057_600;

fn at(millis: u64) -> Now {
    let steady = Duration::from_millis(millis);
    now(steady)
}

fn now(steady: Duration) -> Now {
    let wall = Duration::from_secs(EPOCH) + steady;
    Now {
        moment: Calendar::default().moment(wall.as_secs()),
        wall,
        steady,
    }
}

const MINUTE: Period = Period::Minute;

fn limit(requests: u64) -> [Allowance; 1] {
    [Allowance {
        period: MINUTE,
        requests,
    }]
}

fn judge(tally: &mut Tally, limited: u64, millis: u64) -> Judged {
    tally.judge(&limit(limited), &at(millis), INTERVAL)
}

fn passes(judged: Judged) -> Option<(bool, u64)> {
    match judged {
        Judged::Known(Verdict { passes, before }) => Some((passes, before[0])),
        Judged::Unknown => None,
    }
}

/// Asks a Redis whose counter is then at this number.
fn hear(tally: &mut Tally, total: u64, taken: bool, millis: u64) {
    let reports = tally.report(&limit(1), &at(millis));
    tally.end(reports[0], total, taken, at(millis).steady, INTERVAL);
}

fn unreported(tally: &mut Tally) -> u64 {
    let reports = tally.report_all();
    let sum = reports.iter().map(|report| report.requests).sum();
    reports.into_iter().for_each(|report| tally.fail(report));
    sum
}

#[test]
fn a_client_that_was_not_asked_for_is_unknown() {
    let mut tally = Tally::default();
    assert_eq!(judge(&mut tally, 50, 0), Judged::Unknown);
    hear(&mut tally, 1, true, 1);
    assert_eq!(passes(judge(&mut tally, 50, 2)), Some((true, 1)));
    assert_eq!(passes(judge(&mut tally, 50, 3)), Some((true, 2)));
}

#[test]
fn an_answer_that_is_older_than_the_interval_is_not_used() {
    let mut tally = Tally::default();
    hear(&mut tally, 0, false, 0);
    assert!(passes(judge(&mut tally, 50, 100)).is_some());
    assert_eq!(judge(&mut tally, 50, 101), Judged::Unknown);
    // A report that is under way excuses one more interval, and not more.
    let _sent = tally.report_all();
    assert!(passes(judge(&mut tally, 50, 200)).is_some());
    assert_eq!(judge(&mut tally, 50, 201), Judged::Unknown);
}

#[test]
fn a_full_window_refuses_until_it_ends() {
    let mut tally = Tally::default();
    hear(&mut tally, 50, false, 59_900);
    assert_eq!(passes(judge(&mut tally, 50, 59_950)), Some((false, 50)));
    assert_eq!(unreported(&mut tally), 0);
    // The next window begins with nothing, and needs no question.
    assert_eq!(passes(judge(&mut tally, 50, 60_000)), Some((true, 0)));
}

#[test]
fn what_another_node_lets_through_is_estimated() {
    let mut tally = Tally::default();
    hear(&mut tally, 0, false, 0);
    // 100 requests of others in each interval.
    for step in 1..50 {
        hear(&mut tally, step * 100, false, step * 100);
    }
    let (passes, before) = passes(judge(&mut tally, 100_000, 4950)).unwrap();
    assert!(passes);
    // 4900 are known; half an interval has gone by, and the reports of others are half an interval old.
    assert!((4990..=5010).contains(&before), "{before}");
    // Near the limit, Redis must be asked.
    assert_eq!(judge(&mut tally, 5150, 4950), Judged::Unknown);
}

#[test]
fn requests_are_reported_once_and_again_only_after_a_failure() {
    let mut tally = Tally::default();
    hear(&mut tally, 0, false, 0);
    for _ in 0..3 {
        assert!(passes(judge(&mut tally, 50, 10)).unwrap().0);
    }
    let reports = tally.report_all();
    assert_eq!((reports[0].requests, unreported(&mut tally)), (3, 0));
    // They still count while they are under way.
    assert_eq!(passes(judge(&mut tally, 50, 11)), Some((true, 3)));
    tally.fail(reports[0]);
    assert_eq!(unreported(&mut tally), 4);
    let reports = tally.report_all();
    tally.end(reports[0], 4, false, at(20).steady, INTERVAL);
    assert_eq!(unreported(&mut tally), 0);
    assert!(!tally.has_unreported());
    assert_eq!(passes(judge(&mut tally, 50, 21)), Some((true, 4)));
}

#[test]
fn what_redis_has_lost_is_reported_again_but_no_more_than_was_reported() {
    let mut tally = Tally::default();
    hear(&mut tally, 40, false, 30000);
    for _ in 0..3 {
        judge(&mut tally, 100, 30010);
    }
    let reports = tally.report_all();
    tally.end(reports[0], 43, false, at(30020).steady, INTERVAL);
    // Another master knows nothing: the node has let 3 of the 43 through.
    hear(&mut tally, 0, false, 30030);
    assert_eq!(unreported(&mut tally), 3);
    let reports = tally.report_all();
    tally.end(reports[0], 3, false, at(30040).steady, INTERVAL);
    // The other nodes report theirs, which is no loss.
    hear(&mut tally, 43, false, 30050);
    assert_eq!(unreported(&mut tally), 0);
}

#[test]
fn answers_in_another_order_are_no_loss() {
    let mut tally = Tally::default();
    hear(&mut tally, 10, false, 30000);
    judge(&mut tally, 100, 30001);
    let first = tally.report(&limit(1), &at(30001))[0];
    judge(&mut tally, 100, 30002);
    let second = tally.report(&limit(1), &at(30002))[0];
    tally.end(second, 12, false, at(30003).steady, INTERVAL);
    tally.end(first, 11, false, at(30003).steady, INTERVAL);
    assert_eq!(unreported(&mut tally), 0);
    assert_eq!(passes(judge(&mut tally, 100, 30004)).unwrap().1, 12);
}

#[test]
fn a_report_of_an_older_window_changes_nothing_in_the_new_one() {
    let mut tally = Tally::default();
    hear(&mut tally, 0, false, 59_950);
    judge(&mut tally, 50, 59_960);
    let old = tally.report_all()[0];
    assert_eq!(passes(judge(&mut tally, 50, 60_000)), Some((true, 0)));
    tally.end(old, 9, false, at(60_001).steady, INTERVAL);
    assert_eq!(passes(judge(&mut tally, 50, 60_002)), Some((true, 1)));
    tally.fail(old);
    assert_eq!(unreported(&mut tally), 2);
}

#[test]
fn unreported_requests_of_windows_that_are_over_are_forgotten() {
    let mut tally = Tally::default();
    hear(&mut tally, 0, false, 0);
    judge(&mut tally, 50, 1);
    tally.drop_over(at(62_000).wall);
    assert!(tally.has_unreported());
    tally.drop_over(at(63_001).wall);
    assert!(!tally.has_unreported());
}

/// Ten nodes with one Redis. Times are in microseconds.
struct Simulation {
    nodes: Vec<Tally>,
    allowance: Allowance,
    interval: Duration,
    counters: HashMap<u64, u64>,
    passed: HashMap<u64, u64>,
    requests: u64,
    asked: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    random: Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request(usize),
    Push(usize),
    /// A report arrives at Redis: node, window, requests, number, and whether a request waits for it.
    Arrives(usize, u64, u64, u32, bool),
    /// The answer arrives at the node, with the count; for a waiting request, whether it passes.
    Answer(usize, u64, u64, u32, u64, Option<bool>),
}

const NODES: usize = 10;
/// Half a round trip.
const WAY: u64 = 300;

impl Simulation {
    fn new(period: Period, requests: u64, interval: Duration, seed: u64) -> Self {
        Self {
            nodes: (0..NODES).map(|_| Tally::default()).collect(),
            allowance: Allowance { period, requests },
            interval,
            counters: HashMap::new(),
            passed: HashMap::new(),
            requests: 0,
            asked: 0,
            events: BinaryHeap::new(),
            number: 0,
            random: Random::new(seed),
        }
    }

    fn put(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((time, self.number, event)));
    }

    /// Waits of a Poisson process with this number of requests per second on each node.
    fn next_request(&mut self, time: u64, rate: f64) -> u64 {
        let uniform = self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64;
        time + (-(1.0 - uniform).ln() / rate * 1e6) as u64 + 1
    }

    /// Runs for a time with a load, and returns the highest number of requests that passed in one window.
    fn run(&mut self, seconds: u64, load: f64) -> u64 {
        let per_second = self.allowance.requests as f64 / self.allowance.period.seconds() as f64;
        let rate = per_second * load / NODES as f64;
        let pause = self.interval.mul_f64(0.8).as_micros() as u64;
        for node in 0..NODES {
            let first = self.next_request(0, rate);
            self.put(first, Event::Request(node));
            let phase = self.random.below(pause);
            self.put(phase, Event::Push(node));
        }
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            if time > seconds * 1_000_000 {
                break;
            }
            let now = now(Duration::from_micros(time));
            match event {
                Event::Request(node) => {
                    let next = self.next_request(time, rate);
                    self.put(next, Event::Request(node));
                    self.request(node, time, &now);
                }
                Event::Push(node) => {
                    self.put(time + pause, Event::Push(node));
                    self.nodes[node].drop_over(now.wall);
                    for report in self.nodes[node].report_all() {
                        self.send(node, time, report, false);
                    }
                }
                Event::Arrives(node, begin, requests, number, waits) => {
                    let counter = self.counters.entry(begin).or_default();
                    *counter += requests;
                    let passes = waits.then_some(*counter < self.allowance.requests);
                    *counter += u64::from(passes == Some(true));
                    let answer = Event::Answer(node, begin, requests, number, *counter, passes);
                    self.put(time + WAY, answer);
                }
                Event::Answer(node, begin, requests, number, total, passes) => {
                    let report = Report {
                        period: self.allowance.period,
                        begin,
                        requests,
                        number,
                    };
                    let taken = passes == Some(true);
                    self.nodes[node].end(report, total, taken, now.steady, self.interval);
                    *self.passed.entry(begin).or_default() += u64::from(taken);
                }
            }
        }
        self.passed.values().copied().max().unwrap_or_default()
    }

    fn request(&mut self, node: usize, time: u64, now: &Now) {
        self.requests += 1;
        let allowances = [self.allowance];
        match self.nodes[node].judge(&allowances, now, self.interval) {
            Judged::Known(verdict) => {
                let begin = now.moment.window(self.allowance.period);
                *self.passed.entry(begin).or_default() += u64::from(verdict.passes);
            }
            Judged::Unknown => {
                self.asked += 1;
                let report = self.nodes[node].report(&allowances, now)[0];
                self.send(node, time, report, true);
            }
        }
    }

    fn send(&mut self, node: usize, time: u64, report: Report, waits: bool) {
        let Report {
            begin,
            requests,
            number,
            ..
        } = report;
        let arrives = Event::Arrives(node, begin, requests, number, waits);
        self.put(time + WAY, arrives);
    }
}

/// The limits that are simulated, with the seconds of the simulation.
const LIMITS: [(Period, u64, u64); 5] = [
    (Period::Second, 10, 20),
    (Period::Second, 100, 10),
    (Period::Second, 1000, 5),
    (Period::Minute, 10_000, 60),
    (Period::Minute, 100_000, 60),
];

fn check_overshoot(millis: u64, share: f64) {
    for (period, requests, seconds) in LIMITS {
        for load in [1.0, 3.0, 10.0] {
            // More requests say more about chance.
            let seeds = if requests < 10_000 { 3 } else { 1 };
            for seed in 0..seeds {
                let interval = Duration::from_millis(millis);
                let mut simulation = Simulation::new(period, requests, interval, seed);
                // With more load, a limit is reached earlier.
                let seconds = (seconds as f64 / load).ceil() as u64 + 2;
                let most = simulation.run(seconds, load);
                let over = most.saturating_sub(requests);
                let allowed = ((requests as f64 * share) as u64).max(1);
                let share = simulation.asked as f64 / simulation.requests as f64;
                println!(
                    "{millis} ms, {requests} per {}, load {load}: {over} too many, {:.2} % asked Redis",
                    period.name(),
                    share * 100.0
                );
                assert!(
                    over <= allowed,
                    "{period:?} {requests} load {load} seed {seed}: {over}"
                );
                if load > 1.5 {
                    assert!(
                        most >= requests,
                        "{period:?} {requests} load {load}: only {most} passed"
                    );
                }
            }
        }
    }
}

#[test]
fn ten_nodes_that_report_every_50_ms_let_at_most_2_percent_too_many_through() {
    check_overshoot(50, 0.02);
}

#[test]
fn ten_nodes_that_report_every_10_ms_let_at_most_half_a_percent_too_many_through() {
    check_overshoot(10, 0.005);
}
