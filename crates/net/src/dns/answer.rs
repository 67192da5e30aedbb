//! The addresses of a name, and which of them is used next.

use crate::turns::spreading_step;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name does not exist, or has no records of the queried types. Kong answers 503 with this text.
    #[error("name resolution failed")]
    NotFound,
    #[error("dns server error: {0} {1}")]
    Server(u16, &'static str),
    #[error("no answer from the name servers in time")]
    Timeout,
    #[error("the name servers cannot be reached")]
    Unreachable,
    #[error("no name server is configured")]
    NoServers,
    #[error("malformed answer from the name server")]
    Malformed,
    #[error("the name is an alias of too many others")]
    TooManyAliases,
    #[error("invalid name: {0}")]
    InvalidName(&'static str),
    #[error("the resolver has stopped")]
    Stopped,
}

/// One address of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub address: SocketAddr,
    /// Priority of the SRV record; only records with the lowest priority are used. 0 for plain addresses.
    pub priority: u16,
    /// Weight of the SRV record, where 0 counts as 1. Plain addresses have weight 1.
    pub weight: u16,
    /// Target name of the SRV record, without the final dot.
    pub srv: Option<Arc<str>>,
}

/// All addresses of a host, at least one. They are sorted, so that a different order of the same records in a response
/// is no change.
#[derive(Debug)]
pub struct DnsAnswer {
    pub records: Box<[Record]>,
    /// Grows whenever the records of the host change.
    pub number: u64,
    turns: Turns,
}

/// Order in which the records take turns.
#[derive(Debug)]
enum Turns {
    Even,
    Weighted {
        /// For each record, the sum of the weights up to and including its own.
        ends: Box<[u64]>,
        /// Distance between the points of two successive turns, on a circle as long as the sum of all weights. It is
        /// coprime to this sum, so that as many turns visit every point once. It is near the golden section of the sum,
        /// so that the turns of one record are spread out.
        step: u64,
    },
}

static NUMBER: AtomicU64 = AtomicU64::new(DnsAnswer::FIXED + 1);

impl DnsAnswer {
    /// The `number` of every answer that never changes, because the host is an address.
    pub(super) const FIXED: u64 = 1;

    /// Creates the answer for a host that is an address.
    pub(super) fn fixed(address: SocketAddr) -> Self {
        let record = Record {
            address,
            priority: 0,
            weight: 1,
            srv: None,
        };
        Self {
            records: [record].into(),
            number: Self::FIXED,
            turns: Turns::Even,
        }
    }

    /// Returns `None` if there are no records.
    pub(super) fn new(mut records: Vec<Record>) -> Option<Self> {
        records.sort();
        records.dedup();
        let first = records.first()?.weight;
        let turns = if records.iter().all(|record| record.weight == first) {
            Turns::Even
        } else {
            weighted(&records)
        };
        Some(Self {
            records: records.into(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            turns,
        })
    }

    /// Returns the record whose turn it is. If its address is in `avoid`, returns the next record whose address is not.
    /// If all addresses are in `avoid`, returns the record whose turn it is.
    #[inline]
    pub fn pick(&self, turn: usize, avoid: &[SocketAddr]) -> &Record {
        let start = self.position(turn);
        if avoid.is_empty() {
            return &self.records[start];
        }
        let (before, from) = self.records.split_at(start);
        let mut in_turn = from.iter().chain(before);
        in_turn
            .find(|record| !avoid.contains(&record.address))
            .unwrap_or(&self.records[start])
    }

    fn position(&self, turn: usize) -> usize {
        match &self.turns {
            Turns::Even => turn % self.records.len(),
            Turns::Weighted { ends, step } => {
                let total = ends.last().copied().unwrap_or(1);
                let point = (turn as u64 % total) * step % total;
                ends.partition_point(|end| *end <= point)
                    .min(self.records.len() - 1)
            }
        }
    }
}

fn weighted(records: &[Record]) -> Turns {
    let sums = records.iter().scan(0, |sum, record| {
        *sum += u64::from(record.weight);
        Some(*sum)
    });
    let ends: Box<[u64]> = sums.collect();
    let total = ends.last().copied().unwrap_or(1).max(1);
    let step = spreading_step(total);
    Turns::Weighted { ends, step }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(port: u16, weight: u16) -> Record {
        Record {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            priority: 0,
            weight,
            srv: None,
        }
    }

    fn counts(answer: &DnsAnswer, turns: usize) -> Vec<usize> {
        let mut counts = vec![0; answer.records.len()];
        for turn in 0..turns {
            let picked = answer.pick(turn, &[]).address;
            let at = answer.records.iter().position(|r| r.address == picked);
            counts[at.unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn even_records_take_turns_whatever_their_order() {
        let answer = DnsAnswer::new(vec![record(2, 1), record(1, 1), record(2, 1)]).unwrap();
        let ports: Vec<u16> = (0..4).map(|t| answer.pick(t, &[]).address.port()).collect();
        assert_eq!(ports, [1, 2, 1, 2]);
    }

    #[test]
    fn weighted_records_are_picked_by_their_share_and_not_in_a_row() {
        let answer = DnsAnswer::new(vec![record(1, 3), record(2, 1), record(3, 6)]).unwrap();
        assert_eq!(counts(&answer, 10), [3, 1, 6]);
        assert_eq!(counts(&answer, 1000), [300, 100, 600]);
        let ports: Vec<u16> = (0..10)
            .map(|t| answer.pick(t, &[]).address.port())
            .collect();
        assert!(!ports.windows(4).any(|run| run == [3; 4]), "{ports:?}");
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let records = (0..4096).map(|port| record(port, 65_535 - port)).collect();
        let answer = DnsAnswer::new(records).unwrap();
        for turn in [0, 1, usize::MAX / 2, usize::MAX] {
            answer.pick(turn, &[]);
        }
    }

    #[test]
    fn an_address_to_avoid_is_picked_only_when_all_are() {
        let answer = DnsAnswer::new(vec![record(1, 1), record(2, 1), record(3, 1)]).unwrap();
        let avoid = [record(1, 1).address, record(2, 1).address];
        for turn in 0..3 {
            assert_eq!(answer.pick(turn, &avoid).address.port(), 3);
        }
        let all: Vec<_> = answer.records.iter().map(|one| one.address).collect();
        assert_eq!(answer.pick(1, &all).address.port(), 2);
    }

    #[test]
    fn the_number_grows_with_each_answer() {
        let one = DnsAnswer::new(vec![record(1, 1)]).unwrap().number;
        assert!(DnsAnswer::new(vec![record(1, 1)]).unwrap().number > one);
    }

    #[test]
    fn an_answer_costs_as_much_as_it_has_records() {
        testkit::cost::assert_linear(
            2000,
            |size| {
                let ports = || (0..size as u16).rev();
                let even: Vec<_> = ports().map(|port| record(port, 1)).collect();
                let weighted: Vec<_> = ports().map(|port| record(port, 1 + port % 100)).collect();
                [even, weighted, vec![record(1, 1); size]]
            },
            |lists| {
                for records in lists {
                    drop(DnsAnswer::new(records));
                }
            },
        );
    }
}
