//! The running node as the Admin API sees it. Every change takes the same path: it is validated, compiled, committed to
//! the store and made live.

pub(crate) mod config;
mod conflicts;
pub(crate) mod explain;
mod health;
mod kong_metrics;
pub(crate) mod node;
pub(crate) mod notices;
mod queue;
pub(crate) mod rebuild;
pub(crate) mod stages;
pub(crate) mod writer;

use crate::access::Access as NetworkAccess;
use crate::access_log::AccessLogs;
use crate::commands::Failure;
use crate::logging::{self, Logs};
use crate::metrics::NodeMetrics;
use crate::output::Output;
use crate::reload::Desk;
use crate::settings::{LogSettings, ModelSettings, Settings};
use crate::token_store;
use crate::upgrade::Link;
use admin::Extensions;
use admin::control::{
    Access, Api, Audit, Connections, Control, Credentials, Database, DnsStatistics,
    Failure as Refused, Load, LoadError, Loaded, LogLevel, Memory, Metric, Node, Pids,
    ProfileOrder, Proposal, Readiness, Reading, Reload, Reloading, UpstreamHealth,
};
use admin::events::Feed;
use admin::explain::{Among, Conflicts, Explanation, Question, Search};
use futures_util::future::BoxFuture;
use model::entities::Plugin;
use model::schema::{Context, EnabledPlugins};
use net::dns::{DnsSettings, Resolver};
use proxy::session::DataPlane;
use proxy::snapshot::{Rebuilds, Snapshot};
use queue::{Commands, outcome};
use services::metrics::Page;
use stages::Stages;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{ChangeLog, Revision, Store};
use tokio::sync::{Semaphore, watch};
use uuid::Uuid;
use writer::Writer;

/// Maximum number of explanations, and of conflict searches for a change, at the same time.
const LOOKERS: usize = 2;
/// Maximum number of conflict searches on request at the same time. They take long, so they have their own limit and
/// nothing else waits for them.
const SEARCHES: usize = 1;
/// Implements [`Control`] for the running gateway.
pub(crate) struct Gateway {
    commands: Commands,
    store: Store,
    node: Node,
    database: Database,
    model: ModelSettings,
    settings: serde_json::Value,
    plane: Arc<DataPlane>,
    resolver: Resolver,
    stages: Arc<Stages>,
    rebuilds: Arc<Rebuilds>,
    router: router::Options,
    /// Limits the number of concurrent requests that look through all routes, because each one keeps a CPU core busy.
    lookers: Arc<Semaphore>,
    searches: Arc<Semaphore>,
    logs: Logs,
    access_logs: AccessLogs,
    access: NetworkAccess,
    level: Arc<Mutex<Level>>,
    reloaded: Mutex<Reloaded>,
    links: Arc<Links>,
    /// Whether the gateway is about to stop.
    draining: watch::Sender<bool>,
    reloads: Desk,
    /// Keeps these metrics among those of the node.
    _metrics: Arc<NodeMetrics>,
    /// Whether there are listeners for streams.
    has_streams: bool,
    offers_openmetrics: bool,
}

/// Links to the previous and to the next process, while there are any.
#[derive(Default)]
pub(crate) struct Links(Mutex<Vec<Arc<Link>>>);

impl Links {
    pub(crate) fn add(&self, link: &Arc<Link>) {
        lock(&self.0).push(Arc::clone(link));
    }

    /// Returns the links to processes that are still running.
    fn open(&self) -> Vec<Arc<Link>> {
        let mut links = lock(&self.0);
        links.retain(|link| !link.is_closed());
        links.clone()
    }

    /// Announces a revision on all links, without waiting.
    pub(crate) fn tell(&self, revision: Revision) {
        for link in self.open() {
            link.tell(revision.0);
        }
    }
}

/// The log level now, and the one that applies when a temporary level ends.
struct Level {
    current: LogLevel,
    lasting: LogLevel,
    /// Number of changes, so that the end of a temporary level does not undo a later change.
    changes: u64,
}

impl Level {
    fn new(level: LogLevel) -> Self {
        Self {
            current: level,
            lasting: level,
            changes: 0,
        }
    }

    fn set(&mut self, level: LogLevel) {
        self.lasting = level;
        self.set_for_now(level);
    }

    /// Sets a temporary level. Returns the number of the change, for [`Level::end`].
    fn set_for_now(&mut self, level: LogLevel) -> u64 {
        self.current = level;
        self.changes += 1;
        self.changes
    }

    /// Ends the temporary level that this change has set, unless there was a later change.
    fn end(&mut self, change: u64) {
        if self.changes == change {
            self.current = self.lasting;
        }
    }
}

/// The settings in effect that a reload can change.
struct Reloaded {
    log: LogSettings,
    dns: DnsSettings,
}

/// New settings that can take effect without an error.
pub(crate) struct Reloadable {
    pub(crate) log: LogSettings,
    /// The opened target of the error log.
    pub(crate) output: Output,
    /// `None` keeps the settings of the resolver.
    pub(crate) dns: Option<DnsSettings>,
}

/// Everything that [`Gateway::start`] combines.
pub(crate) struct Parts {
    pub(crate) writer: Writer,
    pub(crate) node: Node,
    pub(crate) logs: Logs,
    pub(crate) access_logs: AccessLogs,
    pub(crate) access: NetworkAccess,
}

impl Gateway {
    /// Starts the writing thread. It runs until the process ends. Commits are atomic, so an abrupt end is safe.
    pub(crate) fn start(
        parts: Parts,
        metrics: Arc<NodeMetrics>,
        settings: &Settings,
        reloads: Desk,
    ) -> std::io::Result<Self> {
        let (commands, waiting) = Commands::new();
        let links = Arc::<Links>::default();
        let store = parts.writer.store.clone();
        let plane = Arc::clone(&parts.writer.plane);
        let resolver = parts.writer.build.resolver.clone();
        let stages = Arc::clone(&parts.writer.stages);
        let rebuilds = Arc::clone(&parts.writer.build.rebuilds);
        let router = parts.writer.build.router;
        let writer = parts.writer;
        let told = Arc::clone(&links);
        std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || queue::write(writer, &waiting, &told))?;
        Ok(Self {
            commands,
            store,
            node: parts.node,
            database: node::database(settings),
            model: settings.model.clone(),
            settings: settings.shown.clone(),
            plane,
            resolver,
            stages,
            rebuilds,
            router,
            lookers: Arc::new(Semaphore::new(LOOKERS)),
            searches: Arc::new(Semaphore::new(SEARCHES)),
            logs: parts.logs,
            access_logs: parts.access_logs,
            access: parts.access,
            level: Arc::new(Mutex::new(Level::new(settings.log.level))),
            reloaded: Mutex::new(Reloaded {
                log: settings.log.clone(),
                dns: settings.dns.clone(),
            }),
            links,
            draining: watch::Sender::new(false),
            reloads,
            _metrics: metrics,
            has_streams: !settings.stream_listen.is_empty(),
            offers_openmetrics: settings.metrics.openmetrics,
        })
    }

    /// Runs a task on the writing thread, after the changes that are already waiting.
    pub(crate) fn run(&self, task: impl FnOnce(&mut Writer) + Send + 'static) {
        self.commands.run(task);
    }

    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// Makes the revisions live that another process has committed to the store, and waits until they are live. Returns
    /// whether they are.
    pub(crate) fn follow(&self) -> bool {
        let (done, followed) = sync_channel(1);
        self.run(move |writer| {
            let outcome = writer.follow();
            if let Err(error) = &outcome {
                tracing::error!(
                    ?error,
                    "a change of the other process cannot be served here"
                );
            }
            let _ = done.send(outcome.is_ok());
        });
        // An error means that the task has panicked, which is logged.
        followed.recv().unwrap_or(false)
    }

    /// Returns the feed for clients that follow the configuration. A revision appears in it once it is live in this
    /// process.
    pub(crate) fn feed(&self) -> Feed {
        Feed {
            store: self.store.clone(),
            live: self.plane.snapshot.swaps(),
        }
    }

    /// Announces a change that came over one link on all other links.
    pub(crate) fn pass_on(&self, from: &Link) {
        for link in self.links.open() {
            if !std::ptr::eq(&*link, from) {
                link.tell(self.store.head().0);
            }
        }
    }

    /// Announces a revision, and waits until it is live in the previous and in the next process.
    async fn announce(&self, revision: Revision) {
        for link in self.links.open() {
            link.announce(revision.0).await;
        }
    }

    /// Frees the pages of the store that are still reserved for processes that have ended.
    pub(crate) fn forget_dead_processes(&self) {
        if let Err(error) = self.store.forget_dead_processes() {
            tracing::warn!(%error, "the store may keep more than it needs");
        }
    }

    pub(crate) fn store_lock(&self) -> std::io::Result<std::fs::File> {
        self.store.lend()
    }

    /// What the node offers to plugins.
    pub(crate) fn plugin_node(&self) -> &plugin::Node {
        &self.plane.node
    }

    pub(crate) fn access_logs(&self) -> &AccessLogs {
        &self.access_logs
    }

    /// Reopens the log files.
    pub(crate) fn reopen_logs(&self) -> Result<(), Failure> {
        self.access_logs.reopen();
        self.plugin_node().sinks.reopen_files();
        let reloaded = lock(&self.reloaded);
        let output = logging::open(&reloaded.log).map_err(Failure::new)?;
        self.logs.redirect(output);
        Ok(())
    }

    /// Waits for a free slot of the semaphore, and then runs `work` on a blocking thread. For work that looks through
    /// all routes.
    async fn look<T: Send + 'static>(
        &self,
        among: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let place = Arc::clone(among).acquire_owned().await;
        let place = place.map_err(Refused::internal)?;
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        done.await.map_err(Refused::internal)?
    }

    /// Applies reloaded settings. This ends a temporary log level, reopens the log files, and reads resolv.conf and the
    /// hosts file again.
    pub(crate) fn apply(&self, new: Reloadable) {
        let mut reloaded = lock(&self.reloaded);
        self.logs.redirect(new.output);
        self.access_logs.reopen();
        self.plugin_node().sinks.reopen_files();
        let mut level = lock(&self.level);
        self.logs.set_level(new.log.level);
        level.set(new.log.level);
        reloaded.log = new.log;
        if let Some(dns) = new.dns {
            reloaded.dns = dns;
        }
        self.resolver.reload(reloaded.dns.clone());
    }
}

impl Control for Gateway {
    fn load_declarative(&self, load: Load) -> BoxFuture<'_, Result<Loaded, LoadError>> {
        let asked = self.commands.load(load);
        Box::pin(async move {
            let loaded = outcome(asked).await?;
            if let Loaded::Live { revision, .. } = &loaded {
                self.announce(*revision).await;
            }
            Ok(loaded)
        })
    }

    fn commit(&self, proposal: Proposal) -> BoxFuture<'_, Result<Revision, LoadError>> {
        let is_dry = proposal.dry_run;
        let asked = self.commands.propose(proposal);
        Box::pin(async move {
            let revision = outcome(asked).await?;
            if !is_dry {
                self.announce(revision).await;
            }
            Ok(revision)
        })
    }

    fn upstream_health(&self, upstream: Uuid) -> Option<UpstreamHealth> {
        health::of(&self.plane.snapshot.load(), upstream)
    }

    fn set_target_health(
        &self,
        upstream: Uuid,
        target: &str,
        address: Option<(&str, u16)>,
        healthy: bool,
    ) -> Result<(), String> {
        let snapshot = self.plane.snapshot.load();
        health::set(&snapshot, upstream, target, address, healthy)
    }

    fn explain(&self, question: Question) -> BoxFuture<'_, Result<Explanation, Refused>> {
        let (store, flavor) = (self.store.clone(), self.router.flavor);
        let snapshot = self.plane.snapshot.load();
        Box::pin(self.look(&self.lookers, move || {
            let view = store.view().map_err(Refused::internal)?;
            let configured = explain::InStore(&view);
            explain::of(&snapshot, flavor, &question, &configured).map_err(Refused::from)
        }))
    }

    fn conflicts(&self, search: Search) -> BoxFuture<'_, Result<Conflicts, Refused>> {
        let previewed = search.preview.get::<Snapshot>();
        let snapshot = previewed.unwrap_or_else(|| self.plane.snapshot.load());
        let among = match search.among {
            Among::All | Among::Route(_) => &self.searches,
            // A change waits for this search, so it must not queue behind long searches.
            Among::Routes(_) => &self.lookers,
        };
        Box::pin(async move {
            // When the client disconnects, this future and `asker` are dropped. That cancels the search.
            let asker = Arc::new(());
            let known = Arc::downgrade(&asker);
            let look = move || {
                let is_cancelled = || known.strong_count() == 0;
                conflicts::of(&snapshot, &search, &is_cancelled).map_err(Refused::from)
            };
            let found = self.look(among, look).await;
            drop(asker);
            found
        })
    }

    fn notices(&self, plugins: &[Plugin]) -> Vec<String> {
        notices::of(self.store.view().ok().as_ref(), plugins)
    }

    fn reload(&self, reload: Reload) -> BoxFuture<'_, Result<Reloading, String>> {
        Box::pin(self.reloads.ask(reload))
    }

    fn profile(&self, order: ProfileOrder) -> BoxFuture<'_, Result<Vec<u8>, admin::Failure>> {
        let mut draining = self.draining.subscribe();
        Box::pin(async move {
            // The stop waits for requests of the Admin API, and a profile may take minutes.
            tokio::select! {
                taken = crate::profiles::take(order) => taken,
                _ = draining.wait_for(|is_draining| *is_draining) => {
                    Err(admin::Failure::with_status(503, "the gateway stops"))
                }
            }
        })
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn oauth2_tokens(&self) -> Option<Arc<dyn ::tokens::TokenStore>> {
        self.plane.node.tokens.clone()
    }

    fn context(&self) -> Context {
        writer::context(&self.model, self.database == Database::Off)
    }

    fn database(&self) -> Database {
        self.database
    }

    fn node(&self) -> &Node {
        &self.node
    }

    fn enabled_plugins(&self) -> Vec<String> {
        match &self.model.plugins {
            EnabledPlugins::Bundled => plugins::bundled()
                .iter()
                .map(|plugin| plugin.name.to_string())
                .collect(),
            EnabledPlugins::Only(names) => names.iter().cloned().collect(),
        }
    }

    fn extensions(&self) -> Option<Extensions> {
        let mut endpoints = plugins::endpoints();
        endpoints.retain(|endpoint| self.model.plugins.contains(&endpoint.plugin));
        Some(Extensions {
            endpoints,
            node: Arc::clone(&self.plane.node),
        })
    }

    fn settings(&self) -> serde_json::Value {
        self.settings.clone()
    }

    fn pids(&self) -> Pids {
        let process = std::process::id();
        Pids {
            master: process,
            workers: vec![process],
        }
    }

    fn connections(&self) -> Connections {
        let totals = self.plane.totals();
        Connections {
            active: totals.active(),
            reading: totals.reading,
            writing: totals.writing(),
            waiting: totals.waiting,
            accepted: totals.accepted,
            handled: totals.accepted,
            total_requests: totals.requests,
        }
    }

    fn memory(&self) -> Memory {
        Memory {
            resident: resident_memory(),
            store_used: self.store.size().unwrap_or(0),
            store_capacity: self.store.max_size() as u64,
        }
    }

    fn dns_statistics(&self) -> Option<DnsStatistics> {
        let newer = self.settings.get("new_dns_client")?.as_bool()?;
        newer.then(|| DnsStatistics {
            workers: self.plane.workers_at(0).1,
            counters: self.resolver.statistics(),
        })
    }

    fn metrics(&self) -> Vec<Metric> {
        let revision = self.plane.snapshot.peek().revision;
        let mut metrics =
            stages::metrics(&self.stages, &self.rebuilds, revision, resident_memory());
        let totals = self.plane.totals();
        metrics.extend([
            Metric {
                name: "silverback_access_log_dropped_lines_total",
                help: "Lines of access logs that were lost because their target did not keep up or failed.",
                reading: Reading::Counter(self.access_logs.dropped()),
            },
            Metric {
                name: "silverback_accept_errors_total",
                help: "Connections that could not be accepted for want of descriptors or memory, by attempt.",
                reading: Reading::Counter(totals.accept_errors),
            },
            Metric {
                name: "silverback_error_log_dropped_lines_total",
                help: "Lines of the error log that were lost because its target did not keep up or failed.",
                reading: Reading::Counter(self.logs.lost()),
            },
            Metric {
                name: "silverback_connections_refused_total",
                help: "Connections that were closed at once, being more than max_connections or max_connections_per_client.",
                reading: Reading::Counter(totals.refused),
            },
            Metric {
                name: "silverback_panics_total",
                help: "Panics, each of which ended a connection or another task. The log tells where.",
                reading: Reading::Counter(logging::panics()),
            },
        ]);
        metrics.extend(stages::dns_metrics(&self.resolver));
        metrics.extend(token_store::metrics(self.plane.node.tokens.as_deref()));
        metrics.sort_by_key(|metric| metric.name);
        metrics
    }

    fn configuration_hash(&self) -> [u8; 16] {
        let text = writer::hash(&self.store).unwrap_or_default();
        let digits = text.as_bytes();
        std::array::from_fn(|index| {
            let digit = |at: usize| {
                let digit = digits.get(at).copied().map(char::from);
                digit.and_then(|digit| digit.to_digit(16)).unwrap_or(0) as u8
            };
            digit(2 * index) << 4 | digit(2 * index + 1)
        })
    }

    fn write_metrics(&self, page: &mut Page) {
        self.write_kong_metrics(page);
        self.plane.node.metrics.write(page);
    }

    fn offers_openmetrics(&self) -> bool {
        self.offers_openmetrics
    }

    fn readiness(&self) -> Readiness {
        if *self.draining.borrow() {
            return Readiness::Draining;
        }
        if self.database == Database::Off && self.configuration_hash() == [0; 16] {
            return Readiness::Empty;
        }
        match self.plane.workers_at(self.store.head().0) {
            (ready, workers) if ready < workers => Readiness::Building { ready, workers },
            _ => Readiness::Ready,
        }
    }

    fn announce_drain(&self) {
        self.draining.send_replace(true);
    }

    fn logs_access(&self, api: Api) -> bool {
        self.access_logs.of(api).is_some()
    }

    fn log_access(&self, api: Api, access: &Access) {
        self.access_logs.write(api, access);
    }

    fn audit(&self, audit: &Audit) {
        if let Some(log) = &self.access_logs.audit {
            log.write(audit);
        }
    }

    fn credentials(&self) -> Credentials {
        self.access.credentials()
    }

    fn log_level(&self) -> LogLevel {
        lock(&self.level).current
    }

    fn set_log_level(&self, level: LogLevel, timeout: Duration) {
        let mut state = lock(&self.level);
        self.logs.set_level(level);
        if timeout.is_zero() {
            return state.set(level);
        }
        let change = state.set_for_now(level);
        drop(state);
        let (state, logs) = (Arc::clone(&self.level), self.logs.clone());
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            let mut state = lock(&state);
            state.end(change);
            logs.set_level(state.current);
        });
    }
}

/// Returns the resident memory in bytes. It is the second number of `/proc/self/statm`, in pages.
fn resident_memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    let pages: u64 = pages.and_then(|text| text.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Locks the mutex even after a panic. That is safe, because no panic can leave these values half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_temporary_levels_end_with_the_level_before_them() {
        let mut level = Level::new(LogLevel::Notice);
        let first = level.set_for_now(LogLevel::Debug);
        let second = level.set_for_now(LogLevel::Info);
        level.end(first);
        assert_eq!(level.current, LogLevel::Info);
        level.end(second);
        assert_eq!(level.current, LogLevel::Notice);
    }

    #[test]
    fn the_end_of_a_temporary_level_does_not_undo_a_lasting_one() {
        let mut level = Level::new(LogLevel::Notice);
        let first = level.set_for_now(LogLevel::Debug);
        level.set(LogLevel::Warn);
        level.end(first);
        assert_eq!(level.current, LogLevel::Warn);
        let second = level.set_for_now(LogLevel::Debug);
        level.end(second);
        assert_eq!(level.current, LogLevel::Warn);
    }
}
