//! Least connections: picks the target with the lowest (connections + 1) / weight.
//! Source: kong/runloop/balancer/least_connections.lua.

/// Maximum number of targets compared per pick, unless none of them is usable. If an upstream has more targets, each
/// pick compares consecutive ones and starts at the next index. The best of them is nearly as good as the best of all,
/// and the cost of a pick stays limited.
const LOOKED_AT: usize = 512;

/// Returns the index of the best target. `score` returns the connections and weight of a usable target. The search
/// starts at the index `turn` (modulo the number of targets), and the first of several equally good targets wins. Idle
/// targets thus take turns.
pub(super) fn pick(
    peers: usize,
    turn: u64,
    score: impl Fn(usize) -> Option<(u32, u32)>,
) -> Option<usize> {
    let start = usize::try_from(turn.checked_rem(peers as u64)?).unwrap_or(0);
    let in_turn = (start..peers).chain(0..start);
    let mut best: Option<(usize, (u32, u32))> = None;
    for (looked, peer) in in_turn.enumerate() {
        if looked >= LOOKED_AT && best.is_some() {
            break;
        }
        if let Some(score) = score(peer)
            && best.is_none_or(|(_, best)| is_less(score, best))
        {
            best = Some((peer, score));
        }
    }
    best.map(|(peer, _)| peer)
}

fn is_less(one: (u32, u32), two: (u32, u32)) -> bool {
    let crossed = |one: (u32, u32), two: (u32, u32)| (u64::from(one.0) + 1) * u64::from(two.1);
    crossed(one, two) < crossed(two, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Picks `number` times without ending a connection, and returns the connections of each target.
    fn fill(weights: &[u32], number: u64) -> Vec<u32> {
        let mut connections = vec![0; weights.len()];
        for turn in 0..number {
            let score = |peer: usize| Some((connections[peer], weights[peer]));
            let peer = pick(weights.len(), turn, score).unwrap();
            connections[peer] += 1;
        }
        connections
    }

    #[test]
    fn connections_come_to_be_as_the_weights() {
        assert_eq!(fill(&[100, 100, 100], 30), [10, 10, 10]);
        assert_eq!(fill(&[100, 200, 300], 60), [10, 20, 30]);
        assert_eq!(fill(&[65_535, 1], 1000), [1000, 0]);
    }

    #[test]
    fn the_least_busy_one_is_picked_whoever_has_the_turn() {
        let connections = [5, 0, 5, 5];
        for turn in 0..8 {
            assert_eq!(pick(4, turn, |peer| Some((connections[peer], 1))), Some(1));
        }
    }

    #[test]
    fn idle_peers_take_turns() {
        let picked: Vec<_> = (0..4).map(|turn| pick(3, turn, |_| Some((0, 1)))).collect();
        assert_eq!(picked, [Some(0), Some(1), Some(2), Some(0)]);
    }

    #[test]
    fn peers_that_cannot_be_used_are_left_out() {
        assert_eq!(pick(3, 0, |peer| (peer == 2).then_some((9, 1))), Some(2));
        assert_eq!(pick(3, 0, |_| None), None);
        assert_eq!(pick(0, 0, |_| Some((0, 1))), None);
    }

    #[test]
    fn a_pick_among_ten_thousand_compares_few_unless_none_of_them_is_usable() {
        let looked = std::cell::Cell::new(0);
        let count = |usable: bool| {
            looked.set(looked.get() + 1);
            usable.then_some((0, 1))
        };
        assert_eq!(pick(10_000, 77, |_| count(true)), Some(77));
        assert!(looked.get() <= LOOKED_AT);
        assert_eq!(pick(10_000, 77, |peer| count(peer == 76)), Some(76));
    }
}
