//! Makes tokens for tests, with keys that are made once.

use crate::jwt::algorithm::Algorithm;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{self as sig, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaEncoding};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Value, json};
use std::sync::LazyLock;

pub(super) const SECRET: &str = "s3cr3t";

static RSA: LazyLock<RsaKeyPair> = LazyLock::new(|| rsa(KeySize::Rsa2048));
static LARGE_RSA: LazyLock<RsaKeyPair> = LazyLock::new(|| rsa(KeySize::Rsa3072));
static P256: LazyLock<EcdsaKeyPair> = LazyLock::new(|| ec(&sig::ECDSA_P256_SHA256_FIXED_SIGNING));
static P384: LazyLock<EcdsaKeyPair> = LazyLock::new(|| ec(&sig::ECDSA_P384_SHA384_FIXED_SIGNING));
static P521: LazyLock<EcdsaKeyPair> = LazyLock::new(|| ec(&sig::ECDSA_P521_SHA512_FIXED_SIGNING));
static ED25519: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::generate().expect("a key is generated"));

fn rsa(size: KeySize) -> RsaKeyPair {
    RsaKeyPair::generate(size).expect("a key is generated")
}

fn ec(algorithm: &'static sig::EcdsaSigningAlgorithm) -> EcdsaKeyPair {
    EcdsaKeyPair::generate(algorithm).expect("a key is generated")
}

/// A key that makes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signer {
    Secret,
    Rsa,
    LargeRsa,
    /// RSA with the longest salt, for PS256, PS384 and PS512.
    LongSalt,
    P256,
    P384,
    P521,
    Ed25519,
}

/// Returns the key whose signatures an algorithm verifies.
pub(super) fn signer(algorithm: Algorithm) -> Signer {
    use Algorithm::*;
    match algorithm {
        Hs256 | Hs384 | Hs512 => Signer::Secret,
        Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512 => Signer::Rsa,
        Es256 => Signer::P256,
        Es384 => Signer::P384,
        Es512 => Signer::P521,
        EdDsa => Signer::Ed25519,
    }
}

impl Signer {
    /// Returns the public key in PEM.
    pub(super) fn pem(self) -> String {
        let der = match self {
            Self::Secret => panic!("a secret has no public key"),
            Self::Rsa | Self::LongSalt => RSA.public_key().as_der(),
            Self::LargeRsa => LARGE_RSA.public_key().as_der(),
            Self::P256 => P256.public_key().as_der(),
            Self::P384 => P384.public_key().as_der(),
            Self::P521 => P521.public_key().as_der(),
            Self::Ed25519 => ED25519.public_key().as_der(),
        };
        let der = der.expect("the key can be written");
        pem("PUBLIC KEY", der.as_ref())
    }

    /// Signs a message by an algorithm that the key fits.
    pub(super) fn sign(self, algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
        let rsa = |key: &RsaKeyPair, encoding: &'static dyn RsaEncoding| {
            let mut signature = vec![0; key.public_modulus_len()];
            let random = SystemRandom::new();
            key.sign(encoding, &random, message, &mut signature)
                .expect("the message is signed");
            signature
        };
        let ec = |key: &EcdsaKeyPair| {
            let signature = key.sign(&SystemRandom::new(), message);
            signature.expect("the message is signed").as_ref().to_vec()
        };
        match self {
            Self::Secret => hmac_of(algorithm, SECRET.as_bytes(), message),
            Self::Rsa => rsa(&RSA, encoding(algorithm)),
            Self::LargeRsa => rsa(&LARGE_RSA, encoding(algorithm)),
            Self::LongSalt => rsa(&RSA, long_salt(algorithm)),
            Self::P256 => ec(&P256),
            Self::P384 => ec(&P384),
            Self::P521 => ec(&P521),
            Self::Ed25519 => ED25519.sign(message).as_ref().to_vec(),
        }
    }
}

pub(super) fn hmac_of(algorithm: Algorithm, secret: &[u8], message: &[u8]) -> Vec<u8> {
    let digest = match algorithm {
        Algorithm::Hs256 => hmac::HMAC_SHA256,
        Algorithm::Hs384 => hmac::HMAC_SHA384,
        _ => hmac::HMAC_SHA512,
    };
    let key = hmac::Key::new(digest, secret);
    hmac::sign(&key, message).as_ref().to_vec()
}

fn encoding(algorithm: Algorithm) -> &'static dyn RsaEncoding {
    match algorithm {
        Algorithm::Rs256 => &sig::RSA_PKCS1_SHA256,
        Algorithm::Rs384 => &sig::RSA_PKCS1_SHA384,
        Algorithm::Rs512 => &sig::RSA_PKCS1_SHA512,
        Algorithm::Ps256 => &sig::RSA_PSS_SHA256,
        Algorithm::Ps384 => &sig::RSA_PSS_SHA384,
        Algorithm::Ps512 => &sig::RSA_PSS_SHA512,
        other => panic!("{other} has no RSA keys"),
    }
}

fn long_salt(algorithm: Algorithm) -> &'static dyn RsaEncoding {
    use sig::RsaPssSaltLength::Max;
    static SHA256: sig::RsaSignatureEncoding = sig::RSA_PSS_SHA256.with_pss_salt_length(Max);
    static SHA384: sig::RsaSignatureEncoding = sig::RSA_PSS_SHA384.with_pss_salt_length(Max);
    static SHA512: sig::RsaSignatureEncoding = sig::RSA_PSS_SHA512.with_pss_salt_length(Max);
    match algorithm {
        Algorithm::Ps256 => &SHA256,
        Algorithm::Ps384 => &SHA384,
        Algorithm::Ps512 => &SHA512,
        other => panic!("{other} has no salt"),
    }
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

/// Returns the part of a token before the signature.
pub(super) fn unsigned(header: &str, claims: &str) -> String {
    let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
    format!("{}.{}", encode(header), encode(claims))
}

pub(super) fn with_signature(unsigned: &str, signature: &[u8]) -> String {
    format!("{unsigned}.{}", BASE64URL_NOPAD.encode(signature))
}

/// Makes a token of header and claims as they are, and signs it by an algorithm with the key that fits.
pub(super) fn signed(algorithm: Algorithm, header: &str, claims: &str) -> String {
    let unsigned = unsigned(header, claims);
    let signature = signer(algorithm).sign(algorithm, unsigned.as_bytes());
    with_signature(&unsigned, &signature)
}

/// Makes a good token.
pub(super) fn token(algorithm: Algorithm, claims: &Value) -> String {
    let header = json!({"typ": "JWT", "alg": algorithm.name()});
    signed(algorithm, &header.to_string(), &claims.to_string())
}
