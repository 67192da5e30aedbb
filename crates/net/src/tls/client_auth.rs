//! Client certificates: the trusted CA certificates, and the subject of a client's certificate.

use super::certificate::{CertificateError, read_certificates};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A verifier of client certificates.
#[derive(Debug, Clone)]
pub struct ClientAuth(pub(super) Arc<dyn ClientCertVerifier>);

/// Treatment of clients without a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutCertificate {
    /// The handshake continues; the client may authenticate in another way.
    Continue,
    /// The handshake fails.
    Fail,
}

impl ClientAuth {
    /// Creates a verifier for these CA certificates, as PEM. A client with a certificate of another CA is always
    /// refused.
    pub fn new(authorities: &str, without: WithoutCertificate) -> Result<Self, CertificateError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(authorities)? {
            roots.add(certificate)?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::provider());
        let builder = match without {
            WithoutCertificate::Continue => builder.allow_unauthenticated(),
            WithoutCertificate::Fail => builder,
        };
        Ok(Self(builder.build()?))
    }
}

/// Returns the subject of the client's certificate, such as `CN=ci, O=Example`, or `None` if it sent none.
pub fn client_subject(stream: &TlsStream<TcpStream>) -> Option<String> {
    let (_, connection) = stream.get_ref();
    let certificate = connection.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.subject().to_string())
}
