//! The running node as the Admin API sees it. Every change takes the same path: it is validated, compiled, committed to
//! the store and made live.

pub(crate) mod config;
mod conflicts;
pub(crate) mod explain;
mod health;
pub(crate) mod node;
pub(crate) mod notices;
pub(crate) mod rebuild;
pub(crate) mod stages;
pub(crate) mod writer;

use crate::access::Access as NetworkAccess;
use crate::access_log::AccessLogs;
use crate::commands::Failure;
use crate::logging::{self, Logs};
use crate::reload::Desk;
use crate::settings::{LogSettings, ModelSettings, Settings};
use crate::upgrade::Link;
use admin::control::{
    Access, Api, Audit, Connections, Control, Credentials, Database, DnsStatistics,
    Failure as Refused, Load, LoadError, Loaded, LogLevel, Memory, Metric, Node, Pids, Proposal,
    Readiness, Reading, Reload, Reloading, UpstreamHealth,
};
use admin::events::Feed;
use admin::explain::{Among, Conflicts, Explanation, Question, Search};
use futures_util::future::BoxFuture;
use model::entities::Plugin;
use model::schema::{Context, EnabledPlugins};
use net::dns::Resolver;
use proxy::session::DataPlane;
use proxy::snapshot::{Rebuilds, Snapshot};
use stages::Stages;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{ChangeLog, Revision, Store};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;
use writer::Writer;

/// Maximum number of commands that wait for the writing thread.
const WAITING_COMMANDS: usize = 1024;
/// Maximum number of documents that wait or are being loaded. Each may hold a body of many megabytes.
const WAITING_LOADS: usize = 4;
/// Maximum number of explanations, and of conflict searches for a change, at the same time.
const LOOKERS: usize = 2;
/// Maximum number of conflict searches on request at the same time. They take long, so they have their own limit and
/// nothing else waits for them.
const SEARCHES: usize = 1;
/// Maximum number of proposals that become durable together.
const GROUP: usize = 256;
/// Time after the last change at which old history is removed and free memory is returned to the system.
const IDLE: Duration = Duration::from_secs(1);
/// Interval between searches for old history while nothing changes. Revisions grow old without changes too.
const LOOK: Duration = Duration::from_secs(60);

/// Implements [`Control`] for the running gateway.
pub(crate) struct Gateway {
    commands: SyncSender<Command>,
    loads: Arc<AtomicUsize>,
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
    level: Arc<Level>,
    links: Arc<Links>,
    draining: AtomicBool,
    reloads: Desk,
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

/// A slot for a document that waits or is being loaded.
struct LoadPlace(Arc<AtomicUsize>);

impl Drop for LoadPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The current log level. Changes are counted, so that the end of a temporary level does not undo a later change.
struct Level {
    current: Mutex<LogLevel>,
    changes: AtomicU64,
}

/// A proposal that waits for its turn, and the channel for its outcome.
pub(crate) struct Proposed {
    pub(crate) proposal: Proposal,
    pub(crate) answer: oneshot::Sender<Result<Revision, LoadError>>,
}

/// Commands for the writing thread. A command is carried out even if nobody waits for its outcome any more.
enum Command {
    Load(Load, oneshot::Sender<Result<Loaded, LoadError>>),
    Propose(Proposed),
    /// A task of the program itself, such as reading its declarative file again.
    Run(Box<dyn FnOnce(&mut Writer) + Send>),
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
    pub(crate) fn start(parts: Parts, settings: &Settings, reloads: Desk) -> std::io::Result<Self> {
        let (commands, queue) = sync_channel(WAITING_COMMANDS);
        let store = parts.writer.store.clone();
        let plane = Arc::clone(&parts.writer.plane);
        let resolver = parts.writer.build.resolver.clone();
        let stages = Arc::clone(&parts.writer.stages);
        let rebuilds = Arc::clone(&parts.writer.build.rebuilds);
        let router = parts.writer.build.router;
        let writer = parts.writer;
        std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || write(writer, &queue))?;
        Ok(Self {
            commands,
            loads: Arc::default(),
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
            level: Arc::new(Level {
                current: Mutex::new(settings.log.level),
                changes: AtomicU64::new(0),
            }),
            links: Arc::default(),
            draining: AtomicBool::new(false),
            reloads,
        })
    }

    /// Runs a task on the writing thread, after the changes that are already waiting.
    pub(crate) fn run(&self, task: impl FnOnce(&mut Writer) + Send + 'static) {
        // Sending fails only when the thread is gone, at the end of the process.
        let _ = self.commands.send(Command::Run(Box::new(task)));
    }

    pub(crate) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// Makes the revisions live that another process has committed to the store, and waits until they are live.
    pub(crate) fn follow(&self) {
        let (done, followed) = sync_channel(1);
        self.run(move |writer| {
            if let Err(error) = writer.follow() {
                tracing::error!(
                    ?error,
                    "a change of the other process cannot be served here"
                );
            }
            let _ = done.send(());
        });
        // An error means that the task has panicked, which is logged.
        let _ = followed.recv();
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

    pub(crate) fn access_logs(&self) -> &AccessLogs {
        &self.access_logs
    }

    /// Reopens the log files.
    pub(crate) fn reopen_logs(&self, settings: &LogSettings) -> Result<(), Failure> {
        self.access_logs.reopen();
        self.logs.reopen(settings).map_err(Failure::new)
    }

    /// Takes a slot for a document. Returns `None` if all slots are in use.
    fn admit_load(&self) -> Option<LoadPlace> {
        let waiting = Arc::clone(&self.loads);
        if waiting.fetch_add(1, Ordering::Relaxed) < WAITING_LOADS {
            return Some(LoadPlace(waiting));
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, LoadError>>) -> Command,
    ) -> BoxFuture<'_, Result<T, LoadError>> {
        let (answer, outcome) = oneshot::channel();
        let sent = self.commands.try_send(command(answer));
        Box::pin(async move {
            match sent {
                Ok(()) => outcome.await.unwrap_or(Err(LoadError::Internal(
                    "the thread that changes the configuration has panicked".to_owned(),
                ))),
                Err(TrySendError::Full(_)) => Err(LoadError::Busy),
                Err(TrySendError::Disconnected(_)) => Err(LoadError::Exiting),
            }
        })
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

    fn set_level_now(&self, level: LogLevel) -> LogLevel {
        self.logs.set_level(level);
        let mut current = lock(&self.level.current);
        std::mem::replace(&mut current, level)
    }

    /// Applies new resolver settings, and reads resolv.conf and the hosts file again.
    pub(crate) fn apply_dns(&self, settings: &net::dns::DnsSettings) {
        self.resolver.reload(settings.clone());
    }

    /// Applies reloaded log settings. This ends a temporary log level.
    pub(crate) fn apply_logs(&self, settings: &LogSettings) -> Result<(), Failure> {
        self.logs.apply(settings).map_err(Failure::new)?;
        self.level.changes.fetch_add(1, Ordering::Relaxed);
        self.set_level_now(settings.level);
        Ok(())
    }
}

/// Main loop of the writing thread. A panic aborts only the current change or group of changes. Its transaction is
/// discarded, and the next change starts from the stored state.
fn write(mut writer: Writer, queue: &Receiver<Command>) {
    let mut queue = Queue {
        commands: queue,
        next: None,
    };
    let mut is_tidy = true;
    let mut rest = LOOK;
    loop {
        let command = match queue.wait(rest) {
            Ok(command) => command,
            Err(RecvTimeoutError::Timeout) if writer.compact() => {
                // History is removed in small steps, so that new commands go first.
                is_tidy = false;
                rest = Duration::ZERO;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                if !std::mem::replace(&mut is_tidy, true) {
                    writer.give_back();
                }
                writer.forget_dead_readers();
                rest = LOOK;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let is_load = matches!(command, Command::Load(..));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match command {
            Command::Load(load, answer) => drop(answer.send(writer.load(load))),
            Command::Propose(first) => writer.propose(queue.group(first)),
            Command::Run(task) => task(&mut writer),
        }));
        if done.is_err() {
            // After a panic, the document that the loader remembers may be incomplete.
            writer.loader = model::declarative::Loader::new();
        }
        writer.compact_when_overdue();
        is_tidy = is_load;
        rest = IDLE;
        if is_load {
            writer.give_back();
        }
    }
}

/// The queue of commands. `group` may receive one command too many, which `next` holds until its turn.
struct Queue<'q> {
    commands: &'q Receiver<Command>,
    next: Option<Command>,
}

impl Queue<'_> {
    fn wait(&mut self, limit: Duration) -> Result<Command, RecvTimeoutError> {
        match self.next.take() {
            Some(next) => Ok(next),
            None => self.commands.recv_timeout(limit),
        }
    }

    /// Collects `first` and the proposals that wait directly behind it.
    fn group(&mut self, first: Proposed) -> Vec<Proposed> {
        let mut group = vec![first];
        while group.len() < GROUP {
            match self.commands.try_recv() {
                Ok(Command::Propose(another)) => group.push(another),
                Ok(other) => {
                    self.next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        group
    }
}

impl Control for Gateway {
    fn load_declarative(&self, load: Load) -> BoxFuture<'_, Result<Loaded, LoadError>> {
        let Some(place) = self.admit_load() else {
            return Box::pin(async { Err(LoadError::Busy) });
        };
        let asked = self.ask(|answer| Command::Load(load, answer));
        Box::pin(async move {
            let loaded = asked.await;
            drop(place);
            let loaded = loaded?;
            if let Loaded::Live { revision, .. } = &loaded {
                self.announce(*revision).await;
            }
            Ok(loaded)
        })
    }

    fn commit(&self, proposal: Proposal) -> BoxFuture<'_, Result<Revision, LoadError>> {
        let is_dry = proposal.dry_run;
        let place = if proposal.is_document {
            match self.admit_load() {
                Some(place) => Some(place),
                None => return Box::pin(async { Err(LoadError::Busy) }),
            }
        } else {
            None
        };
        let asked = self.ask(|answer| Command::Propose(Proposed { proposal, answer }));
        Box::pin(async move {
            let revision = asked.await;
            drop(place);
            let revision = revision?;
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

    fn store(&self) -> &Store {
        &self.store
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
            EnabledPlugins::Bundled => plugins::BUNDLED
                .iter()
                .map(|plugin| plugin.name.to_owned())
                .collect(),
            EnabledPlugins::Only(names) => names.iter().cloned().collect(),
        }
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

    fn readiness(&self) -> Readiness {
        if self.draining.load(Ordering::Relaxed) {
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
        self.draining.store(true, Ordering::Relaxed);
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
        *lock(&self.level.current)
    }

    fn set_log_level(&self, level: LogLevel, timeout: Duration) {
        let former = self.set_level_now(level);
        let change = self.level.changes.fetch_add(1, Ordering::Relaxed) + 1;
        if timeout.is_zero() {
            return;
        }
        let (state, logs) = (Arc::clone(&self.level), self.logs.clone());
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            if state.changes.load(Ordering::Relaxed) == change {
                logs.set_level(former);
                *lock(&state.current) = former;
            }
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
