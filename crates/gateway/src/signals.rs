//! What the main thread does while the others serve: it waits for signals, and for what else happens to the process.

use crate::workers::current_thread_runtime;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// SIGHUP.
    Reload,
    /// SIGUSR1: log files are opened anew, so that they can be rotated.
    Reopen,
    /// SIGUSR2: another binary takes over.
    Upgrade,
    /// SIGTERM, SIGINT or SIGQUIT: all of them let requests finish.
    Stop,
}

/// The signals, caught from here on.
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
    /// Before anything is served: a signal that comes earlier ends the process at once, later ones wait here.
    pub(crate) fn catch() -> io::Result<Self> {
        let runtime = current_thread_runtime()?;
        let guard = runtime.enter();
        let hangup = signal(SignalKind::hangup())?;
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let quit = signal(SignalKind::quit())?;
        let reopen = signal(SignalKind::user_defined1())?;
        let upgrade = signal(SignalKind::user_defined2())?;
        // Caught and not waited for: a file that reaches its largest size (`ulimit -f`) fails that write instead of ending the
        // process.
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

    /// The next signal, or the outcome of `event` if that comes first.
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
