//! The error log: tracing formats the lines, and a separate thread writes them. A reload can change the level and the
//! target, but not the format.

mod control;
mod kinds;
mod lines;
mod queue;

pub(crate) use queue::Flush;

use crate::output::Output;
use crate::settings::{LogFormat, LogSettings};
use admin::control::LogLevel;
use kinds::{Kinds, Limit};
use queue::Queue;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Handle to change the level and the target of the running log.
#[derive(Clone)]
pub(crate) struct Logs {
    level: reload::Handle<LevelFilter, Registry>,
    queue: Queue,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot open the log file {path}: {source}; the setting `proxy_error_log` names another")]
pub(crate) struct LogError {
    path: String,
    source: io::Error,
}

/// Starts logging, once per process. Dropping the [`Flush`] writes the remaining lines.
pub(crate) fn start(settings: &LogSettings) -> Result<(Logs, Flush), LogError> {
    let output = open(settings)?;
    let (queue, lane) = queue::queue();
    let kinds = Arc::new(Kinds::new(queue.clone()));
    let flush = queue::start(&queue, lane, output, Arc::clone(&kinds));
    let flush = flush.map_err(|source| named(settings, source))?;
    plugin::services::log_lines::set_level(number_of(settings.level));
    let (filter, level) = reload::Layer::new(filter_of(settings.level));
    let lines = fmt::layer()
        .with_writer(queue.clone())
        .with_ansi(false)
        .with_target(false);
    let registry = tracing_subscriber::registry()
        .with(filter)
        .with(Limit(kinds))
        .with(lines::Lines);
    // Only tests initialise twice in one process. Then the first subscriber stays in use.
    let _ = match settings.format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    report_panics();
    Ok((Logs { level, queue }, flush))
}

impl Logs {
    pub(crate) fn set_level(&self, level: LogLevel) {
        plugin::services::log_lines::set_level(number_of(level));
        // This fails only when the subscriber is gone, at the end of the process.
        let _ = self.level.reload(filter_of(level));
    }

    /// Makes the log continue with another target, which [`open`] has opened.
    pub(crate) fn redirect(&self, output: Output) {
        self.queue.redirect(output);
    }

    /// Returns the number of lines that were lost because nobody read the log.
    pub(crate) fn lost(&self) -> u64 {
        self.queue.lost()
    }
}

/// Maps nginx's eight levels to tracing's five. Lines of tracing's level `info` are nginx's `notice`, because `notice`
/// is Kong's default level.
fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Info => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error | LogLevel::Crit | LogLevel::Alert | LogLevel::Emerg => LevelFilter::ERROR,
    }
}

/// Returns nginx's number of a level.
fn number_of(level: LogLevel) -> u8 {
    match level {
        LogLevel::Emerg => 1,
        LogLevel::Alert => 2,
        LogLevel::Crit => 3,
        LogLevel::Error => 4,
        LogLevel::Warn => 5,
        LogLevel::Notice => 6,
        LogLevel::Info => 7,
        LogLevel::Debug => 8,
    }
}

/// Opens the target of the log.
pub(crate) fn open(settings: &LogSettings) -> Result<Output, LogError> {
    Output::open(&settings.target).map_err(|source| named(settings, source))
}

fn named(settings: &LogSettings, source: io::Error) -> LogError {
    LogError {
        path: settings.target.to_string(),
        source,
    }
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of panics since the start.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Logs panics, because a panic ends only one task and not the process.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        tell_panic(panic);
    }));
}

/// Logs a panic. A client may be able to cause panics, so these lines are limited like others.
fn tell_panic(panic: &dyn std::fmt::Display) {
    let backtrace = std::backtrace::Backtrace::capture();
    tracing::error!(%panic, %backtrace, "a task panicked");
}
