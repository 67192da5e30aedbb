//! Who is at the other end of a connection, as an extension of each of its requests.

use std::net::SocketAddr;

#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// A program of this machine that may open the local socket.
    Local,
    Remote(SocketAddr),
}
