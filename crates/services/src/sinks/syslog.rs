//! Sends lines to the system's log as syslog(3) does: in datagrams, or on a stream if the log has a socket for streams.

use super::rest::Unsent;
use crate::queue::{SendError, Sender, Text};
use rustix::io::Errno;
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixDatagram, UnixStream};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Maximum time until the log accepts a line.
const PATIENCE: Duration = Duration::from_secs(10);

/// The importance of a message. The numbers are those of syslog(3): the most important has the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Emerg,
    Alert,
    Crit,
    Err,
    Warning,
    Notice,
    Info,
    Debug,
}

/// The part of the system that a message is from. The numbers are those of syslog(3), divided by 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Facility {
    Kern = 0,
    User = 1,
    Mail = 2,
    Daemon = 3,
    Auth = 4,
    Syslog = 5,
    Lpr = 6,
    News = 7,
    Uucp = 8,
    Cron = 9,
    Authpriv = 10,
    Ftp = 11,
    Local0 = 16,
    Local1 = 17,
    Local2 = 18,
    Local3 = 19,
    Local4 = 20,
    Local5 = 21,
    Local6 = 22,
    Local7 = 23,
}

impl Facility {
    /// Returns the number at the beginning of a message.
    pub fn priority(self, severity: Severity) -> u8 {
        (self as u8) * 8 + severity as u8
    }
}

struct Link {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    socket: Option<Socket>,
    unsent: Unsent,
}

/// A connection to the log.
enum Socket {
    Datagrams(UnixDatagram),
    Stream(UnixStream),
}

pub(super) fn sender(path: PathBuf) -> Sender<Text> {
    let link = Arc::new(Link {
        path,
        state: Mutex::default(),
    });
    Sender::of_texts(move |batch| {
        let link = link.clone();
        async move { link.send(&batch).await }
    })
}

impl Link {
    async fn send(&self, batch: &Arc<Vec<Text>>) -> Result<(), SendError> {
        let mut state = self.state.lock().await;
        let mut rest = state.unsent.of(batch);
        let mut too_large = 0;
        while let Some(line) = rest.line() {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            match self.message(&mut state.socket, text).await {
                Ok(()) => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::MSGSIZE) => {
                    too_large += 1;
                }
                Err(error) => {
                    state.socket = None;
                    state.unsent.keep(rest);
                    let path = self.path.display();
                    return Err(SendError::new(format!("cannot send to {path}: {error}")));
                }
            }
            let length = line.len();
            rest.advance(length);
        }
        match too_large {
            0 => Ok(()),
            lines => Err(SendError::lost(
                lines,
                "lines are too long for the system's log",
            )),
        }
    }

    async fn message(&self, socket: &mut Option<Socket>, text: &[u8]) -> io::Result<()> {
        let is_new = socket.is_none();
        let sent = self.attempt(socket, text).await;
        match sent {
            // The log was started anew.
            Err(error)
                if !is_new
                    && matches!(
                        error.kind(),
                        ErrorKind::ConnectionRefused
                            | ErrorKind::ConnectionReset
                            | ErrorKind::NotConnected
                            | ErrorKind::BrokenPipe
                    ) =>
            {
                *socket = None;
                self.attempt(socket, text).await
            }
            sent => sent,
        }
    }

    async fn attempt(&self, socket: &mut Option<Socket>, text: &[u8]) -> io::Result<()> {
        let open = match socket {
            Some(open) => open,
            None => socket.insert(timeout(PATIENCE, Socket::open(&self.path)).await??),
        };
        timeout(PATIENCE, open.send(text)).await?
    }
}

impl Socket {
    async fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        match socket.connect(path) {
            Ok(()) => Ok(Self::Datagrams(socket)),
            // The socket is one for streams.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTOTYPE) => {
                Ok(Self::Stream(UnixStream::connect(path).await?))
            }
            Err(error) => Err(error),
        }
    }

    async fn send(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Datagrams(socket) => socket.send(text).await.map(drop),
            // On a stream, a zero byte ends each message.
            Self::Stream(stream) => stream.write_all(&[text, b"\0"].concat()).await,
        }
    }
}
