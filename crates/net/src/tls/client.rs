//! TLS with upstreams. A service's settings become one configuration when the snapshot is built; equal settings share one,
//! so that they share sessions and pooled connections too.

use super::certificate::{CertificateError, Certificates, read_certificates};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use tokio::net::TcpStream;

/// Whom to believe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Kong's default: upstream certificates are not looked at.
    Anyone,
    /// These authorities, as PEM; without any, every certificate is refused.
    Authorities(Vec<String>),
}

/// What we show when the upstream asks who we are: a certificate entity, told apart by its PEM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientIdentity {
    pub cert: String,
    pub key: String,
}

type Settings = (Trust, Option<ClientIdentity>);

#[derive(Debug)]
struct Shared {
    config: Arc<ClientConfig>,
    number: usize,
}

#[derive(Debug, Default)]
struct Known {
    by_settings: HashMap<Settings, Weak<Shared>>,
    made: usize,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The client side of TLS for one service.
#[derive(Debug, Clone)]
pub struct ClientTls(Arc<Shared>);

impl ClientTls {
    /// Takes a lock; for building snapshots.
    pub fn new(trust: Trust, identity: Option<ClientIdentity>) -> Result<Self, CertificateError> {
        let settings = (trust, identity);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.by_settings.get(&settings).and_then(Weak::upgrade) {
            return Ok(Self(shared));
        }
        let config = Arc::new(build(&settings.0, settings.1.as_ref())?);
        known.made += 1;
        let shared = Arc::new(Shared {
            config,
            number: known.made,
        });
        known
            .by_settings
            .retain(|_, shared| shared.strong_count() > 0);
        known.by_settings.insert(settings, Arc::downgrade(&shared));
        Ok(Self(shared))
    }

    /// Tells different settings apart, for the pool.
    pub fn number(&self) -> usize {
        self.0.number
    }

    /// The name is that of the Host header; its port, if any, is not sent (RFC 6066 allows host names only).
    pub async fn connect(
        &self,
        stream: TcpStream,
        name: &str,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let host = match name.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => name,
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        tokio_rustls::TlsConnector::from(self.0.config.clone())
            .connect(name, stream)
            .await
    }
}

fn build(
    trust: &Trust,
    identity: Option<&ClientIdentity>,
) -> Result<ClientConfig, CertificateError> {
    let builder = ClientConfig::builder_with_provider(super::provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier(trust)?);
    Ok(match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let pair = Certificates::from_pem(&identity.cert, &identity.key)?;
            builder.with_client_cert_resolver(Arc::new(Always(pair.main().clone())))
        }
    })
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesClientCert for Always {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, CertificateError> {
    let Trust::Authorities(pems) = trust else {
        return Ok(Arc::new(NotVerified));
    };
    let mut roots = RootCertStore::empty();
    for pem in pems {
        for certificate in read_certificates(pem)? {
            roots.add(certificate)?;
        }
    }
    if roots.is_empty() {
        return Ok(Arc::new(NobodyTrusted));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), super::provider())
        .build()
        .map(|verifier| verifier as _)
        .map_err(|_| CertificateError::Certificate)
}

/// `tls_verify` off: the certificate may say anything, but the handshake must still be signed with its key.
#[derive(Debug)]
struct NotVerified;

/// `tls_verify` on and nobody to trust.
#[derive(Debug)]
struct NobodyTrusted;

macro_rules! signatures_by_provider {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &super::PROVIDER.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &super::PROVIDER.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            super::PROVIDER
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

impl ServerCertVerifier for NotVerified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    signatures_by_provider!();
}

impl ServerCertVerifier for NobodyTrusted {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Err(rustls::Error::InvalidCertificate(
            rustls::CertificateError::UnknownIssuer,
        ))
    }

    signatures_by_provider!();
}
