//! The bytes of a connection, in plaintext or through rustls. All operations are non-blocking.

use super::Target;
use crate::certificate;
use anyhow::{Context, Result};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use std::io::{self, BufRead, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

/// Opens connections to one target.
pub struct Dialer {
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
    registry: Registry,
}

impl Dialer {
    pub fn new(target: &Target, registry: Registry) -> Result<Self> {
        Ok(Self {
            address: target.address,
            tls: target.tls.then(tls_config).transpose()?,
            registry,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn dial(&self, token: Token) -> Result<Transport> {
        let mut stream = TcpStream::connect(self.address)
            .with_context(|| format!("cannot connect to {}", self.address))?;
        stream.set_nodelay(true)?;
        self.registry
            .register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let tls = match &self.tls {
            Some(config) => {
                let name = ServerName::try_from(certificate::NAME)?;
                Some(Box::new(ClientConnection::new(Arc::clone(config), name)?))
            }
            None => None,
        };
        Ok(Transport {
            stream,
            tls,
            connected: false,
            unsent: 0,
        })
    }
}

pub struct Transport {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    connected: bool,
    /// Number of bytes of the request that the socket has not accepted yet. With TLS, rustls buffers them instead.
    unsent: usize,
}

impl Transport {
    /// Whether the connection is established, including the TLS handshake.
    pub fn is_ready(&self) -> bool {
        self.connected && self.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
    }

    /// Sends a request. If the socket does not accept all bytes now, [`Self::on_writable`] sends the rest.
    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                tls.writer().write_all(request)?;
                self.flush_tls()
            }
            None => {
                self.unsent = request.len();
                self.send_rest(request)
            }
        }
    }

    fn send_rest(&mut self, request: &[u8]) -> io::Result<()> {
        let rest = &request[request.len() - self.unsent..];
        match self.stream.write(rest) {
            Ok(written) => self.unsent -= written,
            Err(error) if is_not_yet(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Sends the remaining bytes after the socket has become writable. `request` must be the one passed to
    /// [`Self::send`].
    pub fn on_writable(&mut self, event: &Event, request: &[u8]) -> io::Result<()> {
        self.connected |= !event.is_error();
        if self.tls.is_some() {
            self.flush_tls()
        } else if self.unsent > 0 {
            self.send_rest(request)
        } else {
            Ok(())
        }
    }

    fn flush_tls(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if is_not_yet(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the socket once and passes the bytes to `sink`. Returns `None` if nothing is available now.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        mut sink: impl FnMut(&[u8]),
    ) -> io::Result<Option<Read>> {
        let length = match self.stream.read(buffer) {
            Ok(length) => length,
            Err(error) if is_not_yet(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut read = Read {
            emptied: length < buffer.len(),
            ended: length == 0,
        };
        let bytes = &buffer[..length];
        if let Some(tls) = &mut self.tls {
            read.ended |= decrypt(tls, bytes, sink)?;
            // Handshakes and key updates need a reply, and a request may have waited for the handshake.
            self.flush_tls()?;
        } else {
            sink(bytes);
        }
        Ok(Some(read))
    }
}

pub struct Read {
    /// Whether the read was shorter than the buffer, so that the socket is empty for now.
    pub emptied: bool,
    /// Whether the other side will send no more.
    pub ended: bool,
}

/// Decrypts received bytes. Returns whether the other side has announced that it will send no more.
fn decrypt(
    tls: &mut ClientConnection,
    mut bytes: &[u8],
    mut sink: impl FnMut(&[u8]),
) -> io::Result<bool> {
    let invalid = |error: rustls::Error| io::Error::new(ErrorKind::InvalidData, error);
    let mut ended = false;
    while !bytes.is_empty() {
        // rustls takes at most 4 KiB at a time, so the bytes of one socket read need many of these calls.
        // After the end of the session, rustls takes no more bytes.
        if tls.read_tls(&mut bytes)? == 0 {
            return Ok(true);
        }
        let state = tls.process_new_packets().map_err(invalid)?;
        ended |= state.peer_has_closed();
        let mut left = state.plaintext_bytes_to_read();
        let mut reader = tls.reader();
        while left > 0 {
            let chunk = reader.fill_buf()?;
            let length = chunk.len();
            sink(chunk);
            reader.consume(length);
            left -= length;
        }
    }
    Ok(ended)
}

/// Whether the call must be repeated after the next event: it would block, or the connection is not yet established.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

fn tls_config() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Without resumption every handshake is a full one, so that subjects with and without it can be compared.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Accepts every certificate. This is safe in the benchmark only, which runs on loopback with certificates of its own.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
