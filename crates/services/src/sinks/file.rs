//! Appends lines to a file. Each line is one write to a file that is opened for appending, so that lines of several
//! processes do not mix. A disk can block, so a thread for such work does it.

use super::rest::{Rest, Unsent};
use crate::queue::{SendError, Sender, Text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum time that a full pipe is waited for.
const PATIENCE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

struct Log {
    path: PathBuf,
    /// Whether the file is opened again for each line.
    reopen: bool,
    /// Changes when all files are to be opened again.
    reopened: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file, with the value of `reopened` when it was opened.
    file: Option<(u64, File)>,
    unsent: Unsent,
}

pub(super) fn sender(path: &Path, reopen: bool, reopened: &Arc<AtomicU64>) -> Sender<Text> {
    let log = Arc::new(Log {
        path: path.to_owned(),
        reopen,
        reopened: reopened.clone(),
        state: Mutex::default(),
    });
    Sender::of_texts(move |batch| {
        let log = log.clone();
        async move {
            let written = tokio::task::spawn_blocking(move || log.write(&batch)).await;
            written.map_err(|_| SendError::new("the gateway is shutting down"))?
        }
    })
}

impl Log {
    fn write(&self, batch: &Arc<Vec<Text>>) -> Result<(), SendError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = state.unsent.of(batch);
        let written = self.write_lines(&mut state.file, &mut rest);
        written.map_err(|error| {
            // It may be on a file system that is gone.
            state.file = None;
            state.unsent.keep(rest);
            SendError::new(format!("cannot write to {}: {error}", self.path.display()))
        })
    }

    fn write_lines(&self, file: &mut Option<(u64, File)>, rest: &mut Rest) -> io::Result<()> {
        let now = self.reopened.load(Ordering::Relaxed);
        file.take_if(|(opened, _)| *opened != now);
        while let Some(line) = rest.line() {
            let (_, open) = match file {
                Some(open) if !self.reopen => open,
                _ => file.insert((now, open(&self.path)?)),
            };
            match open.write(line) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                // A part is written only to a full disk or a full pipe. What follows is then written next.
                Ok(written) => rest.advance(written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => wait_for_reader(open)?,
                Err(error) => return Err(error),
            }
        }
        if self.reopen {
            *file = None;
        }
        Ok(())
    }
}

/// Waits until a full pipe can be written.
fn wait_for_reader(pipe: &File) -> io::Result<()> {
    let mut pipes = [PollFd::new(pipe, PollFlags::OUT)];
    match poll(&mut pipes, Some(&PATIENCE)) {
        Ok(0) => Err(ErrorKind::TimedOut.into()),
        ready => Ok(ready.map(drop)?),
    }
}

/// Opens the file as Kong does. A pipe that nobody reads is an error, because to open it would wait for a reader.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true).mode(0o644);
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options.open(path)
}
