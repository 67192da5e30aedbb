//! Opens connections: name resolution by the gateway's resolver, then TCP, then TLS.

use super::meter::Metered;
use super::url::HttpScheme;
use crate::egress::{self, Forbidden};
use hyper_util::rt::TokioIo;
use net::dns::{Host, Next, ResolveError};
use net::tls::{ClientTls, Offer};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// Maximum number of addresses of a name that are tried for one connection.
const MAX_ADDRESSES: usize = 3;

/// Why there is no connection.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error("{0}")]
    Resolve(ResolveError),
    #[error("cannot connect: {0}")]
    Tcp(Arc<io::Error>),
    #[error("TLS handshake failed: {0}")]
    Tls(Arc<io::Error>),
    #[error("not connected within {0:?}")]
    Timeout(Duration),
    #[error(transparent)]
    Forbidden(Forbidden),
}

/// Opens the connections of one pool.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) host: Arc<Host>,
    pub(super) scheme: HttpScheme,
    pub(super) tls: ClientTls,
    /// The name that TLS asks for.
    pub(super) server_name: Arc<str>,
    pub(super) timeout: Duration,
    /// The protocols that TLS offers.
    pub(super) offer: Offer,
}

impl Connector {
    pub(super) async fn connect(self) -> Result<TokioIo<Metered>, ConnectError> {
        let limit = self.timeout;
        let opened = timeout(limit, self.open()).await;
        let transport = opened.unwrap_or(Err(ConnectError::Timeout(limit)))?;
        Ok(TokioIo::new(Metered::new(transport)))
    }

    async fn open(self) -> Result<Transport, ConnectError> {
        let stream = connect_tcp(&self.host, self.timeout).await?;
        match self.scheme {
            HttpScheme::Http => Ok(Transport::Plain(stream)),
            HttpScheme::Https => {
                let (tls, name) = (&self.tls, &self.server_name);
                let tls = tls.connect_offering(stream, name, self.offer).await;
                let tls = tls.map_err(|error| ConnectError::Tls(Arc::new(error)))?;
                Ok(Transport::Tls(Box::new(tls)))
            }
        }
    }
}

/// Connects to a host: tries its addresses in turn. `limit` is the maximum time of the name resolution.
pub(crate) async fn connect_tcp(host: &Host, limit: Duration) -> Result<TcpStream, ConnectError> {
    let mut tried: Vec<SocketAddr> = Vec::new();
    let mut failed = None;
    while tried.len() < MAX_ADDRESSES {
        let address = address(host, limit, &tried).await?;
        if tried.contains(&address) {
            break;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Only an optimisation: without it, a small write can wait for an acknowledgement.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => failed = Some(error),
        }
        tried.push(address);
    }
    let error = failed.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    Err(ConnectError::Tcp(Arc::new(error)))
}

/// Returns the next address of a host to connect to. Some addresses need [permission](egress).
pub(crate) async fn address(
    host: &Host,
    limit: Duration,
    tried: &[SocketAddr],
) -> Result<SocketAddr, ConnectError> {
    let address = match host.next(tried) {
        Next::Address(address) => address,
        Next::Error(error) => return Err(ConnectError::Resolve(error)),
        Next::Wait => {
            let answer = host.resolved(limit).await;
            let answer = answer.map_err(ConnectError::Resolve)?;
            answer.pick(0, tried).address
        }
    };
    egress::check(address.ip()).map_err(ConnectError::Forbidden)?;
    Ok(address)
}

/// A connection, with TLS or without.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
