//! Getting a stream to a target that speaks HTTP/2: on a connection that is there, or on a new one. Requests that come
//! while one is being made wait for it instead of making their own.

use super::connect::{ConnectError, Freshness, connect};
use super::plane::Settings;
use super::worker;
use crate::upstream::{Http2, Target};
use net::http2::{self, Dial, Dialer, Found, Link, LinkKey, LinkSettings};
use net::pool::Connection as Upstream;
use net::stream::Stream;
use net::tls::ClientTls;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use tokio::time::{Instant, timeout};

/// The whole head of an answer, as RFC 9113 section 10.5.1 counts it.
const MOST_HEAD: u32 = 128 * 1024;

pub(super) fn link_settings(settings: &Settings) -> LinkSettings {
    LinkSettings {
        max_requests: settings.pool.max_requests,
        idle: settings.pool.idle,
    }
}

/// A stream to an address; true when its connection was there before. An upstream that only may speak HTTP/2 and does not
/// gets an HTTP/1.1 connection.
pub(super) async fn obtain(
    target: &Target,
    address: SocketAddr,
    sni: Option<&str>,
    freshness: Freshness,
    settings: &Settings,
    now: &mut Instant,
) -> Result<(Box<Upstream>, bool), ConnectError> {
    let key = LinkKey {
        tls: target.tls.as_ref().map(ClientTls::number),
        sni: sni.map(Arc::from),
    };
    let limit = *now + target.connect_timeout;
    let presented = |stream| {
        Box::new(Upstream {
            stream,
            address,
            sni: key.sni.clone(),
            requests: 0,
        })
    };
    loop {
        let found = match freshness {
            Freshness::Any => take(address, &key, settings).await,
            Freshness::New => Found::Dial(Arc::default()),
        };
        let waited = match found {
            Found::Call(call) => return Ok((presented(Stream::Called(call)), true)),
            Found::Dialing(dial) => {
                timeout(limit.duration_since(Instant::now()), dial.wait()).await
            }
            Found::Dial(dial) => {
                let opened = open(target, address, &key, dial, now).await?;
                return Ok((presented(opened), false));
            }
        };
        *now = Instant::now();
        match waited {
            Ok(true) => {}
            Ok(false) => return Err(ConnectError::Refused(ErrorKind::ConnectionRefused.into())),
            Err(_) => return Err(ConnectError::Timeout),
        }
    }
}

async fn take(address: SocketAddr, key: &LinkKey, settings: &Settings) -> Found {
    let settings = link_settings(settings);
    poll_fn(|cx| {
        Poll::Ready(worker::with(|worker| {
            worker.links.take(address, key, &settings, cx)
        }))
    })
    .await
}

/// Makes a connection, for this request and the others that wait for it.
async fn open(
    target: &Target,
    address: SocketAddr,
    key: &LinkKey,
    dial: Arc<Dial>,
    now: &mut Instant,
) -> Result<Stream, ConnectError> {
    let mut dialer = Dialer::new(dial);
    let connecting = async {
        let stream = connect(target, address, key.sni.as_deref(), target.http2).await?;
        if !speaks_http2(&stream, target.http2)? {
            return Ok(Err(stream));
        }
        Link::open(stream, key.clone(), MOST_HEAD).await.map(Ok)
    };
    let connected = Box::pin(timeout(target.connect_timeout, connecting)).await;
    *now = Instant::now();
    let connected = connected.map_err(|_| ConnectError::Timeout)?;
    let opened = connected.map_err(ConnectError::Refused)?;
    dialer.connected();
    Ok(match opened {
        Err(stream) => stream,
        Ok((mut link, driver)) => {
            let call = link.call();
            tokio::spawn(driver);
            worker::with(|worker| worker.links.add(address, link));
            Stream::Called(Box::new(call))
        }
    })
}

/// What the handshake has agreed on. Without TLS there is nothing to agree on, and servers of gRPC that say nothing speak
/// it nevertheless, as the web server under Kong takes for granted.
fn speaks_http2(stream: &Stream, wanted: Http2) -> io::Result<bool> {
    let Stream::Tls(tls) = stream else {
        return Ok(true);
    };
    match (tls.get_ref().1.alpn_protocol(), wanted) {
        (Some(http2::ALPN), _) | (None, Http2::Always) => Ok(true),
        (_, Http2::Always) => Err(io::Error::new(
            ErrorKind::Unsupported,
            "the upstream does not speak HTTP/2",
        )),
        (_, Http2::Preferred | Http2::Never) => Ok(false),
    }
}
