//! How the plugin judges requests by leases, and what it does while Redis cannot be reached.

use super::counters::{Allowance, Identity, Verdict};
use super::leases::{Leased, Leases};
use super::remote::{Remote, Running};
use super::window::Moment;
use super::{RateLimiting, counters};
use plugin::{Flow, PluginError, RequestCx, Step};
use smallvec::SmallVec;

/// A request that is to be judged.
pub(super) struct Asked<'a, 'r> {
    pub(super) cx: RequestCx<'a, 'r>,
    pub(super) identity: Identity,
    pub(super) moment: Moment,
}

impl RateLimiting {
    /// Acts as the leases say. A request that must wait for Redis stops to do so when its client leaves.
    pub(super) fn by_lease<'a>(
        &'a self,
        mut asked: Asked<'a, '_>,
        remote: &'a Remote,
        running: &'a Running,
        leases: &'a Leases,
        leased: Leased<'a>,
    ) -> Result<Step<'a>, PluginError> {
        match leased {
            Leased::Known(verdict) => {
                let flow = self.conclude(&mut asked.cx, &verdict, &asked.moment);
                Ok(flow.into())
            }
            Leased::Unreachable => Ok(self
                .without_redis(&mut asked, remote, running, leases)?
                .into()),
            Leased::Waits(waiting) => Ok(Step::wait_for_client(async move {
                let judged = waiting.judge(&self.allowances, remote.timeout());
                match judged.await {
                    Some(verdict) => Ok(self.conclude(&mut asked.cx, &verdict, &asked.moment)),
                    None => self.without_redis(&mut asked, remote, running, leases),
                }
            })),
        }
    }

    fn without_redis(
        &self,
        asked: &mut Asked<'_, '_>,
        remote: &Remote,
        running: &Running,
        leases: &Leases,
    ) -> Result<Flow, PluginError> {
        if remote.counts_alone {
            let verdict = self.judge_alone(asked, leases.nodes());
            return Ok(self.conclude(&mut asked.cx, &verdict, &asked.moment));
        }
        running.note_fault(remote.is_tolerant());
        match remote.is_tolerant() {
            true => Ok(Flow::Continue),
            false => Err(PluginError::new(
                "a request cannot be counted: Redis cannot be reached",
            )),
        }
    }

    /// Judges a request by the counters of this node, as one of this number of nodes.
    fn judge_alone(&self, asked: &Asked<'_, '_>, nodes: u64) -> Verdict {
        let share = |allowance: &Allowance| Allowance {
            period: allowance.period,
            requests: (allowance.requests / nodes).max(1),
        };
        let shares: SmallVec<[Allowance; 2]> = self.allowances.iter().map(share).collect();
        let counters = self.counters.get_or_init(|| counters(asked.cx.node));
        let mut verdict = counters.judge(asked.identity, &shares, &asked.moment);
        let pairs = self.allowances.iter().zip(&shares);
        for (before, (whole, share)) in verdict.before.iter_mut().zip(pairs) {
            // What the other nodes may let through does not remain for this client's next request.
            *before = before.saturating_add(whole.requests.saturating_sub(share.requests));
        }
        verdict
    }
}
