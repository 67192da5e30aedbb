//! Logs through tracing: level, form and target of the settings. Level and target change at a reload, the form does not.

use crate::settings::{LogFormat, LogSettings, LogTarget};
use admin::control::LogLevel;
use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Changes the running logs.
#[derive(Clone)]
pub(crate) struct Logs {
    level: reload::Handle<LevelFilter, Registry>,
    target: Target,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot open the log file {path}: {source}; the setting `proxy_error_log` names another")]
pub(crate) struct LogError {
    path: String,
    source: io::Error,
}

/// Where lines go now. Shared with the subscriber, which locks it for each line.
#[derive(Clone)]
struct Target(Arc<Mutex<Output>>);

enum Output {
    Stderr,
    Stdout,
    File(File),
    Off,
}

/// Starts logging; once per process.
pub(crate) fn start(settings: &LogSettings) -> Result<Logs, LogError> {
    let target = Target(Arc::new(Mutex::new(open(&settings.target)?)));
    let (filter, level) = reload::Layer::new(filter_of(settings.level));
    let lines = fmt::layer()
        .with_writer(target.clone())
        .with_ansi(false)
        .with_target(false);
    let registry = tracing_subscriber::registry().with(filter);
    // A second initialisation is one of a test in the same process: the first one's lines are as good.
    let _ = match settings.format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    report_panics();
    Ok(Logs { level, target })
}

impl Logs {
    pub(crate) fn set_level(&self, level: LogLevel) {
        // Fails only when the subscriber is gone, with the process.
        let _ = self.level.reload(filter_of(level));
    }

    /// Opens a log file anew.
    pub(crate) fn reopen(&self, settings: &LogSettings) -> Result<(), LogError> {
        let output = open(&settings.target)?;
        *self.target.lock() = output;
        Ok(())
    }

    /// Takes over level and target, and opens a file anew, so that it can be rotated.
    pub(crate) fn apply(&self, settings: &LogSettings) -> Result<(), LogError> {
        self.reopen(settings)?;
        self.set_level(settings.level);
        Ok(())
    }
}

/// nginx's eight levels as tracing's five: notice is what an operator always wants to know, which is tracing's info.
fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Info => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error | LogLevel::Crit | LogLevel::Alert | LogLevel::Emerg => LevelFilter::ERROR,
    }
}

fn open(target: &LogTarget) -> Result<Output, LogError> {
    Ok(match target {
        LogTarget::Stderr => Output::Stderr,
        LogTarget::Stdout => Output::Stdout,
        LogTarget::Off => Output::Off,
        LogTarget::File(path) => {
            let error = |source| LogError {
                path: path.display().to_string(),
                source,
            };
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(error)?;
            }
            let file = File::options().append(true).create(true).open(path);
            Output::File(file.map_err(error)?)
        }
    })
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// How many there were since the start.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// A panic ends one task, not the process; the log must still tell it.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(%panic, %backtrace, "a task panicked");
    }));
}

impl Target {
    fn lock(&self) -> MutexGuard<'_, Output> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> MakeWriter<'a> for Target {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(Some(self.lock()))
    }

    /// The `h2` crate warns of every odd frame of a peer, which is a way to fill somebody else's disk.
    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line<'a> {
        let of_peers = *about.level() == Level::WARN && about.target().starts_with("h2::");
        Line((!of_peers).then(|| self.lock()))
    }
}

/// One log line being written; nobody else writes meanwhile.
struct Line<'a>(Option<MutexGuard<'a, Output>>);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(output) = &mut self.0 else {
            return Ok(bytes.len());
        };
        match &mut **output {
            Output::Stderr => io::stderr().write(bytes),
            Output::Stdout => io::stdout().write(bytes),
            Output::File(file) => file.write(bytes),
            Output::Off => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.as_deref_mut() {
            Some(Output::Stdout) => io::stdout().flush(),
            _ => Ok(()),
        }
    }
}
