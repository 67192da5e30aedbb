//! Verifies an upstream's certificate: its chain, the length of the chain, and the host name.

use super::client::CommonName;
use super::common_name::{self, Warned};
use super::public_key;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use std::sync::Arc;
use webpki::{EndEntityCert, KeyUsage, RawPublicKeyEntity, VerifiedPath};

/// Verifier for `tls_verify` off. It accepts any certificate of any X.509 version, but the upstream must sign the
/// handshake with the certificate's key.
#[derive(Debug)]
pub(super) struct NotVerified;

/// Verifier for `tls_verify` on. The chain must lead to one of the CA certificates, with at most `depth` certificates
/// between the upstream's and the CA's. OpenSSL counts the depth in the same way (SSL_CTX_set_verify_depth).
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) authorities: RootCertStore,
    pub(super) depth: usize,
    pub(super) common_name: CommonName,
    pub(super) warned: Warned,
}

/// Error for certificates of an X.509 version that webpki does not support; it supports only version 3.
#[derive(Debug, thiserror::Error)]
#[error(
    "a certificate of X.509 version 1 or 2 cannot be verified: reissue it as version 3, for example with \
     `openssl x509 -req -extfile`, or switch `tls_verify` off"
)]
struct OldVersion;

impl Verified {
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let entity = EndEntityCert::try_from(certificate)?;
        let is_short = |path: &VerifiedPath<'_>| {
            if path.intermediate_certificates().count() > self.depth {
                return Err(webpki::Error::MaximumPathDepthExceeded);
            }
            Ok(())
        };
        let path = entity.verify_for_usage(
            algorithms().all,
            &self.authorities.roots,
            between,
            now,
            KeyUsage::server_auth(),
            None,
            Some(&is_short),
        )?;
        match entity.verify_is_valid_for_subject_name(name) {
            Err(_)
                if self.common_name == CommonName::Taken
                    && common_name::is_of(certificate, &path, name) =>
            {
                self.warned.warn(name);
                Ok(())
            }
            verified => verified,
        }
    }
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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = public_key::of(cert).ok_or(CertificateError::BadEncoding)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
        let fits = |(scheme, _): &&(SignatureScheme, _)| *scheme == signature.scheme;
        let of_scheme = algorithms().mapping.iter().find(fits);
        let signed = of_scheme.is_some_and(|(_, algorithms)| {
            algorithms.iter().any(|algorithm| {
                key.verify_signature(*algorithm, message, signature.signature())
                    .is_ok()
            })
        });
        if signed {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = public_key::of(cert).ok_or(CertificateError::BadEncoding)?;
        rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, signature, algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}

impl ServerCertVerifier for Verified {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let refused = |error| -> rustls::Error {
            match error {
                webpki::Error::CertNotValidForName(names) => {
                    CertificateError::NotValidForNameContext {
                        expected: names.expected,
                        presented: names.presented,
                    }
                    .into()
                }
                // Not as a `CertificateError`: its message would show the type name `OldVersion` instead of the text.
                webpki::Error::UnsupportedCertVersion => OtherError(Arc::new(OldVersion)).into(),
                error => CertificateError::Other(OtherError(Arc::new(error))).into(),
            }
        };
        self.check(certificate, between, name, now)
            .map_err(refused)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}

fn algorithms() -> &'static WebPkiSupportedAlgorithms {
    &super::PROVIDER.signature_verification_algorithms
}
