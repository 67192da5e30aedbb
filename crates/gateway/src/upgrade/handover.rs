//! Hands over listening sockets and locks from the running process to its successor. They pass through the Unix socket
//! that is the successor's standard input. First a description in JSON is sent, then the file descriptors, attached to
//! single bytes (SCM_RIGHTS).

use crate::sockets::{Inherited, InheritedSocket, Sockets};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Maximum number of descriptors in one message. Linux allows 253.
const DESCRIPTORS_AT_ONCE: usize = 64;
/// Maximum size of a description in bytes, more than any real one has.
const MAX_DESCRIPTION: u32 = 1 << 24;

#[derive(Debug, Serialize, Deserialize)]
struct Description {
    prefix: PathBuf,
    /// Directory of the store.
    store: PathBuf,
    /// Listeners in the order of their descriptors. The descriptors of the process id file and of the store's lock are
    /// sent before those of the listeners.
    listeners: Vec<Listener>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Listener {
    setting: String,
    configured: SocketAddr,
    address: SocketAddr,
    /// Whether this is a UDP listener. Versions without UDP did not send this field.
    #[serde(default)]
    udp: bool,
}

/// Everything that a process hands over to its successor.
pub(crate) struct Estate {
    pub(crate) prefix: PathBuf,
    pub(crate) store: PathBuf,
    /// The process id file, whose lock says that a process runs with the prefix.
    pub(crate) process_file: File,
    pub(crate) store_lock: File,
    pub(crate) inherited: Inherited,
}

/// Sends the description and all descriptors to the process at the other end.
pub(crate) fn give(
    mut stream: &UnixStream,
    prefix: &Path,
    store: &Path,
    locks: [&File; 2],
    sockets: &Sockets,
) -> io::Result<()> {
    let mut listeners = Vec::new();
    let mut descriptors: Vec<BorrowedFd<'_>> = locks.iter().map(|file| file.as_fd()).collect();
    for known in sockets.all() {
        descriptors.push(known.socket);
        listeners.push(Listener {
            setting: known.setting.to_owned(),
            configured: known.listen.address,
            address: known.address,
            udp: known.listen.udp,
        });
    }
    let description = Description {
        prefix: prefix.to_owned(),
        store: store.to_owned(),
        listeners,
    };
    let text = serde_json::to_vec(&description)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(&text)?;
    for some in descriptors.chunks(DESCRIPTORS_AT_ONCE) {
        attach(stream, some)?;
    }
    Ok(())
}

fn attach(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let carrier = [IoSlice::new(b"+")];
    loop {
        match sendmsg(stream, &carrier, &mut control, SendFlags::empty()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives everything that [`give`] sends.
pub(crate) fn take(mut stream: &UnixStream) -> io::Result<Estate> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > MAX_DESCRIPTION {
        return Err(invalid("a description of this length"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    let description: Description = serde_json::from_slice(&text)?;
    let count = 2 + description.listeners.len();
    let mut descriptors: Vec<OwnedFd> = Vec::with_capacity(count);
    while descriptors.len() < count {
        let before = descriptors.len();
        detach(stream, &mut descriptors)?;
        if descriptors.len() == before {
            return Err(invalid("fewer descriptors than were announced"));
        }
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || {
        descriptors
            .next()
            .ok_or_else(|| invalid("too few descriptors"))
    };
    let (process_file, store_lock) = (next()?.into(), next()?.into());
    let mut sockets = Vec::new();
    for listener in description.listeners {
        sockets.push(InheritedSocket {
            setting: listener.setting,
            configured: listener.configured,
            address: listener.address,
            udp: listener.udp,
            socket: next()?,
        });
    }
    Ok(Estate {
        prefix: description.prefix,
        store: description.store,
        process_file,
        store_lock,
        inherited: Inherited(sockets),
    })
}

fn detach(stream: &UnixStream, descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = [0];
    let received = loop {
        let mut into = [IoSliceMut::new(&mut carrier)];
        match recvmsg(stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "not all file descriptors arrived: the limit of open files (RLIMIT_NOFILE) is too low for the listeners",
        ));
    }
    Ok(())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::Bound;
    use net::listen::{Listen, bind};
    use std::net::TcpListener;

    #[test]
    fn files_and_sockets_arrive_as_they_were_given() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str| File::create(directory.path().join(name)).expect("writable");
        let listen: Listen = "127.0.0.1:0".parse().expect("an address");
        // More sockets than fit into one message.
        let sockets = bind(&listen, 70).expect("a free port");
        let address = sockets[0].local_addr().expect("a bound address");
        let bound = Bound {
            setting: "proxy_listen",
            listen,
            address,
            sockets,
        };
        let sockets = Sockets {
            proxy: vec![bound],
            ..Sockets::default()
        };
        let (here, there) = UnixStream::pair().expect("a pair");
        let (process, lock) = (file("pid"), file("lock"));
        give(
            &here,
            Path::new("/p"),
            Path::new("/p/s"),
            [&process, &lock],
            &sockets,
        )
        .expect("given");
        let mut estate = take(&there).expect("taken");
        assert_eq!((estate.prefix, estate.store), ("/p".into(), "/p/s".into()));
        assert_eq!(estate.inherited.0.len(), 70);
        for one in estate.inherited.0 {
            let socket = TcpListener::from(one.socket);
            assert_eq!(socket.local_addr().expect("bound"), address);
        }
        estate.process_file.write_all(b"7").expect("the same file");
        let text = std::fs::read_to_string(directory.path().join("pid")).expect("readable");
        assert_eq!(text, "7");
    }

    #[test]
    fn lost_descriptors_are_an_error() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let file = tempfile::tempfile().expect("a temporary file");
        // The receiver has room for fewer descriptors than this. The kernel drops the others, as it does if the process
        // may not open more files.
        let sent: Vec<_> = vec![file.as_fd(); 2 * DESCRIPTORS_AT_ONCE];
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * DESCRIPTORS_AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        let carrier = [IoSlice::new(b"+")];
        sendmsg(&here, &carrier, &mut control, SendFlags::empty()).expect("sent");
        let error = detach(&there, &mut Vec::new()).expect_err("descriptors are lost");
        assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    }

    #[test]
    fn invalid_data_is_refused() {
        for bytes in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x02{}", b"\0\0"] {
            let (mut here, there) = UnixStream::pair().expect("a pair");
            here.write_all(bytes).expect("sent");
            drop(here);
            assert!(take(&there).is_err());
        }
    }
}
