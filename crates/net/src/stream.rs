//! A connection, plain or TLS, client's or upstream's, or a stream of an HTTP/2 connection that passes for one. An enum,
//! since these kinds are all there are: a generic would compile the whole request lifecycle once for each.

use crate::http2::{Called, Served};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>),
    /// Streams of a client, one after the other.
    Served(Box<Served>),
    /// A stream to an upstream, for one request.
    Called(Box<Called>),
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
            Self::Tls(stream) => ready!(Pin::new(stream).poll_read(cx, &mut read))?,
            Self::Served(stream) => return stream.poll_read(cx, buffer),
            Self::Called(stream) => return stream.poll_read(cx, buffer),
            #[cfg(feature = "memory")]
            Self::Memory(stream) => return stream.poll_read(cx, buffer),
        }
        Poll::Ready(Ok(read.filled().len()))
    }

    /// The same into a buffer that may not be initialised, of a connection.
    pub(crate) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            _ => {
                let read = ready!(self.poll_read(cx, buffer.initialize_unfilled()))?;
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Writes the two pieces as one.
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
                // Found no room: only now the runtime has to know who waits for some.
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
            #[cfg(feature = "memory")]
            Self::Memory(stream) => stream.poll_write(cx, first, second),
        }
    }

    /// Whether bytes that were taken may still wait to be sent: all but TCP keep some back.
    #[inline]
    pub fn keeps_back(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }

    /// Our end of a connection; none of a stream on one.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Tls(stream) => stream.get_ref().0.local_addr().ok(),
            Self::Served(_) | Self::Called(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }

    /// Sends what is kept back.
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Served(stream) => stream.poll_flush(cx),
            Self::Called(stream) => stream.poll_flush(cx),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ends our direction.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Served(stream) => stream.poll_shutdown(cx),
            Self::Called(stream) => stream.poll_shutdown(cx),
            #[cfg(feature = "memory")]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether an idle connection is still good: neither closed nor saying something that nobody asked for. A readiness
    /// poll of what the runtime knows already, not a system call.
    #[inline]
    pub fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || Ok(())).is_err(),
            // Session tickets come while a TLS connection idles; only reading tells them from an answer.
            Self::Tls(_) => self.poll_read(cx, &mut [0]).is_pending(),
            // Serves one request.
            Self::Served(_) | Self::Called(_) => false,
            #[cfg(feature = "memory")]
            Self::Memory(_) => false,
        }
    }

    /// Ready when the client has given up the request that is being answered, where it can say so: on a stream.
    #[inline]
    pub fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Served(stream) => stream.poll_given_up(cx),
            _ => Poll::Pending,
        }
    }

    /// The socket, where this is a whole connection.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.get_ref().0),
            Self::Served(_) | Self::Called(_) => None,
            #[cfg(feature = "memory")]
            Self::Memory(_) => None,
        }
    }

    pub fn is_http2(&self) -> bool {
        matches!(self, Self::Served(_) | Self::Called(_))
    }
}

/// A write that went in part has found the socket full. The runtime is told, which spares the write that would only find
/// that out: the next one waits at once.
#[inline]
fn note_fullness(stream: &TcpStream, full: bool) {
    if full {
        let _ = stream.try_io(Interest::WRITABLE, || {
            Err::<(), _>(io::ErrorKind::WouldBlock.into())
        });
    }
}
