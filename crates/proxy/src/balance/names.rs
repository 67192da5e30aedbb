//! Keeps the peers of all upstreams what the names of their targets resolve to. Requests find the new peers as they find
//! everything else, and pay nothing for the change.

use crate::snapshot::Live;
use net::dns::Resolver;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Changes within this time are taken over together.
const TOGETHER: Duration = Duration::from_millis(5);
/// How often answers of TTL 0 are renewed.
const RENEWAL: Duration = Duration::from_secs(1);

/// Runs until it is dropped; needs a runtime with timers, better one that serves no requests.
pub async fn follow(live: Live, resolver: Resolver) {
    let (mut swaps, mut changes) = (live.swaps(), resolver.changes());
    let mut renewal = interval(RENEWAL);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let changed = tokio::select! {
            // A snapshot may have been built just before a change.
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
