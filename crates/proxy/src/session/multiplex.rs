//! Obtains a stream to a target that speaks HTTP/2, on an existing connection or a new one. Requests that arrive while
//! a connection is being opened wait for it instead of opening their own.

use super::connect::{self, Freshness};
use super::plane::SessionSettings;
use super::worker;
use crate::upstream::{Http2, Target};
use net::http2::{
    self, DialFailure, Dialed, Dialer, Driver, Found, Link, LinkKey, LinkSettings, UpstreamStream,
    Wanted,
};
use net::pool::Connection as Upstream;
use net::stream::Stream;
use net::tls::ClientTls;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum size of a response head, counted as in RFC 9113 section 10.5.1.
const MAX_HEAD: u32 = 128 * 1024;

/// A new connection in the protocol that was negotiated.
#[expect(clippy::large_enum_variant)]
enum Agreed {
    Http1(Stream),
    Http2(Link, Driver),
}

pub(super) fn link_settings(settings: &SessionSettings) -> LinkSettings {
    LinkSettings {
        size: settings.pool.size,
        max_requests: settings.pool.max_requests,
        idle: settings.pool.idle,
    }
}

/// Target of a stream, and the key of the connections that it may share.
struct Destination<'a> {
    target: &'a Target,
    address: SocketAddr,
    key: LinkKey,
    settings: LinkSettings,
}

/// Opens a stream to an address. Also returns whether its connection existed before this request. If HTTP/2 is optional
/// and the upstream does not speak it, returns an HTTP/1.1 connection.
pub(super) async fn obtain(
    target: &Target,
    address: SocketAddr,
    sni: Option<&str>,
    freshness: Freshness,
    settings: &SessionSettings,
    now: &mut Instant,
) -> Result<(Box<Upstream>, bool), DialFailure> {
    let to = Destination {
        target,
        address,
        key: LinkKey {
            tls: target.tls.as_ref().map(ClientTls::number),
            sni: sni.map(Arc::from),
        },
        settings: link_settings(settings),
    };
    let wanted = match freshness {
        Freshness::Any => Wanted::Any,
        Freshness::OpenedAfter(time) => Wanted::OpenedAfter(time),
    };
    let limit = *now + target.connect_timeout;
    let mut waited = false;
    loop {
        let ended = match to.take(wanted).await {
            Found::Call(call) => return Ok((to.present(Stream::Called(call)), !waited)),
            Found::Dial(dialer) => match to.open(dialer, now).await {
                Ok(stream) => return Ok((to.present(stream), false)),
                Err(failure) => Dialed::Failed(failure),
            },
            Found::Dialing(dial) => {
                waited = true;
                let ended = timeout_at(limit, dial.ended()).await;
                *now = Instant::now();
                ended.unwrap_or(Dialed::Failed(DialFailure::Timeout))
            }
        };
        match ended {
            Dialed::Http2 | Dialed::Abandoned => {}
            Dialed::Http1 => {
                let opened = connect::open(target, address, sni, now).await?;
                return Ok((opened, false));
            }
            Dialed::Failed(failure) => match to.take_existing(wanted).await {
                Some(call) => return Ok((to.present(Stream::Called(call)), true)),
                None => return Err(failure),
            },
        }
    }
}

impl Destination<'_> {
    fn present(&self, stream: Stream) -> Box<Upstream> {
        Box::new(Upstream {
            stream,
            address: self.address,
            sni: self.key.sni.clone(),
            requests: 0,
            open: None,
        })
    }

    async fn take(&self, wanted: Wanted) -> Found {
        poll_fn(|cx| {
            Poll::Ready(worker::with(|worker| {
                let (slot, settings) = (&self.target.slot, &self.settings);
                worker
                    .links
                    .take(self.address, &self.key, slot, wanted, settings, cx)
            }))
        })
        .await
    }

    /// Falls back to an existing connection after a new one failed, unless the request needs a new connection.
    async fn take_existing(&self, wanted: Wanted) -> Option<Box<UpstreamStream>> {
        if wanted != Wanted::Any {
            return None;
        }
        poll_fn(|cx| {
            Poll::Ready(worker::with(|worker| {
                let (slot, settings) = (&self.target.slot, &self.settings);
                let links = &mut worker.links;
                links.take_existing(self.address, &self.key, slot, settings, cx)
            }))
        })
        .await
    }

    /// Opens a connection for this request and the others that wait for it.
    async fn open(&self, dialer: Dialer, now: &mut Instant) -> Result<Stream, DialFailure> {
        let dialed = Box::pin(timeout(self.target.connect_timeout, self.dial())).await;
        *now = Instant::now();
        match dialed.unwrap_or(Err(DialFailure::Timeout)) {
            Ok(Agreed::Http2(link, driver)) => {
                let stream = self.keep(link, driver);
                dialer.end(Dialed::Http2);
                Ok(stream)
            }
            Ok(Agreed::Http1(stream)) => {
                dialer.end(Dialed::Http1);
                Ok(stream)
            }
            Err(failure) => {
                dialer.end(Dialed::Failed(failure.clone()));
                Err(failure)
            }
        }
    }

    async fn dial(&self) -> Result<Agreed, DialFailure> {
        let (sni, http2) = (self.key.sni.as_deref(), self.target.http2);
        let stream = connect::connect(self.target, self.address, sni, http2).await?;
        let speaks = speaks_http2(&stream, http2);
        if !speaks.map_err(|error| DialFailure::Handshake(Arc::new(error)))? {
            return Ok(Agreed::Http1(stream));
        }
        let opened = Link::open(stream, self.key.clone(), MAX_HEAD).await;
        let (link, driver) = opened.map_err(|error| DialFailure::Connect(Arc::new(error)))?;
        Ok(Agreed::Http2(link, driver))
    }

    /// Starts the first stream of a new connection. Other requests can share the connection from now on.
    fn keep(&self, link: Link, driver: Driver) -> Stream {
        tokio::spawn(driver);
        Stream::Called(worker::with(|worker| {
            let links = &mut worker.links;
            links.add(self.address, link, &self.target.slot, &self.settings)
        }))
    }
}

/// Whether the connection uses HTTP/2. Without TLS nothing is negotiated, and the connection always uses HTTP/2. gRPC
/// servers without ALPN are assumed to speak HTTP/2, as in nginx.
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
