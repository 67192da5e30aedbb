//! What is stored in place of what was given: hashes of secrets, digests of certificates.

use super::{Problems, random};
use crate::value::{Object, Value};
use ring::{digest, pbkdf2};
use sha1::{Digest, Sha1};
use std::fmt::Write;
use std::num::NonZeroU32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transformation {
    /// SHA-1 of the password followed by the consumer's id. Source: kong/plugins/basic-auth/crypto.lua.
    BasicauthPassword,
    /// SHA-256 of the certificate.
    CertDigest,
    /// The client secret, when `hash_secret` is set. Source: kong/plugins/oauth2/secret.lua.
    Oauth2Secret,
}

const PBKDF2_ROUNDS: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero");

impl Transformation {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "basicauth_password" => Self::BasicauthPassword,
            "cert_digest" => Self::CertDigest,
            "oauth2_secret" => Self::Oauth2Secret,
            _ => return None,
        })
    }

    /// The field that must be given for it to apply.
    pub(super) fn input(self) -> &'static str {
        match self {
            Self::BasicauthPassword => "password",
            Self::CertDigest => "cert",
            Self::Oauth2Secret => "client_secret",
        }
    }

    pub(super) fn apply(self, entity: &mut Object) -> Result<(), Problems> {
        match self {
            Self::BasicauthPassword => hash_password(entity),
            Self::CertDigest => digest_certificate(entity)?,
            Self::Oauth2Secret => hash_secret(entity),
        }
        Ok(())
    }
}

fn hash_password(entity: &mut Object) {
    let consumer = entity
        .get("consumer")
        .and_then(Value::as_object)
        .and_then(|consumer| consumer.str("id"));
    if let (Some(password), Some(consumer)) = (entity.str("password"), consumer) {
        let hash = Sha1::new()
            .chain_update(password)
            .chain_update(consumer)
            .finalize();
        let hash = hex(&hash);
        entity.insert("password", hash.into());
    }
}

fn digest_certificate(entity: &mut Object) -> Result<(), Problems> {
    let Some(certificate) = entity.str("cert") else {
        return Ok(());
    };
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes())
        .map_err(|error| super::single("cert", format!("invalid certificate: {error}")))?;
    let digest = hex(digest::digest(&digest::SHA256, &pem.contents).as_ref());
    entity.insert("cert_digest", digest.into());
    Ok(())
}

fn hash_secret(entity: &mut Object) {
    if entity.get("hash_secret") != Some(&Value::Bool(true)) {
        return;
    }
    let Some(secret) = entity.str("client_secret") else {
        return;
    };
    let salt: [u8; 16] = random::bytes();
    let mut hash = [0; 32];
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA512,
        PBKDF2_ROUNDS,
        &salt,
        secret.as_bytes(),
        &mut hash,
    );
    let text = format!(
        "$pbkdf2-sha512$i={PBKDF2_ROUNDS},l={}${}${}",
        hash.len(),
        base64(&salt),
        base64(&hash)
    );
    entity.insert("client_secret", text.into());
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            let index = bits >> (18 - 6 * digit) & 63;
            text.push(char::from(DIGITS[index as usize]));
        }
    }
    text
}
