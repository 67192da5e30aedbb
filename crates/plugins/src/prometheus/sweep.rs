//! Removes the series of routes, services and consumers that were deleted or renamed, ten minutes later: Prometheus has
//! then scraped their last values.

use super::series::{Gone, Kong, RouteSeries, consumer_label, service_label};
use model::EntityKind;
use model::entities::Consumer;
use papaya::Guard;
use plugin::{EntityRef, Node};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long the series of a deleted entity are shown.
pub(super) const KEPT: Duration = Duration::from_secs(600);
/// Time between two searches.
const PERIOD: Duration = Duration::from_secs(60);
/// Number of look-ups after which other tasks of the thread get their turn.
const AT_ONCE: usize = 64;

/// The last changes that the search knows, of routes, services and consumers.
#[derive(Default, PartialEq, Eq, Clone, Copy)]
pub(super) struct Seen([Option<u64>; 3]);

/// Begins to search regularly, as long as the node lives. The task keeps the state of the plugin.
pub(super) fn start(kong: &Arc<Kong>, node: &Arc<Node>) {
    let (kong, weak): (Arc<Kong>, Weak<Node>) = (kong.clone(), Arc::downgrade(node));
    node.background.spawn_service(async move {
        let mut seen = Seen::default();
        loop {
            tokio::time::sleep(PERIOD).await;
            let Some(node) = weak.upgrade() else {
                return;
            };
            sweep(&kong, &node, &mut seen).await;
        }
    });
}

/// Searches once.
pub(super) async fn sweep(kong: &Kong, node: &Node, seen: &mut Seen) {
    let kinds = [
        EntityKind::Routes,
        EntityKind::Services,
        EntityKind::Consumers,
    ];
    let last = Seen(kinds.map(|kind| node.entities.last_change(kind)));
    // Without changes nothing was deleted. What is not known counts as a change.
    let changed = |at: &[usize]| {
        at.iter()
            .any(|at| last.0[*at].is_none() || last.0[*at] != seen.0[*at])
    };
    let (routes_changed, consumers_changed) = (changed(&[0, 1]), changed(&[2]));
    let now = node.clock.since_beginning();
    let all: Vec<Arc<RouteSeries>> = kong.routes().values().flatten().cloned().collect();
    let mut looked_up = 0;
    for series in &all {
        if routes_changed {
            series.gone.note(!is_current(series, node), now);
            pause(&mut looked_up).await;
        }
        series.former().retain(|former| {
            former.gone.note(true, now);
            !former.gone.is_over(now)
        });
    }
    kong.routes().retain(|_, series| {
        series.retain(|series| !series.gone.is_over(now));
        !series.is_empty()
    });
    drop(all);
    if consumers_changed {
        let consumers: Vec<_> = {
            let pinned = kong.consumers.pin();
            let all = pinned.iter();
            all.map(|((_, id), own)| (*id, own.clone())).collect()
        };
        for (id, own) in consumers {
            // A consumer that cannot be read is not known to be deleted.
            let found = node.entities.by_id::<Consumer>(id.0);
            let is_gone = found.is_ok_and(|found| {
                found.is_none_or(|found| *consumer_label(&found) != *own.counted.consumer)
            });
            own.gone.note(is_gone, now);
            pause(&mut looked_up).await;
        }
    }
    remove_consumers(kong, now);
    *seen = last;
    kong.families.remove_unheld();
}

/// Removes the series of consumers that are gone, or whose route's series are.
fn remove_consumers(kong: &Kong, now: Duration) {
    // Series of a route that are made from now on are kept, although they are not among these.
    let next = kong.next.load(Ordering::Relaxed);
    let routes: HashSet<u64> = {
        let routes = kong.routes();
        routes
            .values()
            .flatten()
            .map(|series| series.number)
            .collect()
    };
    let guard = kong.consumers.guard();
    let mut removed = false;
    kong.consumers.retain(
        |(route, _), own| {
            let keeps = !own.gone.is_over(now) && (*route >= next || routes.contains(route));
            removed |= !keeps;
            keeps
        },
        &guard,
    );
    if removed {
        // Otherwise the map keeps the values until it has removed many.
        guard.flush();
    }
}

/// Whether the route exists and has the labels of the series.
fn is_current(series: &RouteSeries, node: &Node) -> bool {
    // An entity that cannot be read is not known to be deleted.
    let Ok(route) = node.entities.object(EntityKind::Routes, series.route) else {
        return true;
    };
    let Some(route) = route else {
        return false;
    };
    let name = route.get("name").and_then(|name| name.as_str());
    let id = series.route;
    if *EntityRef::to_string(&EntityRef { id, name }) != *series.route_label {
        return false;
    }
    let Some(id) = series.service else {
        return true;
    };
    match node.entities.object(EntityKind::Services, id) {
        Err(_) => true,
        Ok(None) => false,
        Ok(Some(service)) => {
            let name = service.get("name").and_then(|name| name.as_str());
            service_label(node, EntityRef { id, name }) == *series.service_label
        }
    }
}

async fn pause(looked_up: &mut usize) {
    *looked_up += 1;
    if looked_up.is_multiple_of(AT_ONCE) {
        tokio::task::yield_now().await;
    }
}

impl Gone {
    fn note(&self, is_gone: bool, now: Duration) {
        match (is_gone, self.0.load(Ordering::Relaxed)) {
            (true, 0) => self.0.store(now.as_secs() + 1, Ordering::Relaxed),
            (true, _) => {}
            (false, _) => self.0.store(0, Ordering::Relaxed),
        }
    }

    fn is_over(&self, now: Duration) -> bool {
        let since = self.0.load(Ordering::Relaxed);
        since != 0 && now.as_secs() + 1 >= since + KEPT.as_secs()
    }
}
