//! Replaces the program while it serves (SIGUSR2, `silverback upgrade`). The running process starts the binary that is
//! now installed under its name, and hands it the listening sockets and the locks of the prefix and of the store. The
//! new process loads the configuration, starts serving, and reports that it serves. Only then does the old process stop
//! accepting connections, and it exits when its last connection has ended. If the new process fails, the old one logs
//! the reason and keeps running unchanged.
//!
//! No connection is lost, because listening sockets, in which connections may wait, stay open. No change is lost,
//! because both processes use the same store, which allows one write at a time. They announce the revisions that they
//! commit to each other ([`link`]).

mod handover;
mod link;

pub(crate) use handover::Estate;
pub(crate) use link::{Event, Link};

use crate::sockets::Sockets;
use rustix::process::getppid;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Environment variable of the new process: the id of the process that hands over to it through standard input. It is
/// not the name of a setting.
const VARIABLE: &str = "_SILVERBACK_UPGRADE_FROM";
/// Maximum time until the new process serves. Loading the largest configurations takes seconds.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("cannot run {}: {source}", program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("cannot hand over to the new process: {0}")]
    HandOver(#[source] io::Error),
    #[error("cannot take over from the running process: {0}")]
    TakeOver(#[source] io::Error),
    #[error(
        "the setting `prefix` is {} now, and was {}: that needs a restart", new.display(), old.display()
    )]
    Prefix { old: PathBuf, new: PathBuf },
}

/// Path and arguments of this program, for starting it again in the same way.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Determines path and arguments. Call this at the start. Later the file may have been replaced, as an upgrade
    /// intends, or deleted. Then the system no longer reports its path.
    pub(crate) fn own() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let name = PathBuf::from(arguments.next().unwrap_or_default());
        // Use the path that the program was called by, so that a symbolic link that now points to another version is
        // followed.
        let called = name.components().count() > 1;
        let path = match called.then(|| std::path::absolute(&name)) {
            Some(Ok(path)) if path.is_file() => path,
            _ => std::env::current_exe()?,
        };
        Ok(Self {
            path,
            arguments: arguments.collect(),
        })
    }
}

/// Everything that the running process hands over.
pub(crate) struct Offer<'a> {
    pub(crate) prefix: &'a Path,
    pub(crate) store: &'a Path,
    pub(crate) process_file: &'a File,
    pub(crate) store_lock: &'a File,
    pub(crate) sockets: &'a Sockets,
}

/// A new process that is starting or serving.
pub(crate) struct Successor {
    pub(crate) child: Child,
    pub(crate) link: Arc<Link>,
}

impl Successor {
    /// Starts the new process and hands everything over. Events report the outcome.
    pub(crate) fn start(
        program: &Program,
        offer: &Offer<'_>,
        events: UnboundedSender<Event>,
    ) -> Result<Self, UpgradeError> {
        let (here, there) = UnixStream::pair().map_err(UpgradeError::HandOver)?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .env(VARIABLE, std::process::id().to_string())
            .stdin(Stdio::from(OwnedFd::from(there)))
            .spawn()
            .map_err(|source| UpgradeError::Run {
                program: program.path.clone(),
                source,
            })?;
        let mut starting = Starting(Some(child));
        let locks = [offer.process_file, offer.store_lock];
        handover::give(&here, offer.prefix, offer.store, locks, offer.sockets)
            .map_err(UpgradeError::HandOver)?;
        let link = Link::start(here, events).map_err(UpgradeError::HandOver)?;
        let child = starting.0.take().expect("it was put in above");
        Ok(Self { child, link })
    }

    /// Kills a new process that must not take over, and returns its exit status.
    pub(crate) fn end(mut self) -> io::Result<std::process::ExitStatus> {
        let _ = self.child.kill();
        self.child.wait()
    }
}

/// A child process that is killed if handing over fails.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Receives everything that the process hands over that started this one as its successor, and the stream for the link
/// to it. Returns `None` after an ordinary start.
pub(crate) fn predecessor() -> Result<Option<(Estate, UnixStream)>, UpgradeError> {
    let Some(number) = std::env::var(VARIABLE).ok() else {
        return Ok(None);
    };
    // A child of an upgraded process inherits the variable but receives nothing, so compare the id with the parent's.
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
    if parent != Some(number) {
        return Ok(None);
    }
    let take = || -> io::Result<(Estate, UnixStream)> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok((handover::take(&stream)?, stream))
    };
    take().map(Some).map_err(UpgradeError::TakeOver)
}
