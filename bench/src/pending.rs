//! A buffer for bytes that a socket did not accept at once. It is nearly always empty, because bytes go directly to the
//! socket.

use std::io::{self, ErrorKind, Write};

#[derive(Default)]
pub struct Pending {
    bytes: Vec<u8>,
    /// Number of bytes at the start that were already sent. Removing them after every write would copy a large response
    /// many times.
    sent: usize,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Sends bytes after those that are already pending.
    pub fn send(&mut self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
        let sent = if self.is_empty() {
            write(socket, bytes)?
        } else {
            0
        };
        self.bytes.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends as many pending bytes as the socket accepts.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.sent += write(socket, &self.bytes[self.sent..])?;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
        Ok(())
    }
}

/// Writes to a socket. A socket that is not connected yet accepts nothing.
fn write(socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    match socket.write(bytes) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::NotConnected
            ) =>
        {
            Ok(0)
        }
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that accepts a limited number of bytes, until the test adds room.
    struct Socket {
        room: usize,
        taken: Vec<u8>,
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let length = bytes.len().min(self.room);
            self.room -= length;
            self.taken.extend_from_slice(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_leave_in_order_as_there_is_room() {
        let mut socket = Socket {
            room: 3,
            taken: Vec::new(),
        };
        let mut pending = Pending::default();
        pending.send(&mut socket, b"one").unwrap();
        assert!(pending.is_empty());
        pending.send(&mut socket, b"two").unwrap();
        socket.room = 2;
        pending.send(&mut socket, b"three").unwrap();
        assert!(!pending.is_empty());
        while !pending.is_empty() {
            pending.flush(&mut socket).unwrap();
            socket.room = 2;
        }
        assert_eq!(socket.taken, b"onetwothree");
    }
}
