//! Signals of the process. While other threads serve, the main thread waits for a signal or another event.

use crate::workers::current_thread_runtime;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The action that a signal requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// SIGHUP: read the settings again.
    Reload,
    /// SIGUSR1: reopen the log files, for log rotation.
    Reopen,
    /// SIGUSR2: replace this process with the installed binary.
    Upgrade,
    /// SIGTERM, SIGINT or SIGQUIT. Each of them lets requests in flight finish.
    Stop,
}

/// The signal handlers, installed by [`Signals::catch`].
pub(crate) struct Signals {
    runtime: tokio::runtime::Runtime,
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Signals {
    /// Installs the handlers. Call this before anything is served. A signal that arrives earlier ends the process
    /// immediately. A later one waits until [`Signals::next_or`] returns it.
    pub(crate) fn catch() -> io::Result<Self> {
        let runtime = current_thread_runtime()?;
        let guard = runtime.enter();
        let hangup = signal(SignalKind::hangup())?;
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let quit = signal(SignalKind::quit())?;
        let reopen = signal(SignalKind::user_defined1())?;
        let upgrade = signal(SignalKind::user_defined2())?;
        // Without a handler, SIGXFSZ would end the process when a file reaches its maximum size (`ulimit -f`). The
        // handler does nothing, so that only the write fails.
        drop(signal(SignalKind::from_raw(
            rustix::process::Signal::XFSZ.as_raw(),
        ))?);
        drop(guard);
        Ok(Self {
            runtime,
            hangup,
            terminate,
            interrupt,
            quit,
            reopen,
            upgrade,
        })
    }

    /// Waits for `event` or for the next signal, whichever comes first. The event's output is `Ok`, the request of a
    /// signal is `Err`.
    pub(crate) fn next_or<T>(&mut self, event: impl Future<Output = T>) -> Result<T, Request> {
        let Self {
            runtime,
            hangup,
            terminate,
            interrupt,
            quit,
            reopen,
            upgrade,
        } = self;
        runtime.block_on(async {
            tokio::select! {
                outcome = event => Ok(outcome),
                _ = hangup.recv() => Err(Request::Reload),
                _ = reopen.recv() => Err(Request::Reopen),
                _ = upgrade.recv() => Err(Request::Upgrade),
                _ = terminate.recv() => Err(Request::Stop),
                _ = interrupt.recv() => Err(Request::Stop),
                _ = quit.recv() => Err(Request::Stop),
            }
        })
    }
}
