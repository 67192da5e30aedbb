//! Describes in words why the certificate of an upstream was refused. The texts of rustls show the names of its types.

use rustls::{CertificateError, Error, OtherError};
use std::io;
use webpki::Error as Reason;

/// The certificate of an upstream was refused.
#[derive(Debug, thiserror::Error)]
#[error("the upstream's certificate {}", in_words(.0))]
pub(super) struct RefusedCertificate(pub(super) CertificateError);

impl RefusedCertificate {
    /// Replaces the error of a handshake if the upstream's certificate was its cause.
    pub(super) fn describe(error: io::Error) -> io::Error {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        match cause {
            Some(Error::InvalidCertificate(reason)) => {
                io::Error::new(error.kind(), Self(reason.clone()))
            }
            _ => error,
        }
    }
}

fn in_words(error: &CertificateError) -> String {
    let reason = match error {
        CertificateError::Other(OtherError(cause)) => cause.downcast_ref(),
        _ => None,
    };
    match reason {
        Some(reason) => format!("{} ({})", verdict(reason), name(reason)),
        None => format!("was refused: {error}"),
    }
}

fn verdict(reason: &Reason) -> &'static str {
    match reason {
        Reason::UnknownIssuer => "is not signed by a trusted CA",
        Reason::CertExpired { .. } => "has expired",
        Reason::CertNotValidYet { .. } => "is not valid yet",
        Reason::InvalidCertValidity => "ends before it begins",
        Reason::CaUsedAsEndEntity => "is that of a CA",
        Reason::EndEntityUsedAsCa => "is signed by a certificate that is not of a CA",
        Reason::InvalidSignatureForPublicKey => "has a wrong signature",
        Reason::NameConstraintViolation => "has a name that its CA may not sign",
        Reason::PathLenConstraintViolated | Reason::MaximumPathDepthExceeded => {
            "has too many certificates between itself and a trusted CA"
        }
        Reason::RequiredEkuNotFoundContext(_) => "is not for TLS servers",
        _ => "was refused",
    }
}

/// The name of a reason without its fields, to search for.
fn name(reason: &Reason) -> String {
    let text = format!("{reason:?}");
    text.chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn described(error: CertificateError) -> String {
        let cause = io::Error::new(io::ErrorKind::InvalidData, Error::InvalidCertificate(error));
        RefusedCertificate::describe(cause).to_string()
    }

    #[test]
    fn a_refused_certificate_is_described_in_words() {
        let of = |reason: Reason| described(CertificateError::Other(OtherError(Arc::new(reason))));
        assert_eq!(
            of(Reason::UnknownIssuer),
            "the upstream's certificate is not signed by a trusted CA (UnknownIssuer)"
        );
        let time = rustls::pki_types::UnixTime::now();
        let expired = Reason::CertExpired {
            time,
            not_after: time,
        };
        assert_eq!(
            of(expired),
            "the upstream's certificate has expired (CertExpired)"
        );
        assert_eq!(
            of(Reason::BadDer),
            "the upstream's certificate was refused (BadDer)"
        );
        assert_eq!(
            described(CertificateError::BadSignature),
            "the upstream's certificate was refused: BadSignature"
        );
    }

    #[test]
    fn other_errors_are_unchanged() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        let described = RefusedCertificate::describe(error);
        assert_eq!(described.kind(), io::ErrorKind::BrokenPipe);
        assert!(described.get_ref().is_none());
    }
}
