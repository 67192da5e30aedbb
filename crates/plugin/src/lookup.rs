//! The lookups of entities that a plugin can make while it handles a request. The gateway implements them with the
//! store's entity tables. The trait keeps the data plane independent of the store.

use model::entities::{BasicauthCredential, Consumer, ConsumerId, KeyauthCredential};
use model::{EntityKind, Object};
use uuid::Uuid;

/// Looks up entities that are not part of the snapshot. The calls block a worker, so an implementation must read local
/// data only and must not wait for the network.
pub trait Lookup: Send + Sync {
    fn key_owner(&self, key: &str) -> Result<Option<KeyOwner>, LookupError>;

    fn basicauth_credential(
        &self,
        username: &str,
    ) -> Result<Option<BasicauthCredential>, LookupError>;

    fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, LookupError>;

    fn consumer_by_username(&self, username: &str) -> Result<Option<Consumer>, LookupError>;

    /// Returns a whole entity, for plugins that show one.
    fn entity(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError>;
}

/// The credential and the consumer of a key. A request always needs both, so one lookup returns both.
#[derive(Debug, Clone)]
pub struct KeyOwner {
    pub credential: KeyauthCredential,
    /// `None` means an internal error, because deleting a consumer also deletes its credentials.
    pub consumer: Option<Consumer>,
}

/// The store could not be read, or an entity in it could not be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// The lookups of a node without consumers and credentials: they find nothing.
pub struct NoLookup;

impl Lookup for NoLookup {
    fn key_owner(&self, _: &str) -> Result<Option<KeyOwner>, LookupError> {
        Ok(None)
    }

    fn basicauth_credential(&self, _: &str) -> Result<Option<BasicauthCredential>, LookupError> {
        Ok(None)
    }

    fn consumer(&self, _: ConsumerId) -> Result<Option<Consumer>, LookupError> {
        Ok(None)
    }

    fn consumer_by_username(&self, _: &str) -> Result<Option<Consumer>, LookupError> {
        Ok(None)
    }

    fn entity(&self, _: EntityKind, _: Uuid) -> Result<Option<Object>, LookupError> {
        Ok(None)
    }
}
