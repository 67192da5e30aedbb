//! Verifies signatures with the keys of credentials.

use super::algorithm::Algorithm;
use aws_lc_rs::hmac;
use aws_lc_rs::signature::RsaPssSaltLength::{self, Max};
use aws_lc_rs::signature::{self as sig, ParsedPublicKey, RsaParameters, VerificationAlgorithm};
use x509_parser::asn1_rs::FromDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Number of bits from which an RSA key is not short. RFC 7518 requires it in sections 3.3 and 3.5.
const LONG_RSA: u32 = 2048;

static PS256_MAX: RsaParameters = with_salt(sig::RSA_PSS_2048_8192_SHA256, Max);
static PS384_MAX: RsaParameters = with_salt(sig::RSA_PSS_2048_8192_SHA384, Max);
static PS512_MAX: RsaParameters = with_salt(sig::RSA_PSS_2048_8192_SHA512, Max);

const fn with_salt(parameters: RsaParameters, length: RsaPssSaltLength) -> RsaParameters {
    parameters.with_pss_salt_length(length)
}

/// Checks an HMAC in constant time. The algorithm must be a symmetric one.
pub(super) fn verify_hmac(
    algorithm: Algorithm,
    secret: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let digest = match algorithm {
        Algorithm::Hs256 => hmac::HMAC_SHA256,
        Algorithm::Hs384 => hmac::HMAC_SHA384,
        Algorithm::Hs512 => hmac::HMAC_SHA512,
        _ => return false,
    };
    let key = hmac::Key::new(digest, secret);
    hmac::verify(&key, message, signature).is_ok()
}

/// A public key for one algorithm.
pub(super) struct PublicKey {
    key: ParsedPublicKey,
    /// Verifies signatures of PS256, PS384 and PS512 with the longest salt, which OpenSSL makes by default.
    /// RFC 7518 section 3.5 requires a salt of the length of the hash.
    with_long_salt: Option<ParsedPublicKey>,
    /// Whether it is an RSA key of less than 2,048 bits.
    pub(super) is_short: bool,
}

/// The reason why a public key cannot verify signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyProblem {
    #[error("its public key is not PEM with a public key or a certificate")]
    Unreadable,
    #[error("its public key is of another type than {0} needs, or invalid")]
    Unfit(Algorithm),
    #[error("its RSA key has only {0} bits. {1} needs at least 2048")]
    Short(u32, Algorithm),
}

impl PublicKey {
    /// Parses a key in PEM. Only a key of the type of the algorithm is accepted, for ES256, ES384 and ES512 only one on
    /// the curve of the algorithm.
    pub(super) fn parse(algorithm: Algorithm, pem: &str) -> Result<Self, KeyProblem> {
        use Algorithm::*;
        let der = key_in(pem).ok_or(KeyProblem::Unreadable)?;
        let bits = match algorithm {
            Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512 => rsa_bits(&der),
            _ => None,
        };
        let is_short = bits.is_some_and(|bits| bits < LONG_RSA);
        let verifies: &'static dyn VerificationAlgorithm = match (algorithm, bits) {
            (Rs256, _) if is_short => &sig::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
            (Rs512, _) if is_short => &sig::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
            (_, Some(bits)) if is_short => return Err(KeyProblem::Short(bits, algorithm)),
            (Rs256, _) => &sig::RSA_PKCS1_2048_8192_SHA256,
            (Rs384, _) => &sig::RSA_PKCS1_2048_8192_SHA384,
            (Rs512, _) => &sig::RSA_PKCS1_2048_8192_SHA512,
            (Ps256, _) => &sig::RSA_PSS_2048_8192_SHA256,
            (Ps384, _) => &sig::RSA_PSS_2048_8192_SHA384,
            (Ps512, _) => &sig::RSA_PSS_2048_8192_SHA512,
            (Es256, _) => &sig::ECDSA_P256_SHA256_FIXED,
            (Es384, _) => &sig::ECDSA_P384_SHA384_FIXED,
            (Es512, _) => &sig::ECDSA_P521_SHA512_FIXED,
            (EdDsa, _) => &sig::ED25519,
            (Hs256 | Hs384 | Hs512, _) => return Err(KeyProblem::Unfit(algorithm)),
        };
        let with_long_salt: Option<&'static RsaParameters> = match algorithm {
            Ps256 => Some(&PS256_MAX),
            Ps384 => Some(&PS384_MAX),
            Ps512 => Some(&PS512_MAX),
            _ => None,
        };
        let parsed = |verifies: &'static dyn VerificationAlgorithm| {
            ParsedPublicKey::new(verifies, &der).map_err(|_| KeyProblem::Unfit(algorithm))
        };
        Ok(Self {
            key: parsed(verifies)?,
            with_long_salt: with_long_salt.map(|one| parsed(one)).transpose()?,
            is_short,
        })
    }

    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let is_right = |key: &ParsedPublicKey| key.verify_sig(message, signature).is_ok();
        is_right(&self.key) || self.with_long_salt.as_ref().is_some_and(is_right)
    }
}

/// Returns the key of a PEM text in DER: a SubjectPublicKeyInfo (RFC 5280), or an RSAPublicKey (RFC 8017). These are the
/// forms that the check of credentials accepts.
fn key_in(pem: &str) -> Option<Vec<u8>> {
    let pem = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
    match &*pem.label {
        "PUBLIC KEY" | "RSA PUBLIC KEY" => Some(pem.contents),
        "CERTIFICATE" => {
            let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
            Some(certificate.public_key().raw.to_vec())
        }
        _ => None,
    }
}

/// Returns the size of an RSA key, or `None` if it is not one.
fn rsa_bits(der: &[u8]) -> Option<u32> {
    let inner = match SubjectPublicKeyInfo::from_der(der) {
        Ok((_, info)) => info.subject_public_key.data.into_owned(),
        Err(_) => der.to_vec(),
    };
    RsaParameters::public_modulus_len(&inner).ok()
}
