//! Output of a log: a standard stream or a file. Writing to a full pipe blocks until somebody reads its other end, so
//! only the threads that write logs do it.

use crate::settings::LogTarget;
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

pub(crate) enum Output {
    Stderr,
    Stdout,
    File(File),
    Off,
}

impl Output {
    /// Opens the target. Creates the directory of a file if it does not exist.
    pub(crate) fn open(target: &LogTarget) -> io::Result<Self> {
        Ok(match target {
            LogTarget::Stderr => Self::Stderr,
            LogTarget::Stdout => Self::Stdout,
            LogTarget::Off => Self::Off,
            LogTarget::File(path) => {
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                Self::File(File::options().append(true).create(true).open(path)?)
            }
        })
    }

    /// Writes complete lines.
    pub(crate) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().write_all(lines),
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines).and_then(|()| stdout.flush())
            }
            Self::File(file) => file.write_all(lines),
            Self::Off => Ok(()),
        }
    }
}

/// Writes the last text of a process to standard error, and waits until it is written. `patience` limits this time, in
/// case standard error is a full pipe.
pub(crate) fn say_last(text: String, patience: Option<Duration>) {
    let (end, ended) = channel();
    // The thread of the error log may hold the lock of standard error, so the calling thread never touches it.
    thread::spawn(move || {
        let _ = io::stderr().write_all(text.as_bytes());
        let _ = end.send(());
    });
    let _ = match patience {
        Some(patience) => ended.recv_timeout(patience).ok(),
        None => ended.recv().ok(),
    };
}
