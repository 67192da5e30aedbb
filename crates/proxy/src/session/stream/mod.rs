//! Streams: TCP connections and UDP sessions that are forwarded unchanged (`stream_listen`). Their route is found by
//! addresses and server name. On listeners with `ssl` the server name is read from the client hello, before it is
//! decided who terminates TLS.
//! Sources: kong/runloop/handler.lua (preread), kong/templates/nginx_kong_stream.lua.
//!
//! `router::StreamRouter` matches the routes. [`record`] runs the plugins of a session and logs it. [`relay`] forwards
//! bytes once both connections are open.

mod record;
mod relay;
mod tcp;
mod udp;

pub(super) use tcp::serve_stream;
pub(super) use udp::serve_datagrams;

use super::connect::{ConnectError, resolve};
use super::failure::Owner;
use super::handshake::HandshakeError;
use crate::balance::{HashSource, NoPeer, PickInput, Tried};
use crate::plugins::streams::Closed;
use crate::snapshot::{Chosen, ServiceRef, StreamRoute};
use model::entities::Protocol;
use net::peek::PeekError;
use plugin::Reason;
use record::Record;
use std::net::{IpAddr, SocketAddr};
use tokio::time::Instant;

/// The status of a try that has failed, also by a timeout.
const BAD_GATEWAY: u16 = 502;

/// The reason why a stream ends before it reaches an upstream. Clients see only a closed connection. The log shows the
/// status that Kong logs in the same case.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("no Route found with those values")]
    NoRoute,
    #[error("unexpected protocols in matched Route")]
    Protocol,
    #[error("no Service found with those values")]
    NoService,
    #[error(transparent)]
    Plugin(#[from] Closed),
    /// With the reason why the last try has failed, if there was one.
    #[error("{0}")]
    NoPeer(NoPeer, Option<Reason>),
    #[error(transparent)]
    Upstream(#[from] ConnectError),
    #[error("handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error(transparent)]
    Peek(#[from] PeekError),
    #[error("client took too long")]
    TooSlow,
    #[error("a plugin took too long")]
    PluginTooSlow,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Refusal {
    fn status(&self) -> u16 {
        match self {
            Self::NoRoute | Self::Protocol | Self::PluginTooSlow | Self::Io(_) => 500,
            Self::Plugin(closed) => closed.end.status,
            Self::NoService | Self::NoPeer(..) => 503,
            Self::Upstream(ConnectError::Resolve(_)) => 503,
            Self::Upstream(_) => BAD_GATEWAY,
            Self::Handshake(_) | Self::Peek(_) | Self::TooSlow => 400,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::NoRoute => Reason::NoRoute,
            Self::Protocol => Reason::WrongProtocol,
            Self::NoService => Reason::NoService,
            Self::Plugin(closed) if closed.has_failed => Reason::PluginFailed,
            Self::Plugin(_) => Reason::Plugin,
            Self::PluginTooSlow => Reason::PluginFailed,
            Self::NoPeer(_, failed) => failed.unwrap_or(Reason::NoHealthyTarget),
            Self::Upstream(error) => error.reason(),
            Self::Handshake(_) => Reason::ClientTlsFailed,
            Self::Peek(PeekError::Ended(_)) => Reason::ClientGone,
            Self::Peek(_) => Reason::BadRequest,
            Self::TooSlow => Reason::ClientTimeout,
            Self::Io(_) => Reason::Internal,
        }
    }

    /// Returns the text that the client receives before the session is closed. A text with a status that says that the
    /// session was refused is only logged, as in Kong.
    fn message(&self) -> &str {
        match self {
            Self::Plugin(closed) if closed.end.status < 400 => &closed.end.message,
            _ => "",
        }
    }

    /// Logs the refusal, at debug level if any client can cause it (a port scan, for example).
    fn tell(&self, what: &str, client: SocketAddr) {
        let status = self.status();
        match self {
            Self::NoRoute
            | Self::Plugin(_)
            | Self::Handshake(_)
            | Self::Peek(_)
            | Self::TooSlow
            | Self::Io(_) => {
                tracing::debug!(%client, status, "{what} closed: {self}");
            }
            _ => tracing::warn!(%client, status, "{what} closed: {self}"),
        }
    }
}

/// The side that terminates TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Termination {
    Here,
    Upstream,
}

/// Decides who terminates TLS for a route that was found on a listener with `ssl`.
fn termination(route: &StreamRoute) -> Result<Termination, Refusal> {
    if route.protocols.contains(Protocol::Tls) {
        Ok(Termination::Here)
    } else if route.protocols.contains(Protocol::TlsPassthrough) {
        Ok(Termination::Upstream)
    } else {
        Err(Refusal::Protocol)
    }
}

impl From<HandshakeError> for Refusal {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Tls(error) => Self::Handshake(error),
            HandshakeError::Plugin(closed) => Self::Plugin(closed),
        }
    }
}

/// The attributes of a stream that the load balancer can hash: only the client's address.
struct Hashed(IpAddr);

impl HashSource for Hashed {
    fn ip(&self) -> IpAddr {
        self.0
    }
}

/// The attempts to reach a target of a service. Each one avoids the targets and addresses of the failed ones.
struct Attempts<'s> {
    service: ServiceRef<'s>,
    input: PickInput,
    failed_at: Tried,
    failed_addresses: Vec<SocketAddr>,
    /// Why the last try has failed.
    failed: Option<Reason>,
    now: Instant,
}

impl<'s> Attempts<'s> {
    fn new(service: ServiceRef<'s>, client: IpAddr) -> Self {
        let hashing = service.hashing();
        let key = hashing.map_or(0, |hashing| hashing.key(&Hashed(client)).hash);
        Self {
            service,
            input: PickInput { key },
            failed_at: Tried::default(),
            failed_addresses: Vec::new(),
            failed: None,
            now: Instant::now(),
        }
    }

    /// Picks the next target and the address to try. A name that does not resolve is final, even if retries are left.
    async fn next(&mut self, record: &mut Record) -> Result<(Chosen<'s>, SocketAddr), Refusal> {
        let began = Instant::now();
        let picked = self.service.pick_resolved(self.input, &self.failed_at);
        let picked = picked.await;
        let target = picked.map_err(|error| Refusal::NoPeer(error, self.failed))?;
        let address = resolve(&target, &self.failed_addresses, &mut self.now).await?;
        record.begin_try(address, began);
        Ok((target, address))
    }

    /// Counts a failure against the target's health. Returns the error if no retry is left, or if the client caused the
    /// failure.
    fn failed(
        &mut self,
        target: Chosen<'s>,
        address: SocketAddr,
        error: ConnectError,
        record: &mut Record,
    ) -> Result<(), Refusal> {
        record.fail_try(BAD_GATEWAY);
        self.failed = Some(error.reason());
        if let Some(outcome) = error.outcome() {
            target.report(outcome);
        }
        if self.failed_addresses.len() >= usize::from(target.retries)
            || error.owner() == Owner::Client
        {
            return Err(error.into());
        }
        self.failed_addresses.push(address);
        target.avoid(&mut self.failed_at);
        Ok(())
    }
}
