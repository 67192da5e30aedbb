//! Obtains a connection to a target: an idle one if possible, otherwise a new one.

use super::failure::Owner;
use super::multiplex;
use super::plane::SessionSettings;
use super::tries::Tries;
use super::worker::{self, Worker};
use crate::health;
use crate::upstream::{Http2, Target};
use net::dns::{Next, ResolveError};
use net::http2::DialFailure;
use net::listen::is_out_of_descriptors;
use net::pool::{Connection as Upstream, Open};
use net::stream::Stream;
use net::tls::{Offer, is_about_name};
use plugin::Reason;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error("cannot connect")]
    Refused(#[source] Arc<io::Error>),
    /// The TCP connection was opened, but TLS or the negotiation of the protocol failed.
    #[error("handshake failed")]
    Handshake {
        #[source]
        cause: Arc<io::Error>,
        owner: Owner,
    },
    #[error("connecting took too long")]
    Timeout,
    /// The target's request slots and its waiting queue are full.
    #[error("the upstream has reached its limit of concurrent requests")]
    Busy,
}

impl ConnectError {
    pub(super) fn new(failure: DialFailure, name: Name<'_>) -> Self {
        match failure {
            DialFailure::Timeout => Self::Timeout,
            DialFailure::Connect(cause) => Self::Refused(cause),
            DialFailure::Handshake(cause) => Self::Handshake {
                owner: if !name.is_of_client {
                    Owner::Upstream
                } else if is_about_name(&cause) {
                    Owner::Client
                } else {
                    // A server that does not know the name may also close the connection or send another TLS alert.
                    Owner::Unclear
                },
                cause,
            },
        }
    }

    pub(super) fn owner(&self) -> Owner {
        match self {
            Self::Resolve(_) | Self::Busy => Owner::Gateway,
            Self::Refused(cause) if is_shortage(cause) => Owner::Gateway,
            Self::Refused(_) | Self::Timeout => Owner::Upstream,
            Self::Handshake { owner, .. } => *owner,
        }
    }

    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Resolve(_) => Reason::NameNotResolved,
            Self::Refused(cause) if is_shortage(cause) => Reason::Overloaded,
            Self::Refused(_) => Reason::ConnectFailed,
            Self::Handshake { .. } => Reason::TlsFailed,
            Self::Timeout => Reason::ConnectTimeout,
            Self::Busy => Reason::UpstreamBusy,
        }
    }

    /// Returns the effect of the failure on the target's health, or `None` if the target did not cause it.
    pub(super) fn outcome(&self) -> Option<health::Outcome> {
        match self {
            _ if self.owner() != Owner::Upstream => None,
            Self::Timeout => Some(health::Outcome::Timeout),
            _ => Some(health::Outcome::TcpFailure),
        }
    }
}

/// Whether connecting failed because this machine lacks something: descriptors, memory, ports or permission.
fn is_shortage(error: &io::Error) -> bool {
    let ours = [
        ErrorKind::AddrNotAvailable,
        ErrorKind::OutOfMemory,
        ErrorKind::PermissionDenied,
    ];
    is_out_of_descriptors(error) || ours.contains(&error.kind())
}

/// The host name sent to the upstream, in TLS and in the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name<'a> {
    pub(super) text: &'a [u8],
    /// Whether the client chose the name. A failure then says little about the upstream.
    pub(super) is_of_client: bool,
}

/// Restricts which existing connections may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    Any,
    /// Only connections opened after this time, at which a reused connection failed. Older ones may be dead too.
    OpenedAfter(Instant),
}

/// Obtains a connection to a target, and returns whether it existed before this request. Addresses that failed are used
/// only if there are no others.
pub(super) async fn obtain(
    target: &Target,
    name: Name<'_>,
    protocol: Http2,
    tries: &mut Tries,
    settings: &SessionSettings,
    now: &mut Instant,
) -> Result<(Box<Upstream>, bool), ConnectError> {
    let sni = target
        .tls
        .as_ref()
        .map(|_| String::from_utf8_lossy(name.text));
    let sni = sni.as_deref();
    let next = target.host.next(&tries.failed_at());
    let address = match next {
        Next::Address(address) => address,
        Next::Error(error) => return Err(error.into()),
        // Boxed because waiting is rare and would enlarge the task of every idle connection.
        Next::Wait => {
            let waiting = async {
                let failed = tries.failed_at();
                wait_for_address(target, &failed, now).await
            };
            Box::pin(waiting).await?
        }
    };
    tries.contact(address, *now);
    if tries.freshness == Freshness::Any
        && protocol != Http2::Always
        && let Some(idle) = take_idle(target, address, sni, *now).await
    {
        return Ok((idle, true));
    }
    let obtained = if protocol != Http2::Never {
        let freshness = tries.freshness;
        let obtaining = multiplex::obtain(target, address, sni, freshness, settings, now);
        Box::pin(obtaining).await
    } else {
        let opened = Box::pin(open(target, address, sni, now)).await;
        opened.map(|connection| (connection, false))
    };
    obtained.map_err(|failure| ConnectError::new(failure, name))
}

/// Opens a connection for a TCP stream, which is never shared or reused. The address comes from [`resolve`].
pub(super) async fn dedicated(
    target: &Target,
    address: SocketAddr,
    name: Name<'_>,
    now: &mut Instant,
) -> Result<Box<Upstream>, ConnectError> {
    let sni = target
        .tls
        .as_ref()
        .map(|_| String::from_utf8_lossy(name.text));
    let opened = open(target, address, sni.as_deref(), now).await;
    opened.map_err(|failure| ConnectError::new(failure, name))
}

/// Returns the next address of the target. Addresses in `failed` are used only if there are no others.
pub(super) async fn resolve(
    target: &Target,
    failed: &[SocketAddr],
    now: &mut Instant,
) -> Result<SocketAddr, ConnectError> {
    match target.host.next(failed) {
        Next::Address(address) => Ok(address),
        Next::Error(error) => Err(error.into()),
        Next::Wait => Ok(wait_for_address(target, failed, now).await?),
    }
}

/// Opens a connection that serves one request at a time.
pub(super) async fn open(
    target: &Target,
    address: SocketAddr,
    sni: Option<&str>,
    now: &mut Instant,
) -> Result<Box<Upstream>, DialFailure> {
    let connecting = connect(target, address, sni, Http2::Never);
    let connected = timeout(target.connect_timeout, connecting).await;
    *now = Instant::now();
    let stream = connected.unwrap_or(Err(DialFailure::Timeout))?;
    Ok(Box::new(Upstream {
        stream,
        address,
        sni: sni.map(Arc::from),
        requests: 0,
        open: Some(Open::new()),
    }))
}

async fn take_idle(
    target: &Target,
    address: SocketAddr,
    sni: Option<&str>,
    now: Instant,
) -> Option<Box<Upstream>> {
    poll_fn(|cx| {
        Poll::Ready(worker::with(|worker| {
            worker.pool.take(&target.slot, address, sni, now, cx)
        }))
    })
    .await
}

/// Waits for the first DNS answer for a name, and returns an address from it.
async fn wait_for_address(
    target: &Target,
    failed: &[SocketAddr],
    now: &mut Instant,
) -> Result<SocketAddr, ResolveError> {
    let answer = target.host.resolved(target.connect_timeout).await;
    *now = Instant::now();
    let answer = answer?;
    Ok(match target.host.next(failed) {
        Next::Address(address) => address,
        // The answer has changed again meanwhile.
        _ => answer.pick(0, failed).address,
    })
}

pub(super) async fn connect(
    target: &Target,
    address: SocketAddr,
    sni: Option<&str>,
    protocol: Http2,
) -> Result<Stream, DialFailure> {
    let refused = |error| DialFailure::Connect(Arc::new(error));
    #[cfg(feature = "memory")]
    if let Some(dialled) = net::memory::dial() {
        let dialled = dialled.map_err(refused)?;
        return Ok(Stream::Memory(Box::new(dialled)));
    }
    let began = Instant::now();
    let stream = match TcpStream::connect(address).await {
        Err(error) if is_out_of_descriptors(&error) => {
            // Closing idle connections to other upstreams frees descriptors.
            worker::with(Worker::close_idle);
            TcpStream::connect(address).await
        }
        stream => stream,
    };
    let stream = stream.map_err(refused)?;
    let connected = Instant::now();
    worker::with(|worker| worker.connection_times.connect.observe(connected - began));
    stream.set_nodelay(true).map_err(refused)?;
    match (&target.tls, sni) {
        (Some(tls), Some(name)) => {
            let shaken = tls.connect_offering(stream, name, protocols(protocol));
            let stream = shaken
                .await
                .map_err(|error| DialFailure::Handshake(Arc::new(error)))?;
            let took = connected.elapsed();
            worker::with(|worker| worker.connection_times.tls.observe(took));
            Ok(Stream::Tls(Box::new(stream.into())))
        }
        _ => Ok(Stream::Tcp(stream)),
    }
}

fn protocols(wanted: Http2) -> Offer {
    match wanted {
        Http2::Never => Offer::Nothing,
        Http2::Preferred => Offer::Either,
        Http2::Always => Offer::Http2,
    }
}
