//! A connection to a client or an upstream: plain TCP, TLS, or an HTTP/2 stream that is used like a connection. It is
//! an enum, because with a generic type the whole request lifecycle would be compiled once per type of connection.

use crate::http2::{ClientStream, UpstreamStream};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>),
    /// HTTP/2 streams of a client, one after the other.
    Served(Box<ClientStream>),
    /// HTTP/2 stream to an upstream, for one request.
    Called(Box<UpstreamStream>),
    /// A client that has its response already. It sends nothing, and what is sent to it is dropped.
    Nobody,
    #[cfg(feature = "memory")]
    Memory(Box<crate::memory::Memory>),
}

impl Stream {
    #[inline]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(buffer);
        match self {
            Self::Tcp(stream) => ready!(Pin::new(stream).poll_read(cx, &mut read))?,
            Self::Tls(stream) => ready!(poll_read_tls(stream, cx, &mut read))?,
            Self::Served(stream) => return stream.poll_read(cx, buffer),
            Self::Called(stream) => return stream.poll_read(cx, buffer),
            Self::Nobody => return Poll::Pending,
            #[cfg(feature = "memory")]
            Self::Memory(stream) => return stream.poll_read(cx, buffer),
        }
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Like [`Stream::poll_read`], into a buffer that may be uninitialised.
    pub(crate) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => poll_read_tls(stream, cx, buffer),
            _ => {
                let read = ready!(self.poll_read(cx, buffer.initialize_unfilled()))?;
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Writes both pieces, in one write if possible. Returns the number of bytes accepted from both together.
    #[inline]
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        second: &[u8],
    ) -> Poll<io::Result<usize>> {
        let both = [IoSlice::new(first), IoSlice::new(second)];
        match self {
            Self::Tcp(stream) if second.is_empty() => match stream.try_write(first) {
                // The socket is full. Only in this case must tokio register the task.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Pin::new(stream).poll_write(cx, first)
                }
                Ok(written) => {
                    note_fullness(stream, written < first.len());
                    Poll::Ready(Ok(written))
                }
                failed => Poll::Ready(failed),
            },
            Self::Tcp(stream) => {
                let written = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &both))?;
                note_fullness(stream, written < first.len() + second.len());
                Poll::Ready(Ok(written))
            }
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, &both),
            Self::Served(stream) => stream.poll_write(cx, first, second),
            Self::Called(stream) => stream.poll_write(cx, first, second),
            Self::Nobody => Poll::Ready(Ok(first.len() + second.len())),
            #[cfg(feature = "memory")]
            Self::Memory(stream) => stream.poll_write(cx, first, second),
        }
    }

    /// Whether the stream may accept bytes without sending them at once. All but TCP do, so they need a flush.
    #[inline]
    pub fn keeps_back(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }

    /// Number of bytes of the last write that wait for the peer's HTTP/2 window. For connections other than HTTP/2 it
    /// is 0.
    #[inline]
    pub fn held_back(&self) -> usize {
        match self {
            Self::Served(stream) => stream.held_back(),
            Self::Called(stream) => stream.held_back(),
            _ => 0,
        }
    }

    /// Time when the last part of an incomplete HTTP/2 frame arrived. A slow peer may take long to send one frame, and
    /// until it is complete nothing can be read from it.
    pub fn partial(&self) -> Option<Instant> {
        match self {
            Self::Served(stream) => stream.partial(),
            Self::Called(stream) => stream.partial(),
            _ => None,
        }
    }

    /// Local address of the connection; `None` for an HTTP/2 stream.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Tls(stream) => stream.get_ref().0.local_addr().ok(),
            Self::Served(_) | Self::Called(_) | Self::Nobody => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }

    /// Sends the bytes that the stream has accepted but not sent.
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) | Self::Nobody => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Served(stream) => stream.poll_flush(cx),
            Self::Called(stream) => stream.poll_flush(cx),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Closes the sending direction.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Served(stream) => stream.poll_shutdown(cx),
            Self::Called(stream) => stream.poll_shutdown(cx),
            Self::Nobody => Poll::Ready(Ok(())),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether an idle connection is still usable, that is, not closed and without unexpected data. For TCP this checks
    /// only the readiness that tokio has recorded and makes no system call.
    #[inline]
    pub fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || Ok(())).is_err(),
            // Session tickets may arrive while a TLS connection is idle; only a read distinguishes them from
            // application data.
            Self::Tls(_) => self.poll_read(cx, &mut [0]).is_pending(),
            // An HTTP/2 stream serves one request.
            Self::Served(_) | Self::Called(_) | Self::Nobody => false,
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
        }
    }

    /// Ready when the client has cancelled the current request by resetting its HTTP/2 stream.
    #[inline]
    pub fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Served(stream) => stream.poll_given_up(cx),
            _ => Poll::Pending,
        }
    }

    /// The TCP socket; `None` for an HTTP/2 stream.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.get_ref().0),
            Self::Served(_) | Self::Called(_) | Self::Nobody => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }

    pub fn is_http2(&self) -> bool {
        matches!(self, Self::Served(_) | Self::Called(_))
    }
}

/// Reads from TLS, and sends what rustls wants to reply, such as the alert that refuses a renegotiation. Otherwise the
/// reply could wait a long time for the next write. It is not inlined, so that reads without TLS stay fast.
#[inline(never)]
fn poll_read_tls(
    stream: &mut tokio_rustls::TlsStream<TcpStream>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let read = Pin::new(&mut *stream).poll_read(cx, buffer);
    if stream.get_ref().1.wants_write() {
        // The next write reports an error again.
        let _ = Pin::new(stream).poll_flush(cx);
    }
    read
}

/// Tells tokio that the socket is full, after a partial write. This saves a system call: the next write waits without
/// trying first.
#[inline]
fn note_fullness(stream: &TcpStream, full: bool) {
    if full {
        let _ = stream.try_io(Interest::WRITABLE, || {
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{Alpn, CertificateSource, Certificates, ServerSettings, ServerTls, Versions};
    use rustls::crypto::cipher::{AeadKey, OutboundChunks, OutboundPlainMessage};
    use rustls::{ClientConfig, ConnectionTrafficSecrets, SupportedCipherSuite};
    use std::future::poll_fn;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[derive(Debug)]
    struct SelfSigned(Arc<Certificates>);

    impl CertificateSource for SelfSigned {
        fn certificates(&self, _: Option<&str>) -> Option<Arc<Certificates>> {
            Some(self.0.clone())
        }
    }

    fn server() -> ServerTls {
        let source = SelfSigned(Arc::new(crate::tls::self_signed().unwrap()));
        let settings = ServerSettings {
            versions: Versions {
                tls12: true,
                tls13: false,
            },
            ..ServerSettings::default()
        };
        ServerTls::with_settings(Arc::new(source), Alpn::Http, &settings).unwrap()
    }

    fn client() -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(crate::tls::unverified())
            .with_no_client_auth();
        config.enable_secret_extraction = true;
        Arc::new(config)
    }

    /// Encrypts a handshake message as the client's next record.
    fn encrypted(message: &[u8], session: rustls::ClientConnection) -> Vec<u8> {
        let Some(SupportedCipherSuite::Tls12(suite)) = session.negotiated_cipher_suite() else {
            panic!("TLS 1.2 was negotiated");
        };
        let (number, secrets) = session.dangerous_extract_secrets().unwrap().tx;
        let (key, iv): (AeadKey, _) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (key, iv),
            _ => panic!("an AES-GCM cipher was negotiated"),
        };
        let (fixed, explicit) = iv.as_ref().split_at(4);
        let mut encrypter = suite.aead_alg.encrypter(key, fixed, explicit);
        let plain = OutboundPlainMessage {
            typ: rustls::ContentType::Handshake,
            version: rustls::ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(message),
        };
        encrypter.encrypt(plain, number).unwrap().encode()
    }

    #[tokio::test]
    async fn a_renegotiation_is_refused_while_nothing_else_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = server().accept(stream).await.unwrap();
            let mut stream = Stream::Tls(Box::new(stream.into()));
            let mut buffer = [0; 100];
            poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await
        };
        let asking = async {
            let stream = TcpStream::connect(address).await.unwrap();
            let connector = tokio_rustls::TlsConnector::from(client());
            let name = "localhost".try_into().unwrap();
            let (mut stream, session) = connector.connect(name, stream).await.unwrap().into_inner();
            let hello = crate::client_hello::tests::real_hello("localhost", true);
            let hello = encrypted(&hello[5..], session);
            stream.write_all(&hello).await.unwrap();
            const ALERT: u8 = 21;
            assert_eq!(stream.read_u8().await.unwrap(), ALERT);
        };
        let both = async { tokio::join!(serving, asking) };
        let done = tokio::time::timeout(std::time::Duration::from_secs(10), both).await;
        let (_, ()) = done.expect("the server sends the alert while it waits for data");
    }
}
