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
) -> Result<(Box<Upstream>, bool), ConnectError> {
    let sni = target.tls.as_ref().map(|_| String::from_utf8_lossy(name));
    let sni = sni.as_deref();
    let mut known = None;
    if let Some(idle) = take_idle(target, sni, freshness, *now, &mut known).await {
        return Ok((idle, true));
    }
    // Boxed, as connecting is: rare, and every idle connection's task would be larger by it.
    if let None | Some(Known::Ask) = known {
        known = Some(Box::pin(look_up(target, now)).await);
        if let Some(idle) = take_idle(target, sni, freshness, *now, &mut known).await {
            return Ok((idle, true));
        }
    }
    let address = match known {
        Some(Known::Address(address)) => address,
        Some(Known::Error(error)) => return Err(error.into()),
        None | Some(Known::Ask) => return Err(ResolveError::Failed.into()),
    };
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
    Ok((Box::new(connection), false))
}

/// An idle connection to the address whose turn it is. What is known of the address is told, for when there is none.
async fn take_idle(
    target: &Target,
    sni: Option<&str>,
    freshness: Freshness,
    now: Instant,
    known: &mut Option<Known>,
) -> Option<Box<Upstream>> {
    poll_fn(|cx| {
        let idle = worker::with(|worker| {
            let (pool, slot) = (&mut worker.pool, &target.slot);
            match *known.get_or_insert_with(|| pool.addresses(slot, now).next(now)) {
                Known::Address(address) if freshness == Freshness::Any => {
                    pool.take(slot, address, sni, now, cx)
                }
                _ => None,
            }
        });
        Poll::Ready(idle)
    })
    .await
}

async fn look_up(target: &Target, now: &mut Instant) -> Known {
    let asked = resolve::lookup(target.slot.host(), target.slot.port());
    let found = match timeout(target.connect_timeout, asked).await {
        Ok(found) => found,
        Err(_) => Err(ResolveError::Failed),
    };
    *now = Instant::now();
    worker::with(|worker| {
        let addresses = worker.pool.addresses(&target.slot, *now);
        addresses.learn(found, *now);
        addresses.next(*now)
    })
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
