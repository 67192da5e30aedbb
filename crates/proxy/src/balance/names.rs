//! Updates the peers of all upstreams when the DNS answers for the names of their targets change. Requests do not wait
//! for these updates.

use crate::snapshot::Live;
use net::dns::Resolver;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// DNS changes within this time are applied together.
const TOGETHER: Duration = Duration::from_millis(5);
/// Interval at which answers with TTL 0 are renewed.
const RENEWAL: Duration = Duration::from_secs(1);

/// Applies DNS changes until this future is dropped. It needs a runtime with timers, preferably one that serves no
/// requests.
pub async fn follow(live: Live, resolver: Resolver) {
    let (mut swaps, mut changes) = (live.swaps(), resolver.changes());
    let mut renewal = interval(RENEWAL);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let changed = tokio::select! {
            // An answer may have changed while the new snapshot was built, so its peers are refreshed too.
            swapped = swaps.changed() => swapped,
            changed = changes.changed() => {
                sleep(TOGETHER).await;
                changes.mark_unchanged();
                changed
            }
            _ = renewal.tick() => {
                live.load().upstreams().for_each(|upstream| upstream.renew());
                Ok(())
            }
        };
        if changed.is_err() {
            return;
        }
        live.load()
            .upstreams()
            .for_each(|upstream| upstream.refresh());
    }
}
