//! What a plugin may ask of the node's configuration while it runs. Implemented over the store by the program, so that
//! nothing on the data plane knows the store.

use model::entities::{BasicauthCredential, Consumer, ConsumerId, KeyauthCredential};
use model::{EntityKind, Object};
use uuid::Uuid;

/// Entities that are looked up per request instead of being part of the snapshot. Each answers from memory.
pub trait Lookup: Send + Sync {
    fn key_owner(&self, key: &str) -> Result<Option<KeyOwner>, LookupError>;

    fn basicauth_credential(
        &self,
        username: &str,
    ) -> Result<Option<BasicauthCredential>, LookupError>;

    fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, LookupError>;

    fn consumer_by_username(&self, username: &str) -> Result<Option<Consumer>, LookupError>;

    /// A whole entity, for the few plugins that show one.
    fn entity(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError>;
}

/// The credential of a key and whose it is, in one lookup: no request needs the one without the other.
#[derive(Debug, Clone)]
pub struct KeyOwner {
    pub credential: KeyauthCredential,
    /// None is an error of ours: a consumer's credentials go with it.
    pub consumer: Option<Consumer>,
}

/// The store could not be read, or holds something that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// A node without consumers and credentials.
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
