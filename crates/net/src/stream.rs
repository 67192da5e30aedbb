//! A connection, plain or TLS, client's or upstream's. An enum, since its two kinds are all there are: a generic would
//! compile the whole request lifecycle once for each.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>),
}

impl Stream {
    #[inline]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        match self {
            Self::Tcp(stream) => ready!(Pin::new(stream).poll_read(cx, &mut buffer))?,
            Self::Tls(stream) => ready!(Pin::new(stream).poll_read(cx, &mut buffer))?,
        }
        Poll::Ready(Ok(buffer.filled().len()))
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
                written => Poll::Ready(written),
            },
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, &both),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, &both),
        }
    }

    /// Only TLS keeps bytes back that it took.
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Ends our direction.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
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
        }
    }

    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}
