//! Metrics that show operators the cost of changes: how much of each part of a snapshot was built, and how long that
//! took. Parts that are reused from the previous snapshot do not count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number and total duration of recurring operations. Only one thread records; any thread may read.
#[derive(Debug, Default)]
pub struct Summary {
    nanoseconds: AtomicU64,
    count: AtomicU64,
}

impl Summary {
    pub fn record(&self, duration: Duration) {
        // 64 bits hold 500 years.
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// The parts of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Certificates shown to clients, and the server names that select them.
    Certificates,
    Services,
    /// Load balancers of upstreams.
    Balancers,
    /// Configured plugins: their instances and scopes.
    Plugins,
    /// Plugin chains of routes, and the one for requests without a route.
    Plans,
    /// HTTP routes that were added to the router or removed from it.
    Router,
    /// Stream routes.
    Streams,
}

impl Part {
    pub const ALL: [Part; 7] = [
        Self::Certificates,
        Self::Services,
        Self::Balancers,
        Self::Plugins,
        Self::Plans,
        Self::Router,
        Self::Streams,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Certificates => "certificates",
            Self::Services => "services",
            Self::Balancers => "balancers",
            Self::Plugins => "plugins",
            Self::Plans => "plans",
            Self::Router => "router",
            Self::Streams => "streams",
        }
    }
}

/// Totals over all snapshots built under the same settings, including refused ones.
#[derive(Debug, Default)]
pub struct Rebuilds {
    times: [Summary; Part::ALL.len()],
    made: [AtomicU64; Part::ALL.len()],
}

impl Rebuilds {
    /// Number of builds of a part, and their total duration.
    pub fn of(&self, part: Part) -> &Summary {
        &self.times[part as usize]
    }

    /// Total number of services, plugin chains and so on that were built.
    pub fn made(&self, part: Part) -> u64 {
        self.made[part as usize].load(Ordering::Relaxed)
    }

    /// Runs `make`, which returns how many items of a part it built. The run is recorded if that is at least one.
    pub(super) fn time(&self, part: Part, make: impl FnOnce() -> usize) {
        let started = Instant::now();
        let made = make();
        if made > 0 {
            self.of(part).record(started.elapsed());
            self.made[part as usize].fetch_add(made as u64, Ordering::Relaxed);
        }
    }
}
