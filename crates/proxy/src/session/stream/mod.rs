//! Streams: connections and sessions of datagrams that are passed on as they are (`stream_listen`). The route is found by addresses
//! and server name; on listeners with `ssl` by the name in the client hello, before it is decided who answers that. Sources:
//! kong/runloop/handler.lua (preread), kong/templates/nginx_kong_stream.lua.
//!
//! Not here: what a route is found by (`router::StreamRouter`), and how bytes move once both connections are there ([`relay`]).

mod relay;
mod tcp;
mod udp;

pub(super) use tcp::serve_stream;
pub(super) use udp::serve_datagrams;

use super::connect::ConnectError;
use crate::balance::{HashSource, NoPeer, PickInput};
use crate::health::Outcome;
use crate::snapshot::{ServiceRef, Snapshot, StreamRoute};
use model::entities::Protocol;
use net::listen::is_out_of_descriptors;
use router::StreamRequest;
use std::net::{IpAddr, SocketAddr};

/// Why a stream ends before it reaches an upstream. Clients only see the end; the number is what Kong logs as status.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("no Route found with those values")]
    NoRoute,
    #[error("unexpected protocols in matched Route")]
    Protocol,
    #[error("no Service found with those values")]
    NoService,
    #[error("plugin {0} cannot look at streams: nothing that it applies to may pass")]
    Guarded(&'static str),
    #[error(transparent)]
    NoPeer(#[from] NoPeer),
    #[error(transparent)]
    Upstream(#[from] ConnectError),
    #[error("handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error(transparent)]
    Peek(#[from] net::peek::PeekError),
    #[error("client took too long")]
    TooSlow,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Refusal {
    fn status(&self) -> u16 {
        match self {
            Self::NoRoute | Self::Protocol | Self::Guarded(_) | Self::Io(_) => 500,
            Self::NoService | Self::NoPeer(_) => 503,
            Self::Upstream(ConnectError::Resolve(_)) => 503,
            Self::Upstream(_) => 502,
            Self::Handshake(_) | Self::Peek(_) | Self::TooSlow => 400,
        }
    }

    /// What any client can bring about must not fill the log.
    fn tell(&self, what: &str, client: SocketAddr) {
        let status = self.status();
        match self {
            Self::NoRoute | Self::Handshake(_) | Self::Peek(_) | Self::TooSlow | Self::Io(_) => {
                tracing::info!(%client, status, "{what} closed: {self}");
            }
            _ => tracing::warn!(%client, status, "{what} closed: {self}"),
        }
    }
}

/// Who answers the client hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Termination {
    Here,
    Upstream,
}

/// Of a route that was found on a listener with `ssl`.
fn termination(route: &StreamRoute) -> Result<Termination, Refusal> {
    if route.protocols.contains(Protocol::Tls) {
        Ok(Termination::Here)
    } else if route.protocols.contains(Protocol::TlsPassthrough) {
        Ok(Termination::Upstream)
    } else {
        Err(Refusal::Protocol)
    }
}

fn find<'s>(
    snapshot: &'s Snapshot,
    request: &StreamRequest<'_>,
) -> Result<&'s StreamRoute, Refusal> {
    let route = snapshot.stream_route(request).ok_or(Refusal::NoRoute)?;
    match route.guard {
        Some(name) => Err(Refusal::Guarded(name)),
        None => Ok(route),
    }
}

/// A stream as the balancer asks for it: it has nothing but an address.
struct Hashed(IpAddr);

impl HashSource for Hashed {
    fn ip(&self) -> IpAddr {
        self.0
    }
}

fn pick_input(service: ServiceRef<'_>, client: IpAddr) -> PickInput {
    let hashing = service.hashing();
    let key = hashing.map_or(0, |hashing| hashing.key(&Hashed(client)).hash);
    PickInput { key }
}

/// What a failed try tells of its peer.
fn outcome(error: &ConnectError) -> Option<Outcome> {
    match error {
        ConnectError::Timeout => Some(Outcome::Timeout),
        ConnectError::Resolve(_) => None,
        // Ours, not the target's.
        ConnectError::Refused(cause) if is_out_of_descriptors(cause) => None,
        _ => Some(Outcome::TcpFailure),
    }
}
