//! Reads certificates and their keys from PEM, and generates self-signed ones.

use super::public_key;
use rcgen::{DistinguishedName, DnType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::VerifierBuilderError;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error as TlsError, SignatureScheme};
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("not a PEM certificate")]
    Certificate,
    #[error("not a PEM private key")]
    Key,
    #[error(
        "the private key is {0}, which this gateway cannot sign with: use a certificate with RSA of 2048 to 8192 bits, ECDSA on \
         P-256, P-384 or P-521, or Ed25519"
    )]
    Kind(String),
    #[error("the private key does not match the certificate")]
    Mismatch,
    #[error("unusable certificate or key: {0}")]
    Unusable(#[from] TlsError),
    #[error("unusable CA certificate: {0}")]
    Authority(#[from] VerifierBuilderError),
    #[error("cannot generate a certificate: {0}")]
    Generate(#[from] rcgen::Error),
}

/// A certificate chain with its key. Optionally a second chain whose key has another type (`cert_alt`).
#[derive(Debug, Clone)]
pub struct Certificates {
    main: Arc<CertifiedKey>,
    alternative: Option<Arc<CertifiedKey>>,
    /// When the first of them expires, in seconds since 1970.
    expires: i64,
}

impl Certificates {
    pub fn from_pem(cert: &str, key: &str) -> Result<Self, CertificateError> {
        let main = Arc::new(read_pair(cert, key)?);
        Ok(Self {
            expires: expiry(&main),
            main,
            alternative: None,
        })
    }

    /// Adds the second chain and its key.
    pub fn with_alternative(mut self, cert: &str, key: &str) -> Result<Self, CertificateError> {
        let alternative = Arc::new(read_pair(cert, key)?);
        self.expires = self.expires.min(expiry(&alternative));
        self.alternative = Some(alternative);
        Ok(self)
    }

    /// Returns when the first of the certificates expires, in seconds since 1970.
    pub fn expires(&self) -> i64 {
        self.expires
    }

    /// Returns a certificate whose key supports one of the client's signature schemes. If none does, returns the main
    /// certificate; the handshake then fails with the right alert.
    pub(super) fn choose(&self, schemes: &[SignatureScheme]) -> Arc<CertifiedKey> {
        let fits = |pair: &&Arc<CertifiedKey>| pair.key.choose_scheme(schemes).is_some();
        // Prefer elliptic-curve keys, which sign about ten times as fast as RSA keys.
        [Some(&self.main), self.alternative.as_ref()]
            .into_iter()
            .flatten()
            .filter(fits)
            .min_by_key(|pair| pair.key.algorithm() == rustls::SignatureAlgorithm::RSA)
            .unwrap_or(&self.main)
            .clone()
    }

    pub(super) fn main(&self) -> &Arc<CertifiedKey> {
        &self.main
    }
}

/// Returns when a certificate expires. The authorities in its chain do not count: chains are served with some that have
/// expired, for old clients.
fn expiry(pair: &CertifiedKey) -> i64 {
    let parsed = pair.cert.first().and_then(|certificate| {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        Some(parsed.validity().not_after.timestamp())
    });
    // A key was found for the certificate, so that it can be read.
    parsed.unwrap_or(i64::MAX)
}

pub(super) fn read_certificates(
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| CertificateError::Certificate)?;
    if chain.is_empty() {
        return Err(CertificateError::Certificate);
    }
    Ok(chain)
}

fn read_pair(cert: &str, key: &str) -> Result<CertifiedKey, CertificateError> {
    let chain = read_certificates(cert)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| CertificateError::Key)?;
    let key = match super::PROVIDER.key_provider.load_private_key(key) {
        Ok(key) => key,
        Err(error) => {
            return Err(
                public_key::unusable_kind(&chain[0]).map_or(error.into(), CertificateError::Kind)
            );
        }
    };
    check_match(&chain[0], &*key)?;
    Ok(CertifiedKey::new(chain, key))
}

/// Checks that the key belongs to the certificate. Unlike rustls' own check, it accepts X.509 version 1.
fn check_match(
    certificate: &CertificateDer<'_>,
    key: &dyn SigningKey,
) -> Result<(), CertificateError> {
    let certified = public_key::of(certificate).ok_or(TlsError::InvalidCertificate(
        rustls::CertificateError::BadEncoding,
    ))?;
    match key.public_key() {
        Some(own) if own != certified => Err(CertificateError::Mismatch),
        _ => Ok(()),
    }
}

/// Generates a self-signed certificate, for a node without a configured one. Clients that verify certificates refuse
/// it.
pub fn self_signed() -> Result<Certificates, CertificateError> {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    for (part, value) in [
        (DnType::CommonName, "localhost"),
        (DnType::OrganizationName, "Silverback"),
    ] {
        params.distinguished_name.push(part, value);
    }
    let key = rcgen::KeyPair::generate()?;
    let chain = vec![params.self_signed(&key)?.der().clone()];
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let pair = CertifiedKey::from_der(chain, key.into(), &super::provider())?;
    Ok(Certificates {
        expires: expiry(&pair),
        main: Arc::new(pair),
        alternative: None,
    })
}
