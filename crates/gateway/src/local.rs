//! The socket in the prefix over which programs of this machine always reach the Admin API. Whoever may open its file is the
//! operator: it is made with mode 0600, and belongs to the user that the gateway runs as.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const SOCKET: &str = "admin.sock";
/// Where it is made, for nobody else to be able to connect before its mode is set.
const NURSERY: &str = "admin.sock.new";

/// Listens in a prefix that this process has claimed. The name is taken from a dead process, or from the one that this one
/// takes over from, in one step: whoever connects reaches one or the other.
pub(crate) fn listen(prefix: &Path) -> io::Result<UnixListener> {
    let nursery = prefix.join(NURSERY);
    remove(&nursery)?;
    DirBuilder::new().mode(0o700).create(&nursery)?;
    let made = nursery.join(SOCKET);
    let listener = with_short_name(&nursery, |nursery| UnixListener::bind(nursery.join(SOCKET)))?;
    fs::set_permissions(&made, Permissions::from_mode(0o600))?;
    fs::rename(&made, prefix.join(SOCKET))?;
    fs::remove_dir(&nursery)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What a crash may have left.
fn remove(nursery: &Path) -> io::Result<()> {
    match fs::remove_dir_all(nursery) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

pub(crate) fn connect(prefix: &Path) -> io::Result<UnixStream> {
    with_short_name(prefix, |prefix| UnixStream::connect(prefix.join(SOCKET)))
}

/// The gateway of the prefix ends, and nobody has taken over from it.
pub(crate) fn forget(prefix: &Path) {
    // A name that is left behind leads to nobody, which is what connecting then says.
    let _ = fs::remove_file(prefix.join(SOCKET));
}

/// Sockets have names of at most 107 bytes. Through its descriptor a directory has a short one, where the system has that.
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
        // A crash has left both.
        fs::write(prefix.join(SOCKET), "").expect("writable");
        fs::create_dir(prefix.join(NURSERY)).expect("writable");
        let first = listen(&prefix).expect("a socket");
        let mode = fs::metadata(prefix.join(SOCKET))
            .expect("there")
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        connect(&prefix).expect("somebody listens");
        first.accept().expect("a connection");
        let second = listen(&prefix).expect("a socket");
        connect(&prefix).expect("somebody listens");
        second.accept().expect("a connection");
        let error = first.accept().expect_err("nobody comes here any more");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let left = fs::read_dir(&prefix).expect("readable").count();
        assert_eq!(left, 1, "nothing but the socket is left");
    }
}
