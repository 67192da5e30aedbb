//! The credential of hmac-auth.

use super::source::HMACAUTH_CREDENTIALS;
use compact_str::CompactString;
use model::EntityKind;
use model::entities::{ConsumerId, CredentialId};
use plugin::Entity;
use serde::Deserialize;
use std::fmt;

#[derive(Clone, Deserialize)]
pub struct HmacauthCredential {
    pub id: CredentialId,
    pub consumer: ConsumerId,
    pub username: CompactString,
    /// The key of the signatures. It is stored as it is, because both sides compute with it. `None` if a change has set
    /// it to null.
    pub(super) secret: Option<String>,
}

impl Entity for HmacauthCredential {
    const KIND: EntityKind = HMACAUTH_CREDENTIALS;
}

/// Leaves out the secret, so that it gets into no log.
impl fmt::Debug for HmacauthCredential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HmacauthCredential")
            .field("id", &self.id)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}
