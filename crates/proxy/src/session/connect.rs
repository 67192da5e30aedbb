//! Getting a connection to a target: an idle one if there is, or a new one.

use super::plane::Settings;
use super::tries::Tries;
use super::{multiplex, worker};
use crate::upstream::{Http2, Target};
use net::dns::{Next, ResolveError};
use net::listen::is_out_of_descriptors;
use net::pool::Connection as Upstream;
use net::stream::Stream;
use net::tls::Offer;
use std::future::poll_fn;
use std::io;
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
    Refused(#[source] io::Error),
    #[error("connecting took too long")]
    Timeout,
    /// As many requests are there, and wait for a place, as settings allow.
    #[error("the upstream has as many requests as it may")]
    Busy,
}

/// Whether an idle connection will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    Any,
    /// An idle one has just failed; the others may be as dead.
    New,
}

/// A connection to a target; true when it has served before. Addresses that have failed are avoided while there are others.
pub(super) async fn obtain(
    target: &Target,
    name: &[u8],
    protocol: Http2,
    tries: &mut Tries,
    settings: &Settings,
    now: &mut Instant,
) -> Result<(Box<Upstream>, bool), ConnectError> {
    let sni = target.tls.as_ref().map(|_| String::from_utf8_lossy(name));
    let sni = sni.as_deref();
    let next = target.host.next(&tries.failed_at());
    let address = match next {
        Next::Address(address) => address,
        Next::Error(error) => return Err(error.into()),
        // Boxed, as connecting is: rare, and every idle connection's task would be larger by it.
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
    if protocol != Http2::Never {
        let freshness = tries.freshness;
        let obtaining = multiplex::obtain(target, address, sni, freshness, settings, now);
        return Box::pin(obtaining).await;
    }
    let connection = Box::pin(open(target, address, sni, now)).await?;
    Ok((connection, false))
}

/// A connection that is nobody else's before or after, for a stream. The address comes from [`resolve`].
pub(super) async fn dedicated(
    target: &Target,
    address: SocketAddr,
    name: &str,
    now: &mut Instant,
) -> Result<Box<Upstream>, ConnectError> {
    let sni = target.tls.as_ref().map(|_| name);
    open(target, address, sni, now).await
}

/// The address whose turn it is; those that have failed are avoided while there are others.
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

async fn open(
    target: &Target,
    address: SocketAddr,
    sni: Option<&str>,
    now: &mut Instant,
) -> Result<Box<Upstream>, ConnectError> {
    let connecting = connect(target, address, sni, Http2::Never);
    let connected = timeout(target.connect_timeout, connecting).await;
    *now = Instant::now();
    let stream = connected
        .map_err(|_| ConnectError::Timeout)?
        .map_err(ConnectError::Refused)?;
    Ok(Box::new(Upstream {
        stream,
        address,
        sni: sni.map(Arc::from),
        requests: 0,
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

/// For a name that was never resolved before.
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
        // It has changed again since.
        _ => answer.pick(0, failed).address,
    })
}

pub(super) async fn connect(
    target: &Target,
    address: SocketAddr,
    sni: Option<&str>,
    protocol: Http2,
) -> io::Result<Stream> {
    #[cfg(feature = "memory")]
    if let Some(dialled) = net::memory::dial() {
        return dialled.map(|memory| Stream::Memory(Box::new(memory)));
    }
    let stream = match TcpStream::connect(address).await {
        Err(error) if is_out_of_descriptors(&error) => {
            // Idle connections to other upstreams are what is spare.
            worker::with(|worker| worker.pool.clear());
            TcpStream::connect(address).await?
        }
        stream => stream?,
    };
    stream.set_nodelay(true)?;
    match (&target.tls, sni) {
        (Some(tls), Some(name)) => {
            let stream = tls
                .connect_offering(stream, name, protocols(protocol))
                .await?;
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
