//! Verifies client certificates, and reads their subject.

use super::certificate::{CertificateError, read_certificates};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError as RustlsCertificateError, DigitallySignedStruct, DistinguishedName,
    OtherError, RootCertStore, SignatureScheme,
};
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
    /// Creates a verifier that trusts these CA certificates, as PEM. Clients with a certificate of another CA are
    /// always refused.
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
        Ok(Self(Arc::new(Explained(builder.build()?))))
    }
}

/// Error for certificates of an X.509 version that webpki does not support; it supports only version 3.
#[derive(Debug, thiserror::Error)]
#[error(
    "a client certificate of X.509 version 1 or 2 cannot be verified: issue it anew as version 3, for example with \
     `openssl x509 -req -extfile`"
)]
struct OldVersion;

/// Wraps rustls' verifier to explain one error. For a certificate of version 1 rustls reports only
/// `UnsupportedCertVersion`; this verifier reports what to do.
#[derive(Debug)]
struct Explained(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Explained {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.0.verify_client_cert(certificate, between, now);
        verified.map_err(|error| match is_of_version(&error) {
            true => OtherError(Arc::new(OldVersion)).into(),
            false => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Whether the certificate was refused because of its X.509 version.
fn is_of_version(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(RustlsCertificateError::Other(OtherError(cause))) = error
    else {
        return false;
    };
    let cause = cause.downcast_ref::<webpki::Error>();
    cause == Some(&webpki::Error::UnsupportedCertVersion)
}

/// Returns the subject of the client's certificate, such as `CN=ci, O=Example`. Returns `None` if the client sent no
/// certificate.
pub fn client_subject(stream: &TlsStream<TcpStream>) -> Option<String> {
    let (_, connection) = stream.get_ref();
    let certificate = connection.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.subject().to_string())
}
