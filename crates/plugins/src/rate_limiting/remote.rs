//! The policy `redis`: where its counters are, and what happens if they cannot be reached.

use super::NAME;
use super::batched::{Batched, Stores};
use super::config::{Config, OnUnreachable};
use super::counters::{Allowance, Identifier, Identity, Verdict};
use super::direct::{self, CountError};
use super::leases::Leases;
use super::names::Names;
use super::window::Moment;
use plugin::{BuildError, Node};
use services::metrics::{Counter, NO_WORKER};
use services::redis::{Server, Settings};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uuid::Uuid;

/// The configuration of the policy.
pub(super) struct Remote {
    settings: Settings,
    /// Time between two exchanges. `None` if each request asks.
    interval: Option<Duration>,
    /// Whether nodes take slices of the limits ahead of use.
    uses_leases: bool,
    /// Whether the node counts alone while Redis cannot be reached.
    pub(super) counts_alone: bool,
    /// Whether requests pass that cannot be counted.
    is_tolerant: bool,
    running: OnceLock<Running>,
}

/// What a plugin has from its start on.
pub(super) struct Running {
    server: Server,
    batched: Option<Arc<Batched>>,
    leases: Option<Arc<Leases>>,
    /// Requests that could not be counted, and the ones of them that passed.
    faults: Option<[Counter; 2]>,
}

impl Remote {
    pub(super) fn new(config: &Config) -> Result<Self, BuildError> {
        // The schema refuses rates other than -1 and those of at least 0.02.
        let interval = (config.sync_rate > 0.0)
            .then(|| Duration::try_from_secs_f64(config.sync_rate).unwrap_or(Duration::MAX));
        Ok(Self {
            settings: config.redis.settings()?,
            interval,
            uses_leases: config.leases.unwrap_or(false),
            counts_alone: config.on_unreachable == Some(OnUnreachable::Local),
            is_tolerant: match config.on_unreachable {
                Some(OnUnreachable::Open) => true,
                Some(OnUnreachable::Closed) => false,
                Some(OnUnreachable::Local) | None => config.fault_tolerant,
            },
            running: OnceLock::new(),
        })
    }

    pub(super) fn start(&self, node: &Arc<Node>) {
        self.running.get_or_init(|| {
            let server = node.redis.server(self.settings.clone());
            let batched = self.interval.map(|interval| {
                let stores = node.shared.get_or_insert(NAME, "batched", Stores::default);
                Stores::get(&stores, node, &server, interval)
            });
            let leases = self.uses_leases.then(|| Leases::of(node, &server));
            Running {
                server,
                batched,
                leases,
                faults: faults(node),
            }
        });
    }

    /// Maximum time for which a request waits.
    pub(super) fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    pub(super) fn running(&self) -> Option<&Running> {
        self.running.get()
    }

    /// Whether requests pass that could not be counted. They get no headers about limits then.
    pub(super) fn is_tolerant(&self) -> bool {
        self.is_tolerant
    }
}

fn faults(node: &Node) -> Option<[Counter; 2]> {
    let registered = node.metrics.counter(
        "silverback_rate_limiting_uncounted_total",
        "Requests that could not be counted in Redis: they passed (fault_tolerant) or failed.",
        &["outcome"],
    );
    match registered {
        Ok(family) => Some([family.with(&["passed"]), family.with(&["failed"])]),
        Err(error) => {
            tracing::error!(plugin = NAME, %error, "a metric cannot be registered");
            None
        }
    }
}

impl Running {
    pub(super) fn leases(&self) -> Option<&Arc<Leases>> {
        self.leases.as_ref()
    }

    pub(super) fn names(
        &self,
        (route, service): (Option<Uuid>, Option<Uuid>),
        identifier: Identifier<'_>,
    ) -> Names {
        let in_cluster = self.server.is_cluster();
        Names::new("ratelimit", route, service, identifier, in_cluster)
    }

    /// Judges a request if that needs no exchange with Redis.
    pub(super) fn judge_here(
        &self,
        identity: Identity,
        names: impl Fn() -> Names,
        allowances: &[Allowance],
        moment: &Moment,
    ) -> Option<Verdict> {
        let batched = self.batched.as_ref()?;
        batched.judge_here(identity, names, allowances, moment)
    }

    /// Counts in the metrics that a request could not be counted in Redis: it passes, or it fails.
    pub(super) fn note_fault(&self, passes: bool) {
        if let Some([passed, failed]) = &self.faults {
            let counter = if passes { passed } else { failed };
            counter.add(NO_WORKER, 1);
        }
    }

    /// Notes a request that could not be counted in Redis: it passes, or it fails.
    pub(super) fn note_uncounted(
        &self,
        passes: bool,
        identity: Identity,
        names: &Names,
        allowances: &[Allowance],
        moment: &Moment,
    ) {
        self.note_fault(passes);
        if passes && let Some(batched) = &self.batched {
            batched.count(identity, names, allowances, moment);
        }
    }

    pub(super) async fn judge(
        &self,
        identity: Identity,
        names: &Names,
        allowances: &[Allowance],
        moment: &Moment,
    ) -> Result<Verdict, CountError> {
        match &self.batched {
            None => direct::judge(&self.server, names, allowances, moment).await,
            Some(batched) => batched.judge(identity, names, allowances, moment).await,
        }
    }
}
