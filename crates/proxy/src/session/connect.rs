//! Getting a connection to a target: an idle one if there is, or a new one.

use super::worker;
use crate::upstream::Target;
use net::pool::Connection as Upstream;
use net::resolve::{self, Known, ResolveError};
use net::stream::Stream;
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
}

/// Whether an idle connection will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    Any,
    /// An idle one has just failed; the others may be as dead.
    New,
}

/// A connection to a target; true when it has served before.
pub(super) async fn obtain(
    target: &Target,
    name: &[u8],
    freshness: Freshness,
    now: &mut Instant,
) -> Result<(Upstream, bool), ConnectError> {
    let sni = target.tls.as_ref().map(|_| String::from_utf8_lossy(name));
    let sni = sni.as_deref();
    let address = match known_address(target, *now) {
        Some(known) => known?,
        // Boxed, as connecting is: rare, and every idle connection's task would be larger by it.
        None => Box::pin(look_up(target, now)).await?,
    };
    if freshness == Freshness::Any {
        let idle = poll_fn(|cx| {
            let slot = &target.slot;
            Poll::Ready(worker::with(|worker| {
                worker.pool.take(slot, address, sni, *now, cx)
            }))
        });
        if let Some(connection) = idle.await {
            return Ok((connection, true));
        }
    }
    let connecting = timeout(target.connect_timeout, connect(target, address, sni));
    let connected = Box::pin(connecting).await;
    *now = Instant::now();
    let stream = connected
        .map_err(|_| ConnectError::Timeout)?
        .map_err(ConnectError::Refused)?;
    let connection = Upstream {
        stream,
        address,
        sni: sni.map(Arc::from),
        requests: 0,
    };
    Ok((connection, false))
}

/// The next address in turn, as far as it can be told without waiting.
fn known_address(target: &Target, now: Instant) -> Option<Result<SocketAddr, ConnectError>> {
    let known = worker::with(|worker| worker.pool.addresses(&target.slot, now).next(now));
    match known {
        Known::Address(address) => Some(Ok(address)),
        Known::Error(error) => Some(Err(error.into())),
        Known::Ask => None,
    }
}

async fn look_up(target: &Target, now: &mut Instant) -> Result<SocketAddr, ConnectError> {
    let asked = resolve::lookup(target.slot.host(), target.slot.port());
    let found = match timeout(target.connect_timeout, asked).await {
        Ok(found) => found,
        Err(_) => Err(ResolveError::Failed),
    };
    *now = Instant::now();
    worker::with(|worker| {
        let addresses = worker.pool.addresses(&target.slot, *now);
        addresses.learn(found, *now);
    });
    known_address(target, *now).unwrap_or(Err(ResolveError::Failed.into()))
}

async fn connect(target: &Target, address: SocketAddr, sni: Option<&str>) -> io::Result<Stream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    match (&target.tls, sni) {
        (Some(tls), Some(name)) => {
            let stream = tls.connect(stream, name).await?;
            Ok(Stream::Tls(Box::new(stream.into())))
        }
        _ => Ok(Stream::Tcp(stream)),
    }
}
