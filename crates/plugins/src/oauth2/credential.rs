//! The credential of oauth2: a client application of a consumer.

use super::source::OAUTH2_CREDENTIALS;
use compact_str::CompactString;
use model::EntityKind;
use model::entities::CredentialId;
use plugin::Entity;
use serde::Deserialize;

/// There is no `Debug`, because it would show the secret.
#[derive(Deserialize)]
pub struct Oauth2Credential {
    pub id: CredentialId,
    pub(super) client_id: CompactString,
    pub(super) client_secret: Option<CompactString>,
    /// Whether `client_secret` is a hash.
    pub(super) hash_secret: Option<bool>,
    pub(super) redirect_uris: Option<Vec<CompactString>>,
    pub(super) client_type: Option<ClientType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClientType {
    /// It can keep a secret.
    Confidential,
    Public,
}

impl Oauth2Credential {
    pub(super) fn is_public(&self) -> bool {
        self.client_type == Some(ClientType::Public)
    }

    pub(super) fn has_hashed_secret(&self) -> bool {
        self.hash_secret == Some(true)
    }
}

impl Entity for Oauth2Credential {
    const KIND: EntityKind = OAUTH2_CREDENTIALS;
}
