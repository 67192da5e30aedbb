//! Shows other processes which gateway runs with a prefix. The gateway writes its process id to a file in the prefix
//! and keeps the file locked while it lives. Only the lock proves that a gateway runs. The id alone proves nothing,
//! because a crash may leave the file behind, and the system may reuse the id.

use crate::local;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PID_FILE: &str = "silverback.pid";
const ADDRESSES_FILE: &str = "silverback.addresses.json";
/// File with the reason why the last upgrade failed, for the waiting `silverback upgrade`.
const FAILURE_FILE: &str = "silverback.upgrade-failed";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of times that a start tries to lock the file. Commands such as `stop` lock it for a moment to find out
/// whether a gateway runs.
const CLAIM_TRIES: u32 = 10;
const CLAIM_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum InstanceError {
    #[error(
        "cannot write to the working directory {path}: {source}; the setting `prefix` (flag --prefix) names another"
    )]
    Prefix { path: PathBuf, source: io::Error },
    #[error(
        "a gateway with prefix {prefix} is already running, process {pid}; \
         `silverback stop --prefix {prefix}` ends it, another `prefix` allows a second one"
    )]
    Running { prefix: PathBuf, pid: i32 },
    #[error("{}", not_running(.0))]
    NotRunning(PathBuf),
    #[error("cannot signal process {pid}: {source}")]
    Signal { pid: i32, source: io::Error },
    #[error("process {pid} has not ended after {} s", timeout.as_secs())]
    StillRunning { pid: i32, timeout: Duration },
    #[error("process {pid} keeps running: {reason}")]
    NotUpgraded { pid: i32, reason: String },
    #[error("process {pid} has not been replaced after {} s; its log tells more", timeout.as_secs())]
    NotReplaced { pid: i32, timeout: Duration },
}

/// Returns the error text for a prefix without a running gateway. It names what the user can do.
pub(crate) fn not_running(prefix: &Path) -> String {
    let prefix = prefix.display();
    format!(
        "no gateway is running with prefix {prefix}; start one (`silverback start --prefix {prefix}`), \
         or name the prefix of the running one with --prefix"
    )
}

/// This process's claim on a prefix. Dropping it removes the published files and lets the next process claim the
/// prefix.
#[derive(Debug)]
pub(crate) struct Instance {
    prefix: PathBuf,
    /// Kept open because closing it releases the lock.
    file: File,
    /// Whether another process shares the claim and owns the files in the prefix.
    is_handed_over: bool,
}

impl Instance {
    /// Creates the prefix if it does not exist, and claims it.
    pub(crate) fn claim(prefix: &Path) -> Result<Self, InstanceError> {
        Self::claim_patiently(prefix, &mut || std::thread::sleep(CLAIM_INTERVAL))
    }

    /// Claims the prefix. Calls `pause` between two tries.
    fn claim_patiently(prefix: &Path, pause: &mut dyn FnMut()) -> Result<Self, InstanceError> {
        let prefix_error = |source| InstanceError::Prefix {
            path: prefix.to_owned(),
            source,
        };
        fs::create_dir_all(prefix).map_err(prefix_error)?;
        let mut file = open_pid_file(prefix).map_err(prefix_error)?;
        let mut locked = file.try_lock();
        for _ in 1..CLAIM_TRIES {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            pause();
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(InstanceError::Running {
                    prefix: prefix.to_owned(),
                    pid: read_pid(&mut file).unwrap_or(0),
                });
            }
            Err(TryLockError::Error(source)) => return Err(prefix_error(source)),
        }
        write_pid(&mut file).map_err(prefix_error)?;
        Ok(Self {
            prefix: prefix.to_owned(),
            file,
            is_handed_over: false,
        })
    }

    /// Inherits the claim of the previous process. Its lock belongs to the open file, which both processes share. Other
    /// processes still see the previous process until [`Instance::take_over`].
    pub(crate) fn inherit(prefix: &Path, file: File) -> Self {
        Self {
            prefix: prefix.to_owned(),
            file,
            is_handed_over: true,
        }
    }

    /// Makes this process the gateway of the prefix. From then on, other processes find its id in the file.
    pub(crate) fn take_over(&mut self) -> io::Result<()> {
        self.is_handed_over = false;
        write_pid(&mut self.file)
    }

    /// The process id file, whose lock is the claim.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives up the claim but leaves all files, because another process is now the gateway of the prefix.
    pub(crate) fn hand_over(mut self) {
        self.is_handed_over = true;
    }

    /// Writes the reason of a failed upgrade to a file for the waiting `silverback upgrade`.
    pub(crate) fn publish_failed_upgrade(&self, reason: &str) {
        if let Err(error) = write_whole(&self.prefix, FAILURE_FILE, reason) {
            tracing::warn!(%error, "cannot write to the prefix");
        }
    }

    /// Writes the addresses that the gateway listens on to a file in the prefix. They include the free ports chosen for
    /// port 0. If writing fails, for example on a full disk, the gateway serves all the same. Then the file is removed,
    /// so that it never holds the addresses of the previous process. It is an error if no more files can be opened: the
    /// gateway could not accept a connection either.
    pub(crate) fn publish_addresses(&self, addresses: &serde_json::Value) -> io::Result<()> {
        let written = write_whole(&self.prefix, ADDRESSES_FILE, &format!("{addresses}\n"));
        match written {
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot write {ADDRESSES_FILE} to the prefix");
                let _ = fs::remove_file(self.prefix.join(ADDRESSES_FILE));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Writes a temporary file and renames it, so that a waiting process never reads half of the text.
fn write_whole(prefix: &Path, name: &str, text: &str) -> io::Result<()> {
    let partial = prefix.join(format!("{name}.partial"));
    fs::write(&partial, text)?;
    fs::rename(&partial, prefix.join(name))
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.is_handed_over {
            let _ = fs::remove_file(self.prefix.join(ADDRESSES_FILE));
            local::forget(&self.prefix);
        }
        // Keep the lock file. If it were removed, two processes could lock two different files of the same name.
    }
}

/// Stops the gateway of a prefix, waits until it has released the prefix, and returns its process id.
pub(crate) fn stop(prefix: &Path, timeout: Duration) -> Result<i32, InstanceError> {
    let (mut file, pid) = running(prefix)?;
    send(pid, Signal::TERM)?;
    let deadline = Instant::now() + timeout;
    while !is_free(&mut file) {
        if Instant::now() >= deadline {
            return Err(InstanceError::StillRunning { pid, timeout });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(pid)
}

/// Returns the process id of the gateway of a prefix.
pub(crate) fn process(prefix: &Path) -> Result<i32, InstanceError> {
    running(prefix).map(|(_, pid)| pid)
}

/// Makes the gateway of a prefix start the installed binary, and waits until the new process has taken over. Returns
/// the ids of the old and the new process.
pub(crate) fn upgrade(prefix: &Path, timeout: Duration) -> Result<(i32, i32), InstanceError> {
    let (mut file, pid) = running(prefix)?;
    let failure = prefix.join(FAILURE_FILE);
    let _ = fs::remove_file(&failure);
    send(pid, Signal::USR2)?;
    let deadline = Instant::now() + timeout;
    loop {
        match read_pid(&mut file) {
            Some(new) if new != pid => return Ok((pid, new)),
            _ => {}
        }
        if let Ok(reason) = fs::read_to_string(&failure) {
            return Err(InstanceError::NotUpgraded { pid, reason });
        }
        if is_free(&mut file) {
            return Err(InstanceError::NotRunning(prefix.to_owned()));
        }
        if Instant::now() >= deadline {
            return Err(InstanceError::NotReplaced { pid, timeout });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns whether the process whose id is in the file of a prefix exists. This is less certain than the lock, but
/// trying the lock would hold it for a moment.
pub(crate) fn lives(prefix: &Path) -> bool {
    let file = File::open(prefix.join(PID_FILE));
    let pid = file.ok().and_then(|mut file| read_pid(&mut file));
    let pid = pid.and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

fn running(prefix: &Path) -> Result<(File, i32), InstanceError> {
    let not_running = || InstanceError::NotRunning(prefix.to_owned());
    let mut file = File::open(prefix.join(PID_FILE)).map_err(|_| not_running())?;
    if is_free(&mut file) {
        return Err(not_running());
    }
    let pid = read_pid(&mut file).ok_or_else(not_running)?;
    Ok((file, pid))
}

/// Returns whether no gateway holds the lock. This holds the lock for a moment, which [`Instance::claim`] allows for.
/// Another way would not be certain: after an upgrade several processes share the lock, and one of them is in the file.
fn is_free(file: &mut File) -> bool {
    let free = file.try_lock().is_ok();
    if free {
        let _ = file.unlock();
    }
    free
}

fn send(pid: i32, signal: Signal) -> Result<(), InstanceError> {
    let target = Pid::from_raw(pid).ok_or(InstanceError::Signal {
        pid,
        source: io::ErrorKind::InvalidData.into(),
    })?;
    kill_process(target, signal).map_err(|error| InstanceError::Signal {
        pid,
        source: error.into(),
    })
}

fn open_pid_file(prefix: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(prefix.join(PID_FILE))
}

fn read_pid(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Overwrites the file in one write, so that a concurrent reader never finds it empty.
fn write_pid(file: &mut File) -> io::Result<()> {
    let text = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_claimed_once() {
        let prefix = tempfile::tempdir().expect("a temporary directory");
        let first = Instance::claim(prefix.path()).expect("a free prefix");
        let refused = Instance::claim(prefix.path()).expect_err("claimed twice");
        let text = refused.to_string();
        assert!(text.contains("already running"), "{text}");
        let command = format!("`silverback stop --prefix {}`", prefix.path().display());
        assert!(text.contains(&command), "{text}");
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        drop(first);
        Instance::claim(prefix.path()).expect("free again");
    }

    #[test]
    fn a_command_that_tries_the_lock_does_not_make_a_start_fail() {
        let prefix = tempfile::tempdir().expect("a temporary directory");
        let tried = open_pid_file(prefix.path()).expect("writable");
        tried.try_lock().expect("free");
        let mut unlock = || tried.unlock().expect("locked");
        Instance::claim_patiently(prefix.path(), &mut unlock).expect("free in the end");
    }

    #[test]
    fn a_file_without_its_process_is_no_gateway() {
        let prefix = tempfile::tempdir().expect("a temporary directory");
        let stopped = || stop(prefix.path(), Duration::ZERO);
        assert!(matches!(stopped(), Err(InstanceError::NotRunning(_))));
        fs::write(prefix.path().join(PID_FILE), "1\n").expect("writable");
        assert!(matches!(stopped(), Err(InstanceError::NotRunning(_))));
    }

    #[test]
    fn a_prefix_that_cannot_be_written_names_the_setting() {
        let text = Instance::claim(Path::new("/dev/null/prefix"))
            .expect_err("no directory")
            .to_string();
        assert!(text.contains("`prefix`"), "{text}");
    }
}
