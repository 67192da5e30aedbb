//! What `script.lua` does, in Rust, with the time as an argument: the simulation runs it, and the tests of the script
//! compare both.

use super::super::super::window::{Calendar, Period};
use super::super::message::{Answer, Ask, Digest, Others, Reply};
use std::collections::BTreeMap;

const SKEW: u64 = 2;

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) run: String,
    pub(super) lease: u64,
    epoch: Option<(String, u64)>,
    last: u64,
    /// When a node was seen last, and the epoch to which it had reported all.
    nodes: BTreeMap<String, (u64, String)>,
    counters: BTreeMap<(Digest, Period), Counter>,
}

#[derive(Debug, Clone, Default)]
struct Counter {
    begin: u64,
    records: BTreeMap<(String, u64), Record>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Record {
    sequence: u64,
    granted: u64,
    used: u64,
    demand: u64,
    seen: u64,
}

/// Returns the beginning and the end of the window of a time, in seconds.
pub(super) fn window(period: Period, at: u64) -> (u64, u64) {
    let begin = |at: u64| Calendar::default().moment(at).window(period) * period.unit();
    let own = begin(at);
    (own, begin(own + period.longest()))
}

impl Model {
    pub(super) fn new(run: &str, lease: u64) -> Self {
        Self {
            run: run.to_owned(),
            lease,
            epoch: None,
            last: 0,
            nodes: BTreeMap::new(),
            counters: BTreeMap::new(),
        }
    }

    /// Makes the epoch older by this number of milliseconds.
    pub(super) fn age(&mut self, by: u64) {
        if let Some((epoch, since)) = &mut self.epoch {
            *since -= by;
            *epoch = format!("{}:{since}", self.run);
        }
    }

    /// The permits that are granted in a window of a counter.
    pub(super) fn granted(&self, digest: Digest, period: Period, begin: u64) -> u64 {
        let counter = self.counters.get(&(digest, period));
        let counter = counter.filter(|counter| counter.begin == begin);
        let records = counter.iter().flat_map(|counter| counter.records.values());
        records.map(|record| record.granted).sum()
    }

    pub(super) fn call(
        &mut self,
        node: &str,
        reported: Option<&str>,
        asks: &[Ask],
        time: u64,
    ) -> Reply {
        let now = time / 1000;
        let newest = self.nodes.values().map(|(seen, _)| *seen).max();
        let (epoch, since) = match self.epoch.take() {
            Some((epoch, since)) if epoch.starts_with(&format!("{}:", self.run)) => (epoch, since),
            _ => {
                self.last = newest.unwrap_or(0);
                (format!("{}:{now}", self.run), now)
            }
        };
        self.epoch = Some((epoch.clone(), since));
        let told = match reported {
            Some("*") => epoch.clone(),
            Some(known) if known == epoch => epoch.clone(),
            _ => "-".to_owned(),
        };
        self.nodes.insert(node.to_owned(), (now, told));
        let is_live = |seen: u64| seen + 4 * self.lease > now;
        let live = self.nodes.values().filter(|node| is_live(node.0)).count() as u64;
        let missing = self
            .nodes
            .values()
            .any(|(seen, told)| seen + 2 * self.lease >= self.last && *told != epoch);
        if now > since + 4 * self.lease {
            self.nodes.retain(|_, (seen, _)| *seen + 60_000 >= now);
        }
        let frozen = now < since + self.lease || (missing && now < since + 4 * self.lease);
        let answers = asks
            .iter()
            .map(|ask| Some(self.apply(node, ask, now, frozen, live)))
            .collect();
        Reply {
            time,
            epoch,
            frozen,
            nodes: live,
            answers,
        }
    }

    fn apply(&mut self, node: &str, ask: &Ask, now: u64, frozen: bool, live: u64) -> Answer {
        let seconds = now / 1000;
        let (mut begin, mut end) = window(ask.period, seconds);
        let lease = self.lease;
        let key = (ask.digest, ask.period);
        let stored = self.counters.get(&key).map(|counter| counter.begin);
        let stored = stored.filter(|stored| (window(ask.period, *stored).1 + SKEW) * 1000 > now);
        if let Some(stored) = stored
            && stored > begin
            && stored <= seconds + SKEW
        {
            (begin, end) = window(ask.period, stored);
        }
        if ask.window.is_some_and(|wanted| wanted != begin) {
            return Answer {
                begin,
                end,
                sequence: None,
                granted: 0,
                left: 0,
                others: Others::Unused,
            };
        }
        let counter = self.counters.entry(key).or_default();
        if stored != Some(begin) {
            *counter = Counter::default();
            counter.begin = begin;
        }
        let name = (node.to_owned(), ask.record);
        let others = counter.records.iter().filter(|(other, _)| **other != name);
        let others: Vec<Record> = others.map(|(_, record)| *record).collect();
        let total: u64 = others.iter().map(|record| record.granted).sum();
        let heard = others.iter().filter(|record| record.seen + 4 * lease > now);
        let heard: Vec<&Record> = heard.collect();
        let rest = |record: &&Record| record.granted - record.used;
        let unused: u64 = heard.iter().map(rest).sum();
        let spare: u64 = heard
            .iter()
            .map(|record| rest(record).saturating_sub(1))
            .sum();
        let demand: u64 = heard.iter().map(|record| record.demand).sum();
        let own = counter.records.entry(name).or_default();
        if ask.sequence > own.sequence {
            let mut granted = ask.keep.min(own.granted.max(ask.used));
            let left = ask.limit.saturating_sub(total + granted);
            if !frozen && left > 0 {
                let now_used = ask.waiting.min(left);
                let left = left - now_used;
                let pool = (ask.limit / 50).saturating_sub(live);
                let share = (pool * ask.ahead)
                    .checked_div(ask.ahead + demand)
                    .unwrap_or(0);
                let most = 1 + share.min(pool.saturating_sub(spare));
                let kept = granted.saturating_sub(ask.used + ask.waiting);
                let slice = ask.ahead.min(left).min((left / (2 * live)).max(1));
                granted += now_used + slice.min(most.saturating_sub(kept));
            }
            *own = Record {
                sequence: ask.sequence,
                granted,
                used: granted.min(ask.used + ask.waiting),
                demand: ask.ahead,
                seen: now,
            };
        } else if own.sequence == 0 {
            unreachable!("sequences begin with 1");
        }
        let given = total + own.granted;
        Answer {
            begin,
            end,
            sequence: Some(own.sequence),
            granted: own.granted,
            left: ask.limit.saturating_sub(given),
            others: match unused {
                _ if given > ask.limit => Others::TooMany,
                0 => Others::AllUsed,
                _ => Others::Unused,
            },
        }
    }
}
