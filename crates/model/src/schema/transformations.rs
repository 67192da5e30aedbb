//! Conversions of given values to the stored form: hashes of secrets, digests of certificates.

use super::{Problems, random};
use crate::value::{Object, Value};
use data_encoding::BASE64_NOPAD;
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
    /// PBKDF2 hash of the client secret if `hash_secret` is set. Source: kong/plugins/oauth2/secret.lua.
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

    /// The field that must be given for the transformation to apply.
    pub(super) fn input(self) -> &'static str {
        match self {
            Self::BasicauthPassword => "password",
            Self::CertDigest => "cert",
            Self::Oauth2Secret => "client_secret",
        }
    }

    /// Returns the fields that must be given together, if the patch changes an input of the stored hash but does not
    /// give the secret again. Such a patch is refused, because the stored hash would no longer match.
    /// Source: kong/db/schema/init.lua (run_transformation_checks).
    pub(super) fn staleness(self, patch: &Object, existing: &Object) -> Option<&'static str> {
        let is_given = |field: &str| match patch.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(_) => true,
        };
        match self {
            Self::BasicauthPassword => {
                let consumer = |entity: &Object| {
                    Some(
                        entity
                            .get("consumer")?
                            .as_object()?
                            .str("id")?
                            .to_ascii_lowercase(),
                    )
                };
                let changes = consumer(patch).is_some_and(|id| consumer(existing) != Some(id));
                (changes && !is_given("password")).then_some("'password', 'consumer.id'")
            }
            Self::Oauth2Secret => {
                let changes = is_given("hash_secret")
                    && patch.get("hash_secret") != existing.get("hash_secret");
                (changes && !is_given("client_secret")).then_some("'hash_secret', 'client_secret'")
            }
            Self::CertDigest => None,
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
        BASE64_NOPAD.encode(&salt),
        BASE64_NOPAD.encode(&hash)
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
