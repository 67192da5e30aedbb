//! Notifies systemd (`Type=notify`) when the process serves and when it stops. The first message contains the process
//! id, so that systemd knows the main process after an upgrade. Each message is a datagram to the socket that
//! `NOTIFY_SOCKET` names. If that variable is not set, nothing is sent.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub(crate) fn tell_ready() {
    tell(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

pub(crate) fn tell_stopping() {
    tell("STOPPING=1\n");
}

fn tell(text: &str) {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&name, text) {
        tracing::warn!(%error, socket = name, "the service manager cannot be told");
    }
}

fn send(name: &str, text: &str) -> io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reaches_the_socket() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        send(path.to_str().expect("text"), "READY=1\n").expect("sent");
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).expect("a message");
        assert_eq!(&buffer[..length], b"READY=1\n");
    }
}
