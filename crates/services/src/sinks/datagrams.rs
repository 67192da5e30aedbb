//! Sends lines to a UDP server, without their line ends.

use super::rest::Unsent;
use crate::http::ConnectError;
use crate::http::connect::address;
use crate::queue::{SendError, Sender, Text};
use net::dns::Host;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::Mutex;

/// A UDP server.
#[derive(Debug, Clone)]
pub struct Udp {
    pub host: String,
    pub port: u16,
    /// Maximum time to resolve the name.
    pub timeout: Duration,
    /// Size up to which lines of a batch share a datagram. 0: each line has one of its own.
    pub packet_size: usize,
}

struct Link {
    host: Arc<Host>,
    timeout: Duration,
    packet_size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The socket, with the address that it is connected to.
    socket: Option<(SocketAddr, UdpSocket)>,
    packet: Vec<u8>,
    unsent: Unsent,
}

pub(super) fn sender(server: &Udp, host: Arc<Host>) -> Sender<Text> {
    let link = Arc::new(Link {
        host,
        timeout: server.timeout,
        packet_size: server.packet_size,
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
        let State {
            socket,
            packet,
            unsent,
        } = &mut *state;
        let mut rest = unsent.of(batch);
        let mut too_large = 0;
        if let Err(error) = self.open(socket).await {
            unsent.keep(rest);
            return Err(SendError::new(format!(
                "cannot send to {}: {error}",
                self.place()
            )));
        }
        let failed = loop {
            packet.clear();
            let mut taken = 0;
            while let Some(line) = rest.bytes().and_then(|bytes| line_at(bytes, taken)) {
                let joined = packet.len() + usize::from(taken > 0) + line.len();
                if taken > 0 && joined > self.packet_size {
                    break;
                }
                if taken > 0 {
                    packet.push(b'\n');
                }
                packet.extend_from_slice(line);
                taken += line.len() + 1;
            }
            if taken == 0 {
                break None;
            }
            let Some((_, open)) = socket else {
                break None;
            };
            match send(open, packet).await {
                Ok(()) => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::MSGSIZE) => {
                    too_large += 1;
                }
                Err(error) => break Some(error),
            }
            rest.advance(taken);
        };
        if let Some(error) = failed {
            *socket = None;
            unsent.keep(rest);
            return Err(SendError::new(format!(
                "cannot send to {}: {error}",
                self.place()
            )));
        }
        if too_large > 0 {
            let reason = format!("lines to {} are too long for a datagram", self.place());
            return Err(SendError::lost(too_large, reason));
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("{}:{}", self.host.name(), self.host.port())
    }

    /// Opens a socket, unless there is one to the address that the name has now.
    async fn open(&self, socket: &mut Option<(SocketAddr, UdpSocket)>) -> Result<(), ConnectError> {
        let address = address(&self.host, self.timeout, &[]).await?;
        if socket.as_ref().is_none_or(|(known, _)| *known != address) {
            let opened = connect(address).await;
            *socket = Some((
                address,
                opened.map_err(|error| ConnectError::Tcp(Arc::new(error)))?,
            ));
        }
        Ok(())
    }
}

/// Sends a datagram. That nobody has received an earlier one is reported here, and ignored.
async fn send(socket: &UdpSocket, packet: &[u8]) -> io::Result<()> {
    for _ in 0..2 {
        match socket.send(packet).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            sent => return sent.map(drop),
        }
    }
    Ok(())
}

/// Returns the line that begins at this byte, without its end.
fn line_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
    let end = rest.iter().position(|byte| *byte == b'\n');
    Some(&rest[..end.unwrap_or(rest.len())])
}

async fn connect(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}
