//! The running node as the Admin API sees it, and the way of every change: validated, committed to the store, compiled, live.

pub(crate) mod config;
mod mirror;
pub(crate) mod node;
pub(crate) mod stages;
pub(crate) mod writer;

use crate::commands::Failure;
use crate::logging::Logs;
use crate::memory;
use crate::settings::{LogSettings, ModelSettings, Settings};
use admin::control::{
    Connections, Control, Database, Load, LoadError, Loaded, LogLevel, Memory, Metric, Node, Pids,
};
use futures_util::future::BoxFuture;
use model::schema::{Context, EnabledPlugins};
use proxy::session::DataPlane;
use proxy::snapshot::Rebuilds;
use stages::Stages;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{ChangeSet, Revision, Store};
use tokio::sync::oneshot;
use writer::Writer;

/// Changes that may wait for the one under way: each may hold a body of many megabytes.
const WAITING_CHANGES: usize = 4;

/// The [`Control`] of this program.
pub(crate) struct Gateway {
    commands: SyncSender<Command>,
    store: Store,
    node: Node,
    database: Database,
    model: ModelSettings,
    settings: serde_json::Value,
    plane: Arc<DataPlane>,
    stages: Arc<Stages>,
    rebuilds: Arc<Rebuilds>,
    logs: Logs,
    level: Arc<Level>,
}

/// The log level now. Counted, so that the end of a temporary level does not undo a later one.
struct Level {
    current: Mutex<LogLevel>,
    changes: AtomicU64,
}

/// What the writing thread is asked. The answer may find nobody waiting any more, which changes nothing.
enum Command {
    Load(Load, oneshot::Sender<Result<Loaded, LoadError>>),
    Commit(ChangeSet, oneshot::Sender<Result<Revision, LoadError>>),
    /// Something that the program itself does with the configuration, such as reading its file again.
    Run(Box<dyn FnOnce(&mut Writer) + Send>),
}

/// What [`Gateway::start`] puts together.
pub(crate) struct Parts {
    pub(crate) writer: Writer,
    pub(crate) node: Node,
    pub(crate) logs: Logs,
}

impl Gateway {
    /// Starts the writing thread. It ends with the process: a commit is never left half done, whenever that is.
    pub(crate) fn start(parts: Parts, settings: &Settings) -> std::io::Result<Self> {
        let (commands, queue) = sync_channel(WAITING_CHANGES);
        let store = parts.writer.store.clone();
        let plane = Arc::clone(&parts.writer.plane);
        let stages = Arc::clone(&parts.writer.stages);
        let rebuilds = Arc::clone(&parts.writer.build.rebuilds);
        let writer = parts.writer;
        std::thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || write(writer, &queue))?;
        Ok(Self {
            commands,
            store,
            node: parts.node,
            database: node::database(settings),
            model: settings.model.clone(),
            settings: settings.shown.clone(),
            plane,
            stages,
            rebuilds,
            logs: parts.logs,
            level: Arc::new(Level {
                current: Mutex::new(settings.log.level),
                changes: AtomicU64::new(0),
            }),
        })
    }

    /// Lets the writing thread do something, after the changes that wait already.
    pub(crate) fn run(&self, task: impl FnOnce(&mut Writer) + Send + 'static) {
        // Fails only when the thread is gone, with the process.
        let _ = self.commands.send(Command::Run(Box::new(task)));
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

    fn set_level_now(&self, level: LogLevel) -> LogLevel {
        self.logs.set_level(level);
        let mut current = lock(&self.level.current);
        std::mem::replace(&mut current, level)
    }

    /// The logs of reloaded settings. A temporary level ends.
    pub(crate) fn apply_logs(&self, settings: &LogSettings) -> Result<(), Failure> {
        self.logs.apply(settings).map_err(Failure::new)?;
        self.level.changes.fetch_add(1, Ordering::Relaxed);
        self.set_level_now(settings.level);
        Ok(())
    }
}

/// The life of the writing thread. A panic ends one change: its transaction is gone with it, and the next one starts from
/// what is stored.
fn write(mut writer: Writer, queue: &Receiver<Command>) {
    while let Ok(command) = queue.recv() {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match command {
            Command::Load(load, answer) => drop(answer.send(writer.load(load))),
            Command::Commit(changes, answer) => drop(answer.send(writer.commit(None, changes))),
            Command::Run(task) => task(&mut writer),
        }));
        if done.is_err() {
            // What it remembers of the last document may be half of the truth.
            writer.loader = model::declarative::Loader::new();
        }
        memory::give_back();
        writer.store.release_resident_pages();
    }
}

impl Control for Gateway {
    fn load_declarative(&self, load: Load) -> BoxFuture<'_, Result<Loaded, LoadError>> {
        self.ask(|answer| Command::Load(load, answer))
    }

    fn commit(&self, changes: ChangeSet) -> BoxFuture<'_, Result<Revision, LoadError>> {
        self.ask(|answer| Command::Commit(changes, answer))
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

    fn metrics(&self) -> Vec<Metric> {
        let revision = self.plane.snapshot.peek().revision;
        stages::metrics(&self.stages, &self.rebuilds, revision, resident_memory())
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

/// From the second number of `/proc/self/statm`, in pages.
fn resident_memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    let pages: u64 = pages.and_then(|text| text.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// A panic while a level is read or replaced leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
