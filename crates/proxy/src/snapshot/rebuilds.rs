//! How often each part of a snapshot was made, and how long that took: what an operator sees of the price of changes. Parts
//! that a snapshot takes over from the one before do not count.

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
    Certificates,
    /// With the balancers of their upstreams.
    Services,
    /// The instances of plugins, and what each is for.
    Plugins,
    /// The plan of each route.
    Plans,
    Router,
}

impl Part {
    pub const ALL: [Part; 5] = [
        Self::Certificates,
        Self::Services,
        Self::Plugins,
        Self::Plans,
        Self::Router,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Certificates => "certificates",
            Self::Services => "services",
            Self::Plugins => "plugins",
            Self::Plans => "plans",
            Self::Router => "router",
        }
    }
}

/// Of all snapshots that were built under the same settings, refused ones included.
#[derive(Debug, Default)]
pub struct Rebuilds([Summary; Part::ALL.len()]);

impl Rebuilds {
    pub fn of(&self, part: Part) -> &Summary {
        &self.0[part as usize]
    }

    /// Makes a part.
    pub(super) fn time<T>(&self, part: Part, make: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let made = make();
        self.of(part).record(started.elapsed());
        made
    }
}
