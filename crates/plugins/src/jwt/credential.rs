//! The credential of jwt.

use super::algorithm::Algorithm;
use super::key::{KeyProblem, PublicKey};
use super::source::JWT_SECRETS;
use compact_str::CompactString;
use model::EntityKind;
use model::entities::{ConsumerId, CredentialId};
use plugin::Entity;
use serde::Deserialize;

/// A credential with its public key, which is parsed when the credential is read from the store. Look-ups keep decoded
/// credentials, so requests do not parse keys. There is no `Debug`, because it would show the secret.
#[derive(Deserialize)]
#[serde(from = "Stored")]
pub struct JwtSecret {
    pub id: CredentialId,
    pub consumer: ConsumerId,
    pub key: CompactString,
    pub(super) algorithm: Algorithm,
    /// The secret of HS256, HS384 and HS512.
    pub(super) secret: Option<CompactString>,
    /// The public key of the other algorithms.
    pub(super) public_key: Option<Result<PublicKey, KeyProblem>>,
}

impl Entity for JwtSecret {
    const KIND: EntityKind = JWT_SECRETS;
}

#[derive(Deserialize)]
struct Stored {
    id: CredentialId,
    consumer: ConsumerId,
    key: CompactString,
    algorithm: Option<Algorithm>,
    secret: Option<CompactString>,
    rsa_public_key: Option<CompactString>,
}

impl From<Stored> for JwtSecret {
    fn from(stored: Stored) -> Self {
        let algorithm = stored.algorithm.unwrap_or(Algorithm::Hs256);
        let pem = stored.rsa_public_key;
        let pem = pem.filter(|_| !algorithm.is_symmetric());
        Self {
            id: stored.id,
            consumer: stored.consumer,
            key: stored.key,
            algorithm,
            secret: stored.secret,
            public_key: pem.map(|pem| PublicKey::parse(algorithm, &pem)),
        }
    }
}
