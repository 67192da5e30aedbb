//! Lookups of plugins while they run: consumers and credentials, read from the store at its newest revision.

mod cache;

use cache::Cache;
use model::EntityKind;
use model::Object;
use model::codec;
use model::entities::{BasicauthCredential, Consumer, ConsumerId, KeyauthCredential};
use plugin::{KeyOwner, Lookup, LookupError};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Reader, Store, StoreError, View};
use uuid::Uuid;

/// Lookups for all workers. Each thread has its own reader, so workers share no lock.
#[derive(Debug)]
pub(crate) struct StoreLookup {
    store: Store,
    /// Distinguishes the readers of this store from those of another store in the same process.
    number: u64,
}

/// Reader and cache of one thread for one store.
struct Local {
    number: u64,
    reader: Reader,
    keys: Cache<KeyOwner>,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Decode(#[from] codec::DecodeError),
}

impl From<ReadError> for LookupError {
    fn from(error: ReadError) -> Self {
        LookupError(Box::new(error))
    }
}

impl StoreLookup {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn with_local<T>(&self, act: impl FnOnce(&mut Local) -> T) -> T {
        LOCAL.with_borrow_mut(|slot| match slot {
            Some(local) if local.number == self.number => act(local),
            other => act(other.insert(Local {
                number: self.number,
                reader: self.store.reader(),
                keys: Cache::new(),
            })),
        })
    }

    fn read<T>(
        &self,
        look: impl FnOnce(&View<'_>) -> Result<T, ReadError>,
    ) -> Result<T, LookupError> {
        self.with_local(|local| read(&local.reader, look))
    }

    fn by_id<T: DeserializeOwned>(
        &self,
        kind: EntityKind,
        id: Uuid,
    ) -> Result<Option<T>, LookupError> {
        self.read(|view| decoded(view, kind, id))
    }

    fn by_unique<T: DeserializeOwned>(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Result<Option<T>, LookupError> {
        self.read(|view| decoded_by_unique(view, kind, field, value))
    }
}

fn read<T>(
    reader: &Reader,
    look: impl FnOnce(&View<'_>) -> Result<T, ReadError>,
) -> Result<T, LookupError> {
    Ok(reader.read(look).map_err(ReadError::from)??)
}

fn decoded_by_unique<T: DeserializeOwned>(
    view: &View<'_>,
    kind: EntityKind,
    field: &str,
    value: &str,
) -> Result<Option<T>, ReadError> {
    match view.id_by_unique(kind, field, value)? {
        Some(id) => decoded(view, kind, id),
        None => Ok(None),
    }
}

fn decoded<T: DeserializeOwned>(
    view: &View<'_>,
    kind: EntityKind,
    id: Uuid,
) -> Result<Option<T>, ReadError> {
    let entity = view.get(kind, id)?;
    Ok(entity.map(codec::decode).transpose()?)
}

/// Entity types that a [`KeyOwner`] is built from.
const KEY_OWNER_KINDS: [EntityKind; 2] =
    [plugins::kinds::KEYAUTH_CREDENTIALS, EntityKind::Consumers];

fn key_owner(view: &View<'_>, key: &str) -> Result<Option<KeyOwner>, ReadError> {
    let kind = plugins::kinds::KEYAUTH_CREDENTIALS;
    let found: Option<KeyauthCredential> = decoded_by_unique(view, kind, "key", key)?;
    let Some(credential) = found else {
        return Ok(None);
    };
    Ok(Some(KeyOwner {
        consumer: decoded(view, EntityKind::Consumers, credential.consumer.0)?,
        credential,
    }))
}

impl Lookup for StoreLookup {
    fn key_owner(&self, key: &str) -> Result<Option<KeyOwner>, LookupError> {
        let changes = KEY_OWNER_KINDS.map(|kind| self.store.last_change(kind));
        let since = changes.into_iter().max().unwrap_or_default();
        self.with_local(|local| {
            let tag = local.keys.tag(key.as_bytes());
            if let Some(owner) = local.keys.get(tag, since) {
                return Ok(Some(owner));
            }
            let (revision, found) = read(&local.reader, |view| {
                Ok((view.revision(), key_owner(view, key)?))
            })?;
            if let Some(owner) = &found {
                local.keys.put(tag, revision, owner.clone());
            }
            Ok(found)
        })
    }

    fn basicauth_credential(
        &self,
        username: &str,
    ) -> Result<Option<BasicauthCredential>, LookupError> {
        self.by_unique(plugins::kinds::BASICAUTH_CREDENTIALS, "username", username)
    }

    fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, LookupError> {
        self.by_id(EntityKind::Consumers, id.0)
    }

    fn consumer_by_username(&self, username: &str) -> Result<Option<Consumer>, LookupError> {
        self.by_unique(EntityKind::Consumers, "username", username)
    }

    fn entity(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError> {
        self.by_id(kind, id)
    }
}
