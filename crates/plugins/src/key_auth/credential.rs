//! The credential of key-auth.

use super::source::KEYAUTH_CREDENTIALS;
use model::EntityKind;
use model::entities::{ConsumerId, CredentialId};
use plugin::Entity;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub struct KeyauthCredential {
    pub id: CredentialId,
    pub consumer: ConsumerId,
    /// Unix time in seconds at which the credential expires.
    pub ttl: Option<i64>,
}

impl Entity for KeyauthCredential {
    const KIND: EntityKind = KEYAUTH_CREDENTIALS;
}
