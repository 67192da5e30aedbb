//! Replacing the program while it serves (SIGUSR2, `silverback upgrade`): the running process starts the binary that is
//! found under its own name now, and hands it the listening sockets, the lock of the prefix and that of the store. The new
//! process loads, serves, and says so; only then the old one takes no more connections and ends with its last. Until then
//! nothing has changed: when the new one fails, the old one says why and goes on.
//!
//! No connection is lost, because no socket is closed in which one may wait. No change is lost, because both use the same
//! store, which lets one write at a time, and tell each other what they have committed ([`link`]).

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

/// Set for the new process: the id of the process whose estate comes over its standard input. Not a name of a setting.
const VARIABLE: &str = "_SILVERBACK_UPGRADE_FROM";
/// Loading the largest configurations takes seconds.
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

/// How this program was started, to be started so again.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// To be asked at the start: later the file may be another, which is the point, or gone, which the system would tell
    /// instead of its name.
    pub(crate) fn own() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let name = PathBuf::from(arguments.next().unwrap_or_default());
        // By the name it was called by, so that a link that is changed to point to another version is followed.
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

/// What the running process gives away.
pub(crate) struct Offer<'a> {
    pub(crate) prefix: &'a Path,
    pub(crate) store: &'a Path,
    pub(crate) process_file: &'a File,
    pub(crate) store_lock: &'a File,
    pub(crate) sockets: &'a Sockets,
}

/// A new process that is starting, or serving.
pub(crate) struct Successor {
    pub(crate) child: Child,
    pub(crate) link: Arc<Link>,
}

impl Successor {
    /// Starts it and hands everything over. What comes of it is told by events.
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

    /// Ends a new process that is not to take over, and gives its exit status.
    pub(crate) fn end(mut self) -> io::Result<std::process::ExitStatus> {
        let _ = self.child.kill();
        self.child.wait()
    }
}

/// A child that nobody wants when handing over fails.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The estate of the process that started this one to take over, and the line to it; none after an ordinary start.
pub(crate) fn predecessor() -> Result<Option<(Estate, UnixStream)>, UpgradeError> {
    let Some(number) = std::env::var(VARIABLE).ok() else {
        return Ok(None);
    };
    // A process that was started by one that was started so inherits the variable, and no estate.
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
