//! The credential of basic-auth.

use super::source::BASICAUTH_CREDENTIALS;
use compact_str::CompactString;
use model::EntityKind;
use model::entities::{ConsumerId, CredentialId};
use plugin::Entity;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub struct BasicauthCredential {
    pub id: CredentialId,
    pub consumer: ConsumerId,
    pub username: CompactString,
    /// Hash of the password: lower-case hexadecimal SHA-1 of the password followed by the consumer's id.
    pub password: CompactString,
}

impl Entity for BasicauthCredential {
    const KIND: EntityKind = BASICAUTH_CREDENTIALS;
}
