//! Weighted round robin. Each target owns points on a wheel. Their number is its weight, divided by the greatest common
//! divisor of all weights. Picks advance by a step of about the golden section of the wheel, so that picks of one
//! target are far apart. The step is coprime to the number of points, so that a whole turn visits each point once. The
//! points are not stored: a pick is a multiplication and a binary search in the sums of weights.

use net::turns::{greatest_common_divisor, spreading_step};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Wheel {
    /// For each target, the sum of the weights up to and including its own.
    ends: Box<[u64]>,
    /// Distance between two picks, coprime to the number of points.
    step: u64,
    /// Whether each target has exactly one point, so that the number of a point is the index of its target.
    even: bool,
}

/// Number of consecutive points with unusable targets after which all targets are searched instead.
const MISSES: usize = 64;

impl Wheel {
    /// Builds the wheel. Targets of weight 0 are never picked.
    pub(super) fn new(weights: impl Iterator<Item = u32> + Clone) -> Self {
        let common = weights.clone().fold(0, |common, weight| {
            greatest_common_divisor(common, u64::from(weight))
        });
        let ends: Box<[u64]> = weights
            .clone()
            .scan(0, |sum, weight| {
                *sum += u64::from(weight) / common.max(1);
                Some(*sum)
            })
            .collect();
        let points = ends.last().copied().unwrap_or(0);
        Self {
            even: (ends.iter().zip(1..)).all(|(end, number)| *end == number),
            step: spreading_step(points),
            ends,
        }
    }

    /// Returns the next usable target, or `None` if none is usable.
    pub(super) fn pick(&self, turns: &AtomicU64, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let points = self.ends.last().copied().filter(|points| *points > 0)?;
        for _ in 0..MISSES {
            let peer = self.at(turns.fetch_add(1, Ordering::Relaxed), points);
            if usable(peer) {
                return Some(peer);
            }
        }
        self.pick_among_few(turns.fetch_add(1, Ordering::Relaxed), usable)
    }

    fn at(&self, turn: u64, points: u64) -> usize {
        if self.even {
            return (turn % points) as usize;
        }
        let turn = turn % points;
        let point = match turn.checked_mul(self.step) {
            Some(product) => product % points,
            None => (u128::from(turn) * u128::from(self.step) % u128::from(points)) as u64,
        };
        self.ends.partition_point(|end| *end <= point)
    }

    /// Picks by weight among the usable targets only. Used when few targets are usable, because the wheel would need
    /// many steps to find one. Other threads may change what is usable at any time.
    #[cold]
    fn pick_among_few(&self, turn: u64, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let weight = |peer: usize| {
            let before = peer.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.ends[peer] - before
        };
        let peers = (0..self.ends.len()).filter(|peer| weight(*peer) > 0 && usable(*peer));
        let points = peers.clone().map(weight).sum();
        let mut point = turn.checked_rem(points)?;
        let mut last = None;
        for peer in peers {
            let weight = weight(peer);
            if point < weight {
                return Some(peer);
            }
            point -= weight;
            last = Some(peer);
        }
        // Reached only if the usable targets have lost weight since it was summed up.
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn picks(weights: &[u32], number: usize, usable: impl Fn(usize) -> bool) -> Vec<usize> {
        let wheel = Wheel::new(weights.iter().copied());
        let turns = AtomicU64::new(0);
        let picks = (0..number).map_while(|_| wheel.pick(&turns, &usable));
        picks.collect()
    }

    fn counts(picks: &[usize], peers: usize) -> Vec<usize> {
        let mut counts = vec![0; peers];
        picks.iter().for_each(|peer| counts[*peer] += 1);
        counts
    }

    #[test]
    fn a_turn_of_the_wheel_gives_each_peer_its_weight() {
        for weights in [
            &[1, 1, 1][..],
            &[5, 1, 1],
            &[3, 0, 7],
            &[0, 1, 2],
            &[2, 0, 1],
            &[0, 100],
            &[100, 200, 300],
            &[65_535, 1],
            &[1, 2, 3, 4, 5, 6, 7],
        ] {
            let common = weights
                .iter()
                .fold(0, |a, b| greatest_common_divisor(a, u64::from(*b)));
            let turn = weights
                .iter()
                .map(|weight| u64::from(*weight) / common)
                .sum::<u64>();
            let picked = counts(&picks(weights, turn as usize, |_| true), weights.len());
            let shares: Vec<usize> = weights
                .iter()
                .map(|weight| (u64::from(*weight) / common) as usize)
                .collect();
            assert_eq!(picked, shares, "{weights:?}");
        }
    }

    #[test]
    fn equal_weights_take_strict_turns() {
        assert_eq!(picks(&[100, 100, 100], 7, |_| true), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn picks_of_one_peer_lie_apart() {
        let picked = picks(&[300, 100, 100], 100, |_| true);
        let longest = picked.chunk_by(|a, b| a == b).map(<[_]>::len).max();
        assert!(longest <= Some(3), "{picked:?}");
        let of_light = picked.iter().enumerate().filter(|(_, peer)| **peer == 1);
        let at: Vec<usize> = of_light.map(|(at, _)| at).collect();
        assert!(at.windows(2).all(|two| two[1] - two[0] >= 3), "{at:?}");
    }

    #[test]
    fn peers_that_cannot_be_used_are_skipped_and_the_others_keep_their_shares() {
        let picked = counts(&picks(&[1, 2, 3], 500, |peer| peer != 1), 3);
        assert_eq!(picked, [125, 0, 375]);
    }

    #[test]
    fn one_usable_point_among_many_is_found() {
        let picked = picks(&[65_535, 1, 1], 100, |peer| peer != 0);
        let picked = counts(&picked, 3);
        assert_eq!(picked[0], 0);
        assert!(picked[1] >= 30 && picked[2] >= 30, "{picked:?}");
    }

    #[test]
    fn a_target_that_becomes_unusable_during_the_search_leaves_the_others() {
        let wheel = Wheel::new([1, 0, 1, 5].into_iter());
        for turn in 0..7 {
            let asked = Cell::new(0);
            // The first pass over the targets sums up their weights.
            let usable = |peer: usize| {
                asked.set(asked.get() + 1);
                asked.get() <= 3 || peer < 3
            };
            let picked = wheel.pick_among_few(turn, usable);
            assert!(matches!(picked, Some(0 | 2)), "turn {turn}: {picked:?}");
        }
    }

    #[test]
    fn no_usable_peer_is_no_pick() {
        assert!(picks(&[], 1, |_| true).is_empty());
        assert!(picks(&[0, 0], 1, |_| true).is_empty());
        assert!(picks(&[1, 1], 1, |_| false).is_empty());
        assert!(picks(&[0, 1, 2], 1, |peer| peer == 0).is_empty());
    }

    #[test]
    fn ten_thousand_heavy_peers_are_as_fine_as_two() {
        let weights: Vec<u32> = (0..10_000).map(|number| 65_535 - number % 7).collect();
        let picked = picks(&weights, 10_000, |_| true);
        let most = counts(&picked, weights.len()).into_iter().max();
        assert!(most <= Some(3), "{most:?}");
    }
}
