//! What the main thread does while the others serve: it waits for signals.

use crate::workers::current_thread_runtime;
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Reload,
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
        drop(guard);
        Ok(Self {
            runtime,
            hangup,
            terminate,
            interrupt,
            quit,
        })
    }

    pub(crate) fn next(&mut self) -> Request {
        let Self {
            runtime,
            hangup,
            terminate,
            interrupt,
            quit,
        } = self;
        runtime.block_on(async {
            tokio::select! {
                _ = hangup.recv() => Request::Reload,
                _ = terminate.recv() => Request::Stop,
                _ = interrupt.recv() => Request::Stop,
                _ = quit.recv() => Request::Stop,
            }
        })
    }
}
