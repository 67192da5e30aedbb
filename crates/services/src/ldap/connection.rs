//! A connection to a directory: how it is opened, and one request after another on it.

use super::message::{Framing, FramingError, Request, Response, framing};
use super::{LdapErrorKind, Malformed, MessageTooLong, Refusal, Security, Settings, Verdict};
use crate::http::ConnectError;
use crate::http::connect::{Transport, connect_tcp};
use net::dns::Host;
use net::tls::ClientTls;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Number of bytes that a read asks for.
const PIECE: usize = 1024;

/// Opens the connections of a pool.
pub(super) struct Opener {
    pub(super) settings: Settings,
    pub(super) host: Arc<Host>,
    pub(super) tls: ClientTls,
}

pub(super) struct Connection {
    transport: Transport,
    /// The number of the last request. It is never used again on this connection.
    last_id: u32,
}

impl Opener {
    pub(super) async fn open(&self) -> Result<Connection, LdapErrorKind> {
        let stream = self.limited(connect_tcp(&self.host, self.settings.timeout));
        let stream = stream.await?;
        match self.settings.security {
            Security::Plain => Ok(Connection::new(Transport::Plain(stream))),
            Security::Tls => self.protect(stream).await,
            Security::StartTls => {
                let stream = self.start_tls(stream).await?;
                self.protect(stream).await
            }
        }
    }

    /// Asks for TLS on a new connection (RFC 4511, section 4.14).
    async fn start_tls(&self, stream: TcpStream) -> Result<TcpStream, LdapErrorKind> {
        let mut plain = Connection::new(Transport::Plain(stream));
        let response = self.exchange(&mut plain, Request::StartTls).await?;
        match (response.code, plain.transport) {
            (0, Transport::Plain(stream)) => Ok(stream),
            (code, _) => Err(LdapErrorKind::NoStartTls(code)),
        }
    }

    async fn protect(&self, stream: TcpStream) -> Result<Connection, LdapErrorKind> {
        let handshake = async {
            let tls = self.tls.connect(stream, &self.settings.host).await;
            tls.map_err(|error| ConnectError::Tls(Arc::new(error)))
        };
        let tls = self.limited(handshake).await?;
        Ok(Connection::new(Transport::Tls(Box::new(tls))))
    }

    /// Checks a name and a password on a connection.
    pub(super) async fn bind(
        &self,
        connection: &mut Connection,
        name: &str,
        password: &[u8],
    ) -> Result<Verdict, LdapErrorKind> {
        let request = Request::Bind { name, password };
        let response = self.exchange(connection, request).await?;
        Ok(match response.code {
            0 => Verdict::Accepted,
            code => Verdict::Refused(Refusal {
                code,
                diagnostic: response.diagnostic,
            }),
        })
    }

    async fn exchange(
        &self,
        connection: &mut Connection,
        request: Request<'_>,
    ) -> Result<Response, LdapErrorKind> {
        let limit = self.settings.timeout;
        let response = timeout(limit, connection.exchange(request)).await;
        response.unwrap_or(Err(LdapErrorKind::Timeout(limit)))
    }

    async fn limited<T>(
        &self,
        step: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, LdapErrorKind> {
        let limit = self.settings.timeout;
        let done = timeout(limit, step).await;
        let done = done.unwrap_or(Err(ConnectError::Timeout(limit)));
        done.map_err(LdapErrorKind::Connect)
    }
}

impl Connection {
    fn new(transport: Transport) -> Self {
        Self {
            transport,
            last_id: 0,
        }
    }

    /// Sends a request and reads its response. After an error, the connection must not be used again.
    async fn exchange(&mut self, request: Request<'_>) -> Result<Response, LdapErrorKind> {
        self.send(request).await?;
        let bytes = self.receive().await?;
        let response = Response::parse(&bytes)?;
        // A directory that is about to close the connection says so with the number 0 (RFC 4511, section 4.4.1).
        if response.id == 0 {
            return Err(LdapErrorKind::Closed);
        }
        if response.id != self.last_id || Some(response.kind) != request.answer() {
            return Err(LdapErrorKind::Unexpected);
        }
        Ok(response)
    }

    async fn send(&mut self, request: Request<'_>) -> Result<(), LdapErrorKind> {
        // Numbers have 31 bits. A connection that has used all is not used again.
        let id = self.last_id.checked_add(1).filter(|&id| id < 1 << 31);
        self.last_id = id.ok_or(LdapErrorKind::Closed)?;
        let message = request.encode(self.last_id);
        let message = message.map_err(|error| LdapErrorKind::Failed(io::Error::other(error)))?;
        self.transport.write_all(&message).await.map_err(failure)?;
        self.transport.flush().await.map_err(failure)
    }

    /// Reads one message. More than that is an error: a directory answers only what it was asked. After StartTLS, bytes
    /// that came before the handshake would otherwise count as protected.
    async fn receive(&mut self) -> Result<Vec<u8>, LdapErrorKind> {
        let mut bytes = Vec::with_capacity(PIECE);
        loop {
            match framing(&bytes) {
                Ok(Framing::Whole(length)) if bytes.len() == length => return Ok(bytes),
                Ok(Framing::Whole(length)) if bytes.len() > length => {
                    return Err(LdapErrorKind::Unexpected);
                }
                Ok(_) => {}
                Err(FramingError::Malformed) => return Err(Malformed::NoMessage.into()),
                Err(FramingError::TooLong) => return Err(MessageTooLong.into()),
            }
            let mut piece = [0; PIECE];
            let read = self.transport.read(&mut piece).await.map_err(failure)?;
            if read == 0 {
                return Err(LdapErrorKind::Closed);
            }
            bytes.extend_from_slice(&piece[..read]);
        }
    }

    /// Waits until the directory closes the connection or says something. It was asked nothing, so the connection cannot
    /// be used after that.
    pub(super) async fn disturbed(&mut self) {
        let mut byte = [0];
        let _ = self.transport.read(&mut byte).await;
    }

    /// Closes the connection in order.
    pub(super) async fn unbind(mut self) {
        if self.send(Request::Unbind).await.is_ok() {
            let _ = self.transport.shutdown().await;
        }
    }
}

fn failure(error: io::Error) -> LdapErrorKind {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => LdapErrorKind::Closed,
        _ => LdapErrorKind::Failed(error),
    }
}
