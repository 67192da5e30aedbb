//! Certificates that clients show: which authorities are believed, and what a certificate says of its owner.

use super::certificate::{CertificateError, read_certificates};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A verifier of the certificates of clients.
#[derive(Debug, Clone)]
pub struct ClientAuth(pub(super) Arc<dyn ClientCertVerifier>);

/// What becomes of clients without a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutCertificate {
    /// They may have other ways to show who they are.
    Continue,
    /// The handshake fails.
    Fail,
}

impl ClientAuth {
    /// `authorities` is PEM. Whoever shows a certificate of somebody else is refused in any case.
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

/// Whose certificate the client has shown, such as `CN=ci, O=Example`; none where it has shown none.
pub fn client_subject(stream: &TlsStream<TcpStream>) -> Option<String> {
    let (_, connection) = stream.get_ref();
    let certificate = connection.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.subject().to_string())
}
