//! The Unix sockets in the prefix. Programs on this machine use them to reach the Admin API and to follow revisions.
//! The socket files have mode 0600 and belong to the gateway's user, so whoever can open them counts as the operator.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// File name of the Admin API socket.
pub(crate) const ADMIN: &str = "admin.sock";
/// File name of the socket for processes that follow revisions.
pub(crate) const EVENTS: &str = "events.sock";

/// Listens on a socket in a prefix that this process has claimed. A rename replaces the socket file of a dead or
/// previous process in one step, so that every client reaches one of the two processes.
pub(crate) fn listen(prefix: &Path, name: &str) -> io::Result<UnixListener> {
    // Create the socket in a private directory, so that nobody else can connect before its mode is set.
    let nursery = prefix.join(format!("{name}.new"));
    remove(&nursery)?;
    DirBuilder::new().mode(0o700).create(&nursery)?;
    let made = nursery.join(name);
    let listener = with_short_name(&nursery, |nursery| UnixListener::bind(nursery.join(name)))?;
    fs::set_permissions(&made, Permissions::from_mode(0o600))?;
    fs::rename(&made, prefix.join(name))?;
    fs::remove_dir(&nursery)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Removes a directory that a crash may have left behind.
fn remove(nursery: &Path) -> io::Result<()> {
    match fs::remove_dir_all(nursery) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

pub(crate) fn connect(prefix: &Path, name: &str) -> io::Result<UnixStream> {
    with_short_name(prefix, |prefix| UnixStream::connect(prefix.join(name)))
}

/// Removes the sockets. Called when the gateway of the prefix ends without a successor.
pub(crate) fn forget(prefix: &Path) {
    for name in [ADMIN, EVENTS] {
        // A remaining file does no harm: connections to it are refused.
        let _ = fs::remove_file(prefix.join(name));
    }
}

/// Calls `act` with a short path of the directory, because socket paths can have at most 107 bytes. On systems with
/// `/proc`, that is the path of its open descriptor.
fn with_short_name<T>(directory: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let opened = File::open(directory)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    if short.exists() {
        act(&short)
    } else {
        act(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_may_connect_and_the_newest_has_the_name() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let prefix = directory.path().join("p".repeat(200));
        fs::create_dir(&prefix).expect("writable");
        // A crash leaves a file and a directory behind.
        fs::write(prefix.join(ADMIN), "").expect("writable");
        fs::create_dir(prefix.join("admin.sock.new")).expect("writable");
        let first = listen(&prefix, ADMIN).expect("a socket");
        let mode = fs::metadata(prefix.join(ADMIN))
            .expect("there")
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        connect(&prefix, ADMIN).expect("somebody listens");
        first.accept().expect("a connection");
        let second = listen(&prefix, ADMIN).expect("a socket");
        connect(&prefix, ADMIN).expect("somebody listens");
        second.accept().expect("a connection");
        let error = first.accept().expect_err("nobody comes here any more");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let left = fs::read_dir(&prefix).expect("readable").count();
        assert_eq!(left, 1, "nothing but the socket is left");
    }
}
