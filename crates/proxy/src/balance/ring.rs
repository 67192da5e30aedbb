//! Consistent hashing. The ring has `slots` slots, and each slot belongs to one target. Weighted rendezvous hashing
//! chooses that target by a score that depends only on the slot, the target's address and its weight. This has three
//! consequences:
//!
//! - Every node has the same ring, in whatever order the targets were created.
//! - When a target is removed, only its own slots move.
//! - A new target takes only its share of the slots.
//!
//! A lookup costs a multiplication and an array access.

use super::mix::mix;
use twox_hash::XxHash64;

#[derive(Debug)]
pub(super) struct Ring {
    /// The index of the target that owns each slot.
    owners: Box<[u32]>,
}

/// Minimum number of slots, as in Kong (kong/runloop/balancer/consistent_hashing.lua).
const FEWEST_SLOTS: u32 = 1000;

/// Returns the hash of a request's property or of a target's address.
pub(super) fn hash(value: &[u8]) -> u64 {
    XxHash64::oneshot(0, value)
}

impl Ring {
    /// Builds the ring. `peers` holds the hash of each target's address, and its weight. A target of weight 0 owns no
    /// slot.
    pub(super) fn new(slots: u32, peers: &[(u64, u32)]) -> Self {
        // Targets of equal weight are compared by their hashes alone. The score is calculated only for the best of each
        // weight.
        let mut by_weight: Vec<(u32, u64, u32)> = (0..)
            .zip(peers)
            .filter(|(_, (_, weight))| *weight > 0)
            .map(|(number, (hash, weight))| (*weight, *hash, number))
            .collect();
        by_weight.sort_unstable();
        let classes: Vec<&[(u32, u64, u32)]> =
            by_weight.chunk_by(|one, two| one.0 == two.0).collect();
        let slots = if classes.is_empty() {
            0
        } else {
            slots.max(FEWEST_SLOTS)
        };
        let owners = (0..slots).map(|slot| owner(hash(&slot.to_le_bytes()), &classes));
        Self {
            owners: owners.collect(),
        }
    }

    /// Returns the target that owns the key's slot. If it is not usable, tries the slots below, and wraps around.
    pub(super) fn pick(&self, key: u64, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let slots = self.owners.len();
        let start = ((u128::from(key) * slots as u128) >> 64) as usize;
        let (from, before) = (self.owners.get(..=start)?, &self.owners[start + 1..]);
        let mut seen = None;
        let mut down = from.iter().rev().chain(before.iter().rev());
        let found = down.find(|peer| {
            // Neighbouring slots often have the same owner, which need not be checked again.
            let again = seen.replace(**peer) == Some(**peer);
            !again && usable(**peer as usize)
        });
        found.map(|peer| *peer as usize)
    }
}

/// Returns the target with the lowest -ln(u) / weight, where u in (0, 1] is derived from the hashes of slot and target.
fn owner(slot: u64, classes: &[&[(u32, u64, u32)]]) -> u32 {
    let best = classes.iter().filter_map(|class| {
        let best = class
            .iter()
            .map(|(_, hash, number)| (mix(slot ^ hash), *number));
        let (draw, number) = best.max()?;
        let share = (draw as f64 + 1.0) / 2_f64.powi(64);
        let weight = class.first().map_or(0, |(weight, ..)| *weight);
        Some((-share.ln() / f64::from(weight), number))
    });
    best.min_by(|one, two| one.0.total_cmp(&two.0))
        .map_or(0, |(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32, weight: u32) -> (u64, u32) {
        (hash(format!("10.0.0.{number}:80").as_bytes()), weight)
    }

    fn peers(number: u32) -> Vec<(u64, u32)> {
        (0..number).map(|number| peer(number, 100)).collect()
    }

    fn keys() -> impl Iterator<Item = u64> {
        (0..20_000_u32).map(|number| hash(&number.to_le_bytes()))
    }

    /// Returns the hash of the target of each key.
    fn places(ring: &Ring, peers: &[(u64, u32)]) -> Vec<u64> {
        keys()
            .map(|key| peers[ring.pick(key, |_| true).unwrap()].0)
            .collect()
    }

    fn shares(ring: &Ring, peers: usize) -> Vec<f64> {
        let mut counts = vec![0.0; peers];
        keys().for_each(|key| counts[ring.pick(key, |_| true).unwrap()] += 1.0);
        counts.iter().map(|count| count / 20_000.0).collect()
    }

    #[test]
    fn keys_are_spread_evenly() {
        for number in [2, 3, 10] {
            let shares = shares(&Ring::new(10_000, &peers(number)), number as usize);
            let fair = 1.0 / f64::from(number);
            assert!(
                shares.iter().all(|share| (share / fair - 1.0).abs() < 0.15),
                "{shares:?}"
            );
        }
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let peers = [peer(1, 100), peer(2, 300), peer(3, 0), peer(4, 600)];
        let shares = shares(&Ring::new(10_000, &peers), 4);
        for (share, fair) in shares.iter().zip([0.1, 0.3, 0.0, 0.6]) {
            assert!((share - fair).abs() < 0.02, "{shares:?}");
        }
    }

    #[test]
    fn the_order_of_peers_changes_nothing() {
        let peers = peers(10);
        let mut turned = peers.clone();
        turned.reverse();
        let (one, two) = (Ring::new(1000, &peers), Ring::new(1000, &turned));
        assert_eq!(places(&one, &peers), places(&two, &turned));
    }

    #[test]
    fn the_ring_is_the_same_on_every_node_and_in_every_version() {
        let ring = Ring::new(1000, &peers(5));
        let picked: Vec<_> = (0..16_u32)
            .map(|number| ring.pick(hash(&number.to_le_bytes()), |_| true).unwrap())
            .collect();
        assert_eq!(picked, EXPECTED);
    }

    /// Recorded once. If these values change, an upgrade of the gateway sends clients to other servers.
    const EXPECTED: [usize; 16] = [4, 2, 0, 4, 2, 3, 3, 2, 2, 2, 4, 0, 4, 2, 0, 1];

    #[test]
    fn a_peer_that_goes_moves_only_its_own_keys() {
        let before = peers(10);
        let mut after = before.clone();
        let gone = after.remove(3).0;
        let was = places(&Ring::new(10_000, &before), &before);
        let is = places(&Ring::new(10_000, &after), &after);
        for (was, is) in was.iter().zip(&is) {
            assert!(was == is || *was == gone);
        }
        assert!(is.iter().all(|peer| *peer != gone));
    }

    #[test]
    fn a_peer_that_changes_its_weight_moves_only_what_it_wins_or_loses() {
        let before = [peer(1, 100), peer(2, 100), peer(3, 100)];
        let after = [peer(1, 100), peer(2, 100), peer(3, 50)];
        let was = places(&Ring::new(10_000, &before), &before);
        let is = places(&Ring::new(10_000, &after), &after);
        let lost = was.iter().zip(&is).filter(|(was, is)| was != is);
        let lost: Vec<_> = lost.collect();
        assert!(lost.iter().all(|(was, _)| **was == before[2].0));
        let share = lost.len() as f64 / was.len() as f64;
        assert!((share - (1.0 / 3.0 - 1.0 / 5.0)).abs() < 0.03, "{share}");
    }

    #[test]
    fn keys_of_an_unusable_peer_are_spread_over_the_others_and_no_other_moves() {
        let peers = peers(10);
        let ring = Ring::new(10_000, &peers);
        let mut taken = [0; 10];
        for key in keys() {
            let usual = ring.pick(key, |_| true).unwrap();
            let now = ring.pick(key, |peer| peer != 3).unwrap();
            match usual {
                3 => taken[now] += 1,
                _ => assert_eq!(usual, now),
            }
        }
        assert_eq!(taken[3], 0);
        assert!(
            taken
                .iter()
                .enumerate()
                .all(|(peer, number)| peer == 3 || *number > 50),
            "{taken:?}"
        );
    }

    #[test]
    fn no_usable_peer_is_no_pick() {
        assert_eq!(Ring::new(1000, &[]).pick(1, |_| true), None);
        assert_eq!(Ring::new(1000, &[peer(1, 0)]).pick(1, |_| true), None);
        let ring = Ring::new(1000, &peers(2));
        assert_eq!(ring.pick(u64::MAX, |_| false), None);
    }
}
