//! Where the lines of a log go: a standard stream or a file. Writing may wait for as long as nobody reads the other end of a
//! pipe, so only the threads that write logs do it.

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
    /// Opens the target. The directory of a file is created.
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

    /// Writes whole lines.
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

/// Writes to standard error what a process ends with. With a limit to its patience, the process ends even if nobody reads it.
pub(crate) fn say_last(text: String, patience: Option<Duration>) {
    let (end, ended) = channel();
    // The thread that writes the error log may hold standard error as well, so this one never touches it.
    thread::spawn(move || {
        let _ = io::stderr().write_all(text.as_bytes());
        let _ = end.send(());
    });
    let _ = match patience {
        Some(patience) => ended.recv_timeout(patience).ok(),
        None => ended.recv().ok(),
    };
}
