//! How much of each part of a snapshot was made, and how long that took: what an operator sees of the price of changes. What
//! a snapshot takes over from the one before does not count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number and total duration of something that happens now and then. Only one thread records, any may read.
#[derive(Debug, Default)]
pub struct Summary {
    nanoseconds: AtomicU64,
    count: AtomicU64,
}

impl Summary {
    pub fn record(&self, duration: Duration) {
        // Enough for 500 years.
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

/// What a snapshot is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Certificates for clients, and names that they are for.
    Certificates,
    Services,
    /// Of upstreams.
    Balancers,
    /// Configured plugins: their instances, and what each is for.
    Plugins,
    /// The plans of routes, and the one of requests that have none.
    Plans,
    /// Routes of HTTP, put into the router or taken out of it.
    Router,
    /// Routes of streams.
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

/// Of all snapshots that were built under the same settings, refused ones included.
#[derive(Debug, Default)]
pub struct Rebuilds {
    times: [Summary; Part::ALL.len()],
    made: [AtomicU64; Part::ALL.len()],
}

impl Rebuilds {
    /// How often something of a part was made, and how long that took.
    pub fn of(&self, part: Part) -> &Summary {
        &self.times[part as usize]
    }

    /// How many services, plans and so on were made in all.
    pub fn made(&self, part: Part) -> u64 {
        self.made[part as usize].load(Ordering::Relaxed)
    }

    /// Makes something of a part, or nothing; `make` tells how much.
    pub(super) fn time(&self, part: Part, make: impl FnOnce() -> usize) {
        let started = Instant::now();
        let made = make();
        if made > 0 {
            self.of(part).record(started.elapsed());
            self.made[part as usize].fetch_add(made as u64, Ordering::Relaxed);
        }
    }
}
