//! Who is at the other end of a connection, as an extension of each of its requests.

use std::fmt;
use std::net::SocketAddr;

#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// A program of this machine that may open the local socket.
    Local,
    Remote(SocketAddr),
}

impl fmt::Display for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => formatter.write_str("local"),
            Self::Remote(address) => address.fmt(formatter),
        }
    }
}
