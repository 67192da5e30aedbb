//! Reads keys in PEM, and describes them as JSON Web Keys (RFC 7517).

use aws_lc_rs::digest;
use aws_lc_rs::signature::{
    self as sig, EcdsaKeyPair, KeyPair, ParsedPublicKey, RsaKeyPair, VerificationAlgorithm,
};
use data_encoding::BASE64URL_NOPAD;
use serde::Serialize;
use x509_parser::asn1_rs::FromDer;
use x509_parser::pem::Pem;
use x509_parser::public_key::{PublicKey as Parsed, RSAPublicKey};
use x509_parser::x509::SubjectPublicKeyInfo;

/// A private key. Its type decides about the algorithm.
pub(super) enum PrivateKey {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

/// A public key, which verifies signatures of one algorithm.
pub(super) struct PublicKey {
    pub(super) algorithm: &'static str,
    pub(super) key: ParsedPublicKey,
    pub(super) jwk: Jwk,
}

/// A key as the JWKS endpoint shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Jwk {
    kty: &'static str,
    #[serde(rename = "use")]
    usage: &'static str,
    alg: &'static str,
    pub(super) kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
}

/// Reads a private key: PKCS #8, or the older forms of its type.
pub(super) fn private_key(pem: &str) -> Option<PrivateKey> {
    let pem = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
    let der = &pem.contents;
    let ec = || EcdsaKeyPair::from_private_key_der(&sig::ECDSA_P256_SHA256_FIXED_SIGNING, der);
    let pkcs8_ec = || EcdsaKeyPair::from_pkcs8(&sig::ECDSA_P256_SHA256_FIXED_SIGNING, der);
    match &*pem.label {
        "PRIVATE KEY" => match pkcs8_ec() {
            Ok(pair) => Some(PrivateKey::Es256(pair)),
            Err(_) => RsaKeyPair::from_pkcs8(der).ok().map(PrivateKey::Rs256),
        },
        "EC PRIVATE KEY" => ec().ok().map(PrivateKey::Es256),
        "RSA PRIVATE KEY" => RsaKeyPair::from_der(der).ok().map(PrivateKey::Rs256),
        _ => None,
    }
}

impl PrivateKey {
    pub(super) fn public(&self) -> Option<PublicKey> {
        match self {
            Self::Es256(pair) => PublicKey::ec(pair.public_key().as_ref()),
            Self::Rs256(pair) => PublicKey::rsa(pair.public_key().as_ref()),
        }
    }
}

impl PublicKey {
    /// Reads a public key in PEM.
    pub(super) fn read(pem: &str) -> Option<Self> {
        let pem = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
        if pem.label != "PUBLIC KEY" {
            return None;
        }
        let (_, info) = SubjectPublicKeyInfo::from_der(&pem.contents).ok()?;
        let bits = info.subject_public_key.data.as_ref();
        match info.parsed().ok()? {
            Parsed::EC(_) => Self::ec(bits),
            Parsed::RSA(_) => Self::rsa(bits),
            _ => None,
        }
    }

    /// Reads a point on P-256, uncompressed: 4, x, y.
    fn ec(point: &[u8]) -> Option<Self> {
        let (x, y) = match point.split_first()? {
            (4, rest) if rest.len() == 64 => rest.split_at(32),
            _ => return None,
        };
        let (x, y) = (BASE64URL_NOPAD.encode(x), BASE64URL_NOPAD.encode(y));
        let kid = thumbprint(&format!(
            r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#
        ));
        Some(Self {
            algorithm: "ES256",
            key: parsed(&sig::ECDSA_P256_SHA256_FIXED, point)?,
            jwk: Jwk {
                kty: "EC",
                usage: "sig",
                alg: "ES256",
                kid,
                crv: Some("P-256"),
                x: Some(x),
                y: Some(y),
                n: None,
                e: None,
            },
        })
    }

    /// Reads an RSAPublicKey (RFC 8017) in DER.
    fn rsa(der: &[u8]) -> Option<Self> {
        let (_, key) = RSAPublicKey::from_der(der).ok()?;
        let number = |bytes: &[u8]| {
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            bytes
                .get(zeros..)
                .map(|digits| BASE64URL_NOPAD.encode(digits))
        };
        let (n, e) = (number(key.modulus)?, number(key.exponent)?);
        let kid = thumbprint(&format!(r#"{{"e":"{e}","kty":"RSA","n":"{n}"}}"#));
        Some(Self {
            algorithm: "RS256",
            key: parsed(&sig::RSA_PKCS1_2048_8192_SHA256, der)?,
            jwk: Jwk {
                kty: "RSA",
                usage: "sig",
                alg: "RS256",
                kid,
                crv: None,
                x: None,
                y: None,
                n: Some(n),
                e: Some(e),
            },
        })
    }
}

fn parsed(algorithm: &'static dyn VerificationAlgorithm, key: &[u8]) -> Option<ParsedPublicKey> {
    ParsedPublicKey::new(algorithm, key).ok()
}

/// The id of a key: the hash of its members in a fixed form (RFC 7638).
fn thumbprint(members: &str) -> String {
    let hash = digest::digest(&digest::SHA256, members.as_bytes());
    BASE64URL_NOPAD.encode(hash.as_ref())
}
