//! Runs the active checks of all upstreams. Each probed upstream has two tasks, one for its healthy addresses and one
//! for the others. A change of the configuration starts, stops or updates tasks. It does not reset the timers of the
//! other tasks.

use crate::balance::{ProbePlace, Upstream};
use crate::snapshot::{Live, Snapshot};
use model::entities::{CheckType, UpstreamId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Minimum interval between probes. Shorter configured intervals are raised to it.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The kinds of probes that this node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subsystems {
    /// Only HTTP. Upstreams whose checks have the type `tcp` are not probed.
    Http,
    HttpAndStream,
}

/// Runs the probes until the future is dropped. It needs a runtime with timers, preferably one that serves no requests.
pub async fn run(live: Live, subsystems: Subsystems) {
    let mut swaps = live.swaps();
    let mut tasks = JoinSet::new();
    let mut checked: HashMap<UpstreamId, watch::Sender<Arc<Upstream>>> = HashMap::new();
    loop {
        swaps.mark_unchanged();
        reconcile(&live.load(), subsystems, &mut checked, &mut tasks);
        let ended = async {
            while tasks.join_next().await.is_some() {}
            std::future::pending::<()>().await;
        };
        tokio::select! {
            swapped = swaps.changed() => if swapped.is_err() { return },
            () = ended => {}
        }
    }
}

fn reconcile(
    snapshot: &Snapshot,
    subsystems: Subsystems,
    checked: &mut HashMap<UpstreamId, watch::Sender<Arc<Upstream>>>,
    tasks: &mut JoinSet<()>,
) {
    let is_probed = |upstream: &Upstream| {
        let checks = upstream.checks.as_ref().filter(|checks| checks.is_active());
        checks.is_some_and(|checks| {
            subsystems == Subsystems::HttpAndStream || checks.kind != CheckType::Tcp
        })
    };
    // A task ends when its sender is dropped.
    checked.retain(|id, _| snapshot.upstream(*id).is_some_and(|one| is_probed(one)));
    for upstream in snapshot.upstreams().filter(|upstream| is_probed(upstream)) {
        let known = checked.entry(upstream.id()).or_insert_with(|| {
            let sender = watch::Sender::new(upstream.clone());
            for among in [Among::Healthy, Among::Unhealthy] {
                tasks.spawn(among.check(sender.subscribe()));
            }
            sender
        });
        known.send_if_modified(|current| {
            let changed = !Arc::ptr_eq(current, upstream);
            *current = upstream.clone();
            changed
        });
    }
}

/// The addresses that a task probes.
#[derive(Debug, Clone, Copy)]
enum Among {
    Healthy,
    Unhealthy,
}

impl Among {
    fn interval(self, upstream: &Upstream) -> Option<Duration> {
        let checks = upstream.checks.as_ref()?;
        let interval = match self {
            Self::Healthy => checks.healthy_interval,
            Self::Unhealthy => checks.unhealthy_interval,
        };
        interval.map(|interval| interval.max(SHORTEST_INTERVAL))
    }

    /// Probes in rounds, the first after one interval, until the sender of the upstream is dropped.
    async fn check(self, mut upstream: watch::Receiver<Arc<Upstream>>) {
        let mut last = Instant::now();
        loop {
            let current = upstream.borrow_and_update().clone();
            let interval = self.interval(&current);
            let due = async {
                match interval.and_then(|interval| last.checked_add(interval)) {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {
                    last = Instant::now();
                    self.round(&current).await;
                }
                changed = upstream.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn round(self, upstream: &Arc<Upstream>) {
        let Some(checks) = &upstream.checks else {
            return;
        };
        let available = matches!(self, Self::Healthy);
        let mut running = JoinSet::new();
        for place in upstream.probe_places(available) {
            if running.len() >= checks.concurrency {
                running.join_next().await;
            }
            running.spawn(probe(upstream.clone(), place));
        }
        while running.join_next().await.is_some() {}
    }
}

async fn probe(upstream: Arc<Upstream>, place: ProbePlace) {
    if let Some(probing) = &upstream.settings.probing {
        let outcome = probing.run(place.address, &place.name).await;
        upstream.report_active(&place.peer, outcome);
    }
}
