//! Choosing among the targets of an upstream entity: weighted round robin. The other algorithms, health and several
//! addresses per name take its place with load balancing.

use crate::upstream::Target;
use std::sync::atomic::{AtomicU64, Ordering};

/// The targets of one upstream entity as one service uses them.
#[derive(Debug)]
pub struct Balancer {
    targets: Box<[Target]>,
    /// For each target, the sum of the weights up to and including its own.
    ends: Box<[u64]>,
    /// Coprime to the sum of all weights, so that a run of as many picks hits every point once.
    step: u64,
    picks: AtomicU64,
}

impl Balancer {
    /// Targets of weight 0 are never picked.
    pub fn new(targets: impl IntoIterator<Item = (Target, u32)>) -> Self {
        let (targets, weights): (Vec<_>, Vec<_>) = targets
            .into_iter()
            .filter(|(_, weight)| *weight > 0)
            .unzip();
        let ends: Box<[u64]> = weights
            .iter()
            .scan(0, |sum, weight| {
                *sum += u64::from(*weight);
                Some(*sum)
            })
            .collect();
        let total = ends.last().copied().unwrap_or(0);
        Self {
            targets: targets.into(),
            ends,
            step: spreading_step(total),
            picks: AtomicU64::new(0),
        }
    }

    pub fn pick(&self) -> Option<&Target> {
        let total = *self.ends.last()?;
        let turn = self.picks.fetch_add(1, Ordering::Relaxed) % total;
        let point = turn * self.step % total;
        let at = self.ends.partition_point(|end| *end <= point);
        self.targets.get(at)
    }
}

/// Near the golden section, so that picks of one target lie apart instead of in a row of its weight.
fn spreading_step(total: u64) -> u64 {
    let start = total * 618 / 1000;
    (start.max(1)..)
        .find(|step| greatest_common_divisor(*step, total.max(1)) == 1)
        .unwrap_or(1)
}

fn greatest_common_divisor(one: u64, two: u64) -> u64 {
    match two {
        0 => one,
        _ => greatest_common_divisor(two, one % two),
    }
}
