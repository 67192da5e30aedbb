//! Output of a log: a standard stream or a file. Writing to a full pipe blocks until somebody reads its other end, so
//! only the threads that write logs do it.

use crate::settings::LogTarget;
use rustix::fs::OFlags;
use rustix::io::{Errno, ioctl_fionbio};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
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
                Self::File(open_file(path)?)
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

/// Opens a file for appending. Fails if it is a pipe that nobody reads, because a plain open would wait for a reader.
fn open_file(path: &Path) -> io::Result<File> {
    let opened = File::options()
        .append(true)
        .create(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| match path.metadata() {
        Ok(about) if is_without_reader(&error) && about.file_type().is_fifo() => {
            io::Error::other("nobody reads this pipe")
        }
        _ => error,
    })?;
    // The threads that write logs wait while a pipe is full.
    ioctl_fionbio(&file, false)?;
    Ok(file)
}

fn is_without_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, fcntl_getfl, mknodat};
    use std::os::fd::AsFd;

    #[test]
    fn a_pipe_without_a_reader_is_refused_and_one_with_a_reader_is_written() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a pipe");
        let target = LogTarget::File(path.clone());
        let refused = Output::open(&target).err().expect("refused").to_string();
        assert!(refused.contains("nobody reads"), "{refused}");
        let reader = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path)
            .expect("readable");
        let mut output = Output::open(&target).expect("there is a reader");
        output.write(b"a line\n").expect("written");
        let mut text = [0; 16];
        let length = io::Read::read(&mut &reader, &mut text).expect("readable");
        assert_eq!(&text[..length], b"a line\n");
        let Output::File(file) = output else {
            panic!("another output");
        };
        let flags = fcntl_getfl(file.as_fd()).expect("an open file");
        assert!(!flags.contains(OFlags::NONBLOCK), "a full pipe must block");
    }
}
