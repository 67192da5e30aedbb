//! Measures the stages of changes, and returns metrics.

use admin::control::{Metric, Reading, Timed};
use net::dns::Resolver;
use proxy::snapshot::{Part, Rebuilds, Summary};
use std::time::Instant;

/// Stages of a change, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Parse and check a document, and compare it with the stored configuration.
    Validate,
    /// Write the differences into the store's transaction, and check indexes and references.
    Apply,
    /// Read the entities that the new snapshot is built from.
    Read,
    /// Build the snapshot.
    Compile,
    /// Commit the transaction and sync it to disk.
    Sync,
    /// Give the new snapshot to the workers.
    Swap,
}

impl Stage {
    pub(crate) const ALL: [Stage; 6] = [
        Self::Validate,
        Self::Apply,
        Self::Read,
        Self::Compile,
        Self::Sync,
        Self::Swap,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Apply => "apply",
            Self::Read => "read",
            Self::Compile => "compile",
            Self::Sync => "sync",
            Self::Swap => "swap",
        }
    }
}

/// Durations of the stages of all changes since the start. Proposals that are committed together count as one change.
/// A refused change counts in the stages that it completed, and in [`Stage::Compile`] if its snapshot could not be
/// built. A change without any effect has no stage after [`Stage::Apply`].
#[derive(Debug, Default)]
pub(crate) struct Stages([Summary; Stage::ALL.len()]);

impl Stages {
    pub(crate) fn start(&self) -> Clock<'_> {
        Clock {
            stages: self,
            since: Instant::now(),
        }
    }

    fn of(&self, stage: Stage) -> &Summary {
        &self.0[stage as usize]
    }
}

/// Measures the stages of one change.
pub(crate) struct Clock<'a> {
    stages: &'a Stages,
    since: Instant,
}

impl Clock<'_> {
    /// Records the end of a stage, and starts the next one.
    pub(crate) fn end(&mut self, stage: Stage) {
        let now = Instant::now();
        self.stages.of(stage).record(now - self.since);
        self.since = now;
    }
}

/// Returns the metrics of the resolver.
pub(crate) fn dns_metrics(resolver: &Resolver) -> [Metric; 2] {
    let totals = resolver.totals();
    let timed = |what, (count, sum)| Timed { what, sum, count };
    [
        Metric {
            name: "silverback_dns_names",
            help: "Names of hosts and targets that are kept resolved.",
            reading: Reading::Gauge(resolver.hosts().len() as u64),
        },
        Metric {
            name: "silverback_dns_question_seconds",
            help: "Time that questions to name servers took, by what came of them.",
            reading: Reading::Durations {
                label: "outcome",
                of: vec![
                    timed("answered", totals.answered),
                    timed("failed", totals.failed),
                    timed("not_found", totals.not_found),
                ],
            },
        },
    ]
}

/// Returns the metrics of changes, the revision and the resident memory.
pub(crate) fn metrics(
    stages: &Stages,
    rebuilds: &Rebuilds,
    revision: u64,
    resident: u64,
) -> Vec<Metric> {
    let timed = |what, summary: &Summary| Timed {
        what,
        sum: summary.sum(),
        count: summary.count(),
    };
    let changes = Stage::ALL.map(|stage| timed(stage.name(), stages.of(stage)));
    let parts = Part::ALL.map(|part| timed(part.name(), rebuilds.of(part)));
    vec![
        Metric {
            name: "process_resident_memory_bytes",
            help: "Resident memory size in bytes.",
            reading: Reading::Gauge(resident),
        },
        Metric {
            name: "silverback_change_seconds",
            help: "Time that changes of the configuration took, by stage.",
            reading: Reading::Durations {
                label: "stage",
                of: changes.to_vec(),
            },
        },
        Metric {
            name: "silverback_rebuild_seconds",
            help: "Time that parts of the compiled configuration took to build, when a change touched them.",
            reading: Reading::Durations {
                label: "part",
                of: parts.to_vec(),
            },
        },
        Metric {
            name: "silverback_rebuilt_total",
            help: "How many services, plans and so on were built, by part.",
            reading: Reading::Counters {
                label: "part",
                of: Part::ALL
                    .map(|part| (part.name(), rebuilds.made(part)))
                    .to_vec(),
            },
        },
        Metric {
            name: "silverback_revision",
            help: "The revision of the configuration that requests are served by.",
            reading: Reading::Gauge(revision),
        },
    ]
}
